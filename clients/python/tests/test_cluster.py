"""Against nodes that are processes of their own, and that die; and against Mosquitto."""

import asyncio
import contextlib
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import unittest
from typing import Any, Literal

import support
from support import Control, Counting, addresses, placement, publish_all, urls

import thicket

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"
PAGE = README.parents[2] / "docs" / "clients.md"
MOSQUITTO = shutil.which("mosquitto") or "/usr/sbin/mosquitto"


class ClusterTest(unittest.IsolatedAsyncioTestCase):
    def start(self, size: int) -> Any:
        cluster = support.start_cluster(size)
        self.addCleanup(cluster.close_logs)
        self.addCleanup(cluster.stop)
        return cluster


class Cluster(ClusterTest):
    async def test_nodes_that_die_lose_nothing_and_at_qos_2_repeat_nothing(self) -> None:
        for qos in (1, 2):
            cluster = self.start(4)
            topics = ["d/0", "d/1", "d/2"]
            async with Control() as reads, Control() as writes:
                reads.answer = placement(addresses(cluster), [("reader", 0, [], ["d/0"]), ("reader~2", 1, [], ["d/1", "d/2"])])
                writes.answer = placement(addresses(cluster), [("writer", 2, ["d/0", "d/2"], []), ("writer~2", 1, ["d/1"], [])])
                subscriptions = dict.fromkeys(topics, qos)
                reader = thicket.Client(urls(cluster), client_id="reader", placement=[reads.url], subscribe=subscriptions)
                writer = thicket.Client(urls(cluster), client_id="writer", placement=[writes.url], publish=topics)
                async with reader, writer:
                    await asyncio.gather(*(reader.subscribe(topic, qos) for topic in topics))
                    counting = Counting(reader)

                    def at(number: int, cluster: Any = cluster) -> None:
                        if number in (60, 180):
                            cluster.nodes[1 if number == 60 else 2].kill()

                    await publish_all(writer, topics, qos, 300, at)
                    await counting.wait_for(900)
            print(f"QoS {qos}: {len(counting.seen)} messages, {len(counting.twice)} came twice", file=sys.stderr)
            self.assertEqual(counting.out_of_order, [])
            if qos == 2:
                self.assertEqual(counting.twice, [])

    async def test_subscriptions_that_move_lose_nothing_and_at_qos_2_repeat_nothing(self) -> None:
        cluster = self.start(3)
        topics = ["m/0", "m/1", "m/2", "m/3"]
        layouts: list[list[support.Session]] = [
            [("mover", 0, [], ["m/0", "m/1"]), ("mover~2", 1, [], ["m/2", "m/3"])],
            [("mover", 0, [], ["m/2"]), ("mover~2", 1, [], ["m/0"]), ("mover~3", 2, [], ["m/1", "m/3"])],
            [("mover", 2, [], ["m/0", "m/1", "m/2"]), ("mover~2", 0, [], ["m/3"])],
            [("mover", 1, [], topics)],
        ]
        async with Control() as control:
            control.answer = placement(addresses(cluster), [("mover", 0, [], topics)])
            mover = thicket.Client(
                urls(cluster), client_id="mover", placement=[control.url], subscribe=dict.fromkeys(topics, 2), quiet=0.05
            )
            async with mover, thicket.Client(urls(cluster), client_id="publisher") as publisher:
                await asyncio.gather(*(mover.subscribe(topic, 2) for topic in topics))
                counting = Counting(mover)

                async def move() -> int:
                    for number in range(8):
                        control.answer = placement(addresses(cluster), layouts[number % len(layouts)])
                        # A filter that comes or goes has the control plane asked again.
                        await mover.subscribe(f"extra/{number}")
                        await asyncio.sleep(0.3)
                    return number + 1

                moving = asyncio.create_task(move())
                count = 0
                while not moving.done():
                    await asyncio.gather(*(publisher.publish(topic, str(count), qos=2) for topic in topics))
                    count += 1
                await counting.wait_for(count * len(topics))
                await mover.wait_for_sessions({1: addresses(cluster)[1]})
        print(f"moving: {len(counting.seen)} messages, {moving.result()} layouts, {len(control.requests)} requests", file=sys.stderr)
        self.assertEqual(counting.twice, [])

    async def test_a_session_that_is_placed_elsewhere_keeps_its_state(self) -> None:
        cluster = self.start(2)
        async with Control() as control:
            control.answer = placement(addresses(cluster), [("one", 0, [], ["t"])])
            client = thicket.Client(urls(cluster), client_id="one", placement=[control.url], subscribe={"t": 2})
            async with client, thicket.Client(urls(cluster)) as publisher:
                await client.subscribe("t", 2)
                counting = Counting(client)

                async def move() -> None:
                    for number in range(6):
                        control.answer = placement(addresses(cluster), [("one", (number + 1) % 2, [], ["t"])])
                        await client.subscribe(f"extra/{number}")
                        await client.wait_for_sessions({1: addresses(cluster)[(number + 1) % 2]})

                moving = asyncio.create_task(move())
                count = 0
                while not moving.done():
                    await publisher.publish("t", str(count), qos=2)
                    count += 1
                await moving
                await counting.wait_for(count)
        self.assertEqual((counting.twice, counting.out_of_order), ([], []))

    async def test_a_node_that_is_drained_sends_its_clients_elsewhere(self) -> None:
        cluster = self.start(3)
        here = addresses(cluster)[0]
        reader = thicket.Client(f"mqtt://{here}", client_id="reader", placement=None, subscribe={"t": 2})
        writer = thicket.Client(f"mqtt://{here}", client_id="writer", placement=None)
        async with reader, writer:
            counting = Counting(reader)
            draining = asyncio.create_task(support.drain(cluster.nodes[0]))
            count = 0
            while count < 300 or not all(client.sessions.get(1, here) != here for client in (reader, writer)):
                await writer.publish("t", str(count), qos=2)
                count += 1
            await draining
            await counting.wait_for(count)
        self.assertEqual((counting.twice, counting.out_of_order), ([], []))

    async def test_the_cluster_places_a_client_over_mqtt_and_by_http(self) -> None:
        cluster = self.start(2)
        planes = [f"http://127.0.0.1:{node.http_port}" for node in cluster.nodes]
        ways: tuple[Literal["mqtt"] | list[str], ...] = ("mqtt", planes)
        for way in ways:
            async with thicket.Client(urls(cluster), placement=way, subscribe={"p/+": 1}, publish=["p/1"]) as client:
                self.assertTrue(client.is_placed, client.last_problem)
                await client.publish("p/1", "here", qos=1)
                async for message in client:
                    self.assertEqual(message.text, "here")
                    break

    async def test_without_a_control_plane_any_node_serves(self) -> None:
        cluster = self.start(1)
        async with Control() as refusing:
            planes = [f"http://127.0.0.1:{support.free_port()}", refusing.url]
            async with thicket.Client(urls(cluster), placement=planes) as client:
                self.assertFalse(client.is_placed)
                await client.subscribe("a", 1)
                await client.publish("a", "1", qos=1)
                async for message in client:
                    self.assertEqual(message.text, "1")
                    break

    async def test_who_takes_a_client_identifier_over_ends_the_client_before(self) -> None:
        cluster = self.start(1)
        first = await thicket.Client(urls(cluster), client_id="same").__aenter__()
        async with thicket.Client(urls(cluster), client_id="same") as second:
            with self.assertRaises(thicket.TakenOver):
                async for _ in first:
                    pass
            with self.assertRaises(thicket.TakenOver):
                await first.publish("a")
            await second.publish("a", qos=1)

    async def test_a_full_queue_holds_the_broker_back_and_loses_nothing(self) -> None:
        cluster = self.start(1)
        async with (
            thicket.Client(urls(cluster), receive_queue=10) as slow,
            thicket.Client(urls(cluster)) as publisher,
        ):
            await slow.subscribe("a", 1)
            for number in range(500):
                await publisher.publish("a", str(number), qos=1)
            counting = Counting(slow)
            await counting.wait_for(500)
            self.assertEqual((counting.twice, counting.out_of_order), ([], []))

    async def test_a_session_of_an_earlier_run_is_taken_up(self) -> None:
        cluster = self.start(1)
        async with thicket.Client(urls(cluster), client_id="kept", resume=True) as client:
            await client.subscribe("a", 1)
        async with thicket.Client(urls(cluster)) as publisher:
            await publisher.publish("a", "meanwhile", qos=1)
        async with thicket.Client(urls(cluster), client_id="kept", resume=True) as client:
            async for message in client:
                self.assertEqual(message.text, "meanwhile")
                break


