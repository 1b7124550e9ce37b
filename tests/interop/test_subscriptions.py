"""Which messages a client gets: filters, identifiers, options, overlapping and shared subscriptions."""

import collections
import time

from nodes import OneNode, ThreeNodes
from wire import Kind, Property, RawCases, acknowledge, subscribe, unsubscribe

# How long messages are waited for that are on their way between nodes, s.
PATIENCE = 30
NO_LOCAL = 0x04
RETAIN_AS_PUBLISHED = 0x08
NO_SUBSCRIPTION_EXISTED = 0x11

# Filters below a test's own prefix, the topics they are tried with, and which of these they match (MQTT 5.0, 4.7.1).
TOPICS = ["a", "a/b", "a/b/c", "a/", "/a", "a//c", "", "/", "A", "a b", "é", "e\u0301", "\ufeffa", "$a", "$a/b"]
MATCHES = {
    "a": ["a"],
    "a/b": ["a/b"],
    "a/#": ["a", "a/b", "a/b/c", "a/", "a//c"],
    "a/+": ["a/b", "a/"],
    "+": ["a", "", "A", "a b", "é", "e\u0301", "\ufeffa", "$a"],
    "+/+": ["a/b", "a/", "/a", "/", "$a/b"],
    "+/+/+": ["a/b/c", "a//c"],
    "/+": ["/a", "/"],
    "+/": ["a/", "/"],
    "a//c": ["a//c"],
    "a/+/c": ["a/b/c", "a//c"],
    "+/b/#": ["a/b", "a/b/c", "$a/b"],
    "#": TOPICS,
    "é": ["é"],
    "\ufeffa": ["\ufeffa"],
    "/": ["/"],
    "": [""],
    "a/b/c/#": ["a/b/c"],
    "a/+/#": ["a/b", "a/b/c", "a/", "a//c"],
}


