"""Strangers who leave sessions behind: how many they may have, who is let in when memory is short, and how an operator gets rid of them."""

import contextlib
import json
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from nodes import BINARY, Node, OneNode, ThreeNodes, wait_until
from test_hostile_logins import Stranger
from test_rights import Files, passwd
from wire import NEVER, Closed, Property, RawCases, RawClient, Will

CLIENT_IDENTIFIER_NOT_VALID = 0x85
SERVER_BUSY = 0x89
ADMINISTRATIVE_ACTION = 0x98
QUOTA_EXCEEDED = 0x97
KEPT = ((Property.SESSION_EXPIRY_INTERVAL, NEVER),)


def delete(node, client_id):
    """DELETE of a session: the status."""
    path = f"/v1/sessions/{urllib.parse.quote(client_id, safe='')}"
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}", method="DELETE")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


class Ended:
    """An operator ends sessions."""

    def test_a_session_that_is_ended_is_gone_with_all_that_waited_in_it(self):
        watcher = self.subscriber((self.topic("gone"), 1), role="watcher")
        client_id = self.client_id("kept/with a slash")
        will = Will(self.topic("gone"), b"will")
        client = RawClient(self.here)
        self.addCleanup(client.close)
        client.connect(client_id, clean_start=False, props=KEPT, will=will)
        client.subscribe((self.topic("queue"), 1))
        node = self.cluster.nodes[0]
        self.assertEqual(delete(node, client_id), 200)
        self.assertEqual([one.reason_code for one in client.until_closed()], [ADMINISTRATIVE_ACTION])
        self.assertEqual(watcher.take_message().payload, b"will")
        self.publisher().publish(self.topic("queue"), "too late", qos=1)
        for port in (self.there, self.here):
            with RawClient(port) as back:
                self.assertFalse(back.connect(client_id, clean_start=False).session_present)
        self.assertEqual(delete(node, client_id), 404)

    def test_a_session_whose_client_is_away_can_be_ended_too(self):
        client_id = self.client_id("away")
        with RawClient(self.here) as client:
            client.connect(client_id, clean_start=False, props=KEPT)
            client.subscribe((self.topic("away"), 1))
        node = self.cluster.nodes[0]
        command = [BINARY, "ctl", "kick", client_id, "--api", f"127.0.0.1:{node.http_port}"]

        def kick(*more):
            return subprocess.run([*command, *more], capture_output=True, text=True)

        wait_until(lambda: "no such client" in kick().stderr, "the client to be away")
        self.assertIn("ended the session", kick("--end-session").stdout)
        self.assertIn("no such session", kick("--end-session").stderr)
        with RawClient(self.there) as back:
            self.assertFalse(back.connect(client_id, clean_start=False).session_present)


class EndedOnOneNode(Ended, RawCases, OneNode):
    pass


class EndedAcrossNodes(Ended, RawCases, ThreeNodes):
    """The copy on another node goes as well."""


class Owners(Files):
    """Two users, of whom one uses the client identifier of the other."""

    scope = ()

    @classmethod
    def write_files(cls):
        users = cls.write("users", passwd("ada", "ada") + passwd("eve", "eve"))
        acl = cls.write("acl", "user ada\ntopic #\nuser eve\ntopic #\npattern readwrite devices/%c/#\n")
        cls.arguments = ("--users", users, "--acl", acl, *cls.scope)

    def of(self, user, port, **options):
        """A client with the identifier that both use."""
        client = RawClient(port)
        self.addCleanup(client.close)
        options = {"clean_start": False, "props": KEPT} | options
        client.connack = client.connect(self.client_id("both"), user=user, password=user, **options)
        return client


