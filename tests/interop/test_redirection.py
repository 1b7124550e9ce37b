"""Nodes that know their load and send clients where there is room: at connect, at a drain, and while connected."""

import collections
import json
import subprocess
import threading
import time
import unittest

from nodes import BINARY, ThreeNodes, wait_until
from wire import Closed, Kind, Property, RawCases, RawClient, Will, acknowledge, publish

USE_ANOTHER_SERVER = 0x9C
EXPIRY = ((Property.SESSION_EXPIRY_INTERVAL, 300),)
# A client that says so is served where it comes.
STAYS = ((Property.USER_PROPERTY, ("thicket-redirected", "1")),)


def port_of(packet):
    """Where a CONNACK or DISCONNECT sends its client."""
    reference = packet.value(Property.SERVER_REFERENCE)
    assert reference is not None, f"no Server Reference in {packet}"
    host, port = reference.rsplit(":", 1)
    assert host == "127.0.0.1", reference
    return int(port)


def follow(port, client_id, version=5, **options):
    """A client that goes where it is sent: itself, the port it ended at, and how often it was redirected."""
    redirects = 0
    while True:
        client = RawClient(port, version)
        came = client.try_connect(client_id, **options)
        if came.reason_code == 0:
            return client, port, redirects
        assert came.reason_code == USE_ANOTHER_SERVER, came
        client.close()
        port, redirects = port_of(came), redirects + 1


class Redirection(RawCases, ThreeNodes):
    """`redirect = load`: what decides is what all nodes tell of themselves."""

    arguments = ("--redirect", "load")

    def node_of(self, port):
        return next(node for node in self.cluster.nodes if node.port == port)

    def states(self):
        return {entry["name"]: entry["state"] for entry in json.loads(self.cluster.nodes[0].ask("/v1/nodes"))}

    def crowd(self, port, count, version=5):
        clients = [follow(port, self.client_id(f"c{number}"), version) for number in range(count)]
        for client, _, _ in clients:
            self.addCleanup(client.close)
        return clients

    def test_nodes_tell_where_clients_reach_them_and_what_they_have_to_do(self):
        self.raw(self.here, "one", props=STAYS)

        def is_told():
            states = self.states()
            known = [state for state in states.values() if state and state["cpu_ratio"] is not None]
            return len(known) == 3 and states["node-1"]["connections"] == 1

        wait_until(is_told, "loads to be told")
        for node in self.cluster.nodes:
            state = self.states()[node.name]
            address = {"transport": "tcp", "topic_prefix": "", "address": f"127.0.0.1:{node.port}"}
            self.assertEqual(state["addresses"], [address])
            self.assertEqual(state["http_address"], f"127.0.0.1:{node.http_port}")
            self.assertTrue(0 <= state["cpu_ratio"] <= 1)
            self.assertGreater(state["memory_bytes"], 1_000_000)
            self.assertFalse(state["draining"] or state["full"])
        metrics = self.cluster.nodes[1].ask("/metrics").decode()
        self.assertIn('thicket_node_cpu_ratio{node="node-3"', metrics)
        shown = subprocess.run(
            [BINARY, "ctl", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}", "nodes"],
            capture_output=True,
            check=True,
        )
        self.assertIn(b"CPU", shown.stdout)

    def test_nodes_tell_which_topics_their_clients_publish_to(self):
        publisher = self.publisher(props=STAYS)
        told = []

        def is_told():
            for _ in range(20):
                publisher.publish(self.topic(), b"x")
            told[:] = [one for one in json.loads(self.cluster.nodes[0].ask("/v1/topics")) if one["topic"] == self.topic()]
            return bool(told)

        wait_until(is_told, "the topic to be told")
        ids = {entry["name"]: entry["id"] for entry in json.loads(self.cluster.nodes[0].ask("/v1/nodes"))}
        self.assertEqual([one["node"] for one in told], [ids["node-2"]])
        self.assertGreater(told[0]["messages_per_s"], 1)
        wait_until(lambda: not [
            one for one in json.loads(self.cluster.nodes[0].ask("/v1/topics")) if one["topic"] == self.topic()
        ], "the topic to be forgotten")

    def test_a_crowd_at_one_node_is_spread_and_nobody_is_sent_on_twice(self):
        clients = self.crowd(self.here, 150)
        self.assertLessEqual(max(redirects for _, _, redirects in clients), 1)
        counts = collections.Counter(port for _, port, _ in clients)
        jain = sum(counts.values()) ** 2 / (3 * sum(count**2 for count in counts.values()))
        self.assertGreater(jain, 0.95, counts)
        metrics = self.cluster.nodes[0].ask("/metrics").decode()
        self.assertIn('thicket_redirect_decisions_total{decision="redirected",reason="load"}', metrics)

    def test_who_does_not_follow_or_says_that_it_was_redirected_is_served(self):
        self.crowd(self.here, 30)
        redirected, number = None, 0
        while redirected is None:
            number += 1
            with RawClient(self.here) as client:
                if client.try_connect(self.client_id(f"stays{number}")).reason_code == USE_ANOTHER_SERVER:
                    redirected = f"stays{number}"
        self.raw(self.here, redirected)
        node = self.cluster.nodes[0]
        explained = json.loads(node.ask(f"/v1/explain?client_id={self.client_id(redirected)}"))
        self.assertEqual(explained["decision"]["reason"], "does_not_follow")
        self.assertTrue(explained["is_here"])
        told = subprocess.run(
            [BINARY, "ctl", "--api", f"127.0.0.1:{node.http_port}", "explain", "client", self.client_id(redirected)],
            capture_output=True,
            check=True,
        )
        self.assertIn(b"it came back instead of following", told.stdout)
        for number in range(10):
            self.raw(self.here, f"says{number}", props=STAYS)

    def test_older_clients_are_served_where_they_come(self):
        for client, port, redirects in self.crowd(self.here, 40, version=4):
            self.assertEqual((port, redirects), (self.here, 0), client)

    def test_a_client_that_is_redirected_brings_its_session_and_its_will_stays(self):
        watcher = self.raw(self.here, "watcher", props=STAYS)
        watcher.subscribe(("will", 1))
        will = Will("will", b"gone", 1, False, ())
        self.crowd(self.here, 30)
        client, port, _ = follow(self.here, self.client_id("mover"), clean_start=False, props=EXPIRY, will=will)
        client.subscribe((self.topic(), 2))
        client.disconnect()
        publisher = self.publisher(props=STAYS)
        for number in range(5):
            publisher.publish(self.topic(), f"{number}", qos=2)
        back, _, _ = follow(self.here, self.client_id("mover"), clean_start=False, props=EXPIRY, will=will)
        self.addCleanup(back.close)
        self.assertEqual([back.take_message().payload for _ in range(5)], [b"%d" % number for number in range(5)])
        publisher.publish("will", "no other", qos=1)
        self.assertEqual(watcher.take_message().payload, b"no other")


