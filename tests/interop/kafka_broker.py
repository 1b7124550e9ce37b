"""One Kafka broker, which is its own controller (KRaft), in a process on ports of the loopback."""

import pathlib
import socket
import subprocess
import tempfile

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from certificates import Authority
from nodes import REPOSITORY, free_port, wait_until

LIBRARIES = REPOSITORY / ".kafka"
USER, PASSWORD = "thicket", "a password of the tests"
# A Java program on a busy machine.
PATIENCE_S = 60.0

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://localhost:{secured},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
log.dirs={directory}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
ssl.keystore.type=PEM
ssl.keystore.location={directory}/broker.pem
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
"""


def is_here():
    """Whether scripts/setup has brought it."""
    return any(LIBRARIES.glob("kafka_*.jar"))


class KafkaBroker:
    """Started; `plain` and `secured` are addresses of its listeners: without TLS and login, and with both."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        self.authority = Authority()
        certificate, key = (pathlib.Path(file).read_text() for file in self.authority.issue("broker"))
        (self.path / "broker.pem").write_text(key + certificate)
        ports = {"plain": free_port(), "secured": free_port(), "controller": free_port()}
        self.plain, self.secured = f"127.0.0.1:{ports['plain']}", f"localhost:{ports['secured']}"
        properties = PROPERTIES.format(directory=self.path, user=USER, password=PASSWORD, **ports)
        (self.path / "server.properties").write_text(properties)
        self.log = (self.path / "log").open("w+b")
        scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
        cluster = ("--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA", "--add-scram", scram)
        self.java("kafka.tools.StorageTool", "format", *cluster, "--config", "server.properties").wait()
        self.start()

    def java(self, *arguments):
        command = ["java", "-Xmx256m", "-cp", f"{LIBRARIES}/*", *arguments]
        return subprocess.Popen(command, cwd=self.path, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def start(self):
        self.process = self.java("kafka.Kafka", "server.properties")
        host, port = self.plain.split(":")

        def listens():
            assert self.process.poll() is None, self.output()
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) == 0

        wait_until(listens, "Kafka to listen", PATIENCE_S)

    def output(self):
        return (self.path / "log").read_text(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.log.close()
        self.authority.close()
        self.directory.cleanup()

    def create(self, topic, partitions, **configuration):
        """A topic, with keys of its configuration where `.` is `_`."""
        configuration = {key.replace("_", "."): str(value) for key, value in configuration.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=configuration)
        admin = KafkaAdminClient(bootstrap_servers=self.plain)
        admin.create_topics([new])
        admin.close()

    def records(self, topic, count):
        """Waits for so many records, and returns all there are; those of a partition in their order."""
        consumer = KafkaConsumer(bootstrap_servers=self.plain)
        try:
            partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            found = []

            def are_there():
                for records in consumer.poll(timeout_ms=100).values():
                    found.extend(records)
                return len(found) >= count

            wait_until(are_there, f"{count} records in {topic}")
            return found
        finally:
            consumer.close()
