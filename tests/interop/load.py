"""Clients that go on where their node was killed, and the books they keep: what was acknowledged, what came.

Each runs on a thread of its own while a node is up, and keeps its side of the session when the node is gone, as the
specification asks of a client (4.1): what was not acknowledged is sent again, what was received at QoS 2 is held.
"""

import threading

from wire import NEVER, Closed, Kind, Property, RawClient, acknowledge, publish

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
            came = self.client.receive()
            if came.kind == Kind.PUBLISH:
                self.take(came)
            elif came.kind == Kind.PUBREL:
                self.held.discard(came.packet_id)
                self.client.send(acknowledge(Kind.PUBCOMP, came.packet_id))
            if self.last and (came.payload or b"") == self.last:
                return

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
