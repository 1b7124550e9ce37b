"""The page that every node serves at `/`: what it may load, what it shows, and who may change something by it.

The last classes drive a real Chromium, where scripts/setup could install one and Playwright for Python.
"""

import base64
import http.client
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from nodes import BINARY, Node, free_port, wait_until
from test_rights import passwd
from wire import Kind, Property, RawClient

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None


def chromium():
    """The program: the system's, else the one that Playwright has downloaded, or None."""
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    found += sorted(pathlib.Path.home().glob(".cache/ms-playwright/chromium-*/chrome-linux*/chrome"), reverse=True)
    for program in filter(None, found):
        # Some systems have a script in its place, which asks to install it.
        if subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0:
            return str(program)
    return None


CHROMIUM = chromium() if sync_playwright else None
IN_CHROMIUM = unittest.skipUnless(
    CHROMIUM, "needs Chromium and Playwright for Python: scripts/setup installs them where they can be had"
)

ROOT, EYE = ("root", "secret"), ("eye", "look")


class PageTest(unittest.TestCase):
    size = 1
    has_users = True
    has_websocket = False

    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="thicket-page-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        users = self.home / "users"
        for role, (name, password) in (("admin", ROOT), ("viewer", EYE)):
            command = [BINARY, "passwd", "--role", role, name]
            made = subprocess.run(command, input=password.encode() + b"\n", capture_output=True, check=True)
            with users.open("ab") as file:
                file.write(made.stdout)
        arguments = ("--workers", "1", *(("--http-users", str(users)) if self.has_users else ()))
        self.nodes = []
        for number in range(self.size):
            more = ("--data", str(self.home / f"data-{number}"))
            if self.has_websocket:
                more += ("--listen", f"ws://127.0.0.1:{free_port()}")
            node = Node(f"node-{number + 1}", [it.port for it in self.nodes], (*arguments, *self.arguments(), *more))
            self.addCleanup(node.log.close)
            self.addCleanup(node.stop)
            self.nodes.append(node)
        for node in self.nodes:
            wait_until(lambda node=node: node.ask("/v1/health/ready") is not None, f"{node.name} to be ready")

    def arguments(self):
        return ()

    def ask(self, path, user=ROOT, method="GET", body=None, **headers):
        """Status, headers and the first line that says something."""
        port = self.nodes[0].http_port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self.addCleanup(connection.close)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if user:
            headers["authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
        if body is not None:
            headers["content-type"] = "application/json"
        connection.request(method, path, body=body and json.dumps(body), headers=headers)
        answer = connection.getresponse()
        if answer.headers["content-type"] == "text/event-stream":
            # Whoever lets go of it ends the stream.
            self.addCleanup(answer.close)
            return answer.status, answer.headers, answer.readline().decode()
        return answer.status, answer.headers, answer.read().decode()


class Page(PageTest):
    def test_the_page_loads_nothing_from_elsewhere_and_runs_nothing_that_is_not_in_its_files(self):
        status, headers, html = self.ask("/")
        self.assertEqual((status, headers["content-type"]), (200, "text/html; charset=utf-8"))
        policy = headers["content-security-policy"]
        for rule in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"):
            self.assertIn(rule, policy)
        self.assertNotIn("unsafe", policy)
        self.assertIn("connect-src 'self';", policy, "there is no listener for WebSocket")
        self.assertEqual(headers["x-content-type-options"], "nosniff")
        loaded = re.findall(r'(?:src|href)="([^"]*)"', html)
        self.assertEqual(set(loaded), {"data:,", "page.css", "page.js", "#nodes"})
        self.assertNotRegex(html, r"<script>|\son\w+=|style=")
        for file in ("/page.css", "/page.js"):
            status, headers, text = self.ask(file)
            self.assertEqual(status, 200)
            self.assertEqual(re.findall(r"https?://(?!www\.w3\.org/2000/svg|\$\{state)[^\s\"'`]+", text), [], file)
            self.assertNotIn("innerHTML", text)

    @unittest.skipUnless(shutil.which("node"), "needs Node")
    def test_a_round_trip_that_nobody_has_measured_is_not_shown_as_0(self):
        script = self.ask("/page.js")[2]
        function = re.search(r"^function roundTrip\(.*?^}", script, re.MULTILINE | re.DOTALL)[0]
        cases = [(None, 0, "< 1 ms"), (None, 12.5, "12.5 ms"), (None, 40, "40.0 ms")]
        cases += [({"rtt_us": None}, 0, "–"), ({"rtt_us": 420}, 0, "0.42 ms"), ({"rtt_us": 40_400}, 40, "40.4 ms")]
        asked = f"console.log(JSON.stringify({json.dumps(cases)}.map(([own, rtt]) => roundTrip(own, rtt))))"
        done = subprocess.run(["node", "-e", function + asked], capture_output=True, check=True, text=True)
        self.assertEqual(json.loads(done.stdout), [expected for *_, expected in cases])

    def test_users_are_asked_for(self):
        status, headers, _ = self.ask("/", user=None)
        self.assertEqual(status, 401)
        self.assertEqual(headers.get_all("www-authenticate"), ['Basic realm="thicket"', "Bearer"])

    def test_what_the_node_sees_comes_as_events(self):
        status, _, line = self.ask("/v1/watch", user=EYE)
        self.assertEqual(status, 200)
        entry = json.loads(line.removeprefix("data: "))
        self.assertEqual((entry["name"], entry["ready"], len(entry["nodes"])), ("node-1", True, 1))
        self.assertGreater(entry["disk"]["free_bytes"], 0)

    def test_watchers_leave_room_for_others(self):
        for _ in range(16):
            self.assertEqual(self.ask("/v1/watch")[0], 200)
        self.assertEqual(self.ask("/v1/watch")[0], 503)
        self.assertEqual(self.ask("/v1/nodes")[0], 200)

    def test_the_page_knows_the_role_of_who_looks(self):
        for user, role in ((ROOT, "admin"), (EYE, "viewer")):
            self.assertEqual(json.loads(self.ask("/v1/whoami", user)[2]), {"role": role})

    def test_clients_are_found_by_identifier_user_and_address(self):
        for name in ("meter-1", "meter-2", "lamp"):
            client = RawClient(self.nodes[0].port)
            self.addCleanup(client.close)
            client.connect(name)
        found = lambda query: [it["client_id"] for it in json.loads(self.ask(f"/v1/sessions?{query}")[2])]  # noqa: E731
        self.assertEqual(found("search=meter"), ["meter-1", "meter-2"])
        self.assertEqual(found("search=meter&limit=1"), ["meter-1"])
        self.assertEqual(found("search=127.0.0.1"), ["lamp", "meter-1", "meter-2"])
        self.assertEqual(found("search=nobody"), [])
        self.assertEqual(self.ask("/v1/sessions?limit=many")[0], 400)

    def test_only_this_nodes_own_page_changes_something_and_only_for_an_admin(self):
        own = f"http://127.0.0.1:{self.nodes[0].http_port}"
        kick = {"client_id": "victim"}
        cases = [
            ("its own page", ROOT, own, "same-origin", 404),
            ("its own page for a viewer", EYE, own, "same-origin", 403),
            ("a page of elsewhere", ROOT, "http://page.example", "cross-site", 403),
            ("a page of another port", ROOT, "http://127.0.0.1:1", "same-site", 403),
            ("a page that hides where it is from", ROOT, "null", "cross-site", 403),
        ]
        for name, user, origin, site, expected in cases:
            headers = {"origin": origin, "sec_fetch_site": site}
            status, _, words = self.ask("/v1/kick", user, "POST", kick, **headers)
            self.assertEqual(status, expected, f"{name}: {words}")


    def test_the_audit_log_says_who_changed_what_from_where(self):
        self.assertEqual(json.loads(self.ask("/v1/audit")[2]), [])
        self.assertEqual(self.ask("/v1/kick", EYE, "POST", {"client_id": "meter"})[0], 403)
        self.assertEqual(self.ask("/v1/nothing", ROOT, "POST", {})[0], 404)
        client = RawClient(self.nodes[0].port)
        self.addCleanup(client.close)
        client.connect("meter")
        for expected in (200, 404, 404):
            self.assertEqual(self.ask("/v1/kick", ROOT, "POST", {"client_id": "meter"})[0], expected)
        self.assertEqual(self.ask("/v1/sessions/lamp", ROOT, "DELETE")[0], 404)
        entries = json.loads(self.ask("/v1/audit", EYE)[2])
        told = [(it["method"], it["path"], it["subject"], it["status"], it["times"]) for it in entries]
        expected = [
            ("POST", "/v1/kick", "meter", 200, 1),
            ("POST", "/v1/kick", "meter", 404, 2),
            ("DELETE", "/v1/sessions/lamp", None, 404, 1),
        ]
        self.assertEqual(told, expected)
        self.assertEqual({(it["user"], it["peer"]) for it in entries}, {("root", "127.0.0.1")})
        self.assertEqual([it["number"] for it in entries], [1, 2, 3])
        later = json.loads(self.ask("/v1/audit?after=1&limit=1")[2])
        self.assertEqual([it["number"] for it in later], [2])
        status, _, words = self.ask("/v1/audit?after=x")
        self.assertEqual(status, 400)
        self.assertIn("`after`", words)


class PageWithWebSocket(PageTest):
    has_websocket = True

    def test_the_page_may_connect_to_the_listeners_of_its_node_and_nowhere_else(self):
        entry = json.loads(self.ask("/v1/watch")[2].removeprefix("data: "))
        (listener,) = entry["websockets"]
        self.assertEqual((listener["secure"], listener["host"], listener["path"]), (False, "127.0.0.1", "/mqtt"))
        policy = self.ask("/")[1]["content-security-policy"]
        self.assertIn(f"connect-src 'self' ws://127.0.0.1:{listener['port']};", policy)
        self.assertEqual(policy.count("ws://"), 1)


class PageWithoutUsers(PageTest):
    has_users = False

    def test_changes_of_nobody_in_particular_are_in_the_audit_log(self):
        self.assertEqual(self.ask("/v1/drain?force=true", None, "POST", {})[0], 200)
        api = f"127.0.0.1:{self.nodes[0].http_port}"
        shown = subprocess.run([BINARY, "ctl", "audit", "--api", api], capture_output=True, text=True, check=True)
        head, line = shown.stdout.splitlines()
        self.assertEqual(head.split(), ["WHEN", "USER", "FROM", "REQUEST", "SUBJECT", "STATUS", "TIMES"])
        self.assertEqual(line.split()[-7:], ["-", "127.0.0.1", "POST", "/v1/drain", "-", "200", "1"])

    def test_it_shows_and_changes_nothing(self):
        self.assertEqual(self.ask("/", user=None)[0], 200)
        self.assertEqual(json.loads(self.ask("/v1/whoami", user=None)[2]), {"role": None})
        own = f"http://127.0.0.1:{self.nodes[0].http_port}"
        headers = {"origin": own, "sec_fetch_site": "same-origin"}
        status, _, words = self.ask("/v1/drain", None, "POST", {}, **headers)
        self.assertEqual(status, 403, words)


@IN_CHROMIUM
class InChromium(PageTest):
    size = 3
    has_websocket = True

    def arguments(self):
        users = self.home / "mqtt-users"
        users.write_text(passwd("ann", "a"))
        return ("--users", str(users), "--allow-anonymous=true")

    def open(self, browser, user, **options):
        login = {"username": user[0], "password": user[1]}
        page = browser.new_context(http_credentials=login, **options).new_page()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda line: line.type == "error" and self.problems.append(line.text))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(f"http://127.0.0.1:{self.nodes[0].http_port}/")
        page.wait_for_selector("#node-rows tr:nth-child(3)")
        return page

    def test_the_page_shows_a_cluster_of_which_a_node_dies_and_another_is_drained(self):
        self.problems, self.requests = [], []
        self.clients = {}
        for name in ("meter-1", "meter-2", "<img src=x onerror=alert(1)>"):
            client = self.clients[name] = RawClient(self.nodes[0].port)
            self.addCleanup(client.close)
            client.connect(name)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            narrow = self.open(browser, EYE, viewport={"width": 360, "height": 740}, color_scheme="dark")
            narrow.wait_for_selector("#client-rows tr:nth-child(3)")
            self.assertEqual(narrow.evaluate("document.documentElement.scrollWidth"), 360, "nothing sticks out")
            self.assertEqual(narrow.locator("#client-rows button").count(), 0, "a viewer kicks nobody")
            self.assertTrue(narrow.is_hidden("#drain") and narrow.is_hidden("#undrain"))
            dark = narrow.evaluate("getComputedStyle(document.body).backgroundColor")
            page = self.open(browser, ROOT, viewport={"width": 1280, "height": 900}, color_scheme="light")
            self.assertNotEqual(dark, page.evaluate("getComputedStyle(document.body).backgroundColor"))
            self.assertEqual(page.locator("#picture .link").count(), 3)
            page.wait_for_selector("#client-rows tr:nth-child(3)")
            self.assertIn("<img src=x onerror=alert(1)>", page.inner_text("#client-rows"))
            self.check_that_it_fits(page)
            self.check_words(page)
            self.assertEqual(self.problems, [])
            self.assertTrue(all(url.startswith(f"http://127.0.0.1:{self.nodes[0].http_port}/") for url in self.requests if url != "data:,"))
            self.assertIn("thicket", page.evaluate("document.title").lower())
            self.kick(page)
            self.ban(page)
            self.subscribe(page)
            self.assertEqual(self.problems, [], "also of the connection to the listener")
            self.assertEqual(narrow.evaluate("document.documentElement.scrollWidth"), 360, "nothing sticks out now either")
            self.nodes[2].kill()
            wait_until(lambda: "node-3: up → down" in page.inner_text("#events"), "the death of a node to be shown")
            wait_until(lambda: page.locator("#picture .node.down").count() == 1, "the picture to show it")
            self.assertEqual(page.inner_text("#node-rows tr:has-text('node-3') td[data-label=Clients]"), "–", "nobody is connected to it")
            page.click("#drain")
            page.click("#confirm-yes")
            wait_until(lambda: "drained: this node can be stopped" in page.inner_text("#events"), "the drain to end")
            wait_until(lambda: "this node is drained" in page.inner_text("#ready"), "the page to say so")
            page.click("#undrain")
            page.click("#confirm-yes")
            wait_until(lambda: page.inner_text("#ready") == "ready", "the node to accept clients again")
            wait_until(lambda: page.is_visible("#drain") and page.is_hidden("#undrain"), "the buttons to change")
            self.nodes[0].kill()
            wait_until(lambda: "trying again" in page.inner_text("#live"), "the page to miss its node", 3)
            self.assertEqual(page.inner_text("#ready"), "not connected")
            self.assertRegex(page.inner_text("#old"), "^Not connected to node-1. Everything below is old: it is from ")
            self.assertEqual(page.evaluate("getComputedStyle(document.querySelector('#nodes')).borderStyle"), "dashed", "marked as old")
            self.assertIn("this node does not answer", page.inner_text("#events li:first-child"))
            self.assertTrue(page.title().startswith("✗"))
            browser.close()

    def test_focus_and_selection_stay_where_rows_change(self):
        self.problems, self.requests = [], []
        clients = {}
        for name in ("meter-1", "meter-2", "meter-3"):
            client = clients[name] = RawClient(self.nodes[0].port)
            self.addCleanup(client.close)
            client.connect(name)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = self.open(browser, ROOT, viewport={"width": 1280, "height": 900})
            page.wait_for_selector("#client-rows tr:nth-child(3)")

            def focused():
                return page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent.slice(0, 40)")

            def rate():
                return page.inner_text("#client-rows tr:has-text('meter-2') td[data-label='Messages/s']")

            def load():
                for _ in range(50):
                    clients["meter-2"].publish("x", b"y")

            page.focus("button[aria-label='Kick meter-2']")
            page.evaluate("window.held = document.activeElement")
            before = rate()
            wait_until(lambda: load() or rate() != before, "the row to change")
            self.assertTrue(page.evaluate("window.held === document.activeElement"), f"the focus is at {focused()}")
            page.evaluate("getSelection().selectAllChildren(document.querySelector(\"#client-rows tr:has(button[aria-label='Kick meter-2']) td\"))")
            # One before it comes, one goes.
            first = RawClient(self.nodes[1].port)
            self.addCleanup(first.close)
            first.connect("a-meter")
            clients["meter-1"].close()
            names = page.locator("#client-rows td:first-child")
            wait_until(lambda: names.all_inner_texts() == ["a-meter", "meter-2", "meter-3"], "the other rows to change")
            self.assertTrue(page.evaluate("window.held === document.activeElement"), f"the focus is at {focused()}")
            self.assertEqual(page.evaluate("String(getSelection()).trim()"), "meter-2")
            page.select_option("#order", "rate")
            page.focus("button[aria-label='Ban meter-2']")
            wait_until(lambda: load() or names.all_inner_texts()[0] == "meter-2", "the order to change")
            self.assertEqual(focused(), "Ban meter-2")
            clients["meter-2"].close()
            wait_until(lambda: names.count() == 2, "the client to leave")
            self.assertRegex(focused(), "^(Kick|Ban) (a-meter|meter-3)$", "beside the row that is gone")
            page.focus("#node-rows a:has-text('node-2')")
            page.evaluate("window.held = document.activeElement")
            memory = "#node-rows tr:has-text('node-2')"
            before = page.inner_text(memory)
            wait_until(lambda: page.inner_text(memory) != before, "the row of a node to change")
            self.assertTrue(page.evaluate("window.held === document.activeElement"), f"the focus is at {focused()}")
            page.focus("#drain")
            page.keyboard.press("Enter")
            page.click("#confirm-yes")
            wait_until(lambda: page.is_visible("#undrain"), "the drain")
            wait_until(lambda: focused() == "Accept clients again…", "the focus to be at the button in its place")
            self.assertEqual(self.problems, [])
            browser.close()

    def check_that_it_fits(self, page):
        """The buttons of a client are seen whole, also where the table must be scrolled."""
        for width in (1920, 1280, 1000, 800):
            page.set_viewport_size({"width": width, "height": 900})
            table, button = (page.locator(at).bounding_box() for at in (".scroll:has(#client-rows)", "#client-rows tr:first-child button[data-act=ban]"))
            self.assertLessEqual(button["x"] + button["width"], table["x"] + table["width"], width)
            self.assertEqual(page.evaluate("document.documentElement.scrollWidth"), width, "nothing sticks out")
            if width >= 1280:
                sizes = page.evaluate("(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.querySelector('.scroll:has(#client-rows)'))")
                self.assertEqual(*sizes, f"nothing to scroll at {width}")
        page.set_viewport_size({"width": 1280, "height": 900})

    def check_words(self, page):
        self.assertEqual(page.inner_text("#latency-now"), "No deliveries since this page was opened.")
        self.assertIn("In a circle: how many clients", page.inner_text(".cluster"))
        self.check_picture(page)
        self.assertEqual(page.locator("#picture .link").count(), page.locator("#picture .behind").count(), "no line crosses its label")
        self.assertTrue(all(" – node-" in title for title in page.locator("#picture-links title").all_text_contents()), "a link has its text as title")

    def check_picture(self, page):
        """What is known of a node or a link is shown to pointer and keyboard, and stays while the picture is drawn anew."""
        node = r"^node-1: up, 3 clients, (CPU \d+ %, )?memory [\d.]+ MiB, \d+ messages/s in, \d+ out$"
        link = r"^node-\d – node-\d: round trip (–|< 1 ms|[\d.]+ ms)(, [\d.]+ \w+/s)?$"
        legend = page.inner_text("#pointed")
        self.assertIn("In a circle", legend)
        self.assertRegex(page.locator("#picture-nodes .spot title").first.text_content(), node)
        page.hover("#picture-nodes .spot:nth-child(1) .name")
        self.assertRegex(page.inner_text("#pointed"), node)
        page.hover("h1")
        # The middle of a line, where its label is.
        page.mouse.move(*page.evaluate("""() => {
            const line = document.querySelector("#picture-links .reach");
            const [x, y] = ["x", "y"].map((it) => (line[`${it}1`].baseVal.value + line[`${it}2`].baseVal.value) / 2);
            const place = new DOMPoint(x, y).matrixTransform(line.getScreenCTM());
            return [place.x, place.y];
        }"""))
        self.assertRegex(page.inner_text("#pointed"), link)
        page.hover("h1")
        self.assertEqual(page.inner_text("#pointed"), legend)
        self.assertEqual(page.locator("#picture [tabindex='0']").count(), 1, "one stop for the keyboard")
        page.focus("#picture [tabindex='0']")
        self.assertRegex(page.inner_text("#pointed"), node)
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        self.assertRegex(page.inner_text("#pointed"), link)
        page.evaluate("window.held = document.activeElement")
        drawn = page.evaluate("history.length")
        wait_until(lambda: page.evaluate("history.length") >= drawn + 2, "the picture to be drawn anew")
        self.assertTrue(page.evaluate("window.held === document.activeElement"), "the focus stays")
        self.assertRegex(page.inner_text("#pointed"), link)
        page.evaluate("document.activeElement.blur()")

    def ban(self, page):
        page.fill("#search", "meter-1")
        found = page.locator("#client-rows tr")
        wait_until(lambda: found.count() == 1 and "meter-1" in found.first.inner_text(), "the search")
        page.click("#client-rows button[data-act=ban]")
        page.keyboard.press("Escape")
        self.assertEqual(page.inner_text("#ban-count"), "Nobody is banned.")
        page.click("#client-rows button[data-act=ban]")
        self.assertEqual(page.locator("#ban-whom label").all_inner_texts(), [" client identifier meter-1", " all clients from address 127.0.0.1"])
        page.fill("#ban-reason", "too <b>loud</b>")
        page.click("#ban button[value=yes]")
        wait_until(lambda: "client meter-1" in page.inner_text("#ban-rows"), "the ban to be shown")
        self.assertIn("too <b>loud</b>", page.inner_text("#ban-rows"))
        self.assertEqual(self.clients["meter-1"].expect(Kind.DISCONNECT).reason_code, 0x98)
        (ban,) = json.loads(self.ask("/v1/bans")[2])
        self.assertEqual((ban["client_id"], ban["by"], ban["until_ms"] - ban["since_ms"]), ("meter-1", "root", 600_000))
        page.click("#ban-rows button")
        page.click("#confirm-yes")
        wait_until(lambda: page.inner_text("#ban-count") == "Nobody is banned.", "the ban to be lifted")

    def subscribe(self, page):
        page.fill("#subscriber-filter", "home/#")
        page.fill("#subscriber-user", "ann")
        page.fill("#subscriber-password", "b")
        page.click("#subscriber-start")
        wait_until(lambda: "refused: bad user name or password" in page.inner_text("#subscriber-state"), "a wrong password to be refused")
        page.fill("#subscriber-password", "a")
        page.click("#subscriber-start")
        wait_until(lambda: "subscribed to home/#" in page.inner_text("#subscriber-state"), "the subscription")
        publisher = RawClient(self.nodes[1].port)
        self.addCleanup(publisher.close)
        publisher.connect("publisher")
        for number in range(250):
            publisher.publish(f"home/{number}", b"<i>21</i>")
        publisher.publish("home/bytes", b"\xff\x00")
        publisher.publish("home/large", b"x" * 100_000)
        publisher.publish("home/last", b"y" * 3000)
        wait_until(lambda: "home/last" in page.inner_text("#messages"), "the last message")
        self.assertEqual(page.locator("#messages li").count(), 200, "so many are kept")
        shown = page.inner_text("#messages")
        for part in ("<i>21</i>", "no text: ff 00", "y" * 2000 + "…"):
            self.assertIn(part, shown)
        self.assertNotIn("home/large", shown)
        self.assertNotIn("home/1\n", shown)
        wait_until(lambda: re.search("[0-9] deliveries (since|in the last)", page.inner_text("#latency-now")), "the latency")
        page.click("#subscriber-stop")
        wait_until(lambda: page.inner_text("#subscriber-state") == "stopped", "the subscriber to stop")

    def kick(self, page):
        page.fill("#search", "meter-2")
        wait_until(lambda: page.locator("#client-rows tr").count() == 1, "the search")
        page.click("#client-rows button[data-act=kick]")
        page.keyboard.press("Escape")
        page.wait_for_selector("#confirm", state="hidden")
        self.assertNotIn("kicked", page.inner_text("#events"))
        page.focus("#client-rows button[data-act=kick]")
        page.keyboard.press("Enter")
        page.wait_for_selector("#confirm", state="visible")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        wait_until(lambda: "kicked meter-2" in page.inner_text("#events"), "the kick by keyboard alone")


