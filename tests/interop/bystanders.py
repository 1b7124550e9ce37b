"""What other clients and nodes notice while one client makes work: nothing."""

from nodes import ThreeNodes
from wire import RawCases, RawClient


class Bystanders(RawCases, ThreeNodes):
    """Clients of all three nodes, and what the nodes write to their logs."""

    def watch_logs(self):
        """From here on no node may complain."""
        self.sizes = [node.log_size() for node in self.cluster.nodes]

    def check_that_others_are_served(self, times):
        """On each node, and across them."""
        for _ in range(times):
            for source, target in ((self.here, self.there), (self.there, self.elsewhere), (self.elsewhere, self.here)):
                with RawClient(target) as subscriber, RawClient(source) as publisher:
                    subscriber.connect(self.client_id("other"))
                    subscriber.subscribe((self.topic("other"), 1))
                    publisher.connect(self.client_id("publisher"))
                    publisher.publish(self.topic("other"), b"x", qos=1)
                    self.assertEqual(subscriber.take_message().payload, b"x")

    def check_that_no_node_was_out_of_sight(self):
        """See `watch_logs`."""
        for node, size in zip(self.cluster.nodes, self.sizes, strict=True):
            log = node.log_from(size)
            for complaint in ("node is down", "link is silent", "stood still"):
                self.assertNotIn(complaint, log)
