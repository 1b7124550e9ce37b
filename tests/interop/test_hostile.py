"""Peers that mean harm: broken packets by the thousand, half of one, floods, lengths only claimed, endless filters.

After each of them a message goes round as before and the nodes have not grown beyond a bound. What peers send is drawn
from seeds, which a failure names.
"""

import contextlib
import random
import socket
import struct

from nodes import OneNode, ThreeNodes, wait_until
from wire import (
    NEVER,
    PINGREQ,
    Closed,
    Kind,
    Property,
    RawCases,
    RawClient,
    Will,
    acknowledge,
    binary,
    connect,
    disconnect,
    packet,
    properties,
    publish,
    subscribe,
    unsubscribe,
    variable_integer,
)

# How much resident memory a node may have more after a test than before it. Ten times what a batch needs while it runs;
# what the allocator keeps for later is part of it.
GROWTH_BYTES = 30_000_000

WILL = Will("w", b"gone", 1, True, ((Property.WILL_DELAY_INTERVAL, 1), (Property.USER_PROPERTY, ("k", "v"))))
LIMITED = ((Property.RECEIVE_MAXIMUM, 9), (Property.SESSION_EXPIRY_INTERVAL, 1))
WHOLE = [
    connect("hostile", props=LIMITED, will=WILL, user="u"),
    connect("hostile", 4, will=Will("w"), user="u", password="p"),
    publish("a/b", "payload", 1, 7, props=((Property.TOPIC_ALIAS, 1), (Property.CONTENT_TYPE, "text"))),
    publish("a/é/b", bytes(200), 2, 8, retain=True, props=((Property.CORRELATION_DATA, b"\x00\xff"),)),
    publish("a", version=4),
    subscribe(7, ("a/+/#", 2), ("$share/g/b", 1), props=((Property.SUBSCRIPTION_IDENTIFIER, 300),)),
    unsubscribe(7, "a/+/#", "b"),
    acknowledge(Kind.PUBACK, 7, 0x10),
    acknowledge(Kind.PUBREC, 7, 0x80),
    acknowledge(Kind.PUBREL, 7),
    acknowledge(Kind.PUBCOMP, 7, 0x92),
    disconnect(4, ((Property.REASON_STRING, "bye"),)),
    packet(Kind.AUTH, 0, b"\x18" + properties((Property.AUTHENTICATION_METHOD, "m"))),
    PINGREQ,
]


def mutated(rng):
    """A packet that was whole and is not any more: bytes changed, cut, doubled or put in, or a length that lies."""
    data = bytearray(rng.choice(WHOLE))
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data))
        what = rng.randrange(6)
        if what == 0:
            data[at] = rng.randrange(256)
        elif what == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif what == 2:
            del data[at : at + rng.randrange(1, 4)]
        elif what == 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        elif what == 4:
            data[at:at] = data[at : at + rng.randrange(1, 20)]
        else:
            data[1:2] = variable_integer(rng.choice((0, 1, 127, 128, 16384, 2**21, 2**28 - 1, len(data))))
        data = data or bytearray(b"\x00")
    return bytes(data)


