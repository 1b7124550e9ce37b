"""Placements: any node is asked, one at a time answers, all know the answers."""

import json
import subprocess
import unittest
import urllib.error
import urllib.request

from nodes import BINARY, Node, ThreeNodes, wait_until
from test_rights import Files, passwd
from wire import Kind, Property, RawCases, RawClient, publish


def call(node, method, path="", body=None):
    """Status, media type and content of an answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.http_port}/v1/placements{path}",
        method=method,
        data=None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
            return answer.status, answer.headers["content-type"], json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], json.loads(error.read())


def wait_until_known(node, client_id):
    """The placement of a client at a node that was not asked for it: nobody waits until that has applied it."""
    wait_until(lambda: call(node, "GET", f"/{client_id}")[0] == 200, f"the placement of {client_id}")
    return call(node, "GET", f"/{client_id}")[2]


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
            known = wait_until_known(node, f"{self.unique}-s")
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
            ({"client_id": "c", "publish": ["a"], "rates": {"b": 1}}, "rates.b"),
            ({"client_id": "c", "publish": ["a"], "rates": {"a": 1e308}}, "rates.a"),
            ({"client_id": "c", "publish": ["a"], "rates": {"a": "many"}}, "rates.a"),
            ('{"client_id": "c", "publish": ["a"], "rates": {"a": 1e999}}', "rates.a"),
            ({"client_id": ""}, "client_id"),
            ({"client_id": "\x1fann\x1fc"}, "client_id"),
        ):
            status, kind, problem = call(node, "POST", body=body)
            self.assertEqual((status, kind, problem["field"]), (422, "application/problem+json", field))
        status, kind, problem = call(node, "POST", body={"client_id": "c", "topics": []})
        self.assertEqual((status, kind), (422, "application/problem+json"))
        self.assertIn("topics", problem["detail"])
        self.assertEqual(call(node, "GET", "/c")[0], 404)

    def test_pages_follow_each_other(self):
        node = self.cluster.nodes[0]
        names = [f"{self.unique}-{number:04}" for number in range(1010)]
        for name in names:
            self.place(node, name, publish=[f"{self.unique}/pages"])
        path, seen, pages = "", [], 0
        while path is not None:
            with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/v1/placements{path}", timeout=10) as answer:
                seen += [one["client_id"] for one in json.loads(answer.read())]
                link = answer.headers["link"]
            pages += 1
            path = link and link.split(">")[0].removeprefix("</v1/placements")
        self.assertGreater(pages, 1)
        self.assertEqual([name for name in seen if name.startswith(f"{self.unique}-0") or name.startswith(f"{self.unique}-1")], names)


def asking(max_sessions, publish=(), subscribe=(), rates=None):
    """User properties of a CONNECT that asks for a placement."""
    named = [("thicket-max-sessions", str(max_sessions))]
    named += [("thicket-publish", topic) for topic in publish]
    named += [("thicket-subscribe", topic) for topic in subscribe]
    named += [] if rates is None else [("thicket-rates", json.dumps(rates))]
    return tuple((Property.USER_PROPERTY, pair) for pair in named)


def answer_of(connack):
    """The placement that a CONNACK carries; None if it carries none."""
    answers = [value for name, value in connack.values(Property.USER_PROPERTY) if name == "thicket-placement"]
    return json.loads(answers[0]) if answers else None


class OverMqtt(RawCases, ThreeNodes):
    """A client that asks in its CONNECT is answered in the CONNACK."""

    def connect(self, node, client_id, **options):
        client = RawClient(node.port, options.pop("version", 5))
        self.addCleanup(client.close)
        return client.try_connect(client_id, **options)

    def test_the_connack_says_what_a_post_would(self):
        nodes = self.cluster.nodes
        topics = [f"{self.unique}/t{number}" for number in range(3)]
        where = {}
        for node, topic in zip(nodes, topics, strict=True):
            props = asking(1, publish=[topic], rates={topic: 10})
            placed = answer_of(self.connect(node, self.client_id(f"p{node.port}"), props=props))
            where[topic] = placed["sessions"][0]["node"]
        connack = self.connect(nodes[0], self.client_id("s"), props=asking(4, subscribe=topics))
        self.assertEqual(connack.reason_code, 0)
        placed = answer_of(connack)
        for session in placed["sessions"]:
            self.assertEqual({where[topic] for topic in session["subscribe"]}, {session["node"]})
        known = wait_until_known(nodes[2], self.client_id("s"))
        self.assertEqual(known["sessions"], placed["sessions"])

    def test_what_is_no_good_is_told_and_the_client_is_served(self):
        node = self.cluster.nodes[1]
        for props, field in (
            (asking(0), "max_sessions"),
            (asking("four"), "thicket-max-sessions"),
            (asking(2, subscribe=["a/#/b"]), "subscribe[0]"),
            (asking(2, publish=["a"], rates={"b": 1}), "rates.b"),
            (asking(2) + ((Property.USER_PROPERTY, ("thicket-rates", "{")),), "thicket-rates"),
        ):
            connack = self.connect(node, self.client_id("bad"), props=props)
            problem = answer_of(connack)
            self.assertEqual((connack.reason_code, problem["status"], problem["field"]), (0, 422, field))

    def test_who_does_not_ask_hears_nothing_of_it(self):
        node = self.cluster.nodes[0]
        connack = self.connect(node, self.client_id("plain"))
        self.assertIsNone(answer_of(connack))

    def test_a_client_that_takes_small_packets_only_is_served_without_the_answer(self):
        node = self.cluster.nodes[0]
        topic = "t" * 300
        props = (*asking(1, publish=[topic]), (Property.MAXIMUM_PACKET_SIZE, 200))
        connack = self.connect(node, self.client_id("small"), props=props)
        self.assertEqual((connack.reason_code, answer_of(connack)), (0, None))


class Assigned(RawCases, ThreeNodes):
    """A client of 5.0 without a client identifier of its own asks with the one that it is assigned."""

    arguments = ("--redirect", "topics")

    def test_it_is_placed_where_it_is_served(self):
        topic = f"{self.unique}/t"
        nodes = self.cluster.nodes
        for at, node in enumerate(nodes):
            call(node, "POST", body={"client_id": f"{self.unique}-{at}", "publish": [f"{topic}/{at}"]})
        for node in nodes:
            client = RawClient(node.port, 5)
            self.addCleanup(client.close)
            connack = client.try_connect("", props=asking(2, subscribe=[f"{topic}/0", f"{topic}/1"]))
            self.assertEqual(connack.reason_code, 0, "it is served where it comes: elsewhere it would get another identifier")
            assigned = connack.value(Property.ASSIGNED_CLIENT_IDENTIFIER)
            placement = answer_of(connack)
            self.assertEqual(placement["client_id"], assigned)
            self.assertEqual(placement["sessions"][0]["client_id"], assigned)
            _, _, known = call(node, "GET", f"/{assigned}")
            self.assertEqual(known["sessions"], placement["sessions"])
            topics = sorted(name for session in placement["sessions"] for name in session["subscribe"])
            self.assertEqual(topics, [f"{topic}/0", f"{topic}/1"])
            wait_until_known(nodes[0], assigned)
        placed = [one["client_id"] for one in json.loads(nodes[0].ask("/v1/placements"))]
        self.assertEqual(len([name for name in placed if name.startswith("thicket-")]), len(nodes), "one for each client")


class Rights(Files, RawCases, ThreeNodes):
    """A client and the further sessions that it was placed with have the same rights."""

    @classmethod
    def write_files(cls):
        users = cls.write("users", passwd("ada", "ada"))
        acl = cls.write("acl", "pattern readwrite devices/%c/#\n")
        cls.arguments = ("--users", users, "--acl", acl)

    def codes(self, node, client_id, *topics):
        with RawClient(node.port) as client:
            client.connect(client_id, user="ada", password="ada")
            return list(client.subscribe(*((topic, 1) for topic in topics)).codes)

    def publish_topics(self, client_id):
        """Topics of a client that others publish: so many that no node takes all of them."""
        topics = [f"devices/{client_id}/{name}" for name in "abcdef"]
        for topic in topics:
            body = {"client_id": topic.replace("/", "-"), "publish": [topic], "rates": {topic: 10}}
            self.assertEqual(call(self.cluster.nodes[0], "POST", body=body)[0], 200)
        return topics

    def test_a_session_above_the_first_has_the_rights_of_its_client(self):
        nodes, client_id = self.cluster.nodes, self.client_id()
        topics = self.publish_topics(client_id)
        with RawClient(nodes[0].port) as client:
            connack = client.try_connect(client_id, user="ada", password="ada", props=asking(4, subscribe=topics))
        placed = answer_of(connack)
        self.assertEqual(placed["sessions"][1]["client_id"], f"{client_id}~2")
        for node in nodes:
            known = lambda n=node: client_id in [one["client_id"] for one in call(n, "GET")[2]]
            wait_until(known, "all to know")
            self.assertEqual(self.codes(node, f"{client_id}~2", topics[0], f"devices/{client_id}~2/x"), [1, 0x87])

    def test_an_operator_places_the_client_of_a_user_and_finds_it_by_its_identifier(self):
        node, client_id = self.cluster.nodes[0], self.client_id("of-user")
        topics = self.publish_topics(client_id)
        body = {"client_id": client_id, "subscribe": topics, "max_sessions": 4}
        status, _, placed = call(node, "POST", "?user_name=ada", body=body)
        self.assertEqual((status, placed["user_name"]), (200, "ada"))
        self.assertEqual(self.codes(node, f"{client_id}~2", topics[0]), [1], "it has the rights of its client")
        self.assertEqual(call(node, "GET", f"/{client_id}")[2]["sessions"], placed["sessions"])
        url = f"http://127.0.0.1:{node.http_port}/v1/explain?client_id={client_id}~2"
        with urllib.request.urlopen(url, timeout=10) as answer:
            explained = json.loads(answer.read())
        self.assertEqual((explained["placed_client_id"], explained["placed_session"]), (client_id, 2))
        self.assertEqual(call(node, "POST", "?user_name=bob", body=body)[0], 200)
        for method in ("GET", "DELETE"):
            status, _, problem = call(node, method, f"/{client_id}")
            self.assertEqual((status, problem["field"]), (409, "user_name"))
        self.assertEqual(call(node, "DELETE", f"/{client_id}?user_name=bob")[0], 204)
        self.assertEqual(call(node, "DELETE", f"/{client_id}")[0], 204)
        self.assertEqual(call(node, "GET", f"/{client_id}")[0], 404)

    def test_who_merely_calls_itself_so_is_a_client_of_its_own(self):
        client_id = self.client_id("own")
        with RawClient(self.cluster.nodes[0].port) as client:
            client.connect(client_id, user="ada", password="ada", props=asking(1, subscribe=[f"devices/{client_id}/a"]))
        names = (f"devices/{client_id}/x", f"devices/{client_id}~2/x")
        self.assertEqual(self.codes(self.cluster.nodes[0], f"{client_id}~2", *names), [0x87, 1])


class ByTopics(RawCases, ThreeNodes):
    """`redirect = topics`: a client that is placed goes to the node where its topics are."""

    arguments = ("--redirect", "topics")

    def test_a_placed_client_is_sent_to_its_topics_once_and_others_stay(self):
        nodes = self.cluster.nodes
        topic = f"{self.unique}/t"
        publisher = RawClient(nodes[2].port)
        self.addCleanup(publisher.close)
        came = publisher.try_connect(self.client_id("p"), props=asking(1, publish=[topic], rates={topic: 50}))
        home = answer_of(came)["sessions"][0]["address"] if came.reason_code == 0 else came.value(
            Property.SERVER_REFERENCE
        )
        elsewhere = next(node for node in nodes if f"127.0.0.1:{node.port}" != home)
        client = RawClient(elsewhere.port)
        self.addCleanup(client.close)
        name, props = self.client_id("s"), asking(1, subscribe=[topic])
        came = client.try_connect(name, props=props)
        self.assertEqual((came.reason_code, came.value(Property.SERVER_REFERENCE)), (0x9D, home), "a placement is meant to last")
        again = RawClient(int(home.rsplit(":", 1)[1]))
        self.addCleanup(again.close)
        self.assertEqual(again.try_connect(name, props=props).reason_code, 0)
        back = RawClient(elsewhere.port)
        self.addCleanup(back.close)
        self.assertEqual(back.try_connect(name).reason_code, 0, "it does not follow, so it is served")
        plain = RawClient(elsewhere.port)
        self.addCleanup(plain.close)
        self.assertEqual(plain.try_connect(self.client_id("plain")).reason_code, 0, "its topics are not known")
        explained = subprocess.run(
            [BINARY, "ctl", "--api", f"127.0.0.1:{elsewhere.http_port}", "--json", "explain", "client", name],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        self.assertIn("does_not_follow", explained)
        self.assertIn('reason="topics"} 1', elsewhere.ask("/metrics").decode())


class Learned(RawCases, ThreeNodes):
    """`redirect_refusals`: a client of 3.1.1 that asks nobody is refused where its topics are not."""

    arguments = ("--redirect", "topics", "--redirect-refusals", "2")

    def come(self, node, client_id, version=4):
        """The answer to a CONNECT; connected until the end if it is served."""
        client = RawClient(node.port, version=version)
        self.addCleanup(client.close)
        return client, client.try_connect(client_id, clean_start=False)

    def explain(self, node, client_id):
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{node.http_port}", "--json", "explain", "client", client_id]
        return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    def others_want(self, topics):
        """A client at each node that wants a topic of its own, and all nodes know it."""
        for node, topic in zip(self.cluster.nodes, topics, strict=True):
            name = self.client_id(f"at-{topic}")
            self.come(node, name)[0].subscribe((f"{self.unique}/{topic}", 0))
            self.wait_until_learned(name, f"{self.unique}/{topic}")

    def wait_until_learned(self, name, topic):
        for node in self.cluster.nodes:
            wait_until(lambda n=node: (self.explain(n, name)["learned"] or {}).get("subscribe") == [topic], f"{name} to be learned", 40)

    def wait_until_all_know(self, name, refused):
        """How often a client was refused where its topics are not; 0: it has been served since."""
        for node in self.cluster.nodes:
            wait_until(lambda n=node: self.explain(n, name)["learned"]["refused"] == refused, f"{refused} refusals to be known")

    def test_a_client_of_3_1_1_comes_to_its_topics_and_finds_its_session_there(self):
        nodes = self.cluster.nodes
        self.others_want(("x", "y", "hot"))
        name, topic = self.client_id("roamer"), f"{self.unique}/hot"
        client, came = self.come(nodes[0], name)
        self.assertEqual(came.reason_code, 0)
        client.subscribe((topic, 1))
        self.wait_until_learned(name, topic)
        client.close()
        self.assertEqual(self.come(nodes[1], name)[1].reason_code, 3, "its topics are elsewhere")
        self.wait_until_all_know(name, 1)
        shown = subprocess.run(
            [BINARY, "ctl", "--api", f"127.0.0.1:{nodes[1].http_port}", "explain", "client", name],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        self.assertIn("refused: its topics are at", shown)
        self.assertIn(f"receives {topic}", shown)
        client, came = self.come(nodes[2], name)
        self.assertEqual((came.reason_code, came.session_present), (0, True))
        self.wait_until_all_know(name, 0)
        client.close()
        for refused, node in enumerate(nodes[:2], 1):
            self.assertEqual(self.come(node, name)[1].reason_code, 3)
            self.wait_until_all_know(name, refused)
        self.assertEqual(self.come(nodes[0], name)[1].reason_code, 0, "two times at most")
        self.assertIn('reason="refused"} ', nodes[0].ask("/metrics").decode())

    def test_a_client_of_5_that_never_asked_is_sent_to_its_topics(self):
        nodes = self.cluster.nodes
        self.others_want(("x5", "y5", "hot5"))
        name, topic = self.client_id("new"), f"{self.unique}/hot5"
        client, came = self.come(nodes[0], name, version=5)
        client.subscribe((topic, 1))
        self.wait_until_learned(name, topic)
        client.close()
        came = self.come(nodes[1], name, version=5)[1]
        self.assertEqual((came.reason_code, came.value(Property.SERVER_REFERENCE)), (0x9D, f"127.0.0.1:{nodes[2].port}"))


FOLLOWS = (Property.USER_PROPERTY, ("thicket-place", "1"))


def place_of(answer):
    """The better node that a SUBACK or PUBACK names; None if it names none."""
    named = [value for name, value in answer.values(Property.USER_PROPERTY) if name == "thicket-place"]
    return named[0] if named else None


class ByTopic(RawCases, ThreeNodes):
    """Clients that follow better nodes by topic are told of them in SUBACK and PUBACK."""

    def known_rate(self, node, topic):
        return any(one["topic"] == topic for one in json.loads(node.ask("/v1/topics") or b"[]"))

    def publish(self, client, topic):
        """The PUBACK of a PUBLISH."""
        packet_id = next(client.packet_ids)
        client.send(publish(topic, "x", 1, packet_id))
        return client.expect_answer(Kind.PUBACK, packet_id)

    def test_a_suback_names_the_node_where_the_filter_is_published(self):
        here, there, _ = self.cluster.nodes
        topic = self.topic()
        publisher = self.raw(there.port, "publisher")
        keeps = self.raw(there.port, "keeps", props=(FOLLOWS,))

        def is_known():
            self.publish(publisher, topic)
            return self.known_rate(here, topic)

        wait_until(is_known, "the rate of the topic")
        follows = self.raw(here.port, "follows", props=(FOLLOWS,))
        address = f"127.0.0.1:{there.port}"
        for filters, expected in (
            ([(topic, 1)], address),
            ([(topic, 1)], address),
            ([(f"{self.unique}/+", 0)], address),
            ([(topic, 1), (f"{self.unique}/#", 0)], None),
            ([(f"$share/g/{topic}", 1)], None),
            ([(f"{topic}/other", 1)], None),
            ([("a/#/b", 1)], None),
        ):
            self.assertEqual(place_of(follows.subscribe(*filters)), expected, filters)
        self.assertIsNone(place_of(keeps.subscribe((topic, 1))), "it is there")
        self.assertIsNone(place_of(self.raw(here.port, "plain").subscribe((topic, 1))), "it did not say so")
        quiet = self.raw(here.port, "quiet", props=(FOLLOWS, (Property.REQUEST_PROBLEM_INFORMATION, 0)))
        self.assertIsNone(place_of(quiet.subscribe((topic, 1))), "[MQTT-3.1.2-29]")

    def test_a_puback_names_the_node_where_all_subscribers_are(self):
        here, there, third = self.cluster.nodes
        topic = self.topic()
        self.raw(third.port, "subscriber").subscribe((topic, 0))
        follows = self.raw(here.port, "follows", props=(FOLLOWS,))
        plain = self.raw(here.port, "plain")
        told = []

        def is_told():
            self.assertIsNone(place_of(self.publish(plain, topic)))
            told.append(place_of(self.publish(follows, topic)))
            return told[-1]

        wait_until(is_told, "a better node")
        self.assertEqual(told[-1], f"127.0.0.1:{third.port}")
        self.assertIsNone(place_of(self.publish(follows, topic)), "once")
        self.raw(there.port, "another").subscribe((topic, 0))
        for _ in range(3):
            self.publish(follows, topic)

    def test_what_a_client_was_placed_with_comes_first(self):
        node = self.cluster.nodes[0]
        topic, name = self.topic(), self.client_id("s")
        _, _, placed = call(node, "POST", body={"client_id": name, "subscribe": [topic], "max_sessions": 1})
        home = placed["sessions"][0]["address"]
        elsewhere = next(node for node in self.cluster.nodes if f"127.0.0.1:{node.port}" != home)
        wait_until_known(elsewhere, name)
        client = self.raw(elsewhere.port, "s", props=(FOLLOWS,))
        self.assertEqual(place_of(client.subscribe((topic, 1))), home)
        self.assertIsNone(place_of(client.subscribe((f"{topic}/other", 1))))


class Sites(unittest.TestCase):
    """Nodes say at which site they are, and what it costs to send to others."""

    PRICES = ("--site-price", "milan:rome=0.02", "--site-price", "*:*=0.01")

    def start(self, *arguments):
        """A node for each, which see each other."""
        nodes = []
        for number, more in enumerate(arguments):
            nodes.append(Node(f"node-{number + 1}", [node.port for node in nodes], more))
            self.addCleanup(nodes[-1].log.close)
            self.addCleanup(nodes[-1].stop)
        for node in nodes:
            self.assertTrue(node.wait_until_ready(len(nodes)), node.log_from(0))
        return nodes

    def entries(self, node):
        return {entry["name"]: entry for entry in json.loads(node.ask("/v1/nodes"))}

    def test_clients_stay_at_their_site_and_what_crosses_is_counted(self):
        sites = ["milan", "milan", "rome"]
        nodes = self.start(*[("--site", site, *self.PRICES) for site in sites])
        for node in nodes:
            wait_until(lambda n=node: [e["site"] for e in sorted(self.entries(n).values(), key=lambda e: e["name"])] == sites, "sites to be known")
        ids = {entry["id"]: name for name, entry in self.entries(nodes[0]).items()}

        def place(node, client_id, **asked):
            status, _, placement = call(node, "POST", body={"client_id": client_id, **asked})
            self.assertEqual(status, 200, placement)
            return [ids[session["node"]] for session in placement["sessions"]]

        self.assertEqual(place(nodes[2], "p", publish=["t"], rates={"t": 100}), ["node-3"])
        self.assertEqual(place(nodes[2], "s", subscribe=["t"]), ["node-3"])
        # Over loopback all are near, but messages between the sites have a price.
        for number in range(4):
            (where,) = place(nodes[number % 2], f"c{number}", subscribe=["t"], max_sessions=1)
            self.assertIn(where, ("node-1", "node-2"))

        explained = json.loads(nodes[0].ask("/v1/explain?client_id=c0"))
        ranked = {ids[node["id"]]: node for node in explained["nodes"]}
        costs = {name: (node["site"], node["price_per_gb"], node["message_cost"]) for name, node in ranked.items()}
        self.assertEqual(costs, {"node-1": ("milan", 0, 0), "node-2": ("milan", 0, 1), "node-3": ("rome", 0.02, 10)})
        ranked = {ids[node["id"]]: node for node in json.loads(nodes[2].ask("/v1/explain?client_id=c0"))["nodes"]}
        self.assertEqual((ranked["node-1"]["price_per_gb"], ranked["node-1"]["message_cost"]), (0.01, 5.5))
        shown = subprocess.run(
            [BINARY, "ctl", "--api", f"127.0.0.1:{nodes[0].http_port}", "explain", "client", "c0"],
            check=True, capture_output=True, text=True,
        ).stdout
        (row,) = [line.split() for line in shown.splitlines() if line.startswith("node-3")]
        self.assertEqual((row[2], row[-2], row[-1]), ("rome", "0.02", "10.0"))

        with RawClient(nodes[0].port) as subscriber, RawClient(nodes[2].port) as publisher:
            subscriber.connect("c0")
            subscriber.subscribe(("t", 0))
            publisher.connect("p")

            def is_known():
                for _ in range(50):
                    publisher.publish("t", b"x" * 50)
                return any(entry["topic"] == "t" for entry in json.loads(nodes[0].ask("/v1/topics")))

            wait_until(is_known, "the rate of the topic to be known everywhere")
            ran = subprocess.run(
                [BINARY, "plan", "replay", "--from", "live", "--api", f"127.0.0.1:{nodes[0].http_port}", "--json"],
                check=True, capture_output=True, text=True,
            )
        summary = json.loads(ran.stdout.splitlines()[-1])
        self.assertGreater(summary["egress_a_month_now"], 0, "node-1 receives what is published in Rome")
        self.assertLessEqual(summary["by_price"]["egress_a_month"], summary["egress_a_month"])

    def test_prices_that_differ_are_warned_of_and_sites_are_not(self):
        first, _ = self.start(("--site", "a", "--site-price", "a:b=1"), ("--site", "b", "--site-price", "a:b=2"))
        wait_until(lambda: self.entries(first)["node-2"]["disagreements"], "the difference to be noticed")
        entry = self.entries(first)["node-2"]
        self.assertEqual(entry["disagreements"], ['site_price = "a:b=2" there, "a:b=1" here'])
        self.assertEqual(entry["site"], "b")
        self.assertIn("must be the same on all", first.log_from(0))

    def test_what_is_no_good_is_named(self):
        for arguments, expected in (
            (("--site", "a:b"), "site = "),
            (("--site", "a", "--site-price", "a:b"), 'site_price = "a:b"'),
            (("--site-price", "a:b=1"), "expected site"),
        ):
            ran = subprocess.run([BINARY, "broker", *arguments], check=False, capture_output=True, text=True)
            self.assertNotEqual(ran.returncode, 0)
            self.assertIn(expected, ran.stderr)


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
