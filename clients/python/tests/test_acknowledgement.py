"""Messages are acknowledged by the application: processes that are killed, and packet by packet against brokers made by hand."""

import asyncio
import contextlib
import json
import pathlib
import sys
import unittest
from collections.abc import AsyncIterator
from typing import Any

import support
from support import (
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
    HandBroker,
    packet,
    publication,
    urls,
)

import thicket

CONSUMER = pathlib.Path(__file__).with_name("consumer.py")
COUNT, KILLED_AT = 300, 26


@contextlib.asynccontextmanager
async def consumer(url: str, qos: int, acknowledge: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that has subscribed; it is killed at the end."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, str(CONSUMER), url, str(qos), acknowledge)
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe)
    try:
        assert await line(process) == "ready"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(support.TIMEOUT_S):
        return (await process.stdout.readline()).decode().strip()


class Killed(unittest.IsolatedAsyncioTestCase):
    async def kill_in_the_middle(self, qos: int, acknowledge: str) -> tuple[list[int], list[int]]:
        """What was handled before the kill, and by the process after it until nothing comes any more."""
        cluster = support.start_cluster(1)
        self.addCleanup(cluster.close_logs)
        self.addCleanup(cluster.stop)
        (url,) = urls(cluster)
        async with consumer(url, qos, acknowledge) as first, thicket.Client(url) as publisher:
            await asyncio.gather(*(publisher.publish("work", str(number), qos=qos) for number in range(COUNT)))
            before = [int(await line(first)) for _ in range(KILLED_AT)]
            first.kill()
            assert first.stdout is not None
            # What it had printed when it was killed.
            before += [int(number) for number in (await first.stdout.read()).split()]
            after: list[int] = []
            async with consumer(url, qos, acknowledge) as second:
                await publisher.publish("work", str(COUNT), qos=qos)
                while not after or after[-1] != COUNT:
                    after.append(int(await line(second)))
        print(f"QoS {qos}, {acknowledge}: {len(before)} handled, then {len(after)}", file=sys.stderr)
        return before, after

    async def test_a_process_that_is_killed_loses_nothing(self) -> None:
        for qos in (1, 2):
            with self.subTest(qos=qos):
                before, after = await self.kill_in_the_middle(qos, "next")
                self.assertEqual(sorted({*before, *after}), list(range(COUNT + 1)))
                self.assertEqual(after, sorted(after))
                self.assertLessEqual(
                    len({*before} & {*after}), 2, "the message that it had, and one whose acknowledgement was not sent yet"
                )

    async def test_acknowledgement_at_arrival_can_lose_the_receive_queue(self) -> None:
        before, after = await self.kill_in_the_middle(1, "arrival")
        self.assertEqual({*before} & {*after}, set())
        self.assertLess(len(before) + len(after), COUNT + 1)


class Blocking(unittest.TestCase):
    def test_a_program_without_an_event_loop_publishes_and_receives(self) -> None:
        cluster = support.start_cluster(1)
        self.addCleanup(cluster.close_logs)
        self.addCleanup(cluster.stop)
        (url,) = urls(cluster)
        options: dict[str, Any] = {"client_id": "script", "resume": True, "subscribe": {"a": 1}}
        with thicket.BlockingClient(thicket.Client(url, **options)) as client:
            self.assertEqual(list(client.sessions), [1])
            for number in range(3):
                self.assertEqual(client.publish("a", str(number), qos=1), 0)
            with self.assertRaises(KeyError), client.receive() or thicket.Message("a", b"none"):
                raise KeyError
        with thicket.BlockingClient(thicket.Client(url, **options)) as client:
            found = []
            for message in client:
                with message:
                    found.append(message.text)
                if len(found) == 3:
                    break
            self.assertEqual(found, ["0", "1", "2"], "the first was not acknowledged")
            with self.assertRaises(TimeoutError):
                client.receive(timeout=0.1)
        with self.assertRaisesRegex(RuntimeError, "not open"):
            client.publish("a")

    def test_where_nobody_listens_is_told(self) -> None:
        client = thicket.Client(f"mqtt://127.0.0.1:{support.free_port()}", connect_timeout=0.3)
        with self.assertRaises(thicket.ConnectError), thicket.BlockingClient(client):
            pass


