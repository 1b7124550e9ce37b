"""CONNECT and CONNACK: what is let in, what is refused and how, and what is said about it."""

from nodes import OneNode, ThreeNodes
from wire import (
    NEVER,
    PINGREQ,
    Kind,
    Property,
    RawCases,
    RawClient,
    Will,
    acknowledge,
    binary,
    connect,
    disconnect,
    packet,
    properties,
    publish,
    subscribe,
)

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
PACKET_IDENTIFIER_NOT_FOUND = 0x92
TOPIC_ALIAS_INVALID = 0x94
BAD_AUTHENTICATION_METHOD = 0x8C
NOT_AUTHORIZED = 0x87
RETAIN_AS_PUBLISHED = 0x08


class ConnectCases(RawCases):
    """Cases for one node and for several."""

    def test_the_fields_of_a_connect_are_taken_in_their_order(self):
        """[MQTT-3.1.3-1] [MQTT-3.1.3-3] [MQTT-3.1.2-9] [MQTT-3.1.2-17] [MQTT-3.1.2-19]: all of them at once."""
        watcher = self.subscriber((self.topic("#"), 1))
        will = Will(self.topic("will"), b"payload", 1, properties=((Property.CONTENT_TYPE, "type"),))
        client = self.raw(self.there, "whole", will=will, user="user", password="password")
        client.close()
        came = watcher.take_message()
        self.assertEqual((came.topic, came.payload, came.qos), (self.topic("will"), b"payload", 1))
        self.assertEqual(came.value(Property.CONTENT_TYPE), "type")

    def test_fields_of_a_connect_in_another_order_are_refused(self):
        """[MQTT-3.1.3-1] [MQTT-3.1.4-1]: a client's breach, as far as it shows in the bytes."""
        head = binary("MQTT") + b"\x05\x06\x00\x3c" + properties()
        identifier, topic, payload = binary(self.client_id()), binary(self.topic("will")), binary(b"payload")
        orders = {
            "will properties last": identifier + topic + payload + properties(),
            "identifier last": properties() + topic + payload + identifier,
            "will properties in front": properties() + identifier + topic + payload,
        }
        for name, fields in orders.items():
            with self.subTest(name), RawClient(self.here) as client:
                client.send(packet(Kind.CONNECT, 0, head + fields))
                came = client.until_closed()
                self.assertEqual([one.kind for one in came], [Kind.CONNACK])
                self.assertIn(came[0].reason_code, (MALFORMED, PROTOCOL_ERROR, 0x85, 0x90))

    def test_a_connection_gets_one_connack(self):
        """[MQTT-3.2.0-2] [MQTT-3.1.0-2] [MQTT-3.2.0-1]: a second CONNECT, in the same segment even, gets a DISCONNECT.
        """
        for behind in (b"", PINGREQ):
            with RawClient(self.here) as client:
                hello = connect(self.client_id())
                client.send(hello, hello, behind)
                came = client.until_closed()
                self.assertEqual([one.kind for one in came], [Kind.CONNACK, Kind.DISCONNECT])
                self.assertEqual([one.reason_code for one in came], [0, PROTOCOL_ERROR])
        self.assertEqual(self.raw(self.here).ping(), [])

    def test_a_refused_identifier_gets_no_service(self):
        """[MQTT-3.1.3-8]: those of the nodes are not for clients; the connection closes, with 0x85 or without a word.
        """
        for version in (3, 4, 5):
            for name in ("$thicket/node", "$thicket/"):
                with self.subTest(name, version=version), RawClient(self.here, version) as client:
                    client.send(connect(name, version), subscribe(1, (self.topic(), 0), version=version))
                    came = client.until_closed()
                    self.assertEqual([one for one in came if one.kind != Kind.CONNACK or not one.reason_code], [])
        self.assertEqual(self.raw(self.here).ping(), [])

    def test_a_method_nobody_knows_is_refused_and_nothing_behind_it_is_processed(self):
        """[MQTT-4.12.0-1] [MQTT-4.12.0-4] [MQTT-3.1.2-30] [MQTT-3.1.4-6]: packets before the CONNACK, AUTH or not, get
        nowhere.
        """
        watcher = self.subscriber((self.topic(), 1))
        method = (Property.AUTHENTICATION_METHOD, "nobody knows")
        behind = [publish(self.topic(), "sneaked in", 1, 1), subscribe(1, ("#", 0)), PINGREQ, b"\xf0\x00"]
        for data in behind:
            with RawClient(self.there) as client:
                client.send(connect(self.client_id(), props=(method,)), data)
                came = client.until_closed()
                self.assertEqual([one.kind for one in came], [Kind.CONNACK])
                self.assertIn(came[0].reason_code, (BAD_AUTHENTICATION_METHOD, NOT_AUTHORIZED))
        self.publisher("witness").publish(self.topic(), "end", qos=1)
        self.assertEqual(self.messages_until(watcher, b"end"), [])

    def test_a_client_that_named_no_method_hears_of_none(self):
        """[MQTT-4.12.0-6] [MQTT-4.12.0-7]: neither AUTH nor a method in CONNACK, and its own AUTH ends the connection.
        """
        client = self.raw(self.here)
        self.assertEqual(client.connack.values(Property.AUTHENTICATION_METHOD), [])
        self.assertEqual(client.connack.values(Property.AUTHENTICATION_DATA), [])
        self.assertEqual(client.ping(), [])
        method = properties((Property.AUTHENTICATION_METHOD, "any"))
        for body in (b"", b"\x18" + method, b"\x19" + method):
            client = self.raw(self.here, "auth")
            client.send(packet(Kind.AUTH, 0, body))
            came = client.until_closed()
            self.assertEqual([(one.kind, one.reason_code) for one in came], [(Kind.DISCONNECT, PROTOCOL_ERROR)])

    def test_an_auth_that_is_wrong_in_itself_ends_the_connection(self):
        """[MQTT-3.15.2-1] [MQTT-3.15.1-1] [MQTT-1.5.7-1]: unknown reason codes, flags, and broken properties."""
        method = properties((Property.AUTHENTICATION_METHOD, "any"))
        bad_pair = properties((Property.AUTHENTICATION_METHOD, "any"), (Property.USER_PROPERTY, (b"\xff", b"v")))
        bodies = {"code": b"\x01" + method, "code without method": b"\x18\x00", "user property": b"\x18" + bad_pair}
        for name, body in bodies.items():
            with self.subTest(name):
                client = self.raw(self.here)
                client.send(packet(Kind.AUTH, 0, body))
                came = client.until_closed()
                self.assertEqual([one.kind for one in came], [Kind.DISCONNECT])
                self.assertIn(came[0].reason_code, (MALFORMED, PROTOCOL_ERROR))

    def test_every_quality_of_service_is_supported_and_none_is_ruled_out(self):
        """[MQTT-3.2.2-9] [MQTT-3.2.2-10] [MQTT-3.2.2-11] [MQTT-3.2.2-12]: no Maximum QoS is stated, and none holds.

        Neither for messages and subscriptions nor for a will.
        """
        client = self.raw(self.here)
        self.assertIsNone(client.connack.value(Property.MAXIMUM_QOS))
        self.assertEqual(client.subscribe((self.topic(), 2)).codes, [2])
        mortal = self.raw(self.there, "mortal", will=Will(self.topic(), b"will", 2))
        self.assertEqual(mortal.publish(self.topic(), "message", qos=2), 0)
        mortal.close()
        came = [client.take_message() for _ in range(2)]
        self.assertEqual([(one.payload, one.qos) for one in came], [(b"message", 2), (b"will", 2)])

    def test_retained_messages_wildcards_identifiers_and_groups_are_available(self):
        """[MQTT-3.2.2-13] [MQTT-3.2.2-14]: none is said to be missing, and all work, a retained will included."""
        client = self.raw(self.here)
        for missing in (
            Property.RETAIN_AVAILABLE,
            Property.WILDCARD_SUBSCRIPTION_AVAILABLE,
            Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
            Property.SHARED_SUBSCRIPTION_AVAILABLE,
        ):
            self.assertIn(client.connack.value(missing), (None, 1), missing)
        identifier = ((Property.SUBSCRIPTION_IDENTIFIER, 1),)
        codes = client.subscribe((self.topic("+/#"), 1), (f"$share/g/{self.topic('x')}", 1), props=identifier).codes
        self.assertEqual(codes, [1, 1])
        self.raw(self.there, "mortal", will=Will(self.topic("will"), retain=True)).close()
        self.assertEqual(client.take_message().topic, self.topic("will"))
        self.assertTrue(self.subscriber((self.topic("will"), 1)).take_message().retain)

    def test_a_client_that_goes_on_without_its_state_is_served_to_the_end(self):
        """[MQTT-3.2.2-4]: a client's breach: it goes on though it has nothing of the session that the CONNACK speaks
        of.
        """
        client = self.keeper(self.here)
        client.subscribe((self.topic(), 2))
        self.publisher().publish(self.topic(), "owed", qos=2)
        came = client.expect(Kind.PUBLISH)
        client.send(acknowledge(Kind.PUBREC, came.packet_id))
        client.expect(Kind.PUBREL)
        client.close()
        again = self.keeper(self.elsewhere)
        self.assertTrue(again.connack.session_present)
        self.assertEqual(again.expect(Kind.PUBREL).packet_id, came.packet_id)
        # It knows nothing of this identifier, and says so.
        again.send(acknowledge(Kind.PUBCOMP, came.packet_id, PACKET_IDENTIFIER_NOT_FOUND))
        self.assertEqual(again.ping(), [])
        again.close()
        self.assertEqual(self.keeper(self.here).ping(), [])

    def test_a_client_that_keeps_its_state_though_the_session_is_gone_is_told(self):
        """[MQTT-3.2.2-5]: a client's breach: PUBREL, PUBREC and DUP of a session that ended."""
        subscriber = self.subscriber((self.topic(), 2))
        client = self.keeper(self.there)
        client.send(publish(self.topic(), "before", 2, 4))
        client.expect(Kind.PUBREC)
        self.assertEqual(subscriber.take_message().payload, b"before")
        client.close()
        again = self.raw(self.elsewhere)
        self.assertFalse(again.connack.session_present)
        again.send(acknowledge(Kind.PUBREL, 4))
        self.assertEqual(again.expect(Kind.PUBCOMP).reason_code, PACKET_IDENTIFIER_NOT_FOUND)
        again.send(acknowledge(Kind.PUBREC, 9))
        self.assertEqual(again.expect(Kind.PUBREL).reason_code, PACKET_IDENTIFIER_NOT_FOUND)
        again.send(publish(self.topic(), "after", 2, 5, dup=True))
        self.assertEqual(again.expect(Kind.PUBREC).reason_code, 0)
        self.assertEqual(subscriber.take_message().payload, b"after")

    def test_an_alias_one_above_our_maximum_ends_the_connection(self):
        """[MQTT-3.3.2-9] [MQTT-3.2.2-17]: exactly one above; the maximum itself is taken."""
        client = self.publisher()
        maximum = client.connack.value(Property.TOPIC_ALIAS_MAXIMUM)
        client.publish(self.topic(), "x", props=((Property.TOPIC_ALIAS, maximum),))
        self.assertEqual(client.ping(), [])
        client.send(publish(self.topic(), "x", props=((Property.TOPIC_ALIAS, maximum + 1),)))
        self.assertEqual([one.reason_code for one in client.until_closed()], [TOPIC_ALIAS_INVALID])

    def test_a_client_that_refuses_an_alias_gets_the_topic_on_its_next_connection(self):
        """[MQTT-3.3.2-10] [MQTT-3.3.2-7]: a client's breach; what it had not acknowledged comes again with its name."""
        alias = ((Property.TOPIC_ALIAS_MAXIMUM, 5),)
        client = self.keeper(self.here, props=alias)
        client.subscribe((self.topic(), 1))
        publisher = self.publisher()
        for number in range(3):
            publisher.publish(self.topic(), f"{number}", qos=1)
        for _ in range(3):
            client.expect(Kind.PUBLISH)
        client.send(disconnect(TOPIC_ALIAS_INVALID))
        self.assertEqual(client.until_closed(), [])
        again = self.keeper(self.elsewhere, props=alias)
        came = [again.take_message() for _ in range(3)]
        self.assertEqual((came[0].topic, came[0].dup), (self.topic(), True))
        self.assertEqual([one.payload for one in came], [b"0", b"1", b"2"])

    def test_user_names_come_and_go_with_their_flags(self):
        """[MQTT-3.1.2-16] [MQTT-3.1.2-18] [MQTT-3.1.2-17] [MQTT-3.1.2-19]: all four pairs; 5.0 allows a password alone.
        """
        pairs = [(None, None), ("user", None), (None, b"password"), ("user", b"password"), ("", b"")]
        for user, password in pairs:
            with self.subTest(user=user, password=password):
                client = self.raw(self.here, user=user, password=password)
                self.assertEqual(client.ping(), [])
        flags_without_fields = binary("MQTT") + b"\x05\x42\x00\x3c" + properties() + binary("x")
        fields_without_flags = binary("MQTT") + b"\x05\x02\x00\x3c" + properties() + binary("x") + binary("password")
        for body in (flags_without_fields, fields_without_flags):
            with RawClient(self.here) as client:
                client.send(packet(Kind.CONNECT, 0, body))
                self.assertGreaterEqual(client.until_closed()[0].reason_code, 0x80)

    def test_identifiers_of_1_to_23_letters_and_digits_are_let_in(self):
        """[MQTT-3.1.3-5]: every length and every character of those, and more."""
        letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
        names = [letters[length : 2 * length] for length in range(1, 24)] + [letters[:23], letters[20:43], letters[39:]]
        for name in names:
            with RawClient(self.here) as client:
                self.assertEqual(client.connect(name).value(Property.ASSIGNED_CLIENT_IDENTIFIER), None)

    def test_a_session_expiry_that_ends_makes_room_for_another_session(self):
        """[MQTT-3.1.2-6] [MQTT-3.1.4-4] [MQTT-3.2.2-2]: clean start 1 over a session that is kept, twice."""
        for _ in range(2):
            client = self.keeper(self.here)
            client.subscribe((self.topic(), 1))
            client.close()
            fresh = self.raw(self.elsewhere, clean_start=True, props=((Property.SESSION_EXPIRY_INTERVAL, NEVER),))
            self.assertFalse(fresh.connack.session_present)
            self.publisher().publish(self.topic(), "for the old one", qos=1)
            self.assertEqual(fresh.ping(), [])
            fresh.disconnect(props=((Property.SESSION_EXPIRY_INTERVAL, 0),))


