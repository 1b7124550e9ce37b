"""Enhanced authentication (5.0, 4.12) with SCRAM-SHA-256 (RFC 7677), packet by packet."""

import base64
import hashlib
import hmac
import os
import subprocess
import tempfile
import unittest

from nodes import BINARY, OneNode
from wire import Kind, Property, RawCases, RawClient, connect, packet, properties, publish

CONTINUE = 0x18
RE_AUTHENTICATE = 0x19
PROTOCOL_ERROR = 0x82
NOT_LET_IN = {0x86, 0x87, 0x8C}
METHOD = "SCRAM-SHA-256"


class Scram:
    """The client's half of one exchange."""

    def __init__(self, user, password):
        self.password = password
        self.bare = f"n={user},r={base64.b64encode(os.urandom(12)).decode()}"
        self.first = ("n,," + self.bare).encode()

    def answer(self, challenge):
        """What proves the password, for the server's first message."""
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), salt, rounds)
        without_proof = f"c=biws,r={fields['r']}"
        signed = ",".join((self.bare, challenge.decode(), without_proof)).encode()
        key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        server = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        self.expected = b"v=" + base64.b64encode(server)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def auth(reason_code, data=None, method=METHOD, props=()):
    """An AUTH."""
    fields = ((Property.AUTHENTICATION_METHOD, method),) if method else ()
    fields += ((Property.AUTHENTICATION_DATA, data),) if data is not None else ()
    return packet(Kind.AUTH, 0, bytes([reason_code]) + properties(*fields, *props))


