"""Peers that mean harm, in what lies under MQTT: TLS, WebSocket, PROXY headers, and where other nodes come in.

As in `test_hostile`: after each batch a message goes round on every transport, and the node has not grown beyond a bound.
"""

import contextlib
import os
import random
import socket
import ssl
import struct

from certificates import Authority
from nodes import PATIENCE_S, OneNode, free_port, wait_until
from test_hostile import GROWTH_BYTES, mutated
from test_websocket import BINARY_FRAME, CLOSE, CONTINUATION, PING, TEXT, WebSocketClient
from wire import Closed, Kind, RawCases, RawClient, connect

REQUEST = (
    "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
).encode()
PROXY_2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack("!H", 12) + bytes(8) + struct.pack("!HH", 1, 2)


class TlsClient(RawClient):
    """A raw client behind TLS."""

    def __init__(self, port, context, version=5):
        super().__init__(port, version)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


def frame(opcode, data, claim=None, flags=0x80, masked=True):
    """A frame whose length may lie."""
    length = len(data) if claim is None else claim
    form = (length, b"") if length < 126 else (126, struct.pack("!H", length)) if length < 65536 else (127, struct.pack("!Q", length))
    head = bytes([flags | opcode, (0x80 if masked else 0) | form[0]]) + form[1]
    return head + (bytes(4) if masked else b"") + data


