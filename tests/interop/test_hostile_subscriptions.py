"""Thousands of subscriptions that come and go at once: they keep their client waiting, and nobody else."""

from bystanders import Bystanders
from wire import RawClient, subscribe, unsubscribe

SESSIONS = 20
FILTERS = 10_000
PART = 1_000


class ManySubscriptions(Bystanders):
    """As many subscriptions as a session may have, in many sessions of one client."""

    def setUp(self):
        super().setUp()
        self.watch_logs()

    def test_sessions_that_end_at_once_part_no_nodes(self):
        clients = []
        for number in range(SESSIONS):
            client = RawClient(self.here)
            self.addCleanup(client.close)
            client.connect(self.client_id(f"many-{number}"), keep_alive=0)
            for start in range(0, FILTERS, PART):
                filters = (f"many/{number}/{index}/+" for index in range(start, start + PART))
                client.subscribe(*((one, 1) for one in filters))
            clients.append(client)
        for client in clients:
            client.close()
        self.check_that_others_are_served(10)
        self.check_that_no_node_was_out_of_sight()

    def test_subscribing_and_unsubscribing_in_a_loop_keeps_nobody_waiting(self):
        client = RawClient(self.here)
        self.addCleanup(client.close)
        client.connect(self.client_id("loop"), keep_alive=0)
        filters = [f"loop/{index}/+" for index in range(9_000)]
        there_and_back = subscribe(1, *((one, 0) for one in filters)) + unsubscribe(2, *filters)
        client.socket.setblocking(False)
        pending = b""
        for _ in range(10):
            for _ in range(10):
                pending = pending or there_and_back
                try:
                    pending = pending[client.socket.send(pending) :]
                except BlockingIOError:
                    break
            try:
                while client.socket.recv(1 << 20):
                    pass
            except BlockingIOError:
                pass
            self.check_that_others_are_served(1)
        self.check_that_no_node_was_out_of_sight()
