"""Clients that connect too often: banned by the node that counted them, from all nodes, until the ban ends or is lifted."""

import pathlib
import re
import subprocess
import tempfile
import unittest

from nodes import BINARY, OneNode, ThreeNodes, free_port, wait_until
from test_bans import BANNED, UsersTest, code_of
from test_cluster_views import ask
from test_operating import ADMINISTRATIVE_ACTION, Ctl
from wire import Kind, RawCases

CONNECTS = 5


class Flapping(Ctl, RawCases, ThreeNodes):
    arguments = ("--workers", "2", "--flapping-connects", str(CONNECTS), "--flapping-window-s", "1h", "--flapping-ban-s", "1h")

    def bans_of(self, name, node=0):
        return [it for it in ask(self.cluster.nodes[node].http_port, "/v1/bans")[1] if it["client_id"] == name]

    def made(self):
        """Bans made, of all nodes."""
        pages = [node.ask("/metrics").decode() for node in self.cluster.nodes]
        return [int(re.search(r"^thicket_flapping_bans_total (\d+)$", page, re.MULTILINE).group(1)) for page in pages]

    def flap(self, port, name, times):
        for _ in range(times):
            self.assertEqual(code_of(port, name), 0)

    def test_a_client_that_connects_too_often_is_banned_from_all_nodes_until_the_ban_is_lifted(self):
        ports = [node.port for node in self.cluster.nodes]
        name, made = self.client_id("flaps"), self.made()
        self.flap(ports[0], name, CONNECTS)
        self.assertEqual(self.bans_of(name), [])
        last = self.raw(ports[0], "flaps")
        self.assertEqual(last.expect(Kind.DISCONNECT).reason_code, ADMINISTRATIVE_ACTION)
        for port in ports:
            wait_until(lambda port=port: code_of(port, name) == BANNED, f"the ban at {port}")
        (ban,) = self.bans_of(name, node=1)
        self.assertEqual((ban["reason"], ban["by"], ban["until_ms"] - ban["since_ms"]), ("flapping", None, 3_600_000))
        self.assertIn("flapping", self.ctl("bans", node=2))
        wait_until(lambda: self.made() == [made[0] + 1, *made[1:]], "the ban to be counted")
        # Others may connect, and so may the client after the ban was lifted, counted anew.
        self.assertEqual(code_of(ports[0], self.client_id("calm")), 0)
        self.ctl("unban", "--client", name, node=1)
        wait_until(lambda: code_of(ports[0], name) == 0, "the ban to be lifted")
        self.flap(ports[0], name, CONNECTS - 1)
        self.assertEqual(self.bans_of(name), [])

    def test_connects_are_counted_of_each_client_and_remembered_with_a_bound(self):
        for number in range(CONNECTS + 3):
            self.flap(self.here, self.client_id(f"calm-{number}"), 1)
        bans = ask(self.cluster.nodes[0].http_port, "/v1/bans")[1]
        self.assertEqual([it for it in bans if "calm" in it["client_id"]], [])
        memory = ask(self.cluster.nodes[0].http_port, "/v1/memory")[1]
        (table,) = [it for it in memory["remembered"] if it["what"] == "clients whose connects are counted"]
        self.assertGreaterEqual(table["entries"], CONNECTS + 3)
        self.assertEqual(table["at_most"], 65_536)
        self.assertIn("clients whose connects are counted", self.ctl("memory"))


class FlappingOfAUser(UsersTest):
    arguments = ("--flapping-connects", "4", "--flapping-window-s", "1h")

    def test_who_flaps_gets_nobody_else_banned(self):
        wait_until(lambda: self.lamp_of("eve") == BANNED, "the client to be banned")
        self.assertEqual((self.lamp_of("ann"), self.connect("eve")), (0, 0))
        (ban,) = ask(self.node.http_port, "/v1/bans")[1]
        self.assertEqual((ban["client_id"], ban["user_name"], ban["reason"]), ("lamp", "eve", "flapping"))
        self.assertEqual((ban["anonymous"], ban["topic_prefix"]), (False, ""))


class FlappingOfStrangers(RawCases, OneNode):
    """Listeners for users, for everybody and for tenants, at one node."""

    @classmethod
    def setUpClass(cls):
        cls.home = tempfile.TemporaryDirectory(prefix="thicket-strangers-")
        cls.addClassCleanup(cls.home.cleanup)
        home = pathlib.Path(cls.home.name)
        made = subprocess.run([BINARY, "passwd", "ann"], input=b"secret\n", capture_output=True, check=True)
        (home / "users").write_bytes(made.stdout)
        cls.users, cls.strangers, cls.tenant = (free_port() for _ in range(3))
        (home / "thicket.toml").write_text(f"""
            workers = 2
            flapping_connects = 3
            flapping_window_s = 3600
            [[listener]]
            address = "127.0.0.1:{cls.users}"
            users = "{home}/users"
            allow_anonymous = false
            [[listener]]
            address = "127.0.0.1:{cls.strangers}"
            allow_anonymous = true
            [[listener]]
            address = "127.0.0.1:{cls.tenant}"
            topic_prefix = "tenant/"
            allow_anonymous = true
        """)
        cls.arguments = ("--config", str(home / "thicket.toml"))
        super().setUpClass()

    def test_a_stranger_who_flaps_bans_no_client_of_a_user_and_none_of_another_tenant(self):
        name = self.client_id("lamp")
        wait_until(lambda: code_of(self.strangers, name) == BANNED, "the stranger to be banned")
        self.assertEqual(code_of(self.users, name, user="ann", password=b"secret"), 0)
        self.assertEqual(code_of(self.tenant, name), 0)
        wait_until(lambda: code_of(self.tenant, name) == BANNED, "the other stranger to be banned")
        bans = [it for it in ask(self.cluster.nodes[0].http_port, "/v1/bans")[1] if it["client_id"] == name]
        self.assertEqual({(it["user_name"], it["anonymous"], it["topic_prefix"]) for it in bans}, {(None, True, ""), (None, True, "tenant/")})
        path = f"/v1/bans?client_id={name}"
        self.assertEqual(ask(self.cluster.nodes[0].http_port, path, "DELETE")[0], 409)
        self.assertEqual(ask(self.cluster.nodes[0].http_port, f"{path}&topic_prefix=tenant/", "DELETE")[0], 200)
        wait_until(lambda: code_of(self.tenant, name) == 0, "the ban to be lifted")
        self.assertEqual(ask(self.cluster.nodes[0].http_port, path, "DELETE")[0], 200)


class FlappingForAMoment(RawCases, OneNode):
    arguments = ("--flapping-connects", "2", "--flapping-window-s", "1h", "--flapping-ban-s", "1")

    def test_a_ban_for_flapping_ends_by_itself(self):
        name = self.client_id("short")
        wait_until(lambda: code_of(self.here, name) == BANNED, "the ban")
        wait_until(lambda: code_of(self.here, name) == 0, "its end")


if __name__ == "__main__":
    unittest.main()
