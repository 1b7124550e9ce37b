"""From a real Mosquitto to a node, as docs/mosquitto.md says: its configuration, its sessions and retained messages, a bridge meanwhile."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from nodes import BINARY, PATIENCE_S, Node, free_port, wait_until
from test_bridge import Mosquitto
from test_rights import passwd
from wire import NEVER, Kind, Property, RawClient, acknowledge, publish

KEPT = ((Property.SESSION_EXPIRY_INTERVAL, NEVER),)


def thicket(*arguments, check=True):
    command = [BINARY, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    if check and done.returncode:
        raise AssertionError(f"{command}: {done.stderr}")
    return done


class Migration(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.mosquitto = Mosquitto()
        self.addCleanup(self.mosquitto.close)

    def node(self, *arguments):
        node = Node("new", (), arguments)
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1), node.log_from(0))
        return node

    def client(self, port, name, version=5, **options):
        client = RawClient(port, version)
        self.addCleanup(client.close)
        client.connack = client.connect(name, **options)
        return client

    def keeper(self, port, name, version=5, **options):
        """A client whose session outlives its connections."""
        props = KEPT if version == 5 else ()
        return self.client(port, name, version, clean_start=False, props=props, **options)

    def convert(self, *arguments):
        """What Mosquitto has stored, in a file of lines, and what was said of it."""
        self.mosquitto.stop()
        database = pathlib.Path(self.mosquitto.directory.name) / "mosquitto.db"
        lines = self.directory / "sessions.jsonl"
        said = thicket("migrate", "--database", database, "-o", lines, *arguments).stderr
        return lines, said

    def imported(self, node, lines):
        api = f"127.0.0.1:{node.http_port}"
        return json.loads(thicket("ctl", "--api", api, "import", "--json", lines).stdout)

    def test_a_session_goes_on_at_the_node_with_everything_that_it_had(self):
        """Every state of a message that Mosquitto stores, in 3.1.1 and 5.0, with and without a user."""
        users = self.directory / "users"
        users.write_text(passwd("ann", "ann"))
        node = self.node("--users", users, "--allow-anonymous", "--workers", "2")
        kinds = [("five", 5, {}), ("older", 4, {}), ("ann's", 5, {"user": "ann", "password": "ann"})]
        flights, port = {}, self.mosquitto.port
        publisher = self.client(port, "publisher")
        for name, version, login in kinds:
            client = self.keeper(port, name, version, **login)
            client.subscribe((f"{name}/#", 2))
            client.send(publish("elsewhere", f"{name} once", 2, 9, version=version))
            client.expect(Kind.PUBREC)
            publisher.publish(f"{name}/flight", "in flight", qos=1)
            publisher.publish(f"{name}/received", "received", qos=2)
            first, second = client.expect(Kind.PUBLISH), client.expect(Kind.PUBLISH)
            client.send(acknowledge(Kind.PUBREC, second.packet_id))
            client.expect(Kind.PUBREL)
            client.close()
            flights[name] = first.packet_id, second.packet_id
            for number in range(10):
                publisher.publish(f"{name}/{number}", f"{number}", qos=1 + number % 2)
            publisher.publish(f"{name}/kept", b"\xff retained", qos=1, retain=True)
        waiting = self.keeper(port, "waiting")
        waiting.subscribe(("elsewhere", 2))
        waiting.close()
        publisher.disconnect()
        lines, said = self.convert()
        self.assertIn("converted 4 sessions", said)
        done = self.imported(node, lines)
        self.assertEqual((done["sessions"], done["retained"], done["problems"]), (4, 3, []), done)
        self.assertEqual((done["messages_dropped"], done["messages_skipped"]), (0, 0), done)
        for name, version, login in kinds:
            with self.subTest(name=name):
                back = self.keeper(node.port, name, version, **login)
                self.assertTrue(back.connack.session_present)
                came = [back.receive() for _ in range(14)]
                released = [one.packet_id for one in came if one.kind == Kind.PUBREL]
                self.assertEqual(released, [flights[name][1]])
                messages = [one for one in came if one.kind == Kind.PUBLISH]
                self.assertEqual((messages[0].topic, messages[0].packet_id), (f"{name}/flight", flights[name][0]))
                expected = [(f"{name}/{number}", 1 + number % 2) for number in range(10)]
                self.assertEqual([(one.topic, one.qos) for one in messages[1:-2]], expected)
                # From its queue, and as an import gives a retained message to all subscribers.
                for kept in messages[-2:]:
                    self.assertEqual((kept.topic, kept.payload), (f"{name}/kept", b"\xff retained"))
                # Its publication was accepted by Mosquitto, and is not delivered again.
                back.send(publish("elsewhere", f"{name} once", 2, 9, dup=True, version=version))
                back.expect_answer(Kind.PUBREC, 9)
                back.send(acknowledge(Kind.PUBREL, 9))
                back.expect_answer(Kind.PUBCOMP, 9)
                # The subscription is there too.
                other = self.client(node.port, f"other-{name}")
                other.publish(f"{name}/new", "new", qos=1)
                self.assertEqual(back.take_message().payload, b"new")
        # What its publishers had not released when Mosquitto ended.
        waiting = self.keeper(node.port, "waiting")
        came = {waiting.take_message().payload for _ in kinds}
        self.assertEqual(came, {f"{name} once".encode() for name, _, _ in kinds})
        self.assertEqual(waiting.ping(), [])
        later = self.client(node.port, "later")
        later.subscribe(("+/kept", 1))
        retained = {later.take_message().topic for _ in kinds}
        self.assertEqual(retained, {f"{name}/kept" for name, _, _ in kinds})

    def test_a_bridge_serves_clients_of_both_until_the_sessions_move(self):
        config = self.directory / "thicket.toml"
        config.write_text(
            f'[[bridge]]\nname = "move"\naddress = "127.0.0.1:{self.mosquitto.port}"\nversion = "5.0"\nreconnect_maximum_s = 1\n'
            '[[bridge.rule]]\ntopic = "#"\ndirection = "both"\nqos = 2\n'
        )
        keeper = self.keeper(self.mosquitto.port, "keeper")
        keeper.subscribe(("a/#", 1))
        keeper.close()
        stays = self.client(self.mosquitto.port, "stays")
        stays.publish("a/kept", "kept", qos=1, retain=True)
        node = self.node("--config", config)

        def bridge():
            return json.loads(node.ask("/v1/bridges") or b"[]")[0]

        wait_until(lambda: bridge()["local_connected"] and bridge()["remote_connected"], "the bridge")
        moved = self.client(node.port, "moved")
        moved.subscribe(("a/#", 1))
        self.assertEqual(moved.take_message().payload, b"kept")
        moved.publish("a/1", "of one that moved", qos=1)
        self.assertEqual(moved.take_message().payload, b"of one that moved")
        stays.publish("a/2", "of one that stays", qos=1)
        self.assertEqual(moved.take_message().payload, b"of one that stays")
        wait_until(lambda: bridge()["outward"]["queue_messages"] == 0, "everything to cross")
        # The cut-over.
        stays.disconnect()
        lines, said = self.convert()
        self.assertIn("left out: 1 x session of a bridge", said)
        done = self.imported(node, lines)
        self.assertEqual((done["sessions"], done["messages"], done["retained_existing"]), (1, 3, 1), done)
        back = self.keeper(node.port, "keeper")
        self.assertTrue(back.connack.session_present)
        came = [back.take_message().payload for _ in range(3)]
        # In whichever order they came to Mosquitto.
        self.assertEqual(sorted(came), [b"kept", b"of one that moved", b"of one that stays"])
        self.assertEqual(back.ping(), [])

    def test_the_configuration_of_debian_is_followed_into_its_directory(self):
        here = self.directory / "conf.d"
        here.mkdir()
        first, second = free_port(), free_port()
        (here / "b.conf").write_text(f"allow_anonymous true\nlistener {second} 127.0.0.1\nmount_point tenant/\n")
        (here / "A.conf").write_text(f"listener {first} 127.0.0.1\nmax_packet_size 100000\n")
        (here / "not.txt").write_text("listener 1\n")
        old = self.directory / "mosquitto.conf"
        old.write_text(
            "pid_file /run/mosquitto/mosquitto.pid\npersistence true\npersistence_location /var/lib/mosquitto/\n"
            f"log_dest file /var/log/mosquitto/mosquitto.log\ninclude_dir {here}\n"
        )
        new = self.directory / "thicket.toml"
        thicket("migrate", old, "-o", new)
        new.write_text(new.read_text().replace("/var/lib/thicket", str(self.directory / "data")))
        command = [BINARY, "broker", "--config", str(new), "--discover", "off", "--stop-with-stdin"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)

        def answers():
            try:
                self.client(first, "probe").close()
            except (OSError, AssertionError):
                return False
            return True

        wait_until(answers, "the node to listen")
        everybody = self.client(first, "everybody")
        everybody.subscribe(("tenant/#", 1))
        tenant = self.client(second, "tenant")
        tenant.publish("t", "x", qos=1)
        self.assertEqual(everybody.take_message().topic, "tenant/t")

    def test_a_damaged_database_is_refused_with_the_place(self):
        self.client(self.mosquitto.port, "publisher").publish("kept", "x", qos=1, retain=True)
        self.mosquitto.stop()
        database = pathlib.Path(self.mosquitto.directory.name) / "mosquitto.db"
        database.write_bytes(database.read_bytes()[:-3])
        refused = thicket("migrate", "--database", database, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("retained message at byte", refused.stderr)
