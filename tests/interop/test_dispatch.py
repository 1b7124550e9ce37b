"""`thicket dispatch` in front of brokers that know nothing of each other: two nodes of ours, each alone."""

import itertools
import json
import pathlib
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.request

from certificates import Authority
from nodes import BINARY, PATIENCE_S, Node, free_port, wait_until
from wire import Closed, Kind, Property, RawClient, connect

USE_ANOTHER_SERVER = 0x9C
SERVER_UNAVAILABLE_311 = 3


class Dispatcher:
    """One dispatcher process."""

    def __init__(self, *arguments, listen=""):
        self.port, self.http_port = free_port(), free_port()
        self.log = tempfile.TemporaryFile(mode="w+b")
        command = [BINARY, "dispatch", "--listen", f"127.0.0.1:{self.port}{listen}", "--http", f"127.0.0.1:{self.http_port}"]
        self.process = subprocess.Popen([*command, *arguments], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def ask(self, path):
        """The body of an answer of the HTTP API, or None while it does not answer with success."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return None

    def metric(self, line):
        """The value of the metric that a line begins with."""
        found = [text for text in (self.ask("/metrics") or "").splitlines() if text.startswith(line + " ")]
        return float(found[0].split()[-1]) if found else None

    def serving(self):
        """How many brokers take clients."""
        lines = (self.ask("/metrics") or "").splitlines()
        return sum(line.endswith(" 1") for line in lines if line.startswith("thicket_dispatch_broker_serving{"))

    def wait_for(self, brokers):
        wait_until(lambda: self.process.poll() is not None or self.serving() == brokers, f"{brokers} brokers to serve")
        assert self.process.poll() is None, self.text()
        return self

    def text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE_S)
        self.log.close()


class DispatchTest(unittest.TestCase):
    """Two brokers, and what a test starts."""

    def setUp(self):
        self.brokers = [self.start_broker(name) for name in ("one", "two")]

    def start_broker(self, name, *arguments):
        node = Node(name, [], arguments)
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1), node.log_from(0))
        return node

    def dispatcher(self, *arguments, brokers=None, listen=""):
        brokers = self.brokers if brokers is None else brokers
        words = [f"--broker={self.words(broker)}" for broker in brokers]
        dispatcher = Dispatcher(*words, *arguments, listen=listen)
        self.addCleanup(dispatcher.stop)
        return dispatcher.wait_for(len(brokers)) if brokers else dispatcher

    @staticmethod
    def words(broker):
        return f"127.0.0.1:{broker.port},nodes=127.0.0.1:{broker.http_port},pid={broker.process.pid}"

    def redirect_of(self, dispatcher, client_id):
        """The server that a client of 5.0 is told."""
        with RawClient(dispatcher.port) as client:
            client.send(connect(client_id))
            connack = client.expect(Kind.CONNACK)
            self.assertEqual(connack.reason_code, USE_ANOTHER_SERVER)
            return connack.value(Property.SERVER_REFERENCE)

    def test_a_client_of_5_is_told_a_broker_and_older_ones_are_relayed(self):
        dispatcher = self.dispatcher()
        places = {f"127.0.0.1:{broker.port}" for broker in self.brokers}
        told = {self.redirect_of(dispatcher, f"c{number}") for number in range(8)}
        self.assertEqual(told, places, "decisions count at once, so both get clients")
        for version in (3, 4):
            with self.subTest(version=version), RawClient(dispatcher.port, version) as client:
                client.connect(f"old{version}")
                client.subscribe(("t", 0))
                client.publish("t", b"x" * 100_000, qos=1)
                self.assertEqual(client.take_message().payload, b"x" * 100_000)
        wait_until(lambda: dispatcher.metric("thicket_dispatch_connections") == 0, "no connection to be left")
        wait_until(lambda: dispatcher.metric("thicket_dispatch_relayed_bytes_total") > 400_000, "the bytes to be counted")

    def test_nodes_of_one_cluster_each_have_a_probe_of_their_own(self):
        other = Node("three", [self.brokers[0].port])
        self.addCleanup(other.log.close)
        self.addCleanup(other.stop)
        nodes = [self.brokers[0], other]
        self.assertTrue(all(node.wait_until_ready(2) for node in nodes), other.log_from(0))
        dispatcher = self.dispatcher(brokers=nodes)

        def probed():
            found = json.loads(other.ask("/v1/clients?search=thicket-dispatch-"))["clients"]
            return sorted(entry["node"] for entry in found if entry["connected"])

        wait_until(lambda: probed() == ["one", "three"], "a probe at each node")
        self.assertNotIn("gets no clients", dispatcher.text())

    def test_a_client_that_comes_back_instead_of_following_is_relayed(self):
        dispatcher = self.dispatcher()
        self.redirect_of(dispatcher, "stubborn")
        with RawClient(dispatcher.port) as client:
            client.connect("stubborn")
            client.ping()
        self.assertEqual(dispatcher.metric("thicket_dispatch_unfollowed_total"), 1)

    def test_connections_without_a_connect_yield_to_clients(self):
        dispatcher = self.dispatcher("--max-connections", "16")
        old = RawClient(dispatcher.port, 4)
        self.addCleanup(old.close)
        old.connect("relayed")

        def crowd():
            for _ in range(32):
                stranger = socket.create_connection(("127.0.0.1", dispatcher.port), PATIENCE_S, ("127.0.0.66", 0))
                self.addCleanup(stranger.close)
            wait_until(lambda: dispatcher.metric("thicket_dispatch_connections") == 16, "all places to be taken")

        # One that comes again instead of following is relayed.
        newcomers = itertools.count()

        def is_answered():
            try:
                self.redirect_of(dispatcher, f"newcomer{next(newcomers)}")
            except (Closed, OSError):
                return False
            return True

        for _ in range(2):
            crowd()
            # Each stranger has half a second for its CONNECT.
            wait_until(is_answered, "a client to be answered")
        old.ping()

    def test_our_own_client_follows(self):
        dispatcher = self.dispatcher(brokers=self.brokers[:1])
        with RawClient(self.brokers[0].port) as subscriber:
            subscriber.connect("subscriber")
            subscriber.subscribe(("t", 0))
            command = [BINARY, "pub", "-p", str(dispatcher.port), "-t", "t", "-m", "x", "-q", "1"]
            subprocess.run([*command, "-i", "a"], check=True, timeout=2 * PATIENCE_S)
            self.assertEqual(subscriber.take_message().payload, b"x")
        command += ["-i", "b", "--redirect", "ignore"]
        ignored = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertIn("it names another server", ignored.stderr)
        self.assertEqual(dispatcher.metric("thicket_dispatch_unfollowed_total"), 0)

    def test_nobody_is_sent_to_a_node_that_is_drained(self):
        dispatcher = self.dispatcher()
        leaving, staying = self.brokers
        subprocess.run([BINARY, "ctl", "--api", f"127.0.0.1:{leaving.http_port}", "drain", "--force"], check=True)

        def told():
            brokers = json.loads(dispatcher.ask("/v1/brokers"))
            return next(one for one in brokers if one["name"] == f"127.0.0.1:{leaving.port}")

        wait_until(lambda: told()["state"] == "draining", "the dispatcher to hear of it")
        self.assertEqual(told()["reason"], "it is drained")
        for number in range(8):
            self.assertEqual(self.redirect_of(dispatcher, f"c{number}"), f"127.0.0.1:{staying.port}")

    def test_a_broker_dies_and_clients_go_on_through_the_other(self):
        dispatcher = self.dispatcher()
        dead, alive = self.brokers
        old = [RawClient(dispatcher.port, 4) for _ in range(6)]
        for number, client in enumerate(old):
            self.addCleanup(client.close)
            client.connect(f"old{number}")
        dead.kill()
        time.sleep(1)  # From then on nobody is sent to the dead one.
        for number in range(20):
            self.assertEqual(self.redirect_of(dispatcher, f"c{number}"), f"127.0.0.1:{alive.port}")
        lost = 0
        for number, client in enumerate(old):
            try:
                client.ping()
            except (Closed, OSError):
                lost += 1
                with RawClient(dispatcher.port, 4) as again:
                    again.connect(f"old{number}")
                    again.ping()
        self.assertIn(lost, range(1, 6), "those at the dead broker, and not those at the other")

    def test_a_dispatcher_dies_and_clients_go_on_through_the_other(self):
        first, second = self.dispatcher(), self.dispatcher()
        with RawClient(first.port, 4) as client:
            client.connect("old")
            first.process.kill()
            client.until_closed()
        with RawClient(second.port, 4) as client:
            client.connect("old")
            client.ping()
        self.assertIn(self.redirect_of(second, "new"), {f"127.0.0.1:{broker.port}" for broker in self.brokers})

    def test_without_a_broker_clients_are_told_so(self):
        dispatcher = self.dispatcher()
        for broker in self.brokers:
            broker.kill()
        dispatcher.wait_for(0)
        self.assertIsNone(dispatcher.ask("/v1/health/ready"))
        self.assertIsNotNone(dispatcher.ask("/v1/health/live"))
        for version, code in ((4, SERVER_UNAVAILABLE_311), (5, 0x88)):
            with RawClient(dispatcher.port, version) as client:
                self.assertEqual(client.try_connect("c").reason_code, code)

    def test_a_reload_changes_the_brokers_and_ends_no_relayed_client(self):
        one, two = self.brokers
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "brokers")
            path.write_text(f"# the first\n{self.words(one)}\n")
            dispatcher = self.dispatcher("--brokers", str(path), brokers=[]).wait_for(1)
            with RawClient(dispatcher.port, 4) as relayed:
                relayed.connect("old")
                path.write_text(f"{self.words(two)}\n")
                dispatcher.process.send_signal(signal.SIGHUP)
                wait_until(
                    lambda: dispatcher.metric(f'thicket_dispatch_broker_serving{{broker="127.0.0.1:{two.port}"}}') == 1,
                    "the new broker to serve",
                )
                self.assertEqual(self.redirect_of(dispatcher, "new"), f"127.0.0.1:{two.port}")
                relayed.ping()
                path.write_text("nonsense\n")
                dispatcher.process.send_signal(signal.SIGHUP)
                wait_until(lambda: "stay as they were" in dispatcher.text(), "the bad file to be refused")
                self.assertIn("nonsense", dispatcher.text())
                self.assertEqual(self.redirect_of(dispatcher, "newer"), f"127.0.0.1:{two.port}")
                relayed.ping()

    def test_a_source_that_fails_is_told_and_the_broker_gets_clients_all_the_same(self):
        helper = subprocess.Popen(["sleep", "600"])
        self.addCleanup(helper.wait)
        self.addCleanup(helper.kill)
        words = f"127.0.0.1:{self.brokers[0].port},pid={helper.pid}"
        dispatcher = self.dispatcher("--broker", words, brokers=[]).wait_for(1)
        up = f'thicket_dispatch_source_up{{broker="127.0.0.1:{self.brokers[0].port}",source="pid={helper.pid}"}}'
        wait_until(lambda: dispatcher.metric(up) == 1, "the source to tell the load")
        helper.kill()
        helper.wait()
        wait_until(lambda: dispatcher.metric(up) == 0, "the source to be missed")
        self.assertIn(f"pid={helper.pid}", dispatcher.text())
        self.assertEqual(self.redirect_of(dispatcher, "c"), f"127.0.0.1:{self.brokers[0].port}")

    def test_tls_ends_at_the_dispatcher_or_is_passed_through(self):
        with Authority() as authority:
            certificate, key = authority.issue("server")
            tls_port = free_port()
            broker = self.start_broker(
                "secure", "--listen", f"tls://127.0.0.1:{tls_port}", "--tls-certificate", certificate, "--tls-key", key
            )
            words = f"127.0.0.1:{broker.port},tls=127.0.0.1:{tls_port}"
            trust = ssl.create_default_context(cafile=str(authority.certificate))
            ended = self.dispatcher("--broker", words, brokers=[], listen=f",cert={certificate},key={key}").wait_for(1)
            passed = self.dispatcher("--broker", words, brokers=[], listen=",passthrough").wait_for(1)
            for name, dispatcher in (("ended", ended), ("passed", passed)):
                with self.subTest(name), self.secure(trust, dispatcher.port, 4) as client:
                    client.connect(f"old-{name}")
                    client.subscribe(("t", 0))
                    client.publish("t", b"x" * 200_000, qos=1)
                    self.assertEqual(client.take_message().payload, b"x" * 200_000)
            with self.secure(trust, ended.port, 5) as client:
                connack = client.try_connect("new")
                self.assertEqual(connack.reason_code, USE_ANOTHER_SERVER)
                self.assertEqual(connack.value(Property.SERVER_REFERENCE), f"127.0.0.1:{tls_port}")
            with self.secure(trust, passed.port, 5) as client:
                client.connect("unseen")

    def secure(self, trust, port, version):
        """A client over TLS."""
        client = RawClient(port, version)
        client.socket = trust.wrap_socket(client.socket, server_hostname="localhost")
        return client

    def test_what_is_no_mqtt_ends_its_connection_and_nothing_else(self):
        dispatcher = self.dispatcher()
        for name, data in (("http", b"GET / HTTP/1.1\r\n\r\n"), ("tls", b"\x16\x03\x01"), ("version 9", b"\x10\x0c\x00\x04MQTT\x09")):
            with self.subTest(name), socket.create_connection(("127.0.0.1", dispatcher.port)) as strange:
                strange.settimeout(PATIENCE_S)
                strange.sendall(data)
                self.assertEqual(self.rest_of(strange), b"")
        with RawClient(dispatcher.port, 4) as client:
            client.connect("good")
            client.ping()

    @staticmethod
    def rest_of(stream):
        try:
            return stream.recv(100)
        except ConnectionResetError:
            return b""


class DispatchRefusals(unittest.TestCase):
    """What it does not start with, by name."""

    def refused(self, *arguments):
        command = [BINARY, "dispatch", "--http", "off", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_bad_input_is_refused_by_its_name(self):
        listen = f"127.0.0.1:{free_port()}"
        for expected, *arguments in (
            ("--broker: there is none",),
            (f"--broker {listen}: this dispatcher listens there itself", "--broker", listen),
            ("is given twice", "--broker", "127.0.0.1:1", "--broker", "127.0.0.1:1,sys"),
            ("--broker here: `here` is not HOST:PORT", "--broker", "here"),
            ("`speed=9` is none of", "--broker", "127.0.0.1:1,speed=9"),
            ("--brokers: cannot read /nowhere", "--brokers", "/nowhere"),
        ):
            with self.subTest(expected):
                self.assertIn(expected, self.refused("--listen", listen, *arguments))

    def test_a_source_of_a_broker_that_answers_must_answer_too(self):
        node = Node("alone", [])
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1))
        nobody = f"127.0.0.1:{free_port()}"
        for word, expected in (
            (f"metrics=http://127.0.0.1:{node.http_port}/metrics#no_such", "there is no metric `no_such`"),
            (f"metrics=http://{nobody}/metrics#x", f"metrics=http://{nobody}/metrics#x"),
            (f"nodes={nobody}", f"nodes={nobody}"),
            (f"pid={2**22 + 1}", f"/proc/{2**22 + 1}/stat"),
        ):
            with self.subTest(word):
                text = self.refused("--listen", f"127.0.0.1:{free_port()}", "--broker", f"127.0.0.1:{node.port},{word}")
                self.assertIn(f"--broker 127.0.0.1:{node.port}: ", text)
                self.assertIn(expected, text)
