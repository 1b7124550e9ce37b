"""Limits from the configuration, and users: what is refused and what the client is told about it."""

import json
import subprocess
import tempfile
import time

from nodes import BINARY, OneNode, ThreeNodes
from wire import NEVER, Closed, Kind, Property, RawCases, RawClient, connect, publish, subscribe

NOT_AUTHORIZED = 0x87
BAD_USER_NAME_OR_PASSWORD = 0x86
QUOTA_EXCEEDED = 0x97


class Limits(RawCases, OneNode):
    """A node with small limits states them in its CONNACK and keeps to them."""

    arguments = (
        *("--maximum-packet-size", "1000"),
        *("--receive-maximum", "2"),
        *("--topic-alias-maximum", "3"),
        *("--session-expiry-maximum-s", "2"),
        *("--keep-alive-maximum-s", "1"),
        *("--subscriptions", "3"),
        *("--queue-messages", "10"),
        *("--topic-levels", "5"),
    )

    def test_the_connack_states_every_limit(self):
        """[MQTT-3.2.2-21]: where the client asked for more, what it got instead."""
        came = self.raw(self.here, props=((Property.SESSION_EXPIRY_INTERVAL, NEVER),)).connack
        self.assertEqual(came.value(Property.MAXIMUM_PACKET_SIZE), 1000)
        self.assertEqual(came.value(Property.RECEIVE_MAXIMUM), 2)
        self.assertEqual(came.value(Property.TOPIC_ALIAS_MAXIMUM), 3)
        self.assertEqual(came.value(Property.SESSION_EXPIRY_INTERVAL), 2)
        self.assertEqual(came.value(Property.SERVER_KEEP_ALIVE), 1)

    def test_a_shorter_keep_alive_and_expiry_are_left_alone(self):
        """[MQTT-3.2.2-22]: 3.2.2.3.2 and 3.2.2.3.14 ask for the properties only where the value differs."""
        came = self.raw(self.here, keep_alive=1, props=((Property.SESSION_EXPIRY_INTERVAL, 1),)).connack
        self.assertIn(came.value(Property.SESSION_EXPIRY_INTERVAL), (None, 1))
        self.assertIn(came.value(Property.SERVER_KEEP_ALIVE), (None, 1))

    def test_the_server_keep_alive_is_the_one_enforced(self):
        """[MQTT-3.1.2-21] [MQTT-3.1.2-22]: even where the client wanted none."""
        for keep_alive in (0, 600):
            client = self.raw(self.here, f"k{keep_alive}", keep_alive=keep_alive)
            self.assertEqual([one.reason_code for one in client.until_closed()], [0x8D])

    def test_the_session_expiry_granted_is_the_one_that_counts(self):
        """[MQTT-3.1.2-23] [MQTT-4.1.0-2]"""
        self.keeper(self.here).close()
        # The passing of time is what is tested.
        time.sleep(3.5)
        self.assertFalse(self.keeper(self.here).connack.session_present)

    def test_a_subscription_over_the_quota_is_refused_in_its_place(self):
        """[MQTT-3.9.3-1] [MQTT-3.8.4-7]: the others of the same SUBSCRIBE are granted; replacing one takes no room."""
        client = self.raw(self.here)
        filters = [(self.topic(f"{number}"), 0) for number in range(4)]
        self.assertEqual(client.subscribe(*filters).codes, [0, 0, 0, QUOTA_EXCEEDED])
        self.assertEqual(client.subscribe((self.topic("0"), 1)).codes, [1])

    def test_too_many_levels_are_refused(self):
        """A filter by its SUBACK, a topic by its PUBACK or the end of the connection."""
        client = self.raw(self.here)
        self.assertGreaterEqual(client.subscribe(("a/b/c/d/e/f", 0)).codes[0], 0x80)
        client.send(publish("a/b/c/d/e/f", "x", 1, 1))
        came = client.receive()
        self.assertIn(came.kind, (Kind.PUBACK, Kind.DISCONNECT))
        self.assertGreaterEqual(came.reason_code, 0x80)

    def test_the_maximum_packet_size_holds_to_the_byte(self):
        """[MQTT-3.2.2-15]: pitfall: enforced a few bytes late. The CONNECT is a packet too."""
        client = self.raw(self.here)
        overhead = len(publish(self.topic(), bytes(900))) - 900
        client.send(publish(self.topic(), bytes(1000 - overhead)))
        self.assertEqual(client.ping(), [])
        client.send(publish(self.topic(), bytes(1001 - overhead)))
        self.assertEqual([one.reason_code for one in client.until_closed()], [0x95])
        with RawClient(self.here) as large:
            large.send(connect("x" * 2000))
            came = large.until_closed()
            self.assertEqual([one.reason_code for one in came if one.kind == Kind.CONNACK], [0x95] * len(came))

    def test_a_full_queue_keeps_its_bound_and_its_order(self):
        """Pitfall: unbounded queues for offline clients. Whichever messages are kept, they are ten and in order."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 1))
        subscriber.disconnect()
        publisher = self.publisher()
        for number in range(40):
            publisher.publish(self.topic(), f"{number:03}", qos=1)
        again = self.keeper(self.here, "subscriber")
        kept = [again.take_message().payload for _ in range(10)]
        self.assertEqual(kept, sorted(set(kept)))
        self.assertEqual(again.ping(), [])


class FullQueueCases(RawCases):
    """What publishers hear of a queue that is full."""

    def fill(self, count):
        """An absent session with a bound of ten messages, and its publisher's answers to `count` of them."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 2))
        subscriber.disconnect()
        publisher = self.raw(self.there, "publisher")
        publisher.send(*(publish(self.topic(), f"{number:03}", 1, number) for number in range(1, count + 1)))
        return publisher, [publisher.expect(Kind.PUBACK).reason_code or 0 for _ in range(count)]

    def take_ten(self):
        """What the session has: the first ten, in order."""
        again = self.keeper(self.here, "subscriber")
        kept = [again.take_message().payload for _ in range(10)]
        self.assertEqual(kept, [f"{number:03}".encode() for number in range(1, 11)])
        self.assertEqual(again.ping(), [])
        return again

    def counted(self, field):
        return sum(json.loads(node.ask("/v1/memory"))["total"][field] for node in self.cluster.nodes)


