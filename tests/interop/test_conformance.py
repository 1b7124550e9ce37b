"""The page docs/conformance.md says what the tests say, and no statement is left without one."""

import subprocess
import sys
import unittest

from nodes import REPOSITORY


class ConformancePage(unittest.TestCase):
    def test_every_statement_has_a_test_every_id_exists_and_the_page_is_up_to_date(self):
        """Run `scripts/conformance` to bring the page up to date; its other complaints name file and line."""
        command = [sys.executable, str(REPOSITORY / "scripts" / "conformance"), "--check"]
        check = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 0, check.stderr)
