"""Retained messages: what is kept, who gets it, and how old it has become."""

import collections
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

from nodes import BINARY, PATIENCE_S, Node, OneNode, ThreeNodes, free_port
from wire import NEVER, Kind, Property, RawCases, RawClient, acknowledge, disconnect, subscribe

RETAIN_AS_PUBLISHED = 0x08
SEND_IF_NEW = 0x10
DO_NOT_SEND = 0x20


class RetainedCases(RawCases):
    """Cases for one node and for several."""

    def setUp(self):
        super().setUp()
        # Tells when a retained message has reached the subscribers' node.
        self.watcher = self.raw(self.here, "watcher")
        self.watcher.subscribe((self.topic("#"), 2 | RETAIN_AS_PUBLISHED | DO_NOT_SEND))
        self.retainer = self.publisher("retainer")

    def retain(self, rest, payload, qos=1, **options):
        """Publishes a retained message and waits until the subscribers' node has seen it."""
        self.retainer.publish(self.topic(rest), payload, qos=qos, retain=True, **options)
        self.assertEqual(self.watcher.take_message().retain, True)

    def nothing_more(self, client):
        """Whether nothing comes to a client before a message that is published now."""
        client.subscribe((self.topic("fence"), 0))
        self.retainer.publish(self.topic("fence"), "fence")
        self.watcher.take_message()
        self.assertEqual(self.messages_until(client, b"fence"), [])

    def test_a_new_subscription_gets_retained_messages_with_retain_set(self):
        """[MQTT-3.3.1-5] [MQTT-3.3.1-9] [MQTT-3.8.4-8]: with RETAIN 1 and at most their QoS; wildcards find all."""
        for qos in (0, 1, 2):
            self.retain(f"a/{qos}", f"{qos}", qos)
        for granted in (0, 1, 2):
            subscriber = self.subscriber((self.topic("a/+"), granted), role=f"subscriber-{granted}")
            came = [subscriber.take_message() for _ in range(3)]
            expected = {(self.topic(f"a/{qos}"), b"%d" % qos, min(qos, granted), True, False) for qos in (0, 1, 2)}
            self.assertEqual({(one.topic, one.payload, one.qos, one.retain, one.dup) for one in came}, expected)

    def test_a_retained_message_published_after_the_suback_comes_once(self):
        """[MQTT-3.3.1-9] [MQTT-3.3.1-12]: live, and not again as retained. Many times: it is a matter of moments."""
        self.watcher.close()
        subscriber = self.raw(self.here, "subscriber")
        for number in range(100):
            subscriber.subscribe((self.topic(f"{number}"), 2))
            self.retainer.publish(self.topic(f"{number}"), f"{number}", qos=2, retain=True)
            came = subscriber.take_message()
            self.assertEqual((came.payload, came.retain), (b"%d" % number, False))
        subscriber.subscribe((self.topic("end"), 2))
        self.retainer.publish(self.topic("end"), "end", qos=2)
        self.assertEqual(self.messages_until(subscriber, b"end"), [])

    def test_the_last_retained_message_replaces_the_one_before(self):
        """[MQTT-3.3.1-5] [MQTT-3.3.1-8]: a message without RETAIN neither replaces nor removes it."""
        self.retain("a", "old")
        self.retain("a", "new")
        self.retainer.publish(self.topic("a"), "not retained", qos=1)
        subscriber = self.subscriber((self.topic("a"), 1))
        self.assertEqual(subscriber.take_message().payload, b"new")
        self.nothing_more(subscriber)

    def test_an_empty_retained_message_is_delivered_and_removes_the_one_kept(self):
        """[MQTT-3.3.1-6] [MQTT-3.3.1-7]"""
        self.retain("a", "kept")
        current = self.subscriber((self.topic("a"), 1), role="current")
        self.assertEqual(current.take_message().payload, b"kept")
        self.retain("a", b"")
        came = current.take_message()
        self.assertEqual((came.payload, came.retain), (b"", False))
        self.nothing_more(self.subscriber((self.topic("a"), 1)))

    def test_retain_handling_0_sends_again_with_every_subscribe(self):
        """[MQTT-3.3.1-9] [MQTT-3.8.4-4]: and no message is lost while the subscription is replaced."""
        self.retain("a", "kept")
        subscriber = self.subscriber((self.topic("a"), 1))
        self.assertEqual(subscriber.take_message().payload, b"kept")
        subscriber.subscribe((self.topic("a"), 1))
        self.assertEqual(subscriber.take_message().payload, b"kept")

    def test_retain_handling_1_sends_for_a_new_subscription_only(self):
        """[MQTT-3.3.1-10]: a subscription of a resumed session is not new."""
        self.retain("a", "kept")
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic("a"), 1 | SEND_IF_NEW))
        self.assertEqual(subscriber.take_message().payload, b"kept")
        subscriber.subscribe((self.topic("a"), 1 | SEND_IF_NEW))
        self.nothing_more(subscriber)
        subscriber.disconnect()
        again = self.keeper(self.elsewhere, "subscriber")
        again.subscribe((self.topic("a"), 1 | SEND_IF_NEW))
        self.nothing_more(again)

    def test_retain_handling_2_never_sends(self):
        """[MQTT-3.3.1-11]"""
        self.retain("a", "kept")
        subscriber = self.subscriber((self.topic("a"), 1 | DO_NOT_SEND))
        subscriber.subscribe((self.topic("a"), 2 | DO_NOT_SEND))
        self.nothing_more(subscriber)

    def test_retained_messages_are_not_sent_again_on_resume_or_takeover(self):
        """Pitfall: only a SUBSCRIBE asks for them."""
        self.retain("a", "kept")
        first = self.keeper(self.here, "subscriber")
        first.subscribe((self.topic("a"), 1))
        first.take_message()
        for port in (self.here, self.elsewhere):
            taking_over = self.keeper(port, "subscriber")
            self.assertTrue(taking_over.connack.session_present)
            self.nothing_more(taking_over)
        taking_over.disconnect()
        self.nothing_more(self.keeper(self.here, "subscriber"))

    def test_retain_as_published_survives_the_queue_of_an_offline_session(self):
        """[MQTT-3.3.1-12] [MQTT-3.3.1-13]"""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic("keeps"), 1 | RETAIN_AS_PUBLISHED), (self.topic("clears"), 1))
        subscriber.disconnect()
        for name in ("keeps", "clears"):
            self.retain(name, name)
        again = self.keeper(self.elsewhere, "subscriber")
        flags = {one.payload: one.retain for one in (again.take_message(), again.take_message())}
        self.assertEqual(flags, {b"keeps": True, b"clears": False})

    def test_a_retained_message_is_sent_with_retain_1_without_retain_as_published(self):
        """3.3.1.3: the flag on what is sent for a new subscription tells that it is retained, whatever the option."""
        self.retain("a", "kept")
        for option in (0, RETAIN_AS_PUBLISHED):
            subscriber = self.subscriber((self.topic("a"), 1 | option), role=f"subscriber-{option}")
            self.assertTrue(subscriber.take_message().retain)

    def test_a_retained_message_carries_the_subscription_identifier(self):
        """[MQTT-3.3.4-3]: that of the SUBSCRIBE it answers."""
        self.retain("a", "kept")
        subscriber = self.raw(self.here, "subscriber")
        for identifier, name in ((11, "a"), (12, "+")):
            subscriber.subscribe((self.topic(name), 1), props=((Property.SUBSCRIPTION_IDENTIFIER, identifier),))
            self.assertIn(identifier, subscriber.take_message().values(Property.SUBSCRIPTION_IDENTIFIER))

    def test_a_retained_message_keeps_its_properties(self):
        """[MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]: a topic alias is none of them."""
        users = [("b", "1"), ("a", "2"), ("b", "1")]
        props = (
            (Property.TOPIC_ALIAS, 1),
            (Property.CONTENT_TYPE, "text/plain"),
            (Property.RESPONSE_TOPIC, "answers"),
            (Property.CORRELATION_DATA, b"\x00\xff"),
            (Property.PAYLOAD_FORMAT_INDICATOR, 1),
            *((Property.USER_PROPERTY, pair) for pair in users),
        )
        self.retain("a", "kept", props=props)
        self.watcher.close()
        came = self.subscriber((self.topic("a"), 1)).take_message()
        self.assertEqual(came.values(Property.USER_PROPERTY), users)
        self.assertEqual(came.value(Property.CONTENT_TYPE), "text/plain")
        self.assertEqual(came.value(Property.RESPONSE_TOPIC), "answers")
        self.assertEqual(came.value(Property.CORRELATION_DATA), b"\x00\xff")
        self.assertEqual(came.value(Property.PAYLOAD_FORMAT_INDICATOR), 1)
        self.assertEqual(len(came.properties), 7)

    def test_the_expiry_of_a_retained_message_counts_down_and_ends_it(self):
        """[MQTT-3.3.2-5] [MQTT-3.3.2-6]"""
        self.retain("long", "long", props=((Property.MESSAGE_EXPIRY_INTERVAL, 1000),))
        self.retain("longest", "longest", props=((Property.MESSAGE_EXPIRY_INTERVAL, NEVER),))
        self.retain("short", "short", props=((Property.MESSAGE_EXPIRY_INTERVAL, 1),))
        self.retain("end", "end")
        # The passing of time is what is tested; no event tells of it.
        time.sleep(2.1)
        subscriber = self.subscriber(*((self.topic(name), 1) for name in ("short", "long", "longest", "end")))
        expiries = {}
        while b"end" not in expiries:
            came = subscriber.take_message()
            expiries[came.payload] = came.value(Property.MESSAGE_EXPIRY_INTERVAL)
        self.nothing_more(subscriber)
        self.assertNotIn(b"short", expiries)
        self.assertTrue(900 < expiries[b"long"] <= 998, expiries)
        self.assertTrue(NEVER - 100 < expiries[b"longest"] <= NEVER - 2, expiries)
        self.assertIsNone(expiries[b"end"])

    def test_many_retained_messages_all_come(self):
        """A subscription gets more of them than fit any window or page."""
        count = 3000
        for number in range(count):
            self.retainer.publish(self.topic(f"{number}"), f"{number}", retain=True)
        for _ in range(count):
            self.watcher.take_message()
        for qos in (0, 1):
            subscriber = self.subscriber((self.topic("+"), qos), role=f"subscriber-{qos}")
            came = {subscriber.take_message().payload for _ in range(count)}
            self.assertEqual(len(came), count)

    def test_retained_messages_larger_than_any_buffer_all_come(self):
        """Sixteen megabytes for one SUBSCRIBE of a client that reads at its leisure, none of them dropped."""
        for number in range(80):
            self.retainer.publish(self.topic(f"{number}"), f"{number:03}".encode() + bytes(200_000), retain=True)
            self.watcher.take_message()
        for qos in (0, 1):
            subscriber = self.subscriber((self.topic("+"), qos), role=f"subscriber-{qos}")
            came = {int(subscriber.take_message().payload[:3]) for _ in range(80)}
            self.assertEqual(came, set(range(80)))

    def test_retained_messages_come_to_a_client_that_leaves_with_its_suback(self):
        """[MQTT-3.3.1-9]: mosquitto_sub makes its session and leaves; the retained messages come when it is back."""
        for number in range(5):
            self.retain(f"five/{number}", f"{number}")
        came = []
        for attempt in range(20):
            session = ("-c", "-i", self.client_id(f"d{attempt}"), "-q", "1", "-t", self.topic("five/#"))
            again = (self.here, self.elsewhere)[attempt % 2]
            words = ""
            for port, arguments in ((self.here, ("-E",)), (again, ("-C", "5", "-W", "10"))):
                command = ["mosquitto_sub", "-p", str(port), *session, *arguments]
                words += subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False).stdout
            came.append(sorted(set(words.split())))
        self.assertEqual(came, [[f"{number}" for number in range(5)]] * 20)

    def test_retained_messages_come_to_a_client_that_leaves_before_its_suback(self):
        """[MQTT-3.3.1-9]: SUBSCRIBE and DISCONNECT in one segment."""
        for number in range(5):
            self.retain(f"five/{number}", f"{number}")
        for attempt in range(10):
            role, port = f"leaver-{attempt}", (self.here, self.elsewhere)[attempt % 2]
            leaver = self.keeper(self.here, role)
            leaver.send(subscribe(1, (self.topic("five/#"), 1)), disconnect())
            leaver.until_closed()
            again = self.keeper(port, role)
            came = set()
            while len(came) < 5:
                came.add(again.take_message().payload)

    def test_dollar_topics_are_retained_out_of_sight_of_wildcards(self):
        """[MQTT-4.7.2-1]: in retained messages too."""
        leaf = f"leaf-of-{self.unique}"
        self.watcher.subscribe((f"${self.unique}/{leaf}", 1))
        self.retainer.publish(f"${self.unique}/{leaf}", "hidden", qos=1, retain=True)
        self.watcher.take_message()
        subscriber = self.subscriber((f"+/{leaf}", 1))
        self.nothing_more(subscriber)
        subscriber.subscribe((f"${self.unique}/{leaf}", 1))
        self.assertEqual(subscriber.take_message().payload, b"hidden")

    def test_a_retained_message_of_3_1_1_reaches_5_0_and_back(self):
        """The store knows no version."""
        older = self.publisher("older", version=4)
        older.publish(self.topic("older"), "older", qos=2, retain=True)
        self.watcher.take_message()
        self.retain("newer", "newer", qos=2, props=((Property.USER_PROPERTY, ("k", "v")),))
        for version in (3, 4, 5):
            subscriber = self.raw(self.here, f"v{version}", version)
            subscriber.subscribe((self.topic("+"), 2))
            messages = [subscriber.take_message() for _ in range(2)]
            came = {(one.payload, one.qos, one.retain) for one in messages}
            self.assertEqual(came, {(b"older", 2, True), (b"newer", 2, True)})

    def test_retained_messages_wait_for_the_window_and_not_in_the_queue(self):
        """[MQTT-3.3.4-7]: 130 messages of 900 kB, more than a queue may have, and a Receive Maximum of 20."""
        for number in range(130):
            self.retainer.publish(self.topic(f"{number}"), f"{number:03}".encode() + bytes(900_000), qos=1, retain=True)
            self.watcher.take_message()
        subscriber = self.raw(self.here, "subscriber", props=((Property.RECEIVE_MAXIMUM, 20),))
        subscriber.subscribe((self.topic("+"), 1))
        # The window is full while the node answers many other packets.
        first = [subscriber.expect(Kind.PUBLISH) for _ in range(20)]
        for _ in range(100):
            self.assertEqual(subscriber.ping(), [])
        for one in first:
            subscriber.send(acknowledge(Kind.PUBACK, one.packet_id))
        came = {int(one.payload[:3]) for one in first} | {int(subscriber.take_message().payload[:3]) for _ in range(110)}
        self.assertEqual(came, set(range(130)))