class RefusingCases(FullQueueCases):
    arguments = ("--queue-messages", "10", "--on-full", "refuse")

    def test_publishers_hear_that_a_queue_is_full_until_it_has_room(self):
        """[MQTT-4.4.0-2] is not broken: what is refused was never taken."""
        before = self.counted("queue_refused_messages")
        publisher, codes = self.fill(12)
        self.assertEqual(codes, [0] * 10 + [QUOTA_EXCEEDED] * 2)
        publisher.send(publish(self.topic(), "twice", 2, 20))
        self.assertEqual(publisher.expect(Kind.PUBREC).reason_code, QUOTA_EXCEEDED)
        old = self.raw(self.there, "old", version=4)
        old.send(publish(self.topic(), "old", 1, 1, version=4))
        self.assertEqual(old.until_closed(), [])
        self.assertEqual(self.counted("queue_refused_messages") - before, 4)
        again = self.take_ten()
        publisher.send(publish(self.topic(), "room", 2, 20))
        self.assertEqual(publisher.expect(Kind.PUBREC).reason_code or 0, 0)
        self.assertEqual(again.take_message().payload, b"room")


class RefusingOnOneNode(RefusingCases, OneNode):
    pass


class RefusingAcrossNodes(RefusingCases, ThreeNodes):
    pass


class DroppingCases(FullQueueCases):
    arguments = ("--queue-messages", "10", "--on-full", "drop")

    def test_the_newest_messages_are_dropped_and_counted_and_nobody_else_is_held_up(self):
        other = self.subscriber((self.topic(), 1), role="other")
        before = self.counted("queue_dropped_messages")
        _, codes = self.fill(12)
        self.assertEqual(codes, [0] * 12)
        self.assertEqual(len([other.take_message() for _ in range(12)]), 12)
        sessions = json.loads(self.cluster.nodes[0].ask("/v1/sessions"))
        mine = [one for one in sessions if one["client_id"] == self.client_id("subscriber")]
        self.assertEqual([one["dropped_messages"] for one in mine], [2])
        self.assertEqual(self.counted("queue_dropped_messages") - before, 2)
        self.take_ten()


class DroppingOnOneNode(DroppingCases, OneNode):
    pass


class DroppingAcrossNodes(DroppingCases, ThreeNodes):
    pass


