"""What no client should send: each packet ends its own connection with the right reason code and harms nobody else.

The tables name the case, give the bytes and the reason codes that the specification allows in the answer. Where it
leaves a choice (a broken rule is "malformed" to one reader and a "protocol error" to another), both are listed.
"""

import contextlib

from nodes import OneNode
from wire import (
    NEVER,
    PINGREQ,
    Closed,
    Kind,
    Property,
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
    unsubscribe,
    variable_integer,
)

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
UNSUPPORTED_VERSION = 0x84
CLIENT_IDENTIFIER_NOT_VALID = 0x85
NOT_AUTHORIZED = 0x87
BAD_AUTHENTICATION_METHOD = 0x8C
TOPIC_FILTER_INVALID = 0x8F
TOPIC_NAME_INVALID = 0x90
RECEIVE_MAXIMUM_EXCEEDED = 0x93
TOPIC_ALIAS_INVALID = 0x94
PACKET_TOO_LARGE = 0x95
PAYLOAD_FORMAT_INVALID = 0x99

EITHER = {MALFORMED, PROTOCOL_ERROR}
BAD_TOPIC = EITHER | {TOPIC_NAME_INVALID}
NO_PROPERTIES = properties()


def raw_publish(topic_bytes, after=NO_PROPERTIES + b"x", flags=0):
    """A PUBLISH with any bytes for a topic and any bytes after it."""
    return packet(Kind.PUBLISH, flags, binary(topic_bytes) + after)


def raw_subscribe(filter_bytes, options=0, props=NO_PROPERTIES):
    """A SUBSCRIBE with any bytes for a filter."""
    return packet(Kind.SUBSCRIBE, 2, b"\x00\x01" + props + binary(filter_bytes) + bytes([options]))


CASES_AFTER_CONNECT = [
    ("packet type 0", b"\x00\x00", EITHER),
    ("PINGREQ with a reserved flag [MQTT-2.1.3-1]", b"\xc1\x00", {MALFORMED}),
    ("PINGREQ with a body", b"\xc0\x01\x00", EITHER),
    ("SUBSCRIBE without its flags [MQTT-3.8.1-1]", b"\x80" + subscribe(1, ("a", 0))[1:], {MALFORMED}),
    ("UNSUBSCRIBE without its flags [MQTT-3.10.1-1]", b"\xa0" + unsubscribe(1, "a")[1:], {MALFORMED}),
    ("PUBREL without its flags [MQTT-3.6.1-1]", b"\x60\x02\x00\x01", {MALFORMED}),
    ("DISCONNECT with a reserved flag [MQTT-3.14.1-1]", b"\xe1\x00", {MALFORMED}),
    ("PUBACK with a reserved flag [MQTT-2.1.3-1]", b"\x41\x02\x00\x01", {MALFORMED}),
    ("AUTH with a reserved flag [MQTT-3.15.1-1]", b"\xf1\x00", {MALFORMED}),
    ("a remaining length of five bytes", b"\x30\xff\xff\xff\xff\x01", {MALFORMED}),
    ("a remaining length not in the fewest bytes [MQTT-1.5.5-1]", b"\xc0\x80\x00", {MALFORMED}),
    ("a second CONNECT [MQTT-3.1.0-2]", connect("another"), {PROTOCOL_ERROR}),
    ("CONNACK from a client", b"\x20\x03\x00\x00\x00", {PROTOCOL_ERROR}),
    ("SUBACK from a client", b"\x90\x04\x00\x01\x00\x00", {PROTOCOL_ERROR}),
    ("UNSUBACK from a client", b"\xb0\x04\x00\x01\x00\x00", {PROTOCOL_ERROR}),
    ("PINGRESP from a client", b"\xd0\x00", {PROTOCOL_ERROR}),
    ("AUTH though CONNECT named no method [MQTT-4.12.0-7]", b"\xf0\x00", {PROTOCOL_ERROR}),
    ("PUBACK with a success code of SUBACK [MQTT-3.4.2-1]", acknowledge(Kind.PUBACK, 1, 0x01), EITHER),
    ("PUBACK cut short", b"\x40\x01\x00", {MALFORMED}),
    ("PUBACK with packet identifier 0", acknowledge(Kind.PUBACK, 0), EITHER),
    ("PUBACK with bytes too many", b"\x40\x05\x00\x01\x00\x00\x00", EITHER),
    ("DISCONNECT with an unknown reason code [MQTT-3.14.2-1]", disconnect(0x01), EITHER),
    (
        "DISCONNECT that sets a session expiry where CONNECT gave none",
        disconnect(0, ((Property.SESSION_EXPIRY_INTERVAL, 5),)),
        {PROTOCOL_ERROR},
    ),
]

