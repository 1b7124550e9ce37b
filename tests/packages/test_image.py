"""The container image: what is in it, and three containers of which one is killed."""

import json
import sys
import tarfile
import time
import unittest

from containers import LIMITS, REPOSITORY, archive, is_missing, podman

sys.path.insert(0, str(REPOSITORY / "tests" / "interop"))

from nodes import free_port, wait_until  # noqa: E402
from wire import Property, RawClient  # noqa: E402

NAME = "thicket-test"
# Bytes of the image when it is unpacked.
LIMIT = 20_000_000
HOUR = 3600
MESSAGES = 300


class Container:
    """A node in a container on the host's loopback, with a volume of its own."""

    def __init__(self, image, number, seeds):
        self.name = f"{NAME}-{number}"
        self.image = image
        self.seeds = seeds
        self.port = self.http_port = 0
        podman("rm", "--force", "--volumes", self.name)
        podman("volume", "rm", "--force", self.name)
        self.start()

    def start(self):
        """A new container on the volume, at another address than the one before."""
        self.port, self.http_port = free_port(), free_port()
        settings = {
            "NAME": self.name,
            "LISTEN": f"127.0.0.1:{self.port}",
            "HTTP": f"127.0.0.1:{self.http_port}",
            "API": f"127.0.0.1:{self.http_port}",
            "DISCOVER": "off",
            "SEED": ",".join(f"127.0.0.1:{port}" for port in self.seeds),
            "DATA": "/data",
        }
        environment = [word for key, value in settings.items() if value for word in ("--env", f"THICKET_{key}={value}")]
        safety = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges"]
        place = ["--network=host", f"--volume={self.name}:/data"]
        podman("run", "--detach", "--name", self.name, *safety, *LIMITS, *place, *environment, self.image)

    def health(self):
        return podman("exec", self.name, "/thicket", "health", check=False)

    def nodes(self):
        done = podman("exec", self.name, "/thicket", "ctl", "nodes", "--json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else []

    def sees(self):
        return sum(node["reachable"] for node in self.nodes())

    def covered(self):
        """Whether all sessions here have their backups."""
        done = podman("exec", self.name, "/thicket", "ctl", "traffic", "--json", check=False)
        return done.returncode == 0 and json.loads(done.stdout)["total"]["under_replicated_sessions"] == 0

    def remove(self):
        podman("rm", "--force", "--time", "0", self.name, check=False)
        podman("volume", "rm", "--force", self.name, check=False)


@unittest.skipIf(is_missing(), str(is_missing()))
class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.loading = time.monotonic()
        loaded = podman("load", "--input", archive()).stdout
        cls.image = loaded.rpartition("Loaded image: ")[2].strip()

    def containers(self, count):
        made = []
        for number in range(1, count + 1):
            made.append(Container(self.image, number, [one.port for one in made]))
            self.addCleanup(made[-1].remove)
        for one in made:
            wait_until(lambda one=one: one.health().returncode == 0, f"{one.name} to be healthy")
            wait_until(lambda one=one: one.sees() == count, f"{one.name} to see {count}")
        return made

    def client(self, port, client_id):
        client = RawClient(port)
        self.addCleanup(client.close)
        client.connect(client_id, clean_start=False, props=((Property.SESSION_EXPIRY_INTERVAL, HOUR),))
        return client

    def test_there_is_one_program_in_it_for_nobody(self):
        facts = json.loads(podman("image", "inspect", self.image).stdout)[0]
        self.assertLessEqual(facts["Size"], LIMIT)
        self.assertEqual(facts["Config"]["User"], "65534:65534")
        self.assertEqual(facts["HealthCheck"]["Test"] if "HealthCheck" in facts else facts["Healthcheck"]["Test"], ["CMD", "/thicket", "health"])
        with tarfile.open(archive()) as outer:
            (listing,) = json.load(outer.extractfile("manifest.json"))
            with tarfile.open(fileobj=outer.extractfile(listing["Layers"][0])) as layer:
                files = {member.name: member for member in layer}
        self.assertEqual([name for name, member in files.items() if member.mode & 0o111 and member.isfile()], ["thicket"])
        self.assertEqual([name for name, member in files.items() if member.mode & 0o6000], [])

    def test_a_first_message(self):
        """Not a bound: a figure for the reader."""
        one = self.containers(1)[0]
        subscriber = self.client(one.port, "subscriber")
        subscriber.subscribe(("first", 1))
        self.client(one.port, "publisher").publish("first", "message", qos=1)
        self.assertEqual(subscriber.take_message().payload, b"message")
        print(f"\nfrom `podman load` to the first message: {time.monotonic() - self.loading:.1f} s")

    def test_health_is_told_by_the_exit_code(self):
        one = self.containers(1)[0]
        self.assertEqual(podman("healthcheck", "run", one.name, check=False).returncode, 0)
        bad = podman("exec", one.name, "/thicket", "health", "--api", f"127.0.0.1:{free_port()}", check=False)
        self.assertEqual(bad.returncode, 1)
        self.assertIn("nobody listens", bad.stderr)

    def test_of_three_containers_one_is_killed_and_nothing_is_lost(self):
        """Then it comes back at another address, as the same node."""
        first, second, victim = self.containers(3)
        topic = "site/1"
        here = self.client(victim.port, "subscriber")
        here.subscribe((topic, 1))
        wait_until(victim.covered, "the session to have its copy")
        publisher = self.client(first.port, "publisher")
        for number in range(MESSAGES):
            if number == MESSAGES // 3:
                podman("kill", "--signal", "KILL", victim.name)
            self.assertLess(publisher.publish(topic, str(number), qos=1), 0x80)
        here.close()
        wait_until(lambda: first.sees() == 2, "the node to be missed")
        back = self.client(second.port, "subscriber")
        came = []
        while len(set(came)) < MESSAGES:
            came.append(int(back.take_message().payload))
        self.assertEqual(sorted(set(came)), list(range(MESSAGES)))
        before = {node["name"]: node["id"] for node in first.nodes()}
        podman("rm", "--force", victim.name)
        victim.start()
        wait_until(lambda: first.sees() == 3, "the node to be back")
        self.assertEqual({node["name"]: node["id"] for node in first.nodes()}, before)

    def test_a_pods_life(self):
        """What Kubernetes does to a pod that it replaces: preStop, SIGTERM, a new container on the same volume with another address."""
        first, second, leaving = self.containers(3)
        here = self.client(leaving.port, "subscriber")
        here.subscribe(("site/1", 1))
        wait_until(leaving.covered, "the session to have its copy")
        drained = podman("exec", leaving.name, "/thicket", "ctl", "drain", "--timeout", "30")
        # Whether it has backups of others, which it then says, is up to them.
        self.assertEqual(drained.stdout.splitlines()[0], "drained: the node can be stopped")
        podman("stop", "--time", "20", leaving.name)
        state = json.loads(podman("inspect", leaving.name).stdout)[0]["State"]
        self.assertEqual(state["ExitCode"], 0)
        self.client(first.port, "publisher").publish("site/1", "meanwhile", qos=1)
        podman("rm", leaving.name)
        leaving.start()
        wait_until(lambda: leaving.health().returncode == 0, "the new container to be healthy")
        wait_until(lambda: second.sees() == 3, "the node to be back")
        self.assertEqual(self.client(leaving.port, "subscriber").take_message().payload, b"meanwhile")


if __name__ == "__main__":
    unittest.main()
