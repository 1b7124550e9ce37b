"""To the byte: what a client that asks for nothing special sees on its socket, and what we choose where we may.

Programs that judge brokers often compare bytes. So we send the shortest form of each packet, count identifiers from 1,
use aliases from the first message on, and answer the same packets with the same bytes every time.
"""

from nodes import OneNode
from wire import Kind, Property, RawCases, RawClient, Will, acknowledge, connect, publish, subscribe


class Exchanges(RawCases, OneNode):
    """Bytes out, bytes in, in hexadecimal; `T` stands for the topic of the test, nine bytes, its length in front
    included.
    """

    def setUp(self):
        super().setUp()
        self.name = f"b{self.unique:_>6.6}"
        self.field = b"\x00\x07" + self.name.encode()

    def bytes_of(self, notation):
        return b"".join(self.field if part == "T" else bytes.fromhex(part) for part in notation.split())

    def assert_exchange(self, version, *steps):
        """Each step is what is sent and what comes; a last PINGREQ shows that no more came."""
        client = RawClient(self.here, version)
        self.addCleanup(client.close)
        client.connect(self.client_id("bytes"))
        for out, expected in (*steps, ("c000", "d000")):
            client.socket.sendall(self.bytes_of(out))
            wanted, came = self.bytes_of(expected), b""
            while len(came) < len(wanted):
                data = client.socket.recv(len(wanted) - len(came))
                self.assertTrue(data, f"closed after {came.hex()}")
                came += data
            self.assertEqual(came.hex(), wanted.hex(), f"answer to {out}")

    def test_a_conversation_of_3_1_1_has_no_byte_too_many(self):
        """[MQTT-2.2.1-5] [MQTT-2.2.1-6] [MQTT-2.3.1-6 v3.1.1]: each QoS to oneself, both halves of each flow."""
        self.assert_exchange(
            4,
            ("82 0c 04d2 T 02", "90 03 04d2 02"),
            ("30 0c T 616263", "30 0c T 616263"),
            ("a2 0b 0001 T", "b0 02 0001"),
            ("32 0e T 0007 616263", "40 02 0007"),
            ("34 0e T 0008 616263", "50 02 0008"),
            ("62 02 0008", "70 02 0008"),
            ("62 02 0009", "70 02 0009"),
        )

    def test_a_conversation_of_5_0_has_no_byte_too_many(self):
        """[MQTT-2.2.2-1] [MQTT-3.4.2-1]: success in two bytes, other reason codes in three, no properties of ours."""
        self.assert_exchange(
            5,
            ("32 0f T 0007 00 616263", "40 03 0007 10"),
            ("34 0f T 0008 00 616263", "50 03 0008 10"),
            ("62 02 0008", "70 02 0008"),
            ("82 0d 04d2 00 T 01", "90 04 04d2 00 01"),
            ("a2 0c 0002 00 T", "b0 04 0002 00 00"),
            ("a2 0c 0003 00 T", "b0 04 0003 00 11"),
            ("62 03 0009 00", "70 03 0009 92"),
            ("50 03 0009 00", "62 03 0009 92"),
            ("40 02 0009", ""),
            ("70 02 0009", ""),
        )

    def test_properties_come_back_as_they_went(self):
        """[MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]

        Byte for byte, in the order in which they were sent; an expiry of a second is still a second.
        """
        for props in (
            "02 0101",
            "05 02 00000001",
            "04 03 000174",
            "04 08 000174",
            "04 09 000100",
            "07 26 000161 000162",
            "0e 26 000162 000161 26 000162 000161",
            "16 26 000161 000162 03 000174 08 000174 0101 26 0000 0000",
        ):
            with self.subTest(props):
                length = sum(len(part) // 2 for part in props.split()) + 12
                message = f"30 {length:02x} T {props} 616263"
                self.assert_exchange(5, ("82 0d 0001 00 T 01", "90 04 0001 00 01"), (message, message))

    def test_aliases_are_used_from_the_first_message_on(self):
        """[MQTT-3.1.2-26] [MQTT-3.3.2-11]: where the client takes any; the topic is left out from the second on, but never at QoS 2."""
        client = self.raw(self.here, props=((Property.TOPIC_ALIAS_MAXIMUM, 1),))
        client.subscribe((self.topic("a"), 2), (self.topic("b"), 2))
        publisher = self.publisher()
        for qos in (0, 1, 2):
            publisher.publish(self.topic("a"), f"{qos}", qos=qos)
        publisher.publish(self.topic("b"), "no alias is left")
        came = [client.take_message() for _ in range(4)]
        self.assertEqual([one.topic for one in came], [self.topic("a"), "", self.topic("a"), self.topic("b")])
        self.assertEqual([one.value(Property.TOPIC_ALIAS) for one in came], [1, 1, None, None])

    def test_the_same_connect_gets_the_same_connack(self):
        """[MQTT-3.1.4-5] [MQTT-3.2.2-1]: four bytes in 3.1.1; in 5.0 our limits, in one order."""
        for version in (3, 4, 5):
            answers = set()
            for _ in range(3):
                with RawClient(self.here, version) as client:
                    client.send(connect(self.client_id("same"), version))
                    answers.add(client.socket.recv(1000))
            self.assertEqual(len(answers), 1)
            if version < 5:
                self.assertEqual(answers, {b"\x20\x02\x00\x00"})

    def test_control_characters_in_names_are_refused(self):
        """1.5.4 of 5.0 and 1.5.3 of 3.1.1 let us: in topics, filters, identifiers and user names; not in other text."""
        for version in (4, 5):
            for bad in ("a\x01", "\x1f", "a\x7fb", "a\x9f"):
                for name, data in (
                    ("topic", publish(bad, "x", version=version)),
                    ("filter", subscribe(1, (bad, 0), version=version)),
                ):
                    with self.subTest(name, version=version, bad=bad):
                        client = self.raw(self.here, "bad", version)
                        client.send(data)
                        codes = [one.reason_code for one in client.until_closed()]
                        self.assertEqual(codes, [0x81] if version == 5 else [])
                for options in ({"user": bad}, {"will": Will(bad)}):
                    with RawClient(self.here, version) as client:
                        client.send(connect(self.client_id("bad"), version, **options))
                        self.assertEqual([one for one in client.until_closed() if one.reason_code == 0], [])
                with RawClient(self.here, version) as client:
                    client.send(connect(bad, version))
                    self.assertEqual([one for one in client.until_closed() if one.reason_code == 0], [])
        subscriber = self.subscriber((self.topic(), 1))
        text = ("line\nline", "tab\t\x7f")
        publisher = self.publisher()
        publisher.publish(self.topic(), b"\x00\x01", qos=1, props=((Property.USER_PROPERTY, text),))
        self.assertEqual(subscriber.take_message().values(Property.USER_PROPERTY), [text])

    def test_unknown_packets_of_a_flow_do_not_end_the_connection(self):
        """4.3.3: PUBREL and PUBREC for what is not known are answered, PUBACK and PUBCOMP are not."""
        for version in (3, 4, 5):
            client = self.raw(self.here, f"v{version}", version)
            for kind, answer in ((Kind.PUBREL, Kind.PUBCOMP), (Kind.PUBREC, Kind.PUBREL)):
                client.send(acknowledge(kind, 500))
                came = client.expect(answer)
                self.assertEqual((came.packet_id, came.reason_code), (500, 0x92 if version == 5 else 0))
            client.send(acknowledge(Kind.PUBACK, 501), acknowledge(Kind.PUBCOMP, 502))
            self.assertEqual(client.ping(), [])
