"""Strangers who take all there is of places and memory: they take it from themselves, and clients at other addresses are served."""

import contextlib
import re
import threading
import time

from nodes import OneNode, wait_until
from wire import Closed, RawCases, RawClient, connect, publish

# The strangers are at the address of all other tests.
ELSEWHERE = "127.0.0.9"
MEGABYTE = 1024 * 1024


class Flood:
    """Connections of a stranger that are replaced as soon as they are closed. Use as a context manager."""

    def __init__(self, port, count, said=b""):
        self.port, self.count, self.said = port, count, said
        self.connections, self.is_over = [], False
        self.thread = threading.Thread(target=self.keep)

    def keep(self):
        while not self.is_over:
            for client in list(self.connections):
                client.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    try:
                        is_open = client.socket.recv(1) != b""
                    except ConnectionError:
                        is_open = False
                    if not is_open:
                        self.connections.remove(client)
                        client.close()
            while len(self.connections) < self.count and not self.is_over:
                try:
                    client = RawClient(self.port)
                    self.connections.append(client)
                    client.send(self.said)
                except OSError:
                    break
            time.sleep(0.05)

    def __enter__(self):
        self.thread.start()
        wait_until(lambda: len(self.connections) >= self.count * 9 // 10, "the stranger to take what there is")
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()
        for client in self.connections:
            client.close()


def honest(port, client_id, **options):
    """Whether a client at another address is served."""
    with contextlib.suppress(Closed, OSError), RawClient(port, source=ELSEWHERE) as client:
        return client.try_connect(client_id, **options).reason_code == 0
    return False


class Places(RawCases, OneNode):
    """A node with few places."""

    PLACES = 60
    arguments = ("--connections", str(PLACES))

    def test_connections_that_say_nothing_yield_their_places(self):
        with Flood(self.here, self.PLACES):
            # They are not displaced before they have had time to send a CONNECT.
            time.sleep(1)
            served = []
            for number in range(10):
                served.append(honest(self.here, self.client_id(f"honest-{number}")))
                time.sleep(0.2)
            self.assertGreaterEqual(served.count(True), 9, served)


class HalfOpen(RawCases, OneNode):
    """A node that holds little of what connections send before their CONNECT is whole."""

    arguments = ("--half-open-bytes", "2MiB", "--workers", "1")

    def test_unfinished_connects_of_one_address_displace_each_other(self):
        whole = connect("x" * 100, user="u" * 60_000, password=b"p" * 60_000)
        with Flood(self.here, 300, whole[:8_000]):
            time.sleep(1)
            # These are whole in two parts, and wait between them.
            served = 0
            for number in range(10):
                packet = connect(self.client_id(f"honest-{number}"), user="u", password=b"p" * 60_000)
                with contextlib.suppress(Closed, OSError), RawClient(self.here, source=ELSEWHERE) as client:
                    client.send(packet[:50_000])
                    time.sleep(0.1)
                    client.send(packet[50_000:])
                    client.receive()
                    served += 1
            self.assertEqual(served, 10)


class Buffers(RawCases, OneNode):
    """A node with little memory."""

    arguments = ("--memory-bytes", "100MB", "--workers", "1")

    def test_packets_that_are_never_whole_do_not_keep_memory(self):
        kept = RawClient(self.here, source=ELSEWHERE)
        kept.connect(self.client_id("kept"))
        clients = []
        for number in range(300):
            with contextlib.suppress(Closed, OSError):
                client = RawClient(self.here)
                self.addCleanup(client.close)
                client.connect(self.client_id(str(number)))
                clients.append(client)
        unfinished = publish("t", b"x" * (MEGABYTE - 1000), qos=1, packet_id=1)[:-1]
        for client in clients:
            with contextlib.suppress(OSError):
                client.send(unfinished)
        node = self.cluster.nodes[0]
        wait_until(lambda: "memory limit reached" in node.log_from(0), "memory to be short")
        wait_until(lambda: honest(self.here, self.client_id("new")), "somebody else to be let in")
        wait_until(lambda: self.is_ready() and not self.is_short(), "memory to suffice")
        # Who holds little stays.
        kept.ping()
        kept.close()

    def is_short(self):
        metrics = self.cluster.nodes[0].ask("/metrics").decode()
        return re.search(r"thicket_memory_is_short (\d)", metrics)[1] == "1"

    def is_ready(self):
        return self.cluster.nodes[0].ask("/v1/health/ready") is not None
