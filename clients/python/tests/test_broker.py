"""What the client says and does, packet by packet, against brokers made by hand."""

import asyncio
import base64
import json
import unittest
from typing import Any
from unittest import mock

import support
from support import (
    CONNACK,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    Connection,
    Control,
    HandBroker,
    packet,
    properties,
    publication,
)

import thicket

USE_ANOTHER_SERVER, SERVER_MOVED, NOT_AUTHORIZED, BAD_LOGIN, SERVER_BUSY = 0x9C, 0x9D, 0x87, 0x86, 0x89
SESSION_TAKEN_OVER = 0x8E
# A DISCONNECT with Session Expiry Interval 0.
THE_SESSION_ENDS = b"\0\x05\x11\0\0\0\0"


def refusal(code: int, reference: str | None = None) -> bytes:
    return packet(CONNACK, bytes([0, code]) + properties(reference=reference))


def suback(request: bytes, code: int, place: str | None = None) -> bytes:
    user = [] if place is None else [("thicket-place", place)]
    return packet(SUBACK, request[:2] + properties(user=user) + bytes([code]))


def puback(publish: bytes, place: str | None = None) -> bytes:
    topic_len = int.from_bytes(publish[:2], "big")
    user = [] if place is None else [("thicket-place", place)]
    return packet(PUBACK, publish[2 + topic_len : 4 + topic_len] + b"\0" + properties(user=user))


def elsewhere(broker: HandBroker) -> bytes:
    return packet(DISCONNECT, bytes([USE_ANOTHER_SERVER]) + properties(reference=broker.address))


async def grant(connection: Connection, topic_filter: str) -> None:
    """Answers the SUBSCRIBE that must come."""
    request = await connection.expect(SUBSCRIBE)
    assert support.text(topic_filter) in request, f"expected {topic_filter}: {request!r}"
    await connection.write(suback(request, 1))


