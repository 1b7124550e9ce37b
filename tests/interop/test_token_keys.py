"""Tokens whose keys a provider publishes: a JWK set, OpenID Connect discovery, rotation, and a provider that is down."""

import json
import re
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from certificates import Authority
from nodes import BINARY, Node, OneNode, wait_until
from provider import Key, Provider
from test_rights import (
    BAD_USER_NAME_OR_PASSWORD,
    NOT_AUTHORIZED,
    SERVER_UNAVAILABLE,
    Files,
)
from wire import Kind, RawCases, RawClient

GOOD = 0
WITHOUT_KEYS = "the provider has not sent the keys of tokens yet (`jwt_oidc_issuer`, `jwt_jwks`): logins are refused"
# What a node waits at least between two fetches of keys.
PAUSE_S = 5


class WithProvider(Files, RawCases):
    """A node that takes the tokens of `cls.provider`."""

    def code(self, token, user="ann"):
        with RawClient(self.here) as client:
            return client.try_connect(self.client_id(), user=user, password=token).reason_code

    def claims(self, **others):
        return {"sub": "ann", "iss": self.issuer, "aud": ["web", "mqtt"], "exp": time.time() + 300, **others}

    def until_code(self, token, code):
        wait_until(lambda: self.code(token) == code, f"a token to be answered with {code:#x}")

    def metric(self, name):
        page = self.cluster.nodes[0].ask("/metrics").decode()
        found = re.search(rf"^{name} (\d+)$", page, re.MULTILINE)
        return found and int(found.group(1))


class KeysOfJwks(WithProvider, OneNode):
    issuer = "us"

    @classmethod
    def write_files(cls):
        cls.keys = {algorithm: Key(f"of-{algorithm}", algorithm) for algorithm in ("RS256", "ES256", "EdDSA")}
        cls.provider = Provider(*cls.keys.values())
        cls.addClassCleanup(cls.provider.server_close)
        cls.addClassCleanup(cls.provider.shutdown)
        cls.arguments = (
            *("--jwt-jwks", f"{cls.provider.url}/keys", "--jwt-issuer", cls.issuer, "--jwt-audience", "mqtt"),
            *("--jwt-refresh-s", "1h"),
        )

    def setUp(self):
        super().setUp()
        self.until_code(self.keys["ES256"].token(self.claims()), GOOD)

    def test_a_token_is_good_with_the_key_it_names(self):
        for algorithm, key in self.keys.items():
            with self.subTest(algorithm):
                self.assertEqual(self.code(key.token(self.claims())), GOOD)
                self.assertEqual(self.code(key.token(self.claims()), user="eve"), BAD_USER_NAME_OR_PASSWORD)
                another = Key(key.name, algorithm)
                self.assertEqual(self.code(another.token(self.claims())), BAD_USER_NAME_OR_PASSWORD)

    def test_a_token_with_the_name_of_a_key_of_another_type_is_refused(self):
        token = self.keys["ES256"].token(self.claims(), name="of-RS256")
        self.assertEqual(self.code(token), BAD_USER_NAME_OR_PASSWORD)

    def test_other_issuers_and_audiences_are_refused(self):
        key = self.keys["EdDSA"]
        for claims in (self.claims(iss="them"), self.claims(aud="web"), self.claims(aud=[]), self.claims(exp=1)):
            with self.subTest(claims):
                self.assertEqual(self.code(key.token(claims)), BAD_USER_NAME_OR_PASSWORD)

    def test_keys_rotate_while_the_node_runs(self):
        old, new = Key("old"), Key("new")
        self.provider.keys.append(old)
        self.until_code(old.token(self.claims()), GOOD)
        client = self.raw(self.here, "of-old", user="ann", password=old.token(self.claims()))
        stays = self.raw(self.here, "stays", user="ann", password=self.keys["RS256"].token(self.claims()))
        self.provider.keys.append(new)
        self.until_code(new.token(self.claims()), GOOD)
        # A key that is added changes nothing for others.
        self.assertEqual((client.ping(), stays.ping()), ([], []))
        self.provider.keys.remove(old)
        self.reload()
        self.assertEqual(client.expect(Kind.DISCONNECT).reason_code, NOT_AUTHORIZED)
        self.assertEqual(stays.ping(), [])
        self.assertNotEqual(self.code(old.token(self.claims())), GOOD)
        self.assertEqual(self.code(new.token(self.claims())), GOOD)

    def test_tokens_with_unknown_keys_do_not_flood_the_provider(self):
        stranger = Key("strange")
        began, asked = time.monotonic(), len(self.provider.asked)
        codes = {self.code(stranger.token(self.claims(), name=f"strange-{number}")) for number in range(40)}
        most = (time.monotonic() - began) // PAUSE_S + 2
        self.assertLessEqual(len(self.provider.asked) - asked, most)
        self.assertLessEqual(codes, {BAD_USER_NAME_OR_PASSWORD, SERVER_UNAVAILABLE})
        self.assertEqual(self.code(self.keys["ES256"].token(self.claims())), GOOD)

    def test_the_last_keys_stay_while_the_provider_is_down(self):
        self.provider.is_down = True
        self.addCleanup(setattr, self.provider, "is_down", False)
        failures = self.metric("thicket_jwt_key_fetch_failures_total")
        self.reload()
        wait_until(lambda: self.metric("thicket_jwt_key_fetch_failures_total") > failures, "a fetch to fail")
        self.assertIn("the provider's keys cannot be fetched", self.logs())
        self.assertIn("status 503", self.logs())
        self.assertEqual(self.code(self.keys["ES256"].token(self.claims())), GOOD)
        self.assertIsNotNone(self.metric("thicket_jwt_keys_age_seconds"))
        fetches = self.metric("thicket_jwt_key_fetches_total")
        # Who brings a new key is to try again, until the provider answers.
        new = Key("while-down")
        wait_until(lambda: self.code(new.token(self.claims())) == SERVER_UNAVAILABLE, "the keys to be old")
        self.provider.keys.append(new)
        self.provider.is_down = False
        self.until_code(new.token(self.claims()), GOOD)
        self.assertGreater(self.metric("thicket_jwt_key_fetches_total"), fetches)