class SlowClientCases(RawCases):
    """Pitfall: a client that does not read must not grow the node or slow the rest down."""

    def test_a_client_that_reads_nothing_costs_only_itself(self):
        """QoS 0 messages it has no room for are dropped; what it gets in the end is whole and in order."""
        before = [node.memory_bytes("VmRSS") for node in self.cluster.nodes]
        slow = self.subscriber((self.topic(), 0), role="slow")
        quick = self.subscriber((self.topic(), 0), role="quick")
        publisher = self.publisher()
        count, size = 400, 100_000
        for number in range(count):
            publisher.publish(self.topic(), number.to_bytes(4, "big") + bytes(size))
            self.assertEqual(quick.take_message().payload[:4], number.to_bytes(4, "big"))
        for node, memory in zip(self.cluster.nodes, before, strict=True):
            self.assertLess(node.memory_bytes("VmRSS") - memory, 35_000_000, node.name)
        try:
            came = slow.ping()
        except (OSError, Closed):
            # It may also be closed for being too slow.
            return
        numbers = [int.from_bytes(one.payload[:4], "big") for one in came]
        self.assertEqual({len(one.payload) for one in came}, {size + 4})
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_a_qos_1_client_that_reads_nothing_loses_nothing_within_its_queue(self):
        """[MQTT-4.5.0-1]: messages wait in its session and come when it reads, in order."""
        slow = self.subscriber((self.topic(), 1), role="slow")
        publisher = self.publisher()
        for number in range(200):
            publisher.publish(self.topic(), number.to_bytes(4, "big") + bytes(100_000), qos=1)
        numbers = [int.from_bytes(slow.take_message().payload[:4], "big") for _ in range(200)]
        self.assertEqual(numbers, list(range(200)))


class SlowClientsOnOneNode(SlowClientCases, OneNode):
    pass


class SlowClientsAcrossNodes(SlowClientCases, ThreeNodes):
    pass


class Users(RawCases, OneNode):
    """A node that knows its users."""

    @classmethod
    def setUpClass(cls):
        file = tempfile.NamedTemporaryFile(mode="w", suffix=".users")
        cls.addClassCleanup(file.close)
        made = subprocess.run([BINARY, "passwd", "ada"], input="secret\n", capture_output=True, text=True, check=True)
        file.write(made.stdout)
        file.flush()
        cls.arguments = ("--users", file.name)
        super().setUpClass()

    def test_a_user_with_the_right_password_is_let_in(self):
        """[MQTT-3.1.4-5]: and can publish at once, in the same segment as the CONNECT."""
        for version in (4, 5):
            client = self.raw(self.here, f"v{version}", version, user="ada", password="secret")
            self.assertEqual(client.ping(), [])
        with RawClient(self.here) as hasty:
            hello = connect(self.client_id("hasty"), user="ada", password="secret")
            hasty.send(hello, subscribe(1, (self.topic(), 1)), publish(self.topic(), "x", 1, 1))
            self.assertEqual({hasty.receive().kind for _ in range(4)}, set(map(Kind, (2, 3, 4, 9))))

    def test_others_are_refused_and_what_they_sent_ahead_is_dropped(self):
        """[MQTT-3.1.4-2] [MQTT-3.1.4-6]: with the code of their version."""
        watcher = self.raw(self.here, "watcher", user="ada", password="secret")
        watcher.subscribe((self.topic(), 1))
        cases = [
            ("a wrong password", {"user": "ada", "password": "guess"}),
            ("no password", {"user": "ada"}),
            ("an unknown user", {"user": "eve", "password": "secret"}),
            ("nobody", {}),
        ]
        for name, options in cases:
            for version, codes in ((4, {4, 5}), (5, {BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED})):
                with self.subTest(name, version=version), RawClient(self.here, version) as client:
                    hello = connect(self.client_id("refused"), version=version, **options)
                    client.send(hello, publish(self.topic(), "sneaked in", version=version))
                    came = client.until_closed()
                    self.assertEqual([one.kind for one in came], [Kind.CONNACK])
                    self.assertIn(came[0].reason_code, codes)
        witness = self.raw(self.here, "witness", user="ada", password="secret")
        witness.publish(self.topic(), "end", qos=1)
        self.assertEqual(self.messages_until(watcher, b"end"), [])

    def test_a_refused_connect_does_not_disturb_the_client_of_that_identifier(self):
        """[MQTT-3.1.4-2]: no takeover without a right to connect."""
        client = self.raw(self.here, user="ada", password="secret")
        with RawClient(self.here) as impostor:
            self.assertGreaterEqual(impostor.try_connect(self.client_id(), user="ada", password="x").reason_code, 0x80)
        self.assertEqual(client.ping(), [])
