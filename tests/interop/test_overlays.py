"""Trees between real nodes: what the API shows, where messages go, and what happens when a node dies or stands still."""

import json
import signal
import time
import unittest

from nodes import BrokerTest, wait_until
from wire import RawCases


class Overlays(RawCases, BrokerTest):
    """Five nodes; each way to route has a class of its own."""

    __test__ = False
    size = 5
    routing = None

    def overlay(self, number):
        return json.loads(self.cluster.nodes[number].ask("/v1/overlay"))

    def explain(self, number, topic):
        return json.loads(self.cluster.nodes[number].ask(f"/v1/explain?topic={topic}"))

    def alive(self):
        return [number for number, node in enumerate(self.cluster.nodes) if node.is_alive()]

    def is_agreed(self, numbers):
        """Whether these nodes show the same tree over exactly themselves."""
        trees = [self.overlay(number)["tree"] for number in numbers]
        names = {self.cluster.nodes[number].name for number in numbers}
        same = all((tree["root"], tree["edges"]) == (trees[0]["root"], trees[0]["edges"]) for tree in trees)
        return same and set(trees[0]["nodes"]) == names and len(trees[0]["edges"]) == len(names) - 1

    def spread(self, qos=1):
        """A subscriber at the first and the last node that lives, a publisher in between."""
        alive = self.alive()
        ends = [self.raw(self.cluster.nodes[number].port, f"sub{number}") for number in (alive[0], alive[-1])]
        for end in ends:
            end.subscribe((self.topic("+"), qos))
        return ends, self.raw(self.cluster.nodes[alive[1]].port, "publisher")

    def test_all_nodes_agree_on_a_tree_and_messages_of_every_qos_arrive_once_and_in_order(self):
        wait_until(lambda: self.is_agreed(range(5)), "an agreed tree")
        self.assertEqual({self.overlay(number)["routing"] for number in range(5)}, {self.routing})
        ends, publisher = self.spread(2)
        for qos in (0, 1, 2):
            for number in range(20):
                publisher.publish(self.topic(f"q{qos}"), f"{number}", qos=qos)
            for end in ends:
                came = [int(end.take_message().payload) for _ in range(20)]
                self.assertEqual(came, list(range(20)), f"QoS {qos}")
        self.assertEqual([end.ping() for end in ends], [[], []], "nothing twice")

    def test_explain_names_the_interested_nodes_and_a_way_to_each(self):
        wait_until(lambda: self.is_agreed(range(5)), "an agreed tree")
        self.spread()
        topic = self.topic("x")

        def is_known():
            return {"node-1", "node-5"} <= set(self.explain(1, topic)["interested"])

        wait_until(is_known, "the interests to be known")
        explained = self.explain(1, topic)
        (route,) = [route for route in explained["routes"] if route["from"] == "node-2"]
        self.assertTrue({"node-1", "node-5"} <= {path[-1] for path in route["paths"]})
        self.assertTrue(all(path[0] == "node-2" for path in route["paths"]))
        if self.routing == "topic":
            inside = {"node-1", "node-2", "node-5"}
            self.assertTrue(all(set(path) <= inside for path in route["paths"]), route)
        if self.routing != "flood":
            (quiet,) = [route for route in self.explain(1, "nobody/wants")["routes"] if route["from"] == "node-2"]
            self.assertEqual(quiet["paths"], [])

    def test_a_root_that_is_killed_or_stands_still_is_routed_round_and_nothing_acknowledged_is_lost(self):
        for kind in (signal.SIGSTOP, signal.SIGKILL):
            numbers = self.alive()
            wait_until(lambda: self.is_agreed(numbers), "an agreed tree")
            root = self.overlay(numbers[0])["tree"]["root"]
            victim = next(number for number in numbers if self.cluster.nodes[number].name == root)
            rest = [number for number in numbers if number != victim]
            subscriber = self.raw(self.cluster.nodes[rest[0]].port, f"s{kind}")
            subscriber.subscribe((self.topic(f"k{kind}"), 1))
            publisher = self.raw(self.cluster.nodes[rest[-1]].port, f"p{kind}")
            for number in range(5):
                publisher.publish(self.topic(f"k{kind}"), f"{number}", qos=1)
            process = self.cluster.nodes[victim].process
            self.expected_to_die.add(root)
            if kind == signal.SIGSTOP:
                self.addCleanup(process.send_signal, signal.SIGCONT)
            begin = time.monotonic()
            process.send_signal(kind)
            for number in range(5, 10):
                publisher.publish(self.topic(f"k{kind}"), f"{number}", qos=1)
            wait_until(lambda: self.is_agreed(rest), "a tree without the victim")
            took = time.monotonic() - begin
            repaired = max(self.overlay(number)["counters"]["last_repair_ms"] for number in rest)
            print(f"{self.routing}: {kind.name} seen after {took:.2f} s, repair {repaired} ms", flush=True)
            came = {int(subscriber.take_message().payload) for _ in range(10)}
            self.assertEqual(came, set(range(10)))
            if kind == signal.SIGSTOP:
                process.send_signal(signal.SIGCONT)
                wait_until(lambda: self.is_agreed(numbers), "the node that went on to be taken in again")
            else:
                process.wait()


class OverlaysByTopic(Overlays):
    __test__ = True
    routing = "topic"
    arguments = ("--routing", "topic", "--workers", "1")


class OverlaysByTree(Overlays):
    __test__ = True
    routing = "tree"
    arguments = ("--routing", "tree", "--workers", "1", "--root-policy", "delay")


class OverlaysByFlood(Overlays):
    __test__ = True
    routing = "flood"
    arguments = ("--routing", "flood", "--workers", "1")


def load_tests(loader, _standard, _pattern):
    """The base class has no way to route and is no test."""
    return unittest.TestSuite(
        loader.loadTestsFromTestCase(case) for case in (OverlaysByTopic, OverlaysByTree, OverlaysByFlood)
    )
