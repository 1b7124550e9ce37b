"""The systemd unit: read by systemd, and what the program tells a service manager."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "interop"))

from nodes import BINARY, PATIENCE_S, free_port  # noqa: E402

UNIT = REPOSITORY / "deploy" / "thicket.service"
ANALYZE = shutil.which("systemd-analyze")
# Of 10.0; a service that may do everything has 9.6. In tenths.
EXPOSURE = "15"


@unittest.skipUnless(ANALYZE, "systemd-analyze is not here")
class Unit(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.unit = pathlib.Path(directory.name) / "thicket.service"
        self.unit.write_text(UNIT.read_text().replace("/usr/bin/thicket", BINARY))

    def analyze(self, *arguments):
        return subprocess.run([ANALYZE, *arguments, str(self.unit)], capture_output=True, text=True, check=False)

    def test_systemd_understands_every_line(self):
        done = self.analyze("verify", "--man=no")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_it_may_do_little(self):
        done = self.analyze("security", "--offline=true", f"--threshold={EXPOSURE}")
        self.assertEqual(done.returncode, 0, done.stdout)


class Notifications(unittest.TestCase):
    def start(self, address, bind):
        """A node that tells of itself at `address`."""
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.manager.close)
        self.manager.bind(bind)
        self.manager.settimeout(PATIENCE_S)
        self.port = free_port()
        command = [BINARY, "broker", "--listen", f"127.0.0.1:{self.port}", "--http", "off", "--discover", "off"]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("THICKET_")}
        node = subprocess.Popen(command, env=clean | {"NOTIFY_SOCKET": address}, stderr=subprocess.DEVNULL)
        self.addCleanup(node.wait)
        self.addCleanup(node.kill)
        return node

    def told(self):
        return dict(line.split("=", 1) for line in self.manager.recv(4096).decode().splitlines())

    def life(self, address, bind):
        node = self.start(address, bind)
        self.assertEqual(self.told(), {"READY": "1", "STATUS": f"listens on 127.0.0.1:{self.port}"})
        # Ready means that whoever was waiting can connect now.
        socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S).close()
        node.send_signal(signal.SIGTERM)
        self.assertEqual(self.told()["STOPPING"], "1")
        self.assertEqual(node.wait(PATIENCE_S), 0)

    def test_a_manager_hears_when_a_node_is_ready_and_when_it_stops(self):
        with tempfile.TemporaryDirectory() as directory:
            self.life(f"{directory}/notify", f"{directory}/notify")

    def test_a_manager_that_does_not_listen_stops_nobody(self):
        with tempfile.TemporaryDirectory() as directory:
            node = self.start(f"{directory}/nobody", f"{directory}/notify")
            probe = None
            while probe is None and node.poll() is None:
                try:
                    probe = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
                except ConnectionError:
                    # Refused, or reset while it begins to listen.
                    continue
            self.assertIsNotNone(probe)
            probe.close()


if __name__ == "__main__":
    unittest.main()
