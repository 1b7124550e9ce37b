"""Users and rights: files, tokens, a hook, enhanced authentication, reloads, and the users of the HTTP API."""

import base64
import hashlib
import hmac
import http.server
import json
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from nodes import BINARY, BrokerTest, Node, OneNode, ThreeNodes, free_port, wait_until
from wire import Kind, Property, RawCases, RawClient, connect, packet, properties

NOT_AUTHORIZED = 0x87
BAD_USER_NAME_OR_PASSWORD = 0x86
SERVER_UNAVAILABLE = 0x88
BAD_AUTHENTICATION_METHOD = 0x8C
SCRAM = "SCRAM-SHA-256"
SECRET = "a secret of at least thirty-two bytes"


def passwd(name, password, *arguments):
    """A line for the file of users."""
    command = [BINARY, "passwd", name, *arguments]
    return subprocess.run(command, input=password + "\n", capture_output=True, text=True, check=True).stdout


class Files:
    """A test case with files that the node reads; they live as long as the class."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)
        cls.write_files()
        super().setUpClass()

    @classmethod
    def write_files(cls):
        raise NotImplementedError

    @classmethod
    def write(cls, name, text):
        path = cls.directory / name
        path.write_text(text)
        return str(path)

    def reload(self, *nodes):
        """SIGHUP, and what it does is done: everybody connects after it."""
        for node in nodes or self.cluster.nodes:
            before = node.log_size()
            node.process.send_signal(signal.SIGHUP)
            wait_until(lambda node=node, before=before: "again" in node.log_from(before), "the reload")


ACL = """\
topic read public/#

user root
topic #

