"""Wills: when they are sent, when they are not, and what they look like."""

import time

from nodes import OneNode, ThreeNodes
from wire import Kind, Property, RawCases, RawClient, Will, disconnect, subscribe

RETAIN_AS_PUBLISHED = 0x08
DISCONNECT_WITH_WILL = 0x04


def expiry(seconds):
    """The properties of a CONNECT with a session expiry."""
    return ((Property.SESSION_EXPIRY_INTERVAL, seconds),)


def delay(seconds):
    """The properties of a will with a delay."""
    return ((Property.WILL_DELAY_INTERVAL, seconds),)


class WillCases(RawCases):
    """Cases for one node and for several: the watcher at one, the client with the will at another."""

    def setUp(self):
        super().setUp()
        self.watcher = self.raw(self.here, "watcher")
        self.watcher.subscribe((self.topic("#"), 2 | RETAIN_AS_PUBLISHED))

    def mortal(self, rest="will", role="mortal", port=None, will_options=None, **options):
        """A client with a will."""
        will = Will(self.topic(rest), **(will_options or {}))
        return self.raw(port or self.there, role, will=will, **options)

    def assert_no_will_until_now(self):
        """Nothing has come to the watcher before a message that is published now."""
        self.publisher("fence").publish(self.topic("fence"), "fence", qos=1)
        self.assertEqual(self.messages_until(self.watcher, b"fence"), [])

    def test_a_will_is_sent_when_the_connection_breaks(self):
        """[MQTT-3.1.2-7] [MQTT-3.1.2-8] [MQTT-3.1.2-14] [MQTT-3.1.2-15]: with its QoS and RETAIN."""
        for version in (3, 4, 5):
            for qos in (0, 1, 2):
                for retain in (False, True):
                    with self.subTest(version=version, qos=qos, retain=retain):
                        rest = f"{version}-{qos}-{retain}"
                        options = {"qos": qos, "retain": retain, "payload": rest.encode()}
                        self.mortal(rest, rest, version=version, will_options=options).close()
                        came = self.watcher.take_message()
                        self.assertEqual((came.topic, came.payload), (self.topic(rest), rest.encode()))
                        self.assertEqual((came.qos, came.retain, came.dup), (qos, retain, False))
        kept = self.subscriber((self.topic("+"), 2), role="later")
        came = {kept.take_message().topic for _ in range(9)}
        self.assertEqual(came, {self.topic(f"{version}-{qos}-True") for version in (3, 4, 5) for qos in (0, 1, 2)})

    def test_a_will_may_be_empty_and_clear_what_is_retained(self):
        """[MQTT-3.3.1-6]: a will is a message like any other."""
        self.publisher().publish(self.topic("will"), "kept", qos=1, retain=True)
        self.watcher.take_message()
        self.mortal(will_options={"payload": b"", "retain": True}).close()
        self.assertEqual(self.watcher.take_message().payload, b"")
        later = self.subscriber((self.topic("+"), 1), role="later")
        self.assertEqual(later.ping(), [])

    def test_a_disconnect_discards_the_will_and_0x04_does_not(self):
        """[MQTT-3.14.4-3] [MQTT-3.1.2-10]"""
        for version in (3, 4, 5):
            self.mortal(f"{version}", f"v{version}", version=version).disconnect()
        self.assert_no_will_until_now()
        self.mortal("with").disconnect(reason_code=DISCONNECT_WITH_WILL)
        self.assertEqual(self.watcher.take_message().topic, self.topic("with"))
        # Once sent, it is gone: the next connection of the session has none.
        self.raw(self.there, "mortal").close()
        self.assert_no_will_until_now()

    def test_a_protocol_error_of_the_client_sends_its_will(self):
        """[MQTT-3.1.2-8]: the server's own DISCONNECT is no normal one."""
        client = self.mortal()
        client.send(b"\xf0\x00")
        self.assertEqual([one.kind for one in client.until_closed()], [Kind.DISCONNECT])
        self.assertEqual(self.watcher.take_message().topic, self.topic("will"))

    def test_a_wills_properties_come_with_it_but_not_its_delay(self):
        """[MQTT-3.1.3-10]: in their order; the message expiry too."""
        users = [("b", "1"), ("a", "2"), ("b", "1")]
        props = (
            (Property.CONTENT_TYPE, "text/plain"),
            (Property.RESPONSE_TOPIC, "answers"),
            (Property.CORRELATION_DATA, b"\x00\xff"),
            (Property.PAYLOAD_FORMAT_INDICATOR, 1),
            (Property.MESSAGE_EXPIRY_INTERVAL, 1000),
            *((Property.USER_PROPERTY, pair) for pair in users),
            *delay(0),
        )
        self.mortal(will_options={"properties": props}).close()
        came = self.watcher.take_message()
        self.assertEqual(came.values(Property.USER_PROPERTY), users)
        self.assertEqual(came.value(Property.CONTENT_TYPE), "text/plain")
        self.assertEqual(came.value(Property.RESPONSE_TOPIC), "answers")
        self.assertEqual(came.value(Property.CORRELATION_DATA), b"\x00\xff")
        self.assertEqual(came.value(Property.PAYLOAD_FORMAT_INDICATOR), 1)
        self.assertTrue(900 < came.value(Property.MESSAGE_EXPIRY_INTERVAL) <= 1000)
        self.assertIsNone(came.value(Property.WILL_DELAY_INTERVAL))

    def test_a_delayed_will_waits(self):
        """[MQTT-3.1.2-8]: as long as the session lives and nobody comes back."""
        self.mortal(will_options={"properties": delay(2)}, props=expiry(600)).close()
        broke = time.monotonic()
        self.assert_no_will_until_now()
        self.assertEqual(self.watcher.take_message().topic, self.topic("will"))
        # The closing of the socket reaches the server after our clock was read: the bound holds on any machine.
        self.assertGreaterEqual(time.monotonic() - broke, 1.9)

    def test_a_delayed_will_is_sent_when_the_session_ends_first(self):
        """[MQTT-3.1.2-8]: whichever comes first; without a session at once."""
        for seconds in (0, 1):
            self.mortal(f"{seconds}", will_options={"properties": delay(3600)}, props=expiry(seconds)).close()
            self.assertEqual(self.watcher.take_message().topic, self.topic(f"{seconds}"))

    def test_a_delayed_will_is_not_sent_if_the_client_comes_back_in_time(self):
        """[MQTT-3.1.3-9]: wherever it comes back; the will of the new connection is the new one."""
        self.mortal("old", will_options={"properties": delay(1)}, props=expiry(600)).close()
        back = self.mortal("new", port=self.elsewhere, clean_start=False, props=expiry(600))
        self.assertTrue(back.connack.session_present)
        # The delay must pass to show that nothing comes of it.
        time.sleep(2)
        self.assert_no_will_until_now()
        back.close()
        self.assertEqual(self.watcher.take_message().topic, self.topic("new"))

    def test_a_clean_start_sends_a_delayed_will_at_once(self):
        """[MQTT-3.1.2-8]: the session ends, though the client is back."""
        self.mortal("old", will_options={"properties": delay(3600)}, props=expiry(600)).close()
        self.assertFalse(self.raw(self.elsewhere, "mortal").connack.session_present)
        self.assertEqual(self.watcher.take_message().topic, self.topic("old"))

    def test_takeover_sends_the_will_of_the_older_connection(self):
        """3.1.4: if its delay is 0, its session ends with it, or the newer one starts clean."""
        cases = [
            ("delay 0", 0, 600, False, True),
            ("session expiry 0", 3600, 0, False, True),
            ("clean start", 3600, 600, True, True),
            ("goes on in time", 3600, 600, False, False),
        ]
        for number, (name, will_delay, seconds, clean, sent) in enumerate(cases):
            with self.subTest(name):
                role = f"mortal-{number}"
                options = {"properties": delay(will_delay)}
                older = self.mortal(role, role, will_options=options, props=expiry(seconds), clean_start=False)
                newer = self.raw(self.elsewhere, role, clean_start=clean, props=expiry(600))
                self.assertEqual([one.reason_code for one in older.until_closed()], [0x8E])
                if sent:
                    self.assertEqual(self.watcher.take_message().topic, self.topic(role))
                self.assert_no_will_until_now()
                self.assertEqual(newer.ping(), [])

    def test_a_session_expiry_of_0_at_disconnect_with_will_sends_it_at_once(self):
        """[MQTT-3.1.2-8]: the DISCONNECT 0x04 ends the session, which ends the delay."""
        client = self.mortal(will_options={"properties": delay(3600)}, props=expiry(600))
        client.send(disconnect(DISCONNECT_WITH_WILL, expiry(0)))
        client.until_closed()
        self.assertEqual(self.watcher.take_message().topic, self.topic("will"))

    def test_a_will_reaches_an_offline_session(self):
        """[MQTT-4.5.0-1]"""
        sleeper = self.keeper(self.here, "sleeper")
        sleeper.subscribe((self.topic("will"), 1))
        sleeper.disconnect()
        self.mortal(will_options={"qos": 1}).close()
        self.watcher.take_message()
        self.assertEqual(self.keeper(self.elsewhere, "sleeper").take_message().topic, self.topic("will"))

    def test_a_will_goes_by_no_local(self):
        """[MQTT-3.8.3-3]: a client whose session waits does not get its own will under No Local."""
        client = self.mortal(props=expiry(600), will_options={"qos": 1})
        client.subscribe((self.topic("will"), 1 | 0x04))
        client.close()
        self.watcher.take_message()
        self.assertEqual(self.keeper(self.there, "mortal").ping(), [])


