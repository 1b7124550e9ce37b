"""Listeners for tenants: what all clients of one may publish in a second, names from certificates, and metrics of each."""

import pathlib
import re
import ssl
import tempfile

from certificates import Authority
from nodes import OneNode, free_port, wait_until
from wire import Closed, Kind, Property, RawCases, RawClient

QUOTA_EXCEEDED = 0x97
MESSAGE_RATE_TOO_HIGH = 0x96
# A session that outlives its connection.
STAYS = ((Property.SESSION_EXPIRY_INTERVAL, 600),)


class Tenants(RawCases, OneNode):
    """Two tenants, one of which may publish little; several threads."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.small, cls.heavy, cls.free = (free_port() for _ in range(3))
        configuration = pathlib.Path(cls.directory.name) / "thicket.toml"
        configuration.write_text(f"""
            workers = 2
            client_messages_per_s = 100000
            [[listener]]
            address = "127.0.0.1:{cls.small}"
            topic_prefix = "small/"
            messages_per_s = 20
            [[listener]]
            address = "127.0.0.1:{cls.heavy}"
            topic_prefix = "heavy/"
            bytes_per_s = "100KB"
            client_messages_per_s = 5
            [[listener]]
            address = "127.0.0.1:{cls.free}"
        """)
        cls.arguments = ("--config", str(configuration))
        super().setUpClass()

    def metric(self, name, port, **labels):
        """A counter of the listener of a port."""
        wanted = "".join(f',{key}="{value}"' for key, value in labels.items())
        metrics = self.cluster.nodes[0].ask("/metrics").decode()
        found = re.search(rf'{name}\{{listener="127\.0\.0\.1:{port}"{wanted}\}} (\d+)', metrics)
        return int(found[1])

    def refused(self):
        return self.metric("thicket_listener_refused_messages_total", self.small)

    def exhaust(self):
        """Publishes with several clients until the tenant has nothing left; how many messages were accepted, and the client that was refused last."""
        clients = [self.raw(self.small, f"one-of-{number}") for number in range(4)]
        for number in range(1000):
            client = clients[number % len(clients)]
            if client.publish("t", b"x", qos=1) == QUOTA_EXCEEDED:
                return number, client
        raise AssertionError("nothing was refused")

    def test_messages_over_the_limit_of_a_listener_are_refused_whichever_client_sends_them(self):
        before = self.refused()
        accepted, client = self.exhaust()
        # Two seconds are saved up, and the test takes some time.
        self.assertGreaterEqual(accepted, 40 if before == 0 else 0)
        self.assertEqual(client.publish("t", b"x", qos=2), QUOTA_EXCEEDED)
        wait_until(lambda: self.refused() >= before + 2, "refusals are counted")
        # It is no fault of the client, which stays; other tenants go on.
        client.ping()
        self.assertIn(self.raw(self.free, "other").publish("t", b"x", qos=1), (0, 0x10))
        wait_until(lambda: client.publish("t", b"x", qos=1) in (0, 0x10), "the tenant may publish again")

    def test_before_5_0_the_connection_ends_and_qos_0_is_dropped(self):
        old = self.raw(self.small, "old", version=4)
        watcher = self.raw(self.free, "watcher")
        watcher.subscribe(("small/#", 0))
        self.exhaust()
        before = self.refused()
        for _ in range(100):
            old.publish("dropped", b"x")
        old.ping()
        wait_until(lambda: self.refused() > before, "what is dropped is counted")
        with self.assertRaises((Closed, OSError)):
            for _ in range(1000):
                old.publish("t", b"x", qos=1)

    def test_a_listener_bounds_bytes_and_has_its_own_bound_for_a_client(self):
        client = self.raw(self.heavy, "large")
        self.assertIn(client.publish("t", b"x" * 900_000, qos=1), (0, 0x10))
        self.assertEqual(client.publish("t", b"x", qos=1), QUOTA_EXCEEDED)
        fast = self.raw(self.heavy, "fast")
        for _ in range(200):
            fast.publish("t", b"x")
        (goodbye,) = fast.until_closed()
        self.assertEqual((goodbye.kind, goodbye.reason_code), (Kind.DISCONNECT, MESSAGE_RATE_TOO_HIGH))

    def test_messages_are_counted_by_listener(self):
        def counted():
            name = "thicket_listener_messages_total"
            return [self.metric(name, self.free, direction=direction) for direction in ("in", "out")]

        before = counted()
        receivers = [self.raw(self.free, f"receiver-{number}") for number in range(3)]
        for receiver in receivers:
            receiver.subscribe(("counted/#", 1))
        sender = self.raw(self.free, "sender")
        for _ in range(10):
            sender.publish("counted/x", b"x", qos=1)
        for receiver in receivers:
            for _ in range(10):
                receiver.take_message()
        wait_until(lambda: [now - then for now, then in zip(counted(), before)] == [10, 30], "all messages are counted")


class Bounds(RawCases, OneNode):
    """A tenant with bounds of what it keeps, at two listeners, and clients of nobody; several threads."""

    SESSIONS = 10

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.first, cls.second, cls.free = (free_port() for _ in range(3))
        configuration = pathlib.Path(cls.directory.name) / "thicket.toml"
        configuration.write_text(f"""
            workers = 2
            data = "{cls.directory.name}/data"
            [[listener]]
            address = "127.0.0.1:{cls.first}"
            topic_prefix = "small/"
            [[listener]]
            address = "127.0.0.1:{cls.second}"
            topic_prefix = "small/"
            [[listener]]
            address = "127.0.0.1:{cls.free}"
            [[tenant]]
            topic_prefix = "small/"
            sessions = {cls.SESSIONS}
            queue_bytes = "100KB"
            retained_messages = 3
        """)
        cls.arguments = ("--config", str(configuration))
        super().setUpClass()

    def metric(self, name):
        """A metric of the tenant."""
        metrics = self.cluster.nodes[0].ask("/metrics").decode()
        return int(re.search(rf'thicket_tenant_{name}\{{topic_prefix="small/"\}} (\d+)', metrics)[1])

    def test_a_tenant_has_bounds_over_its_listeners_and_threads(self):
        codes = []
        for number in range(2 * self.SESSIONS):
            client = RawClient((self.first, self.second)[number % 2])
            self.addCleanup(client.close)
            codes.append(client.try_connect(f"many-{number}", props=STAYS).reason_code)
        self.assertEqual(codes, [0] * self.SESSIONS + [QUOTA_EXCEEDED] * self.SESSIONS)
        self.assertEqual(self.metric("sessions"), self.SESSIONS)
        # Without a session that stays a client is let in, and others have bounds of their own.
        publisher = self.raw(self.first, "publisher")
        self.raw(self.free, "other", props=STAYS)
        topics = [publisher.publish(f"r/{number}", b"x", qos=1, retain=True) for number in range(5)]
        self.assertEqual([code == QUOTA_EXCEEDED for code in topics], [False] * 3 + [True] * 2)
        self.assertEqual(self.metric("retained_messages"), 3)


class CertificateNames(RawCases, OneNode):
    """Two listeners that ask for certificates; only one takes names from them."""

    @classmethod
    def setUpClass(cls):
        cls.authority = Authority()
        cls.addClassCleanup(cls.authority.close)
        certificate, key = cls.authority.issue("server")
        cls.named, cls.unnamed = free_port(), free_port()
        (cls.authority.path / "acl").write_text("user sensor-7\ntopic of-sensor-7\n")
        configuration = cls.authority.path / "thicket.toml"
        configuration.write_text(f"""
            acl = "{cls.authority.path / "acl"}"
            tls_certificate = "{certificate}"
            tls_key = "{key}"
            tls_client_ca = "{cls.authority.certificate}"
            tls_client_certificate = "required"
            [[listener]]
            address = "127.0.0.1:{free_port()}"
            [[listener]]
            address = "tls://127.0.0.1:{cls.named}"
            certificate_users = true
            [[listener]]
            address = "tls://127.0.0.1:{cls.unnamed}"
        """)
        cls.arguments = ("--config", str(configuration))
        super().setUpClass()
        cls.context = ssl.create_default_context(cafile=cls.authority.certificate)
        cls.context.load_cert_chain(*cls.authority.issue("sensor-7"))

    def secure(self, port, **options):
        client = RawClient(port)
        self.addCleanup(client.close)
        client.socket = self.context.wrap_socket(client.socket, server_hostname="localhost")
        client.connect(self.client_id(str(port)), **options)
        return client

    def test_a_listener_says_whether_names_in_certificates_are_users(self):
        self.assertIn(self.secure(self.named).publish("of-sensor-7", b"x", qos=1), (0, 0x10))
        self.assertEqual(self.secure(self.named).publish("of-another", b"x", qos=1), 0x87)
        # Elsewhere the same certificate lets the client in, and gives no name.
        self.assertEqual(self.secure(self.unnamed).publish("of-sensor-7", b"x", qos=1), 0x87)