@IN_CHROMIUM
class InChromiumWithoutListener(PageTest):
    has_users = False

    def test_the_page_says_that_it_cannot_subscribe_and_offers_nothing_that_it_may_not_do(self):
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{self.nodes[0].http_port}/")
            wait_until(lambda: "This node has no listener for WebSocket" in page.inner_text("#no-listener"), "the page to say so")
            self.assertTrue(page.is_hidden("#subscriber"))
            self.assertTrue(page.is_hidden("#drain"))
            browser.close()


class Tenants(PageTest):
    """Clients of two tenants and of none, with the same identifier."""

    def arguments(self):
        self.ports = {prefix: free_port() for prefix in ("t1/", "t2/", "")}
        tables = [f'[[listener]]\naddress = "127.0.0.1:{port}"\n' + (f'topic_prefix = "{it}"\n' if it else "") for it, port in self.ports.items()]
        file = self.home / "thicket.toml"
        file.write_text("".join(tables))
        return ("--config", str(file))

    def connect(self):
        self.clients = {}
        for prefix, port in self.ports.items():
            client = self.clients[prefix] = RawClient(port)
            self.addCleanup(client.close)
            client.connect("lamp", props=((Property.SESSION_EXPIRY_INTERVAL, 600),))

    def ctl(self, *words):
        command = [BINARY, "ctl", "--api", f"127.0.0.1:{self.nodes[0].http_port}", "--api-user", ":".join(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_the_log_says_at_which_tenant_a_client_was_refused(self):
        self.assertEqual(self.ctl("ban", "--client", "lamp").returncode, 0)
        for port in self.ports.values():
            client = RawClient(port)
            self.addCleanup(client.close)
            self.assertEqual(client.try_connect("lamp").reason_code, 0x8A)
        found = lambda: re.findall(r'CONNECT refused thread=0 client_id="lamp"( topic_prefix="\S*")? peer=', self.nodes[0].log_from(0))  # noqa: E731
        wait_until(lambda: len(found()) == 3, "all lines")
        self.assertEqual(found(), [' topic_prefix="t1/"', ' topic_prefix="t2/"', ""])

    def connected(self):
        page = json.loads(self.ask("/v1/clients?client_id=lamp")[2])
        return {it["topic_prefix"] or "" for it in page["clients"] if it["connected"]}

    def test_a_client_of_one_tenant_is_kicked(self):
        self.connect()
        table = self.ctl("clients", "--wide").stdout
        self.assertRegex(table, "PREFIX")
        self.assertRegex(table, r"lamp +- +t1/ ")
        self.assertEqual(self.connected(), {"t1/", "t2/", ""})
        self.assertEqual(self.ctl("kick", "lamp", "--topic-prefix", "t3/").returncode, 1)
        self.assertEqual(self.ctl("kick", "lamp", "--topic-prefix", "t1/").returncode, 0)
        self.assertEqual(self.connected(), {"t2/", ""})
        self.assertEqual(self.ctl("kick", "lamp", "--topic-prefix", "").returncode, 0)
        self.assertEqual(self.connected(), {"t2/"})
        self.assertEqual(self.ctl("kick", "lamp", "--end-session", "--topic-prefix", "t1/").returncode, 0)
        left = json.loads(self.ask("/v1/clients?client_id=lamp")[2])["clients"]
        self.assertEqual({it["topic_prefix"] for it in left}, {"t2/", None})
        subjects = [it["subject"] for it in json.loads(self.ask("/v1/audit")[2]) if it["path"] == "/v1/kick" and it["status"] == 200]
        expected = ["lamp with topic prefix t1/", "lamp without topic prefix", "lamp with topic prefix t1/, with its session"]
        self.assertEqual(subjects, expected)
        self.assertEqual(self.ctl("kick", "lamp").returncode, 0)
        self.assertEqual(self.connected(), set())

    @IN_CHROMIUM
    def test_the_page_tells_tenants_apart(self):
        self.connect()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            login = {"username": ROOT[0], "password": ROOT[1]}
            page = browser.new_context(http_credentials=login).new_page()
            page.goto(f"http://127.0.0.1:{self.nodes[0].http_port}/")
            page.wait_for_selector("#client-rows tr:nth-child(3)")
            names = page.locator("#client-rows td:first-child").all_inner_texts()
            self.assertEqual(sorted(names), ["lamp", "lamp (t1/)", "lamp (t2/)"])
            for name, left in (("lamp (t2/)", {"t1/", ""}), ("lamp", {"t1/"})):
                page.click(f"button[aria-label='Kick {name}']")
                self.assertEqual(page.inner_text("#confirm-title"), f"Kick {name}?")
                page.click("#confirm-yes")
                wait_until(lambda left=left: self.connected() == left, "only this client to be kicked")
            browser.close()


@IN_CHROMIUM
class InChromiumOverATree(PageTest):
    size = 3
    has_users = False

    def arguments(self):
        return ("--routing", "tree")

    def test_the_page_shows_the_tree_and_its_root(self):
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{self.nodes[0].http_port}/")
            wait_until(lambda: page.locator("#picture .link.tree").count() == 2, "the tree of three nodes")
            (root,) = [text for text in page.locator("#picture .name").all_text_contents() if text.endswith(" (root)")]
            self.assertIn(f"routing tree with the root {root.removesuffix(' (root)')}", page.inner_text("#membership"))
            browser.close()


if __name__ == "__main__":
    unittest.main()