user ada
topic home/#
topic deny home/safe/#
pattern write devices/%c/up
"""


class Rights(Files, RawCases, OneNode):
    """A file of users and one of rights."""

    @classmethod
    def write_files(cls):
        cls.lines = {name: passwd(name, name) for name in ("root", "ada")}
        cls.users = cls.write("users", "".join(cls.lines.values()))
        cls.acl = cls.write("acl", ACL)
        cls.arguments = ("--users", cls.users, "--acl", cls.acl, "--allow-anonymous")

    def user(self, name, role=None, version=5, **options):
        return self.raw(self.here, role or name, version, user=name, password=name, **options)

    def test_a_placement_is_refused_for_what_the_client_may_not_use(self):
        def asked(*filters):
            named = [("thicket-max-sessions", "2"), *(("thicket-subscribe", one) for one in filters)]
            client = RawClient(self.here)
            self.addCleanup(client.close)
            props = tuple((Property.USER_PROPERTY, pair) for pair in named)
            connack = client.try_connect(self.client_id("placed"), user="ada", password="ada", props=props)
            self.assertEqual(connack.reason_code, 0)
            return json.loads(dict(connack.values(Property.USER_PROPERTY))["thicket-placement"])

        placed = asked("home/1", "home/2/+")
        self.assertEqual(placed["sessions"][0]["subscribe"], ["home/1", "home/2/+"])
        problem = asked("home/1", "secret/+")
        self.assertEqual((problem["status"], problem["field"]), (422, "subscribe[1]"))
        self.assertIn('"secret/+"', problem["detail"])

    def refused(self):
        lines = self.cluster.nodes[0].ask("/metrics").decode().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("thicket_refused_messages_total "))

    def tearDown(self):
        self.write("acl", ACL)
        self.write("users", "".join(self.lines.values()))
        self.reload()
        super().tearDown()

    def test_a_publish_that_is_not_allowed_is_told_where_that_can_be_told(self):
        before = self.refused()
        root = self.user("root")
        root.subscribe(("home/#", 0))
        ada = self.user("ada")
        for qos in (1, 2):
            self.assertEqual(ada.publish("home/safe/x", "no", qos=qos), NOT_AUTHORIZED)
        ada.publish("home/safe/x", "no")
        old = self.user("ada", "old", version=4)
        for qos in (0, 1, 2):
            self.assertIn(old.publish("home/safe/x", "no", qos=qos), (None, 0))
        self.assertEqual(ada.publish("home/x", "yes", qos=1), 0)
        self.assertEqual(root.take_message().payload, b"yes")
        self.assertEqual(self.refused() - before, 6)

    def test_a_subscription_is_granted_that_reaches_something(self):
        ada = self.user("ada")
        codes = ada.subscribe(("home/#", 1), ("home/safe/x", 1), ("garden", 1), ("#", 1)).codes
        self.assertEqual(codes, [1, NOT_AUTHORIZED, NOT_AUTHORIZED, 1])
        old = self.user("ada", "old", version=4)
        self.assertEqual(old.subscribe(("garden", 1), ("home/a", 0)).codes, [0x80, 0])

    def test_only_what_may_be_read_is_delivered(self):
        root, ada = self.user("root"), self.user("ada")
        root.publish("garden/kept", "no", retain=True, qos=1)
        root.publish("home/kept", "yes", retain=True, qos=1)
        ada.subscribe(("#", 0))
        self.assertEqual(ada.take_message().topic, "home/kept")
        for topic in ("garden", "home/safe/x", "home/x"):
            root.publish(topic, "live", qos=1)
        self.assertEqual(ada.take_message().topic, "home/x")
        self.assertEqual(ada.ping(), [])
        root.publish("garden/kept", "", retain=True, qos=1)
        root.publish("home/kept", "", retain=True, qos=1)

    def test_client_identifiers_fill_patterns_in_and_never_widen_them(self):
        ada = self.user("ada", "lamp")
        self.assertLess(ada.publish(f"devices/{self.client_id('lamp')}/up", "x", qos=1), 0x80)
        self.assertEqual(ada.publish("devices/oven/up", "x", qos=1), NOT_AUTHORIZED)
        with RawClient(self.here) as odd:
            odd.connect("+", user="ada", password="ada")
            self.assertEqual(odd.publish("devices/oven/up", "x", qos=1), NOT_AUTHORIZED)

    def test_what_the_node_says_of_itself_takes_a_rule_of_its_own(self):
        self.write("acl", "user root\ntopic read $SYS/broker/version\n")
        self.reload()
        root = self.user("root")
        self.assertEqual(root.subscribe(("$SYS/#", 0)).codes, [0])
        self.assertEqual(root.take_message().topic, "$SYS/broker/version")
        self.assertEqual(root.ping(), [])

    def test_a_client_without_a_name_has_the_rights_of_the_first_lines(self):
        nobody = self.raw(self.here)
        self.assertEqual(nobody.subscribe(("public/x", 0), ("home/x", 0)).codes, [0, NOT_AUTHORIZED])
        self.assertEqual(nobody.publish("public/x", "x", qos=1), NOT_AUTHORIZED)

    def test_a_reload_looks_at_those_connected_again(self):
        root, ada = self.user("root"), self.user("ada")
        ada.subscribe(("home/#", 0))
        self.write("acl", "user root\ntopic #\nuser ada\ntopic read home/lamp\n")
        self.reload()
        root.publish("home/oven", "no", qos=1)
        root.publish("home/lamp", "yes", qos=1)
        self.assertEqual(ada.take_message().payload, b"yes")
        self.assertEqual(ada.publish("home/x", "no", qos=1), NOT_AUTHORIZED)

    def test_a_reload_warns_of_a_file_without_users(self):
        node = self.cluster.nodes[0]
        before = node.log_size()
        self.write("users", "")
        self.reload()
        wait_until(lambda: "the file lists no users" in node.log_from(before), "the warning")

    def test_a_reload_sends_away_who_is_not_a_user_any_more(self):
        root, ada, old = self.user("root"), self.user("ada"), self.user("ada", "old", version=4)
        self.write("users", self.lines["root"] + passwd("ada", "another"))
        done = subprocess.run(
            [BINARY, "ctl", "reload", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}"],
            capture_output=True,
            text=True,
        )
        self.assertEqual((done.returncode, done.stdout), (0, "read again\n"), done.stderr)
        self.assertEqual([one.reason_code for one in ada.until_closed()], [NOT_AUTHORIZED])
        self.assertEqual(old.until_closed(), [])
        self.assertEqual(root.ping(), [])
        with RawClient(self.here) as again:
            came = again.try_connect("x", user="ada", password="ada")
            self.assertEqual(came.reason_code, BAD_USER_NAME_OR_PASSWORD)

    def test_a_file_that_cannot_be_read_again_changes_nothing(self):
        ada = self.user("ada")
        self.write("acl", "user ada\nallow everything\n")
        done = subprocess.run(
            [BINARY, "ctl", "reload", "--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}"],
            capture_output=True,
            text=True,
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("line 2: expected `user`, `topic` or `pattern`, found \"allow\"", done.stderr)
        self.assertLess(ada.publish("home/x", "x", qos=1), 0x80)


class RightsInACluster(Files, RawCases, ThreeNodes):
    """The node a client is connected to knows its rights; messages come from others."""

    @classmethod
    def write_files(cls):
        users = cls.write("users", passwd("root", "root") + passwd("ada", "ada"))
        cls.acl = cls.write("acl", ACL)
        cls.arguments = ("--users", users, "--acl", cls.acl)

    def user(self, port, name, **options):
        return self.raw(port, name, user=name, password=name, **options)

    def test_messages_of_other_nodes_are_withheld_too(self):
        ada = self.user(self.here, "ada")
        ada.subscribe(("#", 1))
        root = self.user(self.there, "root")
        for topic in ("garden", "home/safe/x", "home/x"):
            root.publish(topic, "x", qos=1)
        self.assertEqual(ada.take_message().topic, "home/x")
        self.assertEqual(ada.ping(), [])

    def test_a_session_that_moves_gets_its_rights_where_it_comes_to(self):
        options = {"clean_start": False, "props": ((Property.SESSION_EXPIRY_INTERVAL, 600),)}
        ada = self.user(self.here, "ada", **options)
        ada.subscribe(("#", 1))
        ada.close()
        root = self.user(self.there, "root")
        for topic in ("garden", "home/x"):
            root.publish(topic, "x", qos=1)
        again = self.user(self.elsewhere, "ada", **options)
        self.assertTrue(again.connack.session_present)
        self.assertEqual(again.take_message().topic, "home/x")
        root.publish("garden", "x", qos=1)
        self.assertEqual(again.ping(), [])


def token(claims, secret=SECRET, header=None):
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    message = f"{part(json.dumps(header or {'alg': 'HS256'}).encode())}.{part(json.dumps(claims).encode())}"
    return f"{message}.{part(hmac.digest(secret.encode(), message.encode(), 'sha256'))}"


class Tokens(Files, RawCases, OneNode):
    """JSON Web Tokens for passwords, beside a file of users."""

    @classmethod
    def write_files(cls):
        key = cls.write("key", SECRET + "\n")
        users = cls.write("users", passwd("ada", "ada"))
        acl = cls.write("acl", "pattern %u/#\n")
        cls.arguments = (
            *("--jwt-key", key, "--jwt-algorithm", "HS256", "--jwt-issuer", "us"),
            *("--users", users, "--acl", acl),
        )

    def test_a_good_token_is_a_password(self):
        password = token({"sub": "bob", "iss": "us", "exp": time.time() + 60})
        for options in ({"user": "bob", "password": password}, {"password": password}):
            client = self.raw(self.here, **options)
            self.assertLess(client.publish("bob/x", "x", qos=1), 0x80)
            self.assertEqual(client.publish("eve/x", "x", qos=1), NOT_AUTHORIZED)

    def test_a_token_may_say_itself_what_its_bearer_may_do(self):
        password = token({"sub": "bob", "iss": "us", "exp": time.time() + 60, "acl": ["read a/%u", "write b/#", "deny b/c"]})
        client = self.raw(self.here, user="bob", password=password)
        self.assertEqual(client.subscribe(("a/bob", 0), ("bob/x", 0)).codes, [0, NOT_AUTHORIZED])
        self.assertLess(client.publish("b/x", "x", qos=1), 0x80)
        self.assertEqual(client.publish("b/c", "x", qos=1), NOT_AUTHORIZED)

    def test_other_tokens_are_refused(self):
        good = {"sub": "bob", "iss": "us", "exp": time.time() + 60}
        cases = {
            "never expires": token({"sub": "bob", "iss": "us"}),
            "expired": token({**good, "exp": time.time() - 3600}),
            "not yet valid": token({**good, "nbf": time.time() + 3600}),
            "another issuer": token({**good, "iss": "them"}),
            "another key": token(good, secret="b" * 40),
            "no signature": token(good, header={"alg": "none"}).rsplit(".", 1)[0] + ".",
            "of somebody else": token({**good, "sub": "eve"}),
        }
        for name, password in cases.items():
            with self.subTest(name), RawClient(self.here) as client:
                came = client.try_connect("x", user="bob", password=password)
                self.assertEqual(came.reason_code, BAD_USER_NAME_OR_PASSWORD)

    def test_users_of_the_file_are_let_in_as_well(self):
        self.assertLess(self.raw(self.here, user="ada", password="ada").publish("ada/x", "x", qos=1), 0x80)


class TokensForEver(Files, RawCases, OneNode):
    """A node that takes tokens without an end."""

    @classmethod
    def write_files(cls):
        key = cls.write("key", SECRET + "\n")
        cls.arguments = ("--jwt-key", key, "--jwt-algorithm", "HS256", "--jwt-allow-no-expiry")

    def test_a_token_that_never_expires_is_a_password_where_that_is_allowed(self):
        self.assertEqual(self.raw(self.here, password=token({"sub": "bob"})).ping(), [])


class Hook(http.server.ThreadingHTTPServer):
    """Answers by user name, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), HookHandler)
        self.asked = []
        self.answers = {
            "good": {"result": "allow"},
            "bounded": {"result": "allow", "acl": ["readwrite own/%c"]},
            "bad": {"result": "deny"},
        }
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/mqtt"