CASES_OF_PUBLISH = [
    ("QoS 3 [MQTT-3.3.1-4]", publish("t", qos=3, packet_id=1), {MALFORMED}),
    ("DUP at QoS 0 [MQTT-3.3.1-2]", publish("t", dup=True), EITHER),
    ("nothing in it", b"\x30\x00", {MALFORMED}),
    ("half a topic length", b"\x30\x01\x00", {MALFORMED}),
    ("a topic longer than the packet", b"\x30\x04\x00\x09ab", {MALFORMED}),
    ("no packet identifier at QoS 1", b"\x32\x03\x00\x01t", {MALFORMED}),
    ("packet identifier 0 [MQTT-2.2.1-3]", publish("t", qos=1, packet_id=0), EITHER),
    ("no property length [MQTT-2.2.2-1]", b"\x30\x03\x00\x01t", {MALFORMED}),
    ("properties longer than the packet", b"\x30\x04\x00\x01t\x05", {MALFORMED}),
    ("a property length not in the fewest bytes [MQTT-1.5.5-1]", b"\x30\x05\x00\x01t\x80\x00", {MALFORMED}),
    ("a property that does not exist", raw_publish(b"t", b"\x02\x7e\x00"), {MALFORMED}),
    ("a property cut short", raw_publish(b"t", b"\x03\x02\x00\x00"), {MALFORMED}),
    (
        "a property of CONNECT",
        publish("t", props=((Property.SESSION_EXPIRY_INTERVAL, 1),)),
        EITHER,
    ),
    ("two message expiries", publish("t", props=((Property.MESSAGE_EXPIRY_INTERVAL, 1),) * 2), {PROTOCOL_ERROR}),
    (
        "a payload format indicator of 2",
        publish("t", props=((Property.PAYLOAD_FORMAT_INDICATOR, 2),)),
        EITHER | {PAYLOAD_FORMAT_INVALID},
    ),
    (
        "a subscription identifier [MQTT-3.3.4-6]",
        publish("t", props=((Property.SUBSCRIPTION_IDENTIFIER, 1),)),
        EITHER,
    ),
    ("topic alias 0 [MQTT-3.3.2-8]", publish("t", props=((Property.TOPIC_ALIAS, 0),)), {TOPIC_ALIAS_INVALID}),
    (
        "a topic alias above our maximum [MQTT-3.2.2-17]",
        publish("t", props=((Property.TOPIC_ALIAS, 65535),)),
        {TOPIC_ALIAS_INVALID},
    ),
    ("a topic alias never set", publish("", props=((Property.TOPIC_ALIAS, 1),)), {PROTOCOL_ERROR, TOPIC_ALIAS_INVALID}),
    ("no topic and no alias [MQTT-4.7.3-1]", publish(""), {PROTOCOL_ERROR, TOPIC_NAME_INVALID}),
    ("a topic with # [MQTT-3.3.2-2]", publish("a/#"), BAD_TOPIC),
    ("a topic with + [MQTT-3.3.2-2]", publish("a/+/b"), BAD_TOPIC),
    ("a topic with U+0000 [MQTT-1.5.4-2]", raw_publish(b"a\x00b"), BAD_TOPIC),
    ("a topic with a surrogate [MQTT-1.5.4-1]", raw_publish(b"\xed\xa0\x80"), BAD_TOPIC),
    ("a topic with an overlong code [MQTT-1.5.4-1]", raw_publish(b"\xc0\xaf"), BAD_TOPIC),
    ("a topic with a stray byte [MQTT-1.5.4-1]", raw_publish(b"a\xff"), BAD_TOPIC),
    ("a response topic with + [MQTT-3.3.2-14]", publish("t", props=((Property.RESPONSE_TOPIC, "a/+"),)), BAD_TOPIC),
    (
        "a user property that is not UTF-8 [MQTT-1.5.7-1]",
        publish("t", props=((Property.USER_PROPERTY, (b"k", b"\xff")),)),
        EITHER,
    ),
    ("a content type with U+0000 [MQTT-3.3.2-19]", publish("t", props=((Property.CONTENT_TYPE, b"\x00"),)), EITHER),
]

