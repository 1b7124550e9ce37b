"""A stranger on the network of a cluster: forged announcements, lies about incarnations, a relay, a replay, floods."""

import base64
import contextlib
import json
import os
import pathlib
import re
import selectors
import shutil
import socket
import ssl
import struct
import tempfile
import threading
import time
import unittest

from certificates import Authority
from nodes import Node, free_port, wait_until
from wire import Closed, Kind, Property, RawClient, packet, properties

GROUP = "239.255.18.86"
ABSURD = 2**64 - 1


def fresh_secret(directory, name="secret"):
    """What docs/security.md says: `head -c 32 /dev/urandom | base64`."""
    path = pathlib.Path(directory, name)
    path.write_bytes(base64.b64encode(os.urandom(32)) + b"\n")
    return str(path)


def text(value):
    return bytes([len(value)]) + value.encode()


def announcement(address, node, version=2, signature=b""):
    """A datagram as `discovery/announcement.rs` describes it."""
    numbers = struct.pack(">QQ", 1, 1) if version == 2 else b""
    end = bytes([bool(signature)]) + signature if version == 2 else b""
    return b"THKT" + bytes([version]) + struct.pack(">Q", node) + numbers + text("thicket") + text(address) + end


def refusal(known_incarnation):
    """The CONNACK of a node that claims to know this one by a higher incarnation."""
    said = [("known-incarnation", str(known_incarnation)), ("known-process", "00000000000000ff")]
    pairs = [(Property.USER_PROPERTY, pair) for pair in said]
    return packet(Kind.CONNACK, 0, b"\x00\x85" + properties(*pairs))


class Stranger:
    """Listens on all of 127.0.0.0/8, keeps what comes, and answers each connection's first bytes with `answer(socket, bytes)`."""

    def __init__(self, answer=lambda *_: None):
        self.answer, self.heard, self.open, self.most = answer, [], 0, 0
        self.addresses = []
        self.socket = socket.create_server(("0.0.0.0", 0), backlog=4096)
        self.port = self.socket.getsockname()[1]
        self.socket.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.socket, selectors.EVENT_READ)
        self.is_over = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.is_over:
            for key, _ in self.selector.select(0.05):
                if key.fileobj is self.socket:
                    with contextlib.suppress(BlockingIOError):
                        self.welcome(*self.socket.accept())
                else:
                    self.listen(key.fileobj)

    def welcome(self, client, _):
        client.setblocking(False)
        self.addresses.append(client.getsockname()[0])
        self.open += 1
        self.most = max(self.most, self.open)
        self.selector.register(client, selectors.EVENT_READ)

    def listen(self, client):
        try:
            came = client.recv(65536)
        except OSError:
            came = b""
        if came:
            self.heard.append(came)
            with contextlib.suppress(OSError):
                self.answer(client, came)
            return
        self.selector.unregister(client)
        client.close()
        self.open -= 1

    def close(self):
        self.is_over = True
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()


class Relay:
    """Passes bytes on between those who connect and `port`, and lets `change(is_from_dialler, bytes)` have them."""

    def __init__(self, port, change=lambda _, came: came):
        self.target, self.change, self.passed = port, change, {True: b"", False: b""}
        self.connections = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.server.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    near.close()
                    continue
                self.connections += [near, far]
                for ends in ((near, far, True), (far, near, False)):
                    self.threads.append(threading.Thread(target=self.pass_on, args=ends))
                    self.threads[-1].start()

    def pass_on(self, source, target, is_from_dialler):
        with contextlib.suppress(OSError):
            while came := source.recv(65536):
                self.passed[is_from_dialler] += came
                target.sendall(self.change(is_from_dialler, came))
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for connection in self.connections:
            connection.close()