class HostileCases(RawCases):
    """Each test is a batch; a client that was there before goes on undisturbed, and so does one that comes after."""

    def setUp(self):
        super().setUp()
        self.bystander = self.raw(self.here, "bystander", keep_alive=0)
        self.bystander.subscribe((self.topic(), 2))
        self.memory = [node.memory_bytes("VmRSS") for node in self.cluster.nodes]

    def tearDown(self):
        """[MQTT-4.13.1-1]: a round trip through all nodes works, and no node has grown beyond the bound."""
        for number, port in enumerate((self.here, self.there, self.elsewhere)):
            witness = self.raw(port, f"witness-{number}")
            witness.publish(self.topic(), f"still here {number}", qos=2)
            self.assertEqual(self.bystander.take_message().payload, b"still here %d" % number)
        for node, before in zip(self.cluster.nodes, self.memory, strict=True):
            wait_until(
                lambda node=node, before=before: node.memory_bytes("VmRSS") - before < GROWTH_BYTES,
                f"{node.name} to give memory back: {node.memory_bytes('VmRSS') - before} bytes more",
            )
        super().tearDown()

    def provoke(self, data, port, version=None):
        """Sends bytes, as a connected client if `version` is given, and reads what comes until the end."""
        with RawClient(port, version or 5) as client, contextlib.suppress(OSError):
            if version:
                client.send(connect(self.client_id("hostile"), version))
            client.send(data)
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(65536):
                pass

    def test_mutated_packets_end_their_own_connections_only(self):
        """Six hundred of them from four seeds, before a CONNECT and after one, of 5.0 and 3.1.1."""
        for seed in range(4):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                for number in range(150):
                    data = b"".join(mutated(rng) for _ in range(rng.choice((1, 1, 3))))
                    port = (self.here, self.there)[number % 2]
                    self.provoke(data, port, rng.choice((None, 4, 5, 5)))

    def test_random_bytes_end_their_own_connections_only(self):
        """Noise has no form at all; two hundred pieces of up to two kilobytes."""
        rng = random.Random(7)
        for _ in range(200):
            self.provoke(rng.randbytes(rng.choice((1, 5, 50, 2000))), self.there, rng.choice((None, 5)))

    def test_packets_cut_at_every_byte_are_waited_for_and_forgotten(self):
        """Pitfall: a peer that goes in the middle of a packet, once for each byte of each packet."""
        for whole in WHOLE:
            for end in range(1, len(whole), 1 + len(whole) // 30):
                with RawClient(self.there) as client:
                    client.send(connect(self.client_id("cut")), whole[:end])

    def test_two_hundred_half_connects_at_once_hold_nobody_up(self):
        """Slow-loris: each sends a byte now and then and never a whole CONNECT; others are served meanwhile."""
        whole = connect("x" * 200)
        slow = [RawClient(self.there) for _ in range(200)]
        for client in slow:
            self.addCleanup(client.close)
        for at in range(20):
            for client in slow:
                with contextlib.suppress(OSError):
                    client.send(whole[at : at + 1])
            if at % 5 == 0:
                self.assertEqual(self.raw(self.there, f"quick-{at}").ping(), [])
        self.assertEqual(self.bystander.ping(), [])
        # And their time ends, whatever they go on sending.
        for client in slow:
            client.socket.settimeout(20)
            with contextlib.suppress(OSError):
                self.assertEqual(client.socket.recv(1), b"", "half a CONNECT was answered")

    def test_a_flood_of_connects_is_served_and_leaves_nothing(self):
        """A thousand connections that come and go, a hundred at a time, with and without CONNECT, closed and reset."""
        linger = struct.pack("ii", 1, 0)
        for batch in range(10):
            clients = [RawClient(self.there) for _ in range(100)]
            for number, client in enumerate(clients):
                if number % 4:
                    client.send(connect(self.client_id(f"flood-{batch}-{number}"), clean_start=True))
                if number % 4 == 2:
                    client.expect(Kind.CONNACK)
                if number % 3 == 0:
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.close()

    def test_a_flood_of_takeovers_ends_with_one_connection(self):
        """Three hundred CONNECTs with one client identifier, at all nodes; in the end one that comes back is served."""
        ports = (self.here, self.there, self.elsewhere)
        clients = []
        for number in range(300):
            client = RawClient(ports[number % 3])
            self.addCleanup(client.close)
            client.send(connect(self.client_id("contested"), clean_start=number % 2 == 0))
            clients.append(client)
        for client in clients:
            client.close()

        def serves_one():
            # A CONNECT whose sender has gone may still be on its way at another node, and takes over.
            with contextlib.suppress(Closed, OSError):
                return self.raw(self.here, "contested").ping() == []
            return False

        wait_until(serves_one, "the flood to have passed")

    def test_giant_lengths_are_not_believed(self):
        """Pitfall: memory for a length that is merely claimed, in the frame and in every field of a packet."""
        claims = [b"\x30\xff\xff\xff\x7f", b"\x10\xff\xff\xff\x7f", b"\x82\xff\xff\x3f", b"\x30\xff\xff\x3f\xff\xff"]
        held = []
        for number in range(120):
            client = RawClient(self.there)
            self.addCleanup(client.close)
            claim = claims[number % len(claims)]
            client.send(claim if claim[0] == 0x10 else connect(self.client_id(f"claim-{number}")) + claim)
            held.append(client)
        within = [
            packet(Kind.PUBLISH, 0, b"\xff\xffab"),
            packet(Kind.PUBLISH, 0, b"\x00\x01t\xff\xff\xff\x7f"),
            packet(Kind.SUBSCRIBE, 2, b"\x00\x01\xff\xff\xff\x7f"),
            packet(Kind.PUBLISH, 0, b"\x00\x01t\x07\x26\xff\xffkey"),
            packet(Kind.PUBLISH, 0, b"\x00\x01t\x05\x09\xff\xff\x00\x00"),
            packet(Kind.CONNECT, 0, b"\xff\xffMQTT"),
        ]
        for data in within:
            self.provoke(data, self.there, None if data[0] == 0x10 else 5)
        self.assertEqual(self.bystander.ping(), [])

    def test_filters_and_topics_of_32767_levels_are_refused_or_served(self):
        """As deep as 65,535 bytes can be; several clients, several times, and matching goes on at its pace."""
        wild = "+/" * 32767
        deep = ["/" * 65535, wild + "+", wild + "#", "a/" * 32767 + "b", "$share/g/" + "+/" * 32760 + "#"]
        for number, name in enumerate(deep):
            for version in (4, 5):
                client = self.raw(self.there, f"deep-{number}-{version}", version)
                with contextlib.suppress(Closed):
                    client.send(subscribe(1, (name, 1), version=version))
                    came = client.receive()
                    self.assertIn(came.kind, (Kind.SUBACK, Kind.DISCONNECT))
                    client.send(publish("a/" * 32767 + "b", "deep", 1, 2, version=version))
                    self.assertIn(client.receive().kind, (Kind.PUBACK, Kind.PUBLISH, Kind.DISCONNECT))

    def test_many_wildcards_do_not_make_matching_slow(self):
        """Two hundred filters of up to a hundred levels, most of them `+`, against a topic that all could match."""
        client = self.raw(self.here, "wild")
        rng = random.Random(3)
        levels = 100
        for number in range(200):
            at = rng.randrange(levels)
            name = "/".join("a" if index == at else "+" for index in range(levels - number % 3))
            client.send(subscribe(number + 1, (name + "/#" * (number % 2), 0)))
        for _ in range(200):
            self.assertEqual(client.expect(Kind.SUBACK).codes, [0])
        publisher = self.publisher()
        topic = "/".join("a" * levels)
        # Matching that tries all paths would not come to the first PUBACK.
        for _ in range(200):
            publisher.publish(topic, "x", qos=1)
        self.assertGreaterEqual(len(client.ping()), 1)

    def test_a_subscriber_of_everything_that_reads_nothing_is_bounded(self):
        """Pitfall: `#` at QoS 1 and never a byte read, while twenty megabytes are published."""
        greedy = self.raw(self.here, "greedy", props=((Property.SESSION_EXPIRY_INTERVAL, 0),))
        greedy.subscribe((self.topic("flood/#"), 0))
        greedy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        publisher = self.publisher()
        for number in range(200):
            publisher.publish(self.topic(f"flood/{number}"), bytes(100_000))
            if number % 20 == 0:
                publisher.ping()
        self.assertEqual(publisher.ping(), [])
        greedy.close()

    def test_sessions_that_nobody_comes_back_for_are_let_go(self):
        """Five hundred sessions that ask to be kept, subscribed and left; each is ended by a clean start of its owner.
        """
        for number in range(500):
            with RawClient(self.there) as client:
                hello = connect(self.client_id(f"kept-{number}"), props=((Property.SESSION_EXPIRY_INTERVAL, NEVER),))
                client.send(hello, subscribe(1, (self.topic(f"kept/{number}/#"), 1)))
                client.expect(Kind.CONNACK)
                client.expect(Kind.SUBACK)
        for number in range(500):
            with RawClient(self.there) as client:
                self.assertFalse(client.connect(self.client_id(f"kept-{number}")).session_present)

    def test_properties_by_the_thousand_are_read_once(self):
        """A PUBLISH of 5,000 user properties, and one with a property that comes twice at its very end."""
        subscriber = self.subscriber((self.topic("many"), 1))
        publisher = self.publisher()
        many = ((Property.USER_PROPERTY, ("a", "b")),) * 5_000
        publisher.publish(self.topic("many"), "many", qos=1, props=many)
        self.assertEqual(len(subscriber.take_message().properties), 5_000)
        twice = (*many, (Property.CONTENT_TYPE, "x"), (Property.CONTENT_TYPE, "x"))
        publisher.send(publish(self.topic("many"), "broken", 1, 9, props=twice))
        self.assertEqual([one.reason_code for one in publisher.until_closed()], [0x82])

    def test_a_subscribe_of_thousands_of_filters_is_answered_whole(self):
        """Nine thousand filters in one packet get nine thousand codes; one that is broken at its end gets none."""
        client = self.raw(self.there, "many-filters")
        filters = [(self.topic(f"f/{number}"), number % 3) for number in range(9000)]
        self.assertEqual(client.subscribe(*filters).codes, [qos for _, qos in filters])
        broken = subscribe(2, *filters)[:-1] + b"\xff"
        client.send(broken)
        self.assertEqual([one.kind for one in client.until_closed()], [Kind.DISCONNECT])

    def test_a_peer_that_speaks_another_protocol_is_let_go(self):
        """Requests of HTTP, TLS, SSH and Redis, and a CONNECT in the wrong order of bytes."""
        strangers = [
            b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n" * 50,
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            binary("MQTT") + connect("x"),
            b"\x00" * 70000,
            b"\xff" * 70000,
        ]
        for data in strangers:
            self.provoke(data, self.there)
            self.provoke(data, self.there, 5)


class HostileOnOneNode(HostileCases, OneNode):
    arguments = ("--connect-timeout-s", "2")


class HostileAcrossNodes(HostileCases, ThreeNodes):
    arguments = ("--connect-timeout-s", "2")
