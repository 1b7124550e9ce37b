"""Thirty faults that brokers are known for, each a test by the name of the fault.

The numbers are those of a list of ours, gathered from the trackers of other brokers. A fault that shows only at one
node (limits of a connection, a restart) is tried there; all others also between nodes.
"""

import pathlib
import tempfile
import time

from nodes import Cluster, OneNode, ThreeNodes
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
    packet,
    properties,
    publish,
    subscribe,
    unsubscribe,
    variable_integer,
)

NO_LOCAL = 0x04
RETAIN_AS_PUBLISHED = 0x08
SEND_IF_NEW = 0x10
DO_NOT_SEND = 0x20

PROTOCOL_ERROR = 0x82
KEEP_ALIVE_TIMEOUT = 0x8D
PACKET_TOO_LARGE = 0x95
TAKEN_OVER = 0x8E


def expiry(seconds):
    """The properties of a CONNECT with a session expiry."""
    return ((Property.SESSION_EXPIRY_INTERVAL, seconds),)


def delayed(topic, seconds, **options):
    """A will with a delay."""
    return Will(topic, properties=((Property.WILL_DELAY_INTERVAL, seconds),), **options)


class PitfallCases(RawCases):
    """Cases for one node and for several."""

    def setUp(self):
        super().setUp()
        self.watcher = self.raw(self.here, "watcher")
        self.watcher.subscribe((self.topic("#"), 2 | RETAIN_AS_PUBLISHED))

    def seen_until_now(self):
        """What came to the watcher before a message that is published now, at the publishers' node."""
        fence = self.publisher("fence")
        fence.publish(self.topic("fence"), "fence", qos=1)
        fence.disconnect()
        return [(one.topic, one.payload) for one in self.messages_until(self.watcher, b"fence")]

    def retained(self, rest, payload, **options):
        """Publishes a retained message and waits until it is at the subscribers' node."""
        publisher = self.publisher(f"retainer-{rest}")
        publisher.publish(self.topic(rest), payload, qos=1, retain=True, **options)
        publisher.disconnect()
        self.assertTrue(self.watcher.take_message().retain)

    def test_01_a_will_is_missing_after_a_takeover(self):
        """Delay 0, session expiry 0, or clean start: each alone is enough for the will of the older connection."""
        cases = {"delay 0": (0, 600, False), "expiry 0": (3600, 0, False), "clean start": (3600, 600, True)}
        for name, (delay, seconds, clean) in cases.items():
            will = delayed(self.topic(name), delay)
            older = self.raw(self.there, name, will=will, props=expiry(seconds), clean_start=False)
            self.raw(self.elsewhere, name, clean_start=clean, props=expiry(600))
            self.assertEqual([one.reason_code for one in older.until_closed()], [TAKEN_OVER])
            self.assertEqual(self.watcher.take_message().topic, self.topic(name))

    def test_02_a_will_outwaits_its_session(self):
        """The delay is longer than the session lasts: the end of the session sends it."""
        self.raw(self.there, "mortal", will=delayed(self.topic("will"), 3600), props=expiry(1)).close()
        self.assertEqual(self.watcher.take_message().topic, self.topic("will"))

    def test_03_a_will_delay_is_ignored_or_leaks_into_the_message(self):
        """A second is a second, and the subscriber sees none of it."""
        self.raw(self.there, "mortal", will=delayed(self.topic("will"), 1), props=expiry(600)).close()
        broke = time.monotonic()
        self.assertEqual(self.seen_until_now(), [])
        came = self.watcher.take_message()
        # The closing reached the node after our clock was read, so the bound holds on any machine.
        self.assertGreaterEqual(time.monotonic() - broke, 0.9)
        self.assertEqual((came.topic, came.properties), (self.topic("will"), []))

    def test_04_a_will_loses_its_retain_flag(self):
        """For those subscribed and for those who come later."""
        self.raw(self.there, "mortal", will=Will(self.topic("will"), retain=True, qos=1)).close()
        self.assertTrue(self.watcher.take_message().retain)
        self.assertTrue(self.subscriber((self.topic("will"), 1)).take_message().retain)

    def test_05_a_takeover_of_a_session_that_ends_inherits_it_by_chance(self):
        """Session expiry 0: the newer connection never has the older session, however often one tries."""
        for number in range(20):
            older = self.raw((self.here, self.there)[number % 2], "client", clean_start=False)
            older.subscribe((self.topic("old"), 1))
            newer = self.raw((self.elsewhere, self.here)[number % 2], "client", clean_start=False)
            self.assertFalse(newer.connack.session_present)
            self.assertEqual([one.reason_code for one in older.until_closed()], [TAKEN_OVER])
            newer.disconnect()

    def test_07_retained_messages_come_again_without_a_subscribe(self):
        """On resume and on takeover nothing asks for them."""
        self.retained("a", "kept")
        first = self.keeper(self.here)
        first.subscribe((self.topic("a"), 1))
        first.take_message()
        second = self.keeper(self.elsewhere)
        self.assertEqual(second.ping(), [])
        second.disconnect()
        third = self.keeper(self.here)
        self.assertTrue(third.connack.session_present)
        self.assertEqual(third.ping() + third.ping(), [])

    def test_08_retain_handling_is_ignored_for_a_filter_of_a_resumed_session(self):
        """1: the filter is not new, so nothing comes; 2: never; 0: again."""
        self.retained("a", "kept")
        for handling, expected in ((SEND_IF_NEW, {b"end"}), (DO_NOT_SEND, {b"end"}), (0, {b"kept", b"end"})):
            client = self.keeper(self.here, f"h{handling}")
            client.subscribe((self.topic("a"), 1 | DO_NOT_SEND))
            client.disconnect()
            again = self.keeper(self.elsewhere, f"h{handling}")
            again.subscribe((self.topic("a"), 1 | handling), (self.topic("end"), 1))
            self.publisher(f"p{handling}").publish(self.topic("end"), "end", qos=1)
            # What is retained may come before or behind what is published since to another topic.
            self.assertEqual({again.take_message().payload for _ in expected}, expected)
            self.assertEqual(again.ping(), [])
            self.watcher.take_message()

    def test_09_retain_as_published_is_lost_in_the_queue(self):
        """Messages that waited keep the flag if, and only if, the subscription asks for it."""
        sleeper = self.keeper(self.here, "sleeper")
        sleeper.subscribe((self.topic("keeps"), 1 | RETAIN_AS_PUBLISHED), (self.topic("clears"), 1))
        sleeper.disconnect()
        self.retained("keeps", "keeps")
        self.retained("clears", "clears")
        again = self.keeper(self.elsewhere, "sleeper")
        flags = {one.payload: one.retain for one in (again.take_message(), again.take_message())}
        self.assertEqual(flags, {b"keeps": True, b"clears": False})

    def test_10_a_retained_message_comes_with_retain_0_for_a_new_subscription(self):
        """Whatever Retain As Published says."""
        self.retained("a", "kept")
        for version, options in ((5, 0), (5, RETAIN_AS_PUBLISHED), (4, 0), (3, 0)):
            client = self.raw(self.here, f"c{version}-{options}", version)
            client.subscribe((self.topic("a"), 1 | options))
            self.assertTrue(client.take_message().retain)

    def test_11_a_retained_message_lacks_the_subscription_identifier(self):
        """That of the SUBSCRIBE it comes for."""
        self.retained("a", "kept")
        client = self.raw(self.here)
        client.subscribe((self.topic("+"), 1), props=((Property.SUBSCRIPTION_IDENTIFIER, 268435455),))
        self.assertEqual(client.take_message().values(Property.SUBSCRIPTION_IDENTIFIER), [268435455])

    def test_12_the_expiry_of_a_retained_message_stands_still(self):
        """It counts down while it is kept, and ends it."""
        self.retained("long", "long", props=((Property.MESSAGE_EXPIRY_INTERVAL, 100),))
        self.retained("short", "short", props=((Property.MESSAGE_EXPIRY_INTERVAL, 1),))
        # The passing of time is what is tested.
        time.sleep(1.3)
        client = self.subscriber((self.topic("long"), 1), (self.topic("short"), 1))
        came = client.take_message()
        self.assertEqual(came.payload, b"long")
        self.assertTrue(50 < came.value(Property.MESSAGE_EXPIRY_INTERVAL) < 100, came)
        self.assertEqual(client.ping(), [])

    def test_13_a_repeated_qos_2_publish_is_delivered_twice(self):
        """On the same connection and on the next one, before the PUBREL."""
        publisher = self.keeper(self.there, "publisher")
        for dup in (False, True, True):
            publisher.send(publish(self.topic("a"), "once", 2, 7, dup=dup))
            self.assertEqual(publisher.expect(Kind.PUBREC).packet_id, 7)
        publisher.close()
        publisher = self.keeper(self.elsewhere, "publisher")
        publisher.send(publish(self.topic("a"), "once", 2, 7, dup=True))
        publisher.expect(Kind.PUBREC)
        publisher.send(acknowledge(Kind.PUBREL, 7))
        publisher.expect(Kind.PUBCOMP)
        self.assertEqual(self.seen_until_now(), [(self.topic("a"), b"once")])

    def test_14_a_pubrel_that_is_owed_is_not_sent_on_resume(self):
        """The PUBREL comes, and the PUBLISH does not."""
        client = self.keeper(self.here)
        client.subscribe((self.topic("a"), 2))
        self.publisher().publish(self.topic("a"), "x", qos=2)
        came = client.expect(Kind.PUBLISH)
        client.send(acknowledge(Kind.PUBREC, came.packet_id))
        client.expect(Kind.PUBREL)
        client.close()
        again = self.keeper(self.elsewhere)
        self.assertEqual([(one.kind, one.packet_id) for one in again.ping()], [(Kind.PUBREL, came.packet_id)])
        again.send(acknowledge(Kind.PUBCOMP, came.packet_id))
        self.assertEqual(again.ping(), [])

    def test_15_a_message_with_dup_that_was_never_seen_is_dropped(self):
        """In a new session, in one that is resumed, and after its identifier was used and released."""
        publisher = self.keeper(self.there, "publisher")
        for payload in ("new", "released"):
            publisher.send(publish(self.topic("a"), payload, 2, 9, dup=True))
            publisher.expect(Kind.PUBREC)
            publisher.send(acknowledge(Kind.PUBREL, 9))
            publisher.expect(Kind.PUBCOMP)
        publisher.close()
        publisher = self.keeper(self.elsewhere, "publisher")
        publisher.send(publish(self.topic("a"), "resumed", 2, 9, dup=True))
        publisher.expect(Kind.PUBREC)
        came = [payload for _, payload in self.seen_until_now()]
        self.assertEqual(came, [b"new", b"released", b"resumed"])

    def test_16_a_pubrel_on_a_later_connection_loses_what_the_publish_said(self):
        """QoS, RETAIN, topic and payload are those of the PUBLISH; the PUBCOMP has its identifier."""
        publisher = self.keeper(self.there, "publisher")
        publisher.send(publish(self.topic("a"), "whole", 2, 1234, retain=True))
        publisher.expect(Kind.PUBREC)
        publisher.close()
        publisher = self.keeper(self.elsewhere, "publisher")
        publisher.send(acknowledge(Kind.PUBREL, 1234))
        came = publisher.expect(Kind.PUBCOMP)
        self.assertEqual((came.packet_id, came.reason_code), (1234, 0))
        came = self.watcher.take_message()
        self.assertEqual((came.topic, came.payload, came.qos, came.retain), (self.topic("a"), b"whole", 2, True))

    def test_17_dup_is_missing_or_messages_are_repeated_on_a_living_connection(self):
        """Nothing comes twice while the connection lives, and all that is owed comes with DUP on the next."""
        client = self.keeper(self.here)
        client.subscribe((self.topic("a"), 2))
        publisher = self.publisher()
        for qos in (1, 2):
            publisher.publish(self.topic("a"), f"{qos}", qos=qos)
        first = [client.expect(Kind.PUBLISH) for _ in range(2)]
        # Longer than brokers that repeat do wait; nothing tells that nothing comes.
        time.sleep(1)
        self.assertEqual(client.ping(), [])
        client.close()
        again = self.keeper(self.elsewhere)
        second = [again.expect(Kind.PUBLISH) for _ in range(2)]
        self.assertEqual([(one.packet_id, one.dup) for one in second], [(one.packet_id, True) for one in first])

    def test_18_overlapping_subscriptions_lose_qos_or_identifiers_or_gain_copies(self):
        """One message, the highest QoS, all identifiers; and a shared subscription beside them has its own."""
        client = self.raw(self.here)
        for number, (name, qos) in enumerate((("a/#", 0), ("a/+", 2), ("+/b", 1), ("a/b", 0)), start=1):
            client.subscribe((self.topic(name), qos), props=((Property.SUBSCRIPTION_IDENTIFIER, number),))
        self.publisher().publish(self.topic("a/b"), "x", qos=2)
        came = client.take_message()
        self.assertEqual((came.qos, sorted(came.values(Property.SUBSCRIPTION_IDENTIFIER))), (2, [1, 2, 3, 4]))
        self.assertEqual(client.ping(), [])

    def test_19_the_receive_maximum_is_exceeded_on_resume_or_by_retained_messages(self):
        """Neither what is owed, nor what is queued, nor what is retained passes the window of the connection."""
        for number in range(6):
            self.retained(f"r/{number}", f"{number}")
        client = self.keeper(self.here)
        client.subscribe((self.topic("q"), 1))
        publisher = self.publisher()
        for number in range(10):
            publisher.publish(self.topic("q"), f"{number}", qos=1)
        for _ in range(10):
            client.expect(Kind.PUBLISH)
        client.close()
        again = self.keeper(self.elsewhere, props=((Property.RECEIVE_MAXIMUM, 3),))
        again.send(subscribe(99, (self.topic("r/+"), 1)))
        open_messages, seen = [], 0
        while seen < 16:
            came = again.receive()
            if came.kind == Kind.SUBACK:
                continue
            seen += 1
            open_messages.append(came.packet_id)
            self.assertLessEqual(len(open_messages), 3)
            if len(open_messages) == 3:
                self.assertEqual([one for one in again.ping() if one.kind != Kind.SUBACK], [], "a fourth")
                again.send(*(acknowledge(Kind.PUBACK, number) for number in open_messages))
                open_messages.clear()

    def test_20_the_clients_maximum_packet_size_is_exceeded_by_a_byte_or_two(self):
        """With and without packet identifier, subscription identifier and expiry: the size is that of the whole packet.
        """
        for qos, identifier in ((0, None), (1, None), (1, 300), (2, 7)):
            for extra in ((), ((Property.MESSAGE_EXPIRY_INTERVAL, 600),)):
                role = f"{qos}-{identifier}-{len(extra)}"
                client = self.raw(self.here, role, props=((Property.MAXIMUM_PACKET_SIZE, 120),))
                props = ((Property.SUBSCRIPTION_IDENTIFIER, identifier),) if identifier else ()
                client.subscribe((self.topic(role), qos), props=props)
                publisher = self.publisher(f"p-{role}")
                room = 120 - len(publish(self.topic(role), b"", qos, 1 if qos else None, props=(*extra, *props)))
                for size in (room + 2, room + 1, room, 0):
                    publisher.publish(self.topic(role), bytes(size), qos=qos, props=extra)
                came = [client.take_message() for _ in range(2)]
                self.assertEqual([(one.size, len(one.payload)) for one in came], [(120, room), (120 - room, 0)], role)
        self.watcher.close()

    def test_22_reasons_push_answers_over_the_clients_maximum(self):
        """CONNACK, SUBACK, PUBACK and DISCONNECT, at every size from that of our CONNACK on."""
        smallest = self.raw(self.here).connack.size
        for maximum in range(smallest, smallest + 20):
            client = self.raw(self.here, "small", props=((Property.MAXIMUM_PACKET_SIZE, maximum),))
            client.send(subscribe(1, ("$thicket/#", 1)), publish("$thicket/x", "x", 1, 2), PINGREQ, b"\xc1\x00")
            came = client.until_closed()
            self.assertEqual([one for one in came if one.size > maximum], [])
            self.assertEqual({one.kind for one in came} >= {Kind.SUBACK, Kind.PUBACK, Kind.DISCONNECT}, True)

    def test_23_offline_members_starve_a_group_or_take_its_messages_with_them(self):
        """While one member is there, it gets all; what an ended member left goes to those who remain."""
        name = f"$share/g/{self.topic('s')}"
        away = self.keeper(self.elsewhere, "away")
        away.subscribe((name, 1))
        away.disconnect()
        leaves = self.raw(self.there, "leaves", props=((Property.RECEIVE_MAXIMUM, 1),))
        leaves.subscribe((name, 1))
        publisher = self.publisher()
        for number in range(5):
            publisher.publish(self.topic("s"), f"{number}", qos=1)
        self.assertEqual(leaves.expect(Kind.PUBLISH).payload, b"0")
        stays = self.raw(self.here, "stays")
        stays.subscribe((name, 1))
        leaves.close()
        came = set()
        while came < {b"0", b"1", b"2", b"3", b"4"}:
            came.add(stays.take_message().payload)
        self.assertEqual(self.keeper(self.elsewhere, "away").ping(), [])

    def test_24_shared_subscriptions_break_the_rules_of_others(self):
        """No retained messages, no No Local, no empty name; with identifier and with the QoS granted."""
        self.retained("s", "kept")
        client = self.raw(self.here)
        props = ((Property.SUBSCRIPTION_IDENTIFIER, 5),)
        self.assertEqual(client.subscribe((f"$share/g/{self.topic('s')}", 1), props=props).codes, [1])
        self.publisher().publish(self.topic("s"), "live", qos=2)
        came = client.take_message()
        self.assertEqual((came.payload, came.qos, came.retain), (b"live", 1, False))
        self.assertEqual(came.values(Property.SUBSCRIPTION_IDENTIFIER), [5])
        bad_names = ((f"$share/g/{self.topic('x')}", NO_LOCAL), ("$share//x", 0), ("$share/g", 0), ("$share/+/x", 0))
        for name, options in bad_names:
            with self.subTest(name), RawClient(self.here) as bad:
                bad.connect(self.client_id("bad"))
                bad.send(subscribe(1, (name, options)))
                came = bad.receive()
                self.assertGreaterEqual((came.codes or [came.reason_code])[0], 0x80)
        with RawClient(self.here) as bad:
            bad.connect(self.client_id("bad"))
            bad.send(subscribe(1, (f"$share/g/{self.topic('x')}", NO_LOCAL)))
            self.assertEqual([one.reason_code for one in bad.until_closed()], [PROTOCOL_ERROR])

    def test_25_a_malformed_connect_is_let_in(self):
        """Flags against payload, will QoS and RETAIN without a will, repeated properties, bad UTF-8, bytes too many."""
        head = binary("MQTT") + b"\x05%c\x00\x3c"
        twice = properties((Property.RECEIVE_MAXIMUM, 5), (Property.RECEIVE_MAXIMUM, 5))
        cases = {
            "user name without flag": (0x02, properties() + binary("c") + binary("u")),
            "flag without user name": (0x82, properties() + binary("c")),
            "flag without will": (0x06, properties() + binary("c")),
            "will QoS without will": (0x0A, properties() + binary("c")),
            "will RETAIN without will": (0x22, properties() + binary("c")),
            "reserved flag": (0x03, properties() + binary("c")),
            "a property twice": (0x02, twice + binary("c")),
            "bad UTF-8": (0x02, properties() + binary(b"\xc3")),
            "bytes too many": (0x02, properties() + binary("c") + b"\x00"),
        }
        for name, (flags, rest) in cases.items():
            with self.subTest(name), RawClient(self.there) as client:
                client.send(packet(Kind.CONNECT, 0, head % flags + rest), PINGREQ)
                came = client.until_closed()
                self.assertEqual([one for one in came if one.kind != Kind.CONNACK or one.reason_code < 0x80], [])

    def test_26_a_subscription_identifier_from_a_client_or_of_0_is_accepted(self):
        """In a PUBLISH none is allowed; in a SUBSCRIBE 0 is not."""
        for data in (
            publish(self.topic("a"), "x", props=((Property.SUBSCRIPTION_IDENTIFIER, 1),)),
            publish(self.topic("a"), "x", 1, 1, props=((Property.SUBSCRIPTION_IDENTIFIER, 1),)),
            subscribe(1, (self.topic("a"), 0), props=((Property.SUBSCRIPTION_IDENTIFIER, 0),)),
        ):
            client = self.raw(self.there)
            client.send(data)
            self.assertEqual([one.reason_code for one in client.until_closed()], [PROTOCOL_ERROR])
        self.assertEqual(self.seen_until_now(), [])

    def test_27_a_truncated_packet_or_one_of_the_server_or_a_strange_topic_crashes(self):
        """PUBLISH and SUBSCRIBE cut at every byte, what only a server sends, and topics from outside ASCII."""
        wholes = [publish("a/b", "x", 2, 7, props=((Property.CONTENT_TYPE, "t"),)), subscribe(7, ("a/+", 1), ("b", 0))]
        for whole in wholes:
            for end in range(len(whole) - 2):
                with RawClient(self.there) as client:
                    cut = whole[:1] + bytes([end]) + whole[2 : 2 + end]
                    client.send(connect(self.client_id("cut")), cut, b"\xe0\x00")
                    client.until_closed()
        for data in (b"\x20\x03\x00\x00\x00", b"\x90\x04\x00\x01\x00\x00", b"\xb0\x04\x00\x01\x00\x00", b"\xd0\x00"):
            client = self.raw(self.there)
            client.send(data)
            self.assertEqual([one.reason_code for one in client.until_closed()], [PROTOCOL_ERROR])
        publisher = self.publisher()
        for name in ("é", "日本", "\U0010ffff", "a\u0301", "\ufeff", "😀/+x".replace("+", "")):
            publisher.publish(self.topic(name), name, qos=1)
            self.assertEqual(self.watcher.take_message().topic, self.topic(name))

    def test_28_memory_follows_claims_and_clients_that_do_not_read(self):
        """A hundred claims of 256 MB, one subscriber that never reads, one session that never comes: others go on."""
        before = [node.memory_bytes("VmRSS") for node in self.cluster.nodes]
        idle = self.subscriber((self.topic("m"), 0), role="idle")
        away = self.keeper(self.here, "away")
        away.subscribe((self.topic("m"), 1))
        away.disconnect()
        claims = [RawClient(self.there) for _ in range(100)]
        for number, client in enumerate(claims):
            self.addCleanup(client.close)
            client.send(connect(self.client_id(f"claim-{number}")), b"\x30", variable_integer(1_000_000), b"\x00")
        publisher = self.publisher()
        for number in range(100):
            publisher.publish(self.topic("m"), number.to_bytes(4, "big") + bytes(100_000), qos=1)
            self.assertEqual(self.watcher.take_message().payload[:4], number.to_bytes(4, "big"))
        for node, memory in zip(self.cluster.nodes, before, strict=True):
            self.assertLess(node.memory_bytes("VmRSS") - memory, 60_000_000, node.name)
        idle.close()

    def test_29_keep_alive_is_enforced_too_early_never_or_for_0(self):
        """Not before one and a half times, also while half a packet dribbles in, and 0 means none."""
        began = time.monotonic()
        silent = self.raw(self.there, "silent", keep_alive=1)
        dribbles = self.raw(self.there, "dribbles", keep_alive=1)
        never = self.raw(self.there, "never", keep_alive=0)
        dribbles.send(b"\x30\x7f\x00")
        sent = 0
        silent.socket.settimeout(0.1)
        while sent < 100:
            try:
                if not silent.socket.recv(100):
                    break
            except TimeoutError:
                pass
            sent += 1
            try:
                dribbles.send(b"\x01")
            except OSError:
                pass
        self.assertGreaterEqual(time.monotonic() - began, 1.4)
        self.assertLess(sent, 100, "never closed")
        self.assertEqual({one.reason_code for one in dribbles.until_closed()} - {KEEP_ALIVE_TIMEOUT}, set())
        self.assertEqual(never.ping(), [])

    def test_30_order_is_lost_on_resume_or_suback_comes_too_early(self):
        """What was in flight comes first, then what was queued; and a SUBACK means that the next message comes."""
        client = self.keeper(self.here, props=((Property.RECEIVE_MAXIMUM, 5),))
        client.subscribe((self.topic("q"), 1))
        publisher = self.publisher()
        for number in range(20):
            publisher.publish(self.topic("q"), f"{number}", qos=1)
        for _ in range(5):
            client.expect(Kind.PUBLISH)
        client.close()
        for number in range(20, 30):
            publisher.publish(self.topic("q"), f"{number}", qos=1)
        again = self.keeper(self.elsewhere)
        self.assertEqual([int(again.take_message().payload) for _ in range(30)], list(range(30)))
        for number in range(30):
            again.subscribe((self.topic(f"new/{number}"), 0))
            publisher.publish(self.topic(f"new/{number}"), f"{number}")
            self.assertEqual(again.take_message().payload, b"%d" % number)
            again.send(unsubscribe(7, self.topic(f"new/{number}")))
            again.expect(Kind.UNSUBACK)


