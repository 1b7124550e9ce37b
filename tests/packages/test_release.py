"""What a release has besides the packages: the bill of materials, checksums and their signature; and that nothing was left out before it."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "interop"))

from nodes import BINARY  # noqa: E402

SCRIPTS = REPOSITORY / "scripts"
TARGET = "x86_64-unknown-linux-musl"
# A source file of a crate from a registry, in the debug information or a message of a program: `.../thiserror-2.0.21/src/lib.rs`.
FOLDER = b"/registry/src/"
SOURCE = re.compile(rb"[^/\0]+/([A-Za-z0-9_-]+?)-(\d+\.\d+\.\d+[^/\0]*)/")


class BillOfMaterials(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.file = pathlib.Path(directory.name) / "thicket.cdx.json"
        subprocess.run([SCRIPTS / "package-sbom", TARGET, cls.file], check=True)
        cls.bill = json.loads(cls.file.read_text())
        cls.crates = {(it["name"], it["version"]): it for it in cls.bill["components"]}

    def test_it_is_what_the_schema_says(self):
        validator = JsonStrictValidator(SchemaVersion.V1_6)
        self.assertIsNone(validator.validate_str(self.file.read_text()))

    def test_every_crate_has_a_licence_and_those_of_the_registry_a_checksum(self):
        for crate in self.crates.values():
            with self.subTest(crate["name"]):
                self.assertTrue(crate["licenses"])
                if crate["purl"].startswith("pkg:cargo/"):
                    self.assertRegex(crate["hashes"][0]["content"], "^[0-9a-f]{64}$")

    def test_what_only_builds_or_tests_is_not_in_it(self):
        names = {name for name, _ in self.crates}
        self.assertEqual(names & {"cc", "syn", "serde_derive", "proptest", "thiserror-impl"}, set())
        self.assertLessEqual({"rustls", "aws-lc-sys", "fjall", "mimalloc", "landlock", "rust-std"}, names)

    def test_no_crate_of_the_program_is_missing(self):
        # The debug information of a build names the sources that are linked, whatever Cargo says about dependencies.
        sources = pathlib.Path(BINARY).read_bytes().split(FOLDER)[1:]
        found = filter(None, (SOURCE.match(source) for source in sources))
        linked = {(it[1].decode(), it[2].decode()) for it in found}
        self.assertGreater(len(linked), 50, f"{BINARY} names its sources")
        # Only in a program for glibc, or with the feature `kafka`.
        elsewhere = subprocess.run(
            ["cargo", "tree", "--locked", "--package", "thicket", "--edges", "normal", "--features", "thicket/kafka", "--prefix", "none"],
            cwd=REPOSITORY, check=True, capture_output=True, text=True,
        ).stdout
        optional = subprocess.run(
            ["cargo", "tree", "--locked", "--package", "thicket", "--edges", "normal", "--target", TARGET, "--prefix", "none"],
            cwd=REPOSITORY, check=True, capture_output=True, text=True,
        ).stdout

        def of(tree):
            return {(line.split()[0], line.split()[1][1:]) for line in tree.splitlines()}

        self.assertEqual(linked - set(self.crates) - (of(elsewhere) - of(optional)), set())

    def test_dependencies_name_components(self):
        known = {it["bom-ref"] for it in self.bill["components"]} | {self.bill["metadata"]["component"]["bom-ref"]}
        for entry in self.bill["dependencies"]:
            self.assertLessEqual({entry["ref"], *entry["dependsOn"]}, known)
        self.assertGreater(len(self.bill["dependencies"]), 100)

    def test_the_same_sources_give_the_same_bytes(self):
        again = self.file.with_name("again.json")
        subprocess.run([SCRIPTS / "package-sbom", TARGET, again], check=True)
        self.assertEqual(again.read_bytes(), self.file.read_bytes())

    def test_the_image_names_it(self):
        archive = self.file.with_name("image.tar")
        command = [SCRIPTS / "package-image", "/bin/true", archive, "--format", "docker", "--sbom", self.file]
        subprocess.run(command, check=True, capture_output=True)
        listing = json.loads(subprocess.run(["tar", "-xOf", archive, "manifest.json"], check=True, capture_output=True).stdout)
        image = subprocess.run(["tar", "-xOf", archive, listing[0]["Config"]], check=True, capture_output=True).stdout
        labels = json.loads(image)["config"]["Labels"]
        self.assertEqual(labels["thicket.sbom.sha256"], hashlib.sha256(self.file.read_bytes()).hexdigest())


@unittest.skipUnless(shutil.which("ssh-keygen"), "ssh-keygen is not here")
class Signature(unittest.TestCase):
    """With a key of the test, by the commands of docs/packages.md."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name) / "release"
        self.directory.mkdir()
        for name in ("thicket-1.tar.gz", "thicket-1.deb", "thicket-1.cdx.json"):
            (self.directory / name).write_bytes(name.encode() * 100)
        self.key = self.make_key("key")
        scope = 'releases@thicket namespaces="thicket-release" '
        self.signers = self.directory / "allowed_signers"
        self.signers.write_text(scope + self.key.with_suffix(".pub").read_text())
        subprocess.run([SCRIPTS / "sign", self.key, self.directory], check=True, capture_output=True)

    def make_key(self, name):
        key = self.directory.parent / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        return key

    def is_good(self):
        """Whether a user who verifies the files accepts them. The commands are those of the documentation."""
        page = (REPOSITORY / "docs" / "packages.md").read_text()
        block = next(it for it in page.split("```") if "-Y verify" in it)
        commands = block.removeprefix("sh\n")
        return subprocess.run(["bash", "-ec", commands], cwd=self.directory, capture_output=True, check=False).returncode == 0

    def test_what_was_signed_is_accepted(self):
        self.assertTrue(self.is_good())

    def test_a_changed_byte_is_refused_in_every_file(self):
        for name in ("thicket-1.tar.gz", "thicket-1.deb", "thicket-1.cdx.json", "SHA256SUMS"):
            with self.subTest(name):
                file = self.directory / name
                content = file.read_bytes()
                file.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
                self.assertFalse(self.is_good())
                file.write_bytes(content)
        self.assertTrue(self.is_good(), "all as it was")

    def test_the_signature_of_another_key_is_refused(self):
        subprocess.run([SCRIPTS / "sign", self.make_key("other"), self.directory], check=True, capture_output=True)
        self.assertFalse(self.is_good())

    def test_a_signature_for_another_purpose_is_refused(self):
        signature = self.directory / "SHA256SUMS.sig"
        signature.unlink()
        command = ["ssh-keygen", "-q", "-Y", "sign", "-f", self.key, "-n", "git", self.directory / "SHA256SUMS"]
        subprocess.run(command, check=True, capture_output=True)
        self.assertTrue(signature.exists())
        self.assertFalse(self.is_good())

    def test_an_empty_directory_is_not_signed(self):
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run([SCRIPTS / "sign", self.key, empty], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("nothing to sign", done.stderr)


class Release(unittest.TestCase):
    """`./check --release` fails on what was left out."""

    def result(self, output):
        return subprocess.run([SCRIPTS / "all-checked"], input=output, capture_output=True, text=True, check=False)

    def test_what_was_not_checked_is_named_and_fails(self):
        for line in ("test_image (test_image.Image): NOT CHECKED: podman is not here", "skipped: 2 of test_kafka: there is no Kafka"):
            done = self.result(f"test_a ... ok\n{line}\ntest_b ... ok\n")
            self.assertEqual(done.returncode, 1)
            self.assertIn(line, done.stderr)
            self.assertIn("test_b ... ok", done.stdout)

    def test_what_was_checked_passes(self):
        done = self.result("test_a ... ok\npassed: packages (3 s)\n")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_test_that_lacks_its_tools_fails_a_release_only(self):
        with tempfile.TemporaryDirectory() as directory:
            # The real `check`, with stand-ins for what it calls.
            tree = pathlib.Path(directory)
            for folder in ("scripts", ".venv/bin", "bin"):
                (tree / folder).mkdir(parents=True)
            shutil.copy(REPOSITORY / "check", tree)
            shutil.copy(SCRIPTS / "all-checked", tree / "scripts")
            for name, output in (("scripts/setup", ""), ("bin/cargo", ""), (".venv/bin/python", "test_x ... skipped 'podman is not here'")):
                (tree / name).write_text(f'#!/bin/sh\necho "{output}"\n')
                (tree / name).chmod(0o755)
            environment = os.environ | {"PATH": f"{tree}/bin:{os.environ['PATH']}"}

            def check(*arguments):
                command = [tree / "check", *arguments, "packages"]
                return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

            usual, release = check(), check("--release")
            self.assertEqual(usual.returncode, 0, usual.stderr)
            self.assertIn("NOT CHECKED: podman is not here", usual.stdout)
            self.assertEqual(release.returncode, 1)
            self.assertIn("NOT CHECKED: podman is not here", release.stderr)


if __name__ == "__main__":
    unittest.main()
