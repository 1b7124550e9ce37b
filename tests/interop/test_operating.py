"""What operators do and see, from outside: floods, kicks, traces, `$SYS`, memory, signals."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess

from mosquitto_clients import Subscriber, publish, run
from nodes import BINARY, PATIENCE_S, OneNode, ThreeNodes, wait_until
from paho_clients import V5, V311, PahoClient
from test_bridge import Mosquitto
from wire import Kind, Property, RawCases, RawClient, connect

SERVER_SHUTTING_DOWN = 0x8B
ADMINISTRATIVE_ACTION = 0x98


class Ctl:
    """`thicket ctl` against a node of the test."""

    def ctl(self, *arguments, node=0):
        return run(BINARY, "ctl", "--api", f"127.0.0.1:{self.cluster.nodes[node].http_port}", *arguments)


class Operating(Ctl, RawCases, OneNode):
    # Paho passes the reason code of a DISCONNECT on only where properties follow it.
    arguments = ("--sys-interval-s", "1", "--reason-strings")

    def test_a_client_is_kicked_and_told_why(self):
        for protocol in (V5, V311):
            with PahoClient(self.here, self.client_id(f"p{protocol}"), protocol) as client:
                self.assertIn("ended the connection", self.ctl("kick", self.client_id(f"p{protocol}")))
                code = client.until_disconnected()
                if protocol == V5:
                    self.assertEqual(code.value, ADMINISTRATIVE_ACTION)

    def test_kicking_somebody_who_is_not_there_fails_in_words(self):
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}", "kick", "nobody"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such client", done.stderr)

    def test_a_trace_shows_a_clients_packets_live(self):
        watched = self.raw(self.here, "watched")
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}", "trace"]
        tracing = subprocess.Popen([*command, self.client_id("watched"), "-C", "4"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(tracing.stdout.close)
        self.addCleanup(tracing.wait)
        self.addCleanup(tracing.kill)

        def is_shown():
            # Until the trace has begun, what is sent is not seen.
            watched.ping()
            return bool(select.select([tracing.stdout], [], [], 0.2)[0])

        wait_until(is_shown, "the first line")
        watched.ping()
        watched.ping()
        lines = tracing.communicate(timeout=PATIENCE_S)[0].splitlines()
        self.assertEqual(tracing.returncode, 0)
        self.assertEqual(len(lines), 4)
        self.assertTrue(all("PING" in line and self.client_id("watched") in line for line in lines), lines)

    def test_a_table_has_a_line_for_each_row_and_is_plain_at_a_terminal_too(self):
        filters = [self.topic("a"), self.topic("b" * 150)]
        client = self.raw(self.here, "rows")
        client.subscribe(*((topic_filter, 1) for topic_filter in filters))
        wanted = ["subscribers", "--client", self.client_id("rows")]
        printed = self.ctl(*wanted)
        head, *rows = printed.splitlines()
        self.assertEqual(head.split(), ["CLIENT", "NODE", "FILTER", "QOS"])
        self.assertEqual(sorted(row.split()[2] for row in rows), filters)
        self.assertEqual([row.rindex(" 1") + 2 for row in rows], [len(head)] * 2, "numbers end where their heading ends")
        self.assertEqual(self.at_terminal(*wanted), printed)

    def at_terminal(self, *wanted):
        """What the command shows at a terminal."""
        ours, theirs = pty.openpty()
        with open(ours, "rb", buffering=0) as terminal:
            command = [BINARY, "ctl", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}", *wanted]
            subprocess.run(command, stdout=theirs, check=True, timeout=PATIENCE_S)
            os.close(theirs)
            shown = b""
            # A terminal whose other side is closed ends with an error.
            with contextlib.suppress(OSError):
                while part := terminal.read(1 << 16):
                    shown += part
            return shown.decode().replace("\r\n", "\n")

    def test_a_payload_is_read_as_it_is_and_ends_with_a_line_at_a_terminal(self):
        for topic, payload in ((self.topic("read"), "21"), (self.topic("line"), "21\n")):
            publish(self.here, topic, payload, "-q", 1, "-r")
            self.assertEqual(self.ctl("retained", "--read", topic), payload)
            self.assertEqual(self.at_terminal("retained", "--read", topic), "21\n")

    def test_memory_is_told_as_a_table_and_as_json(self):
        self.assertRegex(self.ctl("memory"), r"(?m)^process +- +\d{6,}$")
        self.assertGreater(json.loads(self.ctl("memory", "--json"))["resident_bytes"], 1_000_000)

    def test_what_is_remembered_of_topics_that_were_has_a_bound(self):
        for number in range(5):
            publish(self.here, self.topic(str(number)), "x", "-q", 1)
        ledger = json.loads(self.ctl("memory", "--json"))
        remembered = {table["what"]: table for table in ledger["remembered"]}
        routes = remembered["routes of topics to clients"]
        self.assertGreaterEqual(routes["entries"], 5)
        self.assertGreater(routes["bytes"], 5 * len(self.topic("0")))
        for what in (
            "messages that other nodes had kept",
            "backups to be adopted",
            "answers of the hook for authentication",
            "passwords of clients that were correct",
            "subjects of the log",
        ):
            self.assertIn(what, remembered)
        for what, table in remembered.items():
            self.assertLessEqual(table["entries"], table["at_most"], what)
            self.assertIn(what, self.ctl("memory"))

    def test_a_soak_ends_with_nothing_left_of_its_clients(self):
        """Each client comes once; the nodes forget its session, its filters and its retained message."""
        command = [BINARY, "bench", "soak", "--clients", "240", "--nodes", "2", "--step", "120", "--json", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        result = json.loads(done.stdout)
        self.assertEqual([mark["clients"] for mark in result["marks"]], [0, 120, 240])
        for ledger in result["ledgers"]:
            total = ledger["total"]
            left = [total[field] for field in ("sessions", "backups", "subscriptions", "queued_messages", "filter_bytes")]
            self.assertEqual([*left, ledger["retained_messages"]], [0] * 6)
            entries = {table["what"]: table["entries"] for table in ledger["remembered"]}
            self.assertEqual(entries["topics without a retained message any more"], 60)

    def test_system_topics_are_those_people_expect(self):
        number = r"\d+"
        expected = {
            "version": r"thicket version .+",
            "uptime": r"\d+ seconds",
            **dict.fromkeys(("clients/connected", "clients/total", "subscriptions/count"), number),
            **dict.fromkeys(("messages/received", "messages/sent", "bytes/received", "bytes/sent"), number),
            "retained messages/count": number,
            "load/messages/received/1min": r"\d+\.\d\d",
        }
        with Subscriber(self.here, "-t", "$SYS/#") as subscriber:
            missing = set(expected)
            while missing:
                topic, _qos, _retain, payload = subscriber.take()
                name = topic.removeprefix("$SYS/broker/")
                if name in expected:
                    self.assertRegex(payload, re.compile(f"^{expected[name]}$"), topic)
                    missing.discard(name)

    def test_system_topics_are_those_of_mosquitto(self):
        mosquitto = Mosquitto("sys_interval 1\n")
        self.addCleanup(mosquitto.close)

        def names(port):
            command = ["mosquitto_sub", "-p", str(port), "-t", "$SYS/#", "-F", "%t", "-W", "4"]
            heard = subprocess.run(command, capture_output=True, check=False, text=True).stdout
            return {topic.removeprefix("$SYS/broker/") for topic in heard.split("\n") if topic}

        theirs = names(mosquitto.port)
        self.assertGreater(len(theirs), 30)
        self.assertEqual(theirs - names(self.here), set())

    def test_stored_messages_and_shared_subscriptions_are_counted(self):
        def values():
            topics = [f"$SYS/broker/{topic}" for topic in ("store/messages/count", "store/messages/bytes", "messages/stored", "shared_subscriptions/count")]
            # The retained values first; then what the node publishes meanwhile.
            subscribed = [part for topic in topics for part in ("-t", topic)]
            command = ["mosquitto_sub", "-p", str(self.here), *subscribed, "-C", "8", "-W", "10", "-F", "%t %p"]
            heard = subprocess.run(command, capture_output=True, check=False, text=True).stdout.splitlines()
            latest = dict(line.split(" ") for line in heard)
            return [int(latest[topic]) for topic in topics]

        def until(count, shared):
            wait_until(lambda: [values()[index] - before[index] for index in (0, 2, 3)] == [count, count, shared], f"{count} and {shared}")

        with RawClient(self.here) as client:
            client.connect(self.client_id(), clean_start=False, props=((Property.SESSION_EXPIRY_INTERVAL, 3600),))
            before = values()
            client.subscribe((self.topic(), 1), (f"$share/g/{self.topic()}/shared", 1))
        for _ in range(3):
            publish(self.here, self.topic(), "x" * 1000, "-q", "1")
        publish(self.here, self.topic() + "/retained", "kept", "-q", "1", "-r")
        until(4, 1)
        self.assertGreater(values()[1] - before[1], 3000)
        with RawClient(self.here) as client:
            client.connect(self.client_id(), clean_start=True)
        publish(self.here, self.topic() + "/retained", "", "-q", "1", "-r")
        until(0, 0)

    def test_a_flood_of_connects_leaves_room_for_others_and_no_memory_behind(self):
        node = self.cluster.nodes[0]

        def flood():
            streams = []
            for number in range(300):
                stream = socket.create_connection(("127.0.0.1", self.here), PATIENCE_S)
                stream.sendall(connect(f"{self.unique}-{number}"))
                streams.append(stream)
            publish(self.here, self.topic(), "in the flood", "-q", "1")
            for stream in streams:
                self.assertEqual(stream.recv(100)[0] >> 4, Kind.CONNACK)
                stream.close()

        flood()
        before = node.memory_bytes("VmRSS")
        for _ in range(5):
            flood()
        wait_until(lambda: len(json.loads(node.ask("/v1/sessions"))) < 10, "the sessions to end")
        self.assertLess(node.memory_bytes("VmRSS") - before, 8 * 1024 * 1024)
        publish(self.here, self.topic(), "after it", "-q", "1")

    def test_the_description_of_the_api_is_one(self):
        document = json.loads(self.cluster.nodes[0].ask("/v1/openapi.json"))
        self.assertEqual(document["openapi"], "3.1.0")
        self.assertIn("/v1/kick", document["paths"])


class Stopping(Ctl, RawCases, OneNode):
    """A node that is asked to end; each test has its own."""

    def setUp(self):
        super().setUp()
        self.expected_to_die = {node.name for node in self.cluster.nodes}

    def test_clients_are_told_and_the_process_ends_in_time(self):
        with RawClient(self.here) as new, RawClient(self.here, 4) as old, RawClient(self.here) as silent:
            for client, version in ((new, 5), (old, 4), (silent, 5)):
                client.send(connect(self.client_id(f"v{version}-{id(client)}"), version=version))
                self.assertEqual(client.receive().kind, Kind.CONNACK)
            node = self.cluster.nodes[0]
            node.process.send_signal(signal.SIGTERM)
            came = new.until_closed()
            self.assertEqual([(one.kind, one.reason_code) for one in came], [(Kind.DISCONNECT, SERVER_SHUTTING_DOWN)])
            self.assertEqual(old.until_closed(), [])
            self.assertEqual(node.process.wait(PATIENCE_S), 0)


class SystemTopicsAcrossNodes(ThreeNodes):
    arguments = ("--sys-interval-s", "1")

    def test_each_node_speaks_for_itself_only(self):
        """A subscriber at one node hears of its own node's clients, not of another's."""
        with PahoClient(self.there, self.client_id("elsewhere")):
            with Subscriber(self.here, "-t", "$SYS/broker/clients/connected", "-t", self.topic()) as subscriber:
                values = [subscriber.take()[3] for _ in range(6)]
                self.assertIn("1", values)
                self.assertLessEqual(set(values), {"0", "1"})
