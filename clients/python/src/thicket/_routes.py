"""The session on which a topic is published.

A topic changes its session only when none of its messages is in flight on the old one: so the messages of one topic stay in order.
"""

import asyncio
from collections.abc import Mapping

from ._topics import is_exact, matches

# The most undeclared topics that are remembered for the next placement, and their bytes: some brokers refuse a CONNECT above 100,000 bytes.
LEARNED = 1000
LEARNED_BYTES = 65_536


class Routes:
    """Topics, sessions, and messages in flight."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._filters: list[tuple[str, int]] = []
        self._open: set[int] = set()
        # Topics with messages in flight: their session, and how many.
        self._busy: dict[str, tuple[int, int]] = {}
        self._changed = asyncio.Event()
        self.learned: set[str] = set()
        self._learned_bytes = 0

    async def enter(self, topic: str) -> int | None:
        """The session of `topic`, with one more message in flight. Waits while others are in flight on another session. None: closed."""
        while True:
            session = self._find(topic)
            if session not in self._open:
                return None
            on, count = self._busy.get(topic, (session, 0))
            if on == session:
                self._busy[topic] = (session, count + 1)
                return session
            changed = self._changed
            await changed.wait()

    def leave(self, topic: str) -> None:
        """A message of `topic` was acknowledged, refused or given up."""
        on, count = self._busy[topic]
        if count > 1:
            self._busy[topic] = (on, count - 1)
        else:
            del self._busy[topic]
            self._notify()

    def replace(self, placed: Mapping[str, int]) -> None:
        """From now on these topics and filters are published on these sessions, and all others on the first."""
        self._topics = {topic: session for topic, session in placed.items() if is_exact(topic)}
        self._filters = [(topic, session) for topic, session in placed.items() if not is_exact(topic)]
        self._notify()

    def place(self, topic: str, session: int) -> None:
        """From now on one topic is published on `session`."""
        self._topics[topic] = session
        self._notify()

    def open(self, session: int) -> None:
        self._open.add(session)
        self._notify()

    def close(self, session: int) -> None:
        """Topics of `session` are published on the first session from now on."""
        self._open.discard(session)
        self._notify()

    def forget(self, session: int) -> None:
        """No more topics are placed on `session`."""
        self._topics = {topic: place for topic, place in self._topics.items() if place != session}
        self._filters = [(topic, place) for topic, place in self._filters if place != session]
        self.close(session)

    def close_all(self) -> None:
        """No more messages are published."""
        self._open.clear()
        self._notify()

    def uses(self, session: int) -> bool:
        """Whether `session` has topics, or messages in flight."""
        return (
            session in self._topics.values()
            or any(place == session for _, place in self._filters)
            or any(place == session for place, _ in self._busy.values())
        )

    def _find(self, topic: str) -> int:
        session = self._topics.get(topic)
        if session is None:
            session = next((place for topic_filter, place in self._filters if matches(topic_filter, topic)), None)
        if session is None and topic not in self.learned:
            self._learn(topic)
        return session if session is not None and session in self._open else 1

    def _learn(self, topic: str) -> None:
        size = len(topic.encode())
        if len(self.learned) < LEARNED and self._learned_bytes + size <= LEARNED_BYTES:
            self.learned.add(topic)
            self._learned_bytes += size

    def unlearn(self, topic: str) -> None:
        """The broker refused a message on the topic, so it might refuse a whole request with the topic."""
        if topic in self.learned:
            self.learned.remove(topic)
            self._learned_bytes -= len(topic.encode())

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