class KeysOfAnIssuer(WithProvider, OneNode):
    """Discovery over TLS, with a provider that does not answer when the node starts."""

    @classmethod
    def write_files(cls):
        authority = Authority()
        cls.addClassCleanup(authority.close)
        cls.key = Key("one", "RS256")
        cls.provider = Provider(cls.key, certificate=authority.issue("provider"))
        cls.provider.is_down = True
        cls.addClassCleanup(cls.provider.server_close)
        cls.addClassCleanup(cls.provider.shutdown)
        cls.issuer = cls.provider.url
        cls.arguments = ("--jwt-oidc-issuer", cls.issuer, "--jwt-ca", str(authority.certificate), "--jwt-refresh-s", "10")
        # Some can log in without the provider, so that the node is ready.
        cls.arguments += ("--allow-anonymous=true",)

    def test_an_issuer_says_where_its_keys_are(self):
        token = self.key.token(self.claims())
        self.assertEqual(self.code(token), SERVER_UNAVAILABLE)
        self.assertIsNone(self.metric("thicket_jwt_keys_age_seconds"))
        # Whose document names another issuer is not asked for keys.
        self.provider.issuer, self.provider.is_down = "https://somebody.else", False
        wait_until(lambda: "found `https://somebody.else`" in self.logs(), "the other issuer to be refused")
        self.assertNotIn("/keys", self.provider.asked)
        self.assertEqual(self.code(token), SERVER_UNAVAILABLE)
        self.provider.issuer = self.issuer
        self.until_code(token, GOOD)
        for claims in (self.claims(iss="https://somebody.else"), {"sub": "ann", "exp": time.time() + 60}):
            self.assertEqual(self.code(self.key.token(claims)), BAD_USER_NAME_OR_PASSWORD)
        # Fetched at the interval, without anybody who asks for it.
        fetched = len(self.provider.asked)
        wait_until(lambda: len(self.provider.asked) > fetched, "another fetch")


class WithoutKeys(unittest.TestCase):
    def test_a_node_that_can_let_nobody_in_before_it_has_keys_is_not_ready(self):
        provider = Provider(Key("one"))
        self.addCleanup(provider.server_close)
        self.addCleanup(provider.shutdown)
        provider.is_down = True
        node = Node("node-1", [], ("--jwt-jwks", f"{provider.url}/keys", "--jwt-refresh-s", "10"))
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)

        wait_until(lambda: self.ready(node) == (503, WITHOUT_KEYS), "the first fetch")
        self.assertIsNotNone(node.ask("/v1/health/live"))
        provider.is_down = False
        wait_until(lambda: self.ready(node)[0] == 200, "the keys to be fetched", 30)

    def ready(self, node):
        """The status, and why the node is not ready; none while it starts."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/v1/health/ready", timeout=5) as answer:
                return answer.status, None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())["error"]
        except OSError:
            return None, None


class CheckedSettings(unittest.TestCase):
    def check(self, *arguments):
        command = [BINARY, "broker", "--check", "--listen", "127.0.0.1:0", "--discover", "off", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_settings_of_providers_that_make_no_sense_are_named(self):
        url = "https://id.example/keys"
        for words, arguments in (
            ("jwt_jwks = http://id.example/keys: expected https://", ("--jwt-jwks", "http://id.example/keys")),
            ("jwt_oidc_issuer = id.example: expected https://", ("--jwt-oidc-issuer", "id.example")),
            ("jwt_jwks = https://a@b/: expected", ("--jwt-jwks", "https://a@b/")),
            ("exclude each other", ("--jwt-jwks", url, "--jwt-oidc-issuer", url)),
            ("jwt_algorithm is for a jwt_key", ("--jwt-jwks", url, "--jwt-algorithm", "RS256")),
            ("jwt_issuer has no place", ("--jwt-oidc-issuer", url, "--jwt-issuer", "x")),
            ("jwt_refresh_s = 1: expected 10 to 86400", ("--jwt-jwks", url, "--jwt-refresh-s", "1")),
            ("jwt_ca and jwt_refresh_s have no effect", ("--jwt-ca", "/nowhere")),
            ("/nowhere", ("--jwt-jwks", url, "--jwt-ca", "/nowhere")),
            ("jwt_ca is for", ("--jwt-jwks", "http://localhost/keys", "--jwt-ca", "/nowhere")),
        ):
            with self.subTest(words):
                done = self.check(*arguments)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr + done.stdout)
        for good in ("http://[::1]:9/keys", "http://localhost:9/keys", url):
            self.assertEqual(self.check("--jwt-jwks", good).returncode, 0, good)


if __name__ == "__main__":
    unittest.main()
