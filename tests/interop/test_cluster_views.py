"""Any node answers for the cluster: clients, subscribers, kicks and requests that are handed on to another node."""

import base64
import http.client
import json
import select
import signal
import subprocess
import tempfile
import unittest
import urllib.parse

from nodes import BINARY, Node, ThreeNodes, wait_until
from test_hostile_links import fresh_secret
from test_operating import ADMINISTRATIVE_ACTION, Ctl
from test_page import EYE, ROOT, PageTest
from wire import Kind, Property, RawCases, RawClient


def ask(port, path, method="GET", body=None, user=None, source="127.0.0.1", more=()):
    """Status and what was answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(source, 0))
    headers = {"content-type": "application/json"} if body is not None else {}
    headers |= dict(more)
    if user:
        headers["authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(text) if text else None


class ClusterViews(Ctl, RawCases, ThreeNodes):
    arguments = ("--workers", "2")

    def at(self, node):
        return self.cluster.nodes[node]

    def page(self, path, asked=0, **query):
        status, page = ask(self.at(asked).http_port, f"{path}?{urllib.parse.urlencode(query)}")
        self.assertEqual(status, 200, page)
        self.assertEqual(page["unanswered"], [])
        return page

    def clients(self, asked=0, **query):
        return self.page("/v1/clients", asked, **query)["clients"]

    def test_clients_of_all_nodes_are_found_at_any_node(self):
        names = [self.client_id(f"view-{number}") for number in range(6)]
        for number in range(6):
            self.raw(self.at(number % 3).port, f"view-{number}")
        for node in range(3):
            found = self.clients(node, search=self.client_id("view-"))
            self.assertEqual([it["client_id"] for it in found], names)
            self.assertEqual([it["node"] for it in found], [self.at(number % 3).name for number in range(6)])
        for node in range(3):
            (found,) = self.clients(node, client_id=names[4])
            self.assertEqual((found["node"], found["connected"]), (self.at(1).name, True))
        here = self.clients(0, search=self.client_id("view-"), node=self.at(2).name)
        own = self.clients(2, search=self.client_id("view-"), node=self.at(2).name)
        for found in (here, own):
            self.assertEqual([it["client_id"] for it in found], [names[2], names[5]])
        self.assertEqual(self.clients(0, client_id=names[0], address="192.0.2.1"), [])
        self.assertEqual(len(self.clients(1, client_id=names[0], address="127.0.0.1")), 1)
        self.assertEqual(self.clients(0, client_id=names[0], user="nobody"), [])

    def test_explain_says_which_node_has_a_client(self):
        name = self.client_id("explained")
        self.raw(self.at(1).port, "explained")
        self.assertIn(f"{name}: its session is on this node", self.ctl("explain", "client", name, node=1))
        self.assertIn(f"{name}: its session is on {self.at(1).name}", self.ctl("explain", "client", name, node=0))
        self.assertIn("nobody-here: no node has a session of this client", self.ctl("explain", "client", "nobody-here", node=0))

    def test_a_trace_shows_a_client_at_whichever_node_it_is(self):
        watched = self.raw(self.at(1).port, "watched")
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{self.at(0).http_port}", "trace", self.client_id("watched"), "-C", "2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tracing:
            self.addCleanup(tracing.kill)

            def is_shown():
                # Until the trace has begun, what is sent is not seen.
                watched.ping()
                return tracing.poll() is not None

            wait_until(is_shown, "two lines")
            lines = tracing.stdout.read().splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertEqual(line.split()[:2], [self.at(1).name, self.client_id("watched")])

    def test_tables_fit_a_terminal_unless_all_columns_are_asked_for(self):
        for node in range(2):
            self.raw(self.at(node).port, f"shown-{node}")
        for command, hidden in (("nodes", "KEY"), ("sessions", "PEER"), ("clients", "DROPPED")):
            narrow, wide = self.ctl(command), self.ctl(command, "--wide")
            self.assertNotIn(hidden, narrow.splitlines()[0])
            self.assertIn(hidden, wide.splitlines()[0])
            self.assertLessEqual(len(narrow.splitlines()[0]), 100)
            self.assertEqual(len(narrow.splitlines()), len(wide.splitlines()))

    def test_pages_of_all_nodes_hold_every_client_once(self):
        roles = [f"paged-{number:02}" for number in range(17)]
        for number, role in enumerate(roles):
            self.raw(self.at(number * 7 % 3).port, role)
        found, query = [], {"search": self.client_id("paged-"), "limit": 4}
        while True:
            page = self.page("/v1/clients", 1, **query)
            self.assertLessEqual(len(page["clients"]), 4)
            found += [it["client_id"] for it in page["clients"]]
            if page["next"] is None:
                break
            query["after"] = page["next"]
        self.assertEqual(found, [self.client_id(role) for role in roles])

    def test_the_slowest_client_comes_first_wherever_it_is(self):
        topic = self.topic("slow")
        slow = self.keeper(self.at(2).port, "slow")
        slow.subscribe((topic, 1))
        slow.close()
        other = self.raw(self.at(1).port, "publisher")
        for _ in range(5):
            other.publish(topic, b"x" * 1000, qos=1)
        first = self.client_id("slow")

        def leads(order):
            clients = self.clients(0, order=order, limit=1)
            return clients[0]["client_id"] == first and clients[0]["queued_messages"] == 5

        for order in ("waiting", "oldest"):
            wait_until(lambda order=order: leads(order), f"the slow client to be first by {order}")
        (entry,) = self.clients(0, order="oldest", limit=1)
        self.assertIsInstance(entry["oldest_queued_ms"], int)
        self.assertEqual(entry["node"], self.at(2).name)
        table = self.ctl("clients", "--order", "oldest", "--limit", "1")
        self.assertIn(first, table)
        self.assertIn(self.at(2).name, table)

    def test_the_client_with_most_messages_comes_first(self):
        busy = self.raw(self.at(1).port, "busy")
        for _ in range(300):
            busy.publish(self.topic("busy"), b"x", qos=1)
        (first,) = self.clients(2, order="rate", limit=1)
        self.assertEqual(first["client_id"], self.client_id("busy"))
        self.assertGreater(first["messages_per_s"], 0)

    def test_subscribers_of_a_topic_are_found_on_all_nodes(self):
        for number, filter in enumerate((self.topic("a/+"), self.topic("a/b"), self.topic("c"))):
            self.raw(self.at(number).port, f"sub-{number}").subscribe((filter, 1))
        found = self.page("/v1/subscribers", 2, topic=self.topic("a/b"))["subscribers"]
        nodes = {it["client_id"]: it["node"] for it in found}
        self.assertEqual(nodes, {self.client_id(f"sub-{number}"): self.at(number).name for number in range(2)})
        (one,) = self.page("/v1/subscribers", 0, filter=self.topic("c"))["subscribers"]
        self.assertEqual((one["client_id"], one["qos"]), (self.client_id("sub-2"), 1))
        self.assertIn(self.client_id("sub-1"), self.ctl("subscribers", "--topic", self.topic("a/b")))

    def test_a_topic_with_wildcards_and_a_malformed_filter_are_refused(self):
        for parameter, text, words in (
            ("topic", "a/#", "wildcard"),
            ("topic", "", "empty"),
            ("filter", "a/#/b", "last level"),
            ("filter", "$share//a", "share"),
        ):
            with self.subTest(parameter=parameter, text=text):
                query = urllib.parse.urlencode({parameter: text})
                status, answer = ask(self.at(0).http_port, f"/v1/subscribers?{query}")
                self.assertEqual((status, answer["field"]), (400, parameter))
                self.assertIn(words, answer["detail"])

    def test_a_client_is_kicked_at_whichever_node_it_is(self):
        client = self.keeper(self.at(2).port, "kicked")
        self.assertIn("ended the connection", self.ctl("kick", self.client_id("kicked")))
        self.assertEqual(client.expect(Kind.DISCONNECT).reason_code, ADMINISTRATIVE_ACTION)
        port = self.at(1).http_port
        body = {"client_id": self.client_id("kicked")}
        status, words = ask(port, "/v1/kick", "POST", body)
        self.assertEqual((status, words["error"]), (404, "no such client is connected to any node"))
        status, _ = ask(port, "/v1/kick", "POST", body | {"end_session": True})
        self.assertEqual(status, 200)
        self.assertEqual(self.clients(0, client_id=self.client_id("kicked")), [])

    def test_what_names_a_node_is_answered_by_it(self):
        for asked in range(3):
            for named in range(3):
                port = self.at(asked).http_port
                name = self.at(named).name
                status, nodes = ask(port, f"/v1/nodes?node={name}")
                self.assertEqual((status, [it["name"] for it in nodes if it["is_self"]]), (200, [name]))
        status, words = ask(self.at(0).http_port, "/v1/nodes?node=nobody")
        self.assertEqual(status, 404)
        self.assertIn("nobody", words["error"])
        self.assertIn("sessions", self.ctl("memory", "--node", self.at(1).name).lower())

    def test_bad_queries_are_refused_in_words(self):
        for query, words in (
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("order=size", "order"),
            ("address=here", "address"),
            ("colour=red", "colour"),
            ("order=rate&after=a", "after"),
        ):
            status, answer = ask(self.at(0).http_port, f"/v1/clients?{query}")
            self.assertEqual(status, 400, query)
            self.assertIn(words, answer["error"])


class ClusterViewsWithUsers(PageTest):
    size = 2

    def test_rights_at_the_other_node_are_those_of_who_asks(self):
        client = RawClient(self.nodes[1].port)
        self.addCleanup(client.close)
        client.connect("there")
        port = self.nodes[0].http_port
        wait_until(lambda: ask(port, "/v1/clients", user=EYE)[1]["clients"], "the client to be seen from the other node")
        status, page = ask(port, "/v1/clients", user=EYE)
        self.assertEqual((status, page["unanswered"]), (200, []))
        self.assertEqual([it["node"] for it in page["clients"]], ["node-2"])
        body = {"client_id": "there"}
        for path in ("/v1/kick", "/v1/kick?node=node-2"):
            self.assertEqual(ask(port, path, "POST", body, EYE)[0], 403)
        self.assertEqual(ask(port, "/v1/clients?node=node-2")[0], 401)
        self.assertEqual(ask(port, "/v1/kick", "POST", body, ROOT)[0], 200)
        status, changes = ask(port, "/v1/audit?node=node-2", user=EYE)
        self.assertEqual((status, changes[-1]["user"], changes[-1]["subject"]), (200, "root", "there"))


    def test_a_node_without_the_user_is_named_with_the_reason(self):
        users = self.home / "users"
        with_root = users.read_text()
        users.write_text("".join(line for line in with_root.splitlines(True) if " root:" not in line))
        self.addCleanup(users.write_text, with_root)
        self.assertEqual(ask(self.nodes[1].http_port, "/v1/reload", "POST", {}, ROOT)[0], 200)
        words = "the credentials are not valid (401): http_users and http_tokens must be the same on all nodes"
        status, answer = ask(self.nodes[0].http_port, "/v1/nodes?node=node-2", user=ROOT)
        self.assertEqual(status, 502)
        self.assertIn(words, answer["error"])
        status, page = ask(self.nodes[0].http_port, "/v1/clients", user=ROOT)
        self.assertEqual([it["node"] for it in page["unanswered"]], ["node-2"])
        self.assertIn(words, page["unanswered"][0]["why"])


class NodesThatEnd(RawCases, ThreeNodes):
    def test_a_node_that_is_down_is_named_and_not_waited_for(self):
        """A node that stands still accepts connections to its API and answers none."""
        here, *_, still = self.cluster.nodes
        self.addCleanup(still.process.send_signal, signal.SIGCONT)
        still.process.send_signal(signal.SIGSTOP)
        # Whether the request comes before the others have noticed or afterwards.
        for _ in range(2):
            status, page = ask(here.http_port, "/v1/clients")
            self.assertEqual(status, 200)
            self.assertEqual([(it["node"], it["why"]) for it in page["unanswered"]], [(still.name, "it is down")])
            wait_until(lambda: here.sees() == 2, "the others to notice")
        self.assertEqual(ask(here.http_port, f"/v1/nodes?node={still.name}")[0], 404)
        still.process.send_signal(signal.SIGCONT)
        wait_until(lambda: here.sees() == 3, "it to be back")
        self.assertEqual(ask(here.http_port, "/v1/clients")[1]["unanswered"], [])

    def test_a_trace_goes_on_without_a_node_that_is_killed(self):
        topic = self.topic("traced")
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}", "trace", "--topic", topic, "-C", "2"]
        victim = self.cluster.nodes[2]
        self.expected_to_die.add(victim.name)
        publisher = self.raw(self.cluster.nodes[1].port, "publisher")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tracing:
            self.addCleanup(tracing.kill)
            # Until the trace has begun, what is sent is not seen.
            shown = []

            def sees_one():
                publisher.publish(topic, b"x", qos=1)
                return select.select([tracing.stdout], [], [], 0.1)[0]

            wait_until(sees_one, "a first line")
            victim.kill()
            self.assertIn(f"packets of {victim.name} are no longer shown", tracing.stderr.readline())
            publisher.publish(topic, b"x", qos=1)
            shown = tracing.stdout.read().splitlines()
            self.assertEqual((tracing.wait(), len(shown)), (0, 2))


class AgesOfQueues(unittest.TestCase):
    """How long the first message of a queue has waited, after its primary is down or was started again."""

    def start(self, *arguments, **more):
        node = Node(arguments=("--workers", "1", *arguments), **more)
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        return node

    def queue(self, node):
        with RawClient(node.port) as keeper:
            keeper.connect("keeper", props=((Property.SESSION_EXPIRY_INTERVAL, 600),))
            keeper.subscribe(("q/#", 1))
        with RawClient(node.port) as publisher:
            publisher.connect("publisher")
            publisher.publish("q/1", b"x", qos=1)

    def oldest(self, node):
        """Milliseconds; None: there is no such session, or it does not say."""
        _, page = ask(node.http_port, "/v1/clients?client_id=keeper")
        entries = [it for it in page["clients"] if it["queued_messages"] == 1]
        return entries[0]["oldest_queued_ms"] if entries else None

    def test_a_backup_that_is_promoted_knows_since_when_messages_wait(self):
        first = self.start(name="node-1", seeds=[])
        second = self.start(name="node-2", seeds=[first.port])
        for node in (first, second):
            self.assertTrue(node.wait_until_ready(2), node.log_from(0))
        self.queue(first)
        wait_until(lambda: (self.oldest(first) or 0) >= 2000, "the message to wait for two seconds")
        first.kill()
        wait_until(lambda: second.sees() == 1 and self.oldest(second) is not None, "the failover")
        self.assertGreaterEqual(self.oldest(second), 2000)

    def test_after_a_restart_messages_have_waited_since_then_at_least(self):
        with tempfile.TemporaryDirectory() as data:
            node = self.start("--data", data, name="node-1", seeds=[])
            self.assertTrue(node.wait_until_ready(1), node.log_from(0))
            self.queue(node)
            node.stop()
            node = self.start("--data", data, name="node-1", seeds=[])
            self.assertTrue(node.wait_until_ready(1), node.log_from(0))
            self.assertIsInstance(self.oldest(node), int)
            before = self.oldest(node)
            wait_until(lambda: self.oldest(node) > before, "the age to grow")
            node.stop()


class AuditOfRelayedChanges(PageTest):
    size = 2
    OPERATOR = "127.0.0.9"

    def arguments(self):
        secret = self.home / "secret"
        if not secret.exists():
            fresh_secret(self.home)
        return ("--cluster-secret-file", str(secret))

    def setUp(self):
        super().setUp()
        wait_until(lambda: {len(self.found(node)) for node in (0, 1)} == {2}, "the nodes to see each other")

    def found(self, node):
        """The nodes with an HTTP API, as one of them sees them."""
        entries = ask(self.nodes[node].http_port, "/v1/nodes", user=EYE)[1]
        return [it for it in entries if it["is_self"] or (it["reachable"] and it["state"] and it["state"]["http_address"])]

    def last(self, node):
        return ask(self.nodes[node].http_port, "/v1/audit", user=EYE)[1][-1]

    def change(self, path, **options):
        port = self.nodes[0].http_port
        return ask(port, path, "POST", {"client_id": "nobody"}, ROOT, self.OPERATOR, **options)[0]

    def test_the_node_that_did_it_names_the_operator_and_the_other_one_the_node(self):
        for path, named in (("/v1/kick?node=node-2", "node-2"), ("/v1/kick", None)):
            self.assertEqual(self.change(path), 404)
            for node, relayed_by in ((0, None), (1, "node-1")):
                entry = self.last(node)
                found = [entry[key] for key in ("user", "peer", "relayed_by", "path", "node", "subject")]
                self.assertEqual(found, ["root", self.OPERATOR, relayed_by, "/v1/kick", named, "nobody"])
        api = ("--api", f"127.0.0.1:{self.nodes[0].http_port}", "--api-user", ":".join(EYE))
        for wide, expected in ((("--wide",), "node-2"), ((), None)):
            table = subprocess.run([BINARY, "ctl", *api, "audit", *wide], capture_output=True, text=True, check=True).stdout
            titles, first = table.splitlines()[:2]
            self.assertEqual("NODE" in titles.split(), expected is not None)
            self.assertEqual(first.split()[-3 if expected is None else -4], expected or "nobody")
        self.assertRegex(self.nodes[1].log_from(0), r"change over the HTTP API.*relayed_by=.?node-1")

    def test_a_stranger_asks_for_the_health_of_no_other_node(self):
        for path, user, expected in [
            ("/v1/health/ready", None, 200),
            ("/v1/health/ready?node=node-2", None, 401),
            ("/v1/health/ready?node=nobody", None, 401),
            ("/v1/health/ready?node=node-2", EYE, 200),
        ]:
            self.assertEqual(self.ask(path, user)[0], expected, path)

    def test_nobody_but_a_node_names_another_address(self):
        (own,) = (it["id"] for it in self.found(1) if not it["is_self"])
        claim = {"thicket-from": own, "thicket-for": "192.0.2.1"}
        for more in (claim, claim | {"thicket-proof": base64.b64encode(bytes(32)).decode()}):
            code = ask(self.nodes[1].http_port, "/v1/kick", "POST", {"client_id": "nobody"}, ROOT, more=more)[0]
            self.assertEqual(code, 404)
            entry = self.last(1)
            self.assertEqual((entry["peer"], entry["relayed_by"]), ("127.0.0.1", None))
