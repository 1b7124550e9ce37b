"""MQTT in WebSocket frames (5.0, 6), made by hand: handshakes and frames that libraries would not let us say."""

import base64
import contextlib
import hashlib
import os
import socket
import struct
import subprocess
import unittest

from nodes import BINARY, PATIENCE_S, OneNode, free_port
from wire import PINGREQ, Closed, Kind, RawCases, RawClient, connect, publish, subscribe

CONTINUATION, TEXT, BINARY_FRAME, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class FramedSocket:
    """Speaks WebSocket on a socket; what is sent is masked, as a client must. Looks like a socket to `RawClient`."""

    def __init__(self, port, protocols="mqtt", path="/mqtt", method="GET"):
        self.inner = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.buffer = b""
        self.pongs = []
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
        lines += [f"Sec-WebSocket-Protocol: {protocols}"] if protocols else []
        self.inner.sendall("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head and (data := self.inner.recv(4096)):
            head += data
        head, _, self.buffer = head.partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in rest)}
        self.accept = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()

    def send_frame(self, opcode, data, is_last=True):
        mask = os.urandom(4)
        length = len(data)
        if length < 126:
            size = bytes([0x80 | length])
        else:
            size = b"\xfe" + struct.pack("!H", length) if length < 65536 else b"\xff" + struct.pack("!Q", length)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
        self.inner.sendall(bytes([is_last << 7 | opcode]) + size + mask + masked)

    def sendall(self, data):
        self.send_frame(BINARY_FRAME, data)

    def exactly(self, count):
        while len(self.buffer) < count:
            data = self.inner.recv(65536)
            if not data:
                raise ConnectionResetError("in the middle of a frame" if self.buffer else "closed")
            self.buffer += data
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def recv(self, _):
        """The content of the next binary frame; nothing at the end of the connection."""
        while True:
            first, second = self.exactly(2)
            assert not second & 0x80, "a server masks nothing"
            length = second & 0x7F
            if length > 125:
                length = int.from_bytes(self.exactly(2 if length == 126 else 8), "big")
            data = self.exactly(length)
            opcode = first & 15
            if opcode == CLOSE:
                return b""
            if opcode == PONG:
                self.pongs.append(data)
                continue
            assert opcode == BINARY_FRAME, f"opcode {opcode} [MQTT-6.0.0-1]"
            return data

    def settimeout(self, seconds):
        self.inner.settimeout(seconds)

    def close(self):
        self.inner.close()


class WebSocketClient(RawClient):
    """A raw client on a listener for WebSocket."""

    def __init__(self, port, version=5, **options):
        super().__init__(port, version)
        self.socket.close()
        self.socket = FramedSocket(port, **options)


class WebSocket(RawCases, OneNode):
    """A node with a listener for TCP and one for WebSocket."""

    @classmethod
    def setUpClass(cls):
        told = subprocess.run([BINARY, "broker", "--help"], capture_output=True, text=True, check=True).stdout
        if "ws://" not in told:
            raise unittest.SkipTest("this binary has no listener for WebSocket")
        cls.port = free_port()
        cls.arguments = ("--listen", f"ws://127.0.0.1:{cls.port}")
        super().setUpClass()

    def web(self, role="web", version=5, **options):
        client = WebSocketClient(self.port, version)
        self.addCleanup(client.close)
        client.connect(self.client_id(role), **options)
        return client

    def test_the_subprotocol_is_chosen_and_said(self):
        """[MQTT-6.0.0-4]: alone and among others; the handshake is that of RFC 6455."""
        for protocols in ("mqtt", "chat, mqtt", "mqtt, mqttv3.1"):
            web = FramedSocket(self.port, protocols)
            self.addCleanup(web.close)
            self.assertEqual((web.status, web.headers.get("sec-websocket-protocol")), (101, "mqtt"))
            self.assertEqual(web.headers.get("sec-websocket-accept"), web.accept)

    def test_a_client_that_does_not_offer_mqtt_is_not_served(self):
        """[MQTT-6.0.0-3]: a client's breach: the handshake fails."""
        for protocols in (None, "chat", "mqttx"):
            web = FramedSocket(self.port, protocols)
            self.addCleanup(web.close)
            self.assertTrue(400 <= web.status < 500, web.status)
        self.assertEqual(self.web().ping(), [])

    def test_packets_and_frames_begin_and_end_where_they_like(self):
        """[MQTT-6.0.0-2]: a byte a frame, several packets a frame, a packet over fragments of a message."""
        stream = subscribe(1, (self.topic(), 1)) + publish(self.topic(), "x", 1, 2) + PINGREQ
        kinds = {Kind.CONNACK, Kind.SUBACK, Kind.PUBLISH, Kind.PUBACK, Kind.PINGRESP}
        for name in ("bytes", "one frame", "fragments"):
            with self.subTest(name):
                client = WebSocketClient(self.port)
                self.addCleanup(client.close)
                data = connect(self.client_id(name)) + stream
                if name == "bytes":
                    for byte in data:
                        client.socket.send_frame(BINARY_FRAME, bytes([byte]))
                elif name == "one frame":
                    client.socket.send_frame(BINARY_FRAME, data)
                else:
                    third = len(data) // 3
                    client.socket.send_frame(BINARY_FRAME, data[:third], is_last=False)
                    client.socket.send_frame(PING, b"between")
                    client.socket.send_frame(CONTINUATION, data[third : 2 * third], is_last=False)
                    client.socket.send_frame(CONTINUATION, data[2 * third :])
                self.assertEqual({client.receive().kind for _ in range(5)}, kinds)
        self.assertEqual(client.socket.pongs, [b"between"])

    def test_a_frame_of_another_kind_ends_the_connection(self):
        """[MQTT-6.0.0-1]: text, in the middle of a session or at its start; others are served on."""
        for name in ("first", "later"):
            with self.subTest(name):
                client = WebSocketClient(self.port)
                self.addCleanup(client.close)
                if name == "later":
                    client.connect(self.client_id(name))
                client.socket.send_frame(TEXT, connect(self.client_id("text")))
                with contextlib.suppress(Closed):
                    while True:
                        self.assertIn(client.receive().kind, (Kind.DISCONNECT,))
        self.assertEqual(self.web().ping(), [])

    def test_messages_pass_between_web_and_stream(self):
        """[MQTT-4.2-1]: in both versions, large ones as well."""
        payload = bytes(number % 251 for number in range(100_000))
        for version in (4, 5):
            web = self.web(f"w{version}", version)
            web.subscribe((self.topic(f"to-web-{version}"), 2))
            plain = self.subscriber((self.topic(f"to-plain-{version}"), 2), role=f"p{version}")
            web.publish(self.topic(f"to-plain-{version}"), payload, qos=2)
            self.assertEqual(plain.take_message().payload, payload)
            plain.publish(self.topic(f"to-web-{version}"), payload, qos=2)
            self.assertEqual(web.take_message().payload, payload)
