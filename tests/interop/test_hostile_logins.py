"""Strangers who knock: wrong passwords by the thousand, and refusals that would fill the log.

Strangers come from other addresses of the loopback than the clients, which connect from 127.0.0.1.
"""

import base64
import contextlib
import hashlib
import pathlib
import re

from nodes import OneNode
from test_rights import Files, passwd
from wire import RawCases, RawClient, connect

STRANGER = "127.0.0.66"
BAD_USER_NAME_OR_PASSWORD = 0x86
# Two hashes at a time take 38 MB; the rest is what the connections of a flood may cost.
GROWTH_BYTES = 80_000_000


class Stranger(RawClient):
    """A client from an address of its own."""

    def __init__(self, port, address=STRANGER, version=5):
        super().__init__(port, version, source=address)


class Logins(Files, RawCases, OneNode):
    """A node with a file of users."""

    @classmethod
    def write_files(cls):
        salt = b"twelve bytes"
        of_mosquitto = base64.b64encode(hashlib.pbkdf2_hmac("sha512", b"secret", salt, 101, 64)).decode()
        lines = passwd("ada", "secret") + passwd("sam", "secret", "--scram")
        lines += f"mo:$7$101${base64.b64encode(salt).decode()}${of_mosquitto}\n"
        cls.arguments = ("--users", cls.write("users", lines))

    def test_passwords_one_after_the_other_and_at_once_take_the_memory_of_two(self):
        node = self.cluster.nodes[0]
        before = node.memory_bytes("VmHWM")
        for number in range(20):
            self.assertEqual(self.raw(self.here, f"good-{number}", user="ada", password="secret").connack.reason_code, 0)
        flood = [Stranger(self.here) for _ in range(60)]
        for number, stranger in enumerate(flood):
            self.addCleanup(stranger.close)
            stranger.send(connect(f"guest-{number}", user="ada", password=f"guess {number}"))
        for stranger in flood:
            self.assertEqual(stranger.receive().reason_code, BAD_USER_NAME_OR_PASSWORD)
        self.assertLess(node.memory_bytes("VmHWM") - before, GROWTH_BYTES)

    def test_a_refusal_takes_as_much_work_for_every_name_and_every_kind_of_hash(self):
        """The work is what the time of an answer tells; it is counted, not timed."""
        pid = self.cluster.nodes[0].process.pid

        def ticks():
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        def work(name, password="guess", code=BAD_USER_NAME_OR_PASSWORD):
            before = ticks()
            for _ in range(10):
                with RawClient(self.here) as client:
                    self.assertEqual(client.try_connect("guest", user=name, password=password).reason_code, code)
            return ticks() - before

        known = work("ada")
        for name in ("sam", "mo", "nobody"):
            refused = work(name)
            self.assertGreater(refused * 3, known, f"{known} ticks for ada, {refused} for {name}")
        self.assertLess(work("mo", "secret", 0) * 3, known, "a password that is right costs its own hash only")

    def test_wrong_passwords_by_the_thousand_keep_nobody_else_out(self):
        flood = [Stranger(self.here) for _ in range(1500)]
        for number, stranger in enumerate(flood):
            self.addCleanup(stranger.close)
            stranger.send(connect(f"stranger-{number}", user="ada", password=f"guess {number}"))
        for number in range(3):
            # Its turn comes after at most one of the strangers' for each of its own.
            self.assertEqual(self.raw(self.here, f"known-{number}", user="ada", password="secret").connack.reason_code, 0)

    def test_refusals_do_not_fill_the_log(self):
        node = self.cluster.nodes[0]
        before = node.log_size()
        for _ in range(200):
            with Stranger(self.here, "127.0.0.77") as stranger:
                stranger.send(b"GET / HTTP/1.1\r\n\r\n")
                with contextlib.suppress(OSError):
                    stranger.socket.recv(64)
        lines = [line for line in node.log_from(before).splitlines() if "127.0.0.77" in line]
        self.assertGreater(len(lines), 0)
        self.assertLess(len(lines), 20)
        # Somebody else's are written nevertheless.
        with Stranger(self.here, "127.0.0.78") as stranger:
            stranger.send(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(OSError):
                stranger.socket.recv(64)
        self.assertIn("127.0.0.78", node.log_from(before))

    def test_what_was_not_written_is_counted(self):
        node = self.cluster.nodes[0]
        before = node.log_size()
        metric = lambda: int(re.search(rb"^thicket_log_lines_suppressed_total (\d+)", node.ask("/metrics"), re.M)[1])
        counted = metric()
        for _ in range(50):
            with Stranger(self.here, "127.0.0.79") as stranger:
                stranger.send(b"\x00\x00")
                with contextlib.suppress(OSError):
                    stranger.socket.recv(64)
        written = sum("127.0.0.79" in line for line in node.log_from(before).splitlines())
        self.assertEqual(written + metric() - counted, 50)
