"""The splitter: unchanged clients whose sessions are where their topics are."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import unittest

from nodes import BINARY, PATIENCE_S, ThreeNodes, free_port, wait_until
from paho_clients import V5, V311, PahoClient
from test_delivery import DeliveryCases
from test_flows import FlowCases
from test_placement import call
from test_sessions import SessionCases
from test_subscriptions import SharedCases, SubscriptionCases
from test_version_311 import OlderCases
from wire import NEVER, Kind, Property, RawCases, RawClient, Will, acknowledge, publish, subscribe


class Splitter:
    """A process in front of a cluster."""

    def __init__(self, cluster, port=None, *arguments):
        self.port = port or free_port()
        self.log = tempfile.TemporaryFile(mode="w+b")
        command = [BINARY, "place", "--proxy", "--listen", f":{self.port}", *arguments]
        for node in cluster.nodes:
            command += ["--cluster", f"127.0.0.1:{node.port}", "--api", f"http://127.0.0.1:{node.http_port}"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("THICKET_")}
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)
        wait_until(lambda: "listens" in self.text() or self.process.poll() is not None, "the splitter to listen")
        assert self.process.poll() is None, self.text()

    def text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        text = self.text()
        self.log.close()
        assert code == 0, text
        assert "panicked" not in text, text


class Split(RawCases, ThreeNodes):
    """Three nodes, and all clients at a splitter in front of them."""

    def setUp(self):
        super().setUp()
        self.splitter = Splitter(self.cluster)
        self.here = self.there = self.elsewhere = self.splitter.port

    def tearDown(self):
        self.splitter.stop()
        super().tearDown()

    def topics_on_all_nodes(self):
        """A topic for each node, where a publisher of it is placed."""
        where = {}
        for number in range(60):
            if len(where) == 3:
                break
            topic = f"{self.unique}/t{number}"
            body = {"client_id": f"{self.unique}-p{number}", "publish": [topic], "rates": {topic: 10}}
            status, _, placed = call(self.cluster.nodes[0], "POST", body=body)
            self.assertEqual(status, 200, placed)
            where.setdefault(placed["sessions"][0]["node"], topic)
        self.assertEqual(len(where), 3)
        return list(where.values())

    def sessions(self, client_id):
        """Node and client identifier of each session of a client that a node has."""
        found = {}
        for node in self.cluster.nodes:
            for session in json.loads(node.ask("/v1/sessions") or b"[]"):
                name = session["client_id"]
                if name == client_id or name.startswith(f"{client_id}~"):
                    found[name] = node.port
        return found

    def publish_to(self, port, topics, count, qos):
        with RawClient(port, 4) as client:
            client.connect(self.client_id(f"source{port}"))
            for number in range(count):
                for topic in topics:
                    client.publish(topic, str(number).encode(), qos)


class Sessions(Split):
    def test_filters_go_to_sessions_on_the_nodes_of_their_topics_at_every_qos(self):
        topics = self.topics_on_all_nodes()
        most = 0
        for version in (4, 5):
            for qos in (0, 1, 2):
                name = f"s{version}{qos}"
                client = self.raw(self.here, name, version=version)
                granted = client.subscribe(*((topic, qos) for topic in topics)).codes
                self.assertEqual(list(granted), [qos] * 3)
                sessions = self.sessions(self.client_id(name))
                placed = call(self.cluster.nodes[0], "GET", f"/{self.client_id(name)}")[2]["sessions"]
                expected = {one["client_id"]: int(one["address"].rsplit(":", 1)[1]) for one in placed}
                self.assertEqual(sessions, expected)
                most = max(most, len(sessions))
                self.publish_to(self.cluster.nodes[0].port, topics, 20, qos)
                came = {}
                for _ in range(60):
                    message = client.take_message()
                    came.setdefault(message.topic, []).append(int(message.payload))
                self.assertEqual(came, {topic: list(range(20)) for topic in topics}, "once, and in order")
                self.assertEqual(client.ping(), [])
                client.disconnect()
        self.assertGreater(most, 1, "how many sessions is the placer's to say")

    def test_publications_go_to_the_nodes_of_their_topics_and_keep_their_order(self):
        reader = RawClient(self.cluster.nodes[1].port)
        self.addCleanup(reader.close)
        reader.connect(self.client_id("reader"))
        reader.subscribe((f"{self.unique}/#", 2))
        topics = [f"{self.unique}/{number}" for number in range(4)]
        client = self.raw(self.here, "publisher", version=4)
        for number in range(20):
            for topic in topics:
                client.publish(topic, str(number).encode(), number % 3)
        came = {}
        for _ in range(80):
            message = reader.take_message()
            came.setdefault(message.topic, []).append(int(message.payload))
        self.assertEqual(came, {topic: list(range(20)) for topic in topics})

    def test_a_session_goes_on_with_what_came_while_its_client_was_away(self):
        topics = self.topics_on_all_nodes()
        for version, props in ((4, ()), (5, ((Property.SESSION_EXPIRY_INTERVAL, NEVER),))):
            name = f"keeper{version}"
            client = self.raw(self.here, name, version=version, clean_start=False, props=props)
            self.assertFalse(client.connack.session_present)
            client.subscribe(*((topic, 2) for topic in topics))
            client.disconnect()
            self.publish_to(self.cluster.nodes[0].port, topics, 5, 2)
            if version == 5:
                # What it forgot the placement tells.
                self.splitter.stop()
                self.splitter = Splitter(self.cluster, self.here)
            client = self.raw(self.here, name, version=version, clean_start=False, props=props)
            self.assertTrue(client.connack.session_present)
            came = {}
            for _ in range(15):
                message = client.take_message()
                came.setdefault(message.topic, []).append(int(message.payload))
            self.assertEqual(came, {topic: list(range(5)) for topic in topics})
            client.disconnect()
            self.raw(self.here, name, version=version).disconnect()
            identifier = self.client_id(name)
            wait_until(lambda c=identifier: self.sessions(c) == {}, "a clean start to end all sessions")

    def test_an_exchange_of_qos_2_goes_on_over_connections_under_its_number(self):
        topics = self.topics_on_all_nodes()
        client = self.raw(self.here, "c", version=4, clean_start=False)
        client.subscribe(*((topic, 2) for topic in topics))
        self.publish_to(self.cluster.nodes[0].port, topics, 1, 2)
        numbers = {}
        for _ in topics:
            message = client.expect(Kind.PUBLISH)
            numbers[message.packet_id] = message.topic
        self.assertEqual(len(numbers), 3, "one number each")
        for number in numbers:
            client.send(acknowledge(Kind.PUBREC, number))
        client.send(publish(topics[2], b"mine", 2, 77, version=4))
        client.expect_answer(Kind.PUBREC, 77)
        client.close()
        client = self.raw(self.here, "c", version=4, clean_start=False)
        released = set()
        while released != set(numbers):
            came = client.receive()
            self.assertEqual(came.kind, Kind.PUBREL, "what was received does not come again")
            released.add(came.packet_id)
            client.send(acknowledge(Kind.PUBCOMP, came.packet_id))
        client.send(acknowledge(Kind.PUBREL, 77))
        client.expect_answer(Kind.PUBCOMP, 77)
        self.assertEqual(client.take_message().payload, b"mine")
        self.assertEqual(client.ping(), [], "and once")

    def test_a_retained_message_comes_once(self):
        topics = self.topics_on_all_nodes()
        for topic in topics:
            with RawClient(self.cluster.nodes[0].port) as client:
                client.connect(self.client_id("writer"))
                client.publish(topic, b"kept", 1, retain=True)
        client = self.raw(self.here, "reader", version=4)
        # What one session sends may overtake the SUBACK, which waits for all of them (3.8.4).
        client.send(subscribe(9, *((topic, 1) for topic in topics), version=4))
        client.expect_answer(Kind.SUBACK, 9)
        came = [client.take_message() for _ in topics]
        self.assertEqual({(one.topic, one.retain) for one in came}, {(topic, True) for topic in topics})
        self.assertEqual(client.ping(), [])

    def test_the_will_goes_out_once_and_not_after_a_disconnect(self):
        watcher = RawClient(self.cluster.nodes[2].port)
        self.addCleanup(watcher.close)
        watcher.connect(self.client_id("watcher"))
        watcher.subscribe((self.topic("will"), 1))
        topics = self.topics_on_all_nodes()
        for version in (4, 5):
            for vanishes in (False, True):
                will = Will(self.topic("will"), b"gone", 1)
                client = self.raw(self.here, f"c{version}{vanishes}", version=version, will=will)
                client.subscribe(*((topic, 0) for topic in topics))
                if vanishes:
                    client.close()
                    self.assertEqual(watcher.take_message().payload, b"gone")
                else:
                    client.disconnect()
        self.publish_to(self.cluster.nodes[0].port, [self.topic("will")], 1, 1)
        self.assertEqual(watcher.take_message().payload, b"0", "no will came twice")

    def test_who_takes_a_client_identifier_over_ends_the_client_before(self):
        topics = self.topics_on_all_nodes()
        first = self.raw(self.here, "same", version=5)
        first.subscribe(*((topic, 1) for topic in topics))
        second = self.raw(self.here, "same", version=5)
        last = first.until_closed()[-1]
        self.assertEqual((last.kind, last.reason_code), (Kind.DISCONNECT, 0x8E))
        second.subscribe(*((topic, 1) for topic in topics))
        self.publish_to(self.cluster.nodes[0].port, topics, 1, 1)
        self.assertEqual({second.take_message().topic for _ in topics}, set(topics))

    def test_a_silent_client_is_closed_and_one_that_pings_is_not(self):
        topics = self.topics_on_all_nodes()
        client = self.raw(self.here, "pings", version=5, keep_alive=2)
        client.subscribe(*((topic, 1) for topic in topics))
        silent = self.raw(self.here, "silent", version=5, keep_alive=1)
        last = silent.until_closed()[-1]
        self.assertEqual((last.kind, last.reason_code), (Kind.DISCONNECT, 0x8D))
        self.assertEqual(client.ping(), [])

    def test_what_is_malformed_ends_its_connection_with_the_reason(self):
        client = self.raw(self.here, "bad", version=5)
        client.send(b"\xf0\x01\x18")
        client.send(b"\x36\x00")
        last = client.until_closed()[-1]
        self.assertEqual(last.kind, Kind.DISCONNECT)
        self.assertGreaterEqual(last.reason_code, 0x80)
        with RawClient(self.here) as other:
            other.send(b"\x00\x00")
            self.assertEqual(other.until_closed(), [])

    def test_paho_and_mosquitto_are_served_as_they_are(self):
        topics = self.topics_on_all_nodes()
        for protocol in (V311, V5):
            with PahoClient(self.here, self.client_id(f"paho{protocol}"), protocol) as client:
                client.client.subscribe([(topic, 1) for topic in topics])
                client.until(lambda c=client: c.granted, "the SUBACK")
                self.publish_to(self.cluster.nodes[0].port, topics, 3, 1)
                client.until(lambda c=client: len(c.messages) == 9, "the messages")
        name = self.client_id("mosquitto")
        command = ["mosquitto_sub", "-p", str(self.here), "-i", name, "-C", "3", "-q", "2", "-W", "30"]
        for topic in topics:
            command += ["-t", topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            def is_subscribed():
                texts = [node.ask("/v1/subscriptions").decode() for node in self.cluster.nodes]
                return sum(text.count(f'"{name}') for text in texts) >= 3

            wait_until(is_subscribed, "mosquitto_sub to subscribe")
            self.publish_to(self.cluster.nodes[0].port, topics, 1, 2)
            self.assertEqual(process.communicate(timeout=PATIENCE_S)[0].split(), ["0"] * 3)


class Deaths(Split):
    def test_nothing_is_lost_or_doubled_at_qos_2_when_a_node_behind_dies(self):
        topics = self.topics_on_all_nodes()
        client = self.raw(self.here, "keeper", version=4, clean_start=False)
        client.subscribe(*((topic, 2) for topic in topics))
        sessions = self.sessions(self.client_id("keeper"))
        victim = next(node for node in self.cluster.nodes[1:] if node.port in sessions.values())
        source = RawClient(self.cluster.nodes[0].port, 4)
        self.addCleanup(source.close)
        source.connect(self.client_id("source"))
        for number in range(10):
            for topic in topics:
                source.publish(topic, str(number).encode(), 2)
        came = [client.take_message() for _ in range(7)]
        self.expected_to_die.add(victim.name)
        victim.kill()
        left = client.until_closed()
        # Received but not acknowledged: it comes again.
        self.assertTrue(all(one.kind in (Kind.PUBLISH, Kind.PUBREL) for one in left), left)

        def connect():
            nonlocal client
            client = RawClient(self.here, 4)
            self.addCleanup(client.close)
            return client.try_connect(self.client_id("keeper"), clean_start=False).reason_code == 0

        wait_until(connect, "the sessions to be served elsewhere")
        for number in range(10, 20):
            for topic in topics:
                source.publish(topic, str(number).encode(), 2)
        seen = {}
        for one in came:
            seen.setdefault(one.topic, []).append(int(one.payload))
        while sum(map(len, seen.values())) < 60:
            one = client.receive()
            if one.kind == Kind.PUBREL:
                client.send(acknowledge(Kind.PUBCOMP, one.packet_id))
                continue
            client.send(acknowledge(Kind.PUBREC, one.packet_id))
            seen.setdefault(one.topic, []).append(int(one.payload))
        self.assertEqual(seen, {topic: list(range(20)) for topic in topics})


DIVIDED = unittest.skip("the Receive Maximum is divided by the sessions a client may have: it is kept, and not filled by one of them")


class FlowsThroughASplitter(FlowCases, Split):
    """What holds at a node holds at a splitter."""

    test_a_client_that_acknowledges_nothing_costs_itself_only = DIVIDED(lambda _: None)
    test_the_send_quota_begins_at_the_receive_maximum = DIVIDED(lambda _: None)


class DeliveryThroughASplitter(DeliveryCases, Split):
    test_no_more_messages_than_the_receive_maximum_are_in_flight = DIVIDED(lambda _: None)
    test_the_receive_maximum_holds_for_a_burst_of_retained_messages = DIVIDED(lambda _: None)


class SubscriptionsThroughASplitter(SubscriptionCases, Split):
    pass


class SharedThroughASplitter(SharedCases, Split):
    pass


class OlderThroughASplitter(OlderCases, Split):
    pass


class SessionsThroughASplitter(SessionCases, Split):
    pass


class Crowded(RawCases, ThreeNodes):
    def test_connections_without_a_connect_yield_to_clients(self):
        splitter = Splitter(self.cluster, None, "--max-connections", "8")
        self.addCleanup(splitter.stop)
        first = self.raw(splitter.port, "first")
        for _ in range(16):
            stranger = socket.create_connection(("127.0.0.1", splitter.port), PATIENCE_S, ("127.0.0.66", 0))
            self.addCleanup(stranger.close)
        self.raw(splitter.port, "second").ping()
        first.ping()


class Arguments(unittest.TestCase):
    def test_what_is_no_good_is_named(self):
        for arguments, word in (
            (["--cluster", "nowhere"], "cluster"),
            (["--cluster", "a:1", "--api", "https://a:2"], "api"),
            (["--cluster", "a:1", "--max-sessions", "17"], "--max-sessions"),
            ([], "--cluster"),
            (["--cluster", "a:1", "--listen", "256.0.0.1:1"], "256.0.0.1:1"),
        ):
            command = [BINARY, "place", "--proxy", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
