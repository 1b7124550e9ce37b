"""The cluster's secret is changed node by node, with the commands of docs/security.md: nobody goes down, no client notices."""

import base64
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

from nodes import BINARY, Node, wait_until
from wire import RawClient, disconnect

SIZE = 3


def fresh_secret():
    return base64.b64encode(os.urandom(32)).decode()


class Publishing(threading.Thread):
    """Publishes numbers at QoS 1, one after the other, until it is told to end."""

    def __init__(self, port):
        super().__init__()
        self.client, self.sent, self.is_closing, self.problem = RawClient(port), 0, False, None
        self.client.connect("publisher")
        self.start()

    def run(self):
        try:
            while not self.is_closing:
                self.client.publish("load", str(self.sent), qos=1)
                self.sent += 1
            self.client.publish("load", "end", qos=1)
            self.client.send(disconnect())
        except Exception as problem:  # noqa: BLE001: told by the thread that joins this one
            self.problem = problem
        finally:
            self.client.close()


class Subscribing(threading.Thread):
    """Keeps what comes until the end, on one connection."""

    def __init__(self, number, port):
        super().__init__()
        self.client, self.came, self.problem = RawClient(port), [], None
        self.client.connect(f"subscriber-{number}")
        self.client.subscribe(("load", 1))
        self.start()

    def run(self):
        try:
            while self.came[-1:] != [b"end"]:
                message = self.client.take_message(120)
                self.came.append(message.payload)
            self.client.send(disconnect())
        except Exception as problem:  # noqa: BLE001: told by the thread that joins this one
            self.problem = problem
        finally:
            self.client.close()


class SecretRotation(unittest.TestCase):
    def setUp(self):
        if os.environ.get("THICKET_CLUSTER_TESTS") == "0":
            self.skipTest("THICKET_CLUSTER_TESTS=0")
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="thicket-secrets-"))
        self.addCleanup(shutil.rmtree, self.home)
        self.nodes = []

    def write(self, name, *secrets):
        path = self.home / name
        path.write_text("".join(f"{secret}\n" for secret in secrets))
        return str(path)

    def start(self, name, *secrets):
        seeds = [node.port for node in self.nodes[:SIZE]]
        node = Node(name, seeds, ("--cluster-secret-file", self.write(name, *secrets), "--workers", "2"))
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        return node

    def keys(self, node):
        return {entry["name"]: entry["key"] for entry in json.loads(node.ask("/v1/nodes")) if entry["reachable"]}

    def all_keys(self):
        """What all nodes say of all nodes: a set of one as soon as they agree."""
        found = [self.keys(node) for node in self.nodes]
        return {key for keys in found for key in keys.values()} if all(len(keys) == SIZE for keys in found) else None

    def reload(self, number):
        node = self.nodes[number]
        before = node.log_from(0).count("read again part=\"cluster secret\"")
        if number == 0:
            command = [BINARY, "ctl", "--api", f"127.0.0.1:{node.http_port}", "reload"]
            subprocess.run(command, check=True, capture_output=True)
        else:
            node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: node.log_from(0).count("read again part=\"cluster secret\"") > before, "the secret to be read")

    def step(self, *secrets):
        for number, node in enumerate(self.nodes):
            self.write(node.name, *secrets)
            self.reload(number)
            wait_until(lambda: self.all_keys() is not None, "all nodes to see each other")

    def test_a_secret_is_changed_while_clients_are_connected(self):
        old, new = fresh_secret(), fresh_secret()
        for number in range(SIZE):
            self.nodes.append(self.start(f"node-{number}", old))
        for node in self.nodes:
            self.assertTrue(node.wait_until_ready(SIZE), node.log_from(0))
        wait_until(lambda: self.all_keys() is not None, "all nodes to see each other")
        (old_key,) = self.all_keys()
        subscribers = [Subscribing(number, node.port) for number, node in enumerate(self.nodes)]
        publisher = Publishing(self.nodes[0].port)
        self.step(old, new)
        self.assertEqual(self.all_keys(), {old_key}, "accepted, and not shown yet")
        self.step(new, old)
        wait_until(lambda: len(self.all_keys() or ()) == 1, "all links to use the new one")
        (new_key,) = self.all_keys()
        self.assertNotEqual(new_key, old_key)
        table = subprocess.run(
            [BINARY, "ctl", "--api", f"127.0.0.1:{self.nodes[1].http_port}", "nodes", "--wide"], capture_output=True, text=True, check=True
        ).stdout
        self.assertEqual(table.count(new_key), SIZE, table)
        self.step(new)
        self.assertEqual(self.all_keys(), {new_key})
        publisher.is_closing = True
        for thread in (publisher, *subscribers):
            thread.join(120)
            self.assertFalse(thread.is_alive())
            self.assertIsNone(thread.problem)
        expected = {str(number).encode() for number in range(publisher.sent)}
        for subscriber in subscribers:
            self.assertEqual(expected - set(subscriber.came), set(), "lost")
        for node in self.nodes:
            self.assertNotIn("node is down", node.log_from(0))
        stranger, friend = self.start("stranger", old), self.start("friend", new)
        wait_until(lambda: friend.sees() == SIZE + 1, "a node with the new secret to join")
        wait_until(lambda: "link refused" in stranger.log_from(0), "a node with the old one to be refused")
        self.assertEqual(stranger.sees(), 1)

    def test_a_file_that_is_no_good_changes_nothing(self):
        self.nodes = [self.start("one", fresh_secret())]
        self.nodes.append(self.start("two", pathlib.Path(self.home, "one").read_text().strip()))
        one, two = self.nodes
        wait_until(lambda: one.sees() == 2 and two.sees() == 2, "two nodes to meet")
        self.write("one", "too short")
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{one.http_port}", "reload"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("in line 1; what is there could be guessed", done.stderr + done.stdout)
        self.assertEqual([one.sees(), two.sees()], [2, 2])
        secret = pathlib.Path(self.home, "two").read_text().strip()
        self.nodes.append(self.start("three", secret))
        wait_until(lambda: self.nodes[2].sees() == 3, "the secret in use to let a node in")


if __name__ == "__main__":
    unittest.main()
