"""`thicket ctl --json`: what every command prints can be read by a program."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from nodes import BINARY, PATIENCE_S, Node, ThreeNodes, wait_until
from wire import Property, RawClient

# What each command that changes something says it has done.
CHANGES = [
    (("publish", "a/b", "x", "--retain"), {"topic": "a/b", "has_recipients": True}),
    (("retained", "--delete", "a/b"), {"topic": "a/b"}),
    (("ban", "--client", "zz", "--reason", "why"), {"client_id": "zz", "reason": "why"}),
    (("unban", "--client", "zz"), {"client_id": "zz", "reason": "why"}),
    (("kick", "guest"), {"client_id": "guest"}),
    (("kick", "--end-session", "guest"), {"client_id": "guest", "end_session": True}),
    (("reload",), {"problems": []}),
    (("rebalance",), {}),
    (("drain",), {"connections": 0, "sessions": 0}),
    (("drain", "--undo"), {"draining": False}),
    (("rolling-restart", "--dry-run", "--exec", "restart {name}"), {"dry_run": True}),
]
READS = [
    ("audit",),
    ("bans",),
    ("bridges",),
    ("clients",),
    ("explain", "a/b"),
    ("explain", "client", "guest"),
    ("memory",),
    ("nodes",),
    ("overlay",),
    ("retained",),
    ("sessions",),
    ("subscribers", "--topic", "a/b"),
    ("subscriptions",),
    ("topics",),
    ("traffic",),
]
# Tested below.
OTHERS = {"export", "forget", "import", "trace"}


class CtlAsJson(ThreeNodes):
    def ctl(self, *arguments):
        command = [BINARY, "ctl", "--json", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stderr}")
        return done.stdout

    def test_every_command_is_here(self):
        shown = subprocess.run([BINARY, "ctl", "--help"], capture_output=True, text=True, check=True).stdout
        section = re.search(r"^Commands:\n(.*?)\n\n", shown, re.MULTILINE | re.DOTALL)[1]
        commands = set(re.findall(r"^  ([a-z-]+)", section, re.MULTILINE)) - {"help"}
        self.assertEqual(commands, OTHERS | {it[0][0] for it in CHANGES} | {it[0] for it in READS})

    def test_a_command_that_shows_something_prints_a_document(self):
        for arguments in READS:
            with self.subTest(arguments):
                json.loads(self.ctl(*arguments))

    def test_a_command_that_changes_something_prints_an_object_with_what_it_did(self):
        guest = RawClient(self.cluster.nodes[0].port)
        self.addCleanup(guest.close)
        guest.connect("guest", props=((Property.SESSION_EXPIRY_INTERVAL, 60),))
        for arguments, expected in CHANGES:
            with self.subTest(arguments):
                done = json.loads(self.ctl(*arguments))
                self.assertEqual({key: done[key] for key in expected}, expected)

    def test_export_import_and_trace(self):
        file = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "export"
        self.ctl("publish", "kept", "x", "--retain")
        self.assertGreaterEqual(json.loads(self.ctl("export", "-o", file))["retained"], 1)
        self.assertGreaterEqual(json.loads(self.ctl("import", file))["retained_existing"], 1)
        for line in self.ctl("export").splitlines():
            json.loads(line)
        client = self.enterContext(RawClient(self.cluster.nodes[1].port))
        client.connect("traced")
        command = [BINARY, "ctl", "--json", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}", "trace", "traced", "-C", "1"]
        trace = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(trace.kill)

        def is_through():
            client.ping()
            return trace.poll() is not None

        wait_until(is_through, "a packet to be shown")
        (line,) = trace.communicate()[0].splitlines()
        seen = json.loads(line)
        self.assertEqual((seen["client_id"], seen["node"]), ("traced", self.cluster.nodes[1].name))

    def test_forget(self):
        last = Node("leaver", [self.cluster.nodes[0].port])
        self.addCleanup(last.log.close)
        self.addCleanup(last.kill)
        wait_until(lambda: self.cluster.nodes[0].sees() == 4, "the node to join")
        last.kill()
        wait_until(lambda: self.cluster.nodes[0].sees() == 3, "the node to be down")
        self.assertEqual(json.loads(self.ctl("forget", "leaver"))["name"], "leaver")


if __name__ == "__main__":
    unittest.main()