class RetainedOnOneNode(RetainedCases, OneNode):
    pass


class RetainedAcrossNodes(RetainedCases, ThreeNodes):
    pass


class Interrupted(unittest.TestCase):
    """5,000 retained messages are on their way to a session when something happens to it: all of them come."""

    COUNT = 5_000

    def start(self, size, qos):
        """Nodes with a data directory each, and the retained messages at all of them."""
        self.data = pathlib.Path(tempfile.mkdtemp(prefix="thicket-retained-"))
        self.addCleanup(shutil.rmtree, self.data, ignore_errors=True)
        self.ports = [(free_port(), free_port()) for _ in range(size)]
        self.nodes = [None] * size
        for number in range(size):
            self.start_node(number)
        with RawClient(self.nodes[-1].port) as retainer:
            retainer.connect("retainer")
            for number in range(self.COUNT):
                retainer.publish(f"a/{number}", f"{number}", qos=qos, retain=True)

    def start_node(self, number):
        seeds = [port for port, _ in self.ports[:number]]
        node = Node(f"node-{number}", seeds, ("--data", str(self.data / str(number))), ports=self.ports[number])
        self.nodes[number] = node
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(number + 1 if self.nodes[-1] is None else len(self.nodes)), node.log_from(0))

    def connect(self, node):
        client = RawClient(node.port)
        self.addCleanup(client.close)
        client.connect("reader", clean_start=False, props=((Property.SESSION_EXPIRY_INTERVAL, NEVER), (Property.RECEIVE_MAXIMUM, 50)))
        return client

    def take(self, client, count):
        """Takes messages until there are some of so many topics. One of QoS 2 that comes again before its PUBREL is the same one."""
        while len(self.came) < count:
            one = client.receive()
            if one.kind == Kind.PUBREL:
                self.held.discard(one.packet_id)
                client.send(acknowledge(Kind.PUBCOMP, one.packet_id))
                continue
            self.assertEqual((one.kind, one.retain), (Kind.PUBLISH, True))
            client.send(acknowledge(Kind.PUBACK if one.qos == 1 else Kind.PUBREC, one.packet_id))
            if one.qos == 1 or one.packet_id not in self.held:
                self.came[one.topic] += 1
                self.held.add(one.packet_id)

    def check(self, granted, interrupt, size=1):
        """`interrupt` ends the connection and returns the node at which the client goes on."""
        self.start(size, granted)
        self.came, self.held = collections.Counter(), set()
        reader = self.connect(self.nodes[0])
        reader.subscribe(("a/#", granted))
        self.take(reader, 1_000)
        node = interrupt(reader)
        reader.close()
        self.take(self.connect(node), self.COUNT)
        if granted == 2:
            self.assertEqual(max(self.came.values()), 1, "none comes twice")

    def test_they_all_come_after_a_lost_connection(self):
        """[MQTT-3.3.1-9]"""
        for granted in (1, 2):
            with self.subTest(granted=granted):
                self.check(granted, lambda reader: self.nodes[0])

    def test_they_all_come_after_the_node_was_killed_or_stopped_and_started_again(self):
        """[MQTT-3.3.1-9]: from its data directory."""

        def kill(_):
            self.nodes[0].kill()
            self.start_node(0)
            return self.nodes[0]

        def stop(_):
            self.nodes[0].stop()
            self.start_node(0)
            return self.nodes[0]

        for interrupt in (kill, stop):
            with self.subTest(interrupt=interrupt.__name__):
                self.check(2, interrupt)

    def test_they_all_come_from_another_node_after_a_drain_or_a_kill(self):
        """[MQTT-3.3.1-9]: the session has moved, or failed over."""

        def drain(_):
            command = [BINARY, "ctl", "--api", f"127.0.0.1:{self.nodes[0].http_port}", "drain", "--timeout", "20"]
            subprocess.run(command, capture_output=True, check=True)
            return self.nodes[1]

        def kill(_):
            self.nodes[0].kill()
            return self.nodes[1]

        for interrupt in (drain, kill):
            with self.subTest(interrupt=interrupt.__name__):
                self.check(2, interrupt, size=3)
