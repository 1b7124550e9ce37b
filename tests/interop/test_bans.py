"""The ban list: by identifier, user and address, at all nodes, for a time, over a restart, and who may."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

from nodes import BINARY, Node, ThreeNodes, free_port, wait_until
from test_cluster_views import ask
from test_operating import ADMINISTRATIVE_ACTION, Ctl
from test_page import EYE, ROOT, PageTest
from wire import Kind, RawCases, RawClient

BANNED = 0x8A
NOT_AUTHORIZED_V311 = 5


def code_of(port, client_id, version=5, **options):
    """The reason code that a CONNECT is answered with."""
    with RawClient(port, version) as client:
        return client.try_connect(client_id, **options).reason_code


class Bans(Ctl, RawCases, ThreeNodes):
    arguments = ("--workers", "2")

    def ports(self):
        return [node.port for node in self.cluster.nodes]

    def bans(self, node=0):
        status, bans = ask(self.cluster.nodes[node].http_port, "/v1/bans")
        self.assertEqual(status, 200)
        return bans

    def until_all(self, client_id, code, **options):
        """All nodes answer a CONNECT with this code."""
        for port in self.ports():
            wait_until(lambda port=port: code_of(port, client_id, **options) == code, f"{code:#x} at {port}")

    def test_a_client_is_banned_from_all_nodes_until_the_ban_is_lifted(self):
        name = self.client_id("bad")
        client = self.raw(self.ports()[2], "bad")
        self.assertIn(f"client {name}", self.ctl("ban", "--client", name, "--reason", "too loud"))
        self.assertEqual(client.expect(Kind.DISCONNECT).reason_code, ADMINISTRATIVE_ACTION)
        client.until_closed()
        self.until_all(name, BANNED)
        self.until_all(name, NOT_AUTHORIZED_V311, version=4)
        self.assertEqual(code_of(self.ports()[0], self.client_id("good")), 0)
        for node in range(3):
            (ban,) = [it for it in self.bans(node) if it["client_id"] == name]
            self.assertEqual((ban["reason"], ban["until_ms"], ban["user_name"]), ("too loud", None, None))
            self.assertIn("too loud", self.ctl("bans", node=node))
        self.ctl("unban", "--client", name, node=1)
        self.until_all(name, 0)
        self.assertNotIn(name, self.ctl("bans"))

    def test_a_ban_ends_by_itself(self):
        name = self.client_id("short")
        status, ban = ask(self.cluster.nodes[0].http_port, "/v1/bans", "POST", {"client_id": name, "seconds": 2})
        self.assertEqual(status, 200)
        self.assertEqual(ban["until_ms"] - ban["since_ms"], 2000)
        self.until_all(name, 0)
        wait_until(lambda: name not in str(self.bans(1)), "the ban to leave the list")

    def test_a_ban_takes_a_time_with_a_unit(self):
        name = self.client_id("units")
        for argument, milliseconds in (("--for=2h", 7_200_000), ("--seconds=90", 90_000), ("--seconds=15min", 900_000)):
            self.ctl("ban", "--client", name, argument)
            (ban,) = [it for it in self.bans() if it["client_id"] == name]
            self.assertEqual(ban["until_ms"] - ban["since_ms"], milliseconds)
        for bad in ("soon", "1y", "0", "500ms"):
            api = f"127.0.0.1:{self.cluster.nodes[0].http_port}"
            done = subprocess.run([BINARY, "ctl", "--api", api, "ban", "--client", name, "--for", bad], capture_output=True, check=False, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("expected", done.stderr)
            self.assertIn("--for <TIME>", done.stderr)
        self.ctl("unban", "--client", name)

    def test_bans_are_hidden_from_clients_and_are_no_retained_messages(self):
        name = self.client_id("hidden/+/#")
        self.ctl("ban", "--client", name)
        status, page = ask(self.cluster.nodes[0].http_port, "/v1/retained?limit=1000")
        self.assertEqual((status, [it for it in page["messages"] if it["topic"].startswith("$thicket")]), (200, []))
        client = self.raw(self.ports()[1], "curious")
        self.assertEqual(client.subscribe(("$thicket/#", 0)).codes, [0x87])
        self.assertEqual(client.publish("$thicket/bans/client/00", b"{}", qos=1, retain=True), 0x87)
        self.ctl("unban", "--client", name)

    def test_what_cannot_be_banned_is_refused_in_words(self):
        port = self.cluster.nodes[0].http_port
        for field, words, body in (
            (None, "expected one of", {}),
            (None, "expected one of", {"client_id": "a", "address": "192.0.2.1"}),
            ("user_name", "not empty", {"user_name": ""}),
            ("user_name", "not empty", {"client_id": "a", "user_name": ""}),
            ("client_id", "not empty", {"client_id": "", "user_name": "a"}),
            ("seconds", "expected 1 to 4294967295", {"client_id": "a", "seconds": 0}),
            ("seconds", "expected 1 to 4294967295", {"client_id": "a", "seconds": 1 << 32}),
            ("reason", "at most 1024 bytes", {"client_id": "a", "reason": "x" * 1025}),
            ("address", "address", {"address": "here"}),
            ("colour", "colour", {"client_id": "a", "colour": "red"}),
        ):
            status, answer = ask(port, "/v1/bans", "POST", body)
            self.assertEqual((status, answer["field"]), (422, field), body)
            self.assertIn(words, answer["error"])
        status, answer = ask(port, "/v1/bans?client_id=nobody", "DELETE")
        self.assertEqual((status, answer["error"]), (404, "client nobody is not banned"))
        self.assertEqual(ask(port, "/v1/bans", "DELETE")[0], 400)


class UsersTest(unittest.TestCase):
    """A node with the users ann and eve."""

    arguments = ()

    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="thicket-bans-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.users = self.home / "users"
        for name in ("ann", "eve"):
            made = subprocess.run([BINARY, "passwd", name], input=b"secret\n", capture_output=True, check=True)
            with self.users.open("ab") as file:
                file.write(made.stdout)
        self.ports = free_port(), free_port()
        self.start()

    def start(self):
        arguments = ("--workers", "2", "--users", str(self.users), "--data", str(self.home / "data"), *self.arguments)
        self.node = Node("node-1", (), arguments, ports=self.ports)
        self.addCleanup(self.node.log.close)
        self.addCleanup(self.node.stop)
        wait_until(lambda: self.node.ask("/v1/health/ready") is not None, "the node to be ready")

    def connect(self, user, password=b"secret"):
        return code_of(self.node.port, f"of-{user}", user=user, password=password)

    def lamp_of(self, user):
        return code_of(self.node.port, "lamp", user=user, password=b"secret")


class BansOfUsersAndAddresses(UsersTest):
    def test_a_user_is_banned_also_after_a_restart(self):
        with RawClient(self.node.port) as client:
            client.connect("of-eve", user="eve", password=b"secret")
            self.assertEqual(ask(self.node.http_port, "/v1/bans", "POST", {"user_name": "eve"})[0], 200)
            self.assertEqual(client.expect(Kind.DISCONNECT).reason_code, ADMINISTRATIVE_ACTION)
        wait_until(lambda: self.connect("eve") == BANNED, "the user to be banned")
        self.assertEqual(self.connect("ann"), 0)
        # Nobody learns that a user is banned who does not know its password.
        self.assertEqual(self.connect("eve", b"wrong"), 0x86)
        self.node.stop()
        self.start()
        self.assertEqual((self.connect("eve"), self.connect("ann")), (BANNED, 0))
        self.assertIn('thicket_connects_refused_total{reason="banned"} 1', self.node.ask("/metrics").decode())

    def test_a_client_is_banned_of_one_user_alone(self):
        api = ("--api", f"127.0.0.1:{self.node.http_port}")
        whom = ("--client", "lamp", "--user", "eve")
        made = subprocess.run([BINARY, "ctl", *api, "ban", *whom], capture_output=True, check=True, text=True)
        self.assertEqual(made.stdout, "banned client lamp of user eve\n")
        wait_until(lambda: self.lamp_of("eve") == BANNED, "the client to be banned")
        self.assertEqual((self.lamp_of("ann"), self.connect("eve")), (0, 0))
        subprocess.run([BINARY, "ctl", *api, "unban", *whom], capture_output=True, check=True)
        wait_until(lambda: self.lamp_of("eve") == 0, "the ban to be lifted")

    def test_an_address_is_banned(self):
        body = {"address": "::ffff:127.0.0.1"}
        status, ban = ask(self.node.http_port, "/v1/bans", "POST", body)
        self.assertEqual((status, ban["address"]), (200, "127.0.0.1"))
        wait_until(lambda: self.connect("ann") == BANNED, "the address to be banned")
        self.assertEqual(ask(self.node.http_port, "/v1/bans?address=127.0.0.1", "DELETE")[0], 200)
        wait_until(lambda: self.connect("ann") == 0, "the ban to be lifted")


class BansWithUsersOfTheApi(PageTest):
    def test_bans_take_an_admin_and_say_who_made_them(self):
        port = self.nodes[0].http_port
        body = {"client_id": "bad"}
        self.assertEqual(ask(port, "/v1/bans", "POST", body, EYE)[0], 403)
        self.assertEqual(ask(port, "/v1/bans", "POST", body, ROOT)[0], 200)
        status, (ban,) = ask(port, "/v1/bans", user=EYE)
        self.assertEqual((status, ban["client_id"], ban["by"]), (200, "bad", ROOT[0]))
        self.assertEqual(ask(port, "/v1/audit", user=EYE)[1][-1]["subject"], "client bad")
        self.assertEqual(ask(port, "/v1/bans?client_id=bad", "DELETE", user=EYE)[0], 403)
        self.assertEqual(ask(port, "/v1/bans?client_id=bad", "DELETE", user=ROOT)[0], 200)
