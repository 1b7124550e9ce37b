"""How messages flow: quality of service, windows, sizes, aliases and redelivery, packet by packet."""

import contextlib

from nodes import OneNode, ThreeNodes
from wire import (
    PINGREQ,
    Closed,
    Kind,
    Property,
    RawCases,
    RawClient,
    acknowledge,
    connect,
    disconnect,
    packet,
    publish,
    subscribe,
)

PACKET_IDENTIFIER_NOT_FOUND = 0x92
TOPIC_NAME_INVALID = 0x90
PROTOCOL_ERROR = 0x82


class DeliveryCases(RawCases):
    """Cases for one node and for several."""

    def test_a_message_arrives_once_with_the_lower_of_published_and_granted_qos(self):
        """[MQTT-3.8.4-8] [MQTT-3.3.1-3] [MQTT-4.3.2-2] [MQTT-4.3.3-2]"""
        publisher = self.publisher()
        for granted in (0, 1, 2):
            subscriber = self.raw(self.here, f"subscriber-{granted}")
            self.assertEqual(subscriber.subscribe((self.topic(granted), granted)).codes, [granted])
            for published in (0, 1, 2):
                with self.subTest(published=published, granted=granted):
                    publisher.publish(self.topic(granted), f"{published}", qos=published)
                    came = subscriber.take_message()
                    expected = (f"{published}".encode(), min(published, granted), False, False)
                    self.assertEqual((came.payload, came.qos, came.dup, came.retain), expected)
            self.assertEqual(subscriber.ping(), [], "a message came twice")

    def test_messages_of_one_publisher_keep_their_order(self):
        """[MQTT-4.6.0-5] [MQTT-4.6.0-6]"""
        for qos in (0, 1, 2):
            subscriber = self.subscriber((self.topic(qos), qos), role=f"subscriber-{qos}")
            publisher = self.publisher(f"publisher-{qos}")
            sent = [f"{number}".encode() for number in range(300)]
            publisher.send(*(publish(self.topic(qos), one, qos, i + 1 if qos else None) for i, one in enumerate(sent)))
            self.assertEqual([subscriber.take_message().payload for _ in sent], sent, f"QoS {qos}")

    def test_a_repeated_qos_2_publish_is_acknowledged_again_but_delivered_once(self):
        """[MQTT-4.3.3-10] [MQTT-4.3.3-12]"""
        subscriber = self.subscriber((self.topic(), 2))
        publisher = self.publisher()
        for dup in (False, True, True):
            publisher.send(publish(self.topic(), "once", 2, 9, dup=dup))
            self.assertEqual(publisher.expect(Kind.PUBREC).packet_id, 9)
        publisher.send(acknowledge(Kind.PUBREL, 9))
        self.assertEqual(publisher.expect(Kind.PUBCOMP).packet_id, 9)
        publisher.send(publish(self.topic(), "a new one under the same identifier", 2, 9))
        publisher.expect(Kind.PUBREC)
        came = self.messages_until(subscriber, b"a new one under the same identifier")
        self.assertEqual([one.payload for one in came], [b"once"])

    def test_a_message_with_dup_that_was_never_seen_is_delivered_without_dup(self):
        """[MQTT-3.3.1-3] [MQTT-4.3.2-5]"""
        subscriber = self.subscriber((self.topic(), 2))
        publisher = self.publisher()
        for qos, answer in ((1, Kind.PUBACK), (2, Kind.PUBREC)):
            publisher.send(publish(self.topic(), "seen first", qos, qos, dup=True))
            publisher.expect(answer)
            came = subscriber.take_message()
            self.assertEqual((came.payload, came.qos, came.dup), (b"seen first", qos, False))

    def test_a_qos_2_publish_is_finished_on_a_later_connection(self):
        """[MQTT-4.3.3-10] [MQTT-4.3.3-11]: the identifier stays held in the session of the publisher."""
        subscriber = self.subscriber((self.topic(), 2))
        publisher = self.keeper(self.there, "publisher")
        publisher.send(publish(self.topic(), "once", 2, 7))
        publisher.expect(Kind.PUBREC)
        publisher.close()
        again = self.keeper(self.elsewhere, "publisher")
        self.assertTrue(again.connack.session_present)
        again.send(publish(self.topic(), "once", 2, 7, dup=True))
        self.assertEqual((again.expect(Kind.PUBREC).packet_id), 7)
        again.send(acknowledge(Kind.PUBREL, 7))
        self.assertEqual(again.expect(Kind.PUBCOMP).reason_code, 0)
        again.publish(self.topic(), "end", qos=2)
        self.assertEqual([one.payload for one in self.messages_until(subscriber, b"end")], [b"once"])

    def test_a_repeated_publish_is_acknowledged_once_on_the_new_connection(self):
        """[MQTT-4.4.0-1]: what was owed to the older connection is not sent on the newer one.

        A surplus PUBACK or PUBREC would be taken for that of the next message with the same identifier.
        """
        subscriber = self.subscriber((self.topic(), 2))
        for qos, first_answer in ((1, Kind.PUBACK), (2, Kind.PUBREC)):
            publisher = self.keeper(self.there, f"publisher-{qos}")
            for move in range(20):
                messages = {number: f"{move}-{number}" for number in range(1, 11)}
                publisher.send(*(publish(self.topic(), one, qos, number) for number, one in messages.items()))
                older, publisher = publisher, self.keeper((self.elsewhere, self.there)[move % 2], f"publisher-{qos}")
                older.close()
                publisher.send(*(publish(self.topic(), one, qos, number, dup=True) for number, one in messages.items()))
                answers = [publisher.receive() for _ in messages]
                self.assertEqual([(one.kind, one.packet_id) for one in answers], [(first_answer, n) for n in messages])
                if qos == 2:
                    publisher.send(*(acknowledge(Kind.PUBREL, number) for number in messages))
                    answers = [publisher.receive() for _ in messages]
                    ends = [(one.kind, one.packet_id, one.reason_code) for one in answers]
                    self.assertEqual(ends, [(Kind.PUBCOMP, number, 0) for number in messages])
                self.assertEqual(publisher.ping(), [])
            publisher.publish(self.topic(), f"end of {qos}", qos=qos)
            came = [one.payload for one in self.messages_until(subscriber, f"end of {qos}".encode())]
            sent = [f"{move}-{number}".encode() for move in range(20) for number in range(1, 11)]
            self.assertEqual(came if qos == 2 else sorted(set(came)), sent if qos == 2 else sorted(sent))

    def test_acknowledgements_of_unknown_identifiers_are_answered_with_their_code(self):
        """[MQTT-3.6.2-1] [MQTT-3.7.2-1]: 4.3.3 has the other side told that the identifier is not found."""
        client = self.raw(self.here)
        client.send(acknowledge(Kind.PUBREL, 77))
        came = client.expect(Kind.PUBCOMP)
        self.assertEqual((came.packet_id, came.reason_code), (77, PACKET_IDENTIFIER_NOT_FOUND))
        client.send(acknowledge(Kind.PUBREC, 78))
        came = client.expect(Kind.PUBREL)
        self.assertEqual((came.packet_id, came.reason_code), (78, PACKET_IDENTIFIER_NOT_FOUND))
        client.send(acknowledge(Kind.PUBACK, 79), acknowledge(Kind.PUBCOMP, 80))
        self.assertEqual(client.ping(), [])

    def test_unacknowledged_messages_are_sent_again_on_resume_in_order_with_dup(self):
        """[MQTT-4.4.0-1] [MQTT-3.3.1-1] [MQTT-4.6.0-1]: before what was queued, each with its old identifier."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 2))
        publisher = self.publisher()
        for number, qos in enumerate((1, 2, 1)):
            publisher.publish(self.topic(), f"{number}", qos=qos)
        first = [subscriber.expect(Kind.PUBLISH) for _ in range(3)]
        self.assertEqual([one.dup for one in first], [False] * 3)
        subscriber.close()
        publisher.publish(self.topic(), "queued", qos=1)
        again = self.keeper(self.elsewhere, "subscriber")
        self.assertTrue(again.connack.session_present)
        second = [again.expect(Kind.PUBLISH) for _ in range(4)]
        self.assertEqual([one.payload for one in second], [b"0", b"1", b"2", b"queued"])
        self.assertEqual([one.packet_id for one in second[:3]], [one.packet_id for one in first])
        self.assertEqual([one.dup for one in second], [True, True, True, False])
        self.assertEqual([one.qos for one in second], [1, 2, 1, 1])

    def test_a_pubrel_owed_is_sent_again_on_resume_and_no_publish(self):
        """[MQTT-4.4.0-1] [MQTT-4.3.3-6]"""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 2))
        self.publisher().publish(self.topic(), "half done", qos=2)
        came = subscriber.expect(Kind.PUBLISH)
        subscriber.send(acknowledge(Kind.PUBREC, came.packet_id))
        subscriber.expect(Kind.PUBREL)
        subscriber.close()
        again = self.keeper(self.elsewhere, "subscriber")
        self.assertEqual(again.expect(Kind.PUBREL).packet_id, came.packet_id)
        again.send(acknowledge(Kind.PUBCOMP, came.packet_id))
        self.assertEqual(again.ping(), [])

    def test_what_was_acknowledged_is_not_sent_again(self):
        """[MQTT-4.4.0-2]: a PUBREC that refuses counts as an acknowledgement too, and frees the identifier."""
        subscriber = self.keeper(self.here, "subscriber", props=((Property.RECEIVE_MAXIMUM, 1),))
        subscriber.subscribe((self.topic(), 2))
        publisher = self.publisher()
        for number in range(3):
            publisher.publish(self.topic(), f"{number}", qos=2)
        for number in range(3):
            came = subscriber.expect(Kind.PUBLISH)
            self.assertEqual(came.payload, f"{number}".encode())
            subscriber.send(acknowledge(Kind.PUBREC, came.packet_id, 0x83))
        self.assertEqual(subscriber.ping(), [])
        subscriber.close()
        self.assertEqual(self.keeper(self.here, "subscriber").ping(), [])

    def test_no_more_messages_than_the_receive_maximum_are_in_flight(self):
        """[MQTT-3.3.4-9] [MQTT-3.3.4-10] [MQTT-4.9.0-2] [MQTT-4.9.0-3]"""
        subscriber = self.subscriber((self.topic("#"), 2), props=(), role="narrow")
        narrow = self.keeper(self.here, "subscriber", props=((Property.RECEIVE_MAXIMUM, 2),))
        narrow.subscribe((self.topic("#"), 2))
        publisher = self.publisher()
        for number in range(5):
            publisher.publish(self.topic(f"{number}"), f"{number}", qos=2)
        publisher.publish(self.topic("free"), "free of the window", qos=0)
        # The other subscriber's messages show when all have arrived at the subscribers' node.
        self.assertEqual(len(self.messages_until(subscriber, b"free of the window")), 5)
        came = [narrow.receive() for _ in range(3)]
        self.assertEqual([(one.payload, one.qos) for one in came], [(b"0", 2), (b"1", 2), (b"free of the window", 0)])
        self.assertEqual(narrow.ping(), [], "a third message was sent")
        narrow.send(acknowledge(Kind.PUBREC, came[0].packet_id))
        narrow.expect(Kind.PUBREL)
        self.assertEqual(narrow.ping(), [], "PUBREC alone does not give the quota back")
        narrow.send(acknowledge(Kind.PUBCOMP, came[0].packet_id))
        self.assertEqual(narrow.expect(Kind.PUBLISH).payload, b"2")
        narrow.close()
        resumed = self.keeper(self.elsewhere, "subscriber", props=((Property.RECEIVE_MAXIMUM, 1),))
        self.assertEqual(resumed.expect(Kind.PUBLISH).payload, b"1")
        self.assertEqual(resumed.ping(), [], "the new connection's maximum holds on resume")

    def test_the_receive_maximum_holds_for_a_burst_of_retained_messages(self):
        """[MQTT-3.3.4-9]"""
        publisher = self.publisher()
        for number in range(5):
            publisher.publish(self.topic(f"{number}"), f"{number}", qos=1, retain=True)
        self.assertEqual(len(self.retained_at_subscribers_node(5)), 5)
        subscriber = self.raw(self.here, "narrow", props=((Property.RECEIVE_MAXIMUM, 2),))
        subscriber.subscribe((self.topic("+"), 1))
        first = [subscriber.expect(Kind.PUBLISH) for _ in range(2)]
        self.assertEqual(subscriber.ping(), [])
        for one in first:
            subscriber.send(acknowledge(Kind.PUBACK, one.packet_id))
        rest = [subscriber.take_message() for _ in range(3)]
        self.assertEqual({one.payload for one in first + rest}, {b"0", b"1", b"2", b"3", b"4"})

    def retained_at_subscribers_node(self, count):
        """Waits until the retained messages of this test are at the subscribers' node."""
        watcher = self.subscriber((self.topic("+"), 1), role="watcher")
        return [watcher.take_message() for _ in range(count)]

    def test_a_packet_over_the_clients_maximum_size_is_not_sent(self):
        """[MQTT-3.1.2-24] [MQTT-3.1.2-25]: exactly the maximum is sent, a byte more is dropped as if delivered."""
        maximum = 100
        for qos in (0, 1):
            subscriber = self.raw(self.here, f"small-{qos}", props=((Property.MAXIMUM_PACKET_SIZE, maximum),))
            subscriber.subscribe((self.topic(qos), qos))
            publisher = self.publisher(f"publisher-{qos}")
            room = maximum - len(publish(self.topic(qos), b"", qos, 1 if qos else None))
            for size in (room + 1, room + 2, room, room + 1000, room - 1):
                publisher.publish(self.topic(qos), bytes(size), qos=qos)
            publisher.publish(self.topic(qos), "end", qos=qos)
            came = self.messages_until(subscriber, b"end")
            self.assertEqual([one.size for one in came], [maximum, maximum - 1])

    def test_no_answer_is_over_the_clients_maximum_size(self):
        """[MQTT-3.1.2-24] [MQTT-3.2.2-19] [MQTT-3.14.2-3] [MQTT-3.9.2-1]: reason strings give way first."""
        small = ((Property.MAXIMUM_PACKET_SIZE, 20),)
        endings = [
            ("takeover", lambda role: self.raw(self.elsewhere, role)),
            ("malformed packet", lambda _: client.send(b"\xc1\x00")),
            ("protocol error", lambda _: client.send(b"\x20\x03\x00\x00\x00")),
        ]
        for number, (name, end) in enumerate(endings):
            with self.subTest(name):
                client = self.raw(self.here, f"small-{number}", props=small)
                client.send(subscribe(1, ("$share//x", 0), ("a/#/b", 0)))
                came = [client.receive()]
                if came[0].kind == Kind.SUBACK:
                    client.send(publish("$thicket/x", "x", 1, 1))
                    came.append(client.receive())
                    if came[-1].kind == Kind.PUBACK:
                        end(f"small-{number}")
                came += client.until_closed()
                self.assertEqual([one for one in came if one.size > 20], [])
                self.assertLessEqual(client.connack.size, 20)
        with RawClient(self.here) as nameless:
            # The identifier assigned does not fit: then there is no CONNACK that may be sent.
            nameless.send(connect("", props=small))
            self.assertEqual([one for one in nameless.until_closed() if one.size > 20], [])

    def test_problem_information_comes_only_where_it_is_wanted(self):
        """[MQTT-3.1.2-29] [MQTT-3.1.2-28]: without it only CONNACK, PUBLISH and DISCONNECT may have reason strings."""
        client = self.raw(self.here, props=((Property.REQUEST_PROBLEM_INFORMATION, 0),))
        self.assertIsNone(client.connack.value(Property.RESPONSE_INFORMATION))
        self.assertEqual(client.subscribe(("$thicket/#", 0), ("$share//x", 0)).properties, [])
        client.send(publish("$thicket/x", "x", 1, 1), acknowledge(Kind.PUBREL, 9))
        for _ in range(2):
            came = client.receive()
            self.assertIn(came.kind, (Kind.PUBACK, Kind.PUBCOMP, Kind.DISCONNECT))
            self.assertTrue(came.properties == [] or came.kind == Kind.DISCONNECT, came)
            if came.kind == Kind.DISCONNECT:
                break

    def test_topic_aliases_of_a_client_hold_for_its_connection(self):
        """[MQTT-3.3.2-7] [MQTT-3.3.2-12]: all up to our maximum, set anew at will, gone with the connection."""
        subscriber = self.subscriber((self.topic("#"), 0))
        publisher = self.publisher()
        maximum = publisher.connack.value(Property.TOPIC_ALIAS_MAXIMUM)
        self.assertTrue(maximum)
        aliases = sorted({1, 2, maximum})
        for alias in aliases:
            publisher.publish(self.topic(alias), "with", props=((Property.TOPIC_ALIAS, alias),))
            publisher.publish("", "without", props=((Property.TOPIC_ALIAS, alias),))
        publisher.publish(self.topic("moved"), "with", props=((Property.TOPIC_ALIAS, 1),))
        publisher.publish("", "without", props=((Property.TOPIC_ALIAS, 1),))
        names = [*aliases, "moved"]
        came = [subscriber.take_message() for _ in names for _ in range(2)]
        for name in names:
            payloads = [one.payload for one in came if one.topic == self.topic(name)]
            self.assertEqual(payloads, [b"with", b"without"], "each topic in order")
        for one in came:
            self.assertEqual(one.values(Property.TOPIC_ALIAS), [], "[MQTT-3.1.2-27]")
        publisher.close()
        again = self.publisher()
        again.publish("", "lost", props=((Property.TOPIC_ALIAS, 1),))
        self.assertEqual([one.kind for one in again.until_closed()], [Kind.DISCONNECT])

    def test_topic_aliases_to_a_client_stay_within_its_maximum(self):
        """[MQTT-3.1.2-26] [MQTT-3.3.2-11]: whether any is used is the server's choice."""
        subscriber = self.raw(self.here, "subscriber", props=((Property.TOPIC_ALIAS_MAXIMUM, 2),))
        subscriber.subscribe((self.topic("#"), 1))
        publisher = self.publisher()
        names = [self.topic(f"{number % 4}") for number in range(20)]
        for name in names:
            publisher.publish(name, name, qos=1)
        aliases = {}
        for name in names:
            came = subscriber.take_message()
            alias = came.value(Property.TOPIC_ALIAS)
            if alias is not None:
                self.assertIn(alias, (1, 2))
                if came.topic:
                    aliases[alias] = came.topic
            self.assertEqual(came.topic or aliases.get(alias), name)
            self.assertEqual(came.payload, name.encode())

    def test_a_payload_of_200_kb_arrives_unharmed(self):
        """Larger than any single read or write; through every quality of service."""
        payload = bytes(number * 7 % 251 for number in range(200_000))
        for qos in (0, 1, 2):
            subscriber = self.subscriber((self.topic(qos), qos), role=f"subscriber-{qos}")
            self.publisher(f"publisher-{qos}").publish(self.topic(qos), payload, qos=qos)
            self.assertEqual(subscriber.take_message().payload, payload)

    def test_a_topic_of_65535_bytes_arrives_or_is_refused_with_a_reason(self):
        """[MQTT-4.7.3-3]: such a topic is allowed, a server may refuse it but says so."""
        subscriber = self.subscriber((self.topic("#"), 1))
        start = self.topic("")
        topics = {"one level": start + "x" * (65535 - len(start)), "many levels": start + "/" * (65535 - len(start))}
        for name, topic in topics.items():
            with self.subTest(name):
                publisher = self.publisher()
                publisher.send(publish(topic, "long", 1, 1))
                came = publisher.receive()
                if came.kind == Kind.PUBACK and came.reason_code < 0x80:
                    self.assertEqual(subscriber.take_message().topic, topic)
                else:
                    self.assertIn(came.kind, (Kind.PUBACK, Kind.DISCONNECT))
                    self.assertGreaterEqual(came.reason_code, 0x80)
        self.publisher("another").publish(self.topic("short"), "end", qos=1)
        self.assertEqual(subscriber.take_message().payload, b"end")

    def test_a_filter_of_65535_bytes_is_granted_or_refused_with_a_reason(self):
        """[MQTT-4.7.3-3] [MQTT-3.9.3-2]"""
        for name in ("x" * 65535, "/" * 65535, "+/" * 32767 + "#"):
            with self.subTest(name[:4]):
                client = self.raw(self.here)
                client.send(subscribe(1, (name, 1)))
                came = client.receive()
                self.assertIn(came.kind, (Kind.SUBACK, Kind.DISCONNECT))
                self.assertIn((came.codes or [came.reason_code])[0], (1, 0x8F, 0x97, 0x80, 0x83))

    def test_packets_sent_in_one_segment_are_all_handled(self):
        """[MQTT-3.1.4-5]: a client need not wait for the CONNACK; what it sent ahead comes after it [MQTT-3.2.0-1]."""
        for version in (3, 4, 5):
            with self.subTest(version=version), RawClient(self.here, version) as client:
                client.send(
                    connect(self.client_id(f"pipeline-{version}"), version),
                    subscribe(1, (self.topic(version), 1), version=version),
                    publish(self.topic(version), "to myself", 1, 2, version=version),
                    PINGREQ,
                )
                self.assertEqual(client.receive().kind, Kind.CONNACK)
                rest = [client.receive() for _ in range(4)]
                kinds = {Kind.SUBACK, Kind.PUBLISH, Kind.PUBACK, Kind.PINGRESP}
                self.assertEqual({one.kind for one in rest}, kinds)
                self.assertEqual(next(one for one in rest if one.kind == Kind.PUBLISH).payload, b"to myself")

    def test_packets_sent_byte_by_byte_are_all_handled(self):
        """[MQTT-4.2-1]: a stream has no borders."""
        with RawClient(self.here) as client:
            stream = connect(self.client_id("dribble")) + subscribe(1, (self.topic(), 1))
            stream += publish(self.topic(), "x", 1, 2)
            for byte in stream:
                client.send(bytes([byte]))
            came = {client.receive().kind for _ in range(4)}
            self.assertEqual(came, {Kind.CONNACK, Kind.SUBACK, Kind.PUBLISH, Kind.PUBACK})

    def test_what_was_sent_before_a_disconnect_is_not_lost(self):
        """[MQTT-4.6.0-5]: QoS 0 and 1 and the DISCONNECT in one segment; each QoS keeps its own order."""
        subscriber = self.subscriber((self.topic(), 1))
        with RawClient(self.there) as publisher:
            messages = [publish(self.topic(), f"{i}", i % 2, i + 1 if i % 2 else None) for i in range(20)]
            publisher.send(connect(self.client_id("hasty")), *messages, disconnect())
            publisher.until_closed()
        came = [subscriber.take_message() for _ in range(20)]
        for qos in (0, 1):
            self.assertEqual([int(one.payload) for one in came if one.qos == qos], list(range(qos, 20, 2)))

    def test_older_versions_get_packets_without_properties(self):
        """3.1 and 3.1.1 exchange messages with 5.0; only the latter see properties."""
        clients = {version: self.raw(self.here, f"v{version}", version) for version in (3, 4, 5)}
        for client in clients.values():
            client.subscribe((self.topic("#"), 2))
        for version in clients:
            publisher = self.publisher(f"publisher-{version}", version=version)
            props = {"props": ((Property.USER_PROPERTY, ("k", "v")),)} if version == 5 else {}
            publisher.publish(self.topic(version), f"from {version}", qos=2, **props)
            for other, client in clients.items():
                with self.subTest(sender=version, receiver=other):
                    came = client.take_message()
                    self.assertEqual((came.payload, came.qos), (f"from {version}".encode(), 2))
                    user = [("k", "v")] if version == 5 and other == 5 else []
                    self.assertEqual(came.values(Property.USER_PROPERTY), user)

    def test_a_server_forgets_a_closed_connection_that_still_had_packets(self):
        """A client that goes in the middle of a packet harms nobody."""
        subscriber = self.subscriber((self.topic(), 0))
        for end in range(1, 12):
            leaver = self.publisher(f"leaver-{end}")
            leaver.send(publish(self.topic(), "never whole")[:end])
            leaver.close()
        publisher = self.publisher()
        publisher.publish(self.topic(), "end")
        self.assertEqual(self.messages_until(subscriber, b"end"), [])

    def test_a_reserved_topic_of_the_nodes_is_out_of_reach(self):
        """A client neither hears nor imitates what nodes tell each other."""
        client = self.raw(self.here, "spy")
        codes = client.subscribe(("$thicket/#", 1), ("$share/spies/$thicket/#", 1)).codes
        self.assertEqual([code for code in codes if code < 0x80], [])
        client.send(publish("$thicket/link", b"\x00" * 64, 1, 1))
        came = client.receive()
        self.assertIn(came.kind, (Kind.PUBACK, Kind.DISCONNECT))
        self.assertGreaterEqual(came.reason_code, 0x80)
        older = self.raw(self.here, "older", 4)
        older.send(packet(Kind.PUBLISH, 0, b"\x00\x0d$thicket/linkx"))
        with contextlib.suppress(Closed):
            self.assertEqual(older.ping(), [])


class DeliveryOnOneNode(DeliveryCases, OneNode):
    pass


class DeliveryAcrossNodes(DeliveryCases, ThreeNodes):
    pass
