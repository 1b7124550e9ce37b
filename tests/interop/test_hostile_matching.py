"""Filters and topics that are dear to match: they cost their client time, and nobody else."""

import itertools
import time

from bystanders import Bystanders
from wire import RawClient, connect, publish, subscribe

LEVELS = 13
# Subscriptions of one session.
OF_SESSION = 8_192


class DearFilters(Bystanders):
    """Sessions with thousands of overlapping filters, and a burst of 110 KB that matches half of them a message."""

    def subscribe_to_all(self, prefix="", levels=LEVELS):
        """Clients subscribe to all filters; `prefix`: what stands before each, in which `{}` is its number."""
        filters = enumerate("/".join(words) for words in itertools.product("a+", repeat=levels))
        filters = [(prefix.format(number) + one, 0) for number, one in filters]
        for first in range(0, len(filters), OF_SESSION):
            client = RawClient(self.here)
            self.addCleanup(client.close)
            client.connect(self.client_id(f"dear-{first}"), keep_alive=0)
            for number, start in enumerate(range(first, first + OF_SESSION, 512), 1):
                client.send(subscribe(number, *filters[start : start + 512]))
                client.receive(60)

    def send_bursts(self, levels=LEVELS):
        """At two nodes."""
        for port in (self.here, self.there):
            burst = RawClient(port)
            self.addCleanup(burst.close)
            burst.send(connect(self.client_id(f"burst-{port}"), keep_alive=0))
            topics = (f"{number:x}" + "/a" * (levels - 1) for number in range(3_500))
            burst.send(*(publish(topic) for topic in topics))

    def check_that_bursts_part_no_nodes(self):
        """While bursts at two nodes are worked off everybody else is served."""
        self.watch_logs()
        self.send_bursts()
        self.check_that_others_are_served(5)
        self.check_that_no_node_was_out_of_sight()

    def test_a_burst_that_is_dear_to_match_parts_no_nodes(self):
        self.subscribe_to_all()
        self.check_that_bursts_part_no_nodes()

    def test_a_burst_that_takes_milliseconds_a_message_parts_no_nodes(self):
        # A batch between nodes has more than a thousand of them. What others subscribe to meanwhile has to wait for its turn at each thread.
        self.subscribe_to_all(levels=16)
        others = [self.raw(port, f"other-{port}", keep_alive=0) for port in (self.here, self.there, self.elsewhere)]
        self.watch_logs()
        self.send_bursts(levels=16)
        for _ in range(500):
            for other in others:
                self.assertEqual(other.ping(), [])
            time.sleep(0.01)
        self.check_that_no_node_was_out_of_sight()

    def test_a_burst_for_thousands_of_shared_subscriptions_parts_no_nodes(self):
        # Each filter is of a shared subscription of its own: every match is a delivery.
        self.subscribe_to_all("$share/{}/")
        self.check_that_bursts_part_no_nodes()


class ManyRetained(Bystanders):
    """Filters that match none of many retained topics: each is compared with all of them."""

    TOPICS = 150_000
    arguments = ("--workers", "1")

    def test_filters_that_match_none_of_many_retained_topics_part_no_nodes(self):
        client = self.raw(self.here, "retains", keep_alive=0)
        for start in range(0, self.TOPICS, 1_000):
            topics = range(start, start + 1_000)
            client.send(*(publish(f"r/{number}/y", b"x", retain=True) for number in topics))
            client.ping()
        self.watch_logs()
        for number in range(20):
            asks = self.raw(self.here, f"asks-{number}", keep_alive=0)
            asks.send(subscribe(1, *((f"r/+/x{number}-{one}", 0) for one in range(100))))
        self.check_that_others_are_served(5)
        self.check_that_no_node_was_out_of_sight()
