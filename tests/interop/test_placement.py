"""Placements: any node is asked, one at a time answers, all know the answers."""

import json
import unittest
import urllib.error
import urllib.request

from nodes import ThreeNodes, wait_until


def call(node, method, path="", body=None):
    """Status, media type and content of an answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.http_port}/v1/placements{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
            return answer.status, answer.headers["content-type"], json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], json.loads(error.read())


class Placements(ThreeNodes):
    def place(self, node, client_id, **asked):
        status, _, placement = call(node, "POST", body={"client_id": client_id, **asked})
        self.assertEqual(status, 200, placement)
        return placement

    def test_subscribers_come_where_their_topics_are_and_every_node_knows(self):
        nodes = self.cluster.nodes
        where = {}
        for number in range(6):
            topic = f"{self.unique}/t{number}"
            placed = self.place(nodes[number % 3], f"{self.unique}-p{number}", publish=[topic], rates={topic: 10})
            where[topic] = placed["sessions"][0]["node"]
        self.assertEqual(len(set(where.values())), 3, "publishers are spread")
        topics = list(where)[:3]
        placed = self.place(nodes[1], f"{self.unique}-s", subscribe=topics, max_sessions=4)
        for session in placed["sessions"]:
            for topic in session["subscribe"]:
                self.assertEqual(session["node"], where[topic])
            self.assertIn(int(session["address"].rsplit(":", 1)[1]), [node.port for node in nodes])
        names = [session["client_id"] for session in placed["sessions"]]
        self.assertEqual(names, [f"{self.unique}-s"] + [f"{self.unique}-s~{n}" for n in range(2, len(names) + 1)])
        for node in nodes:
            _, _, known = call(node, "GET", f"/{self.unique}-s")
            self.assertEqual(known["sessions"], placed["sessions"])
        again = self.place(nodes[2], f"{self.unique}-s", subscribe=topics, max_sessions=4)
        self.assertEqual(again["sessions"], placed["sessions"], "asking again changes nothing")
        self.assertEqual(call(nodes[0], "DELETE", f"/{self.unique}-s")[0], 204)
        for node in nodes:
            wait_until(lambda n=node: call(n, "GET", f"/{self.unique}-s")[0] == 404, "it to be forgotten")

    def test_what_is_no_good_is_named(self):
        node = self.cluster.nodes[0]
        for body, field in (
            ({"client_id": "c", "max_sessions": 0}, "max_sessions"),
            ({"client_id": "c", "subscribe": ["a", "b/#/c"]}, "subscribe[1]"),
            ({"client_id": "c", "publish": ["a"], "rates": {"b": 1}}, 'rates["b"]'),
            ({"client_id": ""}, "client_id"),
        ):
            status, kind, problem = call(node, "POST", body=body)
            self.assertEqual((status, kind, problem["field"]), (422, "application/problem+json", field))
        status, kind, problem = call(node, "POST", body={"client_id": "c", "topics": []})
        self.assertEqual((status, kind), (422, "application/problem+json"))
        self.assertIn("topics", problem["detail"])
        self.assertEqual(call(node, "GET", "/c")[0], 404)


class Deaths(ThreeNodes):
    def test_the_next_request_is_answered_when_any_node_dies(self):
        """One of the three is the placer, whichever; sessions at nodes that are there stay."""
        first, second, third = self.cluster.nodes
        for number in range(30):
            body = {"client_id": f"c{number}", "publish": [f"t{number}"], "subscribe": [f"t{(number + 1) % 30}"]}
            self.assertEqual(call(second, "POST", body=body)[0], 200)
        before = {one["client_id"]: one for one in call(second, "GET")[2]}
        self.assertEqual(len(before), 30)
        for gone, left in ((first, 2), (third, 1)):
            self.expected_to_die.add(gone.name)
            gone.kill()
            wait_until(lambda left=left: second.sees() == left, "the node to be missed")
            for number in range(30):
                body = {"client_id": f"c{number}", "publish": [f"t{number}"], "subscribe": [f"t{(number + 1) % 30}"]}
                status, _, placement = call(second, "POST", body=body)
                self.assertEqual(status, 200, placement)
        self.assertEqual({session["address"] for one in call(second, "GET")[2] for session in one["sessions"]},
                         {f"127.0.0.1:{second.port}"})


if __name__ == "__main__":
    unittest.main()
