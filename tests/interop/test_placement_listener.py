"""Placements for clients elsewhere: a listener of its own, with the credentials, rights and topic prefix of an MQTT listener."""

import base64
import http.client
import json
import socket
import ssl
import subprocess
import time
import unittest
import urllib.parse

from certificates import Authority
from nodes import BINARY, OneNode, free_port
from test_placement import answer_of, asking, call
from test_rights import SECRET, Files, Hook, passwd, token
from wire import RawCases, RawClient

PROBLEM = "application/problem+json"
# `http_connections`.
SEATS = 64


def basic(name, password):
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


class Asking(Files, RawCases, OneNode):
    """Asks the listener for placements of the node."""

    tls = None

    def request(self, method, path="", body=None, headers=None, root="/v1/placements", tls=None):
        """Status, media type and content of an answer."""
        tls = tls or self.tls
        if tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self.placement_port, timeout=10, context=tls)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.placement_port, timeout=10)
        self.addCleanup(connection.close)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection.request(method, root + path, body, {"content-type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        kind = answer.headers["content-type"]
        return answer.status, kind, json.loads(text) if kind and "json" in kind else text

    def place(self, headers=None, **asked):
        return self.request("POST", body={"client_id": self.client_id(), **asked}, headers=headers)


class OfTenants(Asking):
    """An MQTT listener with TLS, users, rights and a topic prefix."""

    @classmethod
    def write_files(cls):
        authority = Authority()
        cls.addClassCleanup(authority.close)
        certificate, key = authority.issue("localhost")
        cls.tls = ssl.create_default_context(cafile=authority.certificate)
        cls.known_by_certificate = ssl.create_default_context(cafile=authority.certificate)
        cls.known_by_certificate.load_cert_chain(*authority.issue("cert"))
        cls.placement_port, cls.tls_port, cls.plain_port = free_port(), free_port(), free_port()
        users = cls.write("users", passwd("ann", "a") + passwd("bob", "b"))
        acl = cls.write("acl", "pattern tenant/all/#\npattern tenant/%u/#\n")
        config = cls.write(
            "thicket.toml",
            f"""
            users = "{users}"
            acl = "{acl}"
            certificate_users = true
            placement_listen = "127.0.0.1:{cls.placement_port}"
            placement_listener = "tls://127.0.0.1:{cls.tls_port}"
            [[listener]]
            address = "tls://127.0.0.1:{cls.tls_port}"
            topic_prefix = "tenant/"
            tls_certificate = "{certificate}"
            tls_key = "{key}"
            tls_client_ca = "{authority.certificate}"
            tls_client_certificate = "optional"
            [[listener]]
            address = "127.0.0.1:{cls.plain_port}"
            topic_prefix = "tenant/"
            """,
        )
        cls.arguments = ("--config", config)

    def test_a_client_is_placed_under_the_name_that_it_has_over_mqtt(self):
        status, _, placed = self.place(basic("ann", "a"), publish=["ann/x"], subscribe=["all/+"])
        self.assertEqual(status, 200, placed)
        session = placed["sessions"][0]
        self.assertEqual((session["client_id"], session["publish"], session["subscribe"]), (self.client_id(), ["ann/x"], ["all/+"]))
        self.assertEqual(session["tls"], f"127.0.0.1:{self.tls_port}")
        node = self.cluster.nodes[0]
        name = urllib.parse.quote(f"tenant/\x1fann\x1f{self.client_id()}", safe="")
        self.assertEqual(call(node, "GET", f"/{name}")[2]["sessions"][0]["publish"], ["tenant/ann/x"])
        with RawClient(self.plain_port) as client:
            props = asking(4, publish=["ann/x"], subscribe=["all/+"])
            connack = client.try_connect(self.client_id(), user="ann", password="a", props=props)
            self.assertEqual(answer_of(connack)["sessions"], placed["sessions"])
        known = [one["client_id"] for one in call(node, "GET")[2]]
        self.assertEqual(known.count(self.client_id()), 1, "it is one client")

    def test_nobody_sees_or_changes_what_is_another_users(self):
        self.place(basic("ann", "a"), publish=["all/x"])
        path = f"/{self.client_id()}"
        for method in ("GET", "DELETE"):
            self.assertEqual(self.request(method, path, headers=basic("bob", "b"))[0], 404)
            self.assertEqual(self.request(method, path, headers=basic("ann", "b"))[0], 401)
            self.assertEqual(self.request(method, path)[0], 401)
        self.assertEqual(self.request("GET", path, headers=basic("ann", "a"))[2]["sessions"][0]["publish"], ["all/x"])
        self.assertEqual(self.request("DELETE", path, headers=basic("ann", "a"))[0], 204)
        status, kind, problem = self.request("GET", path, headers=basic("ann", "a"))
        self.assertEqual((status, kind, problem["detail"]), (404, PROBLEM, "this client is not placed"))

    def test_topics_that_the_client_may_not_use_are_refused_by_name(self):
        for asked, field, topic in (
            ({"publish": ["all/x", "bob/x"]}, "publish[1]", "bob/x"),
            ({"subscribe": ["secret/#"], "publish": ["ann/x"]}, "subscribe[0]", "secret/#"),
        ):
            status, kind, problem = self.place(basic("ann", "a"), **asked)
            self.assertEqual((status, kind, problem["field"]), (422, PROBLEM, field))
            self.assertIn(f'the client may not use "{topic}"', problem["detail"])
        self.assertEqual(self.request("GET", f"/{self.client_id()}", headers=basic("ann", "a"))[0], 404)

    def test_a_certificate_is_a_name(self):
        body = {"client_id": self.client_id(), "publish": ["cert/x"]}
        self.assertEqual(self.request("POST", body=body)[0], 401)
        self.assertEqual(self.request("POST", body=body, tls=self.known_by_certificate)[0], 200)

    def test_bad_input_is_named_and_nothing_is_placed(self):
        ann = basic("ann", "a")
        before = len(call(self.cluster.nodes[0], "GET")[2])
        for body, status, part in (
            (b"{", 400, "EOF"),
            (b"[" * 3_000_000, 413, "at most 2 MB"),
            ({"client_id": "c", "topics": []}, 422, "topics"),
            ({"client_id": "c", "max_sessions": 0}, 422, "max_sessions"),
            ({"client_id": "c" * 1025}, 422, "at most 1024 bytes"),
            ({"client_id": "c", "publish": ["a\0"]}, 422, "publish[0]"),
            ({"client_id": "tenant/\x1fbob\x1fc"}, 422, "client_id: must not contain control characters"),
        ):
            came, kind, problem = self.request("POST", body=body, headers=ann)
            self.assertEqual((came, kind), (status, PROBLEM), problem)
            self.assertIn(part, f"{problem['field']}: {problem['detail']}")
        body = {"client_id": "c"}
        self.assertEqual(self.request("POST", body=body, headers={**ann, "content-type": "text/plain"})[0], 415)
        for value in ("Basic", "Basic %%%", "Digest x", "Basic " + base64.b64encode(b"ann").decode()):
            self.assertEqual(self.request("POST", body=body, headers={"authorization": value})[0], 401, value)
        self.assertEqual(self.request("GET", "/" + "c" * 1025, headers=ann)[0], 422)
        for method in ("GET", "DELETE"):
            self.assertEqual(self.request(method, "/tenant%2F%1Fbob%1Fc", headers=ann)[0], 422)
        self.assertEqual(len(call(self.cluster.nodes[0], "GET")[2]), before)

    def test_there_is_nothing_else(self):
        ann = basic("ann", "a")
        self.assertEqual(self.request("GET", headers=ann)[0], 405)
        for path in ("/v1/nodes", "/metrics", "/v1/health/live", "/"):
            self.assertEqual(self.request("GET", path, root="", headers=ann)[:2], (404, PROBLEM), path)
        document = self.request("GET", "/v1/openapi.json", root="")[2]
        self.assertEqual(set(document["paths"]), {"/v1/placements", "/v1/placements/{client_id}", "/v1/openapi.json"})

    def test_whoever_speaks_no_tls_hears_nothing(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.placement_port, timeout=10)
        self.addCleanup(connection.close)
        connection.request("GET", "/v1/openapi.json")
        with self.assertRaises((http.client.HTTPException, ConnectionError)):
            connection.getresponse()


class OfTheOnlyListener(Asking):
    """A plain listener, tokens, and a hook: all that a CONNECT can prove."""

    @classmethod
    def write_files(cls):
        cls.hook = Hook()
        cls.addClassCleanup(cls.hook.server_close)
        cls.addClassCleanup(cls.hook.shutdown)
        cls.placement_port = free_port()
        cls.arguments = (
            *("--jwt-key", cls.write("key", SECRET + "\n"), "--jwt-algorithm", "HS256"),
            *("--auth-hook", cls.hook.url, "--auth-hook-timeout-ms", "500"),
            *("--placement-listen", f"127.0.0.1:{cls.placement_port}"),
        )

    def test_a_token_is_of_its_client_only(self):
        claims = {"sub": "bob", "exp": time.time() + 60, "client_id": self.client_id(), "acl": ["write b/#"]}
        of_client = bearer(token(claims))
        self.assertEqual(self.place(of_client, publish=["b/x"])[0], 200)
        self.assertEqual(self.place(of_client, publish=["c/x"])[2]["field"], "publish[0]")
        self.assertEqual(self.place(bearer(token({**claims, "client_id": "other"})), publish=["b/x"])[0], 401)
        self.assertEqual(self.place(bearer(token(claims, secret="b" * 40)), publish=["b/x"])[0], 401)

    def test_bodies_that_never_end_hold_no_seat(self):
        """Who may ask is known only after the body, so strangers send none of it."""
        head = "POST /v1/placements HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        for _ in range(SEATS):
            stream = socket.create_connection(("127.0.0.1", self.placement_port), 10, ("127.0.0.66", 0))
            self.addCleanup(stream.close)
            stream.sendall(head.encode())
        # Nothing tells when the node has read the heads.
        time.sleep(0.2)
        for _ in range(5):
            self.assertEqual(self.request("GET", root="/nothing")[0], 404)

    def test_the_hook_is_asked_as_at_connect(self):
        self.assertEqual(self.place(basic("good", "p"), publish=["x"])[0], 200)
        self.assertEqual(self.hook.asked[-1]["client_id"], self.client_id())
        self.assertEqual(self.place(basic("bounded", "p"), publish=[f"own/{self.client_id()}"])[0], 200)
        self.assertEqual(self.place(basic("bounded", "p"), publish=["x"])[2]["field"], "publish[0]")
        self.assertEqual(self.place(basic("bad", "p"))[0], 401)
        self.assertEqual(self.place(basic("slow", "p"))[0], 503)
        self.assertEqual(self.place(basic("good", "p"), subscribe=["x"])[0], 200, "the listener goes on")


class Settings(unittest.TestCase):
    def refusal(self, *arguments):
        command = [BINARY, "broker", "--check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stderr

    def test_what_makes_no_sense_is_named_before_the_start(self):
        two = ("--listen", "127.0.0.1:1883,127.0.0.1:1884")
        for arguments, part in (
            (("--placement-listen", "nowhere"), "placement_listen = nowhere"),
            (("--placement-listener", "127.0.0.1:1883"), "placement_listen, which is not set"),
            ((*two, "--placement-listen", "127.0.0.1:1"), "one of: 127.0.0.1:1883, 127.0.0.1:1884"),
            ((*two, "--placement-listen", "127.0.0.1:1", "--placement-listener", "x"), "placement_listener = x"),
            (("--placement-listen", "0.0.0.0:1"), "lets everybody in"),
        ):
            self.assertIn(part, self.refusal(*arguments))
        command = [BINARY, "broker", "--check", *two, "--placement-listen", "127.0.0.1:1", "--placement-listener", "127.0.0.1:1884"]
        subprocess.run(command, check=True, capture_output=True, timeout=20)


if __name__ == "__main__":
    unittest.main()
