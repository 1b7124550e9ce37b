"""A tiny client that speaks to the socket, for what well-behaved clients cannot say.

It keeps no state and answers nothing by itself: a test sends the packets it wants, in the order and with the bytes it
wants, and looks at each that comes back. Versions: 3 (3.1), 4 (3.1.1), 5.
"""

import collections
import dataclasses
import enum
import itertools
import socket
import struct
import time

from nodes import PATIENCE_S


class Kind(enum.IntEnum):
    """Control packet types (MQTT 5.0, 2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Property(enum.IntEnum):
    """Property identifiers (MQTT 5.0, 2.2.2.2)."""

    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


BYTE_PROPERTIES = {0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A}
TWO_BYTE_PROPERTIES = {0x13, 0x21, 0x22, 0x23}
FOUR_BYTE_PROPERTIES = {0x02, 0x11, 0x18, 0x27}
BINARY_PROPERTIES = {0x09, 0x16}

NEVER = 0xFFFFFFFF


def variable_integer(number):
    """A variable byte integer in the fewest bytes."""
    out = bytearray()
    while True:
        number, digit = divmod(number, 128)
        out.append(digit | (0x80 if number else 0))
        if not number:
            return bytes(out)


def binary(data):
    """Binary data or a UTF-8 string: two bytes of length, then the bytes."""
    data = data.encode() if isinstance(data, str) else data
    return struct.pack("!H", len(data)) + data


def one_property(identifier, value):
    """A property as bytes. A user property's value is a pair of strings."""
    if identifier in BYTE_PROPERTIES:
        encoded = bytes([value])
    elif identifier in TWO_BYTE_PROPERTIES:
        encoded = struct.pack("!H", value)
    elif identifier in FOUR_BYTE_PROPERTIES:
        encoded = struct.pack("!I", value)
    elif identifier == Property.SUBSCRIPTION_IDENTIFIER:
        encoded = variable_integer(value)
    elif identifier == Property.USER_PROPERTY:
        encoded = binary(value[0]) + binary(value[1])
    else:
        encoded = binary(value)
    return bytes([identifier]) + encoded


def properties(*pairs):
    """The length of the properties and the properties; pairs of identifier and value, in this order."""
    encoded = b"".join(one_property(identifier, value) for identifier, value in pairs)
    return variable_integer(len(encoded)) + encoded


def packet(kind, flags, body):
    """A whole control packet."""
    return bytes([kind << 4 | flags]) + variable_integer(len(body)) + body


@dataclasses.dataclass
class Will:
    topic: str
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    properties: tuple = ()


def connect(client_id, version=5, clean_start=True, keep_alive=60, props=(), will=None, user=None, password=None):
    """A CONNECT."""
    name = "MQIsdp" if version == 3 else "MQTT"
    flags = clean_start << 1
    payload = binary(client_id)
    if will:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        payload += properties(*will.properties) if version == 5 else b""
        payload += binary(will.topic) + binary(will.payload)
    if user is not None:
        flags |= 0x80
        payload += binary(user)
    if password is not None:
        flags |= 0x40
        payload += binary(password)
    head = binary(name) + bytes([version, flags]) + struct.pack("!H", keep_alive)
    return packet(Kind.CONNECT, 0, head + (properties(*props) if version == 5 else b"") + payload)


def publish(topic, payload=b"", qos=0, packet_id=None, retain=False, dup=False, props=(), version=5):
    """A PUBLISH."""
    body = binary(topic)
    if packet_id is not None:
        body += struct.pack("!H", packet_id)
    body += properties(*props) if version == 5 else b""
    payload = payload.encode() if isinstance(payload, str) else payload
    return packet(Kind.PUBLISH, dup << 3 | qos << 1 | retain, body + payload)


def subscribe(packet_id, *filters, props=(), version=5):
    """A SUBSCRIBE; filters are pairs of topic filter and options byte (in 3.1.1: the QoS)."""
    body = struct.pack("!H", packet_id) + (properties(*props) if version == 5 else b"")
    return packet(Kind.SUBSCRIBE, 2, body + b"".join(binary(name) + bytes([options]) for name, options in filters))


def unsubscribe(packet_id, *filters, version=5):
    """An UNSUBSCRIBE."""
    body = struct.pack("!H", packet_id) + (properties() if version == 5 else b"")
    return packet(Kind.UNSUBSCRIBE, 2, body + b"".join(binary(name) for name in filters))


def acknowledge(kind, packet_id, reason_code=None):
    """A PUBACK, PUBREC, PUBREL or PUBCOMP."""
    body = struct.pack("!H", packet_id) + (b"" if reason_code is None else bytes([reason_code]))
    return packet(kind, 2 if kind == Kind.PUBREL else 0, body)


def disconnect(reason_code=0, props=()):
    """A DISCONNECT of version 5."""
    return packet(Kind.DISCONNECT, 0, bytes([reason_code]) + properties(*props))


PINGREQ = packet(Kind.PINGREQ, 0, b"")


