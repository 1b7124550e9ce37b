"""The smaller side of a cluster with `partition = "majority"`: refuses, serves again, and `thicket ctl forget`."""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from nodes import BINARY, BrokerTest, Cluster, Node, wait_until
from wire import Kind, RawCases, RawClient

SERVER_UNAVAILABLE = 0x88
QUOTA_EXCEEDED = 0x97


def ctl(node, *arguments):
    command = [BINARY, "ctl", "--api", f"127.0.0.1:{node.http_port}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def serves(node):
    membership = node.ask("/v1/membership")
    return membership is not None and json.loads(membership)["serves"]


class SmallerSide(RawCases, BrokerTest):
    """Two of three nodes are stopped like a machine that hangs, then go on."""

    size = 3
    arguments = ("--partition", "majority")

    def setUp(self):
        super().setUp()
        self.left, *self.others = self.cluster.nodes
        self.addCleanup(self.go_on)

    def hang(self):
        for node in self.others:
            node.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: not serves(self.left), "the smaller side to notice")

    def go_on(self):
        for node in self.others:
            if node.is_alive():
                node.process.send_signal(signal.SIGCONT)

    def test_it_refuses_and_serves_again_when_the_others_are_back(self):
        subscriber = self.subscriber((self.topic(), 1))
        publisher = self.publisher(role="here")
        here = self.keeper(self.left.port, "publisher")
        publisher.publish(self.topic(), "before", qos=1)
        self.assertEqual(subscriber.take_message().payload, b"before")
        self.hang()
        here.publish(self.topic(), "best effort", qos=0)
        self.assertEqual(subscriber.take_message().payload, b"best effort")
        answer = here.send_publish(self.topic(), "refused", qos=1)
        self.assertEqual(answer.reason_code, QUOTA_EXCEEDED)
        with RawClient(self.left.port) as late:
            self.assertEqual(late.try_connect("late").reason_code, SERVER_UNAVAILABLE)
        self.assertIsNone(self.left.ask("/v1/health/ready"))
        shown = ctl(self.left, "nodes").stdout
        self.assertIn("minority: 1 of 3 members", shown)
        self.assertIn("unreachable for ", shown)
        self.assertIn("thicket_is_minority 1", self.left.ask("/metrics").decode())
        refused = ctl(self.left, "forget", "nobody")
        self.assertIn('no member of the cluster has the name or the identity "nobody"', refused.stderr)
        self.go_on()
        wait_until(lambda: serves(self.left) and self.left.sees() == 3, "service to resume")
        self.assertEqual(here.send_publish(self.topic(), "after", qos=1).reason_code, 0)
        self.assertEqual(subscriber.take_message().payload, b"after")
        up = ctl(self.left, "forget", "node-2")
        self.assertEqual((up.returncode, up.stdout), (1, ""))
        self.assertIn('node "node-2" is up: stop it first', up.stderr)
        self.assertIn("serving: 3 of 3 members", ctl(self.left, "nodes").stdout)
