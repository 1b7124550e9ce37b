"""What a node measures, by the names that docs/metrics.md promises."""

import importlib.util
import re
import shutil
import subprocess
import time
import unittest
import urllib.request
from pathlib import Path

from certificates import Authority
from mosquitto_clients import publish
from nodes import BINARY, Node, ThreeNodes, free_port, wait_until
from wire import RawCases

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


PROMTOOL = shutil.which("promtool")


@unittest.skipUnless(PROMTOOL, "promtool is not installed")
class Conventions(unittest.TestCase):
    def test_names_are_by_the_conventions_of_prometheus(self):
        """Of a node with a certificate and a token, which have metrics of their own."""
        authority = self.enterContext(Authority())
        certificate, key = authority.issue("server")
        made = subprocess.run([BINARY, "token", "ci", "--scope", "admin"], capture_output=True, text=True, check=True)
        tokens = authority.path / "tokens"
        tokens.write_text(made.stdout)
        tokens.chmod(0o600)
        ports = set()
        while len(ports) < 3:
            ports.add(free_port())
        tls, *ports = ports
        arguments = ("--listen", f"tls://127.0.0.1:{tls}", "--tls-certificate", certificate, "--tls-key", key)
        node = Node("node", (), (*arguments, "--http-tokens", str(tokens)), ports=ports)
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1), node.log_from(0))
        request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}/metrics")
        request.add_header("authorization", f"Bearer {made.stderr.strip()}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            page = answer.read()
        for part in (b"thicket_certificate_expiry_seconds{", b"thicket_http_token_expiry_seconds{"):
            self.assertIn(part, page)
        checked = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, check=False)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, b""))


class Metrics(RawCases, ThreeNodes):
    def page(self, node=0):
        return self.cluster.nodes[node].ask("/metrics").decode()

    def documented(self):
        rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| .+ \|$", DOCUMENT.read_text(), re.MULTILINE)
        return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}

    def test_every_metric_is_documented_with_its_type_and_labels(self):
        documented = self.documented()
        self.assertGreater(len(documented), 100)
        page = self.page()
        for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE):
            self.assertIn(name, documented)
            self.assertEqual(documented[name][0], kind, name)
            for labels in re.findall(rf"^{name}(?:_bucket)?{{(.*)}} ", page, re.MULTILINE):
                found = set(re.findall(r'(\w+)="', labels)) - {"le"}
                self.assertLessEqual(found, documented[name][1], name)

    @unittest.skipUnless(importlib.util.find_spec("prometheus_client"), "prometheus-client is not installed")
    def test_the_page_is_read_by_the_client_library_of_prometheus(self):
        from prometheus_client.parser import text_string_to_metric_families

        families = {family.name: family for family in text_string_to_metric_families(self.page())}
        types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", self.page(), re.MULTILINE))
        # The library takes `_total` off the names of counters.
        self.assertEqual({name.removesuffix("_total"): kind for name, kind in types.items()}, {name: it.type for name, it in families.items()})
        for name, family in families.items():
            self.assertTrue(family.documentation, name)
            if family.type == "histogram":
                last = next(sample for sample in family.samples if sample.labels.get("le") == "+Inf")
                count = next(sample for sample in family.samples if sample.name == f"{name}_count")
                self.assertEqual(last.value, count.value, name)

    def test_bytes_are_counted_by_listener(self):
        def count(direction):
            name = rf'thicket_listener_bytes_total{{listener="127\.0\.0\.1:{self.here}",direction="{direction}"}}'
            pages = "".join(self.page(node) for node in range(3))
            return int(re.search(rf"^{name} (\d+)$", pages, re.MULTILINE)[1])

        subscriber = self.subscriber((self.topic(), 1), role="subscriber")
        before = count("in"), count("out")
        publish(self.here, self.topic(), "x" * 1000, "-q", 1)
        subscriber.take_message()
        wait_until(lambda: count("in") - before[0] > 1000, "the bytes of the publisher")
        wait_until(lambda: count("out") - before[1] > 1000, "the bytes of the subscriber")

    def test_the_start_of_the_process_is_a_time(self):
        found = re.search(r"^process_start_time_seconds (\S+)$", self.page(), re.MULTILINE)
        self.assertGreater(float(found[1]), 1.7e9)
        self.assertLess(float(found[1]), time.time() + 2)

    def test_a_message_counts_in_the_histogram_of_deliveries(self):
        subscriber = self.subscriber((self.topic(), 1), role="subscriber")

        def delivered():
            pages = [self.page(node) for node in range(3)]
            counts = [re.search(r"^thicket_delivery_seconds_count (\d+)$", page, re.MULTILINE) for page in pages]
            return sum(int(count.group(1)) for count in counts)

        before = delivered()
        publish(self.there, self.topic(), "x", "-q", 1)
        subscriber.take_message()
        wait_until(lambda: delivered() > before, "the message to be counted")
        self.assertRegex(self.page(), r'(?m)^thicket_round_seconds_bucket{le="\+Inf"} [1-9]\d*$')

    def test_round_trips_of_links_are_counted(self):
        answered = re.compile(r"^thicket_link_round_trip_seconds_count [1-9]", re.MULTILINE)
        wait_until(lambda: all(answered.search(self.page(node)) for node in range(3)), "round trips at both ends of each link")