CASES_OF_SUBSCRIBE = [
    ("no filter [MQTT-3.8.3-2]", subscribe(1), EITHER),
    ("packet identifier 0 [MQTT-2.2.1-3]", subscribe(0, ("a", 0)), EITHER),
    ("a filter without options", packet(Kind.SUBSCRIBE, 2, b"\x00\x01\x00\x00\x01a"), {MALFORMED}),
    ("a filter longer than the packet", packet(Kind.SUBSCRIBE, 2, b"\x00\x01\x00\xff\xffab"), {MALFORMED}),
    ("reserved option bits [MQTT-3.8.3-5]", subscribe(1, ("a", 0x40)), {MALFORMED}),
    ("QoS 3", subscribe(1, ("a", 3)), EITHER),
    ("retain handling 3", subscribe(1, ("a", 0x30)), EITHER),
    ("no local on a shared subscription [MQTT-3.8.3-4]", subscribe(1, ("$share/g/a", 0x04)), {PROTOCOL_ERROR}),
    (
        "subscription identifier 0",
        subscribe(1, ("a", 0), props=((Property.SUBSCRIPTION_IDENTIFIER, 0),)),
        {PROTOCOL_ERROR},
    ),
    (
        "two subscription identifiers",
        subscribe(1, ("a", 0), props=((Property.SUBSCRIPTION_IDENTIFIER, 1),) * 2),
        {PROTOCOL_ERROR},
    ),
    ("a filter that is not UTF-8 [MQTT-3.8.3-1]", raw_subscribe(b"\xff"), EITHER | {TOPIC_FILTER_INVALID}),
    ("a filter with U+0000 [MQTT-4.7.3-2]", raw_subscribe(b"a\x00"), EITHER | {TOPIC_FILTER_INVALID}),
    ("an UNSUBSCRIBE without a filter [MQTT-3.10.3-2]", unsubscribe(1), EITHER),
    ("an UNSUBSCRIBE with packet identifier 0 [MQTT-2.2.1-3]", unsubscribe(0, "a"), EITHER),
]

# Filters that are wrong in themselves: the SUBACK may say so, or the connection may end [MQTT-4.7.1-1].
INVALID_FILTERS = [
    "",
    "a/#/b",
    "a#",
    "#/a",
    "a/b#",
    "+a/b",
    "a/b+",
    "a/+b/c",
    "$share//x",
    "$share/a+b/x",
    "$share/a#/x",
    "$share/group",
    "$share/group/",
    "$share/group/a/#/b",
]


def body_of_connect(flags, payload, name=b"MQTT", version=5, props=NO_PROPERTIES):
    """A CONNECT with any flags, name, version and payload."""
    return packet(Kind.CONNECT, 0, binary(name) + bytes([version, flags]) + b"\x00\x3c" + props + payload)


IDENTIFIER = binary("malformed-connect")

