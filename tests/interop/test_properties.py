"""Every property in every packet of a client (5.0, 2.2.2): once, twice, cut short, and where it does not belong."""

import contextlib

from nodes import OneNode
from wire import PINGREQ, Closed, Kind, Property, RawClient, binary, one_property, packet, variable_integer

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
BAD_AUTHENTICATION_METHOD = 0x8C

# Table 2-4 for what clients send.
MESSAGE = {
    Property.PAYLOAD_FORMAT_INDICATOR,
    Property.MESSAGE_EXPIRY_INTERVAL,
    Property.CONTENT_TYPE,
    Property.RESPONSE_TOPIC,
    Property.CORRELATION_DATA,
    Property.USER_PROPERTY,
}
ACKNOWLEDGEMENT = {Property.REASON_STRING, Property.USER_PROPERTY}
ALLOWED = {
    "CONNECT": {
        Property.SESSION_EXPIRY_INTERVAL,
        Property.AUTHENTICATION_METHOD,
        Property.REQUEST_PROBLEM_INFORMATION,
        Property.REQUEST_RESPONSE_INFORMATION,
        Property.RECEIVE_MAXIMUM,
        Property.TOPIC_ALIAS_MAXIMUM,
        Property.USER_PROPERTY,
        Property.MAXIMUM_PACKET_SIZE,
    },
    "will": MESSAGE | {Property.WILL_DELAY_INTERVAL},
    "PUBLISH": MESSAGE | {Property.TOPIC_ALIAS},
    "PUBACK": ACKNOWLEDGEMENT,
    "PUBREC": ACKNOWLEDGEMENT,
    "PUBREL": ACKNOWLEDGEMENT,
    "PUBCOMP": ACKNOWLEDGEMENT,
    "SUBSCRIBE": {Property.SUBSCRIPTION_IDENTIFIER, Property.USER_PROPERTY},
    "UNSUBSCRIBE": {Property.USER_PROPERTY},
    "DISCONNECT": ACKNOWLEDGEMENT | {Property.SESSION_EXPIRY_INTERVAL, Property.SERVER_REFERENCE},
}
REPEATABLE = {Property.USER_PROPERTY}
UNKNOWN = [number for number in (*range(0x30), 0x7E, 0x7F) if number not in set(Property)]
LONG_IDENTIFIERS = [bytes.fromhex(one) for one in ("8000", "8001", "ff7f", "808001", "ffffff7f", "8080808001")]

VALUES = {
    Property.USER_PROPERTY: ("k", "v"),
    Property.MAXIMUM_PACKET_SIZE: 1000,
    Property.SESSION_EXPIRY_INTERVAL: 0,
    Property.AUTHENTICATION_DATA: b"d",
    Property.CORRELATION_DATA: b"d",
}
STRINGS = {0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F}


def valid(identifier):
    """A property with a value that it may have."""
    return one_property(identifier, VALUES.get(identifier, "p" if identifier in STRINGS else 1))


def with_properties(name, encoded):
    """A packet of this name with these properties, otherwise as it should be."""
    section = variable_integer(len(encoded)) + encoded
    connect_head, identifier = binary("MQTT") + b"\x05%c\x00\x3c", binary("properties")
    if name == "CONNECT":
        return packet(Kind.CONNECT, 0, connect_head % 2 + section + identifier)
    if name == "will":
        return packet(Kind.CONNECT, 0, connect_head % 6 + b"\x00" + identifier + section + binary("w") + binary("p"))
    if name == "PUBLISH":
        return packet(Kind.PUBLISH, 0, binary("t") + section + b"payload")
    if name == "SUBSCRIBE":
        return packet(Kind.SUBSCRIBE, 2, b"\x00\x01" + section + binary("f") + b"\x00")
    if name == "UNSUBSCRIBE":
        return packet(Kind.UNSUBSCRIBE, 2, b"\x00\x01" + section + binary("f"))
    if name == "DISCONNECT":
        return packet(Kind.DISCONNECT, 0, b"\x00" + section)
    return packet(Kind[name], 2 if name == "PUBREL" else 0, b"\x00\x01\x00" + section)


