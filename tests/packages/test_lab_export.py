"""What `thicket lab export` writes for a Kubernetes cluster, held against the schemas of its API. Resources of Chaos Mesh have none here."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import kubernetes_validate

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "interop"))

from nodes import BINARY  # noqa: E402

VERSIONS = ("1.27", "1.37")
SCENARIOS = ("border-table", "cut-and-heal-small")
# Other drivers have an image of their own.
IMAGES = ("thicket=example/thicket:1",)
CHAOS = "chaos-mesh.org/v1alpha1"


def exported(name):
    """All resources of the export of a scenario."""
    with tempfile.TemporaryDirectory() as folder:
        command = [BINARY, "lab", "export", ROOT / "scenarios" / f"{name}.toml", "--kubernetes", folder]
        for image in IMAGES:
            command += ["--image", image]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        files = sorted(pathlib.Path(folder).glob("*/*.json"))
        return [item for file in files for item in json.loads(file.read_text())["items"]]


class Export(unittest.TestCase):
    def test_what_is_written_is_what_the_api_knows(self):
        for name in SCENARIOS:
            resources = exported(name)
            kinds = {resource["kind"] for resource in resources}
            self.assertLessEqual({"Namespace", "Pod", "Service", "ConfigMap", "Job", "NetworkChaos"}, kinds)
            for resource in resources:
                if resource["apiVersion"] == CHAOS:
                    continue
                for version in VERSIONS:
                    with self.subTest(scenario=name, kind=resource["kind"], version=version):
                        kubernetes_validate.validate(resource, version, strict=True)

    def test_resources_of_chaos_mesh_choose_pods_that_exist(self):
        resources = exported("cut-and-heal-small")
        sites = {it["metadata"]["labels"]["site"] for it in resources if it["kind"] == "Pod" and "site" in it["metadata"].get("labels", {})}
        links = [it["spec"] for it in resources if it["kind"] == "NetworkChaos"]
        self.assertTrue(sites and links)
        for spec in links:
            for selector in (spec["selector"], spec["target"]["selector"]):
                (expression,) = selector["expressionSelectors"]
                self.assertLessEqual(set(expression["values"]), sites)


if __name__ == "__main__":
    unittest.main()
