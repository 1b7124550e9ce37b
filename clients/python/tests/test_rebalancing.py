"""Clients that the rebalancer of real nodes places anew while they are connected, and nodes that die meanwhile.

`THICKET_TEST_SECONDS`: how long messages flow after the first clients were placed anew.
"""

import asyncio
import json
import os
import re
import sys
import unittest
from typing import Any

import support
from support import Counting, urls

import thicket

SECONDS = float(os.environ.pop("THICKET_TEST_SECONDS", "3"))
TOPICS = [f"anew/{number}" for number in range(9)]
PERIOD_S = 0.03


def wanted(reader: int) -> list[str]:
    """The topics of a reader: four, that few others have."""
    return [TOPICS[(reader + 2 * more) % len(TOPICS)] for more in range(4)]


class Flow:
    """Nine writers, one a topic, and six readers of four topics each, at nodes that rebalance them."""

    def __init__(self, cluster: Any, qos: int) -> None:
        self._cluster = cluster
        self._qos = qos
        # Each is placed for a topic that nobody else has, and asks no more by itself.
        self._writers = [self._client(f"writer-{number}") for number in range(len(TOPICS))]
        self._readers = [self._client(f"reader-{number}") for number in range(6)]
        self._counting: list[Counting] = []
        self._is_over = False

    def _client(self, name: str) -> thicket.Client:
        return thicket.Client(urls(self._cluster), client_id=name, publish=[f"start/{name}"], quiet=0.1)

    async def run(self, *, kills: bool) -> None:
        """Publishes until clients were placed anew and for a while after that; `kills` a node meanwhile."""
        everybody = [*self._writers, *self._readers]
        await asyncio.gather(*(client.__aenter__() for client in everybody))
        try:
            filters = [(reader, topic) for number, reader in enumerate(self._readers) for topic in wanted(number)]
            await asyncio.gather(*(reader.subscribe(topic, self._qos) for reader, topic in filters))
            self._counting = [Counting(reader) for reader in self._readers]
            publishing = [asyncio.create_task(self._publish(number)) for number in range(len(TOPICS))]
            await asyncio.to_thread(support.wait_until, self._is_placed_anew, "clients placed anew", support.TIMEOUT_S)
            await asyncio.sleep(SECONDS / 2)
            if kills:
                self._cluster.nodes[1].kill()
            await asyncio.sleep(SECONDS / 2)
            self._is_over = True
            counts = dict(zip(TOPICS, await asyncio.gather(*publishing), strict=True))
            self._expected = [sum(counts[topic] for topic in wanted(number)) for number in range(len(self._readers))]
            await asyncio.gather(*(one.wait_for(count) for one, count in zip(self._counting, self._expected, strict=True)))
        finally:
            self._is_over = True
            await asyncio.gather(*(client.close() for client in everybody))

    async def _publish(self, number: int) -> int:
        count = 0
        while not self._is_over:
            await self._writers[number].publish(TOPICS[number], str(count), qos=self._qos)
            count += 1
            await asyncio.sleep(PERIOD_S)
        return count

    def _is_placed_anew(self) -> bool:
        return self.moves() > 0 and any(len(reader.sessions) > 1 for reader in self._readers)

    def moves(self) -> int:
        """Clients that the nodes that live have placed anew."""
        metrics = b"".join(node.ask("/metrics") or b"" for node in self._cluster.nodes if node.is_alive())
        return sum(int(count) for count in re.findall(rb'^thicket_rebalance_moves_total{reason="topics"} (\d+)', metrics, re.MULTILINE))

    @property
    def messages(self) -> int:
        return sum(self._expected)

    @property
    def lost(self) -> int:
        return self.messages - sum(len(one.seen) for one in self._counting)

    @property
    def twice(self) -> int:
        return sum(len(one.twice) for one in self._counting)


class Rebalancing(unittest.IsolatedAsyncioTestCase):
    async def check(self, qos: int, *, kills: bool) -> None:
        cluster = support.start_cluster(3, ["--rebalance", "on", "--rebalance-rest-s", "2"])
        self.addCleanup(cluster.close_logs)
        self.addCleanup(cluster.stop)
        flow = Flow(cluster, qos)
        await flow.run(kills=kills)
        counts = {"qos": qos, "kills": kills, "messages": flow.messages, "lost": flow.lost, "twice": flow.twice, "moves": flow.moves()}
        print(json.dumps(counts), file=sys.stderr)
        self.assertEqual(flow.lost, 0)
        if qos == 2:
            self.assertEqual(flow.twice, 0)

    async def test_clients_placed_anew_lose_nothing_and_at_qos_2_repeat_nothing(self) -> None:
        for qos in (1, 2):
            await self.check(qos, kills=False)

    async def test_nor_do_they_when_a_node_dies_meanwhile(self) -> None:
        for qos in (1, 2):
            await self.check(qos, kills=True)