@dataclasses.dataclass
class Packet:
    """A packet that came; fields its type does not have are None."""

    kind: Kind
    flags: int
    size: int
    packet_id: int = None
    reason_code: int = None
    codes: list = None
    session_present: bool = None
    topic: str = None
    payload: bytes = None
    properties: list = dataclasses.field(default_factory=list)

    qos = property(lambda self: self.flags >> 1 & 3)
    retain = property(lambda self: bool(self.flags & 1))
    dup = property(lambda self: bool(self.flags & 8))

    def value(self, identifier):
        """The only value of a property, or None if it is not there."""
        values = self.values(identifier)
        assert len(values) <= 1, f"{identifier!r} came {len(values)} times"
        return values[0] if values else None

    def values(self, identifier):
        """All values of a property in the order they came."""
        return [value for key, value in self.properties if key == identifier]


class Reader:
    """Takes fields off the bytes of a packet."""

    def __init__(self, data):
        self.data = data

    def take(self, count):
        assert len(self.data) >= count, f"the packet ends early: {self.data!r} has not {count} bytes"
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def byte(self):
        return self.take(1)[0]

    def integer(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def binary(self):
        return self.take(self.integer("!H"))

    def string(self):
        return self.binary().decode()

    def variable_integer(self):
        value = 0
        for shift in (0, 7, 14, 21):
            digit = self.byte()
            value |= (digit & 0x7F) << shift
            if digit < 0x80:
                return value
        raise AssertionError("a variable byte integer of more than four bytes")

    def properties(self):
        rest = Reader(self.take(self.variable_integer()))
        found = []
        while rest.data:
            identifier = Property(rest.byte())
            found.append((identifier, rest.property_value(identifier)))
        return found

    def property_value(self, identifier):
        if identifier in BYTE_PROPERTIES:
            return self.byte()
        if identifier in TWO_BYTE_PROPERTIES:
            return self.integer("!H")
        if identifier in FOUR_BYTE_PROPERTIES:
            return self.integer("!I")
        if identifier in BINARY_PROPERTIES:
            return self.binary()
        if identifier == Property.SUBSCRIPTION_IDENTIFIER:
            return self.variable_integer()
        if identifier == Property.USER_PROPERTY:
            return (self.string(), self.string())
        return self.string()


def decode(first, body, size, version):
    """What the server sent, as a `Packet`; an assertion fails if the server's bytes are malformed."""
    reader = Reader(body)
    came = Packet(Kind(first >> 4), first & 15, size)
    if came.kind == Kind.CONNACK:
        flags = reader.byte()
        assert flags in (0, 1), "reserved acknowledge flags [MQTT-3.2.2-1]"
        came.session_present, came.reason_code = flags == 1, reader.byte()
        if version == 5:
            came.properties = reader.properties()
    elif came.kind == Kind.PUBLISH:
        came.topic = reader.string()
        came.packet_id = reader.integer("!H") if came.qos else None
        came.properties = reader.properties() if version == 5 else []
        came.payload = reader.take(len(reader.data))
    elif came.kind in (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP):
        came.packet_id = reader.integer("!H")
        came.reason_code = reader.byte() if reader.data else 0
        came.properties = reader.properties() if reader.data else []
    elif came.kind in (Kind.SUBACK, Kind.UNSUBACK):
        came.packet_id = reader.integer("!H")
        came.properties = reader.properties() if version == 5 else []
        came.codes = list(reader.take(len(reader.data)))
    elif came.kind in (Kind.DISCONNECT, Kind.AUTH):
        came.reason_code = reader.byte() if reader.data else 0
        came.properties = reader.properties() if reader.data else []
    expected_flags = 2 if came.kind == Kind.PUBREL else 0
    assert came.kind == Kind.PUBLISH or came.flags == expected_flags, f"reserved flags [MQTT-2.1.3-1]: {came}"
    assert not reader.data, f"bytes too many in {came}: {reader.data!r}"
    return came


class Closed(Exception):
    """The server closed the connection."""


class RawClient:
    """A socket to a node and the packets on it. Use as a context manager."""

    def __init__(self, port, version=5, source=None):
        """`source`: the address it comes from."""
        self.version = version
        self.buffer = b""
        self.aside = collections.deque()
        self.packet_ids = itertools.cycle(range(1, 65536))
        source_address = source and (source, 0)
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the socket without a DISCONNECT."""
        self.socket.close()

    def send(self, *packets):
        self.socket.sendall(b"".join(packets))

    def receive(self, patience_s=PATIENCE_S):
        """The next packet. Raises `Closed`, or `TimeoutError` after `patience_s`."""
        return self.aside.popleft() if self.aside else self.receive_from_socket(patience_s)

    def receive_from_socket(self, patience_s=PATIENCE_S):
        """The next packet that was not yet put aside."""
        deadline = time.monotonic() + patience_s
        while (found := self.split()) is None:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            finally:
                self.socket.settimeout(PATIENCE_S)
            if not data:
                raise Closed(f"with {self.buffer!r} half received")
            self.buffer += data
        return found

    def split(self):
        """Takes one packet off the buffer if it is there in full."""
        length = 0
        for index, digit in enumerate(self.buffer[1:5]):
            length |= (digit & 0x7F) << 7 * index
            if digit < 0x80:
                start, end = index + 2, index + 2 + length
                if len(self.buffer) < end:
                    return None
                whole, self.buffer = self.buffer[:end], self.buffer[end:]
                return decode(whole[0], whole[start:], len(whole), self.version)
        return None

    def expect(self, kind, patience_s=PATIENCE_S):
        """The next packet, which must be of this type."""
        came = self.receive(patience_s)
        assert came.kind == kind, f"expected {kind.name}, got {came}"
        return came

    def expect_answer(self, kind, packet_id):
        """The packet of this type and identifier; what overtakes it is put aside for later."""
        while (came := self.receive_from_socket()).kind != kind or came.packet_id != packet_id:
            self.aside.append(came)
        return came

    def until_closed(self):
        """All packets that come before the server closes; it must close."""
        came = []
        try:
            while True:
                came.append(self.receive())
        except Closed:
            return came

    def connect(self, client_id, **options):
        """CONNECT and its CONNACK, which must be a success."""
        came = self.try_connect(client_id, **options)
        assert came.reason_code == 0, f"refused: {came}"
        return came

    def try_connect(self, client_id, **options):
        """CONNECT and its CONNACK."""
        self.send(connect(client_id, version=self.version, **options))
        return self.expect(Kind.CONNACK)

    def subscribe(self, *filters, props=()):
        """SUBSCRIBE and its SUBACK; packets that overtake the SUBACK are an error here."""
        packet_id = next(self.packet_ids)
        self.send(subscribe(packet_id, *filters, props=props, version=self.version))
        came = self.expect(Kind.SUBACK)
        assert came.packet_id == packet_id, f"[MQTT-2.2.1-6] {came}"
        return came

    def publish(self, topic, payload=b"", qos=0, **options):
        """PUBLISH and, for QoS 1 and 2, the whole flow. Returns the first answer's reason code, or None for QoS 0."""
        packet_id = next(self.packet_ids) if qos else None
        self.send(publish(topic, payload, qos, packet_id, version=self.version, **options))
        if qos == 0:
            return None
        came = self.expect_answer(Kind.PUBACK if qos == 1 else Kind.PUBREC, packet_id)
        if qos == 2 and came.reason_code < 0x80:
            self.send(acknowledge(Kind.PUBREL, packet_id))
            done = self.expect_answer(Kind.PUBCOMP, packet_id)
            assert done.reason_code == 0, f"[MQTT-4.3.3-11] {done}"
        return came.reason_code

    def take_message(self, patience_s=PATIENCE_S):
        """The next PUBLISH, acknowledged to the end as its QoS asks."""
        came = self.expect(Kind.PUBLISH, patience_s)
        if came.qos == 1:
            self.send(acknowledge(Kind.PUBACK, came.packet_id))
        elif came.qos == 2:
            self.send(acknowledge(Kind.PUBREC, came.packet_id))
            self.expect_answer(Kind.PUBREL, came.packet_id)
            self.send(acknowledge(Kind.PUBCOMP, came.packet_id))
        return came

    def ping(self):
        """PINGREQ, and what came until its PINGRESP: by then the server has handled all we sent before."""
        self.send(PINGREQ)
        came = []
        while (one := self.receive()).kind != Kind.PINGRESP:
            came.append(one)
        return came

    def disconnect(self, **options):
        """DISCONNECT, then waits for the server to close."""
        self.send(disconnect(**options) if self.version == 5 else packet(Kind.DISCONNECT, 0, b""))
        came = self.until_closed()
        assert came == [], f"after our DISCONNECT came {came} [MQTT-3.14.4-1]"
        self.close()


class RawCases:
    """What test cases with raw clients share; mixed into a `BrokerTest`."""

    def raw(self, port, role="client", version=5, **options):
        """A connected client, closed when the test ends; its CONNACK is its attribute `connack`."""
        client = RawClient(port, version)
        self.addCleanup(client.close)
        client.connack = client.connect(self.client_id(role), **options)
        return client

    def keeper(self, port, role="client", clean_start=False, **options):
        """A connected client whose session outlives its connections."""
        props = ((Property.SESSION_EXPIRY_INTERVAL, NEVER), *options.pop("props", ()))
        return self.raw(port, role, clean_start=clean_start, props=props, **options)

    def subscriber(self, *filters, role="subscriber", props=(), **options):
        """A client at the subscribers' node with these subscriptions, which must be granted."""
        client = self.raw(self.here, role, **options)
        codes = client.subscribe(*filters, props=props).codes
        self.assertEqual([code for code in codes if code >= 0x80], [], filters)
        return client

    def publisher(self, role="publisher", **options):
        """A client at the publishers' node."""
        return self.raw(self.there, role, **options)

    def messages_until(self, client, payload):
        """All messages a client gets before the one with this payload, which was published last."""
        came = []
        while (one := client.take_message()).payload != payload:
            came.append(one)
        return came