class HookHandler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(question)
        if question["user_name"] == "slow":
            time.sleep(3)
        answer = self.server.answers.get(question["user_name"], {"result": "ignore"})
        body = b"nonsense" if question["user_name"] == "odd" else json.dumps(answer).encode()
        self.send_response(500 if question["user_name"] == "broken" else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass

    def log_message(self, *_):
        pass


class WithHook(Files, RawCases):
    @classmethod
    def write_files(cls):
        cls.hook = Hook()
        cls.addClassCleanup(cls.hook.server_close)
        cls.addClassCleanup(cls.hook.shutdown)
        users = cls.write("users", passwd("ada", "ada"))
        cls.arguments = ("--auth-hook", cls.hook.url, "--auth-hook-timeout-ms", "500", "--users", users, *cls.more)

    def code(self, name, client_id="c"):
        with RawClient(self.here) as client:
            return client.try_connect(client_id, user=name, password="p").reason_code


class HookAsked(WithHook, OneNode):
    """A hook that answers, and one that does not in time."""

    more = ()

    def test_the_hook_is_asked_about_those_the_files_do_not_know(self):
        asked = len(self.hook.asked)
        self.raw(self.here, user="ada", password="ada")
        self.assertEqual(len(self.hook.asked), asked)
        self.assertEqual(self.code("good", "lamp"), 0)
        question = self.hook.asked[-1]
        self.assertEqual(
            {key: question[key] for key in ("client_id", "user_name", "password", "listener", "certificate_name")},
            {"client_id": "lamp", "user_name": "good", "password": "p", "listener": 0, "certificate_name": None},
        )
        self.assertRegex(question["peer"], r"^127\.0\.0\.1:\d+$")
        self.assertEqual(self.code("bad"), NOT_AUTHORIZED)
        self.assertEqual(self.code("unknown"), BAD_USER_NAME_OR_PASSWORD)

    def test_an_answer_holds_for_a_while(self):
        asked = len(self.hook.asked)
        for _ in range(5):
            self.assertEqual(self.code("good", "again"), 0)
        self.assertEqual(len(self.hook.asked), asked + 1)
        self.reload()
        self.assertEqual(self.code("good", "again"), 0)
        self.assertEqual(len(self.hook.asked), asked + 2)

    def test_the_hook_may_say_what_a_client_may_do(self):
        client = self.raw(self.here, "lamp", user="bounded", password="p")
        self.assertLess(client.publish(f"own/{self.client_id('lamp')}", "x", qos=1), 0x80)
        self.assertEqual(client.publish("own/oven", "x", qos=1), NOT_AUTHORIZED)

    def test_without_an_answer_a_client_is_told_to_come_again(self):
        for name in ("slow", "broken", "odd"):
            with self.subTest(name):
                self.assertEqual(self.code(name), SERVER_UNAVAILABLE)

    def test_a_hook_that_hangs_holds_nobody_else_up(self):
        waiting = [RawClient(self.here) for _ in range(8)]
        for number, client in enumerate(waiting):
            self.addCleanup(client.close)
            client.send(connect(f"slow-{number}", user="slow", password="p"))
        client = self.raw(self.here, user="ada", password="ada")
        self.assertEqual(client.ping(), [])
        for client in waiting:
            self.assertEqual(client.expect(Kind.CONNACK).reason_code, SERVER_UNAVAILABLE)


class HookInTheLog(WithHook, OneNode):
    """A denial, a timeout, an answer that cannot be used and a hook that is away are lines of their own."""

    more = ("--log-format", "json")

    @classmethod
    def write_files(cls):
        super().write_files()
        cls.gone = ("--auth-hook", f"http://127.0.0.1:{free_port()}/x", "--auth-hook-on-failure", "deny", "--log-format", "json")

    def line(self, node, message):
        """The fields of the line with this message."""
        lines = [json.loads(line) for line in node.log_from(0).splitlines() if line.startswith("{")]
        return next((line for line in lines if line["message"] == message), None)

    def expect_line(self, node, message, **fields):
        wait_until(lambda: self.line(node, message), message)
        line = self.line(node, message)
        self.assertEqual({key: line.get(key) for key in fields}, fields, line)
        self.assertNotIn("password", line)
        return line

    def test_each_way_to_be_refused_has_a_line_of_its_own(self):
        (node,) = self.cluster.nodes
        for name, code, level, message in (
            ("bad", NOT_AUTHORIZED, "INFO", "auth_hook: the hook denied the client"),
            ("slow", SERVER_UNAVAILABLE, "WARN", "auth_hook: no answer in time"),
            ("odd", SERVER_UNAVAILABLE, "WARN", "auth_hook: the answer cannot be used"),
        ):
            self.assertEqual(self.code(name, "lamp"), code)
            on_failure = "unavailable" if level == "WARN" else None
            line = self.expect_line(node, message, client_id="lamp", user_name=name, level=level, on_failure=on_failure)
            self.assertIn("127.0.0.1:", line["peer"])
        gone = Node("gone", (), self.gone)
        self.addCleanup(gone.log.close)
        self.addCleanup(gone.stop)
        wait_until(lambda: gone.ask("/v1/health/ready") is not None, "the node to be ready")
        with RawClient(gone.port) as client:
            self.assertEqual(client.try_connect("lamp", user="ann", password="p").reason_code, NOT_AUTHORIZED)
        line = self.expect_line(gone, "auth_hook: the hook cannot be reached", client_id="lamp", user_name="ann", on_failure="deny")
        self.assertIn("refused", line["error"])

    def test_a_line_names_the_client_as_it_names_itself_and_its_user_beside(self):
        (node,) = self.cluster.nodes
        with RawClient(self.here) as client:
            client.connect("fridge", user="good", password="p")
        for message in ("client connected", "client disconnected"):

            def line(message=message):
                lines = [json.loads(line) for line in node.log_from(0).splitlines() if line.startswith("{")]
                return next((it for it in lines if it["message"] == message and it.get("client_id") == "fridge"), None)

            wait_until(line, message)
            self.assertEqual(line()["user_name"], "good")


class HookAllowing(WithHook, OneNode):
    """Open doors when the hook is down, because somebody wanted it so."""

    more = ("--auth-hook-on-failure", "allow")

    def test_without_an_answer_a_client_is_let_in(self):
        self.assertEqual(self.code("broken"), 0)
        self.assertEqual(self.code("bad"), NOT_AUTHORIZED)


class HookDenying(WithHook, OneNode):
    more = ("--auth-hook-on-failure", "deny")

    def test_without_an_answer_a_client_is_refused(self):
        self.assertEqual(self.code("broken"), NOT_AUTHORIZED)


def auth(reason_code, data, method=SCRAM):
    pairs = ((Property.AUTHENTICATION_METHOD, method), (Property.AUTHENTICATION_DATA, data))
    return packet(Kind.AUTH, 0, bytes([reason_code]) + properties(*pairs))


class Scram:
    """The client's side of RFC 5802, written for this test."""

    def __init__(self, name, password, nonce="fyko+d2lbbFgONRv9qkxdawL"):
        self.password, self.nonce = password, nonce
        self.first_bare = f"n={name},r={nonce}"
        self.first = b"n,," + self.first_bare.encode()

    def respond(self, challenge):
        text = challenge.decode()
        values = dict(part.split("=", 1) for part in text.split(","))
        assert values["r"].startswith(self.nonce) and len(values["r"]) > len(self.nonce), text
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), base64.b64decode(values["s"]), int(values["i"]))
        final = f"c=biws,r={values['r']}"
        message = f"{self.first_bare},{text},{final}".encode()
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        self.expected = b"v=" + base64.b64encode(hmac.digest(server_key, message, "sha256"))
        return f"{final},p={base64.b64encode(proof).decode()}".encode()


