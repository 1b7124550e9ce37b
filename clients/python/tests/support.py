"""Real nodes, a control plane that answers what it was told to, and a broker made by hand."""

import asyncio
import json
import pathlib
import ssl
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "tests" / "interop"))

import nodes

import thicket

# Longer than anything takes on a loaded machine; reached only when a test fails.
TIMEOUT_S = 60.0

Session = tuple[str, int, Sequence[str], Sequence[str]]


wait_until = nodes.wait_until


def start_cluster(size: int, arguments: Sequence[str] = ()) -> Any:
    return nodes.Cluster(size, ["--workers", "1", *arguments])


async def drain(node: Any) -> None:
    """Sends all clients of a node to the others."""
    command = ["ctl", "--api", f"127.0.0.1:{node.http_port}", "drain", "--timeout", "20"]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(nodes.BINARY, *command, stdin=quiet, stdout=quiet, stderr=quiet)
    assert await process.wait() == 0, node.log_from(0)


def free_port() -> int:
    return int(nodes.free_port())


def addresses(cluster: Any) -> list[str]:
    return [f"127.0.0.1:{node.port}" for node in cluster.nodes]


def urls(cluster: Any) -> list[str]:
    return [f"mqtt://{address}" for address in addresses(cluster)]


def placement(cluster_addresses: Sequence[str], sessions: Sequence[Session]) -> dict[str, Any]:
    """An answer: of each session its name, the number of its node, what it publishes and what it subscribes to."""
    return {
        "sessions": [
            {
                "node": f"node-{node + 1}",
                "address": cluster_addresses[node],
                "tls": None,
                "ws": None,
                "client_id": name,
                "publish": list(publish),
                "subscribe": list(subscribe),
            }
            for name, node, publish, subscribe in sessions
        ]
    }


def problem(field: str) -> dict[str, Any]:
    """What is answered to a request with a topic or filter that the client may not use."""
    return {"status": 422, "detail": f"{field}: the client may not use it", "field": field}


class Control:
    """A control plane that answers what it was told to."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answer: dict[str, Any] | None = None
        # A request with one of these is refused by its field.
        self.denied: set[str] = set()
        self._came = asyncio.Condition()
        self.requests: list[dict[str, Any]] = []
        # The head of each request.
        self.heads: list[str] = []
        self.url = ""
        self._tls = tls

    async def __aenter__(self) -> "Control":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'http' if self._tls is None else 'https'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def wait_until(self, is_enough: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Waits for requests."""
        async with asyncio.timeout(TIMEOUT_S), self._came:
            await self._came.wait_for(lambda: is_enough(self.requests))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
        request = json.loads(await reader.readexactly(length))
        async with self._came:
            self.requests.append(request)
            self._came.notify_all()
        named = [(f"{key}[{at}]", name) for key in ("publish", "subscribe") for at, name in enumerate(request[key])]
        field = next((field for field, name in named if name in self.denied), None)
        if field is not None:
            status, body = "422 Unprocessable Content", json.dumps(problem(field))
        elif self.answer is None:
            status, body = "400 Bad Request", json.dumps({"title": "refused", "detail": "subscribe: no"})
        else:
            status, body = "200 OK", json.dumps(self.answer)
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()


