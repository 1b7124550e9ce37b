"""A fleet that comes back at once: clients with passwords that give up and try again, and clients that were in before an outage.

The clients run in one process over `selectors`. What is asserted are counts of hashes; times are printed, for whoever asks:

    THICKET_FLEET=10000 .venv/bin/python -m unittest --verbose test_fleet    # also how long a fleet of this size takes
"""

import http.server
import json
import os
import pathlib
import re
import selectors
import socket
import threading
import time
import unittest

from nodes import OneNode, ThreeNodes, wait_until
from test_hostile_logins import Stranger
from test_rights import BAD_USER_NAME_OR_PASSWORD, Files, passwd
from wire import RawCases, connect, disconnect, publish

# More than two threads hash within the patience, on a machine of any speed in use.
CLIENTS = 240
PATIENCE_S = 0.5
# A client that waits longer tries no more: then the test has failed.
DEADLINE_S = 300
FLEET = int(os.environ.get("THICKET_FLEET", "0"))


class Fleet:
    """Clients that connect at once, wait for CONNACK for a while, leave, and try again."""

    def __init__(self, port, names, password="secret", patience_s=PATIENCE_S):
        self.port, self.names, self.password, self.patience_s = port, names, password, patience_s
        self.selector = selectors.DefaultSelector()
        self.waiting, self.inside, self.later = {}, {}, list(names)
        self.tries = self.refused = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    def leave(self):
        """All connections break, without a DISCONNECT."""
        for client, _ in self.waiting.values():
            self.selector.unregister(client)
            client.close()
        for client in self.inside.values():
            client.close()
        self.waiting, self.inside, self.later = {}, {}, list(self.names)

    def try_once(self, name):
        client = socket.create_connection(("127.0.0.1", self.port))
        client.sendall(connect(name, user=name, password=self.password))
        client.setblocking(False)
        self.selector.register(client, selectors.EVENT_READ, name)
        self.waiting[name] = client, time.monotonic() + self.patience_s
        self.tries += 1

    def give_up(self, name):
        client, _ = self.waiting.pop(name)
        self.selector.unregister(client)
        client.close()
        self.later.append(name)

    def come_in(self):
        """Until all are in; the seconds that it took."""
        began = time.monotonic()
        while len(self.inside) < len(self.names):
            now = time.monotonic()
            if now > began + DEADLINE_S:
                raise AssertionError(f"{len(self.inside)} of {len(self.names)} are in after {self.tries} tries")
            for name in [name for name, (_, deadline) in self.waiting.items() if deadline < now]:
                self.give_up(name)
            later, self.later = self.later, []
            for name in later:
                self.try_once(name)
            for key, _ in self.selector.select(0.02):
                self.read(key.data)
        return time.monotonic() - began

    def read(self, name):
        client, _ = self.waiting[name]
        try:
            answer = client.recv(64)
        except ConnectionResetError:
            answer = b""
        if len(answer) < 4 or answer[3] != 0:
            self.refused += 1
            return self.give_up(name)
        self.selector.unregister(client)
        self.inside[name], _ = self.waiting.pop(name)


class SilentHosts(RawCases, ThreeNodes):
    """Connections whose other host may vanish without a word: the kernel asks whether it is still there."""

    KEEP_ALIVE = 2

    def timers(self):
        """The timer of each established connection, by its own port and the other one, as the kernel tells them."""
        fields = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        port = lambda address: int(address.rpartition(":")[2], 16)  # noqa: E731
        return {(port(it[1]), port(it[2])): int(it[5].partition(":")[0], 16) for it in fields if it[3] == "01"}

    def test_a_client_without_keep_alive_and_links_are_asked_by_tcp(self):
        client = self.raw(self.here, keep_alive=0)
        own = client.socket.getsockname()[1]
        ports = {node.port for node in self.cluster.nodes}
        ends = {pair for pair in self.timers() if ports & set(pair)}
        # Both ends of three links, and the node's end of the client's connection.
        ends.remove((own, self.here))
        self.assertGreaterEqual(len(ends), 7)
        for pair in ends:
            # While something is sent there is another timer.
            wait_until(lambda pair=pair: self.timers().get(pair) == self.KEEP_ALIVE, f"the timer of {pair}")