class ByHand(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.first = await self.enterAsyncContext(HandBroker())
        self.second = await self.enterAsyncContext(HandBroker())

    def client(self, **options: Any) -> thicket.Client:
        return thicket.Client(f"mqtt://{self.first.address}", client_id="c", first_pause=0.01, quiet=0.05, **options)

    async def test_connack_with_a_server_reference_is_followed_and_said(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        self.assertTrue(connection.says("thicket-max-sessions", "4") and connection.says("thicket-place", "1"))
        self.assertFalse(connection.says("thicket-redirected", "1"))
        await connection.write(refusal(USE_ANOTHER_SERVER, self.second.address))
        there = await self.second.next()
        self.assertTrue(there.says("thicket-redirected", "1"))
        await there.write(refusal(SERVER_MOVED, f"bad@host {self.first.address}"))
        back = await self.first.next()
        self.assertTrue(back.says("thicket-redirected", "2"))
        await back.accept()
        client = await opening
        self.assertEqual(client.sessions, {1: self.first.address})
        await client.close()

    async def test_a_circle_of_redirections_is_left(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        for turn in range(5):
            broker, other = (self.first, self.second) if turn % 2 == 0 else (self.second, self.first)
            await (await broker.next()).write(refusal(USE_ANOTHER_SERVER, other.address))
        last = await self.first.next()
        self.assertFalse(any(last.says("thicket-redirected", str(hops)) for hops in range(1, 9)), "it begins anew")
        await last.accept()
        await (await opening).close()

    async def test_disconnect_with_a_server_reference_takes_the_session_along(self) -> None:
        opening = asyncio.create_task(self.client(subscribe={"a": 1}).__aenter__())
        connection = await self.first.next()
        await connection.accept()
        await connection.write(suback(await connection.expect(SUBSCRIBE), 1))
        client = await opening
        publishing = asyncio.create_task(client.publish("t", "1", qos=1))
        sent = await connection.expect(PUBLISH)
        await connection.write(packet(DISCONNECT, bytes([SERVER_MOVED]) + properties(reference=self.second.address)))
        there = await self.second.next()
        await there.accept(session_present=True)
        self.assertEqual(await there.expect(PUBLISH), sent, "the same message under the same identifier")
        await there.write(puback(sent))
        await publishing
        await client.close()
        self.assertEqual((await there.read())[0], DISCONNECT)

    async def test_of_several_servers_in_a_reference_the_first_that_answers_is_asked_as_redirected(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        closed = f"127.0.0.1:{support.free_port()}"
        await connection.write(refusal(USE_ANOTHER_SERVER, f"{closed} {self.second.address}"))
        there = await self.second.next()
        self.assertTrue(there.says("thicket-redirected", "1"))
        await there.accept()
        client = await opening
        self.assertEqual(client.sessions, {1: self.second.address})
        await client.close()

    async def test_topics_that_nobody_declared_are_named_when_the_client_connects_again(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        self.assertFalse(connection.says("thicket-publish", "undeclared"))
        await connection.accept()
        client = await opening
        publishing = asyncio.create_task(client.publish("undeclared", "1", qos=1))
        await connection.write(puback(await connection.expect(PUBLISH)))
        await publishing
        await connection.write(elsewhere(self.second))
        there = await self.second.next()
        self.assertTrue(there.says("thicket-publish", "undeclared"))
        await there.accept(session_present=True)
        await client.close()

    async def test_topics_that_the_broker_refuses_are_not_named(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        await connection.accept()
        client = await opening
        publishing = asyncio.create_task(client.publish("secret", "1", qos=1))
        sent = await connection.expect(PUBLISH)
        await connection.write(packet(PUBACK, sent[8:10] + bytes([NOT_AUTHORIZED, 0])))
        with self.assertRaises(thicket.Refused):
            await publishing
        await connection.write(elsewhere(self.second))
        there = await self.second.next()
        self.assertFalse(there.says("thicket-publish", "secret"), "the whole request could be refused for it")
        await there.accept(session_present=True)
        await client.close()

    async def test_what_a_control_plane_denies_is_left_out_and_the_rest_is_asked_for_at_once(self) -> None:
        async with Control() as control:
            control.denied = {"denied", "no", "secret"}
            control.answer = support.placement([self.first.address], [("c", 0, ["ok"], ["yes"])])
            client = self.client(placement=[control.url], publish=["denied", "ok"], subscribe={"no": 1, "yes": 1})
            opening = asyncio.create_task(client.__aenter__())
            connection = await self.first.next()
            named = [(request["publish"], request["subscribe"]) for request in control.requests]
            expected = [(["denied", "ok"], ["no", "yes"]), (["ok"], ["no", "yes"]), (["ok"], ["yes"])]
            self.assertEqual(named, expected)
            control.requests.clear()
            await connection.accept()
            await grant(connection, "no")
            await grant(connection, "yes")
            await opening
            self.assertTrue(client.is_placed)
            self.assertIn("denied", client.last_problem)
            # The broker has granted the filter, so it is named again. Nobody refuses a message of QoS 0.
            await control.wait_until(lambda requests: len(requests) >= 2)
            self.assertEqual(control.requests[0]["subscribe"], ["no", "yes"])
            self.assertEqual(control.requests[1]["subscribe"], ["yes"])
            control.requests.clear()
            for topic in ("secret", "open"):
                await client.publish(topic, "1")
                await connection.expect(PUBLISH)
            await control.wait_until(lambda requests: bool(requests) and requests[-1]["publish"] == ["ok", "open"])
            self.assertLessEqual(sum("secret" in request["publish"] for request in control.requests), 1)
            connection.close()
            await client.close()

    async def test_what_a_broker_denies_in_connack_is_left_out_and_the_rest_is_asked_for_at_once(self) -> None:
        client = self.client(publish=["denied", "ok"], subscribe={"no": 1})
        opening = asyncio.create_task(client.__aenter__())
        rest = ["denied", "ok", "no"]
        # A field that names nothing is no reason to ask again.
        for field, name in (("publish[0]", "denied"), ("subscribe[0]", "no"), ("publish[7]", "")):
            connection = await self.first.next()
            for key, topic in (("thicket-publish", "denied"), ("thicket-publish", "ok"), ("thicket-subscribe", "no")):
                self.assertEqual(connection.says(key, topic), topic in rest, topic)
            rest = [topic for topic in rest if topic != name]
            user = [("thicket-placement", json.dumps(support.problem(field)))]
            await connection.accept(session_present=field != "publish[0]", user=user)
        await grant(connection, "no")
        await opening
        self.assertIn("publish[7]", client.last_problem)
        await connection.write(elsewhere(self.second))
        there = await self.second.next()
        self.assertTrue(there.says("thicket-subscribe", "no"), "it was granted")
        self.assertFalse(there.says("thicket-publish", "denied"))
        await there.accept(session_present=True)
        await client.close()

    async def test_a_client_that_is_sent_elsewhere_asks_its_control_plane_anew(self) -> None:
        async with Control() as control:
            opening = asyncio.create_task(self.client(placement=[control.url]).__aenter__())
            connection = await self.first.next()
            await connection.accept()
            client = await opening
            publishing = asyncio.create_task(client.publish("undeclared", "1", qos=1))
            await connection.write(puback(await connection.expect(PUBLISH)))
            await publishing
            await connection.write(elsewhere(self.second))
            there = await self.second.next()
            control.requests.clear()
            control.answer = support.placement([self.first.address], [("c", 0, ["undeclared"], [])])
            await there.accept(session_present=True)
            await (await self.first.next()).accept(session_present=True)
            self.assertEqual(control.requests[0]["publish"], ["undeclared"])
            await client.close()

    async def test_the_reason_of_a_disconnect_without_properties_is_read(self) -> None:
        for rest in (b"", b"\0"):
            opening = asyncio.create_task(self.client().__aenter__())
            connection = await self.first.next()
            await connection.accept()
            client = await opening
            await connection.write(packet(DISCONNECT, bytes([SESSION_TAKEN_OVER]) + rest))
            async with asyncio.timeout(8):
                with self.assertRaises(thicket.TakenOver):
                    async for _ in client:
                        pass

    async def test_messages_do_not_cut_the_pause_before_the_next_attempt_short(self) -> None:
        opening = asyncio.create_task(self.client(longest_pause=1000.0).__aenter__())
        connection = await self.first.next()
        await connection.accept()
        client = await opening
        with mock.patch("random.uniform", lambda _, most: 50000 * most):
            connection.close()
            await client.wait_for_sessions({})
            for _ in range(20):
                await client.send(thicket.Message("t", b"1", 1))
                await asyncio.sleep(0.01)
            self.assertTrue(self.first.connections.empty())
            await client.close()

    async def test_a_session_is_left_when_it_is_silent_and_a_ping_is_answered(self) -> None:
        opening = asyncio.create_task(self.client(subscribe={"a": 1, "b": 1}).__aenter__())
        connection = await self.first.next()
        addresses = [self.first.address, self.second.address]
        both = support.placement(addresses, [("c", 0, [], ["a"]), ("c~2", 1, [], ["b"])])
        await connection.accept(user=[("thicket-placement", json.dumps(both))])
        await grant(connection, "a")
        there = await self.second.next()
        await there.accept()
        await grant(there, "b")
        client = await opening
        connection.close()
        back = await self.first.next()
        one = support.placement(addresses, [("c", 0, [], ["a", "b"])])
        await back.accept(session_present=True, user=[("thicket-placement", json.dumps(one))])
        await grant(back, "b")
        request = await there.expect(UNSUBSCRIBE)
        await there.write(packet(UNSUBACK, request[:2] + b"\0\0"))
        await there.expect(PINGREQ)
        await there.write(publication("b", b"late", 1, 7), packet(PINGRESP, b""))
        await there.expect(PINGREQ)
        await there.write(packet(PINGRESP, b""))
        async for message in client:
            self.assertEqual(message.text, "late")
            message.acknowledge()
            break
        await there.expect(PUBACK)
        self.assertEqual(await there.expect(DISCONNECT), THE_SESSION_ENDS)
        await client.close()

    async def test_a_session_whose_connect_is_not_answered_when_the_client_closes_is_ended(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        addresses = [self.first.address, self.second.address]
        answer = support.placement(addresses, [("c", 0, [], []), ("c~2", 1, ["t"], [])])
        await connection.accept(user=[("thicket-placement", json.dumps(answer))])
        client = await opening
        there = await self.second.next()
        closing = asyncio.create_task(client.close())
        self.assertEqual(await connection.expect(DISCONNECT), THE_SESSION_ENDS)
        await there.accept()
        self.assertEqual(await there.expect(DISCONNECT), THE_SESSION_ENDS)
        await closing

    async def test_a_session_that_moves_when_the_client_closes_is_ended_where_it_has_moved(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        addresses = [self.first.address, self.second.address]
        answer = support.placement(addresses, [("c", 1, [], []), ("c~2", 0, ["t"], [])])
        await connection.accept(user=[("thicket-placement", json.dumps(answer))])
        other = await self.first.next()
        await other.accept()
        client = await opening
        there = await self.second.next()
        closing = asyncio.create_task(client.close())
        self.assertEqual(await other.expect(DISCONNECT), THE_SESSION_ENDS)
        await there.accept(session_present=True)
        self.assertEqual(await there.expect(DISCONNECT), THE_SESSION_ENDS)
        await closing

    async def test_a_session_that_the_other_broker_refuses_when_the_client_closes_is_ended_where_it_was(self) -> None:
        for code in (NOT_AUTHORIZED, SERVER_BUSY):
            opening = asyncio.create_task(self.client().__aenter__())
            connection = await self.first.next()
            answer = support.placement([self.second.address], [("c", 0, [], [])])
            await connection.accept(user=[("thicket-placement", json.dumps(answer))])
            client = await opening
            there = await self.second.next()
            closing = asyncio.create_task(client.close())
            await asyncio.sleep(0.1)
            await there.write(refusal(code))
            back = await self.first.next()
            self.assertTrue(back.says("thicket-redirected", "1"), "it serves")
            await back.accept(session_present=True)
            self.assertEqual(await back.expect(DISCONNECT), THE_SESSION_ENDS)
            await closing

    async def test_a_session_that_is_sent_elsewhere_when_the_client_closes_is_ended_there(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        await connection.accept()
        client = await opening
        publishing = asyncio.create_task(client.publish("t", "1", qos=1))
        await connection.expect(PUBLISH)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0.1)
        await connection.write(elsewhere(self.second))
        there = await self.second.next()
        await there.accept(session_present=True)
        sent = await there.expect(PUBLISH)
        await there.write(puback(sent))
        self.assertEqual(await there.expect(DISCONNECT), THE_SESSION_ENDS)
        await publishing
        await closing

    async def test_a_client_that_closes_does_not_wait_long_for_a_broker_that_does_not_answer(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        answer = support.placement([self.second.address], [("c", 0, [], [])])
        await connection.accept(user=[("thicket-placement", json.dumps(answer))])
        client = await opening
        await self.second.next()
        async with asyncio.timeout(8):
            await client.close()

    async def test_a_subscription_in_doubt_is_asked_for_again_or_ended(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        await connection.accept()
        client = await opening
        subscribing = [asyncio.create_task(client.subscribe(topic_filter, 1)) for topic_filter in ("goes", "stays")]
        for _ in range(2):
            await connection.expect(SUBSCRIBE)
        connection.close()
        back = await self.first.next()
        addresses = [self.first.address, self.second.address]
        answer = support.placement(addresses, [("c", 0, [], ["stays"]), ("c~2", 1, [], ["goes"])])
        await back.accept(session_present=True, user=[("thicket-placement", json.dumps(answer))])
        request = await back.expect(SUBSCRIBE)
        self.assertTrue(request.endswith(support.text("stays") + b"\x11"), "QoS 1, and what is retained if it is new")
        await back.write(suback(request, 1))
        request = await back.expect(UNSUBSCRIBE)
        self.assertIn(support.text("goes"), request)
        await back.write(packet(UNSUBACK, request[:2] + b"\0\0"))
        there = await self.second.next()
        await there.accept()
        await grant(there, "goes")
        self.assertEqual(await asyncio.gather(*subscribing), [1, 1])
        await client.close()

    async def test_a_message_of_qos_2_is_delivered_once_although_its_exchange_goes_over_two_connections(self) -> None:
        opening = asyncio.create_task(self.client(subscribe={"a": 2}, acknowledge="arrival").__aenter__())
        connection = await self.first.next()
        await connection.accept()
        await connection.write(suback(await connection.expect(SUBSCRIBE), 2))
        client = await opening
        await connection.write(publication("a", b"once", 2, 7))
        await connection.expect(PUBREC)
        connection.close()
        back = await self.first.next()
        await back.accept(session_present=True)
        await back.write(publication("a", b"once", 2, 7, is_again=True))
        await back.expect(PUBREC)
        # The second stands for a PUBCOMP that was lost.
        for _ in range(2):
            await back.write(packet(PUBREL, b"\0\7", 2))
            await back.expect(PUBCOMP)
        await back.write(publication("a", b"last", 2, 8), packet(PUBREL, b"\0\x08", 2))
        found = []
        async for message in client:
            found.append(message.text)
            if message.text == "last":
                break
        self.assertEqual(found, ["once", "last"])
        await client.close()

    async def test_the_properties_of_a_message_go_both_ways(self) -> None:
        opening = asyncio.create_task(self.client(will=thicket.Message("w", b"gone", 1, retain=True)).__aenter__())
        connection = await self.first.next()
        self.assertIn(support.text("w") + support.text("gone"), connection.connect)
        await connection.accept()
        client = await opening
        message = thicket.Message(
            "t", "ü".encode(), 0, False, 9, True, "text/plain", "r", b"\1\2", (("k", "1"), ("k", "2"))
        )  # fmt: skip
        await client.send(message)
        await connection.write(packet(PUBLISH, await connection.expect(PUBLISH)))
        async for received in client:
            self.assertEqual(received, message)
            break
        await client.close()

    async def test_name_and_password_go_to_the_broker_and_to_the_control_plane(self) -> None:
        async with Control() as control:
            control.answer = support.placement([self.first.address], [("c", 0, [], [])])
            opening = asyncio.create_task(self.client(user_name="u", password="pä", placement=[control.url]).__aenter__())
            connection = await self.first.next()
            self.assertTrue(connection.connect.endswith(support.text("u") + support.text("pä")))
            self.assertFalse(connection.says("thicket-max-sessions", "4"), "a control plane was asked already")
            await connection.accept()
            client = await opening
            self.assertTrue(client.is_placed)
            self.assertIn("Basic " + base64.b64encode("u:pä".encode()).decode(), control.heads[0])
            await client.close()

    async def test_tls_takes_servers_whose_certificate_is_trusted_and_no_others(self) -> None:
        server, trusting = support.self_signed()
        # The client's refusal is no fault of the server's.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with HandBroker(server) as broker, Control(server) as control:
            with self.assertRaisesRegex(thicket.ConnectError, "self-signed"):
                async with thicket.Client(f"mqtts://{broker.address}", connect_timeout=0.5):
                    pass
            control.answer = support.placement(["a:1"], [("c", 0, [], [])])
            control.answer["sessions"][0]["tls"] = broker.address
            client = thicket.Client(f"mqtts://{broker.address}", client_id="c", tls=trusting, placement=[control.url])
            opening = asyncio.create_task(client.__aenter__())
            await (await broker.next()).accept()
            await opening
            self.assertEqual((client.is_placed, client.sessions), (True, {1: broker.address}))
            await client.close()

    async def test_a_message_of_qos_2_that_was_received_is_released_after_attempts_that_fail(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        await connection.accept()
        client = await opening
        publishing = asyncio.create_task(client.publish("t", "1", qos=2))
        identifier = (await connection.expect(PUBLISH))[3:5]
        await connection.write(packet(PUBREC, identifier))
        self.assertEqual((await connection.expect(PUBREL))[:2], identifier)
        await connection.write(packet(DISCONNECT, bytes([USE_ANOTHER_SERVER]) + properties(reference=self.second.address)))
        await (await self.second.next()).write(refusal(USE_ANOTHER_SERVER, self.first.address))
        (await self.first.next()).close()
        back = await self.first.next()
        await back.accept(session_present=True)
        self.assertEqual((await back.expect(PUBREL))[:2], identifier)
        await back.write(packet(PUBCOMP, identifier + b"\x92\0"))
        await publishing
        await client.close()

    async def test_a_lost_session_has_qos_1_published_anew_and_qos_2_reported(self) -> None:
        opening = asyncio.create_task(self.client(subscribe={"a": 1}).__aenter__())
        connection = await self.first.next()
        await connection.accept()
        await connection.write(suback(await connection.expect(SUBSCRIBE), 1))
        client = await opening
        once = asyncio.create_task(client.publish("one", "1", qos=1))
        await connection.expect(PUBLISH)
        twice = asyncio.create_task(client.publish("two", "2", qos=2))
        sent = await connection.expect(PUBLISH)
        await connection.write(packet(PUBREC, sent[5:7]))
        connection.close()
        lost = await self.first.next()
        await lost.accept()
        again = await self.first.next()
        await again.accept(session_present=True)
        await again.write(suback(await again.expect(SUBSCRIBE), 1))
        body = await again.expect(PUBLISH)
        self.assertEqual(body[:5], b"\0\3one")
        await again.write(puback(body))
        await once
        with self.assertRaises(thicket.OutcomeUnknown):
            await twice
        await client.close()

    async def test_the_options_of_a_subscription_go_to_the_broker_and_new_ones_replace_them(self) -> None:
        options = thicket.SubscriptionOptions(thicket.Qos.AT_LEAST_ONCE, True, True, thicket.RetainHandling.DO_NOT_SEND, 300)
        opening = asyncio.create_task(self.client(subscribe={"a": options}).__aenter__())
        connection = await self.first.next()
        await connection.accept()
        request = await connection.expect(SUBSCRIBE)
        # Property 0x0B, the variable byte integer 300; QoS 1, No Local 4, Retain As Published 8, Retain Handling 2 << 4.
        self.assertEqual(request[2:], b"\x03\x0b\xac\x02" + support.text("a") + b"\x2d")
        await connection.write(suback(request, 1))
        client = await opening
        same = await client.subscribe("a", 1, no_local=True, retain_as_published=True, retain_handling=2, identifier=300)
        self.assertIs(same, thicket.Qos.AT_LEAST_ONCE)
        replacing = asyncio.create_task(client.subscribe("a", 2, retain_handling=1))
        request = await connection.expect(SUBSCRIBE)
        self.assertEqual(request[2:], b"\0" + support.text("a") + b"\x12", "nothing was sent for the same options")
        await connection.write(suback(request, 2))
        self.assertEqual(await replacing, 2)
        # Both identifiers of a message that matches two subscriptions.
        identifiers = b"\x05\x0b\xac\x02\x0b\x07"
        await connection.write(packet(PUBLISH, support.text("a") + identifiers + b"1"))
        async for message in client:
            self.assertEqual(message.subscription_identifiers, (300, 7))
            break
        connection.close()
        back = await self.first.next()
        await back.accept()
        self.assertEqual((await back.expect(SUBSCRIBE))[-1], 0x12, "a session that was lost is subscribed with the new options")
        await client.close()

    async def test_of_two_replacements_in_a_row_the_last_one_counts(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        await connection.accept()
        client = await opening
        first = asyncio.create_task(client.subscribe("a", 0))
        request = await connection.expect(SUBSCRIBE)
        second = asyncio.create_task(client.subscribe("a", 1))
        await asyncio.sleep(0)
        await connection.write(suback(request, 0))
        request = await connection.expect(SUBSCRIBE)
        await connection.write(suback(request, 1))
        self.assertEqual(await asyncio.gather(first, second), [1, 1])
        await client.close()

    async def test_the_reason_code_of_an_acknowledgement_is_returned(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        await connection.accept()
        client = await opening
        for code in (0, 0x10):
            publishing = asyncio.create_task(client.publish("t", "1", qos=1))
            sent = await connection.expect(PUBLISH)
            await connection.write(packet(PUBACK, sent[3:5] + bytes([code, 0])))
            self.assertEqual(await publishing, code)
        self.assertEqual(await client.publish("t"), 0)
        await client.close()

    async def test_refusals_are_told_with_their_code(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        await (await self.first.next()).write(refusal(BAD_LOGIN))
        with self.assertRaises(thicket.Refused) as caught:
            await opening
        self.assertEqual(caught.exception.reason_code, BAD_LOGIN)
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        await connection.accept()
        client = await opening
        subscribing = asyncio.create_task(client.subscribe("a"))
        await connection.write(suback(await connection.expect(SUBSCRIBE), NOT_AUTHORIZED))
        with self.assertRaises(thicket.Refused):
            await subscribing
        await client.close()

    async def test_a_message_that_the_broker_does_not_take_is_refused_and_the_connection_serves_on(self) -> None:
        opening = asyncio.create_task(self.client().__aenter__())
        connection = await self.first.next()
        # Maximum QoS 1, no retained messages, packets up to 100 bytes.
        await connection.accept(others=b"\x24\1\x25\0\x27\0\0\0\x64")
        client = await opening
        for code, payload, qos, retain in ((0x95, "x" * 91, 1, False), (0x9A, "x", 1, True), (0x9B, "x", 2, False)):
            with self.assertRaises(thicket.Refused) as caught:
                await client.publish("t", payload, qos=qos, retain=retain)
            self.assertEqual(caught.exception.reason_code, code)
        # 2 bytes of header, 3 of topic, 2 of identifier, 3 of properties: a text. That is 100.
        publishing = asyncio.create_task(client.publish("t", "x" * 90, qos=1))
        await connection.write(puback(await connection.expect(PUBLISH)))
        await publishing
        await client.close()

    async def test_the_placement_of_connack_is_followed(self) -> None:
        opening = asyncio.create_task(self.client(publish=["x"], subscribe={"a": 1, "b": 2}, rates={"x": 3.0}).__aenter__())
        connection = await self.first.next()
        for name, value in {"publish": "x", "subscribe": "b", "rates": '{"x": 3.0}'}.items():
            self.assertTrue(connection.says(f"thicket-{name}", value), name)
        addresses = [self.first.address, self.second.address]
        answer = support.placement(addresses, [("c", 0, [], ["a"]), ("c~2", 1, ["x"], ["b"])])
        await connection.accept(user=[("thicket-placement", json.dumps(answer))])
        there = await self.second.next()
        self.assertIn(support.text("c~2"), there.connect)
        self.assertFalse(there.says("thicket-max-sessions", "4"), "only the first session asks")
        await there.accept()
        request = await connection.expect(SUBSCRIBE)
        self.assertIn(support.text("a"), request)
        await connection.write(suback(request, 1))
        request = await there.expect(SUBSCRIBE)
        self.assertIn(support.text("b"), request)
        await there.write(suback(request, 2))
        client = await opening
        publishing = asyncio.create_task(client.publish("x", "1", qos=1))
        await there.write(puback(await there.expect(PUBLISH)))
        await publishing
        await client.close()

    async def test_a_better_node_for_a_filter_or_a_topic_is_followed(self) -> None:
        opening = asyncio.create_task(self.client(subscribe={"a": 1, "stays": 1}).__aenter__())
        connection = await self.first.next()
        await connection.accept()
        for _ in range(2):
            request = await connection.expect(SUBSCRIBE)
            better = self.second.address if support.text("a") in request else None
            await connection.write(suback(request, 1, better))
        there = await self.second.next()
        await there.accept()
        request = await there.expect(SUBSCRIBE)
        self.assertEqual(request[-1], 0x21, "QoS 1, and nothing retained: that has come already")
        await there.write(suback(request, 1))
        request = await connection.expect(UNSUBSCRIBE)
        self.assertIn(support.text("a"), request)
        await connection.write(packet(UNSUBACK, request[:2] + b"\0\0"))
        client = await opening
        publishing = asyncio.create_task(client.publish("t", "1", qos=1))
        await connection.write(puback(await connection.expect(PUBLISH), self.second.address))
        await publishing
        publishing = asyncio.create_task(client.publish("t", "2", qos=1))
        await there.write(puback(await there.expect(PUBLISH)))
        await publishing
        await client.close()

    async def test_a_further_session_that_is_refused_leaves_its_topics_to_the_first(self) -> None:
        opening = asyncio.create_task(self.client(subscribe={"a": 1}).__aenter__())
        connection = await self.first.next()
        addresses = [self.first.address, self.second.address]
        answer = support.placement(addresses, [("c", 0, [], []), ("c~2", 1, ["x"], ["a"])])
        await connection.accept(user=[("thicket-placement", json.dumps(answer))])
        await (await self.second.next()).write(refusal(NOT_AUTHORIZED))
        await connection.write(suback(await connection.expect(SUBSCRIBE), 1))
        client = await opening
        publishing = asyncio.create_task(client.publish("x", "1", qos=1))
        await connection.write(puback(await connection.expect(PUBLISH)))
        await publishing
        await client.close()


class Arguments(unittest.IsolatedAsyncioTestCase):
    def test_wrong_arguments_are_named(self) -> None:
        wrong: dict[str, dict[str, Any]] = {
            "servers": {"servers": ["http://a"]},
            "one scheme": {"servers": ["mqtt://a", "mqtts://b"]},
            "max_sessions": {"max_sessions": 0},
            "resume": {"resume": True},
            "filter": {"subscribe": {"a#": 1}},
            "version": {"version": 3},
            "placement": {"placement": "http"},
            "list of URLs": {"placement": ["node-1:18830"]},
            "receive_queue": {"receive_queue": 0},
            "keep_alive": {"keep_alive": -1},
            "session_expiry": {"session_expiry": 0.5},
            "to 65535": {"keep_alive": 65_536},
            "wildcards": {"will": thicket.Message("a/+", b"")},
            "will: str": {"will": "gone"},
            "quiet": {"quiet": float("nan")},
            "qos": {"subscribe": {"a": 3}},
            "rates": {"rates": {"a": -1}},
            "rates: nan": {"rates": {"a": float("nan")}},
            "expected user_name": {"servers": "mqtt://u:secret@a"},
            "servers: 5": {"servers": 5},
            "servers: \\[5": {"servers": [5]},
            "publish: 'topic'": {"publish": "topic"},
            "publish: 5": {"publish": 5},
            "subscribe: \\['a'\\]": {"subscribe": ["a"]},
            "rates: 5": {"rates": 5},
            "rates: 'x'": {"rates": {"a": "x"}},
            "user_name: int": {"user_name": 5},
            "password: bytes": {"password": b"p"},
            "client_id: int": {"client_id": 5},
            "tls: bool": {"tls": True},
            "keep_alive: True": {"keep_alive": True},
            "acknowledge: 'later'": {"acknowledge": "later"},
            "qos: '1'": {"subscribe": {"a": "1"}},
            "no_local: 1": {"subscribe": {"a": thicket.SubscriptionOptions(0, 1)}},  # type: ignore[arg-type]
            "retain_handling: 3": {"subscribe": {"a": thicket.SubscriptionOptions(retain_handling=3)}},
            "identifier: 0": {"subscribe": {"a": thicket.SubscriptionOptions(identifier=0)}},
            "shared subscription": {"subscribe": {"$share/g/a": thicket.SubscriptionOptions(no_local=True)}},
            "version 5": {"version": 4, "subscribe": {"a": thicket.SubscriptionOptions(identifier=1)}},
            "client_id: 'c": {"client_id": "c" * 65_536},
            "client_id: 'a": {"client_id": "a\0b"},
            "user_name": {"user_name": "u" * 65_536},
            "password: expected": {"password": "p" * 65_536},
        }
        for name, options in wrong.items():
            with self.subTest(name), self.assertRaisesRegex(ValueError, name) as caught:
                thicket.Client(**{"servers": "mqtt://a", **options})
            self.assertNotIn("secret", str(caught.exception))

    def test_only_what_is_documented_has_a_name_without_an_underscore(self) -> None:
        names = {name for name in dir(thicket.Client("mqtt://a")) if not name.startswith("_")}
        properties = {"client_id", "is_placed", "last_problem", "sessions"}
        self.assertEqual(names, properties | {"close", "publish", "send", "subscribe", "unsubscribe", "wait_for_sessions"})

    async def test_messages_that_no_packet_can_hold_are_refused(self) -> None:
        client = thicket.Client("mqtt://a")
        wrong: dict[str, dict[str, Any]] = {
            "wildcards": {"response_topic": "a/#"},
            "content_type": {"content_type": "\0"},
            "correlation_data": {"correlation_data": bytes(65_536)},
            "user_properties": {"user_properties": [("k", "v" * 65_536)]},
            "expiry": {"expiry": -1},
            "qos": {"qos": 3},
            "payload: int": {"payload": 5},
            "correlation_data: str": {"correlation_data": "x"},
            "topic: int": {"topic": 5},
            "user_properties: int": {"user_properties": [("k", 1)]},
        }
        for name, options in wrong.items():
            with self.subTest(name), self.assertRaisesRegex(ValueError, name):
                await client.publish(**{"topic": "t", **options})
        with self.assertRaisesRegex(ValueError, "filter: int"):
            await client.subscribe(5)  # type: ignore[arg-type]
        with self.assertRaisesRegex(ValueError, "payload: str"):
            await client.send(thicket.Message("t", "text"))  # type: ignore[arg-type]

    async def test_where_nobody_listens_is_told(self) -> None:
        port = support.free_port()
        with self.assertRaisesRegex(thicket.ConnectError, str(port)):
            async with thicket.Client(f"mqtt://127.0.0.1:{port}", connect_timeout=0.3):
                pass

    async def test_a_client_that_is_not_open_refuses(self) -> None:
        with self.assertRaises(thicket.ClosedError):
            await thicket.Client("mqtt://a").publish("t")
