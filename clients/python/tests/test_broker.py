"""What the client says and does, packet by packet, against brokers made by hand."""

import asyncio
import json
import unittest
from typing import Any

import support
from support import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    HandBroker,
    packet,
    properties,
)

import thicket

USE_ANOTHER_SERVER, SERVER_MOVED, NOT_AUTHORIZED, BAD_LOGIN = 0x9C, 0x9D, 0x87, 0x86


def refusal(code: int, reference: str | None = None) -> bytes:
    return packet(CONNACK, bytes([0, code]) + properties(reference=reference))


def suback(request: bytes, code: int, place: str | None = None) -> bytes:
    user = [] if place is None else [("thicket-place", place)]
    return packet(SUBACK, request[:2] + properties(user=user) + bytes([code]))


def puback(publish: bytes, place: str | None = None) -> bytes:
    topic_len = int.from_bytes(publish[:2], "big")
    user = [] if place is None else [("thicket-place", place)]
    return packet(PUBACK, publish[2 + topic_len : 4 + topic_len] + b"\0" + properties(user=user))


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
        }
        for name, options in wrong.items():
            with self.subTest(name), self.assertRaisesRegex(ValueError, name):
                thicket.Client(**{"servers": "mqtt://a", **options})

    async def test_where_nobody_listens_is_told(self) -> None:
        port = support.free_port()
        with self.assertRaisesRegex(thicket.ConnectError, str(port)):
            async with thicket.Client(f"mqtt://127.0.0.1:{port}", connect_timeout=0.3):
                pass

    async def test_a_client_that_is_not_open_refuses(self) -> None:
        with self.assertRaises(thicket.ClosedError):
            await thicket.Client("mqtt://a").publish("t")
