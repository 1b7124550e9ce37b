"""Tokens of the HTTP API: scopes, expiry, revocation, the audit log, and `ctl` with a token from a file."""

import datetime
import hashlib
import http.client
import json
import os
import re
import subprocess
import tempfile
import unittest

from nodes import BINARY, OneNode, wait_until
from test_placement_listener import basic, bearer
from test_rights import Files, passwd
from wire import RawCases

PROBLEM = "application/problem+json"


def make(name, scope, expires="1d"):
    """A token and its line for the file."""
    command = [BINARY, "token", name, "--scope", scope, "--expires", expires]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    return made.stderr.strip(), made.stdout


class OfTokens(Files, RawCases, OneNode):
    @classmethod
    def write_files(cls):
        cls.tokens = {scope: make(f"{scope}-1", scope) for scope in ("metrics", "viewer", "admin")}
        cls.write("http-tokens", "# tokens\n" + "".join(line for _, line in cls.tokens.values()))
        users = cls.write("http-users", passwd("root", "secret", "--role", "admin"))
        cls.arguments = ("--http-users", users, "--http-tokens", str(cls.directory / "http-tokens"))

    def ask(self, path, credentials, method="GET", body=None):
        """Status, headers and content of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.cluster.nodes[0].http_port, timeout=10)
        self.addCleanup(connection.close)
        if isinstance(credentials, str):
            credentials = bearer(credentials)
        headers = {"content-type": "application/json", **credentials}
        connection.request(method, path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()

    def status(self, *arguments):
        return self.ask(*arguments)[0]

    def reload(self):
        status, _, text = self.ask("/v1/reload", basic("root", "secret"), "POST")
        return status, json.loads(text)["problems"]

    def set_tokens(self, text):
        self.write("http-tokens", text)
        self.assertEqual(self.reload(), (200, []))

    def tearDown(self):
        self.set_tokens("".join(line for _, line in self.tokens.values()))
        super().tearDown()

    def test_a_scope_says_what_a_token_may_do(self):
        kick = {"client_id": "nobody"}
        for method, path, body, allowed in (
            ("GET", "/metrics", None, {"metrics": 200, "viewer": 200, "admin": 200}),
            ("HEAD", "/metrics", None, {"metrics": 200, "viewer": 200, "admin": 200}),
            ("GET", "/v1/nodes", None, {"metrics": 403, "viewer": 200, "admin": 200}),
            ("GET", "/v1/whoami", None, {"metrics": 403, "viewer": 200, "admin": 200}),
            ("GET", "/", None, {"metrics": 403, "viewer": 200, "admin": 200}),
            ("GET", "/metrics/", None, {"metrics": 403, "viewer": 404, "admin": 404}),
            ("POST", "/metrics", None, {"metrics": 403, "viewer": 403, "admin": 405}),
            ("POST", "/v1/kick", kick, {"metrics": 403, "viewer": 403, "admin": 404}),
            ("GET", "/v1/retained/message?topic=a", None, {"metrics": 403, "viewer": 403, "admin": 404}),
        ):
            for scope, status in allowed.items():
                self.assertEqual(self.status(path, self.tokens[scope][0], method, body), status, f"{method} {path} {scope}")
        self.assertEqual(json.loads(self.ask("/v1/whoami", self.tokens["viewer"][0])[2]), {"role": "viewer"})
        status, headers, text = self.ask("/v1/nodes", self.tokens["metrics"][0])
        self.assertEqual((headers["content-type"], json.loads(text)["detail"]), (PROBLEM, "this takes the role or scope `viewer`"))

    def test_a_token_is_no_password_and_no_part_of_one_is_a_token(self):
        token, line = self.tokens["admin"]
        hashed = line.split()[-1].removeprefix("$sha256$")
        for credentials in (
            *(basic("admin-1", token), basic(token, ""), bearer(token[:-1]), bearer(token + "a"), bearer(hashed), bearer("$sha256$" + hashed)),
            *(bearer(""), bearer("admin-1"), {"authorization": token}, {}),
        ):
            self.assertEqual(self.status("/v1/nodes", credentials), 401, credentials)

    def test_a_token_is_refused_after_its_end(self):
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3)
        token, line = make("short", "viewer", end.strftime("%Y-%m-%dT%H:%M:%SZ"))
        self.set_tokens(line)
        self.assertEqual(self.status("/v1/nodes", token), 200)
        wait_until(lambda: self.status("/v1/nodes", token) != 200, "the token to expire")
        self.assertGreaterEqual(datetime.datetime.now(datetime.UTC), end.replace(microsecond=0))
        status, headers, text = self.ask("/v1/nodes", token)
        self.assertEqual((status, headers["content-type"]), (401, PROBLEM))
        self.assertIn('error="invalid_token"', headers["www-authenticate"])
        self.assertIn("expired", json.loads(text)["detail"])
        self.assertEqual(self.reload(), (200, []), "an expired line stays readable")

    def test_the_days_that_are_left_are_in_the_metrics_and_in_the_check(self):
        hashed = self.tokens["viewer"][1].split()[-1]
        expired = f"viewer old 2001-01-01T00:00:00Z {hashed}\n"
        lines = [make(name, "metrics", expires)[1] for name, expires in (("long", "90d"), ("soon", "3d"), ("ever", "never"))]
        self.set_tokens("".join(lines) + expired + self.tokens["admin"][1])
        page = self.ask("/metrics", self.tokens["admin"][0])[2]
        seconds = re.findall(r'^thicket_http_token_expiry_seconds{token="([\w-]+)"} (-?\d+)$', page, re.MULTILINE)
        days = {name: str(int(left) // 86400) for name, left in seconds}
        self.assertEqual(set(days), {"long", "soon", "old", "admin-1"})
        self.assertEqual((days["long"], days["soon"], days["admin-1"]), ("89", "2", "0"))
        self.assertLess(int(days["old"]), -9000)
        command = [BINARY, "broker", "--check", "--http-tokens", str(self.directory / "http-tokens")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = [line for line in done.stdout.splitlines() if line.startswith("http_tokens")]
        self.assertEqual(len(said), 4)
        self.assertIn("http_tokens, token long: 89 days left", said)
        self.assertIn("http_tokens, token soon: 2 days left: replace it soon", said)
        self.assertRegex("\n".join(said), r"token old: expired \d+ days? ago: make a new one and remove its line")

    def test_a_line_that_is_removed_revokes_its_token(self):
        self.assertEqual(self.status("/v1/nodes", self.tokens["viewer"][0]), 200)
        self.set_tokens(self.tokens["admin"][1])
        self.assertEqual(self.status("/v1/nodes", self.tokens["viewer"][0]), 401)
        self.assertEqual(self.status("/v1/nodes", self.tokens["admin"][0]), 200)
        for text, words in (
            ("viewer a never\n", "line 1: expected `SCOPE NAME EXPIRES HASH`"),
            (self.tokens["admin"][1] * 2, "line 2: expected another name, admin-1 is on line 1"),
            ("root a never $sha256$00", "line 1: expected the scope"),
        ):
            self.write("http-tokens", text)
            status, problems = self.reload()
            self.assertEqual(status, 422)
            self.assertIn(words, problems[0])
            self.assertEqual(self.status("/v1/nodes", self.tokens["admin"][0]), 200, "what was read before stays")

    def test_a_stream_of_events_ends_with_its_token(self):
        streams = []
        for token in (self.tokens["viewer"][0], self.tokens["admin"][0]):
            connection = http.client.HTTPConnection("127.0.0.1", self.cluster.nodes[0].http_port, timeout=20)
            self.addCleanup(connection.close)
            connection.request("GET", "/v1/watch", headers=bearer(token))
            answer = connection.getresponse()
            self.addCleanup(answer.close)
            self.assertTrue(answer.readline().startswith(b"data: "))
            streams.append(answer)
        self.set_tokens(self.tokens["admin"][1])
        for stream in streams:
            while stream.readline():
                pass
        self.assertEqual(self.status("/v1/watch", self.tokens["viewer"][0]), 401, "who was revoked does not come back")
        self.assertEqual(self.status("/v1/nodes", self.tokens["admin"][0]), 200)

    def test_the_audit_log_names_the_token(self):
        self.assertEqual(self.status("/v1/kick", self.tokens["admin"][0], "POST", {"client_id": "one"}), 404)
        self.assertEqual(self.status("/v1/kick", basic("root", "secret"), "POST", {"client_id": "two"}), 404)
        entries = json.loads(self.ask("/v1/audit", self.tokens["viewer"][0])[2])
        told = [(it["user"], it["by_token"]) for it in entries if it["subject"] in ("one", "two")]
        self.assertEqual(told, [("admin-1", True), ("root", False)])
        shown = self.ctl("audit", "--api-token-file", self.write("token", self.tokens["viewer"][0] + "\n"))
        self.assertIn("admin-1 (token)", shown.stdout)

    def ctl(self, *arguments, **environment):
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})

    def test_ctl_takes_a_token_from_a_file_or_the_environment(self):
        path = self.write("token", self.tokens["viewer"][0] + "\n")
        for arguments, environment in (
            (("nodes", "--api-token-file", path), {}),
            (("nodes", "--token-file", path), {}),
            (("nodes",), {"THICKET_API_TOKEN_FILE": path}),
            (("nodes",), {"THICKET_API_TOKEN": self.tokens["viewer"][0]}),
            # A flag takes precedence over the environment.
            (("nodes", "--api-user", "root:secret"), {"THICKET_API_TOKEN_FILE": path, "THICKET_API_TOKEN": "no token"}),
        ):
            done = self.ctl(*arguments, **environment)
            self.assertEqual(done.returncode, 0, done.stderr)
        done = self.ctl("nodes")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("401", done.stderr)
        for text, words in (("", "expected a token"), ("a b", "expected a token"), (None, "cannot read it")):
            path = self.write("bad", text) if text is not None else "/nowhere/token"
            done = self.ctl("nodes", "--api-token-file", path)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)

    def test_bans_are_told_to_be_by_the_token(self):
        ban = {"client_id": self.client_id(), "reason": "test"}
        self.assertEqual(self.status("/v1/bans", self.tokens["admin"][0], "POST", ban), 200)
        bans = json.loads(self.ask("/v1/bans", self.tokens["viewer"][0])[2])
        self.assertEqual([it["by"] for it in bans if it["client_id"] == self.client_id()], ["admin-1"])


class TokensAlone(Files, RawCases, OneNode):
    """A file of tokens without a file of users: the API has users then."""

    @classmethod
    def write_files(cls):
        cls.token, line = make("robot", "admin", "never")
        cls.short, short = make("short", "admin", "1s")
        cls.arguments = ("--http-tokens", cls.write("tokens", line + short), "--http-hosts", "broker.example")

    def test_everybody_else_is_refused(self):
        port = self.cluster.nodes[0].http_port
        for headers, status in (({}, 401), (bearer(self.token), 200), ({**bearer(self.token), "host": "broker.example"}, 200)):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            self.addCleanup(connection.close)
            connection.request("GET", "/v1/nodes", headers=headers)
            self.assertEqual(connection.getresponse().status, status, headers)


    def test_the_log_names_a_token_that_has_expired_and_does_not_show_it(self):
        node = self.cluster.nodes[0]

        def status():
            connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=10)
            self.addCleanup(connection.close)
            connection.request("GET", "/v1/nodes", headers=bearer(self.short))
            return connection.getresponse().status

        wait_until(lambda: status() == 401, "the token to expire")
        self.assertIn('an expired token was refused peer=127.0.0.1 token_name="short"', node.log_from(0))
        self.assertNotIn(self.short, node.log_from(0))


class Command(unittest.TestCase):
    def run_token(self, *arguments):
        return subprocess.run([BINARY, "token", *arguments], capture_output=True, text=True, check=False, timeout=20)

    def test_the_token_is_printed_once_and_the_line_has_its_hash_only(self):
        done = self.run_token("prometheus", "--scope", "metrics")
        token = done.stderr.strip()
        self.assertGreaterEqual(len(token), 43)
        self.assertNotIn(token, done.stdout)
        scope, name, expires, hashed = done.stdout.split()
        self.assertEqual((scope, name), ("metrics", "prometheus"))
        self.assertRegex(hashed, r"^\$sha256\$[0-9a-f]{64}$")
        end = datetime.datetime.fromisoformat(expires)
        days = (end - datetime.datetime.now(datetime.UTC)).total_seconds() / 86400
        self.assertAlmostEqual(days, 90, places=2)

    def test_the_token_is_written_to_a_new_file_for_its_owner_only(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "token")
            done = self.run_token("a", "--scope", "viewer", "--token-file", path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with open(path) as file:
                token = file.read()
            self.assertTrue(token.endswith("\n"))
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            self.assertIn(hashlib.sha256(token.strip().encode()).hexdigest(), done.stdout)
            again = self.run_token("a", "--scope", "viewer", "--token-file", path)
            self.assertNotEqual(again.returncode, 0)
            self.assertEqual(again.stdout, "")
            self.assertIn("exists", again.stderr)

    def test_what_makes_no_sense_is_refused(self):
        for arguments, words in (
            (("a",), "--scope"),
            (("a", "--scope", "root"), "root"),
            (("a b", "--scope", "viewer"), "without blanks"),
            (("#a", "--scope", "viewer"), "`#`"),
            (("a", "--scope", "viewer", "--expires", "soon"), "such as 12h or 90d"),
            (("a", "--scope", "viewer", "--expires", "2001-01-01T00:00:00Z"), "a time in the future"),
        ):
            done = self.run_token(*arguments)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertEqual(done.stdout, "")
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
