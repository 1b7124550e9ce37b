"""QoS 2 exactly once while publisher and subscriber change nodes again and again, half of the time by takeover.

Both ends behave as 4.3.3 and 4.4 ask of a client that keeps its session. When they move is drawn from a seed, which a
failure names.
"""

import collections
import contextlib
import random
import time

from nodes import OneNode, ThreeNodes
from wire import NEVER, Kind, Property, RawClient, acknowledge, publish

MESSAGES = 200
IDENTIFIERS = range(1, 11)
# The chance of a move at each step; a step is a packet or two.
MOVE = 0.01
# How long one seed may take; it needs about a second.
PATIENCE_S = 40.0


class Mover:
    """A client whose session goes with it from node to node."""

    def __init__(self, ports, client_id, rng):
        self.ports, self.client_id, self.rng = ports, client_id, rng
        self.connection = None
        self.move()

    def move(self):
        """Connects anew somewhere; the older connection is closed before or taken over."""
        older = self.connection
        if older and self.rng.random() < 0.5:
            older.close()
        self.connection = RawClient(self.rng.choice(self.ports))
        props = ((Property.SESSION_EXPIRY_INTERVAL, NEVER),)
        came = self.connection.connect(self.client_id, clean_start=False, props=props)
        assert came.session_present == (older is not None), f"{self.client_id}: {came}"
        if older:
            older.close()

    def step(self):
        """Handles a packet if there is one, and moves by chance."""
        with contextlib.suppress(TimeoutError):
            self.handle(self.connection.receive(0.002))
        if self.rng.random() < MOVE:
            self.move()


class Publisher(Mover):
    """Sends numbers; re-sends what is not finished when it has moved."""

    def __init__(self, topic, *arguments):
        self.topic = topic
        self.next = 0
        self.free = collections.deque(IDENTIFIERS)
        self.unfinished = collections.OrderedDict()
        super().__init__(*arguments)

    def move(self):
        super().move()
        for packet_id, (number, awaited) in self.unfinished.items():
            if awaited == Kind.PUBREC:
                self.connection.send(publish(self.topic, b"%d" % number, 2, packet_id, dup=True))
            else:
                self.connection.send(acknowledge(Kind.PUBREL, packet_id))

    def step(self):
        while self.free and self.next < MESSAGES:
            packet_id = self.free.popleft()
            self.unfinished[packet_id] = (self.next, Kind.PUBREC)
            self.connection.send(publish(self.topic, b"%d" % self.next, 2, packet_id))
            self.next += 1
        super().step()

    def handle(self, came):
        number, awaited = self.unfinished.get(came.packet_id, (None, None))
        assert came.kind == awaited, f"waited for {awaited!r} of message {number}, got {came}"
        if came.kind == Kind.PUBREC:
            self.unfinished[came.packet_id] = (number, Kind.PUBCOMP)
            self.connection.send(acknowledge(Kind.PUBREL, came.packet_id))
        else:
            del self.unfinished[came.packet_id]
            self.free.append(came.packet_id)


class Subscriber(Mover):
    """Takes each packet identifier once until it is released."""

    def __init__(self, topic, *arguments):
        self.taken, self.held = [], {}
        super().__init__(*arguments)
        self.connection.subscribe((topic, 2))

    def handle(self, came):
        if came.kind == Kind.PUBLISH:
            if came.packet_id not in self.held:
                self.taken.append(int(came.payload))
                self.held[came.packet_id] = came.payload
            assert self.held[came.packet_id] == came.payload, f"another message under an identifier in use: {came}"
            self.connection.send(acknowledge(Kind.PUBREC, came.packet_id))
        else:
            assert came.kind == Kind.PUBREL, came
            self.held.pop(came.packet_id, None)
            self.connection.send(acknowledge(Kind.PUBCOMP, came.packet_id))


class MovingCases:
    """On one node, where moving is to connect anew, and across several."""

    def test_every_message_arrives_exactly_once_and_in_order(self):
        """[MQTT-4.3.3-10] [MQTT-4.4.0-1] [MQTT-4.5.0-1] [MQTT-4.6.0-1]"""
        ports = [self.here, self.there, self.elsewhere]
        for seed in range(8):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                subscriber = Subscriber(self.topic(seed), ports, self.client_id(f"subscriber-{seed}"), rng)
                publisher = Publisher(self.topic(seed), ports, self.client_id(f"publisher-{seed}"), rng)
                deadline = time.monotonic() + PATIENCE_S
                while len(subscriber.taken) < MESSAGES or publisher.unfinished or subscriber.held:
                    missing = sorted(set(range(publisher.next)) - set(subscriber.taken))
                    self.assertLess(time.monotonic(), deadline, f"missing {missing}, open {publisher.unfinished}")
                    publisher.step()
                    subscriber.step()
                self.assertEqual(subscriber.taken, list(range(MESSAGES)))
                publisher.connection.close()
                subscriber.connection.close()


class MovingOnOneNode(MovingCases, OneNode):
    pass


class MovingAcrossNodes(MovingCases, ThreeNodes):
    pass
