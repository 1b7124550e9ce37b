"""The Helm chart: linted, rendered with every choice, and held against the schemas of the Kubernetes API."""

import pathlib
import shutil
import subprocess
import unittest

import kubernetes_validate
import yaml

CHART = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "helm" / "thicket"
HELM = shutil.which("helm") or shutil.which("helm", path=str(pathlib.Path.home() / "go" / "bin"))
# The oldest that the chart takes, and the newest that the validator knows.
VERSIONS = ("1.27", "1.37")
# Resources of operators, whose schemas are not those of Kubernetes.
FOREIGN = {"Certificate", "ServiceMonitor", "PrometheusRule"}

OPEN = ("auth.allowAnonymous=true",)
EVERYTHING = (
    "auth.users=alice:$argon2id$x",
    "auth.acl=topic #",
    "tls.enabled=true",
    "tls.certManager.enabled=true",
    "tls.certManager.issuer.name=letsencrypt",
    "tls.certManager.dnsNames={mqtt.example.com}",
    "websocket.enabled=true",
    "service.type=LoadBalancer",
    "service.annotations.a=b",
    "service.loadBalancerSourceRanges={10.0.0.0/8}",
    "persistence.storageClassName=fast",
    "autoscaling.enabled=true",
    "autoscaling.podMetrics[0].name=thicket_messages_per_second",
    "autoscaling.podMetrics[0].averageValue=50k",
    "autoscaling.podMetrics[0].matchLabels.traffic=external",
    "serviceMonitor.enabled=true",
    "serviceMonitor.labels.release=prometheus",
    "prometheusRule.enabled=true",
    "imagePullSecrets[0].name=registry",
    "podAnnotations.a=b",
    "podLabels.team=iot",
    "nodeSelector.disk=ssd",
    "tolerations[0].operator=Exists",
    "priorityClassName=high",
    "extraEnv[0].name=THICKET_WORKERS,extraEnv[0].value=\"2\"",
)
SECRET = ("auth.existingSecret=mine", "auth.aclInSecret=true", "tls.enabled=true", "tls.existingSecret=cert", "tls.plainPort=false")


def helm(*arguments):
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


def settings(values):
    return [word for value in values for word in ("--set", value)]


def render(values, version="1.31"):
    done = helm("template", "edge", str(CHART), "--namespace", "iot", "--kube-version", f"{version}.0", *settings(values))
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def container(documents):
    (stateful,) = of_kind(documents, "StatefulSet")
    return stateful["spec"]["template"]["spec"]["containers"][0]


