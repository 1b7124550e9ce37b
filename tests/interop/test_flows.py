"""QoS 0, 1 and 2 as flows of packets: identifiers, acknowledgements, what is owed when, and what order they come in."""

import collections
import time

from nodes import OneNode, ThreeNodes
from wire import (
    NEVER,
    PINGREQ,
    Kind,
    Property,
    RawCases,
    acknowledge,
    disconnect,
    packet,
    publish,
    subscribe,
    unsubscribe,
)

PACKET_IDENTIFIER_NOT_FOUND = 0x92
IMPLEMENTATION_ERROR = 0x83
RECEIVE_MAXIMUM_EXCEEDED = 0x93


def expiry_of_message(seconds):
    """The properties of a PUBLISH that expires."""
    return ((Property.MESSAGE_EXPIRY_INTERVAL, seconds),)


class FlowCases(RawCases):
    """Cases for one node and for several."""

    def sent_twice(self, client, role, count=1):
        """Closes a client and resumes its session; what comes first on the new connection."""
        client.close()
        again = self.keeper(self.elsewhere, role)
        self.assertTrue(again.connack.session_present)
        return again, [again.receive() for _ in range(count)]

    def test_a_message_of_qos_0_has_no_identifier_and_no_answer(self):
        """[MQTT-2.2.1-2] [MQTT-3.3.4-1] [MQTT-4.3.1-1]: two bytes where one would be are payload, in and out."""
        subscriber = self.subscriber((self.topic(), 2))
        publisher = self.publisher()
        publisher.send(publish(self.topic(), b"\x00\x07 looks like an identifier"))
        self.assertEqual(publisher.ping(), [], "QoS 0 is not answered")
        came = subscriber.take_message()
        self.assertEqual((came.qos, came.dup, came.packet_id), (0, False, None))
        self.assertEqual(came.payload, b"\x00\x07 looks like an identifier")
        self.assertEqual(subscriber.ping(), [])

    def test_each_qos_has_its_own_answer_with_the_identifier_of_the_publish(self):
        """[MQTT-3.3.4-1] [MQTT-2.2.1-5] [MQTT-4.3.2-4] [MQTT-4.3.3-8] [MQTT-4.3.3-11] [MQTT-2.3.1-6 v3.1.1]

        Whoever was answered may rely on it: the message is with the subscriber's session.
        """
        for version in (3, 4, 5):
            subscriber = self.keeper(self.here, f"subscriber-{version}")
            subscriber.subscribe((self.topic(version), 2))
            publisher = self.publisher(f"publisher-{version}", version=version)
            for packet_id in (1, 255, 256, 65535):
                with self.subTest(version=version, packet_id=packet_id):
                    publisher.send(publish(self.topic(version), "1", 1, packet_id, version=version))
                    self.assertEqual(publisher.expect(Kind.PUBACK).packet_id, packet_id)
                    publisher.send(publish(self.topic(version), "2", 2, packet_id, version=version))
                    self.assertEqual(publisher.expect(Kind.PUBREC).packet_id, packet_id)
                    publisher.send(acknowledge(Kind.PUBREL, packet_id))
                    self.assertEqual(publisher.expect(Kind.PUBCOMP).packet_id, packet_id)
                    self.assertEqual([subscriber.take_message().payload for _ in range(2)], [b"1", b"2"])

    def test_subscribe_and_unsubscribe_are_answered_with_their_identifier(self):
        """[MQTT-2.2.1-6] [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-2.3.1-7 v3.1.1]"""
        for version in (3, 4, 5):
            client = self.raw(self.here, f"v{version}", version)
            for packet_id in (1, 256, 65535):
                client.send(subscribe(packet_id, (self.topic(), 0), version=version))
                self.assertEqual(client.expect(Kind.SUBACK).packet_id, packet_id)
                client.send(unsubscribe(packet_id, self.topic(), version=version))
                self.assertEqual(client.expect(Kind.UNSUBACK).packet_id, packet_id)

    def test_identifiers_of_the_server_start_at_1_and_none_is_given_twice(self):
        """[MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1] [MQTT-2.3.1-4 v3.1.1]: QoS 1 and 2 share them.

        New ones count up: one that was freed comes again only when the numbers have gone round.
        """
        for version in (4, 5):
            subscriber = self.raw(self.here, f"subscriber-{version}", version)
            subscriber.subscribe((self.topic(version), 2))
            publisher = self.publisher(f"publisher-{version}")
            for number in range(30):
                publisher.publish(self.topic(version), f"{number}", qos=1 + number % 2)
            came = [subscriber.expect(Kind.PUBLISH) for _ in range(30)]
            self.assertEqual([one.packet_id for one in came], list(range(1, 31)))
            subscriber.send(*(acknowledge(Kind.PUBACK, one.packet_id) for one in came if one.qos == 1))
            publisher.publish(self.topic(version), "next", qos=1)
            self.assertEqual(subscriber.take_message().packet_id, 31)

    def test_a_message_of_qos_1_is_owed_until_its_puback(self):
        """[MQTT-4.3.2-3] [MQTT-4.3.2-2] [MQTT-4.4.0-1]: not sent again on a living connection, and again on the next.
        """
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 1))
        self.publisher().publish(self.topic(), "owed", qos=1)
        first = subscriber.expect(Kind.PUBLISH)
        self.assertEqual((first.dup, subscriber.ping()), (False, []))
        subscriber, (second,) = self.sent_twice(subscriber, "subscriber")
        self.assertEqual((second.packet_id, second.dup), (first.packet_id, True))
        subscriber.send(acknowledge(Kind.PUBACK, second.packet_id))
        self.assertEqual(subscriber.ping(), [])
        subscriber, _ = self.sent_twice(subscriber, "subscriber", 0)
        self.assertEqual(subscriber.ping(), [], "acknowledged, yet sent again")

    def test_a_message_of_qos_2_is_owed_until_its_pubrec_and_its_pubrel_until_its_pubcomp(self):
        """[MQTT-4.3.3-3] [MQTT-4.3.3-4] [MQTT-4.3.3-5] [MQTT-4.3.3-6]: a flow that breaks off at each of its steps."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 2))
        self.publisher().publish(self.topic(), "owed", qos=2)
        first = subscriber.expect(Kind.PUBLISH)
        subscriber, (second,) = self.sent_twice(subscriber, "subscriber")
        self.assertEqual((second.kind, second.packet_id, second.dup), (Kind.PUBLISH, first.packet_id, True))
        subscriber.send(acknowledge(Kind.PUBREC, second.packet_id))
        self.assertEqual(subscriber.expect(Kind.PUBREL).packet_id, first.packet_id)
        # A repeated PUBREC gets the PUBREL again, and never the PUBLISH.
        subscriber.send(acknowledge(Kind.PUBREC, second.packet_id))
        self.assertEqual(subscriber.expect(Kind.PUBREL).reason_code, 0)
        for _ in range(2):
            subscriber, (owed,) = self.sent_twice(subscriber, "subscriber")
            self.assertEqual((owed.kind, owed.packet_id), (Kind.PUBREL, first.packet_id))
        subscriber.send(acknowledge(Kind.PUBCOMP, first.packet_id))
        subscriber, _ = self.sent_twice(subscriber, "subscriber", 0)
        self.assertEqual(subscriber.ping(), [], "finished, yet sent again")

    def test_a_handshake_of_qos_2_ends_though_its_message_expired(self):
        """[MQTT-4.3.3-13] [MQTT-4.3.3-7]: expired between PUBLISH and PUBREC, and the publisher's half as well."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 2))
        publisher = self.publisher()
        publisher.send(publish(self.topic(), "short-lived", 2, 5, props=expiry_of_message(1)))
        publisher.expect(Kind.PUBREC)
        came = subscriber.expect(Kind.PUBLISH)
        # The passing of time is what is tested.
        time.sleep(1.3)
        publisher.send(acknowledge(Kind.PUBREL, 5))
        self.assertEqual(publisher.expect(Kind.PUBCOMP).reason_code, 0)
        subscriber.send(acknowledge(Kind.PUBREC, came.packet_id))
        self.assertEqual(subscriber.expect(Kind.PUBREL).reason_code, 0)
        subscriber, (owed,) = self.sent_twice(subscriber, "subscriber")
        self.assertEqual((owed.kind, owed.packet_id), (Kind.PUBREL, came.packet_id))

    def test_a_refused_identifier_stands_for_a_new_message(self):
        """[MQTT-4.3.3-9] [MQTT-4.3.2-5]: after PUBREC or PUBACK of 0x80 and more, on our side of the flow."""
        subscriber = self.subscriber((self.topic(), 2))
        publisher = self.publisher()
        for qos, kind in ((1, Kind.PUBACK), (2, Kind.PUBREC)):
            publisher.send(publish("$thicket/refused", "refused", qos, 9))
            self.assertGreaterEqual(publisher.expect(kind).reason_code, 0x80)
            # The same identifier, with DUP even: after the refusal it means another message.
            publisher.send(publish(self.topic(), "taken", qos, 9, dup=True))
            came = publisher.expect(kind)
            self.assertEqual((came.packet_id, came.reason_code), (9, 0))
            self.assertEqual(subscriber.take_message().payload, b"taken")
        publisher.send(acknowledge(Kind.PUBREL, 9))
        self.assertEqual(publisher.expect(Kind.PUBCOMP).reason_code, 0)
        publisher.send(acknowledge(Kind.PUBREL, 9))
        self.assertEqual(publisher.expect(Kind.PUBCOMP).reason_code, PACKET_IDENTIFIER_NOT_FOUND)

    def test_a_client_that_reuses_an_identifier_in_use_is_answered_for_what_it_sent(self):
        """[MQTT-2.2.1-3]: a client's breach. At QoS 2 its second message counts as the first again; nobody else
        suffers.
        """
        subscriber = self.subscriber((self.topic(), 2))
        publisher = self.publisher()
        for payload in ("first", "under the same"):
            publisher.send(publish(self.topic(), payload, 2, 3))
            self.assertEqual(publisher.expect(Kind.PUBREC).packet_id, 3)
        publisher.send(acknowledge(Kind.PUBREL, 3))
        publisher.expect(Kind.PUBCOMP)
        publisher.publish(self.topic(), "end", qos=2)
        self.assertEqual([one.payload for one in self.messages_until(subscriber, b"end")], [b"first"])
        publisher.send(subscribe(3, (self.topic("a"), 0)), subscribe(3, (self.topic("b"), 0)))
        self.assertEqual([publisher.expect(Kind.SUBACK).packet_id for _ in range(2)], [3, 3])

    def test_a_client_that_acknowledges_nothing_costs_itself_only(self):
        """[MQTT-4.5.0-2]: its window fills and closes; QoS 0 and other clients go on; nothing is lost to it."""
        lazy = self.raw(self.here, "lazy", props=((Property.RECEIVE_MAXIMUM, 3),))
        lazy.subscribe((self.topic(), 1))
        diligent = self.subscriber((self.topic(), 1), role="diligent")
        publisher = self.publisher()
        for number in range(10):
            publisher.publish(self.topic(), f"{number}", qos=1)
            self.assertEqual(diligent.take_message().payload, b"%d" % number)
        held = [lazy.expect(Kind.PUBLISH) for _ in range(3)]
        self.assertEqual([one.payload for one in held], [b"0", b"1", b"2"])
        self.assertEqual(lazy.ping(), [])
        lazy.send(*(acknowledge(Kind.PUBACK, one.packet_id) for one in held))
        self.assertEqual([lazy.take_message().payload for _ in range(7)], [b"%d" % number for number in range(3, 10)])

    def test_acknowledgements_in_another_order_are_understood(self):
        """[MQTT-4.6.0-2] [MQTT-4.6.0-3] [MQTT-4.6.0-4]: a client's breach; each still counts for its own message."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 2))
        publisher = self.publisher()
        for number in range(6):
            publisher.publish(self.topic(), f"{number}", qos=1 + number % 2)
        came = [subscriber.expect(Kind.PUBLISH) for _ in range(6)]
        backwards = came[::-1]
        once, twice = ([one.packet_id for one in backwards if one.qos == qos] for qos in (1, 2))
        subscriber.send(*(acknowledge(Kind.PUBACK, number) for number in once))
        subscriber.send(*(acknowledge(Kind.PUBREC, number) for number in twice))
        self.assertEqual([subscriber.expect(Kind.PUBREL).packet_id for _ in twice], twice)
        subscriber.send(*(acknowledge(Kind.PUBCOMP, number) for number in twice[::-1]))
        self.assertEqual(subscriber.ping(), [])
        subscriber, _ = self.sent_twice(subscriber, "subscriber", 0)
        self.assertEqual(subscriber.ping(), [], "acknowledged, yet sent again")
        # And PUBRELs of a publisher in another order than its PUBRECs.
        publisher.send(*(publish(self.topic(), f"{number}", 2, number) for number in (11, 12, 13)))
        self.assertEqual([publisher.expect(Kind.PUBREC).packet_id for _ in range(3)], [11, 12, 13])
        publisher.send(*(acknowledge(Kind.PUBREL, number) for number in (13, 11, 12)))
        answers = [publisher.expect(Kind.PUBCOMP) for _ in range(3)]
        self.assertEqual([(one.packet_id, one.reason_code) for one in answers], [(13, 0), (11, 0), (12, 0)])

    def test_a_client_may_send_again_in_another_order(self):
        """[MQTT-4.6.0-1]: a client's breach; each message is taken once, in the order in which it came."""
        subscriber = self.subscriber((self.topic(), 2))
        publisher = self.keeper(self.there, "publisher")
        publisher.send(*(publish(self.topic(), f"{number}", 2, number) for number in (1, 2, 3)))
        for _ in range(3):
            publisher.expect(Kind.PUBREC)
        publisher.close()
        again = self.keeper(self.elsewhere, "publisher")
        again.send(*(publish(self.topic(), f"{number}", 2, number, dup=True) for number in (3, 1, 2)))
        self.assertEqual([again.expect(Kind.PUBREC).packet_id for _ in range(3)], [3, 1, 2])
        again.send(*(acknowledge(Kind.PUBREL, number) for number in (3, 1, 2)))
        for _ in range(3):
            self.assertEqual(again.expect(Kind.PUBCOMP).reason_code, 0)
        again.publish(self.topic(), "end", qos=2)
        came = [one.payload for one in self.messages_until(subscriber, b"end")]
        self.assertEqual(came, [b"1", b"2", b"3"])

    def test_the_send_quota_begins_at_the_receive_maximum(self):
        """[MQTT-4.9.0-1] [MQTT-4.9.0-2]: and at no more than 65,535 where the client states none."""
        publisher = self.publisher()
        for maximum in (1, 2, 7):
            subscriber = self.raw(self.here, f"m{maximum}", props=((Property.RECEIVE_MAXIMUM, maximum),))
            subscriber.subscribe((self.topic(maximum), 1))
            for number in range(maximum + 2):
                publisher.publish(self.topic(maximum), f"{number}", qos=1)
            came = [subscriber.expect(Kind.PUBLISH) for _ in range(maximum)]
            self.assertEqual(subscriber.ping(), [], f"more than {maximum}")
            subscriber.send(acknowledge(Kind.PUBACK, came[0].packet_id))
            self.assertEqual(subscriber.expect(Kind.PUBLISH).payload, b"%d" % maximum)

    def test_a_window_that_is_full_holds_up_nothing_but_messages(self):
        """[MQTT-4.9.0-3] [MQTT-3.3.4-10] [MQTT-3.3.4-8]: both ways, every other packet is answered."""
        client = self.raw(self.here, props=((Property.RECEIVE_MAXIMUM, 1),))
        client.subscribe((self.topic(), 2))
        publisher = self.publisher()
        for number in range(3):
            publisher.publish(self.topic(), f"{number}", qos=2)
        held = client.expect(Kind.PUBLISH)
        client.send(subscribe(7, (self.topic("other"), 0)), unsubscribe(8, self.topic("other")))
        answers = {(one.kind, one.packet_id) for one in (client.receive(), client.receive())}
        self.assertEqual(answers, {(Kind.SUBACK, 7), (Kind.UNSUBACK, 8)})
        client.publish(self.topic("mine"), "out", qos=2)
        client.send(acknowledge(Kind.PUBREC, held.packet_id))
        self.assertEqual(client.expect(Kind.PUBREL).packet_id, held.packet_id)
        client.send(acknowledge(Kind.PUBCOMP, held.packet_id))
        self.assertEqual(client.expect(Kind.PUBLISH).payload, b"1")

    def test_a_client_over_our_receive_maximum_is_told_so_though_it_sends_other_packets_too(self):
        """[MQTT-3.3.4-7]: PINGREQ and SUBSCRIBE within the flood are no messages and do not count."""
        client = self.publisher()
        maximum = client.connack.value(Property.RECEIVE_MAXIMUM)
        for number in range(1, maximum + 1):
            client.send(publish(self.topic(), b"", 2, number), PINGREQ)
        client.send(subscribe(1, (self.topic("x"), 0)))
        came = collections.Counter(client.receive().kind for _ in range(2 * maximum + 1))
        self.assertEqual(came, {Kind.PUBREC: maximum, Kind.PINGRESP: maximum, Kind.SUBACK: 1})
        client.send(publish(self.topic(), b"", 2, maximum + 1))
        self.assertEqual([one.reason_code for one in client.until_closed()], [RECEIVE_MAXIMUM_EXCEEDED])

    def test_wrong_acknowledgements_end_the_connection_or_are_answered(self):
        """[MQTT-4.13.1-1] [MQTT-4.3.3-4]: PUBACK for a QoS 2 message, PUBREC for one of QoS 1, PUBCOMP before PUBREC.
        """
        for qos, kind in ((2, Kind.PUBACK), (1, Kind.PUBREC), (2, Kind.PUBCOMP), (1, Kind.PUBCOMP)):
            with self.subTest(qos=qos, kind=kind.name):
                role = f"{qos}-{kind.name}"
                client = self.keeper(self.here, role)
                client.subscribe((self.topic(role), 2))
                self.publisher(f"p-{role}").publish(self.topic(role), "x", qos=qos)
                came = client.expect(Kind.PUBLISH)
                client.send(acknowledge(kind, came.packet_id))
                answers = client.until_closed()
                self.assertEqual([(one.kind, one.reason_code) for one in answers], [(Kind.DISCONNECT, 0x82)])
                # The message was not acknowledged by that, so it is still owed.
                self.assertEqual(self.keeper(self.here, role).take_message().payload, b"x")

    def test_what_is_retained_does_not_come_for_a_subscription_that_is_gone(self):
        """[MQTT-3.10.4-2]: SUBSCRIBE and UNSUBSCRIBE in one segment; nothing comes when both are answered."""
        publisher = self.publisher()
        client = self.raw(self.here)
        client.subscribe((self.topic("fence"), 1))
        for number in range(20):
            publisher.publish(self.topic(f"{number}"), f"{number}", qos=1, retain=True)
        publisher.publish(self.topic("fence"), "fence", qos=1)
        self.assertEqual(client.take_message().payload, b"fence")
        for packet_id in range(1, 21):
            client.send(subscribe(packet_id, (self.topic("+"), 1)), unsubscribe(packet_id, self.topic("+")))
            while (one := client.receive()).kind != Kind.UNSUBACK:
                self.assertIn(one.kind, (Kind.SUBACK, Kind.PUBLISH))
            late = [one for one in client.ping() if one.kind != Kind.SUBACK]
            late += [one for one in client.ping() if one.kind != Kind.SUBACK]
            self.assertEqual(late, [], "messages of a subscription that is gone")

    def test_no_message_is_lost_or_doubled_while_a_subscription_is_replaced(self):
        """[MQTT-3.8.4-4] [MQTT-3.8.4-3]: fifty times in a stream of messages, with other options each time."""
        client = self.raw(self.here)
        client.subscribe((self.topic(), 1))
        publisher = self.publisher()
        for round_number in range(50):
            numbers = range(round_number * 10, round_number * 10 + 10)
            publisher.send(*(publish(self.topic(), f"{number}", 1, number + 1) for number in numbers))
            client.send(subscribe(round_number + 1, (self.topic(), 1 | (round_number % 4) << 2)))
        came = []
        while len(came) < 500:
            one = client.receive()
            if one.kind == Kind.PUBLISH:
                came.append(int(one.payload))
                client.send(acknowledge(Kind.PUBACK, one.packet_id))
        self.assertEqual(came, list(range(500)))
        self.assertEqual([one for one in client.ping() if one.kind != Kind.SUBACK], [])

    def test_each_of_several_copies_has_its_own_identifiers(self):
        """[MQTT-3.3.4-5] [MQTT-3.3.4-3]: one for two subscriptions that overlap, one for the group beside them."""
        client = self.raw(self.here)
        names = (self.topic("a"), self.topic("+"), f"$share/g/{self.topic('a')}")
        for identifier, name in enumerate(names, start=1):
            client.subscribe((name, 1), props=((Property.SUBSCRIPTION_IDENTIFIER, identifier),))
        self.publisher().publish(self.topic("a"), "x", qos=1)
        copies = [client.take_message().values(Property.SUBSCRIPTION_IDENTIFIER) for _ in range(2)]
        self.assertEqual(sorted(map(sorted, copies)), [[1, 2], [3]])
        self.assertEqual(client.ping(), [])

    def test_nothing_behind_a_disconnect_is_processed_or_sent(self):
        """[MQTT-3.14.4-1] [MQTT-3.14.4-2]: what a client sends after it is dropped, and it gets nothing more."""
        subscriber = self.subscriber((self.topic(), 1))
        for version, goodbye in ((5, disconnect()), (4, packet(Kind.DISCONNECT, 0, b""))):
            client = self.publisher(f"v{version}", version=version)
            client.send(goodbye, publish(self.topic(), "too late", 1, 1, version=version))
            self.assertEqual(client.until_closed(), [])
        self.publisher("witness").publish(self.topic(), "end", qos=1)
        self.assertEqual(self.messages_until(subscriber, b"end"), [])

    def test_a_client_that_says_goodbye_with_an_error_is_closed(self):
        """[MQTT-4.13.2-1] [MQTT-3.14.4-2] [MQTT-3.14.2-1]: with any code that a client may give; the session stays."""
        for code in (0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99):
            client = self.keeper(self.here)
            client.send(disconnect(code))
            self.assertEqual(client.until_closed(), [], f"{code:#x}")
        self.assertTrue(self.keeper(self.elsewhere).connack.session_present)

    def test_an_expiry_of_never_for_the_session_keeps_it_while_it_is_connected_and_after(self):
        """[MQTT-4.1.0-1] [MQTT-3.1.2-23]: subscriptions, what is owed and what was asked of us all stay."""
        client = self.keeper(self.here)
        client.subscribe((self.topic(), 2))
        client.send(publish(self.topic("mine"), "half", 2, 21))
        client.expect(Kind.PUBREC)
        self.publisher().publish(self.topic(), "owed", qos=2)
        came = client.expect(Kind.PUBLISH)
        client.close()
        again = self.raw(self.elsewhere, clean_start=False, props=((Property.SESSION_EXPIRY_INTERVAL, NEVER),))
        self.assertEqual(again.expect(Kind.PUBLISH).packet_id, came.packet_id)
        again.send(acknowledge(Kind.PUBREL, 21))
        self.assertEqual(again.expect(Kind.PUBCOMP).reason_code, 0)
        again.send(acknowledge(Kind.PUBREC, came.packet_id, IMPLEMENTATION_ERROR))
        self.assertEqual(again.ping(), [])


class FlowsOnOneNode(FlowCases, OneNode):
    pass


class FlowsAcrossNodes(FlowCases, ThreeNodes):
    pass
