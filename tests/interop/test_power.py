"""All nodes lose their power at the same moment, and what was not synced is gone: with `--sync commit` nothing acknowledged is.

`THICKET_POWER_ROUNDS`: losses of power in each test.
"""

import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import unittest

from load import KEPT, Ending, Publisher, Retaining, Subscriber, Subscribing, Wanderer, check_books
from nodes import Node
from power import Disk, build
from wire import Kind, RawClient, acknowledge

ROUNDS = int(os.environ.get("THICKET_POWER_ROUNDS", "5"))
START_ATTEMPTS = 3


class Machines:
    """Nodes that see each other, each on a disk of its own."""

    def __init__(self, test, count, chance, *arguments):
        self.test, self.arguments = test, arguments
        self.disks = [Disk(test.library, chance) for _ in range(count)]
        self.nodes = []
        self.logs = ""
        for disk in self.disks:
            test.addCleanup(disk.remove)
        test.addCleanup(self.cut_power)

    def start(self):
        """Starts all; returns their ports, which are others each time."""
        for _ in range(START_ATTEMPTS):
            for number, disk in enumerate(self.disks):
                seeds = [node.port for node in self.nodes]
                arguments = ("--data", str(disk.root / "data"), *self.arguments)
                self.nodes.append(Node(f"node-{number + 1}", seeds, arguments, disk.environment()))
            if all(node.wait_until_ready(len(self.disks)) for node in self.nodes):
                return [node.port for node in self.nodes]
            words = "".join(node.log_from(0) for node in self.nodes)
            self.cut_power()
            # Somebody else may have taken a port before the node listened on it.
            if "in use by another process" not in words:
                break
        raise AssertionError(f"the nodes do not start: {words}")

    def cut_power(self):
        """All processes end at once: none sees another one end."""
        for end in (signal.SIGSTOP, signal.SIGKILL):
            for node in self.nodes:
                node.process.send_signal(end)
        self.forget()

    def stop(self):
        """SIGTERM, one after the other."""
        for node in self.nodes:
            node.stop()
            self.test.assertEqual(node.process.returncode, 0)
        self.forget()

    def forget(self):
        for node in self.nodes:
            node.process.wait()
            self.logs += f"--- {node.name}\n{node.log_from(0)}"
            node.log.close()
        self.nodes = []
        self.test.assertNotIn("panicked", self.logs)

    def lose_power(self):
        """All processes end at once, and what was not synced is gone. Returns how many files lost something."""
        for node in self.nodes:
            self.test.assertTrue(node.is_alive(), node.log_from(0))
        self.cut_power()
        return sum(disk.lose_power() for disk in self.disks)


class PowerCases(unittest.TestCase):
    machines = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp(prefix="thicket-power-")
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.library = build(directory)

    def run(self, result=None):
        def count():
            return len(result.failures) + len(result.errors) if result is not None else 0

        before = count()
        outcome = super().run(result)
        if count() > before and self.machines:
            print(f"\n{self.id()}\nchance from seed {self.seed}\n{self.machines.logs[-20000:]}", file=sys.stderr)
        return outcome

    def make(self, count, *arguments):
        self.seed = random.randrange(2**32)
        self.chance = random.Random(self.seed)
        self.machines = Machines(self, count, self.chance, *arguments)
        return self.machines


class Commit(PowerCases):
    """`--sync commit`."""

    def lose_power_under_load(self, count, workers):
        """Loads the nodes, cuts their power at a random moment, and does it again."""
        machines = self.make(count, "--sync", "commit", "--workers", str(workers))
        publishers = [Publisher(f"publisher-{qos}", f"load/{qos}", qos) for qos in (1, 2)]
        here = [Subscriber("here-0"), Subscriber("here-1"), Wanderer("wanderer")]
        away = [Subscriber(f"away-{number}") for number in range(2)]
        asking = [kind(f"{kind.__name__.lower()}-{number}", self.chance)
                  for kind in (Subscribing, Retaining, Ending) for number in range(2)]
        ports = machines.start()
        turn = itertools.cycle(ports)
        for subscriber in here + away:
            subscriber.connect(next(turn))
            subscriber.client.subscribe(("load/#", 2))
            subscriber.client.close()
        for number in range(ROUNDS):
            if number > 0:
                ports = machines.start()
            turn = itertools.cycle(ports[self.chance.randrange(count) :] + ports)
            self.check_asked(asking, turn)
            here[-1].ports = turn if count > 1 else None
            for client in here + publishers + asking:
                client.begin(next(turn))
            # A moment under load is what is tested.
            time.sleep(self.chance.uniform(0.05, 2.0))
            machines.lose_power()
            for client in publishers + here + asking:
                client.end()
        ports = machines.start()
        turn = itertools.cycle(ports)
        self.check_asked(asking, turn)
        for publisher in publishers:
            publisher.finish(next(turn))
        with RawClient(next(turn)) as last:
            last.connect("last")
            last.publish("load/end", "end", qos=1)
        for subscriber in here + away:
            subscriber.finish(next(turn), b"end")
        check_books(self, publishers, here + away)
        machines.stop()
        self.assertEqual([disk.unsynced() for disk in machines.disks], [None] * count, "after a stop in order")

    def check_asked(self, asking, turn):
        """Subscriptions, retained messages and ends of sessions are as they were granted."""
        problems = [client.problem_at(next(turn)) for client in asking]
        self.assertEqual([problem for problem in problems if problem], [])

    def test_nothing_acknowledged_is_lost_by_a_node_alone(self):
        self.lose_power_under_load(1, 1)

    def test_nothing_acknowledged_is_lost_by_a_node_with_two_workers(self):
        self.lose_power_under_load(1, 2)

    @unittest.skipIf(os.environ.get("THICKET_CLUSTER_TESTS") == "0", "THICKET_CLUSTER_TESTS=0")
    def test_nothing_acknowledged_is_lost_by_two_nodes_at_once(self):
        self.lose_power_under_load(2, 2)


class Interval(PowerCases):
    """`--sync interval` promises less, which shows that the disk forgets."""

    def test_what_was_acknowledged_in_the_last_second_may_be_lost(self):
        machines = self.make(1, "--sync", "interval", "--workers", "1")
        losses = 0
        for number in range(5):
            port, = machines.start()
            topic = f"t/{number}"
            with RawClient(port) as subscriber, RawClient(port) as publisher:
                subscriber.connect(f"subscriber-{number}", clean_start=False, props=KEPT)
                subscriber.subscribe((topic, 1))
                subscriber.close()
                publisher.connect("publisher")
                for payload in range(20):
                    publisher.publish(topic, f"{payload}", qos=1)
                machines.lose_power()
            port, = machines.start()
            losses += self.missing(port, f"subscriber-{number}", topic)
            machines.cut_power()
            if losses:
                return
        self.fail("nothing was lost that was not synced: the disk does not forget")

    def missing(self, port, client_id, topic):
        """How many of the 20 messages are not there."""
        with RawClient(port) as again:
            present = again.connect(client_id, clean_start=False, props=KEPT).session_present
            if not present:
                return 20
            with RawClient(port) as publisher:
                publisher.connect("publisher")
                publisher.publish(topic, "end", qos=1)
            came = 0
            while (one := again.receive()).kind == Kind.PUBLISH and one.payload != b"end":
                again.send(acknowledge(Kind.PUBACK, one.packet_id))
                came += 1
            return 20 - came


if __name__ == "__main__":
    unittest.main()
