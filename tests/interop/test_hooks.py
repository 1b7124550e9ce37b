"""Events over HTTP: a receiver that accepts, refuses, fails, hangs; what it gets and what becomes of the rest."""

import http.server
import importlib.util
import json
import os
import pathlib
import re
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import mosquitto_clients
from certificates import Authority
from nodes import BINARY, REPOSITORY, Node, free_port, wait_until
from paho_clients import PahoClient
from wire import Kind, Property, RawClient

EXAMPLE = REPOSITORY / "docs" / "hooks" / "receiver.py"
SECRET = b"a secret of the tests"


def example():
    spec = importlib.util.spec_from_file_location("receiver", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Receiver:
    """Answers with the statuses in `answers` and then with 200; None: it hangs until it is closed."""

    def __init__(self, tls=None, reply=b""):
        self.reply = reply
        self.answers, self.requests, self.released = [], [], threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status = receiver.answers.pop(0) if receiver.answers else 200
                receiver.requests.append((status, dict(self.headers.items()), body))
                if status is None:
                    receiver.released.wait()
                    return
                self.send_response(status)
                self.send_header("content-length", str(len(receiver.reply)))
                self.end_headers()
                self.wfile.write(receiver.reply)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://localhost:{self.server.server_port}/events"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def batches(self):
        return [json.loads(body) for status, _, body in list(self.requests) if status == 200]

    def events(self, *names):
        every = [event for batch in self.batches() for event in batch["events"]]
        return [event for event in every if not names or event["event"] in names]

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


class Hooks(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = pathlib.Path(self.directory.name)
        (self.path / "secret").write_bytes(SECRET + b"\n")
        self.dead = self.path / "dead.jsonl"

    def receiver(self, **options):
        receiver = Receiver(**options)
        self.addCleanup(receiver.close)
        return receiver

    def node(self, url, events, **settings):
        """A node with one hook."""
        settings |= {"name": "test", "url": url, "events": events, "secret_file": str(self.path / "secret")}
        settings.setdefault("dead_letters", str(self.dead))
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
        config = self.path / "thicket.toml"
        config.write_text("[[hook]]\n" + "".join(lines))
        node = Node("n1", [], ["--config", str(config)])
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1), node.log_from(0))
        return node

    def counts(self, node):
        page = node.ask("/metrics").decode()
        found = re.findall(r'^thicket_event_hook_events_total\{hook="test",outcome="(\w+)"\} (\d+)$', page, re.MULTILINE)
        return {outcome: int(count) for outcome, count in found}

    def dead_letters(self):
        return [json.loads(line) for line in self.dead.read_text().splitlines()]

    def test_dead_letters_and_data_are_for_the_user_of_the_node_only(self):
        data = self.path / "data"
        before = os.umask(0o022)
        self.addCleanup(os.umask, before)
        config = self.path / "thicket.toml"
        hook = {"name": "test", "url": f"http://127.0.0.1:{free_port()}", "events": ["connect"], "dead_letters": str(self.dead)}
        config.write_text("[[hook]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in hook.items()))
        node = Node("n1", [], ["--config", str(config), "--data", str(data)])
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1), node.log_from(0))
        for path in (self.dead, data):
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)

    def test_the_life_of_a_client_comes_in_order_and_signed(self):
        receiver = self.receiver()
        kinds = ["connect", "disconnect", "subscribe", "unsubscribe", "publish", "session", "cluster"]
        node = self.node(receiver.url, kinds, filters=["a/#"])
        with PahoClient(node.port, "ada") as client:
            client.subscribe("a/b", 1)
            client.publish("a/b", b"text", 1, UserProperty=[("k", "v")], ContentType="t")
            client.publish("a/b", b"\xff\x00", 2, retain=True)
            client.publish("b/c", b"not asked for", 1)
            client.unsubscribe("a/b")
            client.disconnect()
        wait_until(lambda: receiver.events("client.disconnected"), "the last event")
        mine = [event for event in receiver.events() if event.get("client_id") == "ada"]
        names = [event["event"] for event in mine]
        published = ["message.published"] * 2
        expected = ["client.connected", "session.created", "client.subscribed", *published, "client.unsubscribed"]
        self.assertEqual(names[:6], expected)
        self.assertEqual(set(names[6:]), {"client.disconnected", "session.ended"})
        self.assertTrue(all(event["address"].startswith("127.0.0.1:") for event in mine[:6]))
        self.assertRegex(mine[0]["version"], r"^(3\.1|3\.1\.1|5)$")
        text, binary = mine[3:5]
        self.assertEqual((text["topic"], text["payload"], text["payload_encoding"], text["qos"]), ("a/b", "text", "utf8", 1))
        self.assertEqual((text["user_properties"], text["content_type"]), ([["k", "v"]], "t"))
        self.assertEqual((binary["payload"], binary["payload_encoding"], binary["retain"]), ("/wA=", "base64", True))
        self.assertEqual([event["reason"] for event in receiver.events("client.disconnected")], ["client"])
        self.assertEqual(len(receiver.events("node.ready")), 1)
        identifiers = [event["id"] for event in receiver.events()]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        batches = receiver.batches()
        self.assertEqual([batch["sequence"] for batch in batches], list(range(1, len(batches) + 1)))
        self.assertEqual({(batch["version"], batch["node"]) for batch in batches}, {(1, "n1")})
        verify = example().verify
        for _, headers, body in receiver.requests:
            timestamp, signature = headers["x-thicket-timestamp"], headers["x-thicket-signature"]
            self.assertTrue(verify(SECRET, timestamp, signature, body, time.time()))
            self.assertFalse(verify(SECRET, timestamp, signature, body + b" ", time.time()))
            self.assertFalse(verify(SECRET, timestamp, signature, body, time.time() + 3600))

    def test_a_batch_that_fails_is_sent_again_as_it_was(self):
        receiver = self.receiver()
        receiver.answers = [500, None, 503]
        node = self.node(receiver.url, ["publish"], filters=["#"], timeout_ms=300, batch=5)
        for number in range(12):
            mosquitto_clients.publish(node.port, "a", str(number))
        wait_until(lambda: len(receiver.events()) == 12, "all events")
        self.assertEqual([event["payload"] for event in receiver.events()], [str(number) for number in range(12)])
        bodies = [body for _, _, body in receiver.requests]
        self.assertEqual(len(set(bodies[:4])), 1)
        self.assertTrue(all(len(batch["events"]) <= 5 for batch in receiver.batches()))
        wait_until(lambda: self.counts(node)["delivered"] == 12, "the count")
        self.assertEqual(self.counts(node), {"delivered": 12, "dead_letter": 0, "dropped": 0})

    def test_what_is_refused_or_fails_too_often_is_a_dead_letter(self):
        receiver = self.receiver()
        receiver.answers = [400, 500, 500]
        node = self.node(receiver.url, ["publish"], filters=["#"], batch=1, attempts=2)
        for number in range(3):
            mosquitto_clients.publish(node.port, "a", str(number))
        wait_until(receiver.events, "the event that is accepted")
        self.assertEqual([event["payload"] for event in receiver.events()], ["2"])
        letters = self.dead_letters()
        self.assertEqual([letter["event"]["payload"] for letter in letters], ["0", "1"])
        self.assertEqual([letter["reason"] for letter in letters], ["status 400", "status 500"])

    def test_no_client_waits_for_a_receiver_that_hangs(self):
        receiver = self.receiver()
        receiver.answers = [None] * 1000
        node = self.node(receiver.url, ["publish"], filters=["#"], timeout_ms=60000, queue_events=10, batch=1)
        with PahoClient(node.port, "ada") as client:
            client.publish("a", b"first", 1)
            wait_until(lambda: receiver.requests, "the request that hangs")
            for number in range(100):
                client.publish("a", str(number).encode(), 1)
            client.disconnect()
        # 10 wait, 1 is on its way.
        wait_until(lambda: sum(self.counts(node).values()) == 90, "the others to be settled")
        self.assertEqual(self.counts(node), {"delivered": 0, "dead_letter": 90, "dropped": 0})
        letters = self.dead_letters()
        self.assertEqual({letter["reason"] for letter in letters}, {"the queue is full"})
        self.assertEqual([letter["event"]["payload"] for letter in letters], [str(number) for number in range(10, 100)])
        receiver.released.set()

    def test_events_that_wait_when_the_node_stops_are_delivered(self):
        receiver = self.receiver()
        node = self.node(receiver.url, ["disconnect"])
        with PahoClient(node.port, "ada") as client:
            node.stop()
            client.until_disconnected()
        self.assertEqual([event["reason"] for event in receiver.events("client.disconnected")], ["server_shutting_down"])

    def test_a_receiver_with_tls_is_checked_against_its_authority(self):
        with Authority() as authority, Authority("other") as other:
            receiver = self.receiver(tls=authority.issue("receiver"))
            node = self.node(receiver.url, ["connect"], ca_file=str(authority.certificate))
            mosquitto_clients.publish(node.port, "a", "x")
            wait_until(lambda: receiver.events("client.connected"), "an event")
            seen = len(receiver.requests)
            stranger = self.node(receiver.url, ["connect"], ca_file=str(other.certificate), attempts=1)
            mosquitto_clients.publish(stranger.port, "a", "x")
            wait_until(lambda: self.counts(stranger)["dead_letter"] == 1, "the dead letter")
            self.assertEqual(len(receiver.requests), seen)

    def test_the_authentication_hook_speaks_https(self):
        with Authority() as authority, Authority("other") as other:
            receiver = self.receiver(tls=authority.issue("receiver"), reply=b'{"result":"allow"}')
            for certificate, expected in ((authority.certificate, "Success"), (other.certificate, "Server unavailable")):
                node = Node("n1", [], ["--auth-hook", receiver.url, "--auth-hook-ca", str(certificate)])
                self.addCleanup(node.log.close)
                self.addCleanup(node.stop)
                self.assertTrue(node.wait_until_ready(1), node.log_from(0))
                with PahoClient(node.port, "ada") as client:
                    self.assertEqual(str(client.connack), expected)
            self.assertEqual(len(receiver.requests), 1)

    def test_the_example_stores_each_event_once(self):
        port, database = free_port(), self.path / "events.sqlite"
        command = [sys.executable, EXAMPLE, str(port), self.path / "secret", database]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        node = self.node(f"http://127.0.0.1:{port}/", ["publish"], filters=["orders/#"])
        mosquitto_clients.publish(node.port, "orders/1", "x")
        wait_until(lambda: self.counts(node)["delivered"] == 1, "the delivery")
        with sqlite3.connect(database) as connection:
            rows = connection.execute("SELECT node, event, fields FROM events").fetchall()
        self.assertEqual([row[:2] for row in rows], [("n1", "message.published")])
        self.assertEqual(json.loads(rows[0][2])["topic"], "orders/1")
        connection.close()


