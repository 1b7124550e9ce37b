"""The sandbox of a node: it writes only where its configuration says, executes nothing, and gains no privileges."""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import unittest

from nodes import BINARY, Cluster, Node, free_port, wait_until
from wire import RawClient

# landlock_create_ruleset(2), asked for its version.
LANDLOCK_VERSION = ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1)
ENFORCED = "the process executes nothing and"


def check(*arguments):
    """What `thicket broker --check` prints."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("THICKET_")}
    command = [BINARY, "broker", "--check", "--discover", "off", *arguments]
    return subprocess.run(command, env=clean, capture_output=True, text=True, check=True, timeout=20).stdout


class Sandbox(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.data, self.outside = self.directory / "data", self.directory / "outside"
        self.outside.mkdir()

    def start(self, *arguments):
        cluster = Cluster(1, ["--data", str(self.data), *arguments])
        self.addCleanup(cluster.close_logs)
        self.addCleanup(cluster.stop)
        return cluster.nodes[0]

    def end_of(self, *arguments):
        """The log of a node that does not start."""
        node = Node("node-1", [], ["--data", str(self.data), *arguments])
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        wait_until(lambda: not node.is_alive(), "the node ends")
        return node.log_from(0)

    def test_no_thread_may_gain_privileges(self):
        node = self.start()
        tasks = list(pathlib.Path(f"/proc/{node.process.pid}/task").iterdir())
        self.assertGreater(len(tasks), 3)
        for task in tasks:
            self.assertIn("NoNewPrivs:\t1", (task / "status").read_text())

    def test_off_means_that_the_process_may_do_what_its_user_may(self):
        node = self.start("--sandbox", "off")
        self.assertIn("sandbox: off", node.log_from(0))
        status = pathlib.Path(f"/proc/{node.process.pid}/status").read_text()
        self.assertIn("NoNewPrivs:\t0", status)

    def test_check_tells_without_creating_anything(self):
        enforced = check("--data", str(self.data))
        self.assertFalse(self.data.exists())
        if LANDLOCK_VERSION > 0:
            self.assertIn(ENFORCED, enforced)
            self.assertIn(str(self.data), enforced)
        else:
            self.assertIn("the kernel has no Landlock", enforced)
        self.assertIn("sandbox: off", check("--sandbox", "off"))

    @unittest.skipUnless(LANDLOCK_VERSION > 0, "NOT CHECKED: this kernel has no Landlock")
    def test_a_store_that_a_link_moves_elsewhere_cannot_be_written(self):
        # Root may write anywhere, so only the sandbox can be what refuses.
        self.data.mkdir()
        (self.data / "store").symlink_to(self.outside)
        (self.data / "log-0").symlink_to(self.outside)
        log = self.end_of()
        self.assertIn(ENFORCED, log)
        self.assertIn("Permission denied", log)
        self.assertEqual(list(self.outside.iterdir()), [])
        self.assertTrue(self.start("--sandbox", "off").is_alive())
        self.assertNotEqual(list(self.outside.iterdir()), [])

    @unittest.skipUnless(LANDLOCK_VERSION > 0, "NOT CHECKED: this kernel has no Landlock")
    def test_a_dispatcher_and_a_splitter_write_nothing(self):
        for command in (
            ["dispatch", "--listen", f"127.0.0.1:{free_port()}", "--http", "off", "--broker", "127.0.0.1:1"],
            ["place", "--proxy", "--listen", f"127.0.0.1:{free_port()}", "--cluster", "127.0.0.1:1"],
        ):
            with self.subTest(command[0]):
                log = self.enterContext(tempfile.TemporaryFile())
                process = subprocess.Popen([BINARY, *command], stderr=log)
                self.addCleanup(process.wait)
                self.addCleanup(process.kill)

                def written(log=log):
                    return os.pread(log.fileno(), 65536, 0).decode()

                wait_until(lambda: "listens" in written(), "it listens")
                self.assertIn(ENFORCED, written())
                self.assertIn('directories="none"', written())
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                self.assertIn("NoNewPrivs:\t1", status)

    def test_the_socket_of_a_node_comes_and_goes_with_it(self):
        path = self.outside / "socket"
        node = self.start("--listen", f"unix:{path}")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        node.process.send_signal(signal.SIGKILL)
        node.process.wait()
        self.assertTrue(path.exists(), "killed, it could not remove its socket")
        again = self.start("--listen", f"unix:{path}")
        again.stop()
        self.assertFalse(path.exists(), "stopped, it removed its socket")

    def test_messages_are_stored_and_users_read_again_from_a_file_that_was_replaced(self):
        users = self.outside / "users"
        users.write_text("")
        arguments = ("--users", str(users), "--allow-anonymous=true")
        node = self.start(*arguments)
        with RawClient(node.port) as client:
            client.connect("publisher")
            self.assertEqual(client.publish("kept", b"1", qos=1, retain=True), 0)
        (self.outside / "users.new").write_text("no such line\n")
        (self.outside / "users.new").rename(users)
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "cannot be read again" in node.log_from(0), "the file is read")
        users.write_text("")
        node.stop()
        with RawClient(self.start(*arguments).port) as client:
            client.connect("subscriber")
            client.subscribe(("kept", 1))
            self.assertEqual(client.take_message().payload, b"1")


if __name__ == "__main__":
    unittest.main()
