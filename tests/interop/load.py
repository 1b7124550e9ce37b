"""Clients that go on where their node was killed, and the books they keep: what was acknowledged, what came.

Each runs on a thread of its own while a node is up, and keeps its side of the session when the node is gone, as the
specification asks of a client (4.1): what was not acknowledged is sent again, what was received at QoS 2 is held.
"""

import collections
import itertools
import threading

from wire import (
    NEVER,
    Closed,
    Kind,
    Property,
    RawClient,
    acknowledge,
    publish,
    subscribe,
    unsubscribe,
)

# Messages a publisher has under way.
WINDOW = 20
KEPT = ((Property.SESSION_EXPIRY_INTERVAL, NEVER),)


class Persistent:
    """A client with a session that outlives its connections and its node."""

    def __init__(self, client_id):
        self.client_id = client_id
        self.has_session = False
        self.client = None
        self.thread = None
        self.problem = None

    def connect(self, port):
        """Connects; the session must be there if it was ever made."""
        self.client = RawClient(port)
        came = self.client.connect(self.client_id, clean_start=False, props=KEPT)
        assert came.session_present == self.has_session, f"{self.client_id}: {came}"
        self.has_session = True

    def begin(self, port):
        """Connects and goes on until the connection ends."""
        self.connect(port)
        self.thread = threading.Thread(target=self.guarded_run, name=self.client_id)
        self.thread.start()

    def guarded_run(self):
        try:
            self.run()
        except (Closed, OSError):
            pass
        except Exception as problem:  # noqa: BLE001: told by the thread that joins this one
            self.problem = problem

    def end(self):
        """Waits for the end of the connection, which somebody else brings about."""
        self.thread.join()
        self.client.close()
        if self.problem:
            raise self.problem


class Publisher(Persistent):
    """Publishes numbers as payloads at one QoS; knows which the node has answered for."""

    def __init__(self, client_id, topic, qos):
        super().__init__(client_id)
        self.topic, self.qos = topic, qos
        self.next_number = 0
        # Packet identifier to number, in the order of sending; and those whose PUBREC came.
        self.open = {}
        self.released = {}
        self.acknowledged = set()
        self.is_closing = False

    def run(self):
        for packet_id, number in self.open.items():
            self.client.send(publish(self.topic, f"{number}", self.qos, packet_id, dup=True))
        for packet_id in self.released:
            self.client.send(acknowledge(Kind.PUBREL, packet_id))
        while True:
            while not self.is_closing and len(self.open) + len(self.released) < WINDOW:
                self.send_next()
            if self.is_closing and not self.open and not self.released:
                return
            self.take_answer(self.client.receive())

    def send_next(self):
        number, self.next_number = self.next_number, self.next_number + 1
        packet_id = number % 65535 + 1
        self.open[packet_id] = number
        self.client.send(publish(self.topic, f"{number}", self.qos, packet_id))

    def take_answer(self, came):
        if came.kind == Kind.PUBCOMP:
            self.released.pop(came.packet_id)
            return
        assert came.kind == (Kind.PUBACK if self.qos == 1 else Kind.PUBREC), came
        assert came.reason_code < 0x80, came
        number = self.open.pop(came.packet_id)
        self.acknowledged.add(number)
        if self.qos == 2:
            self.released[came.packet_id] = number
            self.client.send(acknowledge(Kind.PUBREL, came.packet_id))

    def finish(self, port):
        """Nothing new, but all that is open to its end."""
        self.is_closing = True
        self.begin(port)
        self.end()


class Subscriber(Persistent):
    """Takes all that comes, each QoS 2 message once; `last` ends it."""

    def __init__(self, client_id):
        super().__init__(client_id)
        self.came = []
        self.held = set()
        self.last = None

    def run(self):
        while True:
            came = self.receive()
            if self.last and (came.payload or b"") == self.last:
                return

    def receive(self):
        """The next packet, answered."""
        came = self.client.receive()
        if came.kind == Kind.PUBLISH:
            self.take(came)
        elif came.kind == Kind.PUBREL:
            self.held.discard(came.packet_id)
            self.client.send(acknowledge(Kind.PUBCOMP, came.packet_id))
        return came

    def take(self, came):
        if came.qos == 1:
            self.came.append((came.topic, came.payload))
            self.client.send(acknowledge(Kind.PUBACK, came.packet_id))
            return
        assert came.qos == 2, came
        # The method that delivers at once and holds the identifier (4.3.3).
        if came.packet_id not in self.held:
            self.held.add(came.packet_id)
            self.came.append((came.topic, came.payload))
        self.client.send(acknowledge(Kind.PUBREC, came.packet_id))

    def finish(self, port, last):
        """Connects and takes what is there, up to a message that was published after all others."""
        self.last = last
        self.begin(port)
        self.end()


class Wanderer(Subscriber):
    """A subscriber that goes on to the next node again and again."""

    # Messages it takes before it moves on.
    STAY = 40

    def __init__(self, client_id):
        super().__init__(client_id)
        self.ports = None

    def run(self):
        while self.ports and not self.last:
            for _ in range(self.STAY):
                self.receive()
            self.client.close()
            self.connect(next(self.ports))
        super().run()