class EnhancedAuthentication(RawCases, OneNode):
    """A node with a user whose password is known by its SCRAM credential."""

    @classmethod
    def setUpClass(cls):
        told = subprocess.run([BINARY, "passwd", "--help"], capture_output=True, text=True, check=True).stdout
        if "--scram" not in told:
            raise unittest.SkipTest("this binary has no enhanced authentication")
        file = tempfile.NamedTemporaryFile(mode="w", suffix=".users")
        cls.addClassCleanup(file.close)
        for user, option in (("ada", "--scram"), ("bob", None)):
            command = [BINARY, "passwd", user] + ([option] if option else [])
            file.write(subprocess.run(command, input="secret\n", capture_output=True, text=True, check=True).stdout)
        file.flush()
        cls.arguments = ("--users", file.name)
        super().setUpClass()

    def start(self, exchange, role="client", method=METHOD, **options):
        """CONNECT with the client's first message, and what comes."""
        client = RawClient(self.here)
        self.addCleanup(client.close)
        fields = ((Property.AUTHENTICATION_METHOD, method), (Property.AUTHENTICATION_DATA, exchange.first))
        client.send(connect(self.client_id(role), props=(*fields, *options.pop("props", ())), **options))
        return client, client.receive()

    def let_in(self, role="client", **options):
        """A client that has proven its password; the exchange is checked on the way."""
        exchange = Scram("ada", "secret")
        client, came = self.start(exchange, role, **options)
        self.assertEqual((came.kind, came.reason_code), (Kind.AUTH, CONTINUE), "[MQTT-4.12.0-2]")
        self.assertEqual(came.value(Property.AUTHENTICATION_METHOD), METHOD, "[MQTT-4.12.0-5]")
        client.send(auth(CONTINUE, exchange.answer(came.value(Property.AUTHENTICATION_DATA))))
        client.connack = client.expect(Kind.CONNACK)
        self.assertEqual(client.connack.reason_code, 0)
        self.assertEqual(client.connack.value(Property.AUTHENTICATION_METHOD), METHOD, "[MQTT-4.12.0-5]")
        self.assertEqual(client.connack.value(Property.AUTHENTICATION_DATA), exchange.expected)
        return client

    def bystander(self, role="bystander"):
        return self.raw(self.here, role, user="bob", password="secret")

    def test_both_sides_prove_that_they_know_the_password(self):
        """[MQTT-4.12.0-2] [MQTT-4.12.0-5] [MQTT-3.2.0-1]: AUTH 0x18 before the CONNACK, and service after it."""
        client = self.let_in()
        client.subscribe((self.topic(), 1))
        self.bystander().publish(self.topic(), "served", qos=1)
        self.assertEqual(client.take_message().payload, b"served")

    def test_a_wrong_proof_is_refused_at_its_step(self):
        """[MQTT-4.12.0-4] [MQTT-3.2.2-7]: of the password, of the user, of the form; CONNACK says so, then the end."""
        for user, password in (("ada", "guess"), ("eve", "secret")):
            with self.subTest(user):
                exchange = Scram(user, password)
                client, came = self.start(exchange)
                if came.kind == Kind.AUTH:
                    client.send(auth(CONTINUE, exchange.answer(came.value(Property.AUTHENTICATION_DATA))))
                    came = client.receive()
                self.assertEqual(came.kind, Kind.CONNACK)
                self.assertIn(came.reason_code, NOT_LET_IN)
                self.assertEqual(client.until_closed(), [])
        for data in (b"", b"no form", b"n,,n=ada", b"\xff" * 50):
            exchange = Scram("ada", "secret")
            exchange.first = data
            client, came = self.start(exchange)
            rest = [came, *client.until_closed()] if came.kind != Kind.AUTH else [came]
            self.assertEqual([one for one in rest if one.kind == Kind.CONNACK and one.reason_code < 0x80], [])

    def test_an_auth_that_is_not_the_next_step_ends_the_exchange(self):
        """[MQTT-4.12.0-3] [MQTT-4.12.0-5] [MQTT-3.15.2-1]: another code, another method, none at all."""
        for name, wrong in (
            ("success", lambda data: auth(0x00, data)),
            ("re-authenticate", lambda data: auth(RE_AUTHENTICATE, data)),
            ("another method", lambda data: auth(CONTINUE, data, "PLAIN")),
            ("no method", lambda data: packet(Kind.AUTH, 0, b"\x18\x00")),
        ):
            with self.subTest(name):
                exchange = Scram("ada", "secret")
                client, came = self.start(exchange)
                client.send(wrong(exchange.answer(came.value(Property.AUTHENTICATION_DATA))))
                came = client.until_closed()
                self.assertEqual([one for one in came if one.reason_code < 0x80], [])
        self.assertEqual(self.bystander().ping(), [])

    def test_nothing_but_auth_is_processed_before_the_connack(self):
        """[MQTT-3.1.2-30] [MQTT-3.1.4-6]: a PUBLISH in the middle ends the connection and reaches nobody."""
        watcher = self.bystander()
        watcher.subscribe((self.topic(), 1))
        exchange = Scram("ada", "secret")
        client, came = self.start(exchange)
        proof = auth(CONTINUE, exchange.answer(came.value(Property.AUTHENTICATION_DATA)))
        client.send(publish(self.topic(), "too early", 1, 1), proof)
        self.assertEqual([one for one in client.until_closed() if one.reason_code == 0], [])
        self.bystander("witness").publish(self.topic(), "end", qos=1)
        self.assertEqual(self.messages_until(watcher, b"end"), [])

    def test_a_client_may_authenticate_again(self):
        """[MQTT-4.12.1-1] [MQTT-4.12.0-5]: AUTH 0x19, 0x18 and 0x00, while messages go on."""
        client = self.let_in()
        client.subscribe((self.topic(), 1))
        exchange = Scram("ada", "secret")
        client.send(auth(RE_AUTHENTICATE, exchange.first))
        challenge = client.expect(Kind.AUTH)
        self.assertEqual((challenge.reason_code, challenge.value(Property.AUTHENTICATION_METHOD)), (CONTINUE, METHOD))
        self.bystander().publish(self.topic(), "meanwhile", qos=1)
        self.assertEqual(client.take_message().payload, b"meanwhile")
        client.send(auth(CONTINUE, exchange.answer(challenge.value(Property.AUTHENTICATION_DATA))))
        done = client.expect(Kind.AUTH)
        self.assertEqual((done.reason_code, done.value(Property.AUTHENTICATION_METHOD)), (0, METHOD))
        self.assertEqual(done.value(Property.AUTHENTICATION_DATA), exchange.expected)
        self.assertEqual(client.ping(), [])

    def test_a_client_that_fails_to_authenticate_again_is_disconnected(self):
        """[MQTT-4.12.1-2] [MQTT-4.12.1-1]: by another method, by a wrong proof, as another user."""
        client = self.let_in()
        client.send(auth(RE_AUTHENTICATE, Scram("ada", "secret").first, "PLAIN"))
        came = client.until_closed()
        self.assertEqual([one.kind for one in came], [Kind.DISCONNECT])
        self.assertGreaterEqual(came[0].reason_code, 0x80)
        client = self.let_in()
        exchange = Scram("ada", "guess")
        client.send(auth(RE_AUTHENTICATE, exchange.first))
        challenge = client.expect(Kind.AUTH)
        client.send(auth(CONTINUE, exchange.answer(challenge.value(Property.AUTHENTICATION_DATA))))
        came = client.until_closed()
        self.assertEqual([one.kind for one in came], [Kind.DISCONNECT])
        self.assertIn(came[0].reason_code, NOT_LET_IN)

    def test_an_auth_stays_within_the_clients_maximum_packet_size(self):
        """[MQTT-3.15.2-2] [MQTT-3.15.2-3] [MQTT-3.1.2-24]: whatever fits is sent, whatever does not is not."""
        for maximum in (20, 60, 120, 200, 400):
            client = RawClient(self.here)
            self.addCleanup(client.close)
            exchange = Scram("ada", "guess")
            fields = ((Property.AUTHENTICATION_METHOD, METHOD), (Property.AUTHENTICATION_DATA, exchange.first))
            client.send(connect(self.client_id(), props=(*fields, (Property.MAXIMUM_PACKET_SIZE, maximum))))
            client.send(auth(CONTINUE, b"not a proof"))
            self.assertEqual([one for one in client.until_closed() if one.size > maximum], [])

    def test_methods_are_for_those_who_name_them(self):
        """[MQTT-4.12.0-6] [MQTT-4.12.0-7] [MQTT-4.12.0-1]: a password works without, and other methods are refused."""
        client = self.bystander()
        self.assertEqual(client.ping(), [])
        client.send(auth(RE_AUTHENTICATE, b"x"))
        self.assertEqual([one.reason_code for one in client.until_closed()], [PROTOCOL_ERROR])
        client, came = self.start(Scram("ada", "secret"), method="GS2-KRB5")
        self.assertEqual((came.kind, came.reason_code in NOT_LET_IN), (Kind.CONNACK, True))
