"""TLS, WebSocket, Unix sockets and PROXY headers, with clients we did not write and some by hand."""

import itertools
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import tempfile
import time

import paho.mqtt.client as paho
from certificates import Authority
from mosquitto_clients import Subscriber, publish, run
from nodes import BINARY, PATIENCE_S, OneNode, free_port, wait_until
from test_websocket import FramedSocket
from wire import Kind, RawCases, RawClient, connect
from wire import publish as publish_packet


class Transports(RawCases, OneNode):
    """One node on all transports, its certificate signed by an authority of this test."""

    @classmethod
    def setUpClass(cls):
        cls.authority = Authority()
        cls.addClassCleanup(cls.authority.close)
        certificate, key = cls.authority.issue("server")
        cls.client_files = cls.authority.issue("sensor-7")
        cls.tls, cls.mutual, cls.ws, cls.wss, cls.proxied = (free_port() for _ in range(5))
        cls.socket_path = str(cls.authority.path / "thicket.sock")
        configuration = cls.authority.path / "thicket.toml"
        configuration.write_text(f"""
            tls_certificate = "{certificate}"
            tls_key = "{key}"
            tls_client_ca = "{cls.authority.certificate}"
            connect_timeout_s = 2
            [[listener]]
            address = "tls://127.0.0.1:{cls.tls}"
            [[listener]]
            address = "tls://127.0.0.1:{cls.mutual}"
            tls_client_certificate = "required"
            [[listener]]
            address = "ws://127.0.0.1:{cls.ws}"
            [[listener]]
            address = "127.0.0.1:{cls.wss}"
            transport = "wss"
            websocket_path = "/other"
            [[listener]]
            address = "127.0.0.1:{cls.proxied}"
            proxy_protocol = true
            [[listener]]
            address = "{cls.socket_path}"
            transport = "unix"
        """)
        cls.arguments = ("--config", str(configuration))
        super().setUpClass()

    def cafile(self):
        return ("--cafile", str(self.authority.certificate))

    def mutual_files(self):
        certificate, key = self.client_files
        return (*self.cafile(), "--cert", certificate, "--key", key)

    def test_mosquitto_clients_pass_messages_over_tls_and_unix_sockets(self):
        ways = [
            ("tls 1.2", self.tls, (*self.cafile(), "--tls-version", "tlsv1.2")),
            ("tls 1.3", self.tls, (*self.cafile(), "--tls-version", "tlsv1.3")),
            ("client certificate", self.mutual, self.mutual_files()),
            ("unix", self.here, ("--unix", self.socket_path)),
        ]
        for name, port, arguments in ways:
            with self.subTest(name):
                topic = self.topic(name.replace(" ", "-"))
                with Subscriber(port, "-t", topic, "-q", "2", *arguments) as subscriber:
                    publish(port, topic, "there", "-q", "2", *arguments)
                    publish(self.here, topic, "and from elsewhere", "-q", "1")
                    # In any order: the client hands a message of QoS 2 over when it has the PUBREL.
                    received = {subscriber.take()[3], subscriber.take()[3]}
                    self.assertEqual(received, {"there", "and from elsewhere"})

    def test_a_client_without_the_certificate_that_is_wanted_is_not_let_in(self):
        with Authority("another") as another:
            certificate, key = another.issue("sensor-7")
            foreign = (*self.cafile(), "--cert", certificate, "--key", key)
            for arguments in (self.cafile(), foreign):
                with self.assertRaises(AssertionError):
                    publish(self.mutual, self.topic(), "x", "-q", "1", *arguments)
        publish(self.mutual, self.topic(), "x", "-q", "1", *self.mutual_files())

    def test_a_client_is_served_no_longer_than_its_certificate_is_valid(self):
        lasting = self.mutual_client(self.client_files)
        brief = self.mutual_client(self.authority.issue_for("brief", 4))
        *_, last = brief.until_closed()
        self.assertEqual((last.kind, last.reason_code), (Kind.DISCONNECT, 0xA0))
        lasting.ping()

    def mutual_client(self, files):
        """A client that has connected and shown this certificate."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.load_cert_chain(*files)
        client = RawClient(self.here, 5)
        self.addCleanup(client.close)
        client.socket.close()
        plain = socket.create_connection(("127.0.0.1", self.mutual), timeout=PATIENCE_S)
        client.socket = context.wrap_socket(plain, server_hostname="localhost")
        client.connect(self.client_id(pathlib.Path(files[0]).stem))
        return client

    def test_a_client_that_does_not_know_the_authority_does_not_connect(self):
        with Authority("another") as another, self.assertRaises(AssertionError):
            publish(self.tls, self.topic(), "x", "--cafile", str(another.certificate))

    def paho(self, port, path=None):
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, self.client_id("paho"), transport="websockets" if path else "tcp"
        )
        if path:
            client.ws_set_options(path=path)
        if port in (self.tls, self.wss):
            client.tls_set(ca_certs=str(self.authority.certificate))
        client.connect("127.0.0.1", port)
        return client

    def test_paho_passes_messages_over_websocket_and_tls(self):
        for name, port, path in (("ws", self.ws, "/mqtt"), ("wss", self.wss, "/other"), ("tls", self.tls, None)):
            with self.subTest(name):
                client, came = self.paho(port, path), []
                client.on_message = lambda _client, _data, message, came=came: came.append(message.payload)
                client.on_connect = lambda client, *_, name=name: client.subscribe(self.topic(name), 2)
                client.on_subscribe = lambda client, *_, name=name: [
                    client.publish(self.topic(name), bytes(size), 2) for size in (0, 100, 100_000)
                ]
                client.loop_start()
                try:
                    wait_until(lambda came=came: len(came) == 3, f"three messages over {name}")
                finally:
                    client.disconnect()
                    client.loop_stop()
                self.assertEqual(sorted(map(len, came)), [0, 100, 100_000])

    def test_who_is_still_sending_reads_why_the_connection_ended(self):
        """Nothing is read before megabytes were written: a reset would fail the writing, or destroy the last words."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))

        def over_tls():
            plain = socket.create_connection(("127.0.0.1", self.tls), timeout=PATIENCE_S)
            return context.wrap_socket(plain, server_hostname="localhost")

        ways = {
            "tcp": lambda: socket.create_connection(("127.0.0.1", self.here), timeout=PATIENCE_S),
            "tls": over_tls,
            "websocket": lambda: FramedSocket(self.ws),
        }
        # A second CONNECT, and one that is refused. Version 3.1.1 knows no DISCONNECT from a server.
        cases = (
            ("error", 5, "ordinary", Kind.DISCONNECT, 0x82),
            ("refusal", 5, "a" * 2000, Kind.CONNACK, 0x85),
            ("refusal", 4, "a" * 2000, Kind.CONNACK, 0x02),
        )
        for (way, open_socket), (name, version, client_id, kind, code) in itertools.product(ways.items(), cases):
            with self.subTest(way, case=name, version=version):
                client = RawClient(self.here, version)
                self.addCleanup(client.close)
                client.socket.close()
                client.socket = open_socket()
                if name == "error":
                    client.connect(self.client_id(client_id))
                client.send(connect(client_id, version=version))
                flood = publish_packet("flood", bytes(60_000), version=version)
                for _ in range(100):
                    client.send(flood)
                *_, last = client.until_closed()
                self.assertEqual((last.kind, last.reason_code), (kind, code))

    def test_another_path_is_not_found(self):
        with socket.create_connection(("127.0.0.1", self.ws), PATIENCE_S) as stream:
            stream.sendall(b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertTrue(stream.recv(100).startswith(b"HTTP/1.1 404 "))

    def test_our_own_clients_speak_every_transport(self):
        ways = [
            ("tls", ("-p", self.tls, *self.cafile())),
            ("not careful", ("-p", self.tls, "--insecure")),
            ("client certificate", ("-p", self.mutual, *self.mutual_files())),
            ("ws", ("-L", f"ws://localhost:{self.ws}")),
            ("wss", ("-L", f"wss://127.0.0.1:{self.wss}/other", *self.cafile())),
            ("mqtts", ("-L", f"mqtts://localhost:{self.tls}", *self.cafile())),
            ("unix", ("--unix", self.socket_path)),
            ("unix as a URL", ("-L", f"unix:{self.socket_path}")),
        ]
        for name, arguments in ways:
            with self.subTest(name):
                topic = self.topic(name.replace(" ", "-"))
                run(BINARY, "pub", *arguments, "-q", "1", "-r", "-t", topic, "-m", "hello")
                printed = run(BINARY, "sub", *arguments, "-q", "1", "-t", topic, "-C", 1, "-W", int(PATIENCE_S))
                self.assertEqual(printed, "hello\n")

    def test_our_own_client_says_why_it_cannot_connect(self):
        ways = [
            ("unknown authority", ("-L", f"mqtts://localhost:{self.tls}", "--cafile", self.client_files[0]), "TLS"),
            ("another path", ("-L", f"ws://localhost:{self.ws}/x"), "404"),
            ("plain at TLS", ("-p", self.tls), "speaks TLS at this port"),
            ("TLS at plain", ("-p", self.here, *self.cafile()), "TLS"),
        ]
        for name, arguments, expected in ways:
            with self.subTest(name):
                command = [BINARY, "pub", *map(str, arguments), "-t", "t", "-m", "x"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(expected, done.stderr)

    def test_the_address_in_a_proxy_header_is_told(self):
        with socket.create_connection(("127.0.0.1", self.proxied), PATIENCE_S) as stream:
            stream.sendall(b"PROXY TCP4 192.0.2.77 192.0.2.1 40000 1883\r\n" + connect(self.client_id("proxied")))
            self.assertEqual(stream.recv(100)[0] >> 4, Kind.CONNACK)
            self.assertIn(b"192.0.2.77:40000", self.cluster.nodes[0].ask("/v1/sessions"))

    def test_certificates_are_read_again_at_a_signal(self):
        """A bad file keeps the old certificate; connections that stand go on."""
        node = self.cluster.nodes[0]
        path = self.authority.path / "server.crt"
        good = path.read_bytes()
        before = self.serial_number()
        with Subscriber(self.tls, "-t", self.topic(), *self.cafile()) as standing:
            path.write_bytes(b"nothing")
            node.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "stays as it was" in self.logs(), "a complaint")
            self.assertEqual(self.serial_number(), before)
            path.write_bytes(good)
            self.authority.issue("server")
            node.process.send_signal(signal.SIGHUP)
            wait_until(lambda: self.serial_number() != before, "the new certificate")
            publish(self.here, self.topic(), "x")
            self.assertEqual(standing.take()[3], "x")

    def serial_number(self):
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        with socket.create_connection(("127.0.0.1", self.tls), PATIENCE_S) as stream:
            with context.wrap_socket(stream, server_hostname="localhost") as secure:
                return secure.getpeercert()["serialNumber"]

    def test_slow_and_silent_peers_are_let_go_and_cost_no_memory(self):
        """Slow-loris on every layer: half a handshake, half a header, giant claims."""
        node = self.cluster.nodes[0]
        claims = {
            self.here: b"\x10\xff\xff\xff\x7f\x00\x04MQTT",
            self.tls: b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03",
            self.ws: b"GET /mqtt HTTP/1.1\r\nX-Endless: ",
            self.proxied: b"PROXY TCP4 ",
        }
        self.warm_up()
        before = node.memory_bytes("VmRSS")
        for _ in range(3):
            streams = []
            for port, claim in claims.items():
                for _ in range(100):
                    stream = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
                    stream.sendall(claim)
                    streams.append(stream)
            publish(self.tls, self.topic(), "still served", "-q", "1", *self.cafile())
            for stream in streams:
                stream.settimeout(PATIENCE_S)
                try:
                    while stream.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
                stream.close()
        publish(self.tls, self.topic(), "and after", "-q", "1", *self.cafile())
        grown = node.memory_bytes("VmRSS") - before
        self.assertLess(grown, 8 * 1024 * 1024)

    def warm_up(self):
        """What the first connections make the process keep is no growth."""
        streams = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for port in (self.here, self.tls, self.ws) for _ in range(100)]
        time.sleep(0.1)
        for stream in streams:
            stream.close()

    def test_the_socket_file_goes_with_the_node(self):
        self.assertTrue(os.path.exists(self.socket_path))


