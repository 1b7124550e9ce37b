"""Strangers at the HTTP API: passwords by the hundred, heads that never end, all descriptors, pages of elsewhere.

What must hold meanwhile: the node's memory stays where it was, MQTT clients are served, and who asks from another address is answered.
"""

import base64
import contextlib
import os
import pathlib
import socket
import subprocess

from nodes import BINARY, PATIENCE_S, BrokerTest, OneNode, free_port, wait_until
from test_rights import Files, passwd
from wire import RawCases

# Two hashes at a time take 38 MB; the rest is what 600 connections and their requests may cost.
GROWTH_BYTES = 100_000_000
# The addresses strangers come from; the operator asks from 127.0.0.1.
STRANGER = "127.0.0.66"
PAGE = "https://page.example"


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


class HttpCases(Files, RawCases, OneNode):
    """One node whose API has users."""

    @classmethod
    def write_files(cls):
        made = subprocess.run(
            [BINARY, "passwd", "robot", "--role", "admin", "--token"], capture_output=True, text=True, check=True
        )
        cls.token = made.stderr.strip()
        users = passwd("ann", "secret", "--role", "viewer") + passwd("root", "secret", "--role", "admin") + made.stdout
        cls.probe_port = free_port()
        cls.arguments = ("--http-users", cls.write("http", users), "--connect-timeout-s", "2")
        cls.arguments += ("--probe", f"127.0.0.1:{cls.probe_port}")

    def setUp(self):
        super().setUp()
        self.node = self.cluster.nodes[0]

    def connect(self, source="127.0.0.1", port=None):
        """A socket to the API, or to another port."""
        stream = socket.create_connection(("127.0.0.1", port or self.node.http_port), PATIENCE_S, (source, 0))
        self.addCleanup(stream.close)
        return stream

    def send(self, stream, path="/v1/nodes", authorization=None, method="GET", more=(), host=None):
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{self.node.http_port}'}", "Content-Length: 0"]
        if authorization:
            lines.append(f"Authorization: {authorization}")
        stream.sendall("\r\n".join([*lines, *more, "", ""]).encode())

    def status_of(self, stream):
        """The status of an answer; None if the connection ended without one."""
        with contextlib.suppress(OSError):
            head = stream.recv(65536)
            return int(head.split(b" ")[1]) if head else None
        return None

    def status(self, *arguments, source="127.0.0.1", **options):
        stream = self.connect(source)
        self.send(stream, *arguments, **options)
        return self.status_of(stream)