class EnhancedAuthentication(Files, RawCases, OneNode):
    """AUTH with SCRAM-SHA-256 [MQTT-4.12.0-1] and what follows."""

    @classmethod
    def write_files(cls):
        lines = passwd("ada", "secret", "--scram") + passwd("bob", "other", "--scram") + passwd("bob", "plain")
        users = cls.write("users", lines)
        cls.arguments = ("--users", users)

    def begin(self, exchange, method=SCRAM):
        client = RawClient(self.here)
        self.addCleanup(client.close)
        props = ((Property.AUTHENTICATION_METHOD, method), (Property.AUTHENTICATION_DATA, exchange.first))
        client.send(connect(self.client_id(), props=props))
        return client

    def proved(self, name="ada", password="secret"):
        exchange = Scram(name, password)
        client = self.begin(exchange)
        challenge = client.expect(Kind.AUTH)
        self.assertEqual((challenge.reason_code, challenge.value(Property.AUTHENTICATION_METHOD)), (0x18, SCRAM))
        client.send(auth(0x18, exchange.respond(challenge.value(Property.AUTHENTICATION_DATA))))
        came = client.expect(Kind.CONNACK)
        if came.reason_code == 0:
            self.assertEqual(came.value(Property.AUTHENTICATION_METHOD), SCRAM)
            self.assertEqual(came.value(Property.AUTHENTICATION_DATA), exchange.expected)
        return client, came.reason_code

    def test_both_sides_prove_that_they_know_the_password(self):
        client, code = self.proved()
        self.assertEqual(code, 0)
        self.assertEqual(client.ping(), [])

    def test_a_wrong_password_and_an_unknown_user_look_the_same(self):
        for name in ("ada", "eve"):
            self.assertEqual(self.proved(name, "guess")[1], NOT_AUTHORIZED)

    def test_the_stored_credential_serves_a_plain_password_as_well(self):
        self.raw(self.here, user="ada", password="secret")
        self.raw(self.here, "bob", user="bob", password="plain")

    def test_an_unknown_method_is_refused(self):
        """[MQTT-4.12.0-1]"""
        came = self.begin(Scram("ada", "secret"), "GS2-KRB5").until_closed()
        self.assertEqual([one.reason_code for one in came], [BAD_AUTHENTICATION_METHOD])

    def test_a_client_may_prove_itself_again(self):
        """[MQTT-4.12.1-1]"""
        client, _ = self.proved()
        exchange = Scram("ada", "secret", "another")
        client.send(auth(0x19, exchange.first))
        challenge = client.expect(Kind.AUTH)
        self.assertEqual(challenge.reason_code, 0x18)
        client.send(auth(0x18, exchange.respond(challenge.value(Property.AUTHENTICATION_DATA))))
        done = client.expect(Kind.AUTH)
        self.assertEqual(done.reason_code, 0)
        self.assertEqual(done.value(Property.AUTHENTICATION_DATA), exchange.expected)
        self.assertEqual(client.ping(), [])

    def test_who_fails_to_is_sent_away(self):
        """[MQTT-4.12.1-2]"""
        client, _ = self.proved()
        exchange = Scram("ada", "guess", "another")
        client.send(auth(0x19, exchange.first))
        challenge = client.expect(Kind.AUTH)
        client.send(auth(0x18, exchange.respond(challenge.value(Property.AUTHENTICATION_DATA))))
        self.assertEqual([one.reason_code for one in client.until_closed()], [NOT_AUTHORIZED])

    def test_auth_without_a_method_in_connect_is_a_protocol_error(self):
        """[MQTT-4.12.0-7]"""
        client = self.raw(self.here, user="ada", password="secret")
        client.send(auth(0x19, b"x"))
        self.assertEqual([one.reason_code for one in client.until_closed()], [0x82])

    def test_our_client_speaks_it_too(self):
        command = [BINARY, "pub", "-p", str(self.here), "-t", "a", "-m", "b", "-q", "1", "-u", "ada", "--scram", "-P"]
        self.assertEqual(subprocess.run([*command, "secret"], capture_output=True).returncode, 0)
        refused = subprocess.run([*command, "guess"], capture_output=True, text=True)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("not authorized (0x87)", refused.stderr)


