"""Bounds of placements: by bytes, of all and of one user, and by what a client may claim."""

import json
import subprocess
import unittest

from nodes import BINARY, ThreeNodes, free_port, wait_until
from test_placement import call
from test_placement_listener import Asking, basic
from test_rights import passwd

TOPICS = 1000
MEMORY = 128 << 20


def topics(user, client):
    return [f"{user}/buildings/{client}/floors/7/sensors/{number:04}/temperature" for number in range(TOPICS)]


class Bytes(Asking):
    """Two users, and memory for placements of 16 MiB."""

    @classmethod
    def write_files(cls):
        cls.placement_port = free_port()
        users = cls.write("users", passwd("ann", "a") + passwd("bob", "b"))
        config = cls.write(
            "thicket.toml",
            f"""
            users = "{users}"
            memory_bytes = {MEMORY}
            placement_listen = "127.0.0.1:{cls.placement_port}"
            """,
        )
        cls.arguments = ("--config", config)

    def remembered(self):
        """The bytes of placements that the node counts."""
        node = self.cluster.nodes[0]
        command = [BINARY, "ctl", "memory", "--json", "--api", f"127.0.0.1:{node.http_port}"]
        shown = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=20).stdout)
        return next(table["bytes"] for table in shown["remembered"] if table["what"] == "placements of clients")

    def place_as(self, user, number):
        asked = {"client_id": f"{user}-{number}", "publish": topics(user, number)}
        return self.request("POST", body=asked, headers=basic(user, user[0]))

    def test_one_user_has_a_quarter_and_what_is_counted_is_what_it_takes(self):
        node = self.cluster.nodes[0]
        self.place_as("ann", "first")
        before = (self.remembered(), node.memory_bytes("VmRSS"))
        answers = [self.place_as("ann", number) for number in range(20)]
        statuses = [status for status, _, _ in answers]
        refused = statuses.index(429)
        self.assertGreater(refused, 2, statuses)
        self.assertEqual(set(statuses[refused:]), {429}, statuses)
        self.assertIn("of this user or address", answers[-1][2]["detail"])
        self.assertEqual(self.place_as("ann", "first")[0], 200, "what one has is renewed")
        status, _, answer = self.place_as("bob", 1)
        self.assertEqual(status, 200, answer)
        counted, taken = (now - then for now, then in zip((self.remembered(), node.memory_bytes("VmRSS")), before, strict=True))
        self.assertLessEqual(self.remembered(), MEMORY // 8)
        print(f"placements: {counted / 2**20:.1f} MiB counted, {taken / 2**20:.1f} MiB more taken by the process")
        # An allocator also uses what it had before.
        self.assertLess(taken, 2 * counted + (2 << 20))
        for number in range(refused):
            self.request("DELETE", f"/ann-{number}", headers=basic("ann", "a"))
        wait_until(lambda: self.place_as("ann", "again")[0] == 200, "room for the same user")

    def test_more_topics_than_a_request_may_have_are_refused(self):
        for count, expected in ((10_000, 200), (10_001, 422)):
            asked = {"client_id": "many", "publish": [f"t{number}" for number in range(count)]}
            status, _, answer = self.request("POST", body=asked, headers=basic("bob", "b"))
            self.assertEqual(status, expected, answer)
        self.assertEqual(answer["field"], "publish")
        self.request("DELETE", "/many", headers=basic("bob", "b"))


class Claims(ThreeNodes):
    def test_a_claim_of_one_client_does_not_send_all_others_elsewhere(self):
        node = self.cluster.nodes[0]

        def place(client_id, topic, rate):
            body = {"client_id": client_id, "publish": [topic], "rates": {topic: rate}, "max_sessions": 1}
            status, _, placed = call(node, "POST", body=body)
            self.assertEqual(status, 200, placed)
            return placed["sessions"][0]["node"]

        loud = place("loud", "loud", 1e9)
        others = [place(f"publisher-{number}", f"topic/{number}", 100) for number in range(60)]
        beside_it = others.count(loud)
        self.assertGreater(beside_it, 5, "they share its node as if it published 1,000 messages a second")


if __name__ == "__main__":
    unittest.main()