CASES_OF_CONNECT = [
    ("a reserved header flag [MQTT-2.1.3-1]", b"\x11" + connect("x")[1:], {MALFORMED}),
    ("the reserved connect flag [MQTT-3.1.2-3]", body_of_connect(0x03, IDENTIFIER), {MALFORMED}),
    ("version 6 [MQTT-3.1.2-2]", body_of_connect(0x02, IDENTIFIER, version=6), {UNSUPPORTED_VERSION}),
    ("will QoS 3 [MQTT-3.1.2-12]", connect("x", will=Will("t", qos=3)), EITHER),
    ("will QoS without a will [MQTT-3.1.2-11]", body_of_connect(0x0A, IDENTIFIER), EITHER),
    ("will retain without a will [MQTT-3.1.2-13]", body_of_connect(0x22, IDENTIFIER), EITHER),
    ("a will flag and no will [MQTT-3.1.2-9]", body_of_connect(0x06, IDENTIFIER), {MALFORMED}),
    ("a user name flag and no name [MQTT-3.1.2-17]", body_of_connect(0x82, IDENTIFIER), {MALFORMED}),
    ("a password flag and no password [MQTT-3.1.2-19]", body_of_connect(0x42, IDENTIFIER), {MALFORMED}),
    ("a name without its flag [MQTT-3.1.2-16]", body_of_connect(0x02, IDENTIFIER + binary("user")), EITHER),
    ("no client identifier [MQTT-3.1.3-3]", body_of_connect(0x02, b""), {MALFORMED}),
    (
        "a client identifier that is not UTF-8 [MQTT-3.1.3-4]",
        body_of_connect(0x02, binary(b"\xff")),
        EITHER | {CLIENT_IDENTIFIER_NOT_VALID},
    ),
    (
        "a client identifier with U+0000 [MQTT-1.5.4-2]",
        body_of_connect(0x02, binary(b"\x00")),
        EITHER | {CLIENT_IDENTIFIER_NOT_VALID},
    ),
    ("Receive Maximum 0", connect("x", props=((Property.RECEIVE_MAXIMUM, 0),)), {PROTOCOL_ERROR}),
    ("Maximum Packet Size 0", connect("x", props=((Property.MAXIMUM_PACKET_SIZE, 0),)), {PROTOCOL_ERROR}),
    ("two session expiries", connect("x", props=((Property.SESSION_EXPIRY_INTERVAL, 1),) * 2), {PROTOCOL_ERROR}),
    ("two Receive Maximums", connect("x", props=((Property.RECEIVE_MAXIMUM, 9),) * 2), {PROTOCOL_ERROR}),
    ("Request Problem Information 2", connect("x", props=((Property.REQUEST_PROBLEM_INFORMATION, 2),)), EITHER),
    ("Request Response Information 2", connect("x", props=((Property.REQUEST_RESPONSE_INFORMATION, 2),)), EITHER),
    ("authentication data alone", connect("x", props=((Property.AUTHENTICATION_DATA, b"d"),)), {PROTOCOL_ERROR}),
    (
        "an authentication method nobody knows [MQTT-4.12.0-1]",
        connect("x", props=((Property.AUTHENTICATION_METHOD, "guess"),)),
        {BAD_AUTHENTICATION_METHOD, NOT_AUTHORIZED},
    ),
    ("a property of PUBLISH", connect("x", props=((Property.TOPIC_ALIAS, 1),)), EITHER),
    (
        "a property that is none of a will",
        connect("x", will=Will("t", properties=((Property.TOPIC_ALIAS, 1),))),
        EITHER,
    ),
    ("two will delays", connect("x", will=Will("t", properties=((Property.WILL_DELAY_INTERVAL, 1),) * 2)), EITHER),
    ("a will topic with #", connect("x", will=Will("a/#")), BAD_TOPIC),
    ("an empty will topic [MQTT-4.7.3-1]", connect("x", will=Will("")), BAD_TOPIC),
    ("a will topic that is not UTF-8 [MQTT-3.1.3-11]", connect("x", will=Will(b"\xff")), BAD_TOPIC),
    ("a user name that is not UTF-8 [MQTT-3.1.3-12]", connect("x", user=b"\xff"), EITHER),
]

