"""Bounds in bytes: what a client can make a node keep until the bound is reached costs about as much memory as the bound says.

Each case fills one bound over the network, with small entries and with large ones, and compares the growth of the process with the bytes that
the node counts for it. Small entries are what strangers would choose: memory that is not counted weighs most there.

`python tests/interop/test_memory.py --table` prints the figures.
"""

import itertools
import json
import socket
import sys
import tempfile
import unittest

from nodes import Cluster, wait_until
from wire import NEVER, Kind, Property, RawClient, Will, connect, publish

MIB = 1024 * 1024
BOUND = 16 * MIB
KEPT = ((Property.SESSION_EXPIRY_INTERVAL, NEVER),)
# Growth of the process for each byte that is counted.
LEAST, MOST = 0.5, 2.0
# PUBLISHes without an answer at a time.
WINDOW = 500
UNLIMITED = "1000000000"
# What a retained message costs besides the bytes that count, with its share of the table of routes, which has a bound of its own.
OF_RETAINED = 800
# What each case measured, for the table.
FIGURES = []


class Node:
    """A node of one worker, without bounds but the one under test."""

    def __init__(self, test, *arguments):
        arguments = ("--workers", "1", "--memory-bytes", "0", "--sys-interval-s", "0", "--log-level", "warn", *arguments)
        self.cluster = Cluster(1, arguments)
        test.addCleanup(self.cluster.close_logs)
        test.addCleanup(self.cluster.stop)
        self.node = self.cluster.nodes[0]
        self.port = self.node.port

    def ledger(self, field):
        found = json.loads(self.node.ask("/v1/memory"))
        return found.get(field, found["total"].get(field))

    def resident(self):
        return self.node.memory_bytes("VmRSS")


