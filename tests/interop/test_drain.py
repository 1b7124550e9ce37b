"""`thicket ctl drain`: a node leaves the cluster, and nobody loses anything."""

import json
import os
import subprocess
import unittest

from nodes import BINARY, ThreeNodes, wait_until
from wire import Kind, RawCases, RawClient, Will


class Drain(RawCases, ThreeNodes):
    def drain(self, node, *arguments):
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{node.http_port}", "drain", *(arguments or ("--timeout", "20"))]
        return subprocess.run(command, capture_output=True, check=False)

    def test_a_drain_that_is_undone_lets_clients_in_again(self):
        leaving = self.cluster.nodes[2]
        here = self.keeper(self.elsewhere, "here")
        here.subscribe((self.topic(), 1))
        self.assertEqual(self.drain(leaving).returncode, 0)
        self.assertEqual(here.expect(Kind.DISCONNECT).reason_code, 0x9C)
        with RawClient(self.elsewhere) as late:
            self.assertEqual(late.try_connect("late").reason_code, 0x9C)
        self.publisher().publish(self.topic(), b"meanwhile", qos=1)
        done = self.drain(leaving, "--undo")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"accepts clients again", done.stdout)
        back = self.keeper(self.elsewhere, "here")
        self.assertTrue(back.connack.session_present)
        self.assertEqual(back.take_message().payload, b"meanwhile")
        wait_until(lambda: leaving.ask("/v1/health/ready"), "the node is ready again")
        # Once more, as before.
        self.assertEqual(self.drain(leaving).returncode, 0)
        self.assertEqual(back.expect(Kind.DISCONNECT).reason_code, 0x9C)
        self.assertEqual(self.drain(leaving, "--undo").returncode, 0)

    def test_the_last_node_that_serves_is_drained_only_if_that_is_said(self):
        first, second, last = self.cluster.nodes
        for node in (first, second):
            self.addCleanup(self.drain, node, "--undo")
            self.assertEqual(self.drain(node).returncode, 0)
        wait_until(lambda: all(it["state"]["draining"] for it in json.loads(last.ask("/v1/nodes"))[1:]), "it to know that")
        done = self.drain(last)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"409: this is the last node that serves", done.stderr)
        client = self.raw(last.port, "served")
        client.ping()
        self.assertTrue(last.ask("/v1/health/ready"))
        self.addCleanup(self.drain, last, "--undo")
        self.assertEqual(self.drain(last, "--force").returncode, 0)
        self.assertEqual(client.expect(Kind.DISCONNECT).reason_code, 0x9C)
        # A drain that has begun is no longer a question.
        self.assertEqual(self.drain(last).returncode, 0)

    def test_at_a_terminal_the_drain_of_the_last_node_that_serves_is_a_question(self):
        first, second, last = self.cluster.nodes
        for node in (first, second):
            self.addCleanup(self.drain, node, "--undo")
            self.assertEqual(self.drain(node).returncode, 0)
        wait_until(lambda: all(it["state"]["draining"] for it in json.loads(last.ask("/v1/nodes"))[1:]), "it to know that")
        self.addCleanup(self.drain, last, "--undo")
        for answer, code, words in ((b"n\n", 1, b"was not drained"), (b"y\n", 0, b"[y/N]")):
            ours, theirs = os.openpty()
            os.write(ours, answer)
            command = [BINARY, "ctl", "--api", f"127.0.0.1:{last.http_port}", "drain"]
            done = subprocess.run(command, stdin=theirs, capture_output=True, check=False)
            os.close(ours)
            os.close(theirs)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stderr)

    def test_a_drain_says_how_many_backups_end_with_the_node(self):
        leaving = self.cluster.nodes[2]
        kept = [self.keeper(self.there, f"kept-{number}") for number in range(20)]

        def backups():
            return json.loads(leaving.ask("/v1/traffic"))["total"]["backups"]

        wait_until(lambda: backups() > 0, "some backups are at the node")
        done = self.drain(leaving)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout.decode(), r"it holds \d+ backups? of sessions of other nodes: new ones are created when it has stopped")
        self.assertEqual(self.drain(leaving, "--undo").returncode, 0)
        for client in kept:
            client.ping()

    def test_sessions_go_on_elsewhere_and_their_clients_are_sent_away(self):
        """A queue, a client that is connected with a will, an older client; messages all the while."""
        leaving = self.cluster.nodes[2]
        watcher = self.subscriber(("will", 1), role="watcher")
        away = self.keeper(self.elsewhere, "away")
        away.subscribe((self.topic(), 1))
        away.close()
        will = Will("will", b"gone", 1, False, ())
        here = self.keeper(self.elsewhere, "here", will=will)
        here.subscribe((self.topic(), 2))
        publisher = self.publisher()
        for number in range(5):
            publisher.publish(self.topic(), f"{number}", qos=1)
        self.assertEqual([here.take_message().payload for _ in range(5)], [b"%d" % number for number in range(5)])
        done = self.drain(leaving)
        self.assertEqual((done.returncode, done.stdout.split(b"\n")[0]), (0, b"drained: the node can be stopped"), done.stderr)
        self.assertEqual(here.expect(Kind.DISCONNECT).reason_code, 0x9C)
        with RawClient(self.elsewhere) as late:
            self.assertEqual(late.try_connect("late").reason_code, 0x9C)
        for number in range(5, 10):
            publisher.publish(self.topic(), f"{number}", qos=1)
        self.expected_to_die.add(leaving.name)
        leaving.stop()
        wait_until(lambda: self.cluster.nodes[0].sees() == 2, "the node to have gone")
        for role, first in (("away", 0), ("here", 5)):
            back = self.keeper(self.there, role)
            self.assertTrue(back.connack.session_present, role)
            came = [back.take_message().payload for _ in range(10 - first)]
            self.assertEqual(came, [b"%d" % number for number in range(first, 10)], role)
        publisher.publish("will", "no other", qos=1)
        self.assertEqual(watcher.take_message().payload, b"no other")


if __name__ == "__main__":
    unittest.main()