def changed(data, rng):
    """Bytes with a few others in their place, cut or doubled."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data))
        what = rng.randrange(3)
        if what == 0:
            data[at] = rng.randrange(256)
        elif what == 1:
            del data[at : at + rng.randrange(1, 9)]
        else:
            data[at:at] = data[at : at + rng.randrange(1, 40)]
        data = data or bytearray(b"\0")
    return bytes(data)


class HostileLayers(RawCases, OneNode):
    """One node with a listener of each kind, its certificates made for this test."""

    @classmethod
    def setUpClass(cls):
        cls.authority = Authority()
        cls.addClassCleanup(cls.authority.close)
        certificate, key = cls.authority.issue("server")
        cls.context = ssl.create_default_context(cafile=str(cls.authority.certificate))
        cls.tls, cls.ws, cls.wss, cls.proxied, cls.links = (free_port() for _ in range(5))
        configuration = cls.authority.path / "thicket.toml"
        configuration.write_text(f"""
            tls_certificate = "{certificate}"
            tls_key = "{key}"
            link_tls_certificate = "{certificate}"
            link_tls_key = "{key}"
            link_tls_ca = "{cls.authority.certificate}"
            connect_timeout_s = 2
            [[listener]]
            address = "tls://127.0.0.1:{cls.tls}"
            [[listener]]
            address = "ws://127.0.0.1:{cls.ws}"
            [[listener]]
            address = "wss://127.0.0.1:{cls.wss}"
            [[listener]]
            address = "link://127.0.0.1:{cls.links}"
            [[listener]]
            address = "127.0.0.1:{cls.proxied}"
            proxy_protocol = true
        """)
        cls.arguments = ("--config", str(configuration))
        super().setUpClass()
        # What a first handshake makes the process keep is no growth.
        for _ in range(50):
            TlsClient(cls.tls, cls.context).close()

    def setUp(self):
        super().setUp()
        self.bystander = self.raw(self.here, "bystander", keep_alive=0)
        self.bystander.subscribe((self.topic(), 1))
        self.memory = self.cluster.nodes[0].memory_bytes("VmRSS")

    def tearDown(self):
        for role, make in (("tls", lambda: TlsClient(self.tls, self.context)), ("ws", lambda: WebSocketClient(self.ws))):
            with make() as witness:
                witness.connect(self.client_id(f"witness-{role}"))
                witness.publish(self.topic(), role, qos=1)
                self.assertEqual(self.bystander.take_message().payload, role.encode())
        node = self.cluster.nodes[0]
        wait_until(lambda: node.memory_bytes("VmRSS") - self.memory < GROWTH_BYTES, "memory to be given back")
        super().tearDown()

    def provoke(self, port, *pieces):
        """Sends bytes and reads until the node ends the connection."""
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as stream, contextlib.suppress(OSError):
            for piece in pieces:
                stream.sendall(piece)
            stream.shutdown(socket.SHUT_WR)
            while stream.recv(65536):
                pass

    def hello(self):
        """The first bytes of a good handshake."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            self.context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
        return outgoing.read()

    def test_mutated_packets_in_frames_end_their_own_connections_only(self):
        """Whole ones, and ones cut over frames and held together by nothing."""
        rng = random.Random(1)
        for number in range(150):
            with WebSocketClient(self.ws) as client, contextlib.suppress(OSError, Closed, AssertionError):
                if number % 3:
                    client.connect(self.client_id("framed"))
                data = b"".join(mutated(rng) for _ in range(2))
                cut = rng.randrange(len(data))
                client.socket.send_frame(BINARY_FRAME, data[:cut], rng.random() < 0.5)
                client.socket.send_frame(rng.choice((BINARY_FRAME, CONTINUATION)), data[cut:])
                client.socket.inner.shutdown(socket.SHUT_WR)
                while client.socket.inner.recv(65536):
                    pass

    def test_frames_that_lie_are_not_believed(self):
        """Giant lengths, no mask, reserved bits, pieces of nothing, and control frames by the thousand."""
        lies = [
            frame(BINARY_FRAME, b"x", claim=2**63 - 1),
            frame(BINARY_FRAME, b"x", claim=2**63),
            frame(BINARY_FRAME, connect("x"), claim=2**24 - 1),
            frame(BINARY_FRAME, connect("x"), masked=False),
            frame(BINARY_FRAME, connect("x"), flags=0xF0),
            frame(TEXT, connect("x")),
            frame(CONTINUATION, connect("x")),
            frame(3, b"x"),
            frame(PING, bytes(200)),
            frame(PING, b"x", flags=0),
            frame(CLOSE, b"\x03"),
            frame(BINARY_FRAME, b"", flags=0) * 5000,
            frame(BINARY_FRAME, b"", flags=0) + frame(CONTINUATION, b"", flags=0) * 20000,
            frame(PING, bytes(125)) * 20000,
        ]
        for lie in lies:
            for _ in range(3):
                self.provoke(self.ws, REQUEST, lie)
        held = [socket.create_connection(("127.0.0.1", self.ws), PATIENCE_S) for _ in range(100)]
        for stream in held:
            self.addCleanup(stream.close)
            stream.sendall(REQUEST + frame(BINARY_FRAME, b"\x10", claim=2**24 - 1))
        self.assertEqual(self.bystander.ping(), [])

    def test_a_client_that_pings_and_reads_nothing_costs_a_bounded_answer(self):
        """Pongs are owed, but not without end."""
        with WebSocketClient(self.ws) as client:
            client.connect(self.client_id("pinging"))
            client.socket.inner.settimeout(1)
            with contextlib.suppress(OSError):
                for _ in range(400):
                    client.socket.inner.sendall(frame(PING, bytes(125)) * 1000)
            self.assertEqual(self.bystander.ping(), [])

    def test_mutated_requests_and_headers_end_their_own_connections_only(self):
        """Opening requests of WebSocket, headers of PROXY, and a CONNECT behind both."""
        rng = random.Random(2)
        for _ in range(150):
            self.provoke(self.ws, changed(REQUEST, rng), frame(BINARY_FRAME, connect("x")))
            self.provoke(self.proxied, changed(rng.choice((PROXY_2, b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n")), rng), connect("x"))
        self.provoke(self.ws, b"GET /mqtt HTTP/1.1\r\n", *[b"X: " + bytes([97]) * 900 + b"\r\n"] * 20)

    def test_mutated_handshakes_end_their_own_connections_only(self):
        """Of clients and of nodes: TLS that is none, torn, of giant records, and with noise in the place of the next step."""
        rng = random.Random(3)
        hello = self.hello()
        for number in range(150):
            port = (self.tls, self.wss, self.links)[number % 3]
            self.provoke(port, changed(hello, rng))
            self.provoke(port, hello, b"\x17\x03\x03" + struct.pack("!H", rng.choice((0, 1, 300, 16640, 65535))) + os.urandom(300))
        self.provoke(self.links, connect("x"))

    def test_packets_behind_a_good_handshake_are_looked_at_as_everywhere(self):
        """Mutated packets and random bytes, sealed well."""
        rng = random.Random(4)
        for number in range(60):
            with TlsClient(self.tls, self.context) as client, contextlib.suppress(OSError, Closed):
                if number % 2:
                    client.connect(self.client_id("sealed"))
                client.send(mutated(rng), rng.randbytes(rng.choice((1, 50, 2000))))
                # Half a packet would be waited for: the end of the stream ends that.
                client.socket.shutdown(socket.SHUT_WR)
                while client.socket.recv(65536):
                    pass

    def test_handshakes_that_stall_at_any_step_hold_nobody_up(self):
        """Silent, half a ClientHello, a whole one, a whole handshake and no CONNECT, half a CONNECT: all are let go."""
        hello = self.hello()
        stalled = []
        for port in (self.tls, self.wss, self.links):
            for piece in (b"", hello[:20], hello):
                for _ in range(15):
                    stream = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
                    stream.sendall(piece)
                    stalled.append(stream)
        for piece in (b"", connect("x")[:5]):
            for _ in range(15):
                client = TlsClient(self.tls, self.context)
                client.send(piece) if piece else None
                stalled.append(client.socket)
        for stream in stalled:
            self.addCleanup(stream.close)
        for number in range(5):
            with TlsClient(self.tls, self.context) as quick:
                quick.connect(self.client_id(f"quick-{number}"))
        for stream in stalled:
            stream.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while stream.recv(65536):
                    pass

    def test_a_byte_at_a_time_in_every_layer_is_half_a_connect(self):
        """Slow-loris in frames and records: each byte of the CONNECT has one of its own, and the last never comes."""
        whole = connect("x" * 30)
        slow = [WebSocketClient(self.ws) for _ in range(40)] + [TlsClient(self.tls, self.context) for _ in range(40)]
        for client in slow:
            self.addCleanup(client.close)
        for at in range(len(whole) - 1):
            for client in slow:
                with contextlib.suppress(OSError):
                    client.socket.sendall(whole[at : at + 1])
        self.assertEqual(self.bystander.ping(), [])
        for client in slow:
            with contextlib.suppress(OSError, Closed):
                self.assertEqual(client.socket.recv(1), b"", "half a CONNECT was answered")

    def test_a_flood_of_handshakes_is_served_and_leaves_nothing(self):
        """Three hundred that come and go, most of them in the middle, and a client that wants in meanwhile."""
        hello = self.hello()
        for batch in range(6):
            streams = [socket.create_connection(("127.0.0.1", (self.tls, self.links)[batch % 2]), PATIENCE_S) for _ in range(50)]
            for stream in streams:
                stream.sendall(hello)
            with TlsClient(self.tls, self.context) as client:
                self.assertEqual(client.connect(self.client_id(f"flood-{batch}")).kind, Kind.CONNACK)
            for stream in streams:
                stream.close()
