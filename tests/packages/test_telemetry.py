"""Alert rules and the dashboard: read by promtool, and on no metric that a node does not have."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "interop"))

from nodes import Cluster, wait_until  # noqa: E402

ALERTS = REPOSITORY / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = REPOSITORY / "deploy" / "grafana" / "thicket.json"
PROMTOOL = shutil.which("promtool")


def alert_expressions():
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def dashboard_expressions():
    """As Prometheus gets them: with values in place of Grafana's variables."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    return [text.replace("$instance", ".*").replace("$__rate_interval", "1m") for text in expressions]


class Metrics(unittest.TestCase):
    def test_every_metric_that_is_looked_at_exists(self):
        # Only a node with a data directory has metrics of its disk, one with a hook those of hooks, one that exports those of OTLP.
        directory = self.enterContext(tempfile.TemporaryDirectory())
        settings = pathlib.Path(directory) / "thicket.toml"
        settings.write_text("[[hook]]\nname = 'h'\nurl = 'http://127.0.0.1:9/'\nevents = ['cluster']\n")
        options = ["--config", str(settings), "--otlp-endpoint", "http://127.0.0.1:9"]
        cluster = Cluster(1, ["--data", f"{directory}/data", *options])
        try:
            page = cluster.nodes[0].ask("/metrics").decode()
            # Nodes tell each other of their load once a second.
            wait_until(lambda: "thicket_node_cpu_ratio{" in cluster.nodes[0].ask("/metrics").decode(), "a load")
        finally:
            cluster.stop()
            cluster.close_logs()
        known = set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))
        expressions = alert_expressions() + dashboard_expressions()
        used = {name for text in expressions for name in re.findall(r"(?:thicket|process)_\w+", text)}
        histograms = set(re.findall(r"^# TYPE (\w+) histogram$", page, re.MULTILINE))
        known |= {f"{name}_bucket" for name in histograms}
        self.assertGreater(len(used), 20)
        self.assertLessEqual(used, known)

    def test_panels_have_their_own_numbers_and_places(self):
        panels = json.loads(DASHBOARD.read_text())["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        for panel in panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])


@unittest.skipUnless(PROMTOOL, "promtool is not here: install prometheus")
class Rules(unittest.TestCase):
    def promtool(self, *arguments):
        done = subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_alerts_fire_when_they_should_and_only_then(self):
        self.promtool("check", "rules", ALERTS)
        self.promtool("test", "rules", ALERTS.with_name("alerts_test.yaml"))

    def test_every_alert_is_tested_both_ways(self):
        names = [rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
        quiet, loud = yaml.safe_load(ALERTS.with_name("alerts_test.yaml").read_text())["tests"]
        self.assertEqual([case["alertname"] for case in quiet["alert_rule_test"]], names)
        fired = [sample["labels"] for sample in loud["promql_expr_test"][0]["exp_samples"]]
        self.assertEqual([re.search(r'alertname="(\w+)"', labels)[1] for labels in fired], names)

    def test_expressions_of_the_dashboard_can_be_read(self):
        rules = [{"record": f"panel_{number}", "expr": text} for number, text in enumerate(dashboard_expressions())]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            file.flush()
            self.promtool("check", "rules", "--lint=none", file.name)


if __name__ == "__main__":
    unittest.main()
