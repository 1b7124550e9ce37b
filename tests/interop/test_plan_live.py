"""The planner records a running cluster, and says what to do with its nodes."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

from nodes import BINARY, ThreeNodes, wait_until
from wire import RawCases, RawClient


def plan(*arguments):
    """Standard output of a run that must succeed, as objects."""
    ran = subprocess.run([BINARY, "plan", *arguments, "--json"], check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        raise AssertionError(ran.stderr)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def placed_clients(node):
    """Of the cluster, as the metrics of a node count them."""
    found = re.search(r"^thicket_placements (\d+)$", node.ask("/metrics").decode(), re.MULTILINE)
    return int(found[1])


def ask(node, path, method="GET", body=None):
    """Status and content of an answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


class Live(RawCases, ThreeNodes):
    def connect(self, node, client_id, **options):
        client = RawClient(node.port, 5)
        self.addCleanup(client.close)
        return client, client.try_connect(client_id, **options)

    def save(self, *arguments):
        """The lines of a recording of this cluster."""
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "recording.jsonl"
            api = f"127.0.0.1:{self.cluster.nodes[0].http_port}"
            plan("replay", "--from", "live", "--api", api, "--save", str(path), *arguments)
            return [json.loads(line) for line in path.read_text().splitlines()]

    def test_a_recording_has_all_sessions_their_filters_and_the_rates_of_topics(self):
        first, second, third = self.cluster.nodes
        topic = f"{self.unique}/t"
        for node, name, filters in ((second, "s1", [topic, f"{self.unique}/+"]), (third, "s2", [topic])):
            client, _ = self.connect(node, self.client_id(name))
            for filter_ in filters:
                client.subscribe((filter_, 0))
        publisher, _ = self.connect(first, self.client_id("p"))

        def is_known():
            for _ in range(50):
                publisher.publish(topic, b"x")
            entries = json.loads(third.ask("/v1/topics"))
            return any(entry["topic"] == topic for entry in entries)

        wait_until(is_known, "the topic to be known everywhere")
        cluster, *clients = self.save()
        self.assertEqual(sorted(cluster["cluster"]["nodes"]), ["node-1", "node-2", "node-3"])
        self.assertEqual(cluster["cluster"]["message_bytes"], 1.0)
        clients = {one["client"]: one for one in clients}
        self.assertEqual(clients[self.client_id("s1")]["nodes"], {topic: "node-2", f"{self.unique}/+": "node-2"})
        self.assertEqual(clients[self.client_id("s2")]["subscribe"], [topic])
        publishers = clients[f"publishers of {topic} at node-1"]
        self.assertGreater(publishers["rates"][topic], 0)

        hidden = json.dumps(self.save("--anonymous"))
        self.assertNotIn(self.client_id("s1"), hidden)
        self.assertIn(topic, hidden)
        self.assertNotIn(self.unique, json.dumps(self.save("--anonymous=all")))

        api = f"127.0.0.1:{second.http_port}"
        rows = {row["change"]: row for row in plan("advise", "--from", "live", "--api", api)}
        self.assertEqual(
            list(rows), ["now", "rebalance", "add", "remove node-1", "remove node-2", "remove node-3"]
        )
        now, better = rows["now"], rows["rebalance"]
        self.assertGreater(now["internal_msgs_per_s"], 0)
        self.assertLess(better["internal_msgs_per_s"], now["internal_msgs_per_s"])
        self.assertEqual(better["moves"], len(better["relocations"]))
        deaths = plan("advise", "--from", "live", "--api", api, "--deaths")
        self.assertEqual([row["node_count"] for row in deaths], [3, 2, 2, 2])

    def test_pages_follow_each_other_to_the_end(self):
        node = self.cluster.nodes[1]
        names = [self.client_id(f"page{number}") for number in range(7)]
        for name in names:
            self.connect(node, name)
        found, path = [], "/v1/recording?limit=2"
        while path:
            status, page = ask(node, path)
            self.assertEqual(status, 200)
            self.assertLessEqual(len(page["sessions"]), 2)
            found += [session["client_id"] for session in page["sessions"]]
            after = page["next"]
            path = after and f"/v1/recording?limit=2&after={urllib.parse.quote(after, safe='')}"
        self.assertEqual(len(found), len(set(found)))
        self.assertLessEqual(set(names), set(found))
        for bad in ("0", "1001", "x"):
            status, problem = ask(node, f"/v1/recording?limit={bad}")
            self.assertEqual(status, 400)
            self.assertIn("`limit`", problem["error"])

    def test_sessions_of_a_placed_client_are_one_client_and_those_of_a_stranger_are_not(self):
        nodes = self.cluster.nodes
        topics = [f"{self.unique}/k{number}" for number in range(3)]
        for number, topic in enumerate(topics):
            body = {"client_id": self.client_id(f"kp{number}"), "publish": [topic], "rates": {topic: 10}}
            self.assertEqual(ask(nodes[0], "/v1/placements", "POST", body)[0], 200)
        for node in nodes:
            wait_until(lambda node=node: placed_clients(node) >= len(topics), "a node knows all placements")
        name = self.client_id("k")
        by_id = {entry["id"]: entry["name"] for entry in json.loads(nodes[0].ask("/v1/nodes"))}
        body = {"client_id": name, "subscribe": topics, "max_sessions": 4}
        status, placed = ask(nodes[0], "/v1/placements", "POST", body)
        self.assertEqual(status, 200)
        self.assertGreater(len(placed["sessions"]), 1, "publishers are spread")
        for node in nodes:
            wait_until(lambda node=node: ask(node, f"/v1/placements/{name}")[0] == 200, "a node knows the placement of the client too")
        for session in placed["sessions"]:
            node = next(node for node in nodes if node.name == by_id[session["node"]])
            client, _ = self.connect(node, session["client_id"])
            for topic in session["subscribe"]:
                client.subscribe((topic, 0))
        stranger = self.client_id("z")
        self.connect(nodes[0], f"{stranger}~2")
        clients = {one["client"]: one for one in self.save()[1:]}
        self.assertEqual(sorted(clients[name]["subscribe"]), topics)
        self.assertNotIn(f"{name}~2", clients)
        self.assertIn(f"{stranger}~2", clients)

        second = placed["sessions"][1]
        node = next(node for node in nodes if node.name == by_id[second["node"]])
        explained = ask(node, f"/v1/explain?client_id={second['client_id']}")[1]
        self.assertEqual((explained["placed_client_id"], explained["placed_session"]), (name, 2))
        self.assertEqual(
            [session["client_id"] for session in explained["placed_sessions"]],
            [session["client_id"] for session in placed["sessions"]],
        )
        explained = ask(nodes[0], f"/v1/explain?client_id={stranger}~2")[1]
        self.assertEqual((explained["placed_client_id"], explained["placed_sessions"]), (None, []))
        self.assertEqual(ask(node, f"/v1/sessions/{name}", "DELETE")[0], 200)
        left = [session["client_id"] for session in json.loads(node.ask("/v1/sessions"))]
        self.assertNotIn(second["client_id"], left)
        self.assertEqual(ask(nodes[0], f"/v1/sessions/{stranger}", "DELETE")[0], 404)

    def test_a_node_that_cannot_be_asked_is_named(self):
        ran = subprocess.run(
            [BINARY, "plan", "advise", "--from", "live", "--api", "127.0.0.1:1"],
            check=False,
            capture_output=True,
            text=True,
        )
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("127.0.0.1:1", ran.stderr)


if __name__ == "__main__":
    unittest.main()