class Listener(ClusterTest):
    def test_the_example_of_the_readme_is_placed_by_the_listener_for_placements(self) -> None:
        port = support.free_port()
        cluster = support.start_cluster(1, ["--placement-listen", f"127.0.0.1:{port}"])
        self.addCleanup(cluster.close_logs)
        self.addCleanup(cluster.stop)
        (example,) = (code for code in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if ":18840" in code)
        code = example.replace('localhost:1883"', f'127.0.0.1:{cluster.nodes[0].port}"').replace("localhost:18840", f"127.0.0.1:{port}")
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.endswith(" True\n"), result.stdout)


class Mosquitto(unittest.IsolatedAsyncioTestCase):
    """A plain broker: one session, no placement; and the README's examples."""

    def setUp(self) -> None:
        self.port = support.free_port()
        self.process = subprocess.Popen([MOSQUITTO, "-p", str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        support.wait_until(self.is_listening, "Mosquitto to listen")

    def is_listening(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    async def test_every_qos_goes_through_in_both_versions(self) -> None:
        versions: tuple[Literal[4, 5], ...] = (4, 5)
        for version in versions:
            async with thicket.Client(f"mqtt://127.0.0.1:{self.port}", version=version) as client:
                self.assertEqual((list(client.sessions), client.is_placed), ([1], False))
                self.assertEqual(await client.subscribe("a/+", 2), 2)
                for qos in (0, 1, 2):
                    await client.publish(f"a/{qos}", bytes([qos]), qos=qos)
                found = []
                async for message in client:
                    found.append((message.topic, message.payload, message.qos))
                    if len(found) == 3:
                        break
                self.assertEqual(found, [(f"a/{qos}", bytes([qos]), qos) for qos in (0, 1, 2)])
                await client.unsubscribe("a/+")

    def test_the_examples_of_the_readme_and_of_the_page_run(self) -> None:
        examples = [re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in (README, PAGE)]
        self.assertEqual([len(of_page) for of_page in examples], [6, 1])
        for example in examples[0] + examples[1]:
            if ":18840" in example:
                continue
            code = re.sub(r"localhost:188[345]", f"127.0.0.1:{self.port}", example)
            result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ""), example)
            self.assertNotEqual(result.stdout, "", example)