class Drained(RawCases, ThreeNodes):
    """A drained node says where to go, whether `redirect` is on or not."""

    def test_clients_of_a_drained_node_hear_where_their_sessions_are(self):
        leaving = self.cluster.nodes[2]
        keepers = [self.keeper(self.elsewhere, f"k{number}") for number in range(5)]
        for keeper in keepers:
            keeper.subscribe((self.topic(), 1))
        passing = [self.raw(self.elsewhere, f"p{number}") for number in range(30)]
        wanted = self.topic("wanted")
        self.raw(self.here, "there").subscribe((wanted, 1))
        wanting = [self.raw(self.elsewhere, f"w{number}") for number in range(4)]
        for client in wanting:
            client.subscribe((wanted, 1))
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{leaving.http_port}", "drain", "--timeout", "20"]
        subprocess.run(command, capture_output=True, check=True)
        others = {self.here, self.there}
        for number, keeper in enumerate(keepers):
            told = keeper.expect(Kind.DISCONNECT)
            self.assertEqual(told.reason_code, USE_ANOTHER_SERVER)
            port = port_of(told)
            self.assertIn(port, others)
            self.assertTrue(self.has_session(port, f"k{number}"), "the node that has the session")
            back = self.keeper(port, f"k{number}")
            self.assertTrue(back.connack.session_present)
        self.assertEqual({port_of(client.expect(Kind.DISCONNECT)) for client in passing}, others)
        self.assertEqual({port_of(client.expect(Kind.DISCONNECT)) for client in wanting}, {self.here})
        with RawClient(self.elsewhere) as late:
            came = late.try_connect("late")
            self.assertEqual(came.reason_code, USE_ANOTHER_SERVER)
            self.assertIn(port_of(came), others)
        with RawClient(self.elsewhere, version=4) as old:
            self.assertEqual(old.try_connect("old").reason_code, 3)
        entries = json.loads(self.cluster.nodes[0].ask("/v1/nodes"))
        states = {entry["name"]: entry["state"]["draining"] for entry in entries}
        self.assertEqual(states, {"node-1": False, "node-2": False, "node-3": True})

    def has_session(self, port, role):
        node = next(node for node in self.cluster.nodes if node.port == port)
        sessions = json.loads(node.ask("/v1/sessions"))
        return any(session["client_id"] == self.client_id(role) for session in sessions)