class PitfallsOnOneNode(PitfallCases, OneNode):
    pass


class PitfallsAcrossNodes(PitfallCases, ThreeNodes):
    pass


class OwnMaximumPacketSize(RawCases, OneNode):
    """A limit of one connection: the node it is at matters to nobody."""

    arguments = ("--maximum-packet-size", "300")

    def test_21_our_own_maximum_packet_size_is_enforced_a_few_bytes_late(self):
        """300 bytes are taken and 301 are not, whichever packet has them; the header alone is enough to tell."""
        client = self.raw(self.here)
        self.assertEqual(client.connack.value(Property.MAXIMUM_PACKET_SIZE), 300)
        for make in (
            lambda size: publish("t", bytes(size)),
            lambda size: publish("t", bytes(size), 1, 1),
            lambda size: publish("t", b"", props=((Property.USER_PROPERTY, ("k", "v" * size)),)),
            lambda size: subscribe(1, ("f" * size, 0)),
            lambda size: connect("c" * size),
        ):
            room = next(size for size in range(300) if len(make(size)) == 300)
            for size, fits in ((room, True), (room + 1, False), (room + 2, False)):
                data = make(size)
                with RawClient(self.here) as other:
                    is_connect = data[0] >> 4 == Kind.CONNECT
                    other.send(*([] if is_connect else [connect(self.client_id("other"))]), data, PINGREQ)
                    codes = []
                    try:
                        while (came := other.receive()).kind != Kind.PINGRESP:
                            codes.append(came.reason_code)
                        self.assertTrue(fits, f"{len(data)} bytes were taken")
                    except Closed:
                        self.assertFalse(fits, f"{len(data)} bytes were refused")
                        self.assertEqual(codes[-1:] or [PACKET_TOO_LARGE], [PACKET_TOO_LARGE])
        with RawClient(self.here) as other:
            other.connect(self.client_id("other"))
            other.send(b"\x30", variable_integer(298))
            self.assertEqual([one.reason_code for one in other.until_closed()], [PACKET_TOO_LARGE])


