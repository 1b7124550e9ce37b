"""What a client may publish in a second."""

import re

from nodes import OneNode
from wire import Kind, RawCases

MESSAGE_RATE_TOO_HIGH = 0x96


class ClientRates(RawCases, OneNode):
    arguments = ("--client-messages-per-s", "50", "--client-bytes-per-s", "1MB", "--maximum-packet-size", "8MiB")

    def refused(self, count, payload, **options):
        """Publishes so often, and returns what came when the node had enough."""
        client = self.raw(self.here, f"fast-{count}-{options.get('version', 5)}", **options)
        try:
            for _ in range(count):
                client.publish(self.topic(), payload)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return client.until_closed()

    def counted(self):
        """Clients that were disconnected for their rates so far."""
        metrics = self.cluster.nodes[0].ask("/metrics").decode()
        found = re.search(r'thicket_client_disconnects_total\{reason="message_rate_too_high"\} (\d+)', metrics)
        return int(found[1]) if found else 0

    def test_a_client_that_publishes_too_many_messages_is_disconnected(self):
        before = self.counted()
        (goodbye,) = self.refused(5000, b"x")
        self.assertEqual((goodbye.kind, goodbye.reason_code), (Kind.DISCONNECT, MESSAGE_RATE_TOO_HIGH))
        self.assertEqual(self.refused(5001, b"x", version=4), [])
        self.assertEqual(self.counted() - before, 2)

    def test_a_client_that_publishes_too_many_bytes_is_disconnected(self):
        (goodbye,) = self.refused(6, b"x" * 1_000_000)
        self.assertEqual(goodbye.reason_code, MESSAGE_RATE_TOO_HIGH)

    def test_what_is_within_the_limits_is_accepted(self):
        client = self.raw(self.here, "slow")
        for _ in range(80):
            self.assertIn(client.publish(self.topic(), b"x", qos=1), (0, 0x10))
        other = self.raw(self.here, "large")
        self.assertIn(other.publish(self.topic(), b"x" * 4_000_000, qos=1), (0, 0x10))
