"""A client that fills what the cluster may retain: the others hear that theirs was not."""

from nodes import OneNode, ThreeNodes
from wire import Closed, RawCases, publish

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


class FullOfRetainedOnOneNode(FullOfRetained, RawCases, OneNode):
    pass


class FullOfRetainedAcrossNodes(FullOfRetained, RawCases, ThreeNodes):
    pass