class Asking(Persistent):
    """A client that asks for one thing at a time and notes what it was granted, until the connection ends."""

    def __init__(self, client_id, chance):
        super().__init__(client_id)
        self.chance = chance

    def run(self):
        while True:
            self.ask()


class Subscribing(Asking):
    """Subscribes and unsubscribes."""

    def __init__(self, client_id, chance):
        super().__init__(client_id, chance)
        self.filters = [f"{client_id}/{number}" for number in range(6)]
        self.held = set()
        # Asked for, and maybe granted.
        self.uncertain = set()
        self.packet_ids = itertools.cycle(range(1, 65536))

    def ask(self):
        name, packet_id = self.chance.choice(self.filters), next(self.packet_ids)
        self.uncertain.add(name)
        if name in self.held:
            self.client.send(unsubscribe(packet_id, name))
            assert self.client.expect(Kind.UNSUBACK).codes == [0]
            self.held.discard(name)
        else:
            self.client.send(subscribe(packet_id, (name, 1)))
            assert self.client.expect(Kind.SUBACK).codes == [1]
            self.held.add(name)
        self.uncertain.discard(name)

    def problem_at(self, port):
        """What is not as it was granted; the subscriptions are known again afterwards."""
        self.connect(port)
        for name in self.filters:
            self.client.send(publish(name, "x"))
        came = {one.topic for one in self.client.ping()}
        self.client.close()
        wrong = (came ^ self.held) - self.uncertain
        self.held, self.uncertain = came, set()
        return f"{self.client_id}: {sorted(wrong)} of {sorted(came)}" if wrong else None


class Retaining(Asking):
    """Publishes retained messages, numbers, and removes them."""

    def __init__(self, client_id, chance):
        super().__init__(client_id, chance)
        self.numbers = itertools.count(1)
        # Of each topic: what was acknowledged last, behind it what may have come after.
        self.possible = {f"{client_id}/{number}": [b""] for number in range(4)}

    def connect(self, port):
        """Without a session: what was under way is not sent again."""
        self.client = RawClient(port)
        self.client.connect(self.client_id)

    def ask(self):
        topic = self.chance.choice(list(self.possible))
        payload = b"%d" % next(self.numbers) if self.chance.random() < 0.7 else b""
        self.possible[topic].append(payload)
        assert self.client.publish(topic, payload, qos=self.chance.choice((1, 2)), retain=True) < 0x80
        self.possible[topic] = [payload]

    def problem_at(self, port):
        """What is not as it was acknowledged."""
        with RawClient(port) as client:
            client.connect(f"{self.client_id}-look")
            came = self.retained(client)
        for topic, possible in self.possible.items():
            found = came.get(topic, b"")
            if found not in possible:
                return f"{topic} is {found}, not one of {possible}"
            self.possible[topic] = [found]
        return None

    def retained(self, client):
        """The retained messages, by topic: all that come before one that is asked for last."""
        last = f"{self.client_id}-last"
        client.publish(last, "x", qos=1, retain=True)
        client.send(subscribe(1, (f"{self.client_id}/#", 0)), subscribe(2, (last, 0)))
        came = {}
        while last not in came:
            one = client.receive()
            if one.kind == Kind.PUBLISH:
                came[one.topic] = one.payload
        return came


class Ending(Asking):
    """Begins sessions and ends some of them again."""

    # Sessions looked at afterwards: the last ones.
    LOOKED_AT = 30

    def __init__(self, client_id, chance):
        super().__init__(client_id, chance)
        self.numbers = itertools.count(1)
        self.present = collections.OrderedDict()
        self.port = None

    def begin(self, port):
        self.port = port
        super().begin(port)

    def ask(self):
        name = f"{self.client_id}-{next(self.numbers)}"
        self.present[name] = None
        with RawClient(self.port) as client:
            client.connect(name, clean_start=False, props=KEPT)
            self.present[name] = True
            if self.chance.random() < 0.5:
                self.present[name] = None
                with RawClient(self.port) as ending:
                    ending.connect(name, clean_start=True)
                    self.present[name] = False

    def problem_at(self, port):
        """What is not as it was granted."""
        for name, present in list(self.present.items())[-self.LOOKED_AT :]:
            with RawClient(port) as client:
                found = client.connect(name, clean_start=False, props=KEPT).session_present
                if present not in (None, found):
                    return f"the session of {name} is {'not ' * present}there"
            self.present[name] = True
        return None


def check_books(case, publishers, subscribers, in_order=False):
    """Nothing acknowledged is missing, and what was published at QoS 2 came once."""
    for publisher in publishers:
        expected = publisher.acknowledged
        case.assertEqual(expected, set(range(publisher.next_number)), "finished")
        for subscriber in subscribers:
            with case.subTest(subscriber=subscriber.client_id, qos=publisher.qos):
                came = [int(payload) for topic, payload in subscriber.came if topic == publisher.topic]
                case.assertEqual(expected - set(came), set(), "missing")
                if publisher.qos == 2:
                    case.assertEqual(len(came), len(set(came)), "came twice")
                    if in_order:
                        case.assertEqual(came, sorted(came), "in order")
