"""What the wheel is made of. ./check runs the tests with the installed wheel."""

import importlib.metadata
import pathlib
import unittest

import thicket

LICENCE = pathlib.Path(__file__).resolve().parents[3] / "LICENSE"


class Package(unittest.TestCase):
    def setUp(self) -> None:
        try:
            self.distribution = importlib.metadata.distribution("thicket-mqtt")
        except importlib.metadata.PackageNotFoundError:
            self.skipTest("the wheel is not installed: ./check installs it")

    def test_the_wheel_has_licence_types_and_description(self) -> None:
        files = {str(file): file for file in self.distribution.files or ()}
        self.assertIn("thicket/py.typed", files)
        (licence,) = (file for name, file in files.items() if name.endswith("licenses/LICENSE"))
        self.assertEqual(licence.read_text(), LICENCE.read_text())
        metadata = self.distribution.metadata
        self.assertEqual(metadata["License-Expression"], "Apache-2.0")
        self.assertIn("# thicket", str(metadata.json["description"]))

    def test_the_tests_use_the_wheel(self) -> None:
        package = pathlib.Path(str(self.distribution.locate_file("thicket"))).resolve()
        self.assertEqual(pathlib.Path(thicket.__file__).resolve().parent, package)