class Strangers(HttpCases):
    """Those who have no password."""

    def test_a_request_with_two_hosts_is_refused(self):
        own = basic("ann:secret")
        self.assertEqual(self.status("/v1/nodes", own), 200)
        for more in ("Host: page.example", f"Host: 127.0.0.1:{self.node.http_port}"):
            self.assertEqual(self.status("/v1/nodes", own, more=[more]), 400)

    def test_six_hundred_wrong_passwords_at_once_take_no_memory_and_nobodys_turn(self):
        before = self.node.memory_bytes("VmHWM")
        streams = []
        for number in range(600):
            stream = self.connect(STRANGER)
            with contextlib.suppress(OSError):
                self.send(stream, authorization=basic(f"ann:guess {number}"))
            streams.append(stream)
        self.assertEqual(self.status("/v1/nodes", basic("ann:secret")), 200)
        came = {self.status_of(stream) for stream in streams}
        self.assertLessEqual(came, {401, 429, None}, "somebody was let in, or the node failed")
        # Each of them may have been displaced by those after it; whoever comes now is heard.
        wait_until(lambda: self.status("/v1/nodes", basic("ann:guess"), source=STRANGER) == 401, "a wrong password to be refused")
        self.assertLess(self.node.memory_bytes("VmHWM") - before, GROWTH_BYTES)

    def test_a_name_that_is_not_there_takes_as_much_work_as_a_wrong_password(self):
        """The work is what the time of an answer tells; it is counted, not timed."""

        def ticks():
            fields = pathlib.Path(f"/proc/{self.node.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        def work(name):
            before = ticks()
            for number in range(10):
                self.assertEqual(self.status("/v1/nodes", basic(f"{name}:guess {number}")), 401)
            return ticks() - before

        known, unknown = work("ann"), work("nobody")
        self.assertGreater(unknown * 3, known, f"{known} ticks for a name that is there, {unknown} for one that is not")

    def test_heads_that_never_end_hold_nobody_up_and_end(self):
        slow = [self.connect(STRANGER) for _ in range(300)]
        head = b"GET /v1/nodes HTTP/1.1\r\nX-Slow: " + b"x" * 200
        for at in range(10):
            for stream in slow:
                with contextlib.suppress(OSError):
                    stream.sendall(head[at : at + 1])
        self.assertEqual(self.status("/v1/nodes", basic("ann:secret")), 200)
        self.assertEqual(self.raw(self.here, "beside").ping(), [])
        for stream in slow:
            self.assertIn(self.status_of(stream), (None, 408), "half a request was answered")

    def test_connections_that_say_nothing_end(self):
        silent = [self.connect(STRANGER) for _ in range(20)]
        for stream in silent:
            self.assertIsNone(self.status_of(stream))

    def test_bodies_that_never_end_hold_no_seat(self):
        """Each of them is refused at once, and then neither sends the rest nor goes."""
        for port, path, seats, refusal in (
            (self.node.http_port, "/v1/publish", 64, 401),
            (self.probe_port, "/ready", 16, 405),
        ):
            with self.subTest(path):
                head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx"
                refused = 0
                for _ in range(seats):
                    stream = self.connect(STRANGER, port)
                    stream.sendall(head.encode())
                    refused += self.status_of(stream) == refusal
                self.assertEqual(refused, seats)
                for _ in range(5):
                    stream = self.connect(port=port)
                    self.send(stream, "/v1/health/ready" if port != self.probe_port else "/ready")
                    self.assertEqual(self.status_of(stream), 200)

    def test_the_api_leaves_the_descriptors_to_the_clients(self):
        descriptors = f"/proc/{self.node.process.pid}/fd"
        before = len(os.listdir(descriptors))
        held = [self.connect(f"127.0.{number % 50}.7") for number in range(500)]
        # What was accepted after them has been answered: so have they been accepted, or turned away.
        self.assertEqual(self.status("/v1/health/live"), 200)
        self.assertLess(len(os.listdir(descriptors)) - before, 100)
        self.assertEqual(self.raw(self.here, "beside").ping(), [])
        del held

    def test_a_connection_serves_one_request(self):
        """What follows it is not looked at, so that nobody keeps a place."""
        stream = self.connect()
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.send(stream, "/v1/health/live")
        answers = b""
        with contextlib.suppress(OSError):
            while data := stream.recv(65536):
                answers += data
        self.assertEqual(answers.count(b"HTTP/1.1 200"), 1)


class Pages(HttpCases):
    """A page in the browser of an operator, who has given it the password."""

    def test_a_page_of_elsewhere_changes_nothing(self):
        for path in ("/v1/reload", "/v1/export", "/v1/import", "/v1/drain", "/v1/kick"):
            for authorization in (basic("root:secret"), f"Bearer {self.token}"):
                code = self.status(path, authorization, "POST", (f"Origin: {PAGE}",))
                self.assertEqual(code, 403, f"{path} {authorization}")
        self.assertEqual(self.status("/v1/reload", basic("root:secret"), "POST"), 200)
        # What a browser says of its own accord where it knows it.
        crossed = self.status("/v1/reload", basic("root:secret"), "POST", ("Sec-Fetch-Site: cross-site",))
        self.assertEqual(crossed, 403)

    def test_a_name_that_nobody_gave_this_host_is_not_answered_to(self):
        """Otherwise a page could let its own name lead to this address, and read."""
        for host, expected in (
            ("rebound.example", 403),
            ("rebound.example:18830", 403),
            ("localhost", 200),
            ("127.0.0.1:1", 200),
            ("192.0.2.7:18830", 200),
            (socket.gethostname(), 200),
        ):
            self.assertEqual(self.status("/v1/nodes", basic("ann:secret"), host=host), expected, host)
        self.assertEqual(self.status("/v1/health/live", host="balancer.example"), 200)


class OwnNames(HttpCases):
    """A node that is reached by names of its own."""

    @classmethod
    def write_files(cls):
        super().write_files()
        cls.arguments += ("--http-hosts", "Monitor.example,broker.example")

    def test_names_that_are_configured_are_answered_to(self):
        for host in ("monitor.example", "broker.example:443"):
            self.assertEqual(self.status("/v1/nodes", basic("ann:secret"), host=host), 200, host)
        self.assertEqual(self.status("/v1/nodes", basic("ann:secret"), host="other.example"), 403)


class Surroundings(RawCases, BrokerTest):
    """What a node finds where it is started."""

    def test_a_node_whose_log_nobody_reads_stops_when_it_is_told_to(self):
        command = [BINARY, "broker", "--listen", "127.0.0.1:0", "--http", "off", "--discover", "off"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        while "node started" not in (line := process.stderr.readline()):
            self.assertNotEqual(line, "")
        process.stderr.close()
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 0)

    def test_more_connections_than_descriptors_are_not_promised(self):
        log = "cannot have so many connections"
        command = ["sh", "-c", 'ulimit -n 200; exec "$0" "$@"', BINARY, "broker", "--listen", "127.0.0.1:0"]
        command += ["--http", "127.0.0.1:0", "--discover", "off", "--connections", "5000"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.addCleanup(process.stderr.close)
        lines = []
        while "node started" not in "".join(lines[-1:]):
            lines.append(process.stderr.readline())
            self.assertNotEqual(lines[-1], "", lines)
        self.assertIn(log, "".join(lines))


del HttpCases
