"""Filters and topics that are dear to match: they cost their client time, and nobody else."""

import itertools

from bystanders import Bystanders
from wire import RawClient, connect, publish, subscribe

LEVELS = 13


class DearFilters(Bystanders):
    """One session with 8,192 overlapping filters, and a burst of 110 KB that matches thousands of them a message."""

    def subscribe_to_all(self, prefix=""):
        """One client subscribes to all filters; `prefix`: what stands before each, in which `{}` is its number."""
        filters = enumerate("/".join(levels) for levels in itertools.product("a+", repeat=LEVELS))
        filters = [(prefix.format(number) + one, 0) for number, one in filters]
        client = RawClient(self.here)
        self.addCleanup(client.close)
        client.connect(self.client_id("dear"), keep_alive=0)
        for number, start in enumerate(range(0, len(filters), 512), 1):
            client.send(subscribe(number, *filters[start : start + 512]))
            client.receive(60)

    def check_that_bursts_part_no_nodes(self):
        """While bursts at two nodes are worked off everybody else is served."""
        self.watch_logs()
        for port in (self.here, self.there):
            burst = RawClient(port)
            self.addCleanup(burst.close)
            burst.send(connect(self.client_id(f"burst-{port}"), keep_alive=0))
            topics = (f"{number:x}" + "/a" * (LEVELS - 1) for number in range(3_500))
            burst.send(*(publish(topic) for topic in topics))
        self.check_that_others_are_served(5)
        self.check_that_no_node_was_out_of_sight()

    def test_a_burst_that_is_dear_to_match_parts_no_nodes(self):
        self.subscribe_to_all()
        self.check_that_bursts_part_no_nodes()

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
