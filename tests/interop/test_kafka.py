"""Events of hooks in topics of a real Kafka broker: order, a broker that is down, TLS and login, what it refuses."""

import collections
import json
import pathlib
import re
import subprocess
import tempfile
import unittest

import kafka_broker
import mosquitto_clients
from certificates import Authority
from kafka_broker import PASSWORD, USER, KafkaBroker
from nodes import BINARY, Node, wait_until
from paho_clients import PahoClient

HOOK = """
[[hook]]
name = "test"
kafka_brokers = ["127.0.0.1:9"]
kafka_topic = "t"
events = ["connect"]
"""


def check(text):
    """What the binary says of a configuration."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        return subprocess.run([BINARY, "broker", "--config", file.name, "--check"], capture_output=True, text=True, check=False)


HAS_KAFKA = check(HOOK).returncode == 0


class WithoutKafka(unittest.TestCase):
    @unittest.skipIf(HAS_KAFKA, "this program was built with Kafka")
    def test_a_hook_of_kafka_is_refused_by_a_program_that_was_built_without_it(self):
        self.assertIn("hook.kafka_brokers needs a program that was built with the cargo feature `kafka`", check(HOOK).stderr)


@unittest.skipUnless(HAS_KAFKA, "this program was built without Kafka: cargo build -p thicket --features kafka")
@unittest.skipUnless(kafka_broker.is_here(), "Kafka is not here: scripts/setup gets it")
class Kafka(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kafka = KafkaBroker()
        cls.addClassCleanup(cls.kafka.close)

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = pathlib.Path(self.directory.name)
        self.dead = self.path / "dead.jsonl"
        self.topic = self.id().rpartition(".")[2]

    def node(self, events, brokers=None, **settings):
        """A node with one hook."""
        settings = {"name": "test", "kafka_brokers": [brokers or self.kafka.plain], "kafka_topic": self.topic, "events": events} | settings
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

    def payloads(self, records):
        return [json.loads(record.value)["payload"] for record in records]

    def test_events_of_a_client_are_in_one_partition_in_their_order(self):
        self.kafka.create(self.topic, 4)
        node = self.node(["connect", "publish", "cluster"], filters=["#"], batch=7)
        clients = [f"client-{number}" for number in range(8)]
        connected = [PahoClient(node.port, client) for client in clients]
        for number in range(20):
            for client, paho in zip(clients, connected, strict=True):
                paho.publish("a", f"{client} {number}".encode(), 1)
        for paho in connected:
            paho.disconnect()
        records = self.kafka.records(self.topic, 1 + 8 * 21)
        by_key = collections.defaultdict(list)
        for record in records:
            by_key[record.key].append(record)
        # Of the node itself: no client, no key.
        [ready] = by_key.pop(None)
        self.assertEqual(json.loads(ready.value)["event"], "node.ready")
        self.assertEqual({key.decode() for key in by_key}, set(clients))
        for key, of_client in by_key.items():
            self.assertEqual(len({record.partition for record in of_client}), 1)
            events = [json.loads(record.value) for record in of_client]
            self.assertEqual(events[0]["event"], "client.connected")
            self.assertEqual([event["payload"] for event in events[1:]], [f"{key.decode()} {number}" for number in range(20)])
            self.assertEqual({event["client_id"] for event in events}, {key.decode()})
            self.assertEqual([event["time_ms"] for event in events], [record.timestamp for record in of_client])
        self.assertGreater(len({record.partition for record in records}), 1)
        self.assertEqual(dict(ready.headers), {"version": b"1", "node": b"n1", "hook": b"test"})
        identifiers = [json.loads(record.value)["id"] for record in records]
        self.assertEqual(len(set(identifiers)), len(records))
        wait_until(lambda: self.counts(node)["delivered"] == len(records), "the count")

    def test_a_broker_that_is_down_loses_nothing_within_the_bounds(self):
        self.kafka.create(self.topic, 2)
        node = self.node(["publish"], filters=["#"], attempts=1000, retry_maximum_s=1, batch=5)
        with PahoClient(node.port, "ada") as client:
            client.publish("a", b"0", 1)
            wait_until(lambda: self.counts(node)["delivered"] == 1, "the first event")
            self.kafka.kill()
            for number in range(1, 40):
                client.publish("a", str(number).encode(), 1)
            wait_until(lambda: "the receiver of the hook does not accept events" in node.log_from(0), "the line of the log")
            self.kafka.start()
            wait_until(lambda: self.counts(node)["delivered"] == 40, "all events")
            client.disconnect()
        # At least once: what was on its way when the broker died may be there twice.
        payloads = self.payloads(self.kafka.records(self.topic, 40))
        self.assertEqual(list(dict.fromkeys(payloads)), [str(number) for number in range(40)])
        self.assertEqual(self.counts(node), {"delivered": 40, "dead_letter": 0, "dropped": 0})
        self.assertIn("the receiver of the hook accepts events again", node.log_from(0))
        # The client's own lines would repeat ours.
        self.assertNotIn("backing off", node.log_from(0))

    def test_what_a_broker_that_is_down_does_not_take_in_time_is_a_dead_letter(self):
        self.kafka.create(self.topic, 2)
        node = self.node(["publish"], filters=["#"], attempts=2, retry_maximum_s=1, queue_events=10, batch=10)
        self.kafka.kill()
        self.addCleanup(self.kafka.start)
        with PahoClient(node.port, "ada") as client:
            for number in range(60):
                client.publish("a", str(number).encode(), 1)
            client.disconnect()
        wait_until(lambda: self.counts(node)["dead_letter"] == 60, "the dead letters")
        letters = self.dead_letters()
        self.assertEqual({letter["event"]["payload"] for letter in letters}, {str(number) for number in range(60)})
        reasons = {letter["reason"] for letter in letters}
        self.assertIn("the queue is full", reasons)
        self.assertTrue(any(self.kafka.plain in reason for reason in reasons), reasons)

    def test_a_wrong_address_and_a_wrong_topic_are_told(self):
        self.kafka.create(self.topic, 1)
        for settings, expected in (({"brokers": "127.0.0.1:9"}, "127.0.0.1:9"), ({"kafka_topic": "nowhere"}, "there is no topic nowhere")):
            node = self.node(["connect"], attempts=1, **settings)
            mosquitto_clients.publish(node.port, "a", "x")
            wait_until(lambda node=node: self.counts(node)["dead_letter"] == 1, "the dead letter")
            [line] = [line for line in node.log_from(0).splitlines() if "does not accept events" in line]
            self.assertIn(expected, line)
            self.assertIn(expected, self.dead_letters()[-1]["reason"])

    def test_a_topic_that_is_created_later_gets_what_waits(self):
        node = self.node(["publish"], filters=["#"], attempts=1000, retry_maximum_s=1)
        mosquitto_clients.publish(node.port, "a", "x")
        wait_until(lambda: "there is no topic" in node.log_from(0), "the line of the log")
        self.kafka.create(self.topic, 1)
        self.assertEqual(self.payloads(self.kafka.records(self.topic, 1)), ["x"])

    def test_batches_that_are_too_large_are_split_and_only_records_that_are_too_large_are_refused(self):
        self.kafka.create(self.topic, 1, max_message_bytes=2000)
        node = self.node(["publish"], filters=["#"])
        with PahoClient(node.port, "ada") as client:
            for number in range(30):
                client.publish("a", f"{number} ".encode() + (b"x" * 3000 if number == 17 else b"x" * 100), 1)
            client.disconnect()
        records = self.kafka.records(self.topic, 29)
        self.assertEqual([payload.split()[0] for payload in self.payloads(records)], [str(number) for number in range(30) if number != 17])
        wait_until(lambda: self.counts(node) == {"delivered": 29, "dead_letter": 1, "dropped": 0}, "the counts")
        [letter] = self.dead_letters()
        self.assertEqual(letter["reason"], f"too large for the topic {self.topic}")

    def test_connections_are_encrypted_and_the_node_authenticates(self):
        self.kafka.create(self.topic, 1)
        password = self.path / "password"
        password.write_text(PASSWORD + "\n")
        wrong = self.path / "wrong"
        wrong.write_text("a wrong password\n")
        right = {"kafka_tls": True, "ca_file": str(self.kafka.authority.certificate), "kafka_user": USER}
        for number, sasl in enumerate(("plain", "scram-sha-512")):
            login = right | {"kafka_sasl": sasl, "kafka_password_file": str(password)}
            node = self.node(["publish"], self.kafka.secured, filters=["#"], **login)
            mosquitto_clients.publish(node.port, "a", sasl)
            self.assertEqual(self.payloads(self.kafka.records(self.topic, number + 1))[-1], sasl)
            node = self.node(["publish"], self.kafka.secured, filters=["#"], attempts=1, **login | {"kafka_password_file": str(wrong)})
            mosquitto_clients.publish(node.port, "a", "x")
            wait_until(lambda node=node: self.counts(node)["dead_letter"] == 1, "the dead letter")
            self.assertIn("Sasl", self.dead_letters()[-1]["reason"])
        with Authority("other") as other:
            login = right | {"kafka_sasl": "scram-sha-512", "kafka_password_file": str(password), "ca_file": str(other.certificate)}
            node = self.node(["publish"], self.kafka.secured, filters=["#"], attempts=1, **login)
            mosquitto_clients.publish(node.port, "a", "x")
            wait_until(lambda: self.counts(node)["dead_letter"] == 1, "the dead letter")
            self.assertIn("certificate", self.dead_letters()[-1]["reason"])

    def test_events_that_wait_when_the_node_stops_are_delivered(self):
        self.kafka.create(self.topic, 1)
        node = self.node(["publish"], filters=["#"])
        with PahoClient(node.port, "ada") as client:
            for number in range(50):
                client.publish("a", str(number).encode(), 1)
            node.stop()
            client.until_disconnected()
        self.assertEqual(self.payloads(self.kafka.records(self.topic, 50)), [str(number) for number in range(50)])


if __name__ == "__main__":
    unittest.main()
