"""The rebalancer: one node that has connected clients moved to where there is room and where their topics are."""

import collections
import json
import select
import subprocess
import unittest
import urllib.error
import urllib.request

from nodes import BINARY, ThreeNodes, wait_until
from test_redirection import EXPIRY, USE_ANOTHER_SERVER, port_of
from wire import Kind, RawCases, RawClient


class Rebalancing(RawCases, ThreeNodes):
    """`rebalance = suggest`, the default: clients move when an operator says so."""

    arguments = ()

    def ctl(self, node, *words):
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{node.http_port}", *words]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    def plan(self, node, *words):
        return json.loads(self.ctl(node, "rebalance", "--json", *words))["plan"]

    def crowd(self, role, count, version=5):
        """Clients at one node, by their names."""
        clients = {}
        for number in range(count):
            options = {"props": EXPIRY} if version == 5 else {}
            clients[self.client_id(f"{role}{number}")] = self.raw(self.here, f"{role}{number}", version, **options)
        return clients

    def sent_away(self, clients, plan):
        """Where those go whom the plan moves."""
        left = {}
        for move in plan["moves"]:
            told = clients[move["client_id"]].expect(Kind.DISCONNECT)
            self.assertEqual(told.reason_code, USE_ANOTHER_SERVER)
            left[move["client_id"]] = port_of(told)
        return left

    def come_back(self, name, port):
        client = RawClient(port)
        self.addCleanup(client.close)
        answer = client.try_connect(name, clean_start=False, props=EXPIRY)
        self.assertEqual((answer.reason_code, answer.session_present), (0, True))

    def test_a_dry_run_moves_nobody_and_a_plan_that_is_carried_out_makes_loads_even(self):
        clients = self.crowd("m", 60)
        node = self.cluster.nodes[1]
        planned = json.loads(self.ctl(node, "rebalance", "--dry-run", "--json"))
        plan = planned["plan"]
        self.assertEqual((planned["mode"], plan["carried_out"]), ("suggest", False))
        self.assertGreater(plan["move_count"], 30, plan)
        self.assertLess(plan["before"]["jain"], 0.5)
        self.assertGreater(plan["after"]["jain"], 0.95)
        self.assertIn("nobody is moved", self.ctl(node, "rebalance", "--show"))
        plan = self.plan(node)
        left = self.sent_away(clients, plan)
        self.assertGreater(len(left), 30)
        for name, port in left.items():
            self.come_back(name, port)
        counts = collections.Counter(left.values())
        counts[self.here] = 60 - len(left)
        jain = sum(counts.values()) ** 2 / (3 * sum(count**2 for count in counts.values()))
        self.assertGreater(jain, 0.95, counts)
        moved, port = next(iter(left.items()))
        at = next(node for node in self.cluster.nodes if node.port == port)
        explained = json.loads(at.ask(f"/v1/explain?client_id={moved}"))["moved"]
        self.assertEqual((explained["reason"], explained["outcome"]), ("rebalanced", "followed"))
        self.assertIn("by the rebalancer; it followed", self.ctl(at, "explain", "client", moved))
        metrics = self.cluster.nodes[0].ask("/metrics").decode()
        self.assertIn(f'thicket_rebalance_moves_total{{reason="load"}} {len(left)}', metrics)
        # Those that were moved stay for a while, whatever is asked.
        again = self.plan(node, "--dry-run")
        self.assertEqual(again["clients"] - again["movable"], len(left), again)

    def test_older_clients_are_not_moved(self):
        self.crowd("old", 20, version=4)
        plan = self.plan(self.cluster.nodes[0], "--dry-run")
        self.assertEqual((plan["movable"], plan["move_count"]), (0, 0), plan)

    def test_subscribers_and_their_publishers_come_together(self):
        publishers = [self.raw(self.there, f"p{number}", props=EXPIRY) for number in range(12)]
        for number in range(12):
            self.raw(self.here, f"s{number}", props=EXPIRY).subscribe((self.topic(number), 0))

        def gains():
            for number, publisher in enumerate(publishers):
                for _ in range(5):
                    publisher.publish(self.topic(number), b"x")
            plan = self.plan(self.cluster.nodes[0], "--dry-run")
            internal = [plan[when]["internal_messages_per_s"] for when in ("before", "after")]
            return internal[0] > 20 and internal[1] < 0.3 * internal[0]

        wait_until(gains, "a plan that saves internal traffic")

    def test_who_comes_back_is_left_alone(self):
        clients = self.crowd("b", 30)
        node = self.cluster.nodes[0]
        left = self.sent_away(clients, self.plan(node))
        self.assertGreater(len(left), 10)
        for name in left:
            self.come_back(name, self.here)
        plan = self.plan(node, "--dry-run")
        self.assertEqual((plan["clients"], plan["movable"]), (30, 30 - len(left)), plan)
        metrics = node.ask("/metrics").decode()
        self.assertIn(f'thicket_rebalance_outcomes_total{{outcome="ignored"}} {len(left)}', metrics)

    def test_one_node_is_the_rebalancer_and_another_one_when_it_is_gone(self):
        def rebalancers(nodes):
            return [node for node in nodes if "thicket_rebalancer 1" in node.ask("/metrics").decode()]

        wait_until(lambda: len(rebalancers(self.cluster.nodes)) == 1, "a rebalancer")
        first = rebalancers(self.cluster.nodes)[0]
        others = [node for node in self.cluster.nodes if node is not first]
        self.expected_to_die.add(first.name)
        first.kill()
        wait_until(lambda: len(rebalancers(others)) == 1, "another rebalancer")
        report = json.loads(others[0].ask("/v1/rebalance"))
        ids = {entry["name"]: entry["id"] for entry in json.loads(others[0].ask("/v1/nodes"))}
        self.assertEqual(report["rebalancer"], ids[rebalancers(others)[0].name])

    def test_what_cannot_be_read_is_an_error_that_names_it(self):
        node = self.cluster.nodes[0]
        for body, word in ((b'{"dry": true}', b"dry"), (b'{"dry_run": 3}', b"dry_run")):
            url = f"http://127.0.0.1:{node.http_port}/v1/rebalance"
            request = urllib.request.Request(url, body, {"content-type": "application/json"})
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=5)
            with caught.exception as answer:
                self.assertIn(word, answer.read())


