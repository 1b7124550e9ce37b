"""Nodes whose wall clocks differ: what expires has the same time left on each of them, and operators see the difference.

A preloaded library sets the clocks, the one of `thicket bench crash --clock-jump`.
"""

import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

from nodes import REPOSITORY, Cluster, ThreeNodes, wait_until
from test_bans import BANNED, code_of
from test_cluster_views import ask
from test_operating import Ctl
from wire import Kind, Property, RawCases

SOURCE = REPOSITORY / "crates" / "bench" / "src" / "crash" / "faults.c"
# By node.
AHEAD_S = (0, 60, -60)


@unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
class ClocksApart(Ctl, RawCases, ThreeNodes):
    @classmethod
    def start_cluster(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        folder = pathlib.Path(cls.folder.name)
        library = folder / "faults.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True)
        environments = []
        for number, ahead_s in enumerate(AHEAD_S):
            faults = folder / f"faults-{number}"
            faults.write_bytes(struct.pack("=qqq", 0, ahead_s * 1_000_000_000, 0))
            environments.append({"LD_PRELOAD": str(library), "NODE_FAULTS_FILE": str(faults)})
        cls.cluster = Cluster(cls.size, cls.arguments, environments)
        for number in range(cls.size):
            loaded = struct.unpack("=qqq", (folder / f"faults-{number}").read_bytes())[2]
            if not loaded:
                cls.cluster.stop()
                raise unittest.SkipTest("the broker is linked statically")

    def ports(self):
        return [node.port for node in self.cluster.nodes]

    def test_a_session_and_its_messages_have_the_time_left_that_they_had_wherever_they_go(self):
        """A session of 30 s moves between nodes whose clocks are 60 s ahead and behind, with a message of 100 s."""
        brief = ((Property.SESSION_EXPIRY_INTERVAL, 30),)
        for first in range(3):
            topic, role = self.topic(f"{first}"), f"session-{first}"
            client = self.raw(self.ports()[first], role, props=brief)
            client.subscribe((topic, 1), (f"$share/group/{topic}/shared", 1))
            client.disconnect()
            publisher = self.raw(self.ports()[0], f"publisher-{first}")
            expiry = ((Property.MESSAGE_EXPIRY_INTERVAL, 100),)
            for to in (topic, f"{topic}/shared"):
                publisher.publish(to, b"x", 1, props=expiry)
            for step in (1, 2, 3):
                client = self.raw(self.ports()[(first + step) % 3], role, clean_start=False, props=brief)
                self.assertTrue(client.connack.session_present, f"at {first + step}, of {first}")
                for _ in range(2):
                    # Not acknowledged, so that it comes again.
                    left_s = client.expect(Kind.PUBLISH).value(Property.MESSAGE_EXPIRY_INTERVAL)
                    self.assertIn(left_s, range(60, 101))
                client.close()

    def test_a_session_expires_where_it_has_moved(self):
        props = ((Property.SESSION_EXPIRY_INTERVAL, 2),)
        for first in range(3):
            role, other = f"session-{first}", self.ports()[(first + 1) % 3]
            self.raw(self.ports()[first], role, props=props).close()
            self.raw(other, role, clean_start=False, props=props).close()
            wait_until(lambda role=role: self.client_id(role) not in self.ctl("sessions", node=(first + 1) % 3), "its expiry")
            self.assertFalse(self.raw(self.ports()[first], role, clean_start=False).connack.session_present)

    def test_a_ban_of_some_seconds_holds_at_each_node_and_ends(self):
        for node in range(3):
            name = self.client_id(f"banned-{node}")
            self.ctl("ban", "--client", name, "--for=8s", node=node)
            for port in self.ports():
                wait_until(lambda port=port, name=name: code_of(port, name) == BANNED, f"the ban at {port}", patience_s=7)
            for port in self.ports():
                wait_until(lambda port=port, name=name: code_of(port, name) == 0, f"its end at {port}")

    def test_operators_see_which_clock_is_far_from_that_of_the_node_that_answers(self):
        _, nodes = ask(self.cluster.nodes[0].http_port, "/v1/nodes")
        ahead = {node["name"]: node["clock_ahead_ms"] for node in nodes}
        self.assertIsNone(ahead["node-1"])
        for name, expected in (("node-2", 60_000), ("node-3", -60_000)):
            self.assertLess(abs(ahead[name] - expected), 10_000)
        shown = self.ctl("nodes", node=1)
        self.assertRegex(shown, r"node-1: the clock is [56]\d\.\d s behind")
        self.assertRegex(shown, r"node-3: the clock is 1[12]\d\.\d s behind")
        page = self.cluster.nodes[0].ask("/metrics").decode()
        offsets = dict(re.findall(r'^thicket_clock_offset_seconds{node="([\w-]+)",id="\w+"} (\S+)$', page, re.MULTILINE))
        self.assertEqual(set(offsets), {"node-2", "node-3"})
        self.assertGreater(float(offsets["node-2"]), 50)
        warning = "the clock of another node is far from that of this one"
        wait_until(lambda: self.cluster.nodes[0].log_from(0).count(warning) == 2, "a warning for each")
