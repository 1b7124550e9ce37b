"""MQTT 3.1.1 and 3.1 where they differ from 5.0: fewer answers, other codes, and silence instead of DISCONNECT."""

import contextlib

from nodes import OneNode, ThreeNodes
from wire import (
    PINGREQ,
    Closed,
    Kind,
    Property,
    RawCases,
    RawClient,
    Will,
    acknowledge,
    binary,
    connect,
    packet,
    publish,
    subscribe,
)

UNACCEPTABLE_PROTOCOL_VERSION = 1
UNSUPPORTED_PROTOCOL_VERSION = 0x84
IDENTIFIER_REJECTED = 2
FAILURE = 0x80


def body(name, level, flags, payload):
    """A CONNECT without properties."""
    return packet(Kind.CONNECT, 0, binary(name) + bytes([level, flags]) + b"\x00\x3c" + payload)


class OlderCases(RawCases):
    """Cases for one node and for several; clients of 3.1.1 unless they say otherwise."""

    def older(self, port, role="older", **options):
        return self.raw(port, role, version=4, **options)

    def sleeper(self, port, role="sleeper", version=4):
        """A client with a session that is kept."""
        return self.raw(port, role, version=version, clean_start=False)

    def test_nothing_comes_before_the_connack(self):
        """[MQTT-3.2.0-1 v3.1.1] [MQTT-3.1.0-1 v3.1.1]: not even what a resumed session is owed."""
        for version in (3, 4):
            role = f"sleeper-{version}"
            sleeper = self.sleeper(self.here, role, version)
            sleeper.subscribe((self.topic(version), 1))
            sleeper.disconnect()
            self.publisher(f"p-{version}").publish(self.topic(version), "owed", qos=1)
            with RawClient(self.elsewhere, version) as again:
                again.send(connect(self.client_id(role), version, clean_start=False), PINGREQ)
                self.assertEqual(again.receive().kind, Kind.CONNACK)
                self.assertEqual({again.receive().kind for _ in range(2)}, {Kind.PUBLISH, Kind.PINGRESP})
            with RawClient(self.here, version) as impatient:
                impatient.send(publish(self.topic(), "too early", version=version))
                self.assertEqual(impatient.until_closed(), [])

    def test_session_present_says_what_there_was(self):
        """[MQTT-3.2.2-1 v3.1.1] [MQTT-3.2.2-2 v3.1.1] [MQTT-3.2.2-3 v3.1.1] [MQTT-3.1.2-4 v3.1.1]"""
        for clean, present in ((False, False), (False, True), (False, True), (True, False), (False, False)):
            client = self.older(self.elsewhere, clean_start=clean)
            self.assertEqual(client.connack.session_present, present)
            client.close()

    def test_messages_wait_for_a_session_that_is_kept(self):
        """[MQTT-3.1.2-5 v3.1.1] [MQTT-3.1.2-6 v3.1.1]: QoS 1 and 2, in order; a clean session ends with all it had."""
        sleeper = self.sleeper(self.here)
        sleeper.subscribe((self.topic(), 2))
        sleeper.disconnect()
        publisher = self.publisher(version=4)
        for number in range(10):
            publisher.publish(self.topic(), f"{number}", qos=1 + number % 2)
        again = self.sleeper(self.elsewhere)
        came = [again.take_message() for _ in range(10)]
        for qos in (1, 2):
            self.assertEqual([int(one.payload) for one in came if one.qos == qos], list(range(qos - 1, 10, 2)))
        again.disconnect()
        self.older(self.here, "sleeper", clean_start=True).disconnect()
        publisher.publish(self.topic(), "for nobody", qos=1)
        self.assertEqual(self.sleeper(self.elsewhere).ping(), [])

    def test_retained_messages_outlive_the_session_that_published_them(self):
        """[MQTT-3.1.2-7 v3.1.1] [MQTT-3.3.1-8 v3.1.1] [MQTT-3.3.1-9 v3.1.1] [MQTT-3.3.1-10 v3.1.1]"""
        current = self.older(self.here, "current")
        current.subscribe((self.topic(), 1))
        publisher = self.older(self.there, "publisher", clean_start=True)
        publisher.publish(self.topic(), "kept", qos=1, retain=True)
        came = current.take_message()
        self.assertEqual((came.payload, came.retain), (b"kept", False))
        publisher.disconnect()
        later = self.older(self.here, "later")
        later.subscribe((self.topic(), 1))
        came = later.take_message()
        self.assertEqual((came.payload, came.retain), (b"kept", True))
        self.older(self.there, "another").publish(self.topic(), b"", qos=1, retain=True)
        for client in (current, later):
            came = client.take_message()
            self.assertEqual((came.payload, came.retain), (b"", False))
        last = self.older(self.here, "last")
        last.subscribe((self.topic(), 1))
        self.assertEqual(last.ping(), [])

    def test_an_equal_filter_replaces_the_subscription_and_what_is_retained_comes_again(self):
        """[MQTT-3.8.4-3 v3.1.1]: with the new QoS, and each message once."""
        self.publisher().publish(self.topic(), "kept", qos=2, retain=True)
        client = self.older(self.here)
        for qos in (0, 2, 1):
            self.assertEqual(client.subscribe((self.topic(), qos)).codes, [qos])
            came = client.take_message()
            self.assertEqual((came.payload, came.qos, came.retain), (b"kept", qos, True))
        self.publisher("another").publish(self.topic(), "live", qos=2)
        self.assertEqual(client.take_message().qos, 1)
        self.assertEqual(client.ping(), [])

    def test_the_highest_qos_of_overlapping_subscriptions_counts(self):
        """[MQTT-3.3.5-1 v3.1.1] [MQTT-3.9.3-1 v3.1.1] [MQTT-3.8.4-5 v3.1.1]"""
        client = self.older(self.here)
        names = [(self.topic("a/#"), 0), (self.topic("a/+"), 2), (self.topic("a/b"), 1)]
        self.assertEqual(client.subscribe(*names).codes, [0, 2, 1])
        self.publisher().publish(self.topic("a/b"), "x", qos=2)
        came = [client.take_message(), *client.ping()]
        self.assertEqual(max(one.qos for one in came), 2)

    def test_a_filter_that_is_refused_is_refused_with_0x80_in_its_place(self):
        """[MQTT-3.9.3-2 v3.1.1] [MQTT-3.9.3-1 v3.1.1]: its neighbours are granted and work."""
        client = self.older(self.here)
        codes = client.subscribe((self.topic("a"), 1), ("$thicket/#", 1), (self.topic("b"), 2)).codes
        self.assertEqual(codes, [1, FAILURE, 2])
        self.publisher().publish(self.topic("b"), "x", qos=2)
        self.assertEqual(client.take_message().payload, b"x")

    def test_wildcards_fill_levels_in_this_version_too(self):
        """[MQTT-4.7.1-3 v3.1.1] [MQTT-4.7.1-2 v3.1.1]: and a filter where they do not is refused or ends the
        connection.
        """
        client = self.older(self.here)
        client.subscribe((self.topic("+/b"), 0), (self.topic("c/#"), 0))
        publisher = self.publisher()
        cases = [("a/b", True), ("ab", False), ("x/a/b", False), ("c", True), ("c/d/e", True), ("cd", False)]
        for name, matches in cases:
            publisher.publish(self.topic(name), name, qos=1)
            if matches:
                self.assertEqual(client.take_message().topic, self.topic(name))
        self.assertEqual(client.ping(), [])
        for name in ("a+/b", "a/b+", "a/#/b", "a#"):
            with contextlib.suppress(Closed):
                self.assertEqual(self.older(self.here, f"bad-{name}").subscribe((name, 0)).codes, [FAILURE])

    def test_a_publish_that_is_not_allowed_is_acknowledged_or_ends_the_connection(self):
        """[MQTT-3.3.5-2 v3.1.1]: PUBACK and PUBREC have no codes in this version; nobody gets the message."""
        watcher = self.raw(self.here, "watcher")
        watcher.subscribe(("$thicket/#", 0), ("#", 0))
        for qos, kind in ((1, Kind.PUBACK), (2, Kind.PUBREC)):
            client = self.older(self.there, f"q{qos}")
            client.send(publish("$thicket/x", "x", qos, 7, version=4))
            with contextlib.suppress(Closed):
                came = client.receive()
                self.assertEqual((came.kind, came.size, came.packet_id), (kind, 4, 7))
        self.publisher().publish(self.topic(), "end", qos=1)
        self.assertEqual([one for one in self.messages_until(watcher, b"end") if one.topic.startswith("$")], [])

    def test_what_is_unacknowledged_is_sent_again_with_dup(self):
        """[MQTT-4.4.0-1 v3.1.1] [MQTT-3.3.1-1 v3.1.1] [MQTT-3.3.1-3 v3.1.1]: PUBLISH and PUBREL, on the next
        connection.
        """
        sleeper = self.sleeper(self.here)
        sleeper.subscribe((self.topic(), 2))
        publisher = self.publisher(version=4)
        publisher.send(publish(self.topic(), "one", 1, 1, dup=True, version=4))
        publisher.expect(Kind.PUBACK)
        publisher.publish(self.topic(), "two", qos=2)
        first = [sleeper.expect(Kind.PUBLISH) for _ in range(2)]
        self.assertEqual([one.dup for one in first], [False, False])
        sleeper.send(acknowledge(Kind.PUBREC, first[1].packet_id))
        sleeper.expect(Kind.PUBREL)
        sleeper.close()
        again = self.sleeper(self.elsewhere)
        self.assertTrue(again.connack.session_present)
        came = [again.receive() for _ in range(2)]
        self.assertEqual([(one.kind, one.packet_id) for one in came], [(Kind.PUBLISH, 1), (Kind.PUBREL, 2)])
        self.assertEqual((came[0].dup, came[0].payload), (True, b"one"))
        again.send(acknowledge(Kind.PUBACK, 1), acknowledge(Kind.PUBCOMP, 2))
        self.assertEqual(again.ping(), [])

    def test_a_client_without_an_identifier_is_let_in_for_a_clean_session(self):
        """[MQTT-3.1.3-6 v3.1.1] [MQTT-3.1.3-7 v3.1.1] [MQTT-3.1.3-8 v3.1.1]: several at once, each for itself."""
        clients = [RawClient(self.here, 4) for _ in range(3)]
        for client in clients:
            self.addCleanup(client.close)
            self.assertFalse(client.connect("", clean_start=True).session_present)
        self.assertEqual([client.ping() for client in clients], [[], [], []])
        for version in (3, 4):
            with RawClient(self.here, version) as refused:
                refused.send(connect("", version, clean_start=False))
                came = [(one.kind, one.reason_code) for one in refused.until_closed()]
                self.assertEqual(came, [(Kind.CONNACK, IDENTIFIER_REJECTED)])
        with RawClient(self.here, 3) as refused:
            refused.send(connect("", 3, clean_start=True))
            self.assertEqual([one.reason_code for one in refused.until_closed()], [IDENTIFIER_REJECTED])

    def test_a_version_nobody_speaks_is_refused_with_its_code(self):
        """[MQTT-3.1.2-2 v3.1.1] [MQTT-3.2.2-5 v3.1.1] [MQTT-3.2.2-4 v3.1.1] [MQTT-3.1.4-5 v3.1.1] [MQTT-3.1.2-1 v3.1.1]
        """
        watcher = self.subscriber((self.topic(), 1))
        for name, level in (("MQTT", 0), ("MQTT", 2), ("MQTT", 3), ("MQTT", 6), ("MQTT", 0x85), ("MQIsdp", 6)):
            # Versions after 5.0 are told in its form, with its code; those before in that of 3.1.1.
            newer = level > 5
            with self.subTest(name=name, level=level), RawClient(self.there, 5 if newer else 4) as client:
                data = body(name, level, 0x02, binary(self.client_id()))
                client.send(data, publish(self.topic(), "sneaked in", version=4))
                came = [(one.kind, one.reason_code, one.session_present) for one in client.until_closed()]
                code = UNSUPPORTED_PROTOCOL_VERSION if newer else UNACCEPTABLE_PROTOCOL_VERSION
                self.assertEqual(came, [(Kind.CONNACK, code, False)])
        for name in ("MQTTX", "mqtt", "", "MQXX"):
            with self.subTest(name=name), RawClient(self.here, 4) as client:
                client.send(body(name, 4, 0x02, binary(self.client_id())))
                self.assertEqual([one for one in client.until_closed() if one.reason_code == 0], [])
        self.publisher().publish(self.topic(), "end", qos=1)
        self.assertEqual(self.messages_until(watcher, b"end"), [])

    def test_what_no_return_code_fits_is_closed_without_a_connack(self):
        """[MQTT-3.2.2-6 v3.1.1] [MQTT-2.2.2-2 v3.1.1] [MQTT-2.2.2-1 v3.1.1]: malformed is none of the five."""
        identifier = binary(self.client_id())
        cases = {
            "reserved flag": body("MQTT", 4, 0x03, identifier),
            "will QoS 3": body("MQTT", 4, 0x1E, identifier + binary("t") + binary("p")),
            "will retain without will": body("MQTT", 4, 0x22, identifier),
            "will QoS without will": body("MQTT", 4, 0x0A, identifier),
            "password without user": body("MQTT", 4, 0x42, identifier + binary("p")),
            "bytes too many": body("MQTT", 4, 0x02, identifier + b"\x00"),
            "no identifier": body("MQTT", 4, 0x02, b""),
            "header flags": b"\x11" + body("MQTT", 4, 0x02, identifier)[1:],
        }
        for name, data in cases.items():
            with self.subTest(name), RawClient(self.here, 4) as client:
                client.send(data)
                self.assertEqual(client.until_closed(), [])
        for first in (0xC1, 0xD0, 0xF0, 0x00, 0xE1, 0x41, 0x80):
            client = self.older(self.here)
            client.send(bytes([first, 0]))
            self.assertEqual(client.until_closed(), [], f"{first:#x}")

    def test_a_will_goes_out_unless_the_client_says_disconnect(self):
        """[MQTT-3.1.2-8 v3.1.1] [MQTT-3.1.2-10 v3.1.1] [MQTT-3.14.4-3 v3.1.1]: also after a protocol violation."""
        watcher = self.subscriber((self.topic("#"), 1))
        for version in (3, 4):
            will = Will(self.topic(f"broken-{version}"), qos=1)
            self.raw(self.there, f"b{version}", version, will=will).close()
            self.assertEqual(watcher.take_message().topic, self.topic(f"broken-{version}"))
            violator = self.raw(self.there, f"v{version}", version, will=Will(self.topic(f"violator-{version}"), qos=1))
            violator.send(b"\xf0\x00")
            self.assertEqual(violator.until_closed(), [])
            self.assertEqual(watcher.take_message().topic, self.topic(f"violator-{version}"))
            self.raw(self.there, f"g{version}", version, will=Will(self.topic("never"), qos=1)).disconnect()
        self.publisher().publish(self.topic("end"), "end", qos=1)
        self.assertEqual(self.messages_until(watcher, b"end"), [])

    def test_a_client_over_our_receive_maximum_is_not_closed_for_it(self):
        """3.1.1 has no Receive Maximum: more messages than that are held up, not refused."""
        client = self.older(self.here)
        maximum = self.raw(self.here, "asks").connack.value(Property.RECEIVE_MAXIMUM)
        client.send(*(publish(self.topic(), b"", 2, number, version=4) for number in range(1, maximum + 11)))
        came = {client.expect(Kind.PUBREC).packet_id for _ in range(maximum + 10)}
        self.assertEqual(came, set(range(1, maximum + 11)))
        client.send(*(acknowledge(Kind.PUBREL, number) for number in range(1, maximum + 11)))
        came = [client.expect(Kind.PUBCOMP).packet_id for _ in range(maximum + 10)]
        self.assertEqual(came, list(range(1, maximum + 11)))

    def test_packets_of_this_version_have_no_bytes_to_spare(self):
        """[MQTT-2.3.1-6 v3.1.1] [MQTT-2.3.1-7 v3.1.1]: acknowledgements of four bytes, UNSUBACK too, and no properties.
        """
        for version in (3, 4):
            client = self.raw(self.here, f"v{version}", version)
            self.assertEqual(client.connack.size, 4)
            client.send(subscribe(513, (self.topic(version), 2), ("$thicket/#", 0), version=version))
            came = client.expect(Kind.SUBACK)
            self.assertEqual((came.size, came.packet_id, came.codes), (6, 513, [2, FAILURE]))
            client.send(publish(self.topic(version), "x", 2, 513, version=version))
            sizes = {}
            while len(sizes) < 4:
                came = client.receive()
                sizes[came.kind] = came.size
                if came.kind == Kind.PUBLISH:
                    client.send(acknowledge(Kind.PUBREC, came.packet_id))
                elif came.kind == Kind.PUBREC:
                    client.send(acknowledge(Kind.PUBREL, 513))
            expected = {Kind.PUBREC: 4, Kind.PUBCOMP: 4, Kind.PUBREL: 4, Kind.PUBLISH: 7 + len(self.topic(version))}
            self.assertEqual(sizes, expected)
            client.send(acknowledge(Kind.PUBREL, 77))
            self.assertEqual(client.expect(Kind.PUBCOMP).size, 4)


class OlderOnOneNode(OlderCases, OneNode):
    pass


class OlderAcrossNodes(OlderCases, ThreeNodes):
    pass