class SubscriptionCases(RawCases):
    """Cases for one node and for several."""

    def test_filters_match_the_topics_they_should(self):
        """[MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-4] [MQTT-1.5.4-3]: levels may be empty, nothing is normalized."""
        filters = list(MATCHES)
        subscriber = self.raw(self.here, "subscriber")
        for number, name in enumerate(filters):
            code = subscriber.subscribe((self.topic(name), 1), props=((Property.SUBSCRIPTION_IDENTIFIER, number + 1),))
            self.assertEqual(code.codes, [1], name)
        publisher = self.publisher()
        for topic in TOPICS:
            publisher.publish(self.topic(topic), topic, qos=1)
        publisher.publish(self.topic("last"), "\0end", qos=1)
        matched = collections.defaultdict(list)
        for came in self.messages_until(subscriber, b"\0end"):
            self.assertEqual(came.topic, self.topic(came.payload.decode()), "[MQTT-3.3.2-3]")
            for identifier in came.values(Property.SUBSCRIPTION_IDENTIFIER):
                matched[filters[identifier - 1]].append(came.payload.decode())
        for name in filters:
            with self.subTest(name):
                self.assertEqual(matched[name], MATCHES[name])

    def test_filters_that_start_with_a_wildcard_match_no_dollar_topics(self):
        """[MQTT-4.7.2-1]"""
        subscriber = self.subscriber(("#", 1), ("+/+", 1), ("+/+/#", 1), ("$share/g/#", 1))
        named = self.subscriber((f"${self.unique}/#", 1), role="named")
        publisher = self.publisher()
        publisher.publish(f"${self.unique}/x", "hidden", qos=1)
        publisher.publish(self.topic("x"), "end", qos=1)
        self.assertEqual(named.take_message().payload, b"hidden")
        payloads = []
        while b"end" not in payloads:
            payloads.append(subscriber.take_message().payload)
        self.assertNotIn(b"hidden", payloads)

    def test_topics_without_a_prefix_may_have_empty_levels(self):
        """[MQTT-4.7.3-1]: at the first level too, `/` alone included."""
        topics = ["/", "//", f"/{self.unique}", f"{self.unique}/", f"{self.unique}//"]
        subscriber = self.subscriber(*((topic, 1) for topic in topics))
        publisher = self.publisher()
        for topic in topics:
            publisher.publish(topic, topic, qos=1)
            self.assertEqual(subscriber.take_message().topic, topic)

    def test_a_payload_may_be_empty(self):
        """A zero-length payload is a message like any other (3.3.3)."""
        subscriber = self.subscriber((self.topic(), 2))
        publisher = self.publisher()
        for qos in (0, 1, 2):
            publisher.publish(self.topic(), b"", qos=qos)
            came = subscriber.take_message()
            self.assertEqual((came.payload, came.qos), (b"", qos))

    def test_properties_of_a_message_are_passed_on_as_they_are(self):
        """[MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]"""
        users = [("b", "1"), ("a", "2"), ("b", "1"), ("", ""), ("é", "\ufeff")]
        props = (
            (Property.USER_PROPERTY, users[0]),
            (Property.PAYLOAD_FORMAT_INDICATOR, 1),
            (Property.CONTENT_TYPE, "text/plain; é"),
            (Property.RESPONSE_TOPIC, "answers/here"),
            (Property.CORRELATION_DATA, bytes(range(256))),
            *((Property.USER_PROPERTY, pair) for pair in users[1:]),
        )
        subscriber = self.subscriber((self.topic(), 2))
        publisher = self.publisher()
        for qos in (0, 1, 2):
            publisher.publish(self.topic(), "x", qos=qos, props=props)
            came = subscriber.take_message()
            self.assertEqual(came.values(Property.USER_PROPERTY), users)
            self.assertEqual(came.value(Property.PAYLOAD_FORMAT_INDICATOR), 1)
            self.assertEqual(came.value(Property.CONTENT_TYPE), "text/plain; é")
            self.assertEqual(came.value(Property.RESPONSE_TOPIC), "answers/here")
            self.assertEqual(came.value(Property.CORRELATION_DATA), bytes(range(256)))
            self.assertEqual(len(came.properties), 9, f"properties nobody sent: {came.properties}")

    def test_overlapping_subscriptions_respect_the_highest_qos_and_name_all_identifiers(self):
        """[MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4] [MQTT-3.3.4-5]: in one copy or in one for each subscription."""
        subscriber = self.raw(self.here, "subscriber")
        for identifier, (name, qos) in enumerate([("a/#", 0), ("a/+", 2), ("a/b", 1), ("other", 2)], start=1):
            subscriber.subscribe((self.topic(name), qos), props=((Property.SUBSCRIPTION_IDENTIFIER, identifier),))
        publisher = self.publisher()
        publisher.publish(self.topic("a/b"), "x", qos=2)
        publisher.publish(self.topic("other"), "end", qos=2)
        came = self.messages_until(subscriber, b"end")
        identifiers = [one.values(Property.SUBSCRIPTION_IDENTIFIER) for one in came]
        self.assertEqual(max(one.qos for one in came), 2)
        self.assertIn(len(came), (1, 3))
        self.assertEqual(sorted(sum(identifiers, [])), [1, 2, 3])

    def test_an_identical_filter_replaces_the_old_subscription(self):
        """[MQTT-3.8.4-3]: its QoS, options and identifier are the new ones, and one message comes once."""
        subscriber = self.raw(self.here, "subscriber")
        for qos, identifier in ((2, 5), (0, 300), (1, 268435455)):
            subscriber.subscribe((self.topic(), qos), props=((Property.SUBSCRIPTION_IDENTIFIER, identifier),))
        publisher = self.publisher()
        publisher.publish(self.topic(), "x", qos=2)
        came = subscriber.take_message()
        self.assertEqual((came.qos, came.values(Property.SUBSCRIPTION_IDENTIFIER)), (1, [268435455]))
        subscriber.subscribe((self.topic(), 1))
        publisher.publish(self.topic(), "end", qos=2)
        came = subscriber.take_message()
        self.assertEqual((came.payload, came.values(Property.SUBSCRIPTION_IDENTIFIER)), (b"end", []))

    def test_no_local_keeps_a_clients_own_messages_from_it(self):
        """[MQTT-3.8.3-3]"""
        client = self.raw(self.here, "talker")
        client.subscribe((self.topic("own"), 1 | NO_LOCAL), (self.topic("echo"), 1))
        client.publish(self.topic("own"), "own", qos=1)
        client.publish(self.topic("echo"), "echo", qos=1)
        self.assertEqual(client.take_message().payload, b"echo")
        self.publisher().publish(self.topic("own"), "from another", qos=1)
        self.assertEqual(client.take_message().payload, b"from another")

    def test_retain_as_published_keeps_the_flag(self):
        """[MQTT-3.3.1-12] [MQTT-3.3.1-13]"""
        keeps = self.subscriber((self.topic(), 1 | RETAIN_AS_PUBLISHED), role="keeps")
        clears = self.subscriber((self.topic(), 1), role="clears")
        publisher = self.publisher()
        for retain in (True, False):
            publisher.publish(self.topic(), "x", qos=1, retain=retain)
            self.assertEqual(keeps.take_message().retain, retain)
            self.assertEqual(clears.take_message().retain, False)

    def test_several_filters_are_answered_in_their_order(self):
        """[MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT-3.9.3-1] [MQTT-3.10.4-5] [MQTT-3.10.4-6] [MQTT-3.11.3-1]"""
        client = self.raw(self.here)
        client.send(subscribe(300, *((self.topic(f"{i}"), qos) for i, qos in enumerate((2, 0, 1, 2)))))
        came = client.expect(Kind.SUBACK)
        self.assertEqual((came.packet_id, came.codes), (300, [2, 0, 1, 2]))
        client.send(unsubscribe(65535, self.topic("1"), self.topic("never"), self.topic("1"), self.topic("3")))
        came = client.expect(Kind.UNSUBACK)
        unknown = NO_SUBSCRIPTION_EXISTED
        self.assertEqual((came.packet_id, came.codes), (65535, [0, unknown, unknown, 0]))

    def test_nothing_new_comes_after_unsubscribe_but_what_began_is_finished(self):
        """[MQTT-3.10.4-1] [MQTT-3.10.4-2] [MQTT-3.10.4-3]: only the very same filter is deleted."""
        subscriber = self.subscriber((self.topic("a/+"), 2), (self.topic("end"), 1))
        publisher = self.publisher()
        publisher.publish(self.topic("a/b"), "began", qos=2)
        began = subscriber.expect(Kind.PUBLISH)
        subscriber.send(unsubscribe(1, self.topic("a/b"), self.topic("a/#"), version=5))
        self.assertEqual(subscriber.expect(Kind.UNSUBACK).codes, [NO_SUBSCRIPTION_EXISTED] * 2)
        subscriber.send(unsubscribe(2, self.topic("a/+"), version=5))
        self.assertEqual(subscriber.expect(Kind.UNSUBACK).codes, [0])
        subscriber.send(acknowledge(Kind.PUBREC, began.packet_id))
        subscriber.expect_answer(Kind.PUBREL, began.packet_id)
        subscriber.send(acknowledge(Kind.PUBCOMP, began.packet_id))
        publisher.publish(self.topic("a/b"), "too late", qos=1)
        publisher.publish(self.topic("end"), "end", qos=1)
        self.assertEqual(self.messages_until(subscriber, b"end"), [])

    def test_a_message_published_after_the_suback_arrives(self):
        """Pitfall: SUBACK sent before the subscription works. Many times, each with a filter of its own."""
        publisher = self.publisher()
        subscriber = self.raw(self.here, "subscriber")
        for number in range(50):
            subscriber.subscribe((self.topic(f"{number}/#"), 0))
            publisher.publish(self.topic(f"{number}/x"), f"{number}")
            self.assertEqual(subscriber.take_message().payload, b"%d" % number)

    def test_a_filter_of_3_1_1_is_granted_as_asked(self):
        """[MQTT-3.8.4-5 v3.1.1] [MQTT-3.10.4-5 v3.1.1]: and UNSUBACK has no codes there."""
        for version in (3, 4):
            client = self.raw(self.here, f"v{version}", version)
            codes = client.subscribe(*((self.topic(qos), qos) for qos in (0, 1, 2))).codes
            self.assertEqual(codes, [0, 1, 2])
            client.send(unsubscribe(9, self.topic(0), self.topic("never"), version=version))
            came = client.expect(Kind.UNSUBACK)
            self.assertEqual((came.packet_id, came.codes), (9, []))

    def test_adversarial_wildcards_do_not_slow_the_rest_down(self):
        """Matching is linear in the depth however many + a client uses: here 2^12 paths could match."""
        subscriber = self.raw(self.here, "adversary")
        depth = 12
        for number in range(0, 1 << depth, 16):
            levels = ["+" if number >> bit & 1 else "a" for bit in range(depth)]
            subscriber.send(subscribe(number % 65535 + 1, (self.topic("/".join(levels)), 0)))
        for _ in range(0, 1 << depth, 16):
            subscriber.expect(Kind.SUBACK)
        publisher = self.publisher()
        publisher.publish(self.topic("/".join("a" * depth)), "through", qos=1)
        self.assertEqual(subscriber.take_message().payload, b"through")