class HttpUsers(Files, RawCases, BrokerTest):
    """Users and roles of the HTTP API."""

    @classmethod
    def write_files(cls):
        made = subprocess.run(
            [BINARY, "passwd", "robot", "--role", "admin", "--token"], capture_output=True, text=True, check=True
        )
        cls.token = made.stderr.strip()
        cls.users = cls.write("http", passwd("ann", "secret", "--role", "viewer") + made.stdout)
        cls.arguments = ("--http-users", cls.users)

    def status(self, path, authorization=None, method="GET"):
        url = f"http://127.0.0.1:{self.cluster.nodes[0].http_port}{path}"
        request = urllib.request.Request(url, method=method)
        if authorization:
            request.add_header("authorization", authorization)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def test_each_role_may_do_its_own(self):
        def basic(text):
            return "Basic " + base64.b64encode(text.encode()).decode()

        viewer, admin = basic("ann:secret"), f"Bearer {self.token}"
        cases = [
            ("nobody reads", "/v1/nodes", None, "GET", 401),
            ("probes need no name", "/v1/health/live", None, "GET", 200),
            ("a viewer reads", "/v1/nodes", viewer, "GET", 200),
            ("again, without hashing", "/metrics", viewer, "GET", 200),
            ("a wrong password", "/v1/nodes", basic("ann:guess"), "GET", 401),
            ("an unknown user", "/v1/nodes", basic("eve:secret"), "GET", 401),
            ("a viewer changes nothing", "/v1/reload", viewer, "POST", 403),
            ("an admin reads", "/v1/nodes", admin, "GET", 200),
            ("an admin changes", "/v1/reload", admin, "POST", 200),
            ("a wrong token", "/v1/nodes", admin + "x", "GET", 401),
            ("another scheme", "/v1/nodes", "Digest x", "GET", 401),
        ]
        for name, path, authorization, method, expected in cases:
            self.assertEqual(self.status(path, authorization, method), expected, name)

    def test_the_command_line_has_credentials(self):
        api = ("--api", f"127.0.0.1:{self.cluster.nodes[0].http_port}")
        def ctl(*arguments):
            return subprocess.run([BINARY, "ctl", *arguments, *api], capture_output=True, text=True)

        self.assertIn("401", ctl("nodes").stderr)
        self.assertEqual(ctl("nodes", "--api-user", "ann:secret").returncode, 0)
        self.assertIn("403", ctl("reload", "--api-user", "ann:secret").stderr)
        self.assertEqual(ctl("reload", "--api-token", self.token).returncode, 0)
        # Tokens are random: one may begin like a flag.
        self.assertIn("401", ctl("reload", "--api-token", "-" + self.token).stderr)

    def test_without_users_the_api_stays_at_home(self):
        refused = subprocess.run(
            [BINARY, "broker", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0", "--discover", "off"],
            capture_output=True,
            text=True,
            timeout=20,
        )
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("http_users", refused.stderr)