CASES_BEFORE_CONNECT = [
    ("PUBLISH", publish("t", "x")),
    ("SUBSCRIBE", subscribe(1, ("a", 0))),
    ("UNSUBSCRIBE", unsubscribe(1, "a")),
    ("PINGREQ", PINGREQ),
    ("DISCONNECT", disconnect()),
    ("PUBACK", acknowledge(Kind.PUBACK, 1)),
    ("PUBREC", acknowledge(Kind.PUBREC, 1)),
    ("PUBREL", acknowledge(Kind.PUBREL, 1)),
    ("PUBCOMP", acknowledge(Kind.PUBCOMP, 1)),
    ("AUTH", b"\xf0\x00"),
    ("CONNACK", b"\x20\x03\x00\x00\x00"),
    ("PINGRESP", b"\xd0\x00"),
    ("packet type 0", b"\x00\x00"),
    ("an HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("a TLS hello", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(32)),
    ("a CONNECT of a claimed 256 MB", b"\x10\xff\xff\xff\x7f\x00\x04MQTT"),
    ("a CONNECT whose remaining length never ends", b"\x10\xff\xff\xff\xff\xff"),
    ("another protocol's name [MQTT-3.1.2-1]", body_of_connect(0x02, IDENTIFIER, name=b"MQXX")),
]

CASES_OF_OLDER_VERSIONS = [
    ("QoS 3 [MQTT-3.3.1-4 v3.1.1]", publish("t", qos=3, packet_id=1, version=4)),
    ("a wildcard in a topic [MQTT-3.3.2-2 v3.1.1]", publish("a/#", version=4)),
    ("an empty topic [MQTT-4.7.3-1 v3.1.1]", publish("", version=4)),
    ("packet identifier 0 [MQTT-2.3.1-1 v3.1.1]", publish("t", qos=1, packet_id=0, version=4)),
    ("SUBSCRIBE without its flags [MQTT-3.8.1-1 v3.1.1]", b"\x80" + subscribe(1, ("a", 0), version=4)[1:]),
    ("SUBSCRIBE without a filter [MQTT-3.8.3-3 v3.1.1]", subscribe(1, version=4)),
    ("SUBSCRIBE with QoS 3 [MQTT-3.8.3-4 v3.1.1]", subscribe(1, ("a", 3), version=4)),
    ("SUBSCRIBE with option bits of 5.0 [MQTT-3.8.3-4 v3.1.1]", subscribe(1, ("a", 0x10), version=4)),
    ("UNSUBSCRIBE without a filter [MQTT-3.10.3-2 v3.1.1]", unsubscribe(1, version=4)),
    ("PUBACK with a reason code", acknowledge(Kind.PUBACK, 1, 0)),
    ("AUTH", b"\xf0\x00"),
    ("DISCONNECT with a body", disconnect(0)),
    ("a second CONNECT [MQTT-3.1.0-2 v3.1.1]", connect("x", version=4)),
]

CONNECT_CASES_OF_OLDER_VERSIONS = [
    ("a password without a user name [MQTT-3.1.2-22 v3.1.1]", connect("x", 4, password="p"), None),
    ("the reserved connect flag [MQTT-3.1.2-3 v3.1.1]", body_of_connect(0x03, IDENTIFIER, version=4, props=b""), None),
    ("will QoS 3 [MQTT-3.1.2-14 v3.1.1]", connect("x", 4, will=Will("t", qos=3)), None),
    ("an empty identifier to be kept [MQTT-3.1.3-8 v3.1.1]", connect("", 4, clean_start=False), 2),
]


class MalformedPackets(OneNode):
    """Each test leaves a bystander connected, who must go on undisturbed."""

    def setUp(self):
        super().setUp()
        self.bystander = RawClient(self.here)
        self.addCleanup(self.bystander.close)
        self.bystander.connect(self.client_id("bystander"))
        self.bystander.subscribe((self.topic(), 1))

    def tearDown(self):
        with RawClient(self.here) as witness:
            witness.connect(self.client_id("witness"))
            witness.publish(self.topic(), "still here", qos=1)
        self.assertEqual(self.bystander.take_message().payload, b"still here")
        super().tearDown()

    def answer_to(self, data, version=5, client_id="malformed"):
        """What a connected client gets for some bytes until the server closes."""
        with RawClient(self.here, version) as client:
            client.connect(self.client_id(client_id))
            client.send(data)
            return client.until_closed()

    def assert_disconnected(self, cases):
        """[MQTT-4.13.1-1]: the connection is closed after a DISCONNECT that says why, and nothing else came."""
        for name, data, codes in cases:
            with self.subTest(name):
                came = self.answer_to(data)
                self.assertEqual([packet.kind for packet in came], [Kind.DISCONNECT], came)
                self.assertIn(came[0].reason_code, codes, f"0x{came[0].reason_code:02x}")
                self.assertIsNone(came[0].value(Property.SESSION_EXPIRY_INTERVAL), "[MQTT-3.14.2-2]")

    def test_a_malformed_packet_is_answered_with_disconnect_and_its_reason(self):
        """[MQTT-4.13.1-1] [MQTT-2.1.3-1] [MQTT-1.5.5-1] [MQTT-3.1.0-2] [MQTT-3.6.1-1] [MQTT-3.14.1-1]"""
        self.assert_disconnected(CASES_AFTER_CONNECT)

    def test_a_malformed_publish_is_answered_with_disconnect_and_its_reason(self):
        """[MQTT-3.3.1-4] [MQTT-3.3.2-2] [MQTT-3.3.2-8] [MQTT-3.3.4-6] [MQTT-1.5.4-1] [MQTT-1.5.4-2]"""
        self.assert_disconnected(CASES_OF_PUBLISH)

    def test_a_malformed_subscribe_or_unsubscribe_is_answered_with_disconnect_and_its_reason(self):
        """[MQTT-3.8.3-2] [MQTT-3.8.3-4] [MQTT-3.8.3-5] [MQTT-3.10.3-2]"""
        self.assert_disconnected(CASES_OF_SUBSCRIBE)

    def test_an_invalid_filter_is_refused_by_suback_or_disconnect(self):
        """[MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.8.2-1] [MQTT-4.8.2-2]"""
        for name in INVALID_FILTERS:
            with self.subTest(name), RawClient(self.here) as client:
                client.connect(self.client_id("filters"))
                client.send(subscribe(1, (name, 0)))
                came = client.receive()
                if came.kind == Kind.SUBACK:
                    self.assertEqual(came.codes, [TOPIC_FILTER_INVALID])
                else:
                    self.assertEqual(came.kind, Kind.DISCONNECT)
                    self.assertIn(came.reason_code, EITHER | {TOPIC_FILTER_INVALID})
                    self.assertEqual(client.until_closed(), [])

    def test_an_invalid_filter_of_3_1_1_is_refused_by_suback_or_close(self):
        """[MQTT-4.7.1-2 v3.1.1] [MQTT-3.9.3-2 v3.1.1]: the SUBACK of 3.1.1 knows one failure, 0x80."""
        for name in INVALID_FILTERS:
            with self.subTest(name), RawClient(self.here, 4) as client:
                client.connect(self.client_id("filters"))
                client.send(subscribe(1, (name, 0), version=4))
                with contextlib.suppress(Closed):
                    self.assertEqual(client.expect(Kind.SUBACK).codes, [0x80])

    def test_a_malformed_connect_is_answered_with_connack_and_its_reason(self):
        """[MQTT-3.1.4-1] [MQTT-3.2.2-6] [MQTT-3.2.2-7] [MQTT-3.2.2-8]"""
        for name, data, codes in CASES_OF_CONNECT:
            with self.subTest(name), RawClient(self.here) as client:
                # What comes behind a refused CONNECT is not processed [MQTT-3.1.4-6].
                client.send(data, publish(self.topic(), "from a refused client"))
                came = client.until_closed()
                self.assertEqual([packet.kind for packet in came], [Kind.CONNACK], came)
                self.assertIn(came[0].reason_code, codes, f"0x{came[0].reason_code:02x}")
                self.assertFalse(came[0].session_present)

    def test_a_packet_before_connect_closes_the_connection_without_a_disconnect(self):
        """[MQTT-3.1.0-1] [MQTT-3.14.0-1] [MQTT-3.1.2-1]"""
        for name, data in CASES_BEFORE_CONNECT:
            with self.subTest(name), RawClient(self.here) as client:
                client.send(data)
                came = client.until_closed()
                self.assertNotIn(Kind.DISCONNECT, [packet.kind for packet in came])
                for connack in came:
                    self.assertEqual(connack.kind, Kind.CONNACK)
                    self.assertGreaterEqual(connack.reason_code, 1)

    def test_a_malformed_packet_of_3_1_1_closes_the_connection_in_silence(self):
        """[MQTT-4.8.0-1 v3.1.1]: that version has no DISCONNECT from the server."""
        for name, data in CASES_OF_OLDER_VERSIONS:
            with self.subTest(name):
                self.assertEqual(self.answer_to(data, version=4), [])

    def test_a_malformed_connect_of_3_1_1_is_refused_with_a_code_of_that_version(self):
        """[MQTT-3.1.2-22 v3.1.1] [MQTT-3.1.3-8 v3.1.1] [MQTT-3.2.2-4 v3.1.1]"""
        for name, data, code in CONNECT_CASES_OF_OLDER_VERSIONS:
            with self.subTest(name), RawClient(self.here, 4) as client:
                client.send(data)
                came = client.until_closed()
                if code is None:
                    self.assertEqual([connack for connack in came if not 1 <= connack.reason_code <= 5], [])
                else:
                    self.assertEqual([(connack.kind, connack.reason_code) for connack in came], [(Kind.CONNACK, code)])
                self.assertEqual([connack for connack in came if connack.session_present], [])

    def test_every_truncation_of_every_packet_is_survived(self):
        """Pitfall: a crash or a wait without end on a packet whose body ends early, with a header that agrees."""
        bounded = ((Property.MESSAGE_EXPIRY_INTERVAL, NEVER), (Property.USER_PROPERTY, ("k", "v")))
        wholes = [
            publish("a/b", "payload", qos=1, packet_id=7, props=bounded),
            subscribe(7, ("a/b", 1), props=((Property.SUBSCRIPTION_IDENTIFIER, 300),)),
            unsubscribe(7, "a/b", "c"),
            acknowledge(Kind.PUBREC, 7, 0),
            disconnect(0, ((Property.REASON_STRING, "bye"),)),
        ]
        for whole in wholes:
            for end in range(len(whole) - 2):
                self.assert_survived(connect(self.client_id("cut")) + whole[:1] + bytes([end]) + whole[2 : 2 + end])
        will = Will("w", properties=((Property.WILL_DELAY_INTERVAL, 1),))
        whole = connect("cut", props=((Property.RECEIVE_MAXIMUM, 9),), will=will, user="u", password="p")
        for end in range(len(whole) - 2):
            self.assert_survived(whole[:1] + bytes([end]) + whole[2 : 2 + end])

    def assert_survived(self, data):
        """Whatever the answer to some bytes is, the server comes to an end of this connection."""
        with RawClient(self.here) as client:
            client.send(data, disconnect())
            client.until_closed()

    def test_a_packet_larger_than_our_maximum_is_refused_at_its_header(self):
        """[MQTT-3.2.2-15]: 0x95 before the body is sent, and at exactly the size stated."""
        with RawClient(self.here) as client:
            maximum = client.connect(self.client_id("size")).value(Property.MAXIMUM_PACKET_SIZE)
            self.assertIsNotNone(maximum, "a broker with a limit states it")
            room = maximum - len(publish(self.topic("size"), bytes(maximum - 100))) + maximum - 100
            fits = publish(self.topic("size"), bytes(room), qos=0)
            self.assertEqual(len(fits), maximum)
            client.send(fits)
            self.assertEqual(client.ping(), [])
            client.send(bytes([Kind.PUBLISH << 4]) + variable_integer(maximum - 3))
            self.assertEqual([came.reason_code for came in client.until_closed()], [PACKET_TOO_LARGE])
        came = self.answer_to(b"\x30\xff\xff\xff\x7f")
        self.assertEqual([(one.kind, one.reason_code) for one in came], [(Kind.DISCONNECT, PACKET_TOO_LARGE)])

    def test_no_memory_is_set_aside_for_a_length_merely_claimed(self):
        """Pitfall: buffers for the length claimed. A hundred clients claim a megabyte each and send a byte of it."""
        node = self.cluster.nodes[0]
        before = node.memory_bytes("VmData")
        clients = [RawClient(self.here) for _ in range(100)]
        for number, client in enumerate(clients):
            self.addCleanup(client.close)
            client.connect(self.client_id(f"claim-{number}"))
            client.send(PINGREQ, bytes([Kind.PUBLISH << 4]) + variable_integer(1_000_000) + b"\x00")
            client.expect(Kind.PINGRESP)
        self.assertLess(node.memory_bytes("VmData") - before, 50_000_000)

    def test_more_messages_than_our_receive_maximum_are_refused(self):
        """[MQTT-3.3.4-7]: QoS 2 messages that the client does not release count until it does."""
        with RawClient(self.here) as client:
            maximum = client.connect(self.client_id("flood")).value(Property.RECEIVE_MAXIMUM) or 65535
            client.send(*(publish(self.topic("flood"), b"", 2, number) for number in range(1, maximum + 1)))
            for number in range(1, maximum + 1):
                self.assertEqual(client.expect(Kind.PUBREC).packet_id, number)
            self.assertEqual(client.ping(), [])
            client.send(publish(self.topic("flood"), b"", 2, maximum + 1))
            came = client.until_closed()
            answers = [(one.kind, one.reason_code) for one in came]
            self.assertEqual(answers, [(Kind.DISCONNECT, RECEIVE_MAXIMUM_EXCEEDED)])