def self_signed() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS for a server at 127.0.0.1, and for clients that trust it."""
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = f"{folder}/key.pem", f"{folder}/certificate.pem"
        kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
        whose = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run(["openssl", "req", *kind, *whose, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificate, key)
        return server, ssl.create_default_context(cafile=certificate)


class Counting:
    """Reads a client's messages and counts how often each came; numbers are the payloads."""

    def __init__(self, client: thicket.Client) -> None:
        self.seen: Counter[tuple[str, int]] = Counter()
        self.order: dict[str, list[int]] = {}
        self._grown = asyncio.Event()
        self._task = asyncio.create_task(self._read(client))

    async def _read(self, client: thicket.Client) -> None:
        async for message in client:
            number = int(message.payload)
            self.seen[message.topic, number] += 1
            if self.seen[message.topic, number] == 1:
                self.order.setdefault(message.topic, []).append(number)
            self._grown.set()

    async def wait_for(self, count: int) -> None:
        """Until so many different messages have come, and then until nothing comes for a second."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.seen) < count:
                self._grown.clear()
                await self._grown.wait()
        is_quiet = False
        while not is_quiet:
            self._grown.clear()
            try:
                async with asyncio.timeout(1):
                    await self._grown.wait()
            except TimeoutError:
                is_quiet = True

    @property
    def twice(self) -> list[tuple[str, int]]:
        return [message for message, times in self.seen.items() if times > 1]

    @property
    def out_of_order(self) -> list[str]:
        return [topic for topic, numbers in self.order.items() if numbers != sorted(numbers)]


async def publish_all(
    client: thicket.Client, topics: Sequence[str], qos: int, count: int, at: Callable[[int], None] = lambda _: None
) -> None:
    """Publishes 0 to `count` - 1 on each topic; calls `at` before each of the first topic."""

    async def publish(topic: str) -> None:
        for number in range(count):
            if topic == topics[0]:
                at(number)
            await client.publish(topic, str(number), qos=qos)

    await asyncio.gather(*(publish(topic) for topic in topics))


# A broker made by hand: MQTT 5.0 as far as the tests need it.

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = 8, 9, 10, 11, 12, 13, 14
SERVER_REFERENCE, USER_PROPERTY = 0x1C, 0x26


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def properties(*, reference: str | None = None, user: Sequence[tuple[str, str]] = (), others: bytes = b"") -> bytes:
    body = others
    if reference is not None:
        body += bytes([SERVER_REFERENCE]) + text(reference)
    body += b"".join(bytes([USER_PROPERTY]) + text(name) + text(value) for name, value in user)
    return variable(len(body)) + body


def variable(number: int) -> bytes:
    encoded = b""
    while True:
        number, low = divmod(number, 128)
        encoded += bytes([low | (0x80 if number else 0)])
        if not number:
            return encoded


def packet(kind: int, body: bytes, flags: int = 0) -> bytes:
    return bytes([kind << 4 | flags]) + variable(len(body)) + body


def publication(topic: str, payload: bytes, qos: int, identifier: int, *, is_again: bool = False) -> bytes:
    """A PUBLISH of QoS 1 or 2."""
    return packet(PUBLISH, text(topic) + identifier.to_bytes(2, "big") + b"\0" + payload, is_again << 3 | qos << 1)


class Connection:
    """A client at the broker made by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.connect = b""

    async def read(self) -> tuple[int, int, bytes]:
        """Kind, flags and body of the next packet."""
        first = (await self._reader.readexactly(1))[0]
        length = shift = 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return first >> 4, first & 15, await self._reader.readexactly(length)

    async def expect(self, kind: int) -> bytes:
        """The next packet; it must be of this kind. PINGREQs are answered, unless one is expected."""
        while True:
            found, _, body = await self.read()
            if found == PINGREQ != kind:
                await self.write(packet(PINGRESP, b""))
                continue
            assert found == kind, f"expected packet {kind}, got {found}: {body!r}"
            return body

    def says(self, name: str, value: str) -> bool:
        """Whether the CONNECT has this user property."""
        return bytes([USER_PROPERTY]) + text(name) + text(value) in self.connect

    async def write(self, *packets: bytes) -> None:
        self._writer.write(b"".join(packets))
        await self._writer.drain()

    async def accept(self, *, session_present: bool = False, user: Sequence[tuple[str, str]] = (), others: bytes = b"") -> None:
        await self.write(packet(CONNACK, bytes([session_present, 0]) + properties(user=user, others=others)))

    def close(self) -> None:
        self._writer.close()


class HandBroker:
    """Takes connections, and gives each to a test after its CONNECT was read."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.connections: asyncio.Queue[Connection] = asyncio.Queue()
        self.address = ""
        self._tls = tls
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "HandBroker":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        connection = Connection(reader, writer)
        try:
            connection.connect = await connection.expect(CONNECT)
        except asyncio.IncompleteReadError:
            # Somebody looked whether anybody listens.
            writer.close()
            return
        await self.connections.put(connection)

    async def next(self) -> Connection:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.connections.get()