class Check(OneNode):
    """`thicket broker --check` reads all there is to read and starts nothing."""

    def check(self, *arguments):
        return subprocess.run([BINARY, "broker", "--check", *arguments], capture_output=True, text=True, check=False)

    def test_a_good_configuration_is_called_good_though_its_port_is_in_use(self):
        done = self.check("--listen", f"127.0.0.1:{self.here}")
        self.assertEqual((done.returncode, done.stdout.split(";")[0]), (0, "the configuration is good"))

    def test_a_list_without_users_is_named(self):
        with tempfile.NamedTemporaryFile("w") as file:
            done = self.check("--http-users", file.name)
        line = f"http_users = {file.name}: the file lists nobody: the HTTP API refuses all requests"
        self.assertEqual((done.returncode, done.stdout.splitlines()[0]), (0, line))

    def test_a_bad_one_is_refused_with_what_is_wrong(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("[[listener]]\naddress = 'tls://127.0.0.1:0'\ntls_certificat = 'x'\n")
            file.flush()
            done = self.check("--config", file.name)
        self.assertEqual(done.returncode, 1)
        self.assertIn("did you mean `tls_certificate`?", done.stderr)

    def test_all_faults_are_printed_at_once(self):
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "thicket.toml")
            users, tokens, acl = (os.path.join(directory, name) for name in ("users", "tokens", "acl"))
            for path, text in ((users, "ann=secret\n"), (tokens, "root a never x\n"), (acl, "user ann\nallow a\n")):
                with open(path, "w") as out:
                    out.write(text)
            with open(file, "w") as out:
                out.write(f"client_name = 'x'\nworkers = 'two'\nusers = '{users}'\nacl = '{acl}'\nhttp_tokens = '{tokens}'\n")
                out.write("[[listener]]\naddress = 'tls://127.0.0.1:0'\ntls_certificate = '/nowhere/crt'\ntls_key = '/nowhere/key'\n")
            done = self.check("--config", file, "--backups", "9")
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("secret", done.stderr)
        for fault in (
            "unknown key `client_name`",
            "workers = 'two'",
            f"users: {users}, line 1: expected",
            f"{tokens}: line 1: expected the scope",
            f"{acl}: line 2: expected",
            "cannot read a certificate from /nowhere/crt",
            "cannot read a key from /nowhere/key",
            "backups = 9: expected a number from 0 to 3",
        ):
            self.assertEqual(done.stderr.count(fault), 1, f"{fault} in {done.stderr}")