class OwnSessions(Owners):
    def test_another_user_with_the_same_identifier_has_a_session_of_its_own(self):
        ada = self.of("ada", self.here)
        ada.subscribe((self.topic("secret"), 1))
        ada.close()
        publisher = self.raw(self.there, "publisher", user="ada", password="ada")
        publisher.publish(self.topic("secret"), "for ada", qos=1)
        for port, has_been_here in ((self.there, False), (self.here, True)):
            eve = self.of("eve", port)
            self.assertEqual(eve.connack.session_present, has_been_here, "its own")
            self.assertEqual(eve.ping(), [], "what is not its own")
        # Nor does it end the other one's.
        self.of("eve", self.there, clean_start=True)
        ada = self.of("ada", self.elsewhere)
        self.assertTrue(ada.connack.session_present)
        self.assertEqual(ada.take_message().payload, b"for ada")
        eve = self.of("eve", self.elsewhere)
        self.assertEqual((ada.ping(), eve.ping()), ([], []), "both are connected")

    def test_the_api_tells_them_apart(self):
        for user in ("ada", "eve"):
            self.of(user, self.here)
        node, client_id = self.cluster.nodes[0], self.client_id("both")
        sessions = [entry for entry in json.loads(node.ask("/v1/sessions")) if entry["client_id"] == client_id]
        self.assertEqual(sorted(entry["user_name"] for entry in sessions), ["ada", "eve"])
        command = [BINARY, "ctl", "kick", "--end-session", client_id, "--api", f"127.0.0.1:{node.http_port}"]
        self.assertEqual(subprocess.run([*command, "--user", "eve"], capture_output=True).returncode, 0)
        self.assertNotEqual(subprocess.run([*command, "--user", "eve"], capture_output=True).returncode, 0)
        self.assertTrue(self.of("ada", self.here).connack.session_present)
        self.assertFalse(self.of("eve", self.here).connack.session_present)

    def test_rights_of_an_identifier_hold_after_a_reload(self):
        client = self.of("eve", self.here)
        topic = f"devices/{self.client_id('both')}/up"
        self.assertLess(client.publish(topic, "x", qos=1), 0x80)
        self.write("acl", "pattern readwrite devices/%c/#\n")
        self.reload()
        self.assertLess(client.publish(topic, "x", qos=1), 0x80)
        self.assertEqual(client.publish("elsewhere", "x", qos=1), 0x87)
        self.write("acl", "user ada\ntopic #\nuser eve\ntopic #\npattern readwrite devices/%c/#\n")
        self.reload()


class OwnSessionsOnOneNode(OwnSessions, RawCases, OneNode):
    def test_an_own_session_is_found_after_a_restart(self):
        """The name of a session is what is stored."""
        with tempfile.TemporaryDirectory() as data:
            arguments = (*self.arguments, "--data", data)
            node = Node("kept", (), arguments)
            self.addCleanup(node.log.close)
            self.assertTrue(node.wait_until_ready(1))
            self.of("ada", node.port).close()
            node.stop()
            node = Node("kept", (), arguments)
            self.addCleanup(node.stop)
            self.addCleanup(node.log.close)
            self.assertTrue(node.wait_until_ready(1))
            self.assertFalse(self.of("eve", node.port).connack.session_present)
            self.assertTrue(self.of("ada", node.port).connack.session_present)


class OwnSessionsAcrossNodes(OwnSessions, RawCases, ThreeNodes):
    pass


class SharedSessions(Owners, RawCases, OneNode):
    scope = ("--session-scope", "client")

    def test_where_it_is_asked_for_an_identifier_has_one_session_whosever(self):
        self.of("ada", self.here).close()
        self.assertTrue(self.of("eve", self.here).connack.session_present)