class HooksOfACluster(unittest.TestCase):
    """Three nodes with the same hook, which serve with a majority only; each names itself in its batches."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = pathlib.Path(self.directory.name)
        self.receiver = Receiver()
        self.addCleanup(self.receiver.close)
        config = self.path / "thicket.toml"
        config.write_text(f'[[hook]]\nname = "test"\nurl = "{self.receiver.url}"\nevents = ["session", "cluster"]\n')
        self.nodes = {}
        for name in ("n1", "n2", "n3"):
            self.start(name)
        for node in self.nodes.values():
            self.assertTrue(node.wait_until_ready(3), node.log_from(0))
        self.ids = {entry["name"]: entry["id"] for entry in self.ask("n1", "/v1/nodes")}

    def start(self, name, ports=None):
        seeds = [node.port for node in self.nodes.values()]
        arguments = ("--config", str(self.path / "thicket.toml"), "--partition", "majority", "--backups", "1", "--data", str(self.path / name))
        node = self.nodes[name] = Node(name, seeds, arguments, ports=ports)
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)

    def ask(self, name, path):
        return json.loads(self.nodes[name].ask(path))

    def events(self, reporter, event, **fields):
        """The events that a node has reported."""
        every = [it for batch in self.receiver.batches() if batch["node"] == reporter for it in batch["events"]]
        return [it for it in every if it["event"] == event and all(it.get(name) == value for name, value in fields.items())]

    def expect(self, reporter, event, **fields):
        wait_until(lambda: self.events(reporter, event, **fields), f"{event} with {fields} from {reporter}")
        return self.events(reporter, event, **fields)

    def keeper(self, name, client_id):
        """A client whose session has a backup."""
        client = RawClient(self.nodes[name].port)
        self.addCleanup(client.close)
        client.connect(client_id, clean_start=False, props=((Property.SESSION_EXPIRY_INTERVAL, 3600),))
        client.subscribe(("a/#", 1))

        def is_covered():
            return [it["backups"] for it in self.ask(name, "/v1/sessions") if it["client_id"] == client_id] == [1]

        wait_until(is_covered, "the session to have a backup")
        return client

    def test_a_session_that_moves_is_reported_with_its_new_node(self):
        first = self.keeper("n1", "mover")
        self.keeper("n2", "mover")
        self.assertEqual(first.expect(Kind.DISCONNECT).reason_code, 0x8E)
        (moved,) = self.expect("n1", "session.moved")
        self.assertEqual((moved["client_id"], moved["node"]), ("mover", self.ids["n2"]))
        self.assertEqual(len(self.expect("n1", "session.created", client_id="mover")), 1)
        self.assertEqual(self.events("n2", "session.created", client_id="mover"), [], "it is the same session")

    def test_nodes_that_come_fail_and_are_removed_are_reported_by_the_others(self):
        for name in self.nodes:
            self.assertEqual(len(self.expect(name, "node.ready")), 1)
        self.expect("n1", "node.up", node=self.ids["n3"], name="n3")
        self.keeper("n3", "stays")
        self.nodes["n3"].kill()
        for name in ("n1", "n2"):
            self.expect(name, "node.down", node=self.ids["n3"])
        wait_until(lambda: self.events("n1", "session.failed_over") or self.events("n2", "session.failed_over"), "the failover")
        (failed_over,) = self.events("n1", "session.failed_over") + self.events("n2", "session.failed_over")
        self.assertEqual((failed_over["node"], failed_over["sessions"]), (self.ids["n3"], 1))
        self.assertEqual(self.events("n1", "cluster.partitioned"), [], "two of three are a majority")
        api = f"127.0.0.1:{self.nodes['n1'].http_port}"
        subprocess.run([BINARY, "ctl", "forget", "n3", "--api", api], check=True, capture_output=True)
        self.assertEqual(len(self.expect("n1", "node.removed", node=self.ids["n3"], name="n3")), 1)
        self.assertEqual(self.events("n2", "node.removed"), [], "the node that was asked reports it")

    def test_a_minority_reports_that_it_does_not_serve_and_that_it_serves_again(self):
        ports = {name: (node.port, node.http_port) for name, node in self.nodes.items()}
        for name in ("n2", "n3"):
            self.nodes.pop(name).kill()
        (partitioned,) = self.expect("n1", "cluster.partitioned")
        self.assertEqual((partitioned["members"], partitioned["reachable"]), (3, 1))
        self.start("n2", ports["n2"])
        (healed,) = self.expect("n1", "cluster.healed")
        self.assertEqual((healed["members"], healed["reachable"]), (3, 2))
        self.expect("n1", "node.up", node=self.ids["n2"])

    def test_a_node_that_is_drained_reports_it_once(self):
        api = f"127.0.0.1:{self.nodes['n1'].http_port}"
        subprocess.run([BINARY, "ctl", "drain", "--api", api], check=True, capture_output=True)
        self.assertEqual(len(self.expect("n1", "node.draining")), 1)
        self.assertEqual(self.events("n2", "node.draining"), [])


if __name__ == "__main__":
    unittest.main()