class Automatic(RawCases, ThreeNodes):
    """`rebalance = on`: nobody needs to ask."""

    arguments = ("--rebalance", "on", "--rebalance-rest-s", "5")

    def test_clients_are_moved_until_loads_are_even(self):
        clients = {self.client_id(f"a{number}"): self.raw(self.here, f"a{number}", props=EXPIRY) for number in range(300)}
        counts = collections.Counter({self.here: 300})

        def is_even():
            for name, client in list(clients.items()):
                if not select.select([client.socket], [], [], 0)[0]:
                    continue
                port = port_of(client.expect(Kind.DISCONNECT))
                client.close()
                clients[name] = self.raw(port, name.partition("-")[2], clean_start=False, props=EXPIRY)
                self.assertTrue(clients[name].connack.session_present)
                counts[self.here] -= 1
                counts[port] += 1
            return sum(counts.values()) ** 2 > 0.95 * 3 * sum(count**2 for count in counts.values())

        wait_until(is_even, "clients to be moved", 60)

        def has_looked_again():
            is_even()
            entry = json.loads(self.cluster.nodes[0].ask("/v1/rebalance"))
            return entry["plan"] and (entry["plan"]["trigger"], entry["plan"]["move_count"]) == ("moved", 0)

        wait_until(has_looked_again, "a plan after the moves that moves nobody", 60)


if __name__ == "__main__":
    unittest.main()