class KeepAliveCases(RawCases):
    """[MQTT-3.1.2-22]: a silent client is closed after 1.5 times its keep alive, and its will is sent."""

    def setUp(self):
        super().setUp()
        self.watcher = self.subscriber((self.topic("#"), 1), role="watcher")

    def test_a_silent_client_is_closed_but_not_before_one_and_a_half_keep_alive(self):
        """[MQTT-3.1.2-22] [MQTT-3.1.2-20] [MQTT-3.1.2-24 v3.1.1]: 0x8D for 5.0, silence for 3.1.1; its will is sent."""
        clients = []
        for version in (3, 4, 5):
            will = Will(self.topic(f"{version}"))
            began = time.monotonic()
            clients.append((began, self.raw(self.there, f"v{version}", version, keep_alive=1, will=will)))
        for began, client in clients:
            came = [(one.kind, one.reason_code) for one in client.until_closed()]
            # The clock was read before the CONNECT was sent: the bound holds on any machine.
            self.assertGreaterEqual(time.monotonic() - began, 1.4)
            self.assertEqual(came, [(Kind.DISCONNECT, 0x8D)] if client.version == 5 else [])
        wills = {self.watcher.take_message().topic for _ in clients}
        self.assertEqual(wills, {self.topic("3"), self.topic("4"), self.topic("5")})

    def test_a_client_that_dribbles_half_a_packet_is_closed(self):
        """[MQTT-3.1.2-22]: bytes are no packet."""
        client = self.raw(self.there, "dribbler", keep_alive=1, will=Will(self.topic("dribbler")))
        packet = b"\x30\x7f\x00\x10" + bytes(120)
        sent = 0
        client.socket.settimeout(0.2)
        while sent < len(packet):
            try:
                client.socket.sendall(packet[sent : sent + 1])
                sent += 1
                if data := client.socket.recv(1000):
                    client.buffer += data
                else:
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.assertLess(sent, len(packet), "the connection was never closed")
        self.assertEqual(self.watcher.take_message().topic, self.topic("dribbler"))

    def test_clients_that_keep_alive_or_need_not_stay_connected(self):
        """[MQTT-3.12.4-1] [MQTT-3.2.2-22]: PINGREQ counts, any packet counts, and keep alive 0 is off."""
        pings = self.raw(self.there, "pings", keep_alive=1)
        talks = self.raw(self.there, "talks", keep_alive=1)
        silent = self.raw(self.there, "silent", keep_alive=0)
        quiet = self.raw(self.there, "quiet", keep_alive=1)
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            self.assertEqual(pings.ping(), [])
            talks.send(subscribe(1, (self.topic("none"), 0)))
            talks.expect(Kind.SUBACK)
            time.sleep(0.3)
        self.assertEqual(silent.ping(), [])
        self.assertEqual([one.reason_code for one in quiet.until_closed()], [0x8D])

    def test_a_client_that_only_receives_is_closed(self):
        """[MQTT-3.1.2-22]: what the server sends is no sign of life."""
        listener = self.raw(self.here, "listener", keep_alive=1)
        listener.subscribe((self.topic("#"), 0))
        publisher = self.publisher()
        deadline = time.monotonic() + 20
        kinds = []
        while Kind.DISCONNECT not in kinds and time.monotonic() < deadline:
            publisher.publish(self.topic("x"), "x")
            kinds.append(listener.receive().kind)
        self.assertIn(Kind.DISCONNECT, kinds)

    def test_a_connection_without_connect_is_closed(self):
        """3.1.4: a server should not wait for ever for the CONNECT; half of one is none."""
        with RawClient(self.here) as silent, RawClient(self.here) as half:
            half.send(b"\x10\x20\x00\x04MQ")
            self.assertEqual(silent.until_closed(), [])
            self.assertEqual(half.until_closed(), [])


class WillsOnOneNode(WillCases, OneNode):
    pass


class WillsAcrossNodes(WillCases, ThreeNodes):
    pass


class KeepAliveOnOneNode(KeepAliveCases, OneNode):
    arguments = ("--connect-timeout-s", "2")


class KeepAliveAcrossNodes(KeepAliveCases, ThreeNodes):
    arguments = ("--connect-timeout-s", "2")
