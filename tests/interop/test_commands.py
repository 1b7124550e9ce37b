"""The commands a user types: `thicket up`, `pub`, `sub`, `ctl`, and what `broker` refuses to do."""

import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import threading
import unittest

import mosquitto_clients
from certificates import Authority
from nodes import BINARY, PATIENCE_S, Node, OneNode, ThreeNodes, free_port, wait_until
from wire import RawCases, RawClient


def thicket(*arguments, text="", status=0):
    """Runs a command that ends by itself with this status; what it printed, on either stream if it failed."""
    command = [BINARY, *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == status, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout if status == 0 else done.stdout + done.stderr


class CommandCases(RawCases):
    """Our own client beside others, on one node and on several."""

    def test_thicket_pub_reaches_mosquitto_sub(self):
        """Every version and quality of service, a line a message too."""
        with mosquitto_clients.Subscriber(self.here, "-V", "mqttv5", "-t", self.topic("#"), "-q", 2) as subscriber:
            for version in ("3.1", "3.1.1", "5"):
                for qos in (0, 1, 2):
                    arguments = ("-p", self.there, "-V", version, "-q", qos, "-t", self.topic(version))
                    thicket("pub", *arguments, "-m", f"{version} {qos}")
                    self.assertEqual(subscriber.take(), (self.topic(version), f"{qos}", "0", f"{version} {qos}"))
            thicket("pub", "-p", self.there, "-q", 1, "-t", self.topic("lines"), "--lines", text="one\ntwo\nthree\n")
            self.assertEqual([subscriber.take()[3] for _ in range(3)], ["one", "two", "three"])
            # Temperatures below zero, and whatever else begins like a flag.
            for message in ("-5", "--qos", "-x y"):
                thicket("pub", "-p", self.there, "-q", 1, "-t", self.topic("minus"), "-m", message)
                self.assertEqual(subscriber.take()[3], message)

    def test_thicket_sub_prints_what_mosquitto_pub_sends(self):
        """Retained messages wait for it, so that no test has to wait for its SUBACK."""
        for version in ("3.1", "3.1.1", "5"):
            for number in range(3):
                topic = self.topic(f"{version}/{number}")
                mosquitto_clients.publish(self.there, topic, f"message {number}", "-q", number, "-r")
            # A watcher tells when they have come to the subscribers' node.
            watcher = self.subscriber((self.topic(f"{version}/+"), 1), role=version)
            for _ in range(3):
                watcher.take_message()
            arguments = ("-p", self.here, "-V", version, "-q", 2, "-t", self.topic(f"{version}/+"), "-C", 3, "-W", 20)
            printed = thicket("sub", *arguments, "-v")
            expected = [f"{self.topic(f'{version}/{number}')} message {number}" for number in range(3)]
            self.assertEqual(sorted(printed.splitlines()), expected)

    def test_thicket_sub_keeps_a_session_where_it_is_asked_to(self):
        """-c with -i: what came meanwhile is printed the next time, at another node."""
        session = ("-c", "-i", self.client_id("kept"), "-q", 1, "-t", self.topic())
        # The first run ends by its time: the SUBACK came long before.
        thicket("sub", "-p", self.here, *session, "-W", 1)
        thicket("pub", "-p", self.there, "-q", 1, "-t", self.topic(), "-m", "kept")
        self.assertEqual(thicket("sub", "-p", self.elsewhere, *session, "-C", 1, "-W", 20), "kept\n")

    def test_thicket_ctl_shows_what_the_node_knows(self):
        """Nodes, sessions, subscriptions and traffic, as tables and as JSON."""
        client = self.subscriber((self.topic("seen/+"), 1), role="seen")
        client.publish(self.topic("seen/x"), "x", qos=1)
        api = ("ctl", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}")
        nodes = json.loads(thicket(*api, "--json", "nodes"))
        self.assertEqual({node["name"] for node in nodes}, {node.name for node in self.cluster.nodes})
        sessions = {one["client_id"]: one for one in json.loads(thicket(*api, "--json", "sessions"))}
        self.assertTrue(sessions[self.client_id("seen")]["connected"])
        self.assertIn(self.topic("seen/+"), thicket(*api, "--json", "subscriptions"))
        self.assertGreaterEqual(json.loads(thicket(*api, "--json", "traffic"))["total"]["external_in_messages"], 1)
        for command, word in (("nodes", "node-1"), ("sessions", "seen"), ("subscriptions", "seen/+"), ("traffic", "")):
            self.assertIn(word, thicket(*api, command))

    def test_commands_that_cannot_work_say_so(self):
        """A failure is a status and a line for people, no trace."""
        for arguments in (
            ("pub", "-p", free_port(), "-t", "t", "-m", "x"),
            ("pub", "-p", self.here, "-t", "a/#", "-m", "x"),
            ("sub", "-p", self.here, "-t", "a/#/b", "-W", 5),
            ("sub", "-p", self.here, "-t", self.topic(), "-C", 1, "-W", 1),
            ("ctl", "--api", f"127.0.0.1:{free_port()}", "nodes"),
        ):
            with self.subTest(arguments):
                printed = thicket(*arguments, status=1)
                self.assertTrue(printed.strip())
                self.assertNotIn("panicked", printed)


class CommandsOnOneNode(CommandCases, OneNode):
    pass


class CommandsAcrossNodes(CommandCases, ThreeNodes):
    pass


class Listeners(RawCases, OneNode):
    """Where a node listens."""

    @classmethod
    def setUpClass(cls):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
                cls.second_port = probe.getsockname()[1]
        except OSError as error:
            raise unittest.SkipTest(f"no IPv6 here: {error}") from error
        cls.arguments = ("--listen", f"[::1]:{cls.second_port}")
        super().setUpClass()

    def test_clients_come_by_ipv4_and_by_ipv6(self):
        """Several listeners of one node serve the same clients."""
        line_format = ("-h", "::1", "-p", self.second_port, "-t", self.topic(), "-m", "by IPv6")
        subscriber = self.subscriber((self.topic(), 0))
        mosquitto_clients.run("mosquitto_pub", *line_format)
        self.assertEqual(subscriber.take_message().payload, b"by IPv6")


class Refusals(unittest.TestCase):
    """What a node will not start with, and the words it finds for it."""

    def test_a_listener_others_can_reach_needs_a_choice_about_clients_and_nodes(self):
        common = ("broker", "--listen", f"0.0.0.0:{free_port()}", "--http", "off", "--discover", "off")
        self.assertIn("--allow-anonymous", thicket(*common, status=1))
        self.assertIn("--users", thicket(*common, "--insecure-links", status=1))
        self.assertIn("--cluster-secret-file", thicket(*common, "--allow-anonymous", status=1))

    def test_a_bad_filter_and_a_bad_topic_are_named_with_their_flag(self):
        # Before it connects: nobody listens there.
        words = thicket("sub", "-p", free_port(), "-t", "a/#/b", status=1)
        self.assertIn("--topic a/#/b: # is not the whole last level", words)
        words = thicket("pub", "-p", free_port(), "-t", "a/#", "-m", "x", status=1)
        self.assertIn("--topic a/#: ", words)

    def test_a_port_in_use_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            words = thicket("broker", "--listen", f"127.0.0.1:{port}", "--http", "off", "--discover", "off", status=1)
            self.assertIn(str(port), words)


@unittest.skipIf(os.environ.get("THICKET_CLUSTER_TESTS") == "0", "THICKET_CLUSTER_TESTS=0")
class WrongPorts(unittest.TestCase):
    """Commands at a port of another kind say what is wrong and what to do."""

    def test_each_kind_of_port_is_named(self):
        with Authority() as authority:
            certificate, key = authority.issue("server")
            secure = free_port()
            node = Node("node", (), ("--listen", f"tls://127.0.0.1:{secure}", "--tls-certificate", certificate, "--tls-key", key))
            self.addCleanup(node.log.close)
            self.addCleanup(node.stop)
            self.assertTrue(node.wait_until_ready(1), node.log_from(0))
            trust = ("--cafile", str(authority.certificate))
            for port, more, words in [
                (secure, (), "the broker speaks TLS at this port: .*--cafile"),
                (node.port, trust, "probably a port without TLS: connect without TLS"),
                (node.http_port, (), "this port speaks HTTP, not MQTT: use the port of an MQTT listener"),
                (node.http_port, trust, "probably a port without TLS"),
            ]:
                for command in (("pub", "-m", "x"), ("sub", "-W", "3")):
                    with self.subTest(words=words, command=command[0]):
                        said = thicket(*command, "-h", "127.0.0.1", "-p", port, "-t", "a", *more, status=1)
                        self.assertRegex(said, words)
                        self.assertEqual(len(said.strip().splitlines()), 1, said)
            for port in (node.port, secure):
                with self.subTest(port=port):
                    said = thicket("ctl", "--api", f"127.0.0.1:{port}", "nodes", status=1)
                    self.assertRegex(said, "does not answer with HTTP: is it the port of an MQTT listener.*--http")


class Up(unittest.TestCase):
    """`thicket up`: nodes that find each other by multicast on the loopback."""

    def test_up_starts_nodes_that_are_one_broker_and_ctrl_c_stops_them(self):
        ports = consecutive_free_ports(3)
        http_ports = consecutive_free_ports(3)
        command = [BINARY, "up", "--port", str(ports[0]), "--http-port", str(http_ports[0])]
        command += ["--cluster-name", f"up-{os.getpid()}-{ports[0]}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            printed = read_until(process, "Ctrl-C stops all")
            for port in ports:
                self.assertIn(f"127.0.0.1:{port}", printed)
            seen = [line for line in printed.splitlines() if line.split()[-2:] == ["3", "nodes"]]
            self.assertEqual(len(seen), 3, printed)
            with RawClient(ports[2]) as subscriber, RawClient(ports[0]) as publisher:
                subscriber.connect("up-subscriber")
                publisher.connect("up-publisher")
                subscriber.subscribe(("site/+/temp", 1))
                publisher.publish("site/1/temp", "21", qos=1)
                self.assertEqual(subscriber.take_message().payload, b"21")
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            process.wait(PATIENCE_S)
            for port in ports:
                with self.assertRaises(OSError):
                    RawClient(port)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
            process.stdout.close()


class Measurements(unittest.TestCase):
    def test_a_signal_ends_a_measurement_with_the_nodes_that_it_started(self):
        for arguments in (("placement", "--nodes", "2", "--seconds", "60"), ("crash", "--spawn", "2", "--random", "60")):
            with self.subTest(arguments[0]):
                process = subprocess.Popen([BINARY, "bench", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.addCleanup(process.kill)
                children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
                wait_until(lambda of=children: len(of.read_text().split()) >= 2, "two nodes to be started")
                nodes = [pathlib.Path("/proc", pid) for pid in children.read_text().split()]
                process.terminate()
                self.assertEqual(process.wait(PATIENCE_S), 128 + signal.SIGTERM)
                wait_until(lambda of=nodes: not any(node.exists() for node in of), "the nodes to be gone")


def consecutive_free_ports(count):
    """Ports in a row that nobody listens on at the moment."""
    for _ in range(100):
        first = free_port()
        with_first = []
        try:
            for port in range(first, first + count):
                with_first.append(socket.create_server(("127.0.0.1", port)))
            return list(range(first, first + count))
        except (OSError, OverflowError):
            continue
        finally:
            for listener in with_first:
                listener.close()
                free_port()  # Where ports are given out in order, the next call begins behind these.
    raise AssertionError(f"no {count} free ports in a row")


def read_until(process, words):
    """What a process prints up to these words."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put(line)
            if words in line:
                return
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    printed = ""
    while words not in printed:
        line = lines.get(timeout=2 * PATIENCE_S)
        assert line is not None, f"it ended after {printed}"
        printed += line
    return printed