class Restart(RawCases, OneNode):
    """A node that is stopped and started again."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.arguments = ("--data", str(pathlib.Path(directory.name) / "data"))
        super().setUpClass()

    def restart(self):
        """Stops the node and starts another with the same data."""
        self.cluster.stop()
        self.cluster.close_logs()
        type(self).cluster = Cluster(self.size, self.arguments)
        self.here = self.cluster.nodes[0].port
        self.log_offsets = [node.log_size() for node in self.cluster.nodes]

    def test_06_the_expiry_of_a_session_starts_anew_or_stands_still_over_a_restart(self):
        """The time before, during and after the restart is one time."""
        self.raw(self.here, "short", props=expiry(3)).close()
        self.raw(self.here, "long", props=expiry(600)).close()
        began = time.monotonic()
        time.sleep(1)
        self.restart()
        if not self.raw(self.here, "long", clean_start=False, props=expiry(600)).connack.session_present:
            # Whether sessions survive at all is tested with the storage of a node.
            self.skipTest("this binary keeps no sessions over a restart")
        # The passing of time is what is tested: three seconds in all, of which less than three since the restart.
        time.sleep(max(0, began + 3.5 - time.monotonic()))
        self.assertFalse(self.raw(self.here, "short", clean_start=False).connack.session_present)