class Properties(OneNode):
    """The whole matrix, each case on a connection of its own."""

    def outcome(self, name, encoded):
        """The reason code with which the connection was refused or ended; 0 if it lives; None if it was closed in
        peace.
        """
        with RawClient(self.cluster.nodes[0].port) as client:
            if name in ("CONNECT", "will"):
                client.send(with_properties(name, encoded), PINGREQ)
            else:
                client.connect("properties")
                client.send(with_properties(name, encoded), PINGREQ)
            with contextlib.suppress(Closed):
                while (came := client.receive()).kind != Kind.PINGRESP:
                    if came.kind in (Kind.CONNACK, Kind.DISCONNECT) and came.reason_code:
                        self.assertEqual(client.until_closed(), [])
                        return came.reason_code
                return 0
        return None

    def assert_outcomes(self, cases):
        """Cases are name, what it is, properties, and the outcomes allowed."""
        for name, what, encoded, expected in cases:
            with self.subTest(name, what=what):
                self.assertIn(self.outcome(name, encoded), expected)

    def test_a_property_is_taken_where_it_belongs_and_nowhere_else(self):
        """[MQTT-4.13.1-1] [MQTT-3.3.4-6]: 27 properties in ten packets."""
        cases = []
        for name, allowed in ALLOWED.items():
            for identifier in Property:
                if identifier not in allowed:
                    expected = {MALFORMED, PROTOCOL_ERROR}
                elif identifier == Property.AUTHENTICATION_METHOD:
                    expected = {BAD_AUTHENTICATION_METHOD, 0x87}
                else:
                    expected = {None} if name == "DISCONNECT" else {0}
                cases.append((name, identifier.name, valid(identifier), expected))
        self.assert_outcomes(cases)

    def test_a_property_that_comes_twice_is_a_protocol_error(self):
        """2.2.2.2: but for user properties; whether the values are equal or not."""
        cases = []
        for name, allowed in ALLOWED.items():
            for identifier in allowed:
                expected = {PROTOCOL_ERROR}
                if identifier in REPEATABLE:
                    expected = {None} if name == "DISCONNECT" else {0}
                cases.append((name, identifier.name, valid(identifier) * 2, expected))
        self.assert_outcomes(cases)

    def test_a_property_that_is_cut_short_is_malformed(self):
        """[MQTT-1.5.7-1] [MQTT-2.2.2-1]: at each of its bytes, whether it belongs there or not."""
        cases = []
        for name in ALLOWED:
            for identifier in Property:
                whole = valid(identifier)
                expected = {MALFORMED, PROTOCOL_ERROR}
                cases += [(name, identifier.name, whole[:end], expected) for end in range(1, len(whole))]
        self.assert_outcomes(cases)

    def test_a_property_nobody_knows_is_malformed(self):
        """2.2.2.2: numbers that are not given, and numbers of more than a byte."""
        cases = []
        for name in ALLOWED:
            for identifier in (*(bytes([number]) for number in UNKNOWN), *LONG_IDENTIFIERS):
                cases.append((name, identifier.hex(), identifier + b"\x01", {MALFORMED}))
        self.assert_outcomes(cases)

    def test_an_empty_string_is_a_string(self):
        """1.5.4: in user properties, reasons and content types; a response topic is none (4.7.3)."""
        for encoded in (b"\x26\x00\x00\x00\x00", b"\x26\x00\x01k\x00\x00", b"\x26\x00\x00\x00\x01v", b"\x03\x00\x00"):
            self.assertEqual(self.outcome("PUBLISH", encoded), 0)
        self.assertEqual(self.outcome("PUBACK", b"\x1f\x00\x00"), 0)
        self.assertEqual(self.outcome("PUBLISH", b"\x09\x00\x00"), 0)
        self.assertIn(self.outcome("PUBLISH", b"\x08\x00\x00"), {MALFORMED, PROTOCOL_ERROR, 0x90})
