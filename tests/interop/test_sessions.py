"""Sessions: what outlives a connection and for how long, who takes over from whom."""

import time

from nodes import OneNode, ThreeNodes, wait_until
from wire import NEVER, Closed, Kind, Property, RawCases, RawClient, acknowledge, connect, disconnect, publish

SESSION_TAKEN_OVER = 0x8E
PROTOCOL_ERROR = 0x82


def expiry(seconds):
    """The properties of a CONNECT with a session expiry."""
    return ((Property.SESSION_EXPIRY_INTERVAL, seconds),)


class SessionCases(RawCases):
    """Cases for one node and for several; a client that comes back does so elsewhere."""

    def test_session_present_tells_whether_there_was_a_session(self):
        """[MQTT-3.1.2-4] [MQTT-3.1.2-5] [MQTT-3.1.2-6] [MQTT-3.2.2-2] [MQTT-3.2.2-3]"""
        steps = [
            ("clean start 0, nothing there", False, NEVER, False),
            ("clean start 0, kept", False, NEVER, True),
            ("clean start 1 throws it away", True, NEVER, False),
            ("and starts a new one that is kept", False, 0, True),
            ("an expiry of 0 ends it with the connection", False, 0, False),
        ]
        for number, (name, clean, seconds, present) in enumerate(steps):
            with self.subTest(name):
                port = (self.here, self.elsewhere)[number % 2]
                client = self.raw(port, clean_start=clean, props=expiry(seconds))
                self.assertEqual(client.connack.session_present, present)
                client.disconnect()

    def test_clean_session_of_3_1_1_decides_alone(self):
        """[MQTT-3.1.2-4 v3.1.1] [MQTT-3.1.2-6 v3.1.1] [MQTT-3.2.2-2 v3.1.1]"""
        for clean, present in ((False, False), (False, True), (True, False), (False, False)):
            client = self.raw(self.here, version=4, clean_start=clean)
            self.assertEqual(client.connack.session_present, present)
            client.disconnect()

    def test_a_session_of_3_1_knows_no_session_present(self):
        """3.1's CONNACK has no flags; the session is kept all the same."""
        client = self.raw(self.here, version=3, clean_start=False)
        client.subscribe((self.topic(), 1))
        client.disconnect()
        self.publisher().publish(self.topic(), "kept", qos=1)
        again = self.raw(self.elsewhere, version=3, clean_start=False)
        self.assertFalse(again.connack.session_present)
        self.assertEqual(again.take_message().payload, b"kept")

    def test_messages_for_an_offline_session_are_queued_in_order(self):
        """[MQTT-4.5.0-1] [MQTT-3.1.2-23]: subscriptions and queue outlive the connection."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic("#"), 2))
        subscriber.disconnect()
        publisher = self.publisher()
        for number in range(200):
            publisher.publish(self.topic(f"{number % 3}"), f"{number}", qos=1 + number % 2)
        again = self.keeper(self.elsewhere, "subscriber")
        self.assertTrue(again.connack.session_present)
        came = [again.take_message() for _ in range(200)]
        for qos in (1, 2):
            self.assertEqual([int(one.payload) for one in came if one.qos == qos], list(range(qos - 1, 200, 2)))
        publisher.publish(self.topic("live"), "live", qos=0)
        self.assertEqual(self.messages_until(again, b"live"), [])

    def test_a_session_goes_on_though_it_moved_many_times(self):
        """4.1: its subscriptions, its queue and its unfinished messages come along, each message once."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 2))
        publisher = self.publisher()
        for number in range(12):
            subscriber.close()
            publisher.publish(self.topic(), f"{number}", qos=2)
            port = (self.elsewhere, self.there, self.here)[number % 3]
            subscriber = self.keeper(port, "subscriber")
            self.assertTrue(subscriber.connack.session_present, f"after move {number}")
            self.assertEqual(subscriber.take_message().payload, b"%d" % number)
        self.assertEqual(subscriber.ping(), [])

    def test_a_session_that_moves_under_load_loses_and_doubles_nothing(self):
        """[MQTT-4.5.0-1] [MQTT-4.3.3-10]: the publisher goes on while the subscriber goes round."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 2))
        publisher = self.publisher()
        came = []
        for move in range(6):
            batch = range(move * 50, move * 50 + 50)
            publisher.send(*(publish(self.topic(), f"{number}", 2, number + 1) for number in batch))
            publisher.send(*(acknowledge(Kind.PUBREL, number + 1) for number in batch))
            came += [subscriber.take_message().payload for _ in range(10)]
            subscriber.close()
            subscriber = self.keeper((self.elsewhere, self.there, self.here)[move % 3], "subscriber")
            self.assertTrue(subscriber.connack.session_present)
        while len(came) < 300:
            one = subscriber.receive()
            # A message whose PUBREL was owed when the connection closed goes on with the PUBREL.
            if one.kind == Kind.PUBREL:
                subscriber.send(acknowledge(Kind.PUBCOMP, one.packet_id))
            else:
                subscriber.aside.appendleft(one)
                came.append(subscriber.take_message().payload)
        self.assertEqual([int(payload) for payload in came], list(range(300)))
        self.assertEqual(subscriber.ping(), [])

    def test_a_session_that_is_taken_over_under_load_loses_nothing(self):
        """[MQTT-4.5.0-1] [MQTT-4.4.0-1]: the older connection is still open; what it left comes again."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 1))
        publisher = self.publisher()
        came = []
        for move in range(6):
            batch = range(move * 100, move * 100 + 100)
            publisher.send(*(publish(self.topic(), f"{number}", 1, number + 1) for number in batch))
            came += [int(subscriber.take_message().payload) for _ in range(20)]
            newer = self.keeper((self.elsewhere, self.there, self.here)[move % 3], "subscriber")
            self.assertTrue(newer.connack.session_present)
            subscriber.close()
            subscriber = newer
        while 599 not in came:
            came.append(int(subscriber.take_message().payload))
        self.assertEqual(sorted(set(came)), list(range(600)))
        firsts = [number for index, number in enumerate(came) if number not in came[:index]]
        self.assertEqual(firsts, list(range(600)), "[MQTT-4.6.0-5]")

    def test_a_queue_larger_than_any_buffer_moves_with_its_session(self):
        """[MQTT-4.5.0-1]: sixteen megabytes wait at one node and are asked for at another."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 1))
        subscriber.disconnect()
        publisher = self.publisher()
        for number in range(80):
            publisher.publish(self.topic(), f"{number:03}".encode() + bytes(200_000), qos=1)
        again = self.keeper(self.elsewhere, "subscriber")
        self.assertTrue(again.connack.session_present)
        self.assertEqual([int(again.take_message().payload[:3]) for _ in range(80)], list(range(80)))

    def test_a_session_with_thousands_of_subscriptions_moves_whole(self):
        """[MQTT-3.1.2-5]: all of them, with their options and identifiers."""
        subscriber = self.keeper(self.here, "subscriber")
        filters = [(self.topic(f"{number}"), number % 3) for number in range(3000)]
        codes = subscriber.subscribe(*filters, props=((Property.SUBSCRIPTION_IDENTIFIER, 7),)).codes
        self.assertEqual(codes, [qos for _, qos in filters])
        subscriber.disconnect()
        again = self.keeper(self.elsewhere, "subscriber")
        self.assertTrue(again.connack.session_present)
        publisher = self.publisher()
        for number in range(0, 3000, 101):
            publisher.publish(self.topic(f"{number}"), f"{number}", qos=2)
            came = again.take_message()
            expected = (b"%d" % number, number % 3, [7])
            self.assertEqual((came.payload, came.qos, came.values(Property.SUBSCRIPTION_IDENTIFIER)), expected)

    def test_many_sessions_move_at_once(self):
        """[MQTT-3.1.2-5]: forty clients change nodes five times, all at the same time; none loses a message."""
        ports = (self.here, self.there, self.elsewhere)
        clients = [self.keeper(ports[number % 3], f"c{number}") for number in range(40)]
        for client in clients:
            client.subscribe((self.topic(), 1))
        publisher = self.publisher()
        for move in range(5):
            for client in clients:
                client.close()
            publisher.publish(self.topic(), f"{move}", qos=1)
            clients = [RawClient(ports[(number + move + 1) % 3]) for number in range(40)]
            for number, client in enumerate(clients):
                self.addCleanup(client.close)
                client.send(connect(self.client_id(f"c{number}"), clean_start=False, props=expiry(NEVER)))
            for client in clients:
                came = client.expect(Kind.CONNACK)
                self.assertEqual((came.reason_code, came.session_present), (0, True))
            self.assertEqual({client.take_message().payload for client in clients}, {b"%d" % move})

    def test_a_session_expires_when_its_time_is_over(self):
        """[MQTT-4.1.0-2] [MQTT-4.1.0-1] [MQTT-3.1.2-23]: not before, and not while connected."""
        short = self.raw(self.here, "short", clean_start=False, props=expiry(1))
        long = self.raw(self.here, "long", clean_start=False, props=expiry(600))
        connected = self.raw(self.here, "connected", clean_start=False, props=expiry(1))
        connected.subscribe((self.topic(), 1))
        for client in (short, long):
            client.close()
        # The passing of time is what is tested.
        time.sleep(2.5)
        self.assertFalse(self.raw(self.elsewhere, "short", clean_start=False).connack.session_present)
        self.assertTrue(self.raw(self.elsewhere, "long", clean_start=False, props=expiry(0)).connack.session_present)
        self.publisher().publish(self.topic(), "still here", qos=1)
        self.assertEqual(connected.take_message().payload, b"still here")

    def test_disconnect_may_change_the_session_expiry(self):
        """3.14.2.2.2: to longer or to none, but not from none to some."""
        self.keeper(self.here, "ends").disconnect(props=expiry(0))
        self.assertFalse(self.raw(self.elsewhere, "ends", clean_start=False).connack.session_present)
        self.raw(self.here, "stays", props=expiry(1)).disconnect(props=expiry(600))
        self.assertTrue(self.raw(self.elsewhere, "stays", clean_start=False).connack.session_present)
        refused = self.raw(self.here, "refused")
        refused.send(disconnect(0, expiry(600)))
        self.assertEqual([one.reason_code for one in refused.until_closed()], [PROTOCOL_ERROR])

    def test_a_resumed_session_takes_the_new_expiry(self):
        """3.1.2.11.2: the last CONNECT decides."""
        self.keeper(self.here).disconnect()
        self.raw(self.elsewhere, clean_start=False, props=expiry(0)).disconnect()
        self.assertFalse(self.raw(self.here, clean_start=False).connack.session_present)

    def test_the_older_connection_of_a_client_is_told_that_it_was_taken_over(self):
        """[MQTT-3.1.4-3]: at whichever node the newer one is; the session goes on there."""
        older = self.keeper(self.here)
        older.subscribe((self.topic(), 1))
        for port in (self.here, self.elsewhere, self.there, self.here):
            newer = self.keeper(port)
            self.assertTrue(newer.connack.session_present)
            came = older.until_closed()
            self.assertEqual([(one.kind, one.reason_code) for one in came], [(Kind.DISCONNECT, SESSION_TAKEN_OVER)])
            self.publisher(f"publisher-{port}").publish(self.topic(), "for the newer", qos=1)
            self.assertEqual(newer.take_message().payload, b"for the newer")
            older = newer

    def test_takeover_with_clean_start_throws_the_session_away(self):
        """[MQTT-3.1.2-4] [MQTT-3.1.4-3] [MQTT-3.1.4-4]"""
        older = self.keeper(self.here)
        older.subscribe((self.topic(), 1))
        newer = self.keeper(self.elsewhere, clean_start=True)
        self.assertFalse(newer.connack.session_present)
        self.assertEqual([one.reason_code for one in older.until_closed()], [SESSION_TAKEN_OVER])
        publisher = self.publisher()
        publisher.publish(self.topic(), "for nobody", qos=1)
        newer.subscribe((self.topic("end"), 1))
        publisher.publish(self.topic("end"), "end", qos=1)
        self.assertEqual(self.messages_until(newer, b"end"), [])

    def test_takeover_of_a_session_that_ends_with_its_connection_starts_a_new_one(self):
        """3.1.4: a session with expiry 0 is "ended on the takeover", every time and at every node alike."""
        for number in range(5):
            older = self.raw(self.here, f"c{number}", clean_start=False)
            older.subscribe((self.topic(), 1))
            newer = self.raw(self.elsewhere, f"c{number}", clean_start=False)
            self.assertEqual([one.reason_code for one in older.until_closed()], [SESSION_TAKEN_OVER])
            self.assertFalse(newer.connack.session_present)
            self.publisher(f"publisher-{number}").publish(self.topic(), "for nobody", qos=1)
            self.assertEqual(newer.ping(), [])

    def test_a_client_of_3_1_1_is_taken_over_in_silence(self):
        """[MQTT-3.1.4-2 v3.1.1]: that version has no DISCONNECT from the server."""
        older = self.raw(self.here, version=4)
        self.raw(self.elsewhere, version=4)
        self.assertEqual(older.until_closed(), [])

    def test_one_of_many_connections_at_once_with_one_identifier_remains(self):
        """[MQTT-3.1.4-3]: all nodes agree in the end on one; the others are told or refused."""
        ports = [self.here, self.there, self.elsewhere] * 4
        clients = [RawClient(port) for port in ports]
        for client in clients:
            self.addCleanup(client.close)
            client.send(connect(self.client_id("contested"), clean_start=False, props=expiry(NEVER)))
        refused = set()
        for client in clients:
            try:
                if client.expect(Kind.CONNACK).reason_code:
                    refused.add(client)
            except Closed:
                refused.add(client)
        self.assertLess(len(refused), len(clients), "nobody was let in")

        def survivors():
            return [client for client in clients if client not in refused and self.answers(client)]

        wait_until(lambda: len(survivors()) == 1, "one connection to remain")
        survivor = survivors()[0]
        survivor.subscribe((self.topic(), 1))
        self.publisher().publish(self.topic(), "for the last", qos=1)
        self.assertEqual(survivor.take_message().payload, b"for the last")

    def answers(self, client):
        """Whether a connection is still served."""
        try:
            return client.ping() == []
        except (Closed, OSError):
            return False

    def test_an_empty_identifier_gets_one_assigned_that_can_come_back(self):
        """[MQTT-3.1.3-6] [MQTT-3.1.3-7] [MQTT-3.2.2-16]"""
        assigned = set()
        for port in (self.here, self.there, self.elsewhere):
            with RawClient(port) as client:
                identifier = client.connect("", props=expiry(600)).value(Property.ASSIGNED_CLIENT_IDENTIFIER)
                self.assertTrue(identifier)
                assigned.add(identifier)
                client.disconnect()
        self.assertEqual(len(assigned), 3)
        for identifier in assigned:
            with RawClient(self.here) as client:
                came = client.connect(identifier, clean_start=False)
                self.assertTrue(came.session_present)
                self.assertIsNone(came.value(Property.ASSIGNED_CLIENT_IDENTIFIER))
        with RawClient(self.here, 4) as older:
            older.connect("", clean_start=True)
            self.assertEqual(older.ping(), [])

    def test_identifiers_are_compared_as_they_are(self):
        """[MQTT-3.1.3-2] [MQTT-3.1.3-5] [MQTT-1.5.4-3]: case, accents and a byte order mark tell clients apart."""
        names = ["abc", "ABC", "é", "e\u0301", "\ufeffabc", "a b/+#$", "x" * 23, "x" * 1000]
        clients = [self.raw(port, name) for name in names for port in (self.here,)]
        self.assertEqual([client.ping() for client in clients], [[]] * len(names))

    def test_the_expiry_of_a_queued_message_counts_down_and_ends_it(self):
        """[MQTT-3.3.2-5] [MQTT-3.3.2-6]"""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 1))
        subscriber.disconnect()
        publisher = self.publisher()
        for seconds in (1, 1000):
            props = ((Property.MESSAGE_EXPIRY_INTERVAL, seconds),)
            publisher.publish(self.topic(), f"{seconds}", qos=1, props=props)
        publisher.publish(self.topic(), "end", qos=1)
        # The passing of time is what is tested.
        time.sleep(2.1)
        again = self.keeper(self.elsewhere, "subscriber")
        came = self.messages_until(again, b"end")
        self.assertEqual([one.payload for one in came], [b"1000"])
        self.assertTrue(900 < came[0].value(Property.MESSAGE_EXPIRY_INTERVAL) <= 998, came)

    def test_a_message_under_way_does_not_expire(self):
        """[MQTT-4.3.3-7] [MQTT-3.3.2-5]: once it was sent, it is sent again on resume though its time is over."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 2))
        publisher = self.publisher()
        for qos in (1, 2):
            publisher.publish(self.topic(), f"{qos}", qos=qos, props=((Property.MESSAGE_EXPIRY_INTERVAL, 1),))
            subscriber.expect(Kind.PUBLISH)
        subscriber.close()
        # The passing of time is what is tested.
        time.sleep(2.1)
        again = self.keeper(self.elsewhere, "subscriber")
        came = [again.take_message() for _ in range(2)]
        self.assertEqual([(one.payload, one.qos, one.dup) for one in came], [(b"1", 1, True), (b"2", 2, True)])

    def test_a_live_message_keeps_its_expiry(self):
        """[MQTT-3.3.2-6]: less the time it waited, which is next to nothing."""
        subscriber = self.subscriber((self.topic(), 1))
        self.publisher().publish(self.topic(), "x", qos=1, props=((Property.MESSAGE_EXPIRY_INTERVAL, 1000),))
        self.assertTrue(900 < subscriber.take_message().value(Property.MESSAGE_EXPIRY_INTERVAL) <= 1000)

    def test_a_client_may_change_its_version_with_its_session(self):
        """A session of 3.1.1 goes on in 5.0 and back; a non-clean session of 3.1.1 does not expire."""
        older = self.raw(self.here, version=4, clean_start=False)
        older.subscribe((self.topic(), 1))
        older.disconnect()
        publisher = self.publisher()
        publisher.publish(self.topic(), "first", qos=1)
        newer = self.keeper(self.elsewhere)
        self.assertTrue(newer.connack.session_present)
        self.assertEqual(newer.take_message().payload, b"first")
        newer.disconnect()
        publisher.publish(self.topic(), "second", qos=1, props=((Property.USER_PROPERTY, ("k", "v")),))
        older = self.raw(self.here, version=4, clean_start=False)
        self.assertTrue(older.connack.session_present)
        self.assertEqual(older.take_message().payload, b"second")


class SessionsOnOneNode(SessionCases, OneNode):
    pass


class SessionsAcrossNodes(SessionCases, ThreeNodes):
    pass