@unittest.skipUnless(HELM, "helm is not here: go install helm.sh/helm/v3/cmd/helm@v3.18.6")
class Chart(unittest.TestCase):
    def test_lint_finds_nothing(self):
        for values in (OPEN, EVERYTHING, SECRET):
            done = helm("lint", "--strict", str(CHART), *settings(values))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_is_rendered_is_what_the_api_knows(self):
        for version in VERSIONS:
            for values in (OPEN, EVERYTHING, SECRET):
                for document in render(values, version):
                    if document["kind"] in FOREIGN:
                        continue
                    with self.subTest(version=version, kind=document["kind"]):
                        kubernetes_validate.validate(document, version, strict=True)

    def test_a_mistake_in_a_manifest_is_found(self):
        """The validator of the test above does look."""
        (stateful,) = of_kind(render(OPEN), "StatefulSet")
        stateful["spec"]["template"]["spec"]["containers"][0]["readinessprobe"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(stateful, "1.31", strict=True)

    def test_every_choice_has_its_resources(self):
        kinds = sorted(document["kind"] for document in render(EVERYTHING))
        expected = ["Certificate", "ConfigMap", "HorizontalPodAutoscaler", "PodDisruptionBudget", "PrometheusRule"]
        expected += ["Secret", "Service", "Service", "ServiceMonitor", "StatefulSet"]
        self.assertEqual(kinds, expected)

    def test_contradictions_are_refused_in_words(self):
        cases = {
            "say who may connect": (),
            "needs tls.enabled=true": (*OPEN, "tls.plainPort=false"),
            "tls.enabled needs": (*OPEN, "tls.enabled=true"),
            "issuer.name": (*OPEN, "tls.enabled=true", "tls.certManager.enabled=true"),
            "autoscaling.minReplicas is above": (*OPEN, "autoscaling.enabled=true", "autoscaling.minReplicas=10"),
            "autoscaling.enabled needs": (*OPEN, "autoscaling.enabled=true", "autoscaling.targetCPUUtilizationPercentage=0"),
            "at least 10 above": (*OPEN, "drain.timeoutSeconds=66"),
            "aclInSecret needs": (*OPEN, "auth.aclInSecret=true"),
        }
        for words, values in cases.items():
            with self.assertRaisesRegex(AssertionError, words):
                render(values)

    def test_values_without_effect_are_refused(self):
        manager = ("tls.certManager.enabled=true", "tls.certManager.issuer.name=x")
        cases = [
            ("without tls.enabled=true", (*OPEN, "tls.existingSecret=cert")),
            ("without tls.enabled=true", (*OPEN, *manager)),
            ("without tls.certManager.enabled", (*OPEN, "tls.certManager.issuer.name=x")),
            ("choose one", (*OPEN, "tls.enabled=true", "tls.existingSecret=cert", *manager)),
            ("no effect with auth.existingSecret", ("auth.existingSecret=mine", "auth.users=a")),
            ("no effect with auth.existingSecret", ("auth.existingSecret=mine", "auth.acl=a")),
            ("without service.type=LoadBalancer", (*OPEN, "service.loadBalancerSourceRanges={10.0.0.0/8}")),
            ("bogus", (*OPEN, "bogus=1")),
            ("enable", (*OPEN, "tls.enable=true")),
            ("replicas", (*OPEN, "replicas=abc")),
            ("repository", (*OPEN, "image.repository=")),
        ]
        for words, values in cases:
            with self.subTest(values=values), self.assertRaisesRegex(AssertionError, words):
                render(values)

    def test_users_come_in_beside_anonymous_clients(self):
        variables = {entry["name"] for entry in container(render((*OPEN, "auth.users=a")))["env"]}
        self.assertLessEqual({"THICKET_ALLOW_ANONYMOUS", "THICKET_USERS"}, variables)
        variables = {entry["name"] for entry in container(render(OPEN))["env"]}
        self.assertNotIn("THICKET_USERS", variables)

    def test_a_pod_has_no_more_rights_than_it_needs(self):
        (stateful,) = of_kind(render(EVERYTHING), "StatefulSet")
        pod = stateful["spec"]["template"]["spec"]
        security = container(render(EVERYTHING))["securityContext"]
        self.assertTrue(security["readOnlyRootFilesystem"])
        self.assertFalse(security["allowPrivilegeEscalation"])
        self.assertEqual(security["capabilities"], {"drop": ["ALL"]})
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        self.assertFalse(pod["automountServiceAccountToken"])
        self.assertFalse(pod["enableServiceLinks"])

    def test_ports_and_mounts_that_are_named_are_there(self):
        for values in (OPEN, EVERYTHING, SECRET):
            documents = render(values)
            ports = {port["name"] for port in container(documents)["ports"]}
            for service in of_kind(documents, "Service"):
                for port in service["spec"]["ports"]:
                    self.assertIn(port.get("targetPort", next(iter(ports))), ports)
            (stateful,) = of_kind(documents, "StatefulSet")
            spec = stateful["spec"]
            volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
            volumes |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
            self.assertLessEqual({mount["name"] for mount in container(documents)["volumeMounts"]}, volumes)

    def test_a_pod_is_ready_alone_only_where_it_is_the_only_one(self):
        """Otherwise a pod with another cluster secret would get clients."""
        alone = ("autoscaling.enabled=true", "autoscaling.minReplicas=1")
        for values, expected in ((("replicas=1",), "1"), (alone, "1"), ((), None), (("autoscaling.enabled=true",), None)):
            variables = {entry["name"]: entry.get("value") for entry in container(render((*OPEN, *values)))["env"]}
            self.assertEqual(variables.get("THICKET_EXPECT_NODES"), expected, values)
        # Pods must find each other before they are ready.
        documents = render(OPEN)
        (nodes,) = [it for it in of_kind(documents, "Service") if it["metadata"]["name"].endswith("-nodes")]
        self.assertTrue(nodes["spec"]["publishNotReadyAddresses"])
        (stateful,) = of_kind(documents, "StatefulSet")
        self.assertEqual(stateful["spec"]["podManagementPolicy"], "Parallel")

    def test_the_drain_ends_before_the_pod_is_killed(self):
        documents = render(OPEN)
        (stateful,) = of_kind(documents, "StatefulSet")
        command = container(documents)["lifecycle"]["preStop"]["exec"]["command"]
        self.assertEqual(command[:-1], ["/thicket", "ctl", "drain", "--timeout"])
        # A node takes seven seconds at most to stop.
        self.assertGreater(stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], int(command[-1]) + 7)


if __name__ == "__main__":
    unittest.main()
