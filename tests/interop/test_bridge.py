"""A bridge between our node and a real Mosquitto broker, in 3.1.1 and 5.0: ours, and one of Mosquitto itself."""

import contextlib
import json
import pathlib
import queue
import shutil
import socket
import subprocess
import tempfile

import mosquitto_clients
import nodes
from certificates import Authority
from nodes import BrokerTest, OneNode, ThreeNodes, wait_until
from test_hostile_links import Relay
from test_rights import Files, passwd

MOSQUITTO = shutil.which("mosquitto") or "/usr/sbin/mosquitto"

# How long a message that must not come is waited for, after one that must has come.
SILENCE_S = 0.3

# So many looks at the counters must show the same before they count as at rest.
QUIET = 20

RULES = """
[[bridge.rule]]
topic = "out/#"
direction = "out"
remote_prefix = "far/"
qos = 2
[[bridge.rule]]
topic = "in/#"
direction = "in"
local_prefix = "near/"
qos = 2
[[bridge.rule]]
topic = "#"
direction = "both"
local_prefix = "ours/"
remote_prefix = "theirs/"
qos = 2
"""


class Mosquitto:
    """A mosquitto broker that keeps its sessions over a restart."""

    def __init__(self, further=""):
        """`further`: lines of its configuration, for another listener say."""
        self.port = nodes.free_port()
        self.directory = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.directory.name)
        # Started by root, it would become a user that may not write here.
        config = f"listener {self.port} 127.0.0.1\nallow_anonymous true\nuser root\n"
        config += f"persistence true\npersistence_location {path}/\nmax_queued_messages 10000\n{further}"
        (path / "mosquitto.conf").write_text(config)
        self.process = None
        self.start()

    def start(self):
        config = pathlib.Path(self.directory.name) / "mosquitto.conf"
        self.process = subprocess.Popen(
            [MOSQUITTO, "-c", str(config)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self.answers, "mosquitto to listen")

    def answers(self):
        command = ["mosquitto_pub", "-p", str(self.port), "-t", "probe", "-n"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def stop(self):
        """It writes what it keeps and ends; by its pid."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(nodes.PATIENCE_S)

    def close(self):
        self.stop()
        self.directory.cleanup()


class BridgeCases:
    """Cases for each version; every test has a broker and a node of its own class."""

    version = "5.0"
    bridges = 1

    @classmethod
    def start_mosquitto(cls):
        return Mosquitto()

    @classmethod
    def address(cls):
        """Where the bridge connects, as the key of its table says, and what follows it."""
        return f'address = "127.0.0.1:{cls.mosquitto.port}"'

    @classmethod
    def setUpClass(cls):
        cls.mosquitto = cls.start_mosquitto()
        cls.files = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.files.name) / "thicket.toml"
        path.write_text("".join(cls.table(number) for number in range(cls.bridges)))
        cls.arguments = ("--config", str(path))
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.mosquitto.close()
        cls.files.cleanup()

    @classmethod
    def table(cls, number):
        head = f'[[bridge]]\nname = "bridge-{number}"\n{cls.address()}\n'
        return head + f'version = "{cls.version}"\nreconnect_maximum_s = 1\n' + RULES

    def setUp(self):
        super().setUp()
        wait_until(lambda: all(self.is_ready(bridge) for bridge in self.entries()), "bridges to subscribe")

    def entries(self):
        return json.loads(self.cluster.nodes[0].ask("/v1/bridges") or b"[]")

    @staticmethod
    def is_ready(bridge):
        """Connected and subscribed at both ends."""
        return bridge["local_connected"] and bridge["remote_connected"]

    def there_port(self):
        return self.mosquitto.port

    def bridged_port(self):
        """Where the bridge connects."""
        return self.mosquitto.port

    def subscriber(self, port, topic, *arguments):
        return mosquitto_clients.Subscriber(port, "-V", "mqttv5", "-t", topic, "-q", 2, *arguments)

    def publish(self, port, topic, message, qos, *arguments):
        mosquitto_clients.publish(port, topic, message, "-V", "mqttv5", "-q", qos, *arguments)

    def assert_silent(self, subscriber):
        """Nothing comes any more."""
        with self.assertRaises(queue.Empty):
            while True:
                line = subscriber.lines.get(timeout=SILENCE_S)
                self.assertFalse(line.startswith(mosquitto_clients.MARK), line)


class OneBridgeCases(BridgeCases):
    """One bridge between the two."""

    def test_messages_cross_with_their_prefixes_and_their_qos(self):
        name = self.unique
        cases = [
            (self.here, f"out/{name}", self.there_port(), f"far/out/{name}"),
            (self.there_port(), f"in/{name}", self.here, f"near/in/{name}"),
            (self.here, f"ours/{name}/a", self.there_port(), f"theirs/{name}/a"),
            (self.there_port(), f"theirs/{name}/b", self.here, f"ours/{name}/b"),
        ]
        for source, topic, target, expected in cases:
            with self.subscriber(target, expected) as subscriber, self.subscriber(source, topic) as echo:
                for qos in (0, 1, 2):
                    self.publish(source, topic, f"{qos}", qos)
                    self.assertEqual(subscriber.take(), (expected, f"{qos}", "0", f"{qos}"))
                    self.assertEqual(echo.take()[3], f"{qos}")
                self.assert_silent(echo)
                self.assert_silent(subscriber)

    def test_what_is_published_while_mosquitto_is_stopped_arrives_when_it_is_back(self):
        name = self.unique
        before = self.entries()[0]["outward"]["forwarded"]
        self.mosquitto.stop()
        wait_until(lambda: not self.entries()[0]["remote_connected"], "the bridge to notice")
        # Retained, so that whoever looks later sees what arrived.
        for number in range(50):
            self.publish(self.here, f"out/{name}/{number}", f"{number}", 1 + number % 2, "-r")
        self.mosquitto.start()
        wait_until(lambda: self.entries()[0]["outward"]["forwarded"] == before + 50, "all to cross, each once")
        # QoS 0: this version of mosquitto_sub gives up when many of QoS 2 wait for it.
        arguments = ("-V", "mqttv5", "-t", f"far/out/{name}/#", "-q", 0)
        with mosquitto_clients.Subscriber(self.there_port(), *arguments) as subscriber:
            arrived = {subscriber.take()[3] for _ in range(50)}
        self.assertEqual(arrived, {f"{number}" for number in range(50)})

    def test_a_retained_message_is_retained_on_the_other_side(self):
        name = self.unique
        with self.subscriber(self.there_port(), f"far/out/{name}") as watcher:
            self.publish(self.here, f"out/{name}", "kept", 1, "-r")
            watcher.take()
        with self.subscriber(self.there_port(), f"far/out/{name}") as subscriber:
            self.assertEqual(subscriber.take(), (f"far/out/{name}", "1", "1", "kept"))

    def test_metrics_and_the_command_tell_what_crossed(self):
        self.publish(self.here, f"out/{self.unique}", "x", 1)
        wait_until(lambda: self.entries()[0]["outward"]["queue_messages"] == 0, "the message to cross")
        text = self.cluster.nodes[0].ask("/metrics").decode()
        self.assertIn('thicket_bridge_connected{bridge="bridge-0",side="remote"} 1', text)
        api = f"127.0.0.1:{self.cluster.nodes[0].http_port}"
        table = mosquitto_clients.run(nodes.BINARY, "ctl", "bridges", "--api", api)
        self.assertIn("bridge-0", table)
        self.assertIn(f"127.0.0.1:{self.bridged_port()}", table)


class TwoBridgesCases(BridgeCases):
    """Two bridges between the same two: a ring."""

    bridges = 2
    # Messages the bridges may receive in all.
    most = 30

    def test_a_message_does_not_go_round(self):
        for port, topic in ((self.here, f"ours/{self.unique}"), (self.there_port(), f"theirs/{self.unique}")):
            self.publish(port, topic, "round", 1)
        seen = [-1] * QUIET

        def is_quiet():
            """Nothing was received for a while."""
            received = (bridge[way]["received"] for bridge in self.entries() for way in ("outward", "inward"))
            seen.append(sum(received))
            return len(set(seen[-QUIET:])) == 1

        wait_until(is_quiet, "messages to come to rest")
        looped = sum(bridge[way]["looped"] for bridge in self.entries() for way in ("outward", "inward"))
        self.assertGreater(looped, 0)
        self.assertLess(seen[-1], self.most)


class OneBridge5(OneBridgeCases, BrokerTest):
    """5.0."""


class OneBridgeOverTls(OneBridgeCases, BrokerTest):
    """Mosquitto shows a certificate and wants one."""

    @classmethod
    def start_mosquitto(cls):
        cls.authority = Authority()
        cls.addClassCleanup(cls.authority.close)
        certificate, key = cls.authority.issue("localhost")
        cls.tls_port = nodes.free_port()
        return Mosquitto(
            f"listener {cls.tls_port} 127.0.0.1\ncafile {cls.authority.certificate}\n"
            f"certfile {certificate}\nkeyfile {key}\nrequire_certificate true\n"
        )

    @classmethod
    def address(cls):
        certificate, key = cls.authority.issue("bridge")
        return (
            f'address = "tls://127.0.0.1:{cls.tls_port}"\ntls_ca = "{cls.authority.certificate}"\n'
            f'tls_certificate = "{certificate}"\ntls_key = "{key}"'
        )

    def bridged_port(self):
        return self.tls_port


class OneBridgeOverWebSocket(OneBridgeCases, BrokerTest):
    """Mosquitto's WebSocket."""

    @classmethod
    def start_mosquitto(cls):
        cls.websocket_port = nodes.free_port()
        return Mosquitto(f"listener {cls.websocket_port} 127.0.0.1\nprotocol websockets\n")

    @classmethod
    def address(cls):
        return f'address = "ws://127.0.0.1:{cls.websocket_port}/mqtt"'

    def bridged_port(self):
        return self.websocket_port


class OneBridge311(OneBridgeCases, BrokerTest):
    """3.1.1."""

    version = "3.1.1"


class TwoBridges5(TwoBridgesCases, BrokerTest):
    """5.0."""


class TwoBridges311(TwoBridgesCases, BrokerTest):
    """3.1.1, where a ring ends when the same has come too often."""

    most = 1000
    version = "3.1.1"


class OutageCases(BridgeCases):
    """The connection to Mosquitto breaks, and both brokers stay up."""

    @classmethod
    def address(cls):
        cls.relay = Relay(cls.mosquitto.port)
        cls.addClassCleanup(cls.relay.close)
        return f'address = "127.0.0.1:{cls.relay.port}"'

    def cut(self):
        """No connection gets through until the relay has its target again."""
        self.relay.target = nodes.free_port()
        for connection in self.relay.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not self.entries()[0]["remote_connected"], "the bridge to notice")

    def test_a_retained_message_of_qos_0_crosses_after_the_outage_in_which_it_was_published(self):
        topic = f"in/{self.unique}"
        with self.subscriber(self.here, f"near/{topic}") as subscriber:
            self.publish(self.there_port(), topic, "before", 0, "-r")
            self.assertEqual(subscriber.take()[3], "before")
            self.cut()
            self.publish(self.there_port(), topic, "meanwhile", 0, "-r")
            self.relay.target = self.mosquitto.port
            self.assertEqual(subscriber.take()[3], "meanwhile")
        with self.subscriber(self.here, f"near/{topic}") as later:
            self.assertEqual(later.take()[2:], ("1", "meanwhile"))

    def test_what_was_retained_before_an_outage_does_not_replace_what_was_published_in_it(self):
        name = self.unique
        with self.subscriber(self.here, f"ours/{name}") as subscriber:
            self.publish(self.there_port(), f"theirs/{name}", "before", 1, "-r")
            self.assertEqual(subscriber.take()[3], "before")
            self.cut()
            self.publish(self.here, f"ours/{name}", "meanwhile", 1, "-r")
            self.assertEqual(subscriber.take()[3], "meanwhile")
            wait_until(lambda: self.entries()[0]["outward"]["queue_messages"] == 1, "the bridge to have it")
            with self.subscriber(self.there_port(), f"theirs/{name}") as far:
                self.assertEqual(far.take()[3], "before")
                self.relay.target = self.mosquitto.port
                self.assertEqual(far.take()[3], "meanwhile")
            self.assert_silent(subscriber)


class Outage5(OutageCases, BrokerTest):
    """5.0."""


class Outage311(OutageCases, BrokerTest):
    """3.1.1."""

    version = "3.1.1"


class Edge(Mosquitto):
    """A mosquitto with a bridge of its own to a node, with the defaults of Mosquitto: notifications, try_private."""

    def __init__(self, port, name, version, further=""):
        super().__init__(
            f"connection up\naddress 127.0.0.1:{port}\nbridge_protocol_version {version}\nremote_clientid {name}\n"
            f"cleansession false\nrestart_timeout 1\ntopic # both 1\n{further}"
        )


class EdgeCases:
    """A bridge of Mosquitto to our node, in each version that it has."""

    VERSIONS = ("mqttv311", "mqttv50")

    def edge(self, version, further=""):
        name = f"{self.unique}-{version}"
        edge = Edge(self.there, name, version, further)
        self.addCleanup(edge.close)
        return edge, name

    def watcher(self, port, topic, *arguments):
        # QoS 0: this version of mosquitto_sub gives up when twenty of a higher one wait for it.
        subscriber = mosquitto_clients.Subscriber(port, "-V", "mqttv5", "-t", topic, "-q", 0, *arguments)
        self.addCleanup(subscriber.kill)
        return subscriber

    def wait_until_bridged(self, name):
        """The state of the bridge is there, at another node."""
        state = self.watcher(self.here, f"$SYS/broker/connection/{name}/state")
        while state.take()[3] != "1":
            pass
        return state

    def test_the_state_of_a_bridge_is_retained_and_its_will_ends_it(self):
        for version in self.VERSIONS:
            with self.subTest(version=version):
                edge, name = self.edge(version)
                state = self.wait_until_bridged(name)
                topic = f"$SYS/broker/connection/{name}/state"
                later = self.watcher(self.elsewhere, "$SYS/broker/connection/#")
                while (found := later.take())[0] != topic:
                    pass
                self.assertEqual(found[2:], ("1", "1"))
                edge.process.kill()
                edge.process.wait()
                self.assertEqual(state.take()[3], "0")
                after = self.watcher(self.elsewhere, topic)
                self.assertEqual(after.take()[2:], ("1", "0"))

    def test_messages_cross_once_and_keep_their_retain(self):
        for version in self.VERSIONS:
            with self.subTest(version=version):
                edge, name = self.edge(version)
                self.wait_until_bridged(name)
                at_edge = self.watcher(edge.port, f"{name}/#")
                at_node = self.watcher(self.here, f"{name}/#")
                for number in range(10):
                    for port, side in ((edge.port, "edge"), (self.elsewhere, "node")):
                        mosquitto_clients.publish(port, f"{name}/{side}/{number}", f"{number}", "-q", 1, "-r")
                for subscriber in (at_edge, at_node):
                    came = sorted(subscriber.take()[0] for _ in range(20))
                    expected = sorted(f"{name}/{side}/{number}" for side in ("edge", "node") for number in range(10))
                    self.assertEqual(came, expected)
                    with self.assertRaises(queue.Empty):
                        while True:
                            line = subscriber.lines.get(timeout=SILENCE_S)
                            self.assertFalse(line.startswith(mosquitto_clients.MARK), line)
                # Retained on the other side too.
                for port in (edge.port, self.here):
                    later = self.watcher(port, f"{name}/#")
                    self.assertEqual({later.take()[2] for _ in range(20)}, {"1"})

    def test_a_bridge_gets_what_was_published_while_it_was_away(self):
        for version in self.VERSIONS:
            with self.subTest(version=version):
                edge, name = self.edge(version)
                state = self.wait_until_bridged(name)
                edge.stop()
                while state.take()[3] != "0":
                    pass
                for number in range(10):
                    mosquitto_clients.publish(self.elsewhere, f"{name}/{number}", f"{number}", "-q", 1, "-r")
                edge.start()
                while state.take()[3] != "1":
                    pass
                at_edge = self.watcher(edge.port, f"{name}/#")
                self.assertEqual({at_edge.take()[0] for _ in range(10)}, {f"{name}/{number}" for number in range(10)})


class EdgeOneNode(EdgeCases, OneNode):
    pass


class EdgeAcrossNodes(EdgeCases, ThreeNodes):
    pass


class EdgeWithRights(Files, OneNode):
    """A bridge without the right to its state topic, as an ACL file for Mosquitto may have it, and one with it."""

    @classmethod
    def write_files(cls):
        users = cls.write("users", passwd("edge", "edge") + passwd("ops", "ops"))
        rights = "user edge\ntopic readwrite #\nuser ops\ntopic readwrite #\ntopic read $SYS/#\n"
        rights += "pattern write $SYS/broker/connection/may-%u/state\n"
        cls.arguments = ("--users", users, "--acl", cls.write("acl", rights))

    def test_messages_cross_with_and_without_the_right_to_the_state(self):
        ops = ("-u", "ops", "-P", "ops")
        state = mosquitto_clients.Subscriber(self.here, "-t", "$SYS/broker/connection/#", "-V", "mqttv5", *ops)
        self.addCleanup(state.kill)
        for version in EdgeCases.VERSIONS:
            for name in (f"not-{version}", "may-edge"):
                with self.subTest(version=version, name=name):
                    edge = Edge(self.here, name, version, "remote_username edge\nremote_password edge\n")
                    self.addCleanup(edge.close)
                    topic = f"{name}/{version}"
                    with mosquitto_clients.Subscriber(edge.port, "-t", topic, "-q", 1) as at_edge:
                        # Retained, so that it crosses whenever the bridge comes.
                        mosquitto_clients.publish(self.here, topic, "x", "-q", 1, "-r", *ops)
                        self.assertEqual(at_edge.take()[3], "x")
                    if name == "may-edge":
                        self.assertEqual(state.take()[0], "$SYS/broker/connection/may-edge/state")
                    edge.close()