def left_open(port):
    """How many connections the other ends have closed, and a node at this port has not."""
    fields = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(it[3] == "08" and it[1].endswith(f":{port:04X}") for it in fields)


class Gate(http.server.ThreadingHTTPServer):
    """A hook that answers nobody until it is told to."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), GateHandler)
        self.asked, self.opened = [], threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/auth"


class GateHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(question["client_id"])
        self.server.opened.wait()
        answer = b'{"result":"allow"}'
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Says nothing."""


class HookThatIsSlow(RawCases, OneNode):
    """More clients than the hook is asked about at a time."""

    AT_A_TIME = 4

    @classmethod
    def setUpClass(cls):
        cls.hook = Gate()
        threading.Thread(target=cls.hook.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.hook.server_close)
        cls.addClassCleanup(cls.hook.shutdown)
        cls.arguments = ("--auth-hook", cls.hook.url, "--auth-hook-timeout-ms", "20000")
        super().setUpClass()

    def test_the_hook_is_not_asked_about_clients_that_have_left(self):
        waiting = [Stranger(self.here) for _ in range(self.AT_A_TIME + 20)]
        for number, client in enumerate(waiting):
            client.send(connect(f"left-{number}", user="ada", password="secret"))
        wait_until(lambda: len(self.hook.asked) == self.AT_A_TIME, "the hook to be busy")
        for client in waiting:
            client.close()
        wait_until(lambda: not left_open(self.here), "the node to close its ends")
        with Stranger(self.here) as last:
            last.send(connect("stays", user="ada", password="secret"))
            self.hook.opened.set()
            self.assertEqual(last.receive().reason_code, 0)
        self.assertEqual(self.hook.asked[self.AT_A_TIME :], ["stays"])