class ConnectOnOneNode(ConnectCases, OneNode):
    pass


class ConnectAcrossNodes(ConnectCases, ThreeNodes):
    pass


class NoAliases(RawCases, OneNode):
    """A node that takes no topic aliases."""

    arguments = ("--topic-alias-maximum", "0")

    def test_a_node_that_takes_no_aliases_says_so_by_silence_and_keeps_to_it(self):
        """[MQTT-3.2.2-18] [MQTT-3.2.2-17] [MQTT-3.1.2-26]: without a maximum in CONNACK any alias is one too many."""
        for alias in (1, 65535):
            client = self.raw(self.here, props=((Property.TOPIC_ALIAS_MAXIMUM, 10),))
            self.assertIn(client.connack.value(Property.TOPIC_ALIAS_MAXIMUM), (None, 0))
            client.send(publish(self.topic(), "x", props=((Property.TOPIC_ALIAS, alias),)))
            self.assertEqual([one.reason_code for one in client.until_closed()], [TOPIC_ALIAS_INVALID])


class SmallPackets(RawCases, OneNode):
    """What a client that takes only small packets gets: answers without their reasons, or nothing."""

    arguments = ("--subscriptions", "3")


    def test_no_packet_of_a_whole_conversation_is_over_the_clients_maximum(self):
        """[MQTT-3.1.2-24] [MQTT-3.4.2-2] [MQTT-3.4.2-3] [MQTT-3.5.2-2] [MQTT-3.5.2-3] [MQTT-3.6.2-2] [MQTT-3.6.2-3]
        [MQTT-3.7.2-2] [MQTT-3.7.2-3] [MQTT-3.9.2-1] [MQTT-3.9.2-2] [MQTT-3.11.2-1] [MQTT-3.11.2-2] [MQTT-3.14.2-3]
        [MQTT-3.14.2-4]: every kind of answer, those that refuse included, at every size from that of the CONNACK up.
        """
        smallest = self.raw(self.here).connack.size
        for maximum in [*range(smallest, smallest + 25), 100, 1000]:
            with self.subTest(maximum=maximum):
                client = self.raw(self.here, "small", props=((Property.MAXIMUM_PACKET_SIZE, maximum),))
                client.send(
                    publish("$thicket/a", "x", 1, 1),
                    publish("$thicket/a", "x", 2, 2),
                    publish("nobody/wants/it", "x", 1, 3),
                    acknowledge(Kind.PUBREL, 9),
                    acknowledge(Kind.PUBREC, 9),
                    subscribe(4, ("$thicket/#", 0), ("a/#/b", 0), ("ok", 2)),
                    packet(Kind.UNSUBSCRIBE, 2, b"\x00\x05\x00" + binary("never") + binary("ok")),
                    PINGREQ,
                )
                kinds = set()
                expected = {Kind.PUBACK, Kind.PUBREC, Kind.PUBCOMP, Kind.PUBREL, Kind.SUBACK, Kind.UNSUBACK}
                while not kinds >= expected | {Kind.PINGRESP}:
                    came = client.receive()
                    self.assertLessEqual(came.size, maximum, came)
                    kinds.add(came.kind)
                client.send(b"\xf0\x00")
                came = [one for one in client.until_closed() if one.kind == Kind.DISCONNECT]
                self.assertEqual([one.reason_code for one in came], [PROTOCOL_ERROR])
                self.assertLessEqual(came[0].size, maximum)

    def test_a_refusing_connack_gives_up_its_reason_before_its_code(self):
        """[MQTT-3.2.2-19] [MQTT-3.2.2-20] [MQTT-4.13.2-1] [MQTT-3.2.2-7]: and closes even where nothing fits at all."""
        method = (Property.AUTHENTICATION_METHOD, "nobody knows")
        reasons = []
        for maximum in range(1, 80):
            with self.subTest(maximum=maximum), RawClient(self.here) as client:
                client.send(connect(self.client_id(), props=((Property.MAXIMUM_PACKET_SIZE, maximum), method)))
                came = client.until_closed()
                self.assertLessEqual(len(came), 1)
                if maximum >= 5:
                    self.assertEqual([one.kind for one in came], [Kind.CONNACK])
                    self.assertIn(came[0].reason_code, (BAD_AUTHENTICATION_METHOD, NOT_AUTHORIZED))
                for one in came:
                    self.assertLessEqual(one.size, maximum)
                    reasons.append(one.value(Property.REASON_STRING))
        self.assertIsNone(reasons[0])

    def test_a_client_too_small_for_its_connack_is_closed_and_leaves_nothing(self):
        """[MQTT-3.1.2-24] [MQTT-3.14.0-1]: a CONNACK that may not be sent means no service, and no DISCONNECT either.
        """
        for maximum in (1, 2, 4, 5):
            with RawClient(self.here) as client:
                client.send(connect(self.client_id(), props=((Property.MAXIMUM_PACKET_SIZE, maximum),)))
                self.assertEqual([one for one in client.until_closed() if one.size > maximum], [])
        self.assertEqual(self.raw(self.here).ping(), [])