class Bounds(RawCases, OneNode):
    """One thread, so that its bounds are those of the node."""

    arguments = ("--workers", "1", "--address-sessions", "10", "--user-subscription-bytes", "4688")

    def test_client_identifiers_are_bounded(self):
        for length, expected in ((1024, 0), (1025, CLIENT_IDENTIFIER_NOT_VALID)):
            with RawClient(self.here) as client:
                self.assertEqual(client.try_connect("x" * length).reason_code, expected, length)
        with RawClient(self.here, 4) as client:
            self.assertEqual(client.try_connect("x" * 1025).reason_code, 2)

    def test_an_address_has_so_many_sessions_and_no_more(self):
        def stranger(number, address="127.0.0.66", **options):
            with Stranger(self.here, address) as client:
                return client.try_connect(self.client_id(f"left-{number}"), **options).reason_code

        codes = [stranger(number, clean_start=False, props=KEPT) for number in range(15)]
        self.assertEqual(codes, [0] * 10 + [QUOTA_EXCEEDED] * 5)
        self.assertEqual(stranger(3, clean_start=False, props=KEPT), 0, "one that returns")
        self.assertEqual(stranger(20), 0, "one that leaves nothing behind")
        self.assertEqual(stranger(21, "127.0.0.67", clean_start=False, props=KEPT), 0, "from another address")
        self.assertEqual(delete(self.cluster.nodes[0], self.client_id("left-5")), 200)
        self.assertEqual(stranger(22, clean_start=False, props=KEPT), 0, "in the place of one that was ended")
        self.assertEqual(stranger(23, clean_start=False, props=KEPT), QUOTA_EXCEEDED)
        self.assertIn(b'thicket_refused_connections_total{reason="session"} 6', self.cluster.nodes[0].ask("/metrics"))

    def test_an_address_has_so_many_bytes_of_subscriptions_and_no_more(self):
        first, second = Stranger(self.here, "127.0.0.68"), Stranger(self.here, "127.0.0.68")
        self.addCleanup(first.close)
        self.addCleanup(second.close)
        first.connect(self.client_id("first"))
        second.connect(self.client_id("second"))
        long = "x" * 936
        self.assertEqual(first.subscribe((f"a/{long}", 0)).codes, [0])
        self.assertEqual(second.subscribe((f"b/{long[:-5]}", 0), (f"c/{long}", 0)).codes, [0, QUOTA_EXCEEDED])
        self.assertEqual(self.raw(self.here).subscribe((f"c/{long}", 0)).codes, [0], "from another address")
        first.close()
        # What goes with a session is given back.
        wait_until(lambda: second.subscribe((f"c/{long}", 0)).codes == [0], "the place to be free")


    def test_wills_count_as_subscriptions_do(self):
        node = self.cluster.nodes[0]

        def stranger(role, length=None, version=5, **options):
            client = Stranger(self.here, "127.0.0.69", version)
            self.addCleanup(client.close)
            will = None if length is None else Will(self.topic("will"), b"x" * length)
            return client, client.try_connect(self.client_id(role), will=will, **options).reason_code

        kept = {"clean_start": False, "props": KEPT}
        first, code = stranger("first", 2600, **kept)
        self.assertEqual(code, 0)
        total = json.loads(node.ask("/v1/memory"))["total"]
        self.assertEqual(total["wills"], 1)
        self.assertGreater(total["will_bytes"], 2600)
        self.assertEqual(stranger("second", 2600, **kept)[1], QUOTA_EXCEEDED)
        self.assertEqual(stranger("old", 2600, version=4)[1], 3)
        self.assertEqual(first.subscribe((self.topic("a"), 0)).codes, [0])
        self.assertEqual(first.subscribe((self.topic("b"), 0)).codes, [QUOTA_EXCEEDED])
        self.assertEqual(stranger("first", 2700, **kept)[1], 0, "in the place of its own")
        self.assertEqual(stranger("second", **kept)[1], 0, "without a will")
        # A will that its client takes back leaves its place.
        self.assertEqual(stranger("first", **kept)[1], 0)
        self.assertEqual(stranger("second", 2600, **kept)[1], 0)


