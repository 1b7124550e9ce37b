"""Texts as long as a packet can hold them, where they become keys of the store."""

import tempfile

from nodes import OneNode
from wire import Closed, Property, RawCases, RawClient

TOPIC_FILTER_INVALID = 0x8F
LONGEST = 65_535
# What the store keeps of a subscription: fifteen bytes less.
LONGEST_FILTER = 65_520
STAYS = ((Property.SESSION_EXPIRY_INTERVAL, 600),)


class LongKeys(RawCases, OneNode):
    """One node that stores what clients choose."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.arguments = ("--data", f"{cls.directory.name}/data", "--workers", "2")
        super().setUpClass()

    def check_that_the_node_serves(self):
        client = self.raw(self.here, self.client_id("bystander"))
        client.ping()
        self.assertTrue(self.cluster.is_alive())

    def test_a_filter_that_no_key_holds_is_refused_and_the_session_goes_on(self):
        for version, refused in ((3, 0x80), (4, 0x80), (5, TOPIC_FILTER_INVALID)):
            props = STAYS if version == 5 else ()
            client = self.raw(self.here, self.client_id(f"long-{version}"), version=version, clean_start=False, props=props)
            for front in ("", "$share/g/"):
                for length, expected in ((LONGEST, refused), (LONGEST_FILTER + 1, refused), (LONGEST_FILTER, 1)):
                    text = front + "a" * (length - len(front))
                    self.assertEqual(list(client.subscribe((text, 1)).codes), [expected], (version, front, length))
            client.ping()
        self.check_that_the_node_serves()

    def test_retained_messages_of_the_longest_topics_are_kept(self):
        topic = "r" * LONGEST
        client = self.raw(self.here, self.client_id("retains"))
        self.assertIn(client.publish(topic, b"x", qos=1, retain=True), (0, 0x10))
        self.assertIn(client.publish(topic, b"", qos=1, retain=True), (0, 0x10))
        self.check_that_the_node_serves()

    def test_client_identifiers_and_user_names_of_any_length_end_no_thread(self):
        for length in (1024, 1025, LONGEST):
            for user in (None, "u" * LONGEST):
                client = RawClient(self.here)
                self.addCleanup(client.close)
                try:
                    client.connect("c" * length, clean_start=False, props=STAYS, user=user)
                except (Closed, AssertionError):
                    # Refused; what matters is that the node lives.
                    continue
        self.check_that_the_node_serves()