class HostileLinks(unittest.TestCase):
    def setUp(self):
        if os.environ.get("THICKET_CLUSTER_TESTS") == "0":
            self.skipTest("THICKET_CLUSTER_TESTS=0")
        self.directory = tempfile.mkdtemp(prefix="thicket-links-")
        self.addCleanup(shutil.rmtree, self.directory)
        self.secret = fresh_secret(self.directory)
        self.group_port = free_port()

    def start(self, name, seeds=(), secret=True, multicast=False, arguments=()):
        if secret:
            arguments = (*arguments, "--cluster-secret-file", self.secret)
        if multicast:
            arguments = (*arguments, "--multicast-group", f"{GROUP}:{self.group_port}", "--multicast-ttl", "0")
            arguments = (*arguments, "--multicast-interval-ms", "200")
        node = Node(name, seeds, arguments, discover="multicast" if multicast else "off")
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1), node.log_from(0))
        return node

    def stranger(self, *arguments):
        stranger = Stranger(*arguments)
        self.addCleanup(stranger.close)
        return stranger

    def relay(self, *arguments):
        relay = Relay(*arguments)
        self.addCleanup(relay.close)
        return relay

    def announcer(self):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(sender.close)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        return lambda datagram: sender.sendto(datagram, (GROUP, self.group_port))

    def counter(self, node, name):
        found = re.search(rf"^{name} (\d+)", (node.ask("/metrics") or b"").decode(), re.MULTILINE)
        return int(found[1]) if found else 0

    def incarnations(self, *nodes):
        return {entry["id"]: entry["incarnation"] for node in nodes for entry in json.loads(node.ask("/v1/nodes"))}

    def wait_for_line(self, node, *words):
        def lines():
            return [line for line in node.log_from(0).splitlines() if all(word in line for word in words)]

        wait_until(lines, f"{node.name} to say {words}")

    def assert_linked(self, *nodes):
        wait_until(lambda: all(node.sees() == len(nodes) for node in nodes), "the nodes to see each other")
        with RawClient(nodes[0].port) as subscriber, RawClient(nodes[-1].port) as publisher:
            subscriber.connect("subscriber")
            subscriber.subscribe(("a/#", 1))
            publisher.connect("publisher")
            publisher.publish("a/b", "still here", qos=1)
            self.assertEqual(subscriber.take_message().payload, b"still here")

    def test_a_forged_announcement_is_not_dialled_and_a_recorded_one_is_not_heard_again(self):
        recorded = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            ear.bind((GROUP, self.group_port))
            membership = socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
            ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            ear.settimeout(20)
            nodes = [self.start(name, multicast=True) for name in ("one", "two", "three")]
            self.assert_linked(*nodes)
            recorded.append(ear.recv(2048))
        before = self.incarnations(*nodes)
        stranger = self.stranger(lambda client, _: client.sendall(refusal(ABSURD)))
        send = self.announcer()
        # One of a node's own, with another address in it; the same as it was, twice; some of a node that nobody knows.
        end = recorded[0].rindex(b":")
        send(recorded[0][: end - 5] + b"9" + recorded[0][end - 4 :])
        send(recorded[0])
        send(recorded[0])
        for version in (1, 2):
            send(announcement(f"127.0.0.1:{stranger.port}", 77, version))
            send(announcement(f"127.0.0.1:{stranger.port}", 78, version, bytes(32) if version == 2 else b""))
        for node in nodes:
            wait_until(lambda node=node: self.counter(node, "thicket_announcements_strange_total") >= 2, "the forgeries to be heard")
        self.assert_linked(*nodes)
        self.assertEqual(stranger.addresses, [])
        self.assertEqual(self.incarnations(*nodes), before)
        repeated = [self.counter(node, "thicket_announcements_repeated_total") for node in nodes]
        self.assertGreaterEqual(sorted(repeated)[1], 2, "by those who have heard it")

    def test_what_a_stranger_says_changes_nothing(self):
        authority = Authority("stranger")
        self.addCleanup(authority.close)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.issue("stranger"))
        context.set_alpn_protocols(["thicket-link"])

        def with_tls(client, came):
            client.setblocking(True)
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_side=True)
            incoming.write(came)
            with contextlib.suppress(ssl.SSLError):
                tls.do_handshake()
            client.sendall(outgoing.read())

        plain = self.stranger(lambda client, _: client.sendall(refusal(ABSURD)))
        dressed = self.stranger(with_tls)
        one = self.start("one", (plain.port, dressed.port))
        two = self.start("two", (one.port, plain.port, dressed.port))
        self.wait_for_line(one, "refused", f"127.0.0.1:{plain.port}")
        for incarnation in self.incarnations(one, two).values():
            self.assertLess(incarnation, 2**44)
        self.assert_linked(one, two)
        self.wait_for_line(one, "refused", f"127.0.0.1:{dressed.port}", "UnknownIssuer")
        for said in plain.heard:
            # A ClientHello, and then an alert: no MQTT, no certificate, nothing made of the secret.
            self.assertIn((said[0], said[5]), {(0x16, 0x01), (0x15, 0x02)}, said)
            self.assertNotIn(b"MQTT", said)

    def test_nobody_comes_in_without_the_secret_and_is_told_nothing(self):
        one = self.start("one")
        stranger = self.start("stranger", (one.port,), secret=False)
        self.wait_for_line(stranger, "link refused")
        self.wait_for_line(one, "link refused", "did not prove", "127.0.0.1:")
        self.secret = fresh_secret(self.directory, "other")
        other = self.start("other", (one.port,))
        self.wait_for_line(other, "link refused", f"127.0.0.1:{one.port}")
        self.assertEqual([node.sees() for node in (one, stranger, other)], [1, 1, 1])

    def test_a_stranger_that_dials_is_shown_no_certificate(self):
        one = self.start("one")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for protocols in (["thicket-link"], ["thicket-link", "x" * 32]):
            context.set_alpn_protocols(protocols)
            with socket.create_connection(("127.0.0.1", one.port), timeout=10) as connection:
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                tls = context.wrap_bio(incoming, outgoing)
                with self.assertRaises(ssl.SSLWantReadError):
                    tls.do_handshake()
                connection.sendall(outgoing.read())
                answer = b""
                while came := connection.recv(65536):
                    answer += came
            # An alert (RFC 8446 6) that is fatal, and nothing else.
            self.assertEqual((answer[0], answer[5], len(answer)), (0x15, 2, 7), answer)
        self.wait_for_line(one, "link refused", "did not prove", "127.0.0.1:")

    def test_a_relay_reads_nothing_and_changes_nothing(self):
        is_flipping = threading.Event()

        def change(is_from_dialler, came):
            # Whoever sees the text makes another of it.
            changed = came.replace(b"GOOD close valve", b"EVIL OPEN valve!")
            if is_flipping.is_set() and not is_from_dialler and is_record(changed):
                is_flipping.clear()
                # Behind the five bytes of the record's header: TLS 1.3 leaves its version unread, and a longer one would be waited for.
                changed = changed[:13] + bytes([changed[13] ^ 1]) + changed[14:]
            return changed

        def is_record(came):
            return came[:3] == b"\x17\x03\x03" and len(came) > 40

        port = free_port()
        relay = self.relay(port, change)
        one = self.start("one", arguments=("--listen", f"127.0.0.1:{port}", "--advertise", f"127.0.0.1:{relay.port}"))
        two = self.start("two", (relay.port,), arguments=("--advertise", f"127.0.0.1:{free_port()}"))
        self.assert_linked(one, two)
        with RawClient(two.port) as subscriber, RawClient(one.port) as publisher:
            # A session that is kept: nothing that was acknowledged is missing, though one node may give the other up meanwhile.
            subscriber.connect("watcher", clean_start=False, props=((Property.SESSION_EXPIRY_INTERVAL, 600),))
            subscriber.subscribe(("valve", 2))
            publisher.connect("operator")
            publisher.publish("valve", "GOOD close valve", qos=2)
            self.assertEqual(subscriber.take_message().payload, b"GOOD close valve")
            is_flipping.set()
            wait_until(lambda: not is_flipping.is_set(), "a byte to be flipped")
            self.wait_for_line(two, "data was altered in transit", f"127.0.0.1:{relay.port}")
            for number in range(10):
                publisher.publish("valve", f"GOOD close valve {number}", qos=2)
            came = [subscriber.take_message().payload for _ in range(10)]
            # What came to the copy of the session while the nodes did not see each other comes behind the rest.
            self.assertEqual(sorted(came), [b"GOOD close valve %d" % number for number in range(10)])
        self.assert_linked(one, two)
        passed = relay.passed[True] + relay.passed[False]
        for words in (b"GOOD", b"valve", b"$thicket", b"known-", b"operator"):
            self.assertNotIn(words, passed)

    def test_a_handshake_that_is_changed_on_its_way_is_refused_by_both(self):
        started = []

        def change(is_from_dialler, came):
            if is_from_dialler and came[:1] == b"\x16":
                started.append(came)
                # A byte of the ClientHello's random.
                came = came[:20] + bytes([came[20] ^ 1]) + came[21:]
            return came

        one = self.start("one")
        relay = self.relay(one.port, change)
        two = self.start("two", (relay.port,))
        self.wait_for_line(two, "link refused", f"127.0.0.1:{relay.port}")
        self.wait_for_line(one, "link", "refused", "127.0.0.1:")
        self.assertEqual([one.sees(), two.sees()], [1, 1])
        self.assertTrue(started)

    def test_what_was_recorded_of_a_link_opens_none(self):
        one = self.start("one")
        relay = self.relay(one.port)
        two = self.start("two", (relay.port,))
        self.assert_linked(one, two)
        two.stop()
        before = json.loads(one.ask("/v1/nodes"))
        with socket.create_connection(("127.0.0.1", one.port)) as replay:
            replay.settimeout(20)
            replay.sendall(relay.passed[True])
            answer = b""
            with contextlib.suppress(ConnectionError):
                while came := replay.recv(65536):
                    answer += came
            self.assertNotIn(b"wire", answer)
            self.wait_for_line(one, "link refused", f"127.0.0.1:{replay.getsockname()[1]}")
        # And what the acceptor said, to one that dials.
        stranger = self.stranger(lambda client, _: client.sendall(relay.passed[False]))
        three = self.start("three", (stranger.port,))
        self.wait_for_line(three, "refused", f"127.0.0.1:{stranger.port}")
        self.assertEqual(three.sees(), 1)
        self.assertEqual({entry["id"] for entry in json.loads(one.ask("/v1/nodes"))}, {entry["id"] for entry in before})

    def test_strangers_who_hold_all_connections_leave_places_for_links(self):
        # They have as long as they like.
        one = self.start("one", arguments=("--connections", "8", "--connect-timeout-s", "600"))
        clients = [self.connected(one.port, f"client-{number}") for number in range(8)]
        with contextlib.ExitStack() as strangers:
            for _ in range(200):
                strangers.enter_context(socket.create_connection(("127.0.0.1", one.port)))
            two = self.start("two", (one.port,))
            wait_until(lambda: one.sees() == two.sees() == 2, "the nodes to see each other")
            # Strangers have not just connected any more.
            time.sleep(0.6)
            client = RawClient(one.port)
            self.addCleanup(client.close)
            # The places are for links only.
            with self.assertRaises(Closed):
                client.connect("client")
        for client in clients:
            client.disconnect()
        self.assert_linked(one, two)

    def connected(self, port, client_id):
        client = RawClient(port)
        self.addCleanup(client.close)
        client.connect(client_id, keep_alive=0)
        return client

    def test_a_flood_of_announcements_dials_few_at_a_time_and_keeps_nobody_out(self):
        for name, secret, most in (("signed", True, 0), ("not signed", False, 16)):
            with self.subTest(name):
                stranger = self.stranger()
                self.group_port = free_port()
                one = self.start("one", secret=secret, multicast=True)
                send = self.announcer()
                for number in range(4095):
                    host = f"127.{1 + number // 65536}.{number // 256 % 256}.{number % 256}"
                    for version in (1, 2):
                        send(announcement(f"{host}:{stranger.port}", 1000 + number, version))
                    if number % 100 == 0:
                        time.sleep(0.005)
                two = self.start("two", (one.port,), secret=secret, multicast=True)
                self.assert_linked(one, two)
                if most:
                    wait_until(lambda stranger=stranger: stranger.most > 0, "the flood to be heard")
                # Both nodes heard it, the second what came after its start.
                self.assertLessEqual(stranger.most, 2 * most)
                one.stop()
                two.stop()


if __name__ == "__main__":
    unittest.main()
