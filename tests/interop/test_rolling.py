"""A rolling restart: each node in turn is drained, stopped and started again, and the clients notice no more than that they move."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from load import KEPT, Publisher, Subscriber, check_books
from nodes import BINARY, PATIENCE_S, Node, free_port, wait_until
from wire import Closed, Kind, RawClient, Will, disconnect

USE_ANOTHER_SERVER = 0x9C
# What `ctl drain` says of a node that has backups, if another node can have them.
BACKUPS = (
    r"^it holds \d+ backups? of sessions of other nodes: new ones are created when it has stopped; wait for that before you stop the next node "
    r"\(`thicket_under_replicated_sessions` is 0\)$"
)
SIZE = 3


class Listening(RawClient):
    """Says with what DISCONNECT the node ended the connection."""

    goodbye = None

    def receive(self, *arguments):
        came = super().receive(*arguments)
        if came.kind == Kind.DISCONNECT:
            self.goodbye = came.reason_code
            raise Closed("by the node")
        return came


class Roaming:
    """Connects to another node when the one it was at ends the connection; to be mixed into a client of `load`."""

    def roam(self, ports):
        """Runs until the client itself is through; `ports` says where nodes listen now."""
        self.ports, self.goodbyes = ports, []
        # Where the test fails, nodes are stopped, and this would look for one for ever.
        self.thread = threading.Thread(target=self.guarded_run, name=self.client_id, daemon=True)
        self.thread.start()

    def guarded_run(self):
        try:
            for turn in itertools.count():
                if not self.connect_somewhere(turn):
                    continue
                try:
                    self.run()
                    return self.client.send(disconnect())
                except (Closed, OSError):
                    self.hear_goodbye()
                finally:
                    self.client.close()
        except Exception as problem:  # noqa: BLE001: told by the thread that joins this one
            self.problem = problem

    def hear_goodbye(self):
        """What the node said last may still be unread if we met the end of the connection while we wrote."""
        with contextlib.suppress(Closed, OSError):
            while True:
                self.client.receive()
        self.goodbyes.append(self.client.goodbye)

    def connect_somewhere(self, turn):
        """Whether the node in turn takes the client; one that is drained, or not there, does not."""
        ports = self.ports()
        will = Will(f"will/{self.client_id}", qos=1)
        try:
            self.client = Listening(ports[turn % len(ports)])
            came = self.client.try_connect(self.client_id, clean_start=False, props=KEPT, will=will)
        except (Closed, OSError):
            time.sleep(0.02)
            return False
        if came.reason_code == USE_ANOTHER_SERVER:
            self.client.close()
            return False
        assert came.reason_code == 0, f"{self.client_id}: {came}"
        assert came.session_present == self.has_session, f"{self.client_id}: {came}"
        self.has_session = True
        return True

    def join(self):
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), f"{self.client_id} does not come to its end"
        if self.problem:
            raise self.problem


class RoamingPublisher(Roaming, Publisher):
    def send_next(self):
        # Some hundred a second: this is about what is under way, not about load.
        time.sleep(0.003)
        super().send_next()


class RoamingSubscriber(Roaming, Subscriber):
    pass


class RollingRestart(unittest.TestCase):
    def setUp(self):
        if os.environ.get("THICKET_CLUSTER_TESTS") == "0":
            self.skipTest("THICKET_CLUSTER_TESTS=0")
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="thicket-rolling-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.nodes, self.logs = [], ""
        self.addCleanup(self.leave)
        for number in range(SIZE):
            self.nodes.append(self.start(number, self.nodes))
        for node in self.nodes:
            self.assertTrue(node.wait_until_ready(SIZE), node.log_from(0))

    def start(self, number, seeds):
        data = self.home / f"node-{number}"
        return Node(f"node-{number}", [node.port for node in seeds], ("--data", str(data), "--workers", "2"))

    def leave(self):
        for node in self.nodes:
            node.kill()
            self.logs += f"--- {node.name}\n{node.log_from(0)}"
            node.log.close()
        if self._outcome.result and (self._outcome.result.failures or self._outcome.result.errors):
            print(self.logs[-20000:], file=sys.stderr)

    def ports(self):
        return [node.port for node in self.nodes]

    def under_replicated(self, node):
        """Sessions of a node that no other node has; None while it does not say."""
        page = (node.ask("/metrics") or b"").decode()
        found = re.search(r"^thicket_under_replicated_sessions (\d+)", page, re.MULTILINE)
        return int(found[1]) if found else None

    def wait_until_covered(self):
        wait_until(
            lambda: all(node.sees() == SIZE and self.under_replicated(node) == 0 for node in self.nodes),
            "every session to have its copy",
        )

    def restart(self, number):
        """The commands of docs/operating.md."""
        node = self.nodes[number]
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{node.http_port}", "drain", "--timeout", "20"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        drained, *backups = done.stdout.splitlines()
        self.assertEqual(drained, "drained: the node can be stopped", done.stderr)
        # How many sessions have their backups here is chance; which words say so is not.
        for line in backups:
            self.assertRegex(line, BACKUPS)
        self.assertLessEqual(len(backups), 1, done.stdout)
        node.stop()
        self.assertEqual(node.process.returncode, 0)
        self.logs += f"--- {node.name}\n{node.log_from(0)}"
        self.assertNotIn("panicked", node.log_from(0))
        node.log.close()
        others = [other for other in self.nodes if other is not node]
        self.nodes[number] = self.start(number, others)
        self.assertTrue(self.nodes[number].wait_until_ready(SIZE), "it starts again")
        self.wait_until_covered()

    def test_nothing_is_lost_nothing_comes_twice_and_no_will_goes_out(self):
        publishers = [RoamingPublisher(f"publisher-{qos}", f"load/{qos}", qos) for qos in (1, 2)]
        subscribers = [RoamingSubscriber(f"subscriber-{number}") for number in range(3)]
        watcher = RoamingSubscriber("watcher")
        for client, name in [*((it, "load/#") for it in subscribers), (watcher, "will/#")]:
            client.connect(self.ports()[0])
            client.client.subscribe((name, 2))
            client.client.subscribe((f"end/{client.client_id}", 1))
            client.client.disconnect()
        clients = [*publishers, *subscribers, watcher]
        for turn, client in enumerate(clients):
            client.roam(lambda turn=turn: self.ports()[turn % SIZE :] + self.ports()[: turn % SIZE])
        self.wait_until_covered()
        for number in range(SIZE):
            self.restart(number)
        for publisher in publishers:
            publisher.is_closing = True
            publisher.join()
        for subscriber in [*subscribers, watcher]:
            subscriber.last = b"end"
            with RawClient(self.ports()[0]) as last:
                last.connect("last")
                last.publish(f"end/{subscriber.client_id}", "end", qos=1)
            subscriber.join()
        self.assertEqual([came for came in watcher.came if came[0].startswith("will/")], [])
        goodbyes = [goodbye for client in clients for goodbye in client.goodbyes]
        self.assertGreaterEqual(len(goodbyes), SIZE, "clients were sent away")
        self.assertEqual(set(goodbyes), {USE_ANOTHER_SERVER})
        check_books(self, publishers, subscribers)


class RestartByCommand(unittest.TestCase):
    """`thicket ctl rolling-restart` on five nodes that want a majority, keep nothing and have users of the HTTP API."""

    size = 5

    def setUp(self):
        if os.environ.get("THICKET_CLUSTER_TESTS") == "0":
            self.skipTest("THICKET_CLUSTER_TESTS=0")
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="thicket-restart-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        users = self.home / "http-users"
        made = subprocess.run(
            [BINARY, "passwd", "--role", "admin", "root"], input=b"secret\n", capture_output=True, check=True
        )
        users.write_bytes(made.stdout)
        self.arguments = ("--partition", "majority-without-data", "--workers", "1", "--http-users", str(users))
        self.ports = [(free_port(), free_port()) for _ in range(self.size)]
        self.logs, self.nodes = [], [self.start(number) for number in range(self.size)]
        self.addCleanup(self.leave)

    def start(self, number):
        seeds = [port for port, _ in self.ports if port != self.ports[number][0]]
        return Node(f"node-{number}", seeds, self.arguments, ports=self.ports[number])

    def leave(self):
        for node in self.nodes:
            node.kill()
            node.log.close()

    def ctl(self, *arguments):
        command = [BINARY, "ctl", "--api", f"http://127.0.0.1:{self.ports[0][1]}", "--api-user", "root:secret", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def restart_those_asked_for(self):
        """What `--exec` asks for: a file named after a node makes it stop and start."""
        while not self.is_over:
            for number, node in enumerate(self.nodes):
                asked = self.home / f"{node.name}.restart"
                if asked.exists():
                    node.stop()
                    self.logs.append(node.log_from(0))
                    node.log.close()
                    self.nodes[number] = self.start(number)
                    asked.unlink()
            time.sleep(0.02)

    def test_a_majority_without_data_serves_all_the_while(self):
        wait_until(lambda: f"{self.size} of {self.size}" in self.ctl("nodes").stdout, "all nodes to be there")
        plan = self.ctl("rolling-restart", "--dry-run", "--exec", "restart {name} {host}")
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertEqual(len(plan.stdout.splitlines()), self.size)
        self.assertTrue(plan.stdout.splitlines()[-1].endswith("restart node-0 127.0.0.1"), "the one that is asked is last")
        self.is_over = False
        watcher = threading.Thread(target=self.restart_those_asked_for)
        watcher.start()
        asked = f"touch {self.home}/{{name}}.restart; while test -e {self.home}/{{name}}.restart; do sleep 0.05; done"
        try:
            done = self.ctl("rolling-restart", "--timeout", "60", "--exec", asked)
        finally:
            self.is_over = True
            watcher.join()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("every session has its backups"), self.size, done.stdout)
        self.assertEqual(len(self.logs), self.size, "each was restarted once")
        nodes = self.ctl("nodes").stdout
        self.assertIn(f"serving: {self.size} of {self.size} members", nodes)
        for log in [*self.logs, *(node.log_from(0) for node in self.nodes)]:
            self.assertNotIn("no majority", log)
            self.assertNotIn("panicked", log)


class RestartThatFails(unittest.TestCase):
    """What `thicket ctl rolling-restart` says when it waits, fails or is interrupted."""

    def setUp(self):
        if os.environ.get("THICKET_CLUSTER_TESTS") == "0":
            self.skipTest("THICKET_CLUSTER_TESTS=0")
        self.nodes = []
        for number in range(2):
            node = Node(f"node-{number}", [it.port for it in self.nodes], ("--workers", "1"))
            self.addCleanup(node.log.close)
            self.addCleanup(node.stop)
            self.nodes.append(node)
        for node in self.nodes:
            self.assertTrue(node.wait_until_ready(2), node.log_from(0))

    def begin(self, *arguments):
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{self.nodes[0].http_port}", "rolling-restart", *arguments]
        begun = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(begun.kill)
        return begun

    def undo(self):
        """What it says that undoes a drain of the node that comes first."""
        undo = f"thicket ctl --api 127.0.0.1:{self.nodes[1].http_port} drain --undo"
        return f"node-1 is drained and refuses clients: restart it, or let it accept clients again with `{undo}`"

    def is_drained(self):
        return self.nodes[1].ask("/v1/health/ready") is None

    def test_no_command_is_refused_before_anything_is_drained(self):
        for nothing in ("", " "):
            _, said = (done := self.begin("--exec", nothing)).communicate()
            self.assertEqual(done.returncode, 2, said)
            self.assertIn("expected a command", said)
        self.assertFalse(self.is_drained())

    def test_it_says_what_it_waits_for_and_which_node_is_drained(self):
        _, said = (done := self.begin("--timeout", "1", "--exec", "true")).communicate()
        self.assertEqual(done.returncode, 1)
        for part in (self.undo(), "waited 1 seconds: node-1 has not been restarted"):
            self.assertIn(part, said)
        self.assertTrue(self.is_drained())
        again = self.begin("--exec", "true")
        self.assertRegex(again.stdout.readline(), "^waiting: node-1: .*this node is drained")
        again.send_signal(signal.SIGINT)
        _, said = again.communicate()
        self.assertEqual((again.returncode, said), (130, "thicket: interrupted: this command has drained no node\n"))

    def test_it_says_when_it_is_interrupted_which_node_is_drained(self):
        begun = self.begin("--json", "--exec", "sleep 5")
        wait_until(self.is_drained, "the drain")
        while "sleep 5" not in begun.stderr.readline():
            pass
        begun.send_signal(signal.SIGTERM)
        self.assertEqual(begun.wait(PATIENCE_S), 143)
        self.assertIn(f"thicket: interrupted: {self.undo()}", begun.stderr.readline())
        begun.communicate()

    def test_with_json_it_prints_one_object(self):
        plan, _ = self.begin("--json", "--dry-run", "--exec", "restart {name}").communicate()
        self.assertEqual([it["command"] for it in json.loads(plan)["nodes"]], ["restart node-1", "restart node-0"])


if __name__ == "__main__":
    unittest.main()