class ByHand(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.broker = await self.enterAsyncContext(HandBroker())

    async def open(self, **options: Any) -> tuple[thicket.Client, Connection]:
        client = thicket.Client(f"mqtt://{self.broker.address}", client_id="c", first_pause=0.01, quiet=0.05, **options)
        opening = asyncio.create_task(client.__aenter__())
        connection = await self.broker.next()
        await connection.accept()
        await opening
        return client, connection

    async def reconnected(self, connection: Connection, *, session_present: bool = True) -> Connection:
        connection.close()
        connection = await self.broker.next()
        await connection.accept(session_present=session_present)
        return connection

    async def expect(self, connection: Connection, kind: int, identifier: int) -> None:
        async with asyncio.timeout(support.TIMEOUT_S):
            self.assertEqual((await connection.expect(kind))[:2], identifier.to_bytes(2, "big"))

    async def nothing(self, client: thicket.Client, connection: Connection) -> None:
        """The client has sent nothing: what it sends afterwards comes next."""
        await client.publish("probe")
        async with asyncio.timeout(support.TIMEOUT_S):
            await connection.expect(PUBLISH)

    async def send(self, connection: Connection, qos: int, *identifiers: int, is_again: bool = False) -> None:
        packets = [publication("t", str(number).encode(), qos, number, is_again=is_again) for number in identifiers]
        await connection.write(*packets)

    async def test_asking_for_the_next_message_acknowledges_the_one_before(self) -> None:
        client, connection = await self.open()
        self.assertIn(b"\x21\x04\x00", connection.connect, "Receive Maximum 1024")
        await self.send(connection, 1, 1, 2)
        messages = aiter(client)
        self.assertEqual((await anext(messages)).text, "1")
        await self.nothing(client, connection)
        self.assertEqual((await anext(messages)).text, "2")
        await self.expect(connection, PUBACK, 1)
        await client.close()
        self.assertEqual((await connection.read())[0], DISCONNECT, "the second was not acknowledged")

    async def test_acknowledgements_leave_in_the_order_of_arrival(self) -> None:
        client, connection = await self.open(acknowledge="manual")
        await self.send(connection, 1, 1, 2, 3)
        messages = aiter(client)
        one, two, three = [await anext(messages) for _ in range(3)]
        for message in (three, two, three):
            message.acknowledge()
        await self.nothing(client, connection)
        one.acknowledge()
        for identifier in (1, 2, 3):
            await self.expect(connection, PUBACK, identifier)
        await client.close()

    async def test_a_block_acknowledges_unless_it_raises(self) -> None:
        client, connection = await self.open()
        await self.send(connection, 1, 1, 2, 3)
        messages = aiter(client)
        async with await anext(messages):
            pass
        await self.expect(connection, PUBACK, 1)
        with self.assertRaises(KeyError):
            async with await anext(messages):
                raise KeyError
        await anext(messages)
        await self.nothing(client, connection)
        await client.close()

    async def test_qos_2_is_received_when_the_application_acknowledges_and_delivered_once(self) -> None:
        client, connection = await self.open(acknowledge="manual")
        await self.send(connection, 2, 1)
        messages = aiter(client)
        message = await anext(messages)
        await self.nothing(client, connection)
        connection = await self.reconnected(connection)
        await self.send(connection, 2, 1, is_again=True)
        await self.nothing(client, connection)
        message.acknowledge()
        await self.expect(connection, PUBREC, 1)
        connection = await self.reconnected(connection)
        await self.send(connection, 2, 1, is_again=True)
        await self.expect(connection, PUBREC, 1)
        await connection.write(packet(PUBREL, b"\0\1", 2))
        await self.expect(connection, PUBCOMP, 1)
        await self.send(connection, 2, 1)
        self.assertEqual((await anext(messages)).text, "1", "a new message under the same identifier")
        await client.close()

    async def test_qos_2_that_is_acknowledged_without_a_connection_is_received_on_the_next(self) -> None:
        client, connection = await self.open(acknowledge="manual")
        await self.send(connection, 2, 1)
        message = await anext(aiter(client))
        connection.close()
        await client.wait_for_sessions({})
        message.acknowledge()
        connection = await self.broker.next()
        await connection.accept(session_present=True)
        await self.send(connection, 2, 1, is_again=True)
        await self.expect(connection, PUBREC, 1)
        await client.close()

    async def test_an_acknowledgement_for_an_earlier_connection_has_no_effect_at_qos_1(self) -> None:
        client, connection = await self.open(acknowledge="manual")
        await self.send(connection, 1, 1, 2, 3)
        messages = aiter(client)
        earlier = await anext(messages)
        connection = await self.reconnected(connection)
        await self.nothing(client, connection)
        # The broker may use an identifier for another message after a message expired.
        await connection.write(publication("t", b"other", 1, 1), publication("t", b"3", 1, 3, is_again=True))
        other = await anext(messages)
        self.assertEqual(other.text, "other", "what is sent again is delivered once: the rest of the queue was dropped")
        earlier.acknowledge()
        await self.nothing(client, connection)
        other.acknowledge()
        await self.expect(connection, PUBACK, 1)
        self.assertEqual((await anext(messages)).text, "3")
        await client.close()

    async def test_a_lost_session_leaves_the_queue_to_the_application(self) -> None:
        for qos in (1, 2):
            with self.subTest(qos=qos):
                client, connection = await self.open()
                await self.send(connection, qos, 1, 2)
                messages = aiter(client)
                self.assertEqual((await anext(messages)).text, "1")
                connection = await self.reconnected(connection, session_present=False)
                await connection.write(publication("t", b"new", qos, 1))
                self.assertEqual([(await anext(messages)).text for _ in range(2)], ["2", "new"])
                await self.nothing(client, connection)
                asking = asyncio.ensure_future(anext(messages))
                await self.expect(connection, PUBACK if qos == 1 else PUBREC, 1)
                asking.cancel()
                await client.close()

    async def test_the_window_bounds_what_is_not_acknowledged_and_publishing_goes_on_meanwhile(self) -> None:
        client, connection = await self.open(receive_queue=2)
        self.assertIn(b"\x21\x00\x02", connection.connect, "Receive Maximum 2")
        await self.send(connection, 1, 1, 2)
        publishing = asyncio.create_task(client.publish("mine", "1", qos=1))
        sent = await connection.expect(PUBLISH)
        await connection.write(packet(PUBACK, sent[6:8]))
        await publishing
        await self.send(connection, 1, 3)
        again = await self.broker.next()
        self.assertIn("Receive Maximum", client.last_problem)
        await again.accept(session_present=True)
        await client.close()

    async def test_after_the_end_nothing_comes_that_the_broker_will_send_again(self) -> None:
        client, connection = await self.open(resume=True)
        await connection.write(publication("t", b"1", 1, 1), packet(PUBLISH, support.text("t") + b"\0" + b"0"))
        publishing = asyncio.create_task(client.publish("mine", "1", qos=1))
        sent = await connection.expect(PUBLISH)
        await connection.write(packet(PUBACK, sent[6:8]))
        await publishing
        await client.close()
        self.assertEqual([message.text async for message in client], ["0"])

    async def test_a_session_is_not_ended_before_its_messages_are_acknowledged(self) -> None:
        async with HandBroker() as elsewhere:
            addresses = [self.broker.address, elsewhere.address]

            async def accept(connection: Connection, *sessions: support.Session, session_present: bool = False) -> None:
                answer = json.dumps(support.placement(addresses, sessions))
                await connection.accept(session_present=session_present, user=[("thicket-placement", answer)])

            client = thicket.Client(
                f"mqtt://{addresses[0]}", client_id="c", first_pause=0.01, quiet=0.05, acknowledge="manual", subscribe={"a": 1, "b": 1}
            )
            opening = asyncio.create_task(client.__aenter__())
            connection = await self.broker.next()
            await accept(connection, ("c", 0, [], ["a"]), ("c~2", 1, [], ["b"]))
            await self.grant(connection)
            there = await elsewhere.next()
            await there.accept()
            await self.grant(there)
            await opening
            await self.send(there, 1, 7)
            message = await anext(aiter(client))
            connection.close()
            back = await self.broker.next()
            await accept(back, ("c", 0, [], ["a", "b"]), session_present=True)
            await self.grant(back)
            request = await there.expect(UNSUBSCRIBE)
            await there.write(packet(UNSUBACK, request[:2] + b"\0\0"))
            await there.expect(PINGREQ)
            await there.write(packet(PINGRESP, b""))
            # The other session answers after the first one was read to its end.
            await self.nothing(client, back)
            message.acknowledge()
            await self.expect(there, PUBACK, 7)
            await there.expect(DISCONNECT)
            await client.close()

    async def grant(self, connection: Connection) -> None:
        request = await connection.expect(SUBSCRIBE)
        await connection.write(packet(SUBACK, request[:2] + b"\0\1"))
