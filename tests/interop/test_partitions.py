"""`partition = "majority"`: the smaller side refuses and serves again; `thicket ctl forget`; one identity in two processes."""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from nodes import BINARY, BrokerTest, Node, wait_until
from wire import Property, RawCases, RawClient

SERVER_UNAVAILABLE = 0x88
QUOTA_EXCEEDED = 0x97


def ctl(node, *arguments):
    command = [BINARY, "ctl", "--api", f"127.0.0.1:{node.http_port}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def answer(node, path):
    """Status and body, whatever the status."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}{path}") as found:
            return found.status, found.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def serves(node):
    membership = node.ask("/v1/membership")
    return membership is not None and json.loads(membership)["serves"]


class SmallerSide(RawCases, BrokerTest):
    """Two of three nodes hang, as machines do, and go on."""

    size = 3
    arguments = ("--partition", "majority-without-data", "--reason-strings")

    def go_on(self, others):
        for node in others:
            if node.is_alive():
                node.process.send_signal(signal.SIGCONT)

    def test_it_refuses_and_serves_again_when_the_others_are_back(self):
        left, *others = self.cluster.nodes
        self.addCleanup(self.go_on, others)
        subscriber = self.subscriber((self.topic(), 1))
        here = self.keeper(self.here, "publisher")
        self.assertEqual(here.publish(self.topic(), "before", qos=1), 0)
        self.assertEqual(subscriber.take_message().payload, b"before")
        for node in others:
            node.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: not serves(left), "the smaller side to notice")
        here.publish(self.topic(), "best effort")
        self.assertEqual(subscriber.take_message().payload, b"best effort")
        self.assertEqual(here.publish(self.topic(), "refused", qos=1), QUOTA_EXCEEDED)
        words = "1 of 3 members are reachable, `thicket ctl forget NODE` removes one that is gone for good"
        with RawClient(self.here) as late:
            refused = late.try_connect("late")
            self.assertEqual(refused.reason_code, SERVER_UNAVAILABLE)
            self.assertIn(words, refused.value(Property.REASON_STRING))
        with RawClient(self.here, 4) as older:
            self.assertEqual(older.try_connect("older").reason_code, 3)
        status, body = answer(left, "/v1/health/ready")
        self.assertEqual(status, 503)
        self.assertIn(words, json.loads(body)["error"])
        shown = ctl(left, "nodes").stdout
        self.assertIn("minority: 1 of 3 members, 2 are needed to serve; `thicket ctl forget NODE` removes", shown)
        self.assertIn("unreachable for ", shown)
        self.assertIn("thicket_is_minority 1", left.ask("/metrics").decode())
        self.go_on(others)
        wait_until(lambda: serves(left) and left.sees() == 3, "service to resume")
        self.assertEqual(here.publish(self.topic(), "after", qos=1), 0)
        self.assertEqual(subscriber.take_message().payload, b"after")
        self.assertIn("serving: 3 of 3 members", ctl(left, "nodes").stdout)


class WithoutDirectories(unittest.TestCase):
    """Nodes that store nothing, or lose what they stored: each start has another identity."""

    def start(self, name, seeds=(), ports=None, *arguments):
        arguments = arguments or ("--partition", "majority-without-data")
        node = Node(name, [seed.port for seed in seeds], arguments, ports=ports)
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        return node

    def test_a_node_that_is_killed_again_and_again_takes_no_majority_away(self):
        nodes = [self.start("node-1")]
        for number in (2, 3):
            nodes.append(self.start(f"node-{number}", nodes))
        self.assertTrue(all(node.wait_until_ready(3) for node in nodes))
        *others, last = nodes
        for _ in range(3):
            last.kill()
            wait_until(lambda: all(node.sees() == 2 for node in others), "the others to notice")
            for node in others:
                wait_until(lambda node=node: serves(node), "those that are left to serve")
                with RawClient(node.port) as client:
                    self.assertEqual(client.try_connect("client").reason_code, 0)
            last = self.start("node-3", others, (last.port, last.http_port))
            self.assertTrue(all(node.wait_until_ready(3) for node in (*others, last)))
        for node in (*others, last):
            wait_until(lambda node=node: "serving: 3 of 3 members" in ctl(node, "nodes").stdout, "three members")
        self.assertIn("replaced_by", others[0].log_from(0))

    def test_a_majority_of_nodes_that_store_nothing_is_refused_unless_it_is_meant(self):
        for check in ((), ("--check",)):
            command = [BINARY, "broker", "--listen", "127.0.0.1:0", "--partition", "majority", *check]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("majority-without-data", done.stderr)
        done = subprocess.run(
            [BINARY, "broker", "--listen", "127.0.0.1:0", "--partition", "majority-without-data", "--check"],
            capture_output=True, text=True, timeout=60, check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)


class WithDirectories(unittest.TestCase):
    """Nodes that are started one by one, each with its data directory."""

    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="thicket-partitions-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)

    def start(self, name, seeds=(), data=None, *arguments):
        directory = str(self.home / (data or name))
        node = Node(name, [seed.port for seed in seeds], ("--data", directory, *arguments))
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        return node

    def test_the_one_that_is_left_serves_when_the_other_is_forgotten(self):
        """Members are known after a start; a node that is up is not forgotten."""
        majority = ("--partition", "majority")
        north = self.start("north", (), None, *majority)
        self.assertTrue(north.wait_until_ready(1))
        south = self.start("south", [north], None, *majority)
        self.assertTrue(south.wait_until_ready(2) and north.wait_until_ready(2))
        refused = ctl(north, "forget", "south")
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn('node "south" is up: stop it first', refused.stderr)
        unknown = ctl(north, "forget", "east")
        self.assertIn('no member of the cluster has the name or the identity "east"', unknown.stderr)
        south.kill()
        wait_until(lambda: not serves(north), "the other to be missed")
        north.kill()
        again = self.start("north", (), None, *majority)
        wait_until(lambda: again.ask("/v1/membership") and not serves(again), "it to know that it is not alone")
        with RawClient(again.port) as client:
            self.assertEqual(client.try_connect("client").reason_code, SERVER_UNAVAILABLE)
        forgotten = ctl(again, "forget", "south")
        self.assertEqual(forgotten.returncode, 0, forgotten.stderr)
        self.assertRegex(forgotten.stdout, r"^south \([0-9a-f]{16}\) does not belong to the cluster any more\n$")
        wait_until(lambda: serves(again), "it to serve alone")
        with RawClient(again.port) as client:
            self.assertEqual(client.try_connect("client").reason_code, 0)
        self.assertNotIn("south", ctl(again, "nodes").stdout)

    def copy_of(self, node, name):
        """The data directory of a node that runs, copied."""
        shutil.copytree(self.home / node, self.home / name)
        (self.home / name / "lock").unlink()

    def check_ends(self, copy, original):
        wait_until(lambda: not copy.is_alive(), "the copy to end")
        self.assertNotEqual(copy.process.returncode, 0)
        words = copy.log_from(0)
        self.assertIn(f"is in use by the node at 127.0.0.1:{original.port}", words)
        self.assertNotIn("panicked", words)
        self.assertTrue(original.is_alive())

    def test_a_copy_of_a_node_that_runs_ends_and_says_whose_copy_it_is(self):
        """It finds the node itself, or one that knows it; the node goes on, its clients stay."""
        north = self.start("north")
        self.assertTrue(north.wait_until_ready(1))
        south = self.start("south", [north])
        self.assertTrue(south.wait_until_ready(2) and north.wait_until_ready(2))
        with RawClient(north.port) as client:
            client.connect("stays")
            client.subscribe(("a", 1))
            for number, seeds in enumerate(([north], [south])):
                self.copy_of("north", f"copy-{number}")
                copy = self.start("north", seeds, f"copy-{number}")
                self.check_ends(copy, north)
            client.publish("a", "still here", qos=1)
            self.assertEqual(client.take_message().payload, b"still here")
        self.assertEqual((north.sees(), south.sees()), (2, 2))


if __name__ == "__main__":
    unittest.main()
