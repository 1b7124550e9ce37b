"""deb and rpm: installed; the deb on a machine of its own with systemd as its first process.

The environment: `THICKET_ROOT` is a directory with a Debian system, systemd in it, such as
`debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,mosquitto-clients bookworm DIRECTORY` makes it. It is not changed.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

from containers import LIMITS, PODMAN, REPOSITORY, podman

ROOT = os.environ.get("THICKET_ROOT")
OUT = REPOSITORY / "target" / "package" / "x86_64"
MACHINE = "thicket-test-machine"


def package(kind):
    made = sorted(OUT.glob(f"*.{kind}"))
    return made[-1] if made else None


def files_of(root):
    """Files below a directory, as they are installed."""
    found = {path.relative_to(root) for path in pathlib.Path(root).rglob("*") if not path.is_dir()}
    return {str(path) for path in found if not str(path).startswith("var/lib/rpm/")}


@unittest.skipUnless(package("deb") and package("rpm"), "there are no packages: scripts/package makes them")
class Contents(unittest.TestCase):
    def test_both_hold_the_same_files(self):
        with tempfile.TemporaryDirectory() as deb, tempfile.TemporaryDirectory() as rpm:
            subprocess.run(["dpkg-deb", "--extract", package("deb"), deb], check=True)
            # Dependencies and scripts are those of another system than this one.
            install = ["rpm", "--install", "--nodeps", "--noscripts", "--root", rpm, "--dbpath", "/var/lib/rpm"]
            subprocess.run([*install, package("rpm")], check=True, capture_output=True)
            # zsh looks elsewhere on Debian.
            self.assertIn("usr/share/zsh/vendor-completions/_thicket", files_of(deb))
            moved = {name.replace("zsh/vendor-completions", "zsh/site-functions") for name in files_of(deb)}
            self.assertEqual(moved, files_of(rpm))
            for name in (
                "usr/bin/thicket",
                "usr/lib/systemd/system/thicket.service",
                "etc/thicket/thicket.toml",
                "usr/share/man/man1/thicket-ctl-drain.1.gz",
                "usr/share/bash-completion/completions/thicket",
            ):
                self.assertIn(name, files_of(rpm))


@unittest.skipUnless(ROOT and shutil.which(PODMAN[0]) and package("deb"), "THICKET_ROOT, podman and a deb are needed")
class Machine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        podman("rm", "--force", MACHINE, check=False)
        options = ["--systemd=always", "--network=none", f"--volume={OUT}:/packages:ro"]
        podman("run", "--detach", "--name", MACHINE, *options, *LIMITS, "--rootfs", f"{ROOT}:O", "/sbin/init")
        cls.addClassCleanup(podman, "rm", "--force", "--time", "5", MACHINE, check=False)
        deadline = time.monotonic() + 60
        while podman("exec", MACHINE, "systemctl", "is-system-running", check=False).stdout.strip() not in ("running", "degraded"):
            assert time.monotonic() < deadline, "systemd does not start"
            time.sleep(0.2)
        cls.run_there("dpkg", "--install", f"/packages/{package('deb').name}")

    @staticmethod
    def run_there(*command, check=True):
        return podman("exec", MACHINE, *command, check=check).stdout

    def show(self, what):
        return self.run_there("systemctl", "show", "--value", "--property", what, "thicket").strip()

    def started(self):
        """Returns when the node has told that it is ready."""
        try:
            self.run_there("systemctl", "restart", "thicket")
        except AssertionError as error:
            log = self.run_there("journalctl", "--no-pager", "--unit", "thicket", check=False)
            raise AssertionError(f"{error}\n{log}") from None

    def test_a_service_is_ready_when_it_says_so_and_takes_messages(self):
        self.started()
        self.assertEqual(self.show("ActiveState"), "active")
        self.assertIn("listens on 127.0.0.1:1883", self.show("StatusText"))
        self.run_there("mosquitto_pub", "-t", "kept", "-m", "message", "-q", "1", "-r")
        self.assertEqual(self.run_there("mosquitto_sub", "-t", "kept", "-C", "1", "-W", "20"), "message\n")

    def test_what_is_retained_outlives_a_restart(self):
        self.started()
        self.run_there("mosquitto_pub", "-t", "stays", "-m", "here", "-q", "1", "-r")
        self.started()
        self.assertEqual(self.run_there("mosquitto_sub", "-t", "stays", "-C", "1", "-W", "20"), "here\n")
        owner = self.run_there("stat", "--format", "%U %a", "/var/lib/thicket")
        self.assertEqual(owner, "thicket 700\n")

    def test_it_runs_as_its_own_user_with_no_more_rights(self):
        self.started()
        status = self.run_there("cat", f"/proc/{self.show('MainPID')}/status")
        facts = dict(line.split(":\t", 1) for line in status.splitlines())
        self.assertNotEqual(facts["Uid"].split()[0], "0")
        self.assertEqual(facts["NoNewPrivs"], "1")
        self.assertEqual(facts["Seccomp"], "2")
        # CAP_NET_BIND_SERVICE and nothing else.
        self.assertEqual(int(facts["CapEff"], 16), 1 << 10)

    def test_stopping_drains_and_reloading_reads_again(self):
        self.started()
        pid = self.show("MainPID")
        self.run_there("systemctl", "reload", "thicket")
        self.assertEqual(self.show("MainPID"), pid)
        self.run_there("systemctl", "stop", "thicket")
        self.assertEqual((self.show("ActiveState"), self.show("Result")), ("inactive", "success"))
        log = self.run_there("journalctl", "--no-pager", "--output", "cat", "--unit", "thicket")
        self.assertIn("drained: the node can be stopped", log)

    def test_a_removed_package_stops_its_service_and_leaves_the_data(self):
        self.started()
        self.run_there("dpkg", "--remove", "thicket")
        self.addCleanup(self.run_there, "dpkg", "--install", f"/packages/{package('deb').name}")
        self.assertEqual(self.run_there("systemctl", "is-active", "thicket", check=False), "inactive\n")
        self.assertIn("node", self.run_there("ls", "/var/lib/thicket"))


if __name__ == "__main__":
    unittest.main()