class Moves(RawCases, ThreeNodes):
    """Clients that are connected are sent on when their node has more to do than another one."""

    arguments = ("--redirect", "load", "--redirect-policy", "messages")

    def test_publishers_are_sent_on_until_loads_are_even_and_nothing_is_lost(self):
        topic = self.topic()
        watcher = self.raw(self.here, "watcher", props=STAYS)
        watcher.subscribe((topic, 2))
        # All say that they were redirected already, so that all begin at one node.
        publishers = [Publisher(self, number, topic, (*EXPIRY, *STAYS)) for number in range(6)]
        for publisher in publishers:
            publisher.start()
        wait_until(lambda: sum(publisher.moves for publisher in publishers) >= 2, "publishers to be sent on", 30)
        time.sleep(1)
        for publisher in publishers:
            publisher.is_over.set()
        for publisher in publishers:
            publisher.join()
            self.assertIsNone(publisher.problem)
            self.assertLessEqual(publisher.moves, 2)
        expected = {f"{publisher.number}:{at}".encode() for publisher in publishers for at in range(publisher.sent)}
        came = collections.Counter()
        while len(came) < len(expected):
            came[watcher.take_message().payload] += 1
        self.assertEqual(set(came), expected)
        self.assertEqual(max(came.values()), 1, "QoS 2 comes once")
        metrics = self.cluster.nodes[1].ask("/metrics").decode()
        self.assertIn('decision="redirected",reason="moved"', metrics)


class Publisher(threading.Thread):
    """Publishes at QoS 2, one message after the other, and goes where it is sent."""

    def __init__(self, case, number, topic, props):
        super().__init__()
        self.case, self.number, self.topic, self.props = case, number, topic, props
        self.sent, self.moves, self.problem = 0, 0, None
        self.is_over = threading.Event()

    def run(self):
        try:
            port = self.case.there
            while port is not None:
                port = self.publish_at(port)
        except Exception as problem:  # pylint: disable=broad-exception-caught
            self.problem = problem

    def publish_at(self, port):
        """Where it is sent; None: it has published enough."""
        client_id = self.case.client_id(f"publisher{self.number}")
        with RawClient(port) as client:
            client.connect(client_id, clean_start=False, props=self.props)
            # What was under way is sent again with its packet identifier, which is its number here.
            try:
                while not self.is_over.is_set():
                    self.publish_one(client)
                    time.sleep(0.002)
            except (Closed, OSError):
                raise AssertionError("closed without a word") from None
            except Sent as sent:
                self.moves += 1
                return sent.port
        return None

    def publish_one(self, client):
        """What was under way on the connection before goes on: PUBLISH again until its PUBREC has come, then PUBREL."""
        packet_id = self.sent % 60_000 + 1
        if not self.is_received:
            payload = f"{self.number}:{self.sent}".encode()
            client.send(publish(self.topic, payload, 2, packet_id, dup=self.is_again))
            self.is_again = True
            self.expect(client, Kind.PUBREC)
            self.is_received = True
        client.send(acknowledge(Kind.PUBREL, packet_id))
        self.expect(client, Kind.PUBCOMP)
        self.sent += 1
        self.is_again = self.is_received = False

    is_again = False
    is_received = False

    @staticmethod
    def expect(client, kind):
        came = client.receive()
        if came.kind == Kind.DISCONNECT:
            assert came.reason_code == USE_ANOTHER_SERVER, came
            raise Sent(port_of(came))
        assert came.kind == kind, came


class Sent(Exception):
    """The client is to go to another port."""

    def __init__(self, port):
        super().__init__(port)
        self.port = port


if __name__ == "__main__":
    unittest.main()