class Bounds(unittest.TestCase):
    def client(self, node, client_id, source=None, **options):
        client = RawClient(node.port, source=source)
        self.addCleanup(client.close)
        client.connect(client_id, **options)
        return client

    def warm(self, node):
        """What the first messages make the process keep is no growth."""
        with RawClient(node.port) as client:
            client.connect("warm")
            client.subscribe(("warm", 1))
            for size in (1, 1000, 60_000):
                for _ in range(50):
                    client.publish("warm", bytes(size), qos=1)
                    client.take_message()

    def publish_until(self, client, is_full, topics, payload, retain=False):
        """Publishes at QoS 1 until `is_full`, which is asked from time to time; the codes of the last answers."""
        topics = iter(topics)
        while not is_full():
            batch = [publish(next(topics), payload, 1, number + 1, retain=retain) for number in range(WINDOW)]
            client.send(*batch)
            for _ in batch:
                client.expect(Kind.PUBACK)

    def compare(self, bound, entry, counted, grown):
        FIGURES.append((bound, entry, counted, grown))
        ratio = grown / counted
        self.assertGreater(counted, BOUND * 0.8, f"{bound} is full")
        self.assertLess(counted, BOUND * 1.2, f"{bound} holds")
        self.assertLess(ratio, MOST, f"{bound}, {entry}: {grown} bytes for {counted} that are counted")
        self.assertGreater(ratio, LEAST, f"{bound}, {entry}: {grown} bytes for {counted} that are counted")

    def fill_queues(self, bound, sessions, size, *arguments):
        node = Node(self, *arguments, "--queue-messages", UNLIMITED, "--receive-maximum", "1000")
        self.warm(node)
        for number in range(sessions):
            with RawClient(node.port) as client:
                client.connect(f"away-{number}", clean_start=False, props=KEPT)
                client.subscribe((f"queue/{number}", 1))
        before = node.resident()
        publisher = self.client(node, "publisher")
        topics = itertools.cycle(f"queue/{number}" for number in range(sessions))
        self.publish_until(publisher, lambda: node.ledger("queue_dropped_messages"), topics, bytes(size))
        self.compare(bound, f"{size} bytes", node.ledger("queued_bytes"), node.resident() - before)

    def test_the_queue_of_a_session(self):
        for size in (10, 1000, 60_000):
            with self.subTest(size=size):
                self.fill_queues("queue_bytes", 1, size, "--queue-bytes", str(BOUND))

    def test_the_queues_of_the_sessions_of_one_address(self):
        for size in (10, 1000):
            with self.subTest(size=size):
                self.fill_queues("user_queue_bytes", 50, size, "--user-queue-bytes", str(BOUND), "--queue-bytes", UNLIMITED)

    def fill_retained(self, bound, size, *arguments):
        node = Node(self, *arguments, "--retained-messages", UNLIMITED, "--user-retained-messages", UNLIMITED)
        self.warm(node)
        before = node.resident()
        publisher = self.client(node, "publisher")
        refused = []
        topics = (f"retained/{number}" for number in itertools.count())
        while not refused:
            batch = [publish(next(topics), bytes(size), 1, number + 1, retain=True) for number in range(WINDOW)]
            publisher.send(*batch)
            refused += [code for code in (publisher.expect(Kind.PUBACK).reason_code for _ in batch) if code >= 0x80]
        grown, counted, messages = node.resident() - before, node.ledger("retained_bytes"), node.ledger("retained_messages")
        if size >= 1000:
            self.compare(bound, f"{size} bytes", counted, grown)
            return
        # The bytes of a message are those of its topic and its record. What else it costs weighs more where both are small: `retained_messages`
        # is the bound of that.
        FIGURES.append((bound, f"{size} bytes", counted, grown))
        self.assertLess(counted, BOUND * 1.2)
        self.assertLess((grown - counted) / messages, OF_RETAINED)

    def test_retained_messages(self):
        for size in (10, 1000):
            with self.subTest(size=size):
                self.fill_retained("retained_bytes", size, "--retained-bytes", str(BOUND), "--user-retained-bytes", UNLIMITED)

    def test_retained_messages_of_one_address(self):
        for size in (10, 1000):
            with self.subTest(size=size):
                self.fill_retained("user_retained_bytes", size, "--user-retained-bytes", str(BOUND), "--retained-bytes", UNLIMITED)

    def test_out_buffers(self):
        # 4 MiB for each of eight connections.
        each = BOUND // 8
        for size in (10, 1000, 60_000):
            with self.subTest(size=size):
                node = Node(self, "--out-buffer-bytes", str(each))
                self.warm(node)
                before = node.resident()
                for number in range(8):
                    self.client(node, f"slow-{number}").subscribe(("flood", 0))
                publisher = self.client(node, "publisher")
                batch = [publish("flood", bytes(size)) for _ in range(max(1, 400_000 // (size + 12)))]
                last = -1
                while (now := node.ledger("out_buffer_bytes")) > last or now < BOUND // 2:
                    last = now
                    publisher.send(*batch)
                    publisher.ping()
                counted, grown = node.ledger("out_buffer_bytes"), node.resident() - before
                self.compare("out_buffer_bytes, of eight", f"{size} bytes", counted, grown)

    def test_connects_that_are_incomplete(self):
        for size in (200, 60_000):
            with self.subTest(size=size):
                node = Node(self, "--half-open-bytes", str(BOUND), "--connect-timeout-s", "600", "--connections-per-s", "0")
                self.warm(node)
                before = node.resident()
                whole = connect("half", will=Will("topic", bytes(60_000)))
                for number in itertools.count():
                    stream = socket.create_connection(("127.0.0.1", node.port), 20, (f"127.0.0.{2 + number % 200}", 0))
                    self.addCleanup(stream.close)
                    stream.sendall(whole[:size])
                    # Small ones meet the bound of open files first.
                    if number * size > BOUND * 1.1 or number == 8000:
                        break
                wait_until(lambda: node.ledger("half_open_bytes") > min(BOUND * 0.9, 8000 * size * 0.9), "they have arrived")
                counted, grown = node.ledger("half_open_bytes"), node.resident() - before
                if size == 60_000:
                    self.compare("half_open_bytes", f"{size} bytes", counted, grown)
                else:
                    # A connection costs some memory besides, which `connections` bounds.
                    FIGURES.append(("half_open_bytes", f"{number} of {size} bytes", counted, grown))
                    self.assertLess(grown, MOST * BOUND)

    def test_subscriptions_of_one_address(self):
        """What a subscription counts is documented: its filter, 1 KiB, and 384 bytes for each thread."""
        for name, filter_of in (
            ("short filters", lambda number: f"f/{number}"),
            ("wildcards", lambda number: f"+/{number}/#"),
            ("200 bytes", lambda number: f"{number}/" + "x" * 200),
        ):
            with self.subTest(name):
                node = Node(self, "--user-subscription-bytes", str(BOUND), "--subscriptions", UNLIMITED)
                self.warm(node)
                before = node.resident()
                counted, number, codes = 0, 0, []
                for session in itertools.count():
                    client = self.client(node, f"subscriber-{session}")
                    for _ in range(20):
                        filters = [filter_of(number + more) for more in range(100)]
                        codes = client.subscribe(*((one, 0) for one in filters)).codes
                        number += 100
                        granted = [one for one, code in zip(filters, codes, strict=True) if code < 0x80]
                        counted += sum(len(one) + 1024 + 384 for one in granted)
                    if max(codes) >= 0x80:
                        break
                self.compare("user_subscription_bytes", name, counted, node.resident() - before)

    def test_events_that_wait_for_a_hook(self):
        for size in (10, 1000):
            with self.subTest(size=size), tempfile.NamedTemporaryFile("w", suffix=".toml") as file, socket.socket() as silent:
                # It accepts connections, and never answers.
                silent.bind(("127.0.0.1", 0))
                silent.listen()
                port = silent.getsockname()[1]
                file.write(
                    f"[[hook]]\nname = 'slow'\nurl = 'http://127.0.0.1:{port}/'\nevents = ['publish']\nfilters = ['events']\n"
                    f"queue_bytes = {BOUND}\nqueue_events = 10000000\n"
                )
                file.flush()
                node = Node(self, "--config", file.name)
                self.warm(node)
                before = node.resident()
                publisher = self.client(node, "publisher")

                def dropped(node=node):
                    lines = node.node.ask("/metrics").decode().splitlines()
                    return any('outcome="dropped"' in line and not line.endswith(" 0") for line in lines)

                self.publish_until(publisher, dropped, itertools.repeat("events"), bytes(size))
                self.compare("queue_bytes of a hook", f"{size} bytes", BOUND, node.resident() - before)


def table():
    """The figures as a table."""
    print("\n| bound | entries | counted, MB | grown, MB | bytes for each |\n| --- | --- | --- | --- | --- |")
    for bound, entry, counted, grown in FIGURES:
        print(f"| `{bound}` | {entry} | {counted / 1e6:.1f} | {grown / 1e6:.1f} | {grown / counted:.2f} |")


if __name__ == "__main__":
    prints = "--table" in sys.argv
    if prints:
        sys.argv.remove("--table")
        unittest.addModuleCleanup(table)
    unittest.main()
