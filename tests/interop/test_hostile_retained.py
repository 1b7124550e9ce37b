"""A client that fills what the cluster, or its user, may retain: it hears that, and the others have room."""

import json

from nodes import OneNode, ThreeNodes, wait_until
from wire import Closed, Property, RawCases, publish

QUOTA_EXCEEDED = 0x97


class FullOfRetained:
    """Ten messages may be retained."""

    arguments = ("--retained-messages", "10")

    def test_a_publisher_hears_that_its_message_was_not_retained(self):
        stranger = self.raw(self.here, "stranger")
        codes = [stranger.publish(self.topic(f"fill/{number}"), "x", qos=1, retain=True) for number in range(13)]
        self.assertEqual([code >= 0x80 for code in codes], [False] * 10 + [True] * 3)
        self.assertEqual(codes[10:], [QUOTA_EXCEEDED] * 3)
        live = self.subscriber((self.topic("late/#"), 1), role="live")
        publisher = self.publisher()
        for qos in (1, 2):
            topic = self.topic(f"late/{qos}")
            self.assertEqual(publisher.publish(topic, "to whom it may concern", qos=qos, retain=True), QUOTA_EXCEEDED)
            self.assertEqual(live.take_message().payload, b"to whom it may concern")
        # Who replaces or removes is not refused.
        self.assertLess(publisher.publish(self.topic("fill/3"), "y", qos=1, retain=True), 0x80)
        self.assertLess(publisher.publish(self.topic("fill/4"), "", qos=1, retain=True), 0x80)
        self.assertLess(publisher.publish(self.topic("late/1"), "kept", qos=1, retain=True), 0x80)
        late = self.subscriber((self.topic("late/#"), 1), role="late")
        self.assertEqual(late.take_message().payload, b"kept")
        old = self.raw(self.there, "old", 4)
        old.send(publish(self.topic("late/old"), "x", 1, 1, retain=True, version=4))
        with self.assertRaises(Closed):
            old.receive()
        for number in range(13):
            stranger.publish(self.topic(f"fill/{number}"), "", qos=1, retain=True)


class UserFullOfRetained:
    """The clients of one address may have five messages retained, of a hundred."""

    arguments = ("--retained-messages", "100", "--user-retained-messages", "5")

    def test_who_has_as_much_as_it_may_is_told_and_subscribers_get_the_message(self):
        live = self.subscriber((self.topic("own/#"), 2), role="live")
        publisher = self.publisher()
        codes = [publisher.publish(self.topic(f"own/{number}"), "x", qos=1, retain=True) for number in range(7)]
        self.assertEqual([code >= 0x80 for code in codes], [False] * 5 + [True] * 2)
        self.assertEqual(codes[5:], [QUOTA_EXCEEDED] * 2)
        self.assertEqual(publisher.publish(self.topic("own/7"), "x", qos=2, retain=True), QUOTA_EXCEEDED)
        publisher.publish(self.topic("own/8"), "x", qos=0, retain=True)
        came = sorted(live.take_message().topic for _ in range(9))
        self.assertEqual(came, [self.topic(f"own/{number}") for number in range(9)])
        # Who replaces is not refused, and who removes has room again.
        self.assertLess(publisher.publish(self.topic("own/0"), "y", qos=1, retain=True), 0x80)
        self.assertLess(publisher.publish(self.topic("own/1"), "", qos=1, retain=True), 0x80)
        self.assertLess(publisher.publish(self.topic("own/7"), "kept", qos=1, retain=True), 0x80)
        late = self.subscriber((self.topic("own/#"), 1), role="late")
        kept = {late.take_message().topic for _ in range(5)}
        self.assertEqual(kept, {self.topic(f"own/{number}") for number in (0, 2, 3, 4, 7)})
        self.assertEqual([came for came in late.ping() if came.topic], [], "nothing else was kept, on any node")
        for number in range(9):
            publisher.publish(self.topic(f"own/{number}"), "", qos=1, retain=True)


class UserFullOfRetainedOnOneNode(UserFullOfRetained, RawCases, OneNode):
    pass


class UserFullOfRetainedAcrossNodes(UserFullOfRetained, RawCases, ThreeNodes):
    pass


class FullOfRetainedOnOneNode(FullOfRetained, RawCases, OneNode):
    pass


class FullOfRetainedAcrossNodes(FullOfRetained, RawCases, ThreeNodes):
    pass


class Expiring:
    """A user may have five messages retained, of ten in all; they expire and nobody asks for them."""

    arguments = ("--retained-messages", "10", "--user-retained-messages", "5")

    def test_what_has_expired_leaves_its_capacity_on_every_node(self):
        soon = ((Property.MESSAGE_EXPIRY_INTERVAL, 1),)
        # Of one user: the quota is that of all nodes together.
        publishers = [self.raw(port, f"publisher-{number}") for number, port in enumerate(sorted({self.here, self.there}))]

        def publish(name, count, content="x", **options):
            publisher = publishers[count % len(publishers)]
            return publisher.publish(self.topic(f"{name}/{count}"), content, qos=1, retain=True, **options)

        for count in range(5):
            self.assertLess(publish("soon", count, props=soon), 0x80)
        # They expire one after the other, as they were published.
        for count in range(5):
            wait_until(lambda count=count: publish("late", count) < 0x80, "capacity after messages have expired")
        self.assertGreaterEqual(publish("late", 5), 0x80)
        for node in self.cluster.nodes:
            wait_until(lambda: "\nthicket_retained_messages 5" in node.ask("/metrics").decode(), "five messages at every node")
        for count in range(6):
            publish("late", count, "")


class ExpiringOnOneNode(Expiring, RawCases, OneNode):
    """A single node."""


class ExpiringAcrossNodes(Expiring, RawCases, ThreeNodes):
    """Publishers on two of three nodes."""


class LongTopics(RawCases, OneNode):
    """Topics of 60 KB that have no message are emptied."""

    def test_removals_of_topics_that_never_were_take_a_bounded_memory(self):
        node = self.cluster.nodes[0]
        client = self.raw(self.here, "stranger", keep_alive=0)
        # What is remembered by default is 32 MiB; the rest is what packets and buffers may cost.
        before = node.memory_bytes("VmHWM")
        for number in range(0, 3000, 50):
            topics = [self.topic(f"{number + more:06}" + "x" * 60_000) for more in range(50)]
            client.send(*[publish(topic, b"", 1, more + 1, retain=True) for more, topic in enumerate(topics)])
            for _ in topics:
                self.assertLess(client.receive().reason_code, 0x80)
        self.assertLess(node.memory_bytes("VmHWM") - before, 120_000_000)
        ledger = json.loads(node.ask("/v1/memory"))
        entry = next(it for it in ledger["remembered"] if it["what"] == "topics without a retained message any more")
        self.assertGreater(entry["bytes"], 16 * 1024 * 1024)
        self.assertLessEqual(entry["bytes"], 32 * 1024 * 1024)