class SharedCases(RawCases):
    """Shared subscriptions (4.8.2), on one node and across several."""

    def member(self, port, role, qos=1, **options):
        """A member of the group of this test."""
        client = self.keeper(port, role, **options)
        self.assertEqual(client.subscribe((f"$share/group/{self.topic('#')}", qos)).codes, [qos])
        return client

    def drain(self, clients, count):
        """Takes messages wherever they come until there are `count`; returns them by client."""
        came = collections.defaultdict(list)
        deadline = time.monotonic() + PATIENCE
        while sum(map(len, came.values())) < count:
            self.assertLess(time.monotonic(), deadline, f"came: {came}")
            for index, client in enumerate(clients):
                client.send(b"\xc0\x00")
                while (one := client.receive()).kind != Kind.PINGRESP:
                    self.assertEqual(one.kind, Kind.PUBLISH)
                    came[index].append(one)
                    if one.qos == 1:
                        client.send(acknowledge(Kind.PUBACK, one.packet_id))
        return came

    def test_each_message_goes_to_one_member_and_each_member_gets_some(self):
        """4.8.2: the subscribers of another group and of no group get all."""
        members = [self.member(port, f"m{i}") for i, port in enumerate((self.here, self.there, self.elsewhere))]
        other = self.subscriber((f"$share/other/{self.topic('#')}", 1), role="other")
        alone = self.subscriber((self.topic("#"), 1), role="alone")
        publisher = self.publisher()
        sent = [f"{number}".encode() for number in range(60)]
        for payload in sent:
            publisher.publish(self.topic("x"), payload, qos=1)
        came = self.drain(members, len(sent))
        self.assertEqual(sorted(one.payload for each in came.values() for one in each), sorted(sent))
        self.assertEqual(sorted(came), [0, 1, 2], "a member was starved")
        self.assertEqual([other.take_message().payload for _ in sent], sent)
        self.assertEqual([alone.take_message().payload for _ in sent], sent)

    def test_the_granted_qos_of_a_member_holds_and_its_identifier_comes(self):
        """[MQTT-4.8.2-3] [MQTT-3.3.4-3]"""
        for granted in (0, 1, 2):
            member = self.raw(self.here, f"member-{granted}")
            props = ((Property.SUBSCRIPTION_IDENTIFIER, 42),)
            member.subscribe((f"$share/group/{self.topic(granted)}", granted), props=props)
            self.publisher(f"publisher-{granted}").publish(self.topic(granted), "x", qos=2)
            came = member.take_message()
            self.assertEqual((came.qos, came.values(Property.SUBSCRIPTION_IDENTIFIER)), (granted, [42]))

    def test_an_offline_member_starves_nobody(self):
        """4.8.2: while a member is connected, messages need not wait for one that is not."""
        away = self.member(self.elsewhere, "away")
        present = self.member(self.here, "present")
        away.disconnect()
        publisher = self.publisher()
        # The publisher's node hears a moment later that it has gone.
        deadline, in_a_row = time.monotonic() + PATIENCE, 0
        while in_a_row < 10:
            self.assertLess(time.monotonic(), deadline, "the member that has gone is still chosen")
            publisher.publish(self.topic("x"), "probe", qos=1)
            probes = present.ping()
            for probe in probes:
                present.send(acknowledge(Kind.PUBACK, probe.packet_id))
            in_a_row = in_a_row + 1 if probes else 0
        for number in range(20):
            publisher.publish(self.topic("x"), f"{number}", qos=1)
        came = self.drain([present], 20)
        self.assertEqual([int(one.payload) for one in came[0]], list(range(20)))

    def test_a_departed_member_starves_nobody(self):
        """A member that unsubscribed, one whose session ended, one that just vanished without a session."""
        stays = self.member(self.here, "stays")
        leaves = self.member(self.elsewhere, "leaves")
        leaves.send(unsubscribe(9, f"$share/group/{self.topic('#')}"))
        self.assertEqual(leaves.expect(Kind.UNSUBACK).codes, [0])
        ends = self.raw(self.there, "ends")
        ends.subscribe((f"$share/group/{self.topic('#')}", 1))
        ends.disconnect()
        publisher = self.publisher()
        for number in range(10):
            publisher.publish(self.topic("x"), f"{number}", qos=1)
        self.assertEqual(len(self.drain([stays], 10)[0]), 10)
        self.assertEqual(leaves.ping(), [])

    def test_qos_1_messages_a_member_left_unacknowledged_go_to_another_when_its_session_ends(self):
        """4.8.2 (QoS 1: on another member's behalf when the session ends before the acknowledgement)."""
        quits = self.raw(self.here, "quits")
        quits.subscribe((f"$share/group/{self.topic('#')}", 1))
        publisher = self.publisher()
        publisher.publish(self.topic("x"), "unacknowledged", qos=1)
        self.assertEqual(quits.expect(Kind.PUBLISH).payload, b"unacknowledged")
        takes_over = self.member(self.here, "takes-over")
        quits.close()
        self.assertEqual(takes_over.take_message().payload, b"unacknowledged")

    def test_qos_1_messages_queued_for_a_member_go_to_another_when_its_session_ends(self):
        """4.8.2: one in flight, the rest behind its Receive Maximum; none is lost with the session."""
        for end in ("close", "disconnect", "unsubscribe"):
            with self.subTest(end):
                name = f"$share/{end}/{self.topic(f'{end}/#')}"
                quits = self.raw(self.here, f"quits-{end}", props=((Property.RECEIVE_MAXIMUM, 1),))
                quits.subscribe((name, 1))
                publisher = self.publisher(f"publisher-{end}")
                for number in range(5):
                    publisher.publish(self.topic(f"{end}/x"), f"{number}", qos=1)
                self.assertEqual(quits.expect(Kind.PUBLISH).payload, b"0")
                heir = self.raw(self.elsewhere, f"heir-{end}")
                heir.subscribe((name, 1))
                if end == "unsubscribe":
                    quits.send(unsubscribe(9, name))
                    quits.expect(Kind.UNSUBACK)
                    quits.disconnect()
                else:
                    getattr(quits, end)()
                came = set()
                while not came >= {1, 2, 3, 4}:
                    came.add(int(heir.take_message().payload))

    def test_a_qos_2_message_under_way_stays_with_its_member(self):
        """[MQTT-4.8.2-4] [MQTT-4.8.2-5]: finished when it is back, and given to nobody if it never is."""
        returns = self.member(self.here, "returns", qos=2)
        publisher = self.publisher()
        publisher.publish(self.topic("x"), "under way", qos=2)
        first = returns.expect(Kind.PUBLISH)
        other = self.member(self.here, "other", qos=2)
        returns.close()
        again = self.keeper(self.elsewhere, "returns")
        came = again.take_message()
        self.assertEqual((came.payload, came.packet_id, came.dup), (b"under way", first.packet_id, True))
        again.send(unsubscribe(9, f"$share/group/{self.topic('#')}"))
        again.expect(Kind.UNSUBACK)
        ends = self.raw(self.here, "ends")
        ends.subscribe((f"$share/{self.unique}/{self.topic('lost')}", 2))
        publisher.publish(self.topic("lost"), "lost", qos=2)
        ends.expect(Kind.PUBLISH)
        heir = self.raw(self.here, "heir")
        heir.subscribe((f"$share/{self.unique}/{self.topic('lost')}", 2))
        ends.disconnect()
        publisher.publish(self.topic("lost"), "end", qos=2)
        self.assertEqual(self.messages_until(heir, b"end"), [])
        self.assertEqual({one.payload for one in self.messages_until(other, b"end")}, {b"lost"})

    def test_messages_wait_while_all_members_are_offline(self):
        """4.8.2: the sessions of the group keep QoS 1 messages for later."""
        member = self.member(self.here, "member")
        member.disconnect()
        publisher = self.publisher()
        for number in range(5):
            publisher.publish(self.topic("x"), f"{number}", qos=1)
        back = self.keeper(self.elsewhere, "member")
        self.assertTrue(back.connack.session_present)
        self.assertEqual([back.take_message().payload for _ in range(5)], [b"%d" % i for i in range(5)])

    def test_a_refused_message_is_not_tried_with_another_member(self):
        """[MQTT-4.8.2-6]"""
        refuses = self.member(self.here, "refuses", qos=2)
        publisher = self.publisher()
        publisher.publish(self.topic("x"), "unwanted", qos=2)
        came = refuses.expect(Kind.PUBLISH)
        other = self.member(self.here, "other", qos=2)
        refuses.send(acknowledge(Kind.PUBREC, came.packet_id, 0x83))
        self.assertEqual(refuses.ping(), [])
        refuses.disconnect(props=((Property.SESSION_EXPIRY_INTERVAL, 0),))
        publisher.publish(self.topic("x"), "end", qos=2)
        self.assertEqual(self.messages_until(other, b"end"), [])

    def test_retained_messages_are_not_sent_for_a_shared_subscription(self):
        """4.8.2: whatever the Retain Handling; a filter beside it gets them."""
        self.publisher().publish(self.topic("x"), "retained", qos=1, retain=True)
        watcher = self.subscriber((self.topic("x"), 1), role="watcher")
        self.assertEqual(watcher.take_message().payload, b"retained")
        member = self.member(self.here, "member")
        self.publisher("another").publish(self.topic("x"), "end", qos=1)
        self.assertEqual(self.messages_until(member, b"end"), [])

    def test_a_member_that_also_subscribes_alone_gets_both(self):
        """4.8.2: a shared subscription is apart from a non-shared one of the same filter."""
        both = self.member(self.here, "both")
        both.subscribe((self.topic("#"), 1))
        publisher = self.publisher()
        publisher.publish(self.topic("x"), "twice", qos=1)
        publisher.publish(self.topic("x"), "end", qos=1)
        payloads = [both.take_message().payload for _ in range(4)]
        self.assertEqual(collections.Counter(payloads), {b"twice": 2, b"end": 2})

    def test_a_client_of_3_1_1_may_be_a_member(self):
        """The filter's form is all it takes."""
        member = self.raw(self.here, "older", 4)
        self.assertEqual(member.subscribe((f"$share/group/{self.topic('#')}", 1)).codes, [1])
        self.publisher().publish(self.topic("x"), "shared", qos=1)
        self.assertEqual(member.take_message().payload, b"shared")


class SubscriptionsOnOneNode(SubscriptionCases, OneNode):
    pass


class SubscriptionsAcrossNodes(SubscriptionCases, ThreeNodes):
    pass


class SharedOnOneNode(SharedCases, OneNode):
    pass


class SharedAcrossNodes(SharedCases, ThreeNodes):
    pass
