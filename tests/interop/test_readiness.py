"""Whether a node is ready: drained, alone although it expects others, refused by them; and the port where probes ask."""

import json
import pathlib
import secrets
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from nodes import BINARY, Node, free_port, wait_until
from wire import RawClient


def answer(port, path):
    """Status and body."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as came:
            return came.status, came.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


class Readiness(unittest.TestCase):
    def start(self, name, seeds=(), arguments=(), discover="off"):
        node = Node(name, seeds, ("--workers", "1", *arguments), discover=discover, expects=None)
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        wait_until(lambda: node.ask("/v1/health/live") is not None, f"{name} to live")
        return node

    def reason(self, node):
        status, body = answer(node.http_port, "/v1/health/ready")
        return None if status == 200 else json.loads(body)["error"]

    def wait_until_ready(self, node):
        wait_until(lambda: self.reason(node) is None, f"{node.name} to be ready")

    def wait_for_reason(self, node, words):
        wait_until(lambda: words in (self.reason(node) or ""), f"{node.name} to say {words!r}")

    def test_a_drained_node_is_not_ready(self):
        node = self.start("only")
        self.wait_until_ready(node)
        command = [BINARY, "ctl", "--api", f"http://127.0.0.1:{node.http_port}/", "drain", "--force"]
        subprocess.run(command, check=True, capture_output=True)
        self.assertIn("drained", self.reason(node))
        self.assertIn(b"thicket_ready 0", node.ask("/metrics"))

    def test_a_node_whose_seeds_do_not_answer_serves_but_is_not_ready(self):
        seed = free_port()
        node = self.start("early", [seed])
        self.wait_for_reason(node, "expects 2 nodes and has seen 1")
        with RawClient(node.port) as client:
            client.connect("comes-nevertheless")
        wait_until(lambda: "not ready" in node.log_from(0), "a warning")
        other = self.start("late", [node.port])
        # The seed is another address: the node that comes is one of the cluster all the same.
        self.wait_until_ready(node)
        self.wait_until_ready(other)
        other.stop()
        wait_until(lambda: node.sees() == 1, "the other one to be gone")
        self.assertIsNone(self.reason(node), "the last node serves")

    def test_a_seed_that_has_no_address_is_named(self):
        node = self.start("typo", arguments=("--seed", "nosuch.invalid:1883"))
        self.wait_for_reason(node, "cannot look up nosuch.invalid:1883")
        wait_until(lambda: "WARN cannot look up the name of a node" in node.log_from(0).replace("\x1b[33m", "").replace("\x1b[0m", ""), "a warning")

    def test_names_in_dns_are_expected_to_answer(self):
        nobody = self.start("early", (), ["--dns-name", f"localhost:{free_port()}"], discover="dns")
        self.wait_for_reason(nobody, "expects 2 nodes and has seen 1")
        wait_until(lambda: "the node is not ready" in nobody.log_from(0), "a warning")
        other = self.start("late", [nobody.port])
        self.wait_until_ready(nobody)
        self.wait_until_ready(other)
        wait_until(lambda: "the node is ready for clients" in nobody.log_from(0), "the log to say so")

    def test_the_answer_names_the_last_refusal(self):
        one = self.start("one", (), ["--cluster-name", "x"])
        stranger = self.start("stranger", (), ["--dns-name", f"localhost:{one.port}", "--cluster-name", "y"], discover="dns")
        self.wait_for_reason(stranger, "last refusal: link refused by the other node")
        self.assertRegex(self.reason(stranger), r"last refusal: .*cluster")

    def test_a_node_with_another_secret_names_it(self):
        with tempfile.TemporaryDirectory() as directory:
            files = []
            for number in range(2):
                files.append(pathlib.Path(directory) / f"secret-{number}")
                files[-1].write_text(secrets.token_urlsafe(32) + "\n")
            one = self.start("one", (), ["--cluster-secret-file", str(files[0])])
            stranger = self.start(
                "stranger",
                (),
                ["--dns-name", f"localhost:{one.port}", "--cluster-secret-file", str(files[1])],
                discover="dns",
            )
            self.wait_for_reason(stranger, "last refusal: link refused by the other node")
            self.wait_for_reason(stranger, "is `cluster_secret_file` the same on both nodes?")

    def test_a_node_alone_in_dns_is_ready_if_it_expects_nobody(self):
        port = free_port()
        arguments = ["--dns-name", f"localhost:{port}", "--expect-nodes", "1"]
        self.wait_until_ready(self.start("single", (), arguments, discover="dns"))

    def test_an_island_is_ready_alone(self):
        self.wait_until_ready(self.start("island", [free_port()], ["--expect-nodes", "1"]))

    def test_a_node_waits_for_as_many_as_it_expects(self):
        first = self.start("first", (), ["--expect-nodes", "3"])
        second = self.start("second", [first.port])
        self.wait_until_ready(second)
        self.wait_for_reason(first, "expects 3 nodes and has seen 2")
        self.start("third", [first.port])
        self.wait_until_ready(first)

    def test_a_node_that_is_refused_is_not_ready_and_both_sides_name_the_other(self):
        here = self.start("here", (), ["--cluster-name", "one"])
        stranger = self.start("stranger", [here.port], ["--cluster-name", "two"])
        self.wait_for_reason(stranger, "expects 2 nodes")
        self.wait_until_ready(here)
        wait_until(lambda: f"127.0.0.1:{here.port}" in stranger.log_from(0), "the refused side to name the address")
        wait_until(lambda: "refus" in here.log_from(0), "the refusing side to say so")
        lines = [line for line in here.log_from(0).splitlines() if "refus" in line]
        self.assertRegex(lines[0], r"127\.0\.0\.1:\d+", "the peer's address")

    def test_the_port_for_probes_tells_health_and_nothing_else(self):
        probe = free_port()
        with tempfile.NamedTemporaryFile("w", suffix=".users") as users:
            made = subprocess.run(
                [BINARY, "passwd", "--role", "admin", "root"], input=b"secret\n", capture_output=True, check=True
            )
            users.write(made.stdout.decode())
            users.flush()
            node = self.start("probed", (), ["--probe", f"127.0.0.1:{probe}", "--http-users", users.name])
        self.wait_until_ready(node)
        self.assertEqual(answer(probe, "/ready"), (200, "yes\n"))
        self.assertEqual(answer(probe, "/live"), (200, "yes\n"))
        for path in ("/", "/v1/nodes", "/metrics", "/v1/health/ready"):
            self.assertEqual(answer(probe, path), (404, ""), path)
        self.assertEqual(answer(node.http_port, "/v1/nodes")[0], 401)
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{node.http_port}", "--api-user", "root:secret", "drain", "--force"]
        subprocess.run(command, check=True, capture_output=True)
        self.assertEqual(answer(probe, "/ready"), (503, "no\n"))


class Agreement(unittest.TestCase):
    """Settings that must be the same on all nodes of a cluster."""

    start = Readiness.start

    def test_nodes_that_contradict_each_other_warn_and_show_it(self):
        one = self.start("one", (), ["--partition", "serve"])
        two = self.start("two", [one.port], ["--partition", "majority-without-data", "--maximum-packet-size", "64KiB", "--queue-messages", "7"])
        for here, there, own, theirs in ((one, two, "serve", "majority"), (two, one, "majority", "serve")):
            wait_until(lambda here=here: "on all nodes differs" in here.log_from(0), "a warning")
            line = next(line for line in here.log_from(0).splitlines() if "on all nodes differs" in line and "partition" in line)
            for words in (f'{here.name} has \\"{own}\\"', f'{there.name} has \\"{theirs}\\"'):
                self.assertIn(words, line)
            command = [BINARY, "ctl", "--api", f"127.0.0.1:{here.http_port}", "nodes"]
            shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            self.assertIn(f'{there.name}: partition = "{theirs}" there, "{own}" here', shown)
            self.assertIn(f"{there.name}: maximum_packet_size", shown)
            self.assertIn(f"{there.name}: queue_messages", shown)

    def test_what_differs_can_be_queried_in_a_log_of_json(self):
        one = self.start("one", (), ["--partition", "serve", "--log-format", "json"])
        self.start("two", [one.port], ["--partition", "majority-without-data"])

        def found():
            lines = [json.loads(line) for line in one.log_from(0).splitlines() if line.startswith("{")]
            return [line for line in lines if line.get("key") == "partition"]

        wait_until(found, "a warning")
        self.assertEqual((found()[0]["here"], found()[0]["there"]), ('one has "serve"', 'two has "majority"'))
        self.assertNotIn("more", found()[0])

    def test_nodes_that_agree_say_nothing(self):
        one = self.start("one")
        two = self.start("two", [one.port])
        wait_until(lambda: two.sees() == 2, "the nodes to see each other")
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{two.http_port}", "nodes"]
        self.assertNotIn("must be the same", subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def test_nodes_of_one_name_are_told(self):
        one = self.start("twin")
        self.start("twin", [one.port])
        wait_until(lambda: "has the same name" in one.log_from(0), "a warning")


if __name__ == "__main__":
    unittest.main()