class BoundsOfUsers(Owners, RawCases, OneNode):
    """One thread, so that its bounds are those of the node."""

    scope = ("--workers", "1", "--user-sessions", "3", "--sessions", "5")

    def test_a_user_has_so_many_sessions_and_the_node_has_so_many(self):
        def stays(user, number, **options):
            options = {"clean_start": False, "props": KEPT} | options
            with RawClient(self.here) as client:
                came = client.try_connect(self.client_id(f"{user}-{number}"), user=user, password=user, **options)
                return came.reason_code

        self.assertEqual([stays("ada", number) for number in range(5)], [0] * 3 + [QUOTA_EXCEEDED] * 2)
        self.assertEqual(stays("ada", 1), 0, "one that returns")
        self.assertEqual(stays("ada", 6, clean_start=True, props=()), 0, "one that leaves nothing behind")
        self.assertEqual([stays("eve", number) for number in range(3)], [0] * 2 + [QUOTA_EXCEEDED], "five in all")
        self.assertEqual(delete(self.cluster.nodes[0], self.client_id("ada-2")), 200)
        self.assertEqual(stays("eve", 2), 0, "in the place of one that was ended")
        self.assertEqual(stays("ada", 2), QUOTA_EXCEEDED)


class QueuesOfOne(RawCases, OneNode):
    """By default one user alone does not make memory short."""

    limit = 160_000_000
    arguments = ("--memory-bytes", str(limit))

    def test_who_fills_the_queues_of_own_sessions_keeps_nobody_out(self):
        node = self.cluster.nodes[0]
        topics = [self.topic(f"hoard/{number}") for number in range(7)]
        for number, topic in enumerate(topics):
            with RawClient(self.here) as client:
                client.connect(self.client_id(f"hoard-{number}"), clean_start=False, props=KEPT)
                client.subscribe((topic, 1))
        hoarder = self.raw(self.here)
        body, sent = "x" * 60_000, 0
        while sent < 1.2 * self.limit:
            for topic in topics:
                hoarder.publish(topic, body, qos=1)
                sent += len(body)
        hoarder.close()
        metrics = node.ask("/metrics")
        self.assertIn(b"thicket_memory_is_short 0", metrics)
        self.assertNotIn(b"thicket_queue_dropped_messages_total 0\n", metrics)
        with RawClient(self.here) as client:
            self.assertEqual(client.try_connect(self.client_id("new"), clean_start=False, props=KEPT).reason_code, 0)


class ShortOfMemory(RawCases, OneNode):
    """As it was without the bounds that would have kept it from happening."""

    arguments = ("--memory-bytes", "120000000", "--client-id-bytes", "65535", "--address-sessions", "0", "--user-sessions", "0")

    def test_those_who_have_a_session_are_let_in_and_an_operator_ends_the_others(self):
        node = self.cluster.nodes[0]
        known = self.client_id("known")
        with RawClient(self.here) as client:
            client.connect(known, clean_start=False, props=KEPT)
        self.fill(node)
        with RawClient(self.here) as client:
            self.assertTrue(client.connect(known, clean_start=False, props=KEPT).session_present)
        with RawClient(self.here) as client:
            self.assertEqual(client.try_connect(self.client_id("new")).reason_code, SERVER_BUSY)
        for session in json.loads(node.ask("/v1/sessions")):
            if len(session["client_id"]) > 1000:
                body = json.dumps({"client_id": session["client_id"], "end_session": True}).encode()
                url = f"http://127.0.0.1:{node.http_port}/v1/kick"
                request = urllib.request.Request(url, body, {"content-type": "application/json"})
                self.assertEqual(urllib.request.urlopen(request, timeout=10).status, 200)

        def lets_in():
            with contextlib.suppress(Closed, OSError), RawClient(self.here) as client:
                return client.try_connect(self.client_id("new")).reason_code == 0
            return False

        wait_until(lets_in, "memory to suffice again")

    def fill(self, node):
        """Sessions with identifiers of 60,000 bytes, until memory is short."""
        for number in range(3000):
            with contextlib.suppress(Closed, OSError), Stranger(self.here) as client:
                came = client.try_connect(f"{number:06}" * 10_000, clean_start=False, props=KEPT)
                if came.reason_code == SERVER_BUSY:
                    return
            if number % 50 == 0 and b"thicket_memory_is_short 1" in node.ask("/metrics"):
                return
        self.fail("memory did not become short")