class Passwords(Files, RawCases, OneNode):
    """A node with a file of users that have an Argon2 hash each."""

    @classmethod
    def write_files(cls):
        cls.hash = passwd("ada", "secret").strip().partition(":")[2]
        cls.lines = [f"{kind}-{number}:{cls.hash}\n" for kind in ("lamp", "oven", "door") for number in range(CLIENTS)]
        cls.lines += [f"fleet-{number}:{cls.hash}\n" for number in range(FLEET)]
        cls.lines += [f"ada:{cls.hash}\n", f"sam:{cls.hash}\n"]
        cls.arguments = ("--users", cls.write("users", "".join(cls.lines)))

    def hashed(self):
        """How many passwords the node has hashed for clients."""
        metrics = self.cluster.nodes[0].ask("/metrics").decode()
        return int(re.search(r"(?m)^thicket_authentications_slow_total(?:\{.*\})? (\d+)", metrics)[1])

    def show(self, what, fleet, seconds, hashes):
        count = len(fleet.names)
        print(f"\n{what}: {count} clients in after {seconds:.1f} s, {fleet.tries} tries, {fleet.refused} refused, {hashes} hashes")

    def test_clients_that_give_up_and_try_again_are_all_let_in_and_no_hash_is_wasted(self):
        with Fleet(self.here, [f"lamp-{number}" for number in range(CLIENTS)]) as fleet:
            before = self.hashed()
            seconds = fleet.come_in()
            hashes = self.hashed() - before
            self.show("patience of half a second", fleet, seconds, hashes)
            self.assertGreater(fleet.tries, CLIENTS, "nobody has given up: there are too few clients")
            self.assertLess(hashes, CLIENTS * 1.3)

    def test_of_clients_that_have_left_nothing_is_hashed(self):
        before = self.hashed()
        strangers = [Stranger(self.here) for _ in range(CLIENTS)]
        for number, stranger in enumerate(strangers):
            stranger.send(connect(f"guest-{number}", user="ada", password=f"guess {number}"))
        for stranger in strangers:
            stranger.close()
        wait_until(lambda: not left_open(self.here), "the node to close its ends")
        # Of one address the newest is next, so of those that had left none would have its turn before this one is answered.
        with Stranger(self.here) as last:
            self.assertEqual(last.try_connect("last", user="sam", password="guess").reason_code, BAD_USER_NAME_OR_PASSWORD)
        after = self.hashed()
        self.assertLess(after - before, CLIENTS / 2)
        for _ in range(3):
            with Stranger(self.here) as last:
                last.try_connect("last", user="sam", password="guess")
        self.assertEqual(self.hashed(), after + 3)

    def test_what_a_client_sends_before_it_leaves_without_waiting_is_published(self):
        """CONNECT, PUBLISH and the end in one go: as of a sensor that sleeps again at once."""
        subscriber = self.subscriber(("sensors/#", 0), user="ada", password="secret")
        for number, end in enumerate((b"", disconnect())):
            with Stranger(self.here) as sensor:
                sensor.send(connect(f"sensor-{number}", user="sam", password="secret"), publish("sensors/1", b"%d" % number), end)
            self.assertEqual(subscriber.take_message().payload, b"%d" % number)

    def test_a_fleet_that_was_in_before_is_let_in_again_without_a_hash(self):
        with Fleet(self.here, [f"oven-{number}" for number in range(CLIENTS)], patience_s=DEADLINE_S) as fleet:
            first = fleet.come_in()
            before = self.hashed()
            self.show("for the first time", fleet, first, CLIENTS)
            fleet.leave()
            seconds = fleet.come_in()
            self.show("again", fleet, seconds, self.hashed() - before)
            self.assertEqual(self.hashed(), before)

    def test_a_wrong_password_is_hashed_however_often_the_right_one_was_used(self):
        for _ in range(2):
            self.raw(self.here, "door", user="door-0", password="secret")
        before = self.hashed()
        for _ in range(3):
            with Stranger(self.here) as stranger:
                self.assertEqual(
                    stranger.try_connect("guest", user="door-0", password="guess").reason_code, BAD_USER_NAME_OR_PASSWORD
                )
        self.assertEqual(self.hashed(), before + 3)

    def test_a_changed_password_and_a_removed_user_are_not_remembered(self):
        for number in (1, 2, 3):
            self.raw(self.here, f"door-{number}", user=f"door-{number}", password="secret")
        changed = {"door-1": passwd("door-1", "other"), "door-2": ""}
        lines = [changed.get(line.partition(":")[0], line) for line in self.lines]
        self.write("users", "".join(lines))
        self.addCleanup(self.reload)
        self.addCleanup(self.write, "users", "".join(self.lines))
        self.reload()
        before = self.hashed()
        for name, password, code in (
            ("door-1", "secret", BAD_USER_NAME_OR_PASSWORD),
            ("door-2", "secret", BAD_USER_NAME_OR_PASSWORD),
            ("door-1", "other", 0),
        ):
            with Stranger(self.here) as client:
                self.assertEqual(client.try_connect("client", user=name, password=password).reason_code, code, name)
        self.assertEqual(self.hashed(), before + 3)
        with Stranger(self.here) as client:
            client.connect("client", user="door-3", password="secret")
        self.assertEqual(self.hashed(), before + 3, "the others are remembered")

    @unittest.skipUnless(FLEET, "a measurement, with THICKET_FLEET=10000")
    def test_a_large_fleet(self):
        with Fleet(self.here, [f"fleet-{number}" for number in range(FLEET)], patience_s=10) as fleet:
            before = self.hashed()
            self.show("a large fleet for the first time", fleet, fleet.come_in(), self.hashed() - before)
            fleet.leave()
            wait_until(lambda: b"thicket_clients 0\n" in self.cluster.nodes[0].ask("/metrics"), "all to be gone")
            fleet.tries, before = 0, self.hashed()
            self.show("a large fleet after an outage", fleet, fleet.come_in(), self.hashed() - before)


if __name__ == "__main__":
    unittest.main()
