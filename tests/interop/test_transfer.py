"""`thicket ctl export` and `thicket ctl import`: what a node has, out of it and into another one."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from nodes import BINARY, Node, OneNode, ThreeNodes, wait_until
from wire import NEVER, Kind, Property, RawCases, RawClient, Will, acknowledge, publish

KEPT = ((Property.SESSION_EXPIRY_INTERVAL, NEVER),)


def ctl(node, *arguments, check=True, data=None):
    command = [BINARY, "ctl", "--api", f"127.0.0.1:{node.http_port}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, input=data, check=False)
    if check and done.returncode:
        raise AssertionError(f"{arguments}: {done.stderr.decode()}")
    return done


def lines_of(node):
    return [json.loads(line) for line in ctl(node, "export").stdout.splitlines()]


class Transfer(RawCases, OneNode):
    """The node of the test is the one exported from; another one is made to import."""

    def setUp(self):
        super().setUp()
        # What other tests left would be exported too.
        self.source = self.another()
        self.here = self.there = self.source.port
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = pathlib.Path(directory.name) / "export.jsonl"

    def another(self, *arguments):
        node = Node("target", (), arguments)
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1))
        return node

    def imported(self, node, *options, check=True):
        return json.loads(ctl(node, "import", "--json", *options, self.file, check=check).stdout or b"{}")

    def test_sessions_and_retained_messages_live_on_in_another_node(self):
        """Subscriptions with their options, queues with properties and expiry, what is in flight, QoS 2, a will."""
        props = ((Property.CONTENT_TYPE, "text"), (Property.USER_PROPERTY, ("k", "v")), (Property.MESSAGE_EXPIRY_INTERVAL, 100))
        will = Will("will", b"gone", 1, False, ((Property.WILL_DELAY_INTERVAL, 2),))
        client = RawClient(self.here)
        client.connect("moving", clean_start=False, props=KEPT, will=will)
        client.subscribe(("q/#", 2), props=((Property.SUBSCRIPTION_IDENTIFIER, 7),))
        client.subscribe(("$share/g/s", 1))
        # Taken with PUBREC, never released.
        client.send(publish("elsewhere", "once", 2, 9))
        client.expect(Kind.PUBREC)
        with self.publisher() as publisher:
            publisher.publish("q/flight", "in flight", qos=1)
            publisher.publish("q/received", "received", qos=2)
            first, second = client.expect(Kind.PUBLISH), client.expect(Kind.PUBLISH)
            client.send(acknowledge(Kind.PUBREC, second.packet_id))
            client.expect(Kind.PUBREL)
            client.close()
            publisher.publish("q/text", "café", qos=1, props=props)
            publisher.publish("q/bytes", b"\xff\x00", qos=2)
            publisher.publish("s", "shared", qos=1)
            publisher.publish("kept", "retained", qos=1, retain=True)
            publisher.publish("kept/bytes", b"\xfe", qos=0, retain=True, props=props)
            publisher.ping()
        target = self.another("--workers", "2")
        told = ctl(self.source, "export", "--output", self.file).stderr.decode()
        self.assertIn("exported 1 session with 5 messages, and 2 retained messages", told)
        done = self.imported(target)
        self.assertEqual((done["sessions"], done["messages"], done["retained"]), (1, 5, 2), done)
        with RawClient(target.port) as back:
            self.assertTrue(back.connect("moving", clean_start=False, props=KEPT).session_present)
            came = {}
            for _ in range(5):
                one = back.receive()
                came[one.topic if one.kind == Kind.PUBLISH else one.kind] = one
            self.assertEqual((came["q/flight"].dup, came["q/flight"].packet_id), (True, first.packet_id))
            self.assertEqual(came[Kind.PUBREL].packet_id, second.packet_id)
            self.assertEqual(came["q/text"].payload, "café".encode())
            self.assertEqual(came["q/text"].value(Property.CONTENT_TYPE), "text")
            self.assertEqual(came["q/text"].value(Property.SUBSCRIPTION_IDENTIFIER), 7)
            self.assertIn(came["q/text"].value(Property.MESSAGE_EXPIRY_INTERVAL), range(80, 101))
            self.assertEqual((came["q/bytes"].payload, came["q/bytes"].qos), (b"\xff\x00", 2))
            self.assertEqual(came["s"].payload, b"shared")
            # Its publication was taken: said again it is answered again, and delivered to nobody twice.
            back.send(publish("elsewhere", "once", 2, 9, dup=True))
            self.assertEqual(back.expect(Kind.PUBREC).reason_code or 0, 0)
            back.subscribe(("kept/#", 1))
            retained = {(one.topic, one.payload) for one in (back.take_message(), back.take_message())}
            self.assertEqual(retained, {("kept", b"retained"), ("kept/bytes", b"\xfe")})
            with RawClient(target.port) as other:
                other.connect("other")
                other.publish("q/new", "new", qos=1)
            self.assertEqual(back.take_message().payload, b"new")
        # The first node has them still: an export takes nothing away.
        again = [line["kind"] for line in lines_of(self.source)]
        self.assertEqual(again.count("message") + again.count("pubrel"), 5)

    def test_what_is_there_stays_and_is_counted_unless_it_is_to_be_replaced(self):
        session = self.keeper(self.here, "kept")
        session.subscribe((self.topic(), 1))
        session.disconnect()
        self.publisher().publish(self.topic(), "old", qos=1)
        self.publisher("r").publish(self.topic("retained"), "old", qos=1, retain=True)
        ctl(self.source, "export", "-o", self.file)
        self.publisher("p").publish(self.topic(), "new", qos=1)
        self.publisher("q").publish(self.topic("retained"), "new", qos=1, retain=True)
        done = self.imported(self.source)
        self.assertGreaterEqual(done["sessions_existing"], 1)
        self.assertEqual((done["sessions"], done["retained"], done["problems"]), (0, 0, []))
        self.assertGreaterEqual(done["messages_skipped"], 1)
        done = self.imported(self.source, "--replace")
        self.assertGreaterEqual(done["sessions"], 1)
        self.assertEqual((done["sessions_existing"], done["sessions_failed"]), (0, 0))
        again = self.keeper(self.here, "kept")
        self.assertTrue(again.connack.session_present)
        self.assertEqual(again.take_message().payload, b"old")
        self.assertEqual(again.ping(), [])
        self.assertEqual(self.subscriber((self.topic("retained"), 0)).take_message().payload, b"old")

    def test_a_long_queue_goes_in_pages_and_stays_in_order_also_over_a_restart(self):
        """Three sessions with two thousand messages each, three megabytes in all."""
        for number in range(3):
            session = self.keeper(self.here, f"long-{number}")
            session.subscribe((self.topic(), 1))
            session.disconnect()
        publisher = self.publisher()
        for number in range(2000):
            publisher.send(publish(self.topic(), f"{number:04}".encode() + bytes(500), 1, number % 60000 + 1))
            if number % 200 == 199:
                for _ in range(200):
                    publisher.expect(Kind.PUBACK)
        ctl(self.source, "export", "-o", self.file)
        with tempfile.TemporaryDirectory() as data:
            target = self.another("--data", data, "--workers", "2")
            done = self.imported(target)
            self.assertGreaterEqual(done["messages"], 6000)
            self.assertEqual(done["messages_dropped"], 0)
            target.kill()
            target = self.another("--data", data, "--workers", "2")
            with RawClient(target.port) as back:
                self.assertTrue(back.connect(self.client_id("long-1"), clean_start=False, props=KEPT).session_present)
                numbers = [int(back.take_message().payload[:4]) for _ in range(2000)]
                self.assertEqual(numbers, list(range(2000)))
            target.stop()

    def test_lines_that_make_no_sense_are_refused_with_their_number(self):
        header = json.dumps({"kind": "header", "format": "thicket-export", "version": 1, "node": "x"})
        end = json.dumps({"kind": "end", "sessions": 0, "messages": 0, "retained": 0})
        message = {"topic": "a/+", "qos": 1, "payload": "x"}
        cases = [
            ("nothing", "", "the last line is missing"),
            ("no JSON", "hello\n", "line 1: "),
            ("no header", end, "line 1: expected the first line of an export"),
            ("another version", header.replace('"version": 1', '"version": 2'), "line 1: version: this node reads 1, found 2"),
            ("another format", header.replace("thicket-export", "dump"), "line 1: format: expected thicket-export"),
            ("cut off", f"{header}\n", "the last line is missing"),
            ("unknown kind", f'{header}\n{{"kind": "thing"}}\n{end}', "line 2: unknown variant `thing`"),
            ("unknown key", f"{header}\n" + end.replace("}", ', "more": 1}'), "line 2: unknown field `more`"),
            ("behind the end", f"{header}\n{end}\n{end}", "line 3: a line after the last one"),
            ("wildcard", f"{header}\n{json.dumps({'kind': 'retained', **message})}\n{end}", "line 2: topic: "),
        ]
        for name, text, expected in cases:
            with self.subTest(name):
                self.file.write_text(text)
                done = ctl(self.source, "import", self.file, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn(expected, done.stderr.decode())
        self.file.write_text(f"{header}\n{end}\n")
        self.assertEqual(self.imported(self.source)["problems"], [])
        done = ctl(self.source, "import", "-", data=f"{header}\n{end}".encode())
        self.assertIn("sessions", done.stdout.decode())

    def test_it_takes_the_role_of_an_administrator(self):
        made = subprocess.run(
            [BINARY, "passwd", "--role", "viewer", "eve"], input="secret\n", capture_output=True, text=True, check=True
        )
        users = self.file.with_name("users")
        users.write_text(made.stdout)
        node = self.another_with_users(users)
        done = ctl(node, "--api-user", "eve:secret", "export", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("admin", done.stderr.decode())

    def another_with_users(self, users):
        node = Node("guarded", (), ("--http-users", str(users)))
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        wait_until(lambda: node.ask("/v1/health/ready"), "the node to be ready")
        return node


class TransferInCluster(RawCases, ThreeNodes):
    """One client identifier has one session in the cluster, also if it is imported."""

    def test_a_session_that_lives_on_another_node_stays_one(self):
        session = self.keeper(self.here, "mine")
        session.subscribe((self.topic(), 1))
        session.disconnect()
        source, other, _ = self.cluster.nodes
        lines = ctl(source, "export").stdout
        done = json.loads(ctl(other, "import", "--json", "-", data=lines).stdout)
        self.assertEqual((done["sessions"], done["sessions_existing"]), (0, 1), done)
        done = json.loads(ctl(other, "import", "--json", "--replace", "-", data=lines).stdout)
        self.assertEqual(done["sessions"], 1, done)
        where = [
            node.name
            for node in self.cluster.nodes
            for entry in json.loads(node.ask("/v1/sessions"))
            if entry["client_id"] == self.client_id("mine")
        ]
        self.assertEqual(where, ["node-2"])
        self.publisher().publish(self.topic(), "to the imported one", qos=1)
        again = self.keeper(self.elsewhere, "mine")
        self.assertTrue(again.connack.session_present)
        self.assertEqual(again.take_message().payload, b"to the imported one")

