"""Paho for Python, 3.1, 3.1.1 and 5.0: what every client expects of every broker."""

import paho_clients
from nodes import OneNode, ThreeNodes
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions
from paho_clients import V5, V31, V311, PahoClient


class PahoCases:
    """What all cases with Paho share."""

    protocol = V5

    def paho(self, port, role="client", **options):
        """A connected client that goes when the test ends."""
        client = PahoClient(port, self.client_id(role), options.pop("protocol", self.protocol), **options)
        self.assertEqual(client.connack.value, 0)
        self.addCleanup(client.vanish)
        return client


class CommonCases(PahoCases):
    """Cases for every version, on one node and on several."""

    def test_messages_of_every_qos_arrive(self):
        """[MQTT-3.8.4-8]"""
        subscriber = self.paho(self.here, "subscriber")
        publisher = self.paho(self.there, "publisher")
        for granted in (0, 1, 2):
            self.assertEqual(subscriber.subscribe(self.topic(granted), granted), [granted])
            for published in (0, 1, 2):
                publisher.publish(self.topic(granted), f"{published}", published)
                came = subscriber.take()
                self.assertEqual((came.topic, came.payload), (self.topic(granted), b"%d" % published))
                self.assertEqual((came.qos, came.retain, came.dup), (min(granted, published), False, False))

    def test_a_persistent_session_gets_what_came_while_it_was_away(self):
        """[MQTT-3.1.2-5] [MQTT-4.5.0-1]"""
        subscriber = self.paho(self.here, "subscriber", persistent=True)
        subscriber.subscribe(self.topic("+"), 2)
        subscriber.disconnect()
        publisher = self.paho(self.there, "publisher")
        for number in range(20):
            publisher.publish(self.topic("x"), f"{number}", 2)
        again = self.paho(self.elsewhere, "subscriber", persistent=True)
        self.assertEqual(again.session_present, self.protocol != V31)
        self.assertEqual([int(again.take().payload) for _ in range(20)], list(range(20)))

    def test_a_retained_message_waits_for_subscribers_until_it_is_cleared(self):
        """[MQTT-3.3.1-5] [MQTT-3.3.1-6]"""
        publisher = self.paho(self.there, "publisher")
        watcher = self.paho(self.here, "watcher")
        watcher.subscribe(self.topic(), 1)
        publisher.publish(self.topic(), "kept", 1, retain=True)
        self.assertFalse(watcher.take().retain)
        subscriber = self.paho(self.here, "subscriber")
        subscriber.subscribe(self.topic(), 1)
        came = subscriber.take()
        self.assertEqual((came.payload, came.retain), (b"kept", True))
        publisher.publish(self.topic(), b"", 1, retain=True)
        self.assertEqual(watcher.take().payload, b"")
        later = self.paho(self.here, "later")
        later.subscribe(self.topic(), 1)
        publisher.publish(self.topic(), "end", 1)
        self.assertEqual(later.take_until(b"end"), [])

    def test_a_will_is_sent_for_a_client_that_vanishes(self):
        """[MQTT-3.1.2-8] [MQTT-3.1.2-10]: and for no other."""
        watcher = self.paho(self.here, "watcher")
        watcher.subscribe(self.topic("#"), 2)
        for role, end in (("polite", PahoClient.disconnect), ("lost", PahoClient.vanish)):
            will = {"topic": self.topic(role), "payload": role, "qos": 2}
            end(self.paho(self.there, role, will=will))
        came = watcher.take()
        self.assertEqual((came.topic, came.payload, came.qos), (self.topic("lost"), b"lost", 2))

    def test_unsubscribe_ends_the_messages(self):
        """[MQTT-3.10.4-2]"""
        subscriber = self.paho(self.here, "subscriber")
        subscriber.subscribe([(self.topic("a"), 1), (self.topic("b"), 1)])
        subscriber.unsubscribe(self.topic("a"))
        publisher = self.paho(self.there, "publisher")
        publisher.publish(self.topic("a"), "unwanted", 1)
        publisher.publish(self.topic("b"), "end", 1)
        self.assertEqual(subscriber.take_until(b"end"), [])

    def test_a_large_payload_arrives(self):
        """200 KB through QoS 0, 1 and 2."""
        payload = bytes(range(250)) * 800
        subscriber = self.paho(self.here, "subscriber")
        subscriber.subscribe(self.topic(), 2)
        publisher = self.paho(self.there, "publisher")
        for qos in (0, 1, 2):
            publisher.publish(self.topic(), payload, qos)
            self.assertEqual(subscriber.take().payload, payload)

    def test_a_second_client_of_the_same_identifier_takes_over(self):
        """[MQTT-3.1.4-3]"""
        older = self.paho(self.here, persistent=True)
        newer = self.paho(self.elsewhere, persistent=True)
        self.assertEqual(newer.session_present, self.protocol != V31)
        # Paho passes the reason code of a DISCONNECT on only where properties follow it: the raw client looks at that.
        older.until_disconnected()
        newer.subscribe(self.topic(), 1)
        self.paho(self.there, "publisher").publish(self.topic(), "x", 1)
        self.assertEqual(newer.take().payload, b"x")

    def test_members_of_a_group_share_the_messages(self):
        """4.8.2"""
        members = [self.paho(port, f"m{i}") for i, port in enumerate((self.here, self.there, self.elsewhere))]
        for member in members:
            member.subscribe(f"$share/{self.unique}/{self.topic('#')}", 1)
        publisher = self.paho(self.there, "publisher")
        for number in range(30):
            publisher.publish(self.topic("x"), f"{number}", 1)
        members[0].until(lambda: self.turn(members) == 30, "all messages")
        payloads = [int(one.payload) for member in members for one in member.messages]
        self.assertEqual(sorted(payloads), list(range(30)))
        self.assertTrue(all(member.messages for member in members), "a member was starved")

    def turn(self, clients):
        """Turns the loops of several clients once; the number of their messages so far."""
        for client in clients:
            client.client.loop(0.01)
        return sum(len(client.messages) for client in clients)

    def test_an_inflight_message_is_finished_after_a_reconnect(self):
        """[MQTT-4.4.0-1]: Paho takes the flow up where the connection broke, on both sides."""
        subscriber = self.paho(self.here, "subscriber")
        subscriber.subscribe(self.topic(), 2)
        publisher = self.paho(self.there, "publisher", persistent=True)
        for number in range(10):
            publisher.client.publish(self.topic(), f"{number}", 2)
        publisher.vanish()
        publisher.client.reconnect()
        publisher.until(lambda: len(publisher.published) == 10, "the end of all flows")
        publisher.publish(self.topic(), "end", 2)
        payloads = [int(one.payload) for one in subscriber.take_until(b"end")]
        self.assertEqual(sorted(payloads), list(range(10)))


