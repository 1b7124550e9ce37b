"""Links between nodes with TLS: both ends show a certificate of the cluster's authority, and nobody else gets in."""

import base64
import json
import os
import shutil
import signal
import socket
import ssl
import unittest

from certificates import Authority
from nodes import Node, free_port, wait_until
from wire import NEVER, Kind, Property, RawClient, connect, decode


class LinkTls(unittest.TestCase):
    """Two nodes and more, each with files of its own."""

    def setUp(self):
        self.ours, self.theirs = Authority("ours"), Authority("theirs")
        self.addCleanup(self.ours.close)
        self.addCleanup(self.theirs.close)
        self.nodes = []

    def files(self, name, authority):
        certificate, key = authority.issue(name)
        return certificate, key, str(authority.certificate)

    def start(self, name, seeds=(), files=None, arguments=()):
        """A node; with files it takes links at its `link_port` only."""
        link_port = free_port()
        if files:
            certificate, key, authority = files
            arguments = (
                *arguments,
                *("--listen", f"link://127.0.0.1:{link_port}", "--link-tls-certificate", certificate),
                *("--link-tls-key", key, "--link-tls-ca", authority),
            )
        node = Node(name, seeds, arguments)
        node.link_port = link_port
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1), node.log_from(0))
        return node

    def start_with_secret(self, name, seeds=(), secret="secret"):
        """A node that takes links at its `link_port`, under a secret."""
        link_port = free_port()
        path = self.ours.path / secret
        if not path.exists():
            path.write_bytes(base64.b64encode(os.urandom(32)))
        arguments = ("--listen", f"link://127.0.0.1:{link_port}", "--cluster-secret-file", str(path))
        node = self.start(name, seeds, arguments=arguments)
        node.link_port = link_port
        return node

    def assert_logged(self, node, *words):
        def lines():
            return [line for line in node.log_from(0).splitlines() if all(word in line for word in words)]

        wait_until(lines, f"{node.name} to say {words}")

    def pair(self):
        one = self.start("one", files=self.files("one", self.ours))
        two = self.start("two", (one.link_port,), self.files("two", self.ours))
        wait_until(lambda: one.sees() == 2 and two.sees() == 2, "two nodes to meet")
        return one, two

    def test_messages_and_sessions_cross_links_with_tls(self):
        one, two = self.pair()
        with RawClient(one.port) as subscriber, RawClient(two.port) as publisher:
            subscriber.connect("subscriber", props=((Property.SESSION_EXPIRY_INTERVAL, NEVER),))
            subscriber.subscribe(("a/#", 2))
            publisher.connect("publisher")
            large = bytes(900_000)
            for qos in (0, 1, 2):
                publisher.publish(f"a/{qos}", large, qos=qos)
                came = subscriber.take_message()
                self.assertEqual((came.topic, len(came.payload)), (f"a/{qos}", len(large)))
            subscriber.disconnect()
            publisher.publish("a/kept", "kept", qos=1)
        with RawClient(two.port) as moved:
            options = {"clean_start": False, "props": ((Property.SESSION_EXPIRY_INTERVAL, NEVER),)}
            self.assertTrue(moved.connect("subscriber", **options).session_present)
            self.assertEqual(moved.take_message().payload, b"kept")
        addresses = {entry["address"] for entry in json.loads(one.ask("/v1/nodes"))}
        self.assertEqual(addresses, {f"127.0.0.1:{node.link_port}" for node in (one, two)})

    def test_a_node_with_a_certificate_of_another_authority_is_refused(self):
        one = self.start("one", files=self.files("one", self.ours))
        stranger = self.start("stranger", (one.link_port,), self.files("stranger", self.theirs))
        self.assert_logged(stranger, "link refused", "certificate")
        # One that believes us, but has no certificate of ours.
        certificate, key, _ = self.files("spy", self.theirs)
        spy = self.start("spy", (one.link_port,), (certificate, key, str(self.ours.certificate)))
        self.assert_logged(spy, "link refused", "UnknownCA")
        self.assert_logged(one, "link refused", "UnknownIssuer")
        self.assertEqual([node.sees() for node in (one, stranger, spy)], [1, 1, 1])

    def test_a_plain_link_is_refused_by_a_node_with_tls_and_the_other_way_round(self):
        one = self.start("one", files=self.files("one", self.ours))
        plain = self.start("plain", (one.port, one.link_port))
        self.assert_logged(one, "link refused", "a link without TLS arrived")
        self.assert_logged(one, "link refused", "InvalidContentType")
        two = self.start("two", (plain.port,), self.files("two", self.ours))
        self.assert_logged(two, "link ended while TLS began")
        self.assertEqual([node.sees() for node in (one, plain, two)], [1, 1, 1])

    def test_no_client_comes_in_where_links_do(self):
        one = self.start("one", files=self.files("one", self.ours))
        context = ssl.create_default_context(cafile=str(self.ours.certificate))
        context.check_hostname = False
        with socket.create_connection(("127.0.0.1", one.link_port)) as bare:
            bare.settimeout(20)
            with self.assertRaises((ssl.SSLError, ConnectionError)), context.wrap_socket(bare) as without:
                without.sendall(connect("client"))
                without.recv(1)
                raise ConnectionError("closed")
        certificate, key, _ = self.files("node", self.ours)
        context.load_cert_chain(certificate, key)
        with socket.create_connection(("127.0.0.1", one.link_port)) as bare, context.wrap_socket(bare) as client:
            client.settimeout(20)
            client.sendall(connect("client"))
            answer = client.recv(100)
            connack = decode(answer[0], answer[2:], len(answer), 5)
            self.assertEqual((connack.kind, connack.reason_code), (Kind.CONNACK, 0x87))
            self.assertEqual(client.recv(100), b"")

    def test_links_under_a_secret_may_have_a_listener_of_their_own(self):
        one = self.start_with_secret("one")
        two = self.start_with_secret("two", (one.link_port,))
        wait_until(lambda: one.sees() == 2 and two.sees() == 2, "two nodes to meet")
        keys = {entry["key"] for node in (one, two) for entry in json.loads(node.ask("/v1/nodes"))}
        self.assertEqual((len(keys), None in keys), (1, False))
        astray = self.start_with_secret("astray", (one.port,))
        self.assert_logged(astray, "link ended while TLS began", f"127.0.0.1:{one.port}")
        with socket.create_connection(("127.0.0.1", one.link_port)) as bare:
            bare.settimeout(20)
            bare.sendall(connect("client"))
            answer = bare.recv(100)
        # An alert of TLS at most, no CONNACK.
        self.assertIn(answer[:1], (b"", b"\x15"))
        self.assertEqual([node.sees() for node in (one, two, astray)], [2, 2, 1])

    def test_certificates_of_links_are_read_again(self):
        certificate, key, authority = self.files("one", self.ours)
        files = [str(self.ours.path / f"mine.{end}") for end in ("crt", "key", "ca")]
        for source, target in zip((certificate, key, authority), files, strict=True):
            shutil.copy(source, target)
        one = self.start("one", files=files)
        for source, target in zip(self.files("one", self.theirs), files, strict=True):
            shutil.copy(source, target)
        one.process.send_signal(signal.SIGHUP)
        self.assert_logged(one, "read again", "certificate of links")
        self.assert_logged(one, "read again", "certificates")
        other = self.start("other", (one.link_port,), self.files("other", self.theirs))
        wait_until(lambda: one.sees() == 2 and other.sees() == 2, "the nodes to meet with new certificates")


if __name__ == "__main__":
    unittest.main()
