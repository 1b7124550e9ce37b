"""Nodes under test: real processes on ephemeral ports of the loopback, one of them or a cluster of three.

A test case derives from `OneNode` or `ThreeNodes`. Cases written once and run against both are plain mixin classes;
they speak to `self.here` (where subscribers connect), `self.there` (publishers) and `self.elsewhere` (a client that
moved): three ports, which on one node are the same.

The environment: `THICKET_BIN` chooses the binary; `THICKET_CLUSTER_TESTS=0` skips what needs more than one node.
"""

import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Taken out: a node refuses variables that look like settings and are none.
BINARY = os.environ.pop("THICKET_BIN", str(REPOSITORY / "target" / "release" / "thicket"))

# How long a test waits for something that must happen. Generous: reached only when the test is about to fail.
PATIENCE_S = 20.0

START_ATTEMPTS = 3


# Ports of this process alone, FIRST-LAST, where several run side by side; else the kernel chooses.
PORTS = os.environ.pop("THICKET_TEST_PORTS", "0-0").split("-")
NEXT_PORTS = itertools.cycle(range(int(PORTS[0]), int(PORTS[1]) + 1))


def free_port():
    """A port nobody listens on at the moment."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", next(NEXT_PORTS)))
            except OSError:
                continue
            return probe.getsockname()[1]


def wait_until(condition, what, patience_s=PATIENCE_S):
    """Asks `condition` again and again until it is true; for states of which no event tells."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience_s} s in vain: {what}")
        time.sleep(0.02)


class Node:
    """One broker process."""

    # Without a site a node is at that of others while their round trips are below 5 ms, which those of a busy machine exceed: then clients stay
    # where they ask, and not where their topics are.
    # Many tests start a node again while the others are gone: it need not wait for these.
    SITE = {"THICKET_SITE": "here", "THICKET_RESTART_GRACE_S": "0"}

    def __init__(self, name, seeds, arguments=(), environment=None, discover="off", ports=None, expects=1):
        self.name = name
        self.port, self.http_port = ports or (free_port(), free_port())
        self.log = tempfile.TemporaryFile(mode="w+b")
        command = [BINARY, "broker", "--name", name, "--listen", f"127.0.0.1:{self.port}"]
        command += ["--http", f"127.0.0.1:{self.http_port}", "--discover", discover]
        # Many tests look at a node that finds nobody: it is ready alone, unless it is to wait for others.
        if expects:
            command += ["--expect-nodes", str(expects)]
        for port in seeds:
            command += ["--seed", f"127.0.0.1:{port}"]
        # A developer's own settings must not change what is tested.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("THICKET_")}
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env=inherited | self.SITE | (environment or {}),
        )

    def ask(self, path):
        """The body of an answer of the HTTP API, or None while it does not answer with success."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=5) as answer:
                return answer.read()
        except (urllib.error.URLError, OSError):
            return None

    def is_alive(self):
        return self.process.poll() is None

    def wait_until_ready(self, cluster_size):
        """Waits for readiness and for the sight of all other nodes; False if the process ended instead."""

        def ready():
            if not self.is_alive():
                return True
            if self.ask("/v1/health/ready") is None:
                return False
            return cluster_size == 1 or self.sees() >= cluster_size

        wait_until(ready, f"{self.name} to be ready among {cluster_size} nodes")
        return self.is_alive()

    def sees(self):
        """How many nodes this one can reach, itself included."""
        return sum(entry["reachable"] for entry in json.loads(self.ask("/v1/nodes") or b"[]"))

    def memory_bytes(self, field):
        """A line of the process's status, such as `VmRSS`, in bytes."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
        raise KeyError(field)

    def log_from(self, offset):
        self.log.seek(offset)
        return self.log.read().decode(errors="replace")

    def log_size(self):
        return os.fstat(self.log.fileno()).st_size

    def kill(self):
        """The process ends at once and says goodbye to nobody."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Asks the process to end, by its pid, and ends it if it does not."""
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()


class Cluster:
    """The nodes of one test case; started together, all see each other. `environments`: of each node, if they differ."""

    def __init__(self, size, arguments, environments=None):
        for _ in range(START_ATTEMPTS):
            self.nodes = []
            try:
                for number in range(size):
                    seeds = [node.port for node in self.nodes]
                    environment = environments[number] if environments else None
                    self.nodes.append(Node(f"node-{number + 1}", seeds, arguments, environment))
                if all(node.wait_until_ready(size) for node in self.nodes):
                    return
                # Somebody else may have taken a port between our looking for it and the node's listening.
                problem = "a node ended at once"
            except AssertionError as error:
                problem = str(error)
            logs = "".join(f"--- {node.name}\n{node.log_from(0)}" for node in self.nodes)
            self.stop()
            self.close_logs()
        raise RuntimeError(f"no cluster after {START_ATTEMPTS} attempts: {problem}\n{logs}")

    def stop(self):
        for node in self.nodes:
            node.stop()

    def close_logs(self):
        for node in self.nodes:
            node.log.close()

    def is_alive(self):
        return all(node.is_alive() for node in self.nodes)


class BrokerTest(unittest.TestCase):
    """A test against running nodes: checks that none died or panicked, and prints their logs if it fails."""

    size = 1
    arguments = ()
    cluster = None
    _numbers = itertools.count(1)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.size > 1 and os.environ.get("THICKET_CLUSTER_TESTS") == "0":
            raise unittest.SkipTest("THICKET_CLUSTER_TESTS=0")
        cls.start_cluster()

    @classmethod
    def tearDownClass(cls):
        if cls.cluster:
            cls.cluster.stop()
            cls.cluster.close_logs()
        super().tearDownClass()

    @classmethod
    def start_cluster(cls):
        cls.cluster = Cluster(cls.size, cls.arguments)

    def setUp(self):
        super().setUp()
        if not self.cluster.is_alive():
            # A test before this one killed a node and has been blamed; this one shall have a fair chance.
            self.cluster.stop()
            self.cluster.close_logs()
            self.start_cluster()
        self.here, self.there, self.elsewhere = (self.cluster.nodes[i % self.size].port for i in range(3))
        self.unique = f"t{next(self._numbers)}"
        self.expected_to_die = set()
        self.log_offsets = [node.log_size() for node in self.cluster.nodes]

    def logs(self):
        """What the nodes wrote since the test began."""
        pairs = zip(self.cluster.nodes, self.log_offsets, strict=True)
        return "".join(f"--- log of {node.name}\n{node.log_from(offset)}" for node, offset in pairs)

    def tearDown(self):
        dead = {node.name for node in self.cluster.nodes if not node.is_alive()}
        self.assertEqual(dead - self.expected_to_die, set(), "nodes died")
        self.assertNotIn("panicked", self.logs())
        super().tearDown()

    def run(self, result=None):
        def count():
            return len(result.failures) + len(result.errors) if result is not None else 0

        before = count()
        outcome = super().run(result)
        if count() > before and self.cluster and hasattr(self, "log_offsets"):
            print(f"\n{self.id()}\n{self.logs()}", file=sys.stderr)
        return outcome

    def topic(self, rest="topic"):
        """A topic no other test uses."""
        return f"{self.unique}/{rest}"

    def client_id(self, role="client"):
        """A client identifier no other test uses."""
        return f"{self.unique}-{role}"


class OneNode(BrokerTest):
    """All clients at the same node."""


class ThreeNodes(BrokerTest):
    """Subscribers at one node, publishers at another, and a third to move to."""

    size = 3