class Version5Cases(PahoCases):
    """What 5.0 adds."""

    def test_properties_are_passed_on(self):
        """[MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]"""
        subscriber = self.paho(self.here, "subscriber")
        subscriber.subscribe(self.topic(), 1)
        users = [("b", "1"), ("a", "2"), ("b", "1")]
        self.paho(self.there, "publisher").publish(
            self.topic(),
            "x",
            1,
            UserProperty=users,
            ContentType="text/plain",
            ResponseTopic="answers",
            CorrelationData=b"\x00\xff",
            PayloadFormatIndicator=1,
            MessageExpiryInterval=1000,
        )
        came = subscriber.take().properties
        self.assertEqual(came.UserProperty, users)
        self.assertEqual((came.ContentType, came.ResponseTopic), ("text/plain", "answers"))
        self.assertEqual((came.CorrelationData, came.PayloadFormatIndicator), (b"\x00\xff", 1))
        self.assertTrue(900 < came.MessageExpiryInterval <= 1000)

    def test_a_request_is_answered(self):
        """4.10: the response topic and the correlation data find their way back."""
        responder = self.paho(self.here, "responder")
        responder.subscribe(self.topic("requests"), 1)
        requester = self.paho(self.there, "requester")
        requester.subscribe(self.topic("answers"), 1)
        requester.publish(
            self.topic("requests"), "question", 1, ResponseTopic=self.topic("answers"), CorrelationData=b"7"
        )
        request = responder.take()
        correlation = request.properties.CorrelationData
        responder.publish(request.properties.ResponseTopic, "answer", 1, CorrelationData=correlation)
        answer = requester.take()
        self.assertEqual((answer.payload, answer.properties.CorrelationData), (b"answer", b"7"))

    def test_subscription_identifiers_come_with_the_messages(self):
        """[MQTT-3.3.4-3] [MQTT-3.3.4-4] [MQTT-3.3.4-5]"""
        subscriber = self.paho(self.here, "subscriber")
        for identifier, name in ((1, "#"), (268435455, "a")):
            made = paho_clients.properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=identifier)
            subscriber.subscribe(self.topic(name), 1, properties=made)
        publisher = self.paho(self.there, "publisher")
        publisher.publish(self.topic("a"), "both", 1)
        publisher.publish(self.topic("b"), "end", 1)
        came = [one.properties.SubscriptionIdentifier for one in subscriber.take_until(b"end")]
        self.assertEqual(sorted(sum(came, [])), [1, 268435455])

    def test_subscription_options_are_obeyed(self):
        """[MQTT-3.8.3-3] [MQTT-3.3.1-10] [MQTT-3.3.1-11] [MQTT-3.3.1-13]"""
        client = self.paho(self.here, "talker")
        client.subscribe(self.topic("own"), options=SubscribeOptions(qos=1, noLocal=True))
        client.subscribe(self.topic("kept"), options=SubscribeOptions(qos=1, retainAsPublished=True))
        client.publish(self.topic("own"), "own", 1)
        client.publish(self.topic("kept"), "kept", 1, retain=True)
        came = client.take()
        self.assertEqual((came.payload, came.retain), (b"kept", True))
        for handling in (SubscribeOptions.RETAIN_SEND_IF_NEW_SUB, SubscribeOptions.RETAIN_DO_NOT_SEND):
            client.subscribe(self.topic("kept"), options=SubscribeOptions(qos=1, retainHandling=handling))
        client.publish(self.topic("kept"), "end", 1)
        self.assertEqual(client.take_until(b"end"), [])
        client.subscribe(self.topic("kept"), options=SubscribeOptions(qos=1))
        self.assertTrue(client.take().retain)

    def test_topic_aliases_of_the_publisher_are_resolved(self):
        """[MQTT-3.3.2-12]"""
        subscriber = self.paho(self.here, "subscriber")
        subscriber.subscribe(self.topic("#"), 1)
        publisher = self.paho(self.there, "publisher")
        self.assertGreaterEqual(publisher.connack_properties.TopicAliasMaximum, 1)
        publisher.publish(self.topic("long/name"), "with", 1, TopicAlias=1)
        publisher.publish("", "without", 1, TopicAlias=1)
        came = [subscriber.take() for _ in range(2)]
        self.assertEqual([one.topic for one in came], [self.topic("long/name")] * 2)

    def test_a_session_lives_as_long_as_its_expiry_says(self):
        """[MQTT-3.1.2-23] [MQTT-4.1.0-2]"""
        for seconds, present in ((600, True), (0, False)):
            self.paho(self.here, f"{seconds}", persistent=True, SessionExpiryInterval=seconds).disconnect()
            again = self.paho(self.elsewhere, f"{seconds}", persistent=True)
            self.assertEqual(again.session_present, present)

    def test_an_assigned_identifier_is_told(self):
        """[MQTT-3.1.3-6] [MQTT-3.1.3-7]"""
        with PahoClient(self.here, "") as client:
            self.assertTrue(client.connack_properties.AssignedClientIdentifier)

    def test_a_receive_maximum_of_one_still_gets_all_in_order(self):
        """[MQTT-3.3.4-9]"""
        subscriber = self.paho(self.here, "subscriber", ReceiveMaximum=1)
        subscriber.subscribe(self.topic(), 2)
        publisher = self.paho(self.there, "publisher")
        for number in range(20):
            publisher.client.publish(self.topic(), f"{number}", 1 + number % 2)
        publisher.until(lambda: len(publisher.published) == 20, "the end of all flows")
        self.assertEqual([int(subscriber.take().payload) for _ in range(20)], list(range(20)))

    def test_a_message_over_the_maximum_packet_size_is_left_out(self):
        """[MQTT-3.1.2-24] [MQTT-3.1.2-25]"""
        subscriber = self.paho(self.here, "subscriber", MaximumPacketSize=200)
        subscriber.subscribe(self.topic(), 1)
        publisher = self.paho(self.there, "publisher")
        for size in (1000, 100):
            publisher.publish(self.topic(), bytes(size), 1)
        publisher.publish(self.topic(), "end", 1)
        self.assertEqual([len(one.payload) for one in subscriber.take_until(b"end")], [100])

    def test_a_will_with_delay_and_properties_comes_later(self):
        """[MQTT-3.1.2-8] [MQTT-3.1.3-10]"""
        watcher = self.paho(self.here, "watcher")
        watcher.subscribe(self.topic(), 1)
        users = [("b", "1"), ("a", "2")]
        made = paho_clients.properties(PacketTypes.WILLMESSAGE, WillDelayInterval=1, UserProperty=users)
        will = {"topic": self.topic(), "payload": "gone", "qos": 1, "properties": made}
        self.paho(self.there, "mortal", will=will, persistent=True).vanish()
        self.paho(self.there, "publisher").publish(self.topic(), "before", 1)
        self.assertEqual(watcher.take().payload, b"before")
        came = watcher.take()
        self.assertEqual((came.payload, came.properties.UserProperty), (b"gone", users))

    def test_an_unknown_filter_is_told_at_unsubscribe(self):
        """[MQTT-3.11.3-1] [MQTT-3.11.3-2]"""
        client = self.paho(self.here)
        client.subscribe(self.topic(), 1)
        self.assertEqual(client.unsubscribe([self.topic(), self.topic("never")]), [0, 0x11])

    def test_an_invalid_filter_is_told_at_subscribe(self):
        """[MQTT-4.8.2-2] [MQTT-3.9.3-2]: one of several, the others are granted."""
        client = self.paho(self.here)
        filters = [(self.topic(), SubscribeOptions(qos=2)), ("$share//x", SubscribeOptions(qos=1))]
        self.assertEqual(client.subscribe(filters), [2, 0x8F])

    def test_versions_talk_to_each_other(self):
        """3.1, 3.1.1 and 5.0 at different nodes."""
        versions = (V31, V311, V5)
        ports = (self.here, self.there, self.elsewhere)
        clients = [
            self.paho(port, f"v{version}", protocol=version) for version, port in zip(versions, ports, strict=True)
        ]
        for client in clients:
            client.subscribe(self.topic(), 2)
        for sender in clients:
            sender.publish(self.topic(), "x", 2)
            self.assertEqual([client.take().payload for client in clients], [b"x"] * 3)


class Paho31OnOneNode(CommonCases, OneNode):
    protocol = V31


class Paho311OnOneNode(CommonCases, OneNode):
    protocol = V311


class Paho311AcrossNodes(CommonCases, ThreeNodes):
    protocol = V311


class Paho5OnOneNode(CommonCases, OneNode):
    pass


class Paho5AcrossNodes(CommonCases, ThreeNodes):
    pass


class PahoOf5OnOneNode(Version5Cases, OneNode):
    pass


class PahoOf5AcrossNodes(Version5Cases, ThreeNodes):
    pass
