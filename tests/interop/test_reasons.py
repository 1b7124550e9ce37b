"""What the log and the metrics say of clients that come, go and are not let in, of certificates, and of settings with units."""

import base64
import os
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile
import unittest

from certificates import Authority
from nodes import BINARY, Node, free_port, wait_until
from wire import RawClient, connect

# A developer's own settings must not change what is tested.
PLAIN = {key: value for key, value in os.environ.items() if not key.startswith("THICKET_")}


def first_bytes(port, text):
    """Says something to a port and waits until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
        stream.sendall(text)
        try:
            while stream.recv(4096):
                pass
        except ConnectionResetError:
            pass


class Case(unittest.TestCase):
    """A node, and certificates."""

    @classmethod
    def setUpClass(cls):
        cls.authority = Authority()
        cls.addClassCleanup(cls.authority.close)

    def start(self, *arguments):
        node = Node("node", (), ("--workers", "1", *arguments))
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1), node.log_from(0))
        return node

    def start_with_tls(self, *arguments):
        certificate, key = self.authority.issue("server")
        port = free_port()
        files = ("--tls-certificate", certificate, "--tls-key", key)
        node = self.start("--listen", f"tls://127.0.0.1:{port}", *files, *arguments)
        return node, port

    def count(self, node, metric):
        found = re.search(rf"^{re.escape(metric)} (\S+)$", node.ask("/metrics").decode(), re.MULTILINE)
        return float(found[1]) if found else None

    def wait_for(self, node, metric, words, count=1):
        wait_until(lambda: self.count(node, metric) == count, f"{metric} to be {count}")
        self.assertIn(words, re.sub(r"\x1b\[[0-9;]*m", "", node.log_from(0)))

    def shake(self, port, identity, trusts=True):
        context = ssl.create_default_context(cafile=self.authority.certificate if trusts else None)
        if identity:
            context.load_cert_chain(*identity)
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as stream,
            ):
                stream.recv(1)
        except OSError:
            return
        self.fail("the handshake succeeded")

    def version_1(self, name):
        """A certificate without extensions."""
        key, request, certificate = (self.authority.path / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        self.authority.openssl("req", "-new", *self.authority.new_key(key)[:-2], "-out", request, "-subj", f"/CN={name}")
        signed = ("-CA", self.authority.certificate, "-CAkey", self.authority.key, "-set_serial", "7")
        empty = self.authority.path / "empty"
        empty.touch()
        self.authority.openssl("x509", "-req", "-in", request, *signed, "-extfile", empty, "-out", certificate, "-days", "2")
        return str(certificate), str(key)

    def expired(self, name, start="2020", end="2021"):
        """A certificate of the authority that ended long ago, or is for other years."""
        key, request, certificate = (self.authority.path / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        self.authority.openssl("req", "-new", *self.authority.new_key(key)[:-2], "-out", request, "-subj", f"/CN={name}")
        database = self.authority.path / f"{name}.database"
        database.mkdir()
        (database / "index.txt").touch()
        (database / "serial").write_text("01\n")
        settings = self.authority.path / "ca.cnf"
        settings.write_text(
            f"[ca]\ndefault_ca=a\n[a]\ndir={database}\ndatabase={database}/index.txt\nserial={database}/serial\n"
            f"new_certs_dir={database}\ndefault_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n"
            "[e]\nbasicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost\n"
        )
        signed = ("-cert", self.authority.certificate, "-keyfile", self.authority.key)
        days = ("-startdate", f"{start}0101000000Z", "-enddate", f"{end}0101000000Z")
        self.authority.openssl("ca", "-batch", "-config", settings, *signed, *days, "-in", request, "-out", certificate, "-notext")
        return str(certificate), str(key)


class Reasons(Case):
    def test_clients_that_come_go_and_are_taken_over_are_told_and_counted(self):
        node = self.start()
        first = RawClient(node.port)
        first.connect("visitor")
        wait_until(lambda: self.count(node, "thicket_client_connects_total") == 1, "the first connect")
        second = RawClient(node.port)
        second.connect("visitor")
        self.wait_for(node, 'thicket_client_disconnects_total{reason="session_taken_over"}', "client connected")
        second.disconnect()
        second.close()
        self.wait_for(node, 'thicket_client_disconnects_total{reason="client"}', "client disconnected")
        third = RawClient(node.port)
        third.connect("visitor")
        third.close()
        self.wait_for(node, 'thicket_client_disconnects_total{reason="connection_lost"}', 'client_id="visitor"')
        first.close()
        self.assertEqual(self.count(node, "thicket_client_connects_total"), 3)

    def test_a_refused_client_is_told_with_client_user_address_and_reason(self):
        with tempfile.NamedTemporaryFile("w") as users:
            made = subprocess.run([BINARY, "passwd", "ann"], input=b"secret\n", capture_output=True, check=True)
            users.write(made.stdout.decode())
            users.flush()
            node = self.start("--users", users.name)
        with RawClient(node.port) as client:
            came = client.try_connect("intruder", user="ann", password=b"wrong")
            self.assertNotEqual(came.reason_code, 0)
        self.wait_for(
            node, 'thicket_connects_refused_total{reason="bad_user_name_or_password"}', 'client_id="intruder" user_name="ann"'
        )
        self.assertNotIn("wrong\"", node.log_from(0), "no password in the log")

    def test_what_is_no_connect_is_told_and_counted_by_reason(self):
        node = self.start()
        for reason, text in [
            ("unsupported_protocol_version", "101000044d5154540902003c000004" + b"name".hex()),
            ("malformed_packet", "101000044d5154540503003c000004" + b"name".hex()),
            ("protocol_error", "c000"),
            ("http", b"GET / HTTP/1.1\r\n\r\n".hex()),
        ]:
            first_bytes(node.port, bytes.fromhex(text))
            self.wait_for(node, f'thicket_connects_refused_total{{reason="{reason}"}}', "")
        self.shake(node.port, None)
        self.wait_for(node, 'thicket_connects_refused_total{reason="tls"}', "the client speaks TLS")
        self.assertIn('reason_code="protocol_error" reason="Pingreq"', node.log_from(0))

    def test_a_reason_code_is_written_as_the_specification_names_it(self):
        node = self.start()
        with RawClient(node.port) as client:
            client.connect("twice")
            client.send(connect("twice"))
            wait_until(lambda: "the client broke a rule" in node.log_from(0), "a line")
        self.assertIn('reason_code="protocol_error" reason="second CONNECT"', node.log_from(0))

    def test_handshakes_that_fail_are_told_by_reason(self):
        files = ("--tls-client-ca", str(self.authority.certificate), "--tls-client-certificate", "required")
        node, port = self.start_with_tls(*files)
        failed = 'thicket_handshakes_failed_total{reason="%s"}'
        with Authority("other") as other:
            for reason, identity, words in [
                ("no_certificate", None, "the client shows no certificate"),
                ("unknown_issuer", other.issue("stranger"), "of none of the authorities"),
                ("expired_certificate", self.expired("late"), "has expired"),
            ]:
                self.shake(port, identity)
                self.wait_for(node, failed % reason, words)
        first_bytes(port, bytes.fromhex("101000044d5154540502003c000004") + b"name")
        self.wait_for(node, failed % "plain_mqtt", "the client speaks MQTT without TLS")
        first_bytes(port, b"GET / HTTP/1.1\r\n\r\n")
        self.wait_for(node, failed % "not_tls", "the client did not speak TLS")

    def test_a_certificate_of_version_1_is_told_with_what_to_do(self):
        files = ("--tls-client-ca", str(self.authority.certificate), "--tls-client-certificate", "required")
        node, port = self.start_with_tls(*files)
        self.shake(port, self.version_1("old"))
        self.wait_for(node, 'thicket_handshakes_failed_total{reason="certificate_version"}', "issue it anew with extensions")

    def test_a_failed_handshake_behind_a_load_balancer_names_the_client(self):
        certificate, key = self.authority.issue("balanced")
        settings = self.authority.path / "balanced.toml"
        port = free_port()
        settings.write_text(
            f'listen = ["127.0.0.1:{free_port()}"]\n[[listener]]\naddress = "tls://127.0.0.1:{port}"\nproxy_protocol = true\n'
            f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
        )
        node = self.start("--config", str(settings))
        first_bytes(port, b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 8883\r\nGET / HTTP/1.1\r\n\r\n")
        self.wait_for(node, 'thicket_handshakes_failed_total{reason="not_tls"}', 'peer="192.0.2.7:4711"')

    def test_a_look_whether_the_port_is_open_is_no_failure(self):
        node, port = self.start_with_tls()
        socket.create_connection(("127.0.0.1", port)).close()
        self.shake(port, None, trusts=False)
        self.wait_for(node, 'thicket_handshakes_failed_total{reason="refused_by_client"}', "does not accept this listener")
        self.assertEqual(len(re.findall("^thicket_handshakes_failed_total", node.ask("/metrics").decode(), re.MULTILINE)), 1)

    def test_tls_and_http_at_a_plain_port_are_named(self):
        node = self.start()
        self.shake(node.port, None)
        wait_until(lambda: "the client speaks TLS" in node.log_from(0), "a line about TLS")
        self.assertIn("if it is another node, give all nodes the same cluster secret", node.log_from(0))
        first_bytes(node.port, b"GET /mqtt HTTP/1.1\r\nHost: here\r\n\r\n")
        wait_until(lambda: "the client speaks HTTP" in node.log_from(0), "a line about HTTP")

    def test_a_client_with_tls_at_a_plain_port_is_not_taken_for_a_node(self):
        secret = self.authority.path / "secret"
        secret.write_text(base64.b64encode(os.urandom(32)).decode())
        secret.chmod(0o600)
        node = self.start("--cluster-secret-file", str(secret))
        self.shake(node.port, None)
        wait_until(lambda: "the client speaks TLS" in node.log_from(0), "a line about TLS")
        self.assertNotIn("link", node.log_from(0))


class Certificates(Case):
    """Of the node itself."""

    def check(self, *arguments):
        command = [BINARY, "broker", "--check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=PLAIN)
        return done.returncode, done.stdout + done.stderr

    def listener(self, certificate, key):
        return ("--listen", "tls://127.0.0.1:8883", "--tls-certificate", certificate, "--tls-key", key)

    def test_days_that_are_left_are_in_the_check_the_log_and_the_metrics(self):
        certificate, key = self.authority.issue("server")
        status, said = self.check(*self.listener(certificate, key))
        self.assertEqual(status, 0, said)
        self.assertRegex(said, rf"tls_certificate = {re.escape(certificate)}: [12] days? left: replace it soon")
        node, _ = self.start_with_tls()
        metric = f'thicket_certificate_expiry_seconds{{key="tls_certificate",file="{certificate}"}}'
        self.assertIn(self.count(node, metric) // 86400, (1, 2))
        wait_until(lambda: "a certificate expires soon" in node.log_from(0), "a warning")

    def test_an_expired_certificate_fails_the_check(self):
        status, said = self.check(*self.listener(*self.expired("old")))
        self.assertEqual(status, 1, said)
        self.assertRegex(said, r"expired \d+ days? ago")
        self.assertNotIn("the configuration is good", said)

    def test_a_certificate_that_is_not_valid_yet_fails_the_check_and_is_in_the_log(self):
        certificate, key = self.expired("early", "2090", "2091")
        status, said = self.check(*self.listener(certificate, key))
        self.assertEqual(status, 1, said)
        self.assertRegex(said, rf"tls_certificate = {re.escape(certificate)}: not valid yet, for another \d+ days")
        node = self.start("--listen", f"tls://127.0.0.1:{free_port()}", "--tls-certificate", certificate, "--tls-key", key)
        wait_until(lambda: "a certificate is not valid yet" in node.log_from(0), "an error")

    def test_an_expired_authority_of_clients_is_in_the_check_the_log_and_the_metrics(self):
        certificate, key = self.authority.issue("server")
        authority, _ = self.expired("authority")
        arguments = (*self.listener(certificate, key), "--tls-client-ca", authority, "--tls-client-certificate", "required")
        status, said = self.check(*arguments)
        self.assertEqual(status, 1, said)
        self.assertRegex(said, rf"tls_client_ca = {re.escape(authority)}: expired \d+ days? ago")
        node, _ = self.start_with_tls("--tls-client-ca", authority, "--tls-client-certificate", "required")
        metric = f'thicket_certificate_expiry_seconds{{key="tls_client_ca",file="{authority}"}}'
        self.assertLess(self.count(node, metric), 0)
        wait_until(lambda: "a certificate has expired" in node.log_from(0), "an error")

    def test_files_that_cannot_be_used_say_what_to_do(self):
        certificate, key = self.authority.issue("server")
        locked = self.authority.path / "locked.key"
        self.authority.openssl("pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", locked)
        status, said = self.check(*self.listener(certificate, str(locked)))
        self.assertEqual(status, 1, said)
        self.assertIn("it is encrypted", said)
        old = self.authority.path / "v1.crt"
        request = self.authority.path / "v1.csr"
        self.authority.openssl("req", "-new", "-key", key, "-out", request, "-subj", "/CN=old")
        signed = ("-CA", self.authority.certificate, "-CAkey", self.authority.key, "-CAcreateserial")
        with tempfile.NamedTemporaryFile() as none:
            self.authority.openssl("x509", "-req", "-in", request, *signed, "-out", old, "-extfile", none.name)
        text = subprocess.run(["openssl", "x509", "-in", old, "-noout", "-text"], capture_output=True, text=True, check=True)
        if "Version: 1 " in text.stdout:
            status, said = self.check(*self.listener(str(old), key))
            self.assertEqual(status, 1, said)
            self.assertIn("X.509 of version 1", said)
        believed = ("--tls-client-ca", str(self.authority.certificate))
        status, said = self.check(*self.listener(certificate, key), *believed)
        self.assertEqual(status, 1, said)
        self.assertIn("clients are not asked for any", said)


class Units(unittest.TestCase):
    def check(self, text, *arguments, environment=None):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            command = [BINARY, "broker", "--check", "--config", file.name, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=PLAIN | (environment or {}))
        return done.returncode, done.stdout + done.stderr

    def test_sizes_and_times_take_units(self):
        text = 'queue_bytes = "64MB"\nmemory_bytes = "1GiB"\nconnect_timeout_s = "1min"\nmulticast_interval_ms = "3s"\nhalf_open_bytes = 1000000\n'
        status, said = self.check(text, "--hint-bytes", "10MiB", "--sys-interval-s", "1min", "--rebalance-rest-s", "2min")
        self.assertEqual(status, 0, said)

    def test_a_bad_unit_is_refused_with_the_key(self):
        status, said = self.check('queue_bytes = "64 potatoes"\n')
        self.assertEqual(status, 1, said)
        self.assertIn("queue_bytes", said)
        self.assertIn("64MiB or 1GiB", said)
        status, said = self.check("", environment={"THICKET_QUEUE_BYTES": "lots"})
        self.assertNotEqual(status, 0, said)
        self.assertIn("THICKET_QUEUE_BYTES", said)


class MosquittoPasswords(Case):
    def test_a_password_file_that_mosquitto_wrote_lets_its_users_in(self):
        path = pathlib.Path(self.authority.path / "passwords")
        made = subprocess.run(["mosquitto_passwd", "-c", "-b", str(path), "bob", "hunter2"], capture_output=True, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("$7$", path.read_text())
        node = self.start("--users", str(path))
        with RawClient(node.port) as client:
            self.assertEqual(client.try_connect("good", user="bob", password=b"hunter2").reason_code, 0)
        with RawClient(node.port) as client:
            self.assertNotEqual(client.try_connect("bad", user="bob", password=b"hunter3").reason_code, 0)


if __name__ == "__main__":
    unittest.main()
