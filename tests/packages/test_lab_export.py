"""What `thicket lab export` writes for a Kubernetes cluster, held against the schemas of its API and of Chaos Mesh."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "interop"))

from nodes import BINARY  # noqa: E402

VERSIONS = ("1.27", "1.37")
SCENARIOS = ("border-table", "cut-and-heal-small")
# Other drivers have an image of their own.
IMAGES = ("thicket=example/thicket:1",)
CHAOS = "chaos-mesh.org/v1alpha1"
# The first version whose links have a rate beside their delay is 2.7.
CHAOS_CRD = "https://raw.githubusercontent.com/chaos-mesh/chaos-mesh/v2.7.2/manifests/crd.yaml"


def chaos_schemas():
    """The schemas of Chaos Mesh by kind: from the file that CHAOS_MESH_CRD names, or of a release."""
    file = os.environ.get("CHAOS_MESH_CRD")
    if file:
        text = pathlib.Path(file).read_text()
    else:
        try:
            with urllib.request.urlopen(CHAOS_CRD, timeout=30) as answer:
                text = answer.read()
        except (urllib.error.URLError, TimeoutError) as error:
            raise unittest.SkipTest(f"NOT CHECKED against Chaos Mesh: {CHAOS_CRD}: {error}; CHAOS_MESH_CRD may name a file") from error
    definitions = [it for it in yaml.safe_load_all(text) if it and it["kind"] == "CustomResourceDefinition"]
    versions = {it["spec"]["names"]["kind"]: it["spec"]["versions"] for it in definitions}
    return {kind: of[0]["schema"]["openAPIV3Schema"] for kind, of in versions.items()}


def unknown(schema, value, path=""):
    """The fields that a schema does not have: a cluster would leave them out without a word."""
    if isinstance(value, list):
        return [it for one in value for it in unknown(schema.get("items", {}), one, path)]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    known = schema["properties"]
    here = [f"{path}.{key}" for key in value if key not in known]
    return here + [it for key in value if key in known for it in unknown(known[key], value[key], f"{path}.{key}")]


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

    def test_resources_of_chaos_mesh_are_what_its_schemas_know(self):
        schemas = chaos_schemas()
        kinds = set()
        for name in SCENARIOS:
            for resource in exported(name):
                if resource["apiVersion"] != CHAOS:
                    continue
                kind = resource["kind"]
                kinds.add(kind)
                with self.subTest(scenario=name, kind=kind, name=resource["metadata"]["name"]):
                    jsonschema.validate(resource, schemas[kind])
                    self.assertEqual(unknown(schemas[kind], resource), [])
        self.assertEqual(kinds, {"NetworkChaos", "Workflow"})

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
