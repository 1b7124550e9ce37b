"""`$SYS` as others read it: an exporter for Prometheus that knows nothing of Thicket, beside Mosquitto.

`mqtt-exporter` (PyPI, MIT) makes a metric of each topic whose payload is a number: its name is the last level, its label the levels before.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from nodes import OneNode, free_port, wait_until
from test_bridge import MOSQUITTO
from wire import RawCases


class Exporter:
    """A running exporter of the `$SYS` topics of a broker."""

    def __init__(self, port):
        self.port = free_port()
        environment = dict(
            os.environ,
            MQTT_PORT=str(port),
            MQTT_TOPIC="$SYS/#",
            KEEP_FULL_TOPIC="True",
            PROMETHEUS_ADDRESS="127.0.0.1",
            PROMETHEUS_PORT=str(self.port),
            LOG_LEVEL="ERROR",
        )
        command = [sys.executable, "-c", "from mqtt_exporter.main import main_mqtt_exporter as run; run()"]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)

    def close(self):
        self.process.terminate()
        self.process.wait()

    def samples(self):
        """The values by topic and name, as Prometheus would store them."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        found = re.findall(r'^mqtt_(\w+)\{topic="(\$sys_[^"]*)"\} (\S+)$', text, re.MULTILINE)
        return {(topic, name): float(value) for name, topic, value in found if name not in ("message_total", "message_created")}


@unittest.skipUnless(importlib.util.find_spec("mqtt_exporter"), "mqtt-exporter is not installed")
class SysExporter(RawCases, OneNode):
    arguments = ("--sys-interval-s", "1")

    def exporter(self, port):
        exporter = Exporter(port)
        self.addCleanup(exporter.close)
        return exporter

    def mosquitto(self):
        """The port of a Mosquitto with the same interval."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        port = free_port()
        configuration = pathlib.Path(directory.name) / "mosquitto.conf"
        configuration.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nsys_interval 1\n")
        process = subprocess.Popen([MOSQUITTO, "-c", configuration], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        wait_until(lambda: self.listens(port), "Mosquitto listens")
        return port

    def listens(self, port):
        try:
            self.raw(port, "probe").close()
        except OSError:
            return False
        return True

    def test_its_metrics_follow_what_clients_do(self):
        exporter = self.exporter(self.here)
        key = ("$sys_broker_clients", "connected")
        # What was published last may count clients of the test before.
        wait_until(lambda: exporter.samples().get(key) == 1, "the exporter is the only client that is counted")
        before = exporter.samples()
        clients = [self.raw(self.here, f"counted-{number}") for number in range(5)]
        for client in clients:
            client.subscribe(("exported/#", 0))
        for _ in range(20):
            clients[0].publish("exported/x", b"12345", qos=1)
        for what, more in (
            (("$sys_broker_clients", "connected"), 5),
            (("$sys_broker_clients", "total"), 5),
            (("$sys_broker_subscriptions", "count"), 5),
            (("$sys_broker_publish_messages", "received"), 20),
            (("$sys_broker_publish_messages", "sent"), 100),
            (("$sys_broker_publish_bytes", "received"), 100),
        ):
            wait_until(lambda: exporter.samples()[what] - before[what] >= more, f"{what} has risen by {more}")

    @unittest.skipUnless(pathlib.Path(MOSQUITTO).exists(), "mosquitto is not installed")
    def test_it_finds_what_it_finds_at_mosquitto(self):
        port = self.mosquitto()
        # Some values are published only when there is something to count.
        for broker in (port, self.here):
            self.raw(broker, "busy").publish("x", b"x", qos=1, retain=True)
        there, here = self.exporter(port), self.exporter(self.here)

        wait_until(lambda: len(there.samples()) > 40, "the exporter has read the topics of Mosquitto")
        wait_until(lambda: set(there.samples()) == set(here.samples()), "a node has the same topics")
