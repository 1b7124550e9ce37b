"""Messages of QoS 2 that may arrive over two sessions while a filter moves from one to the other.

The new session subscribes before the old one unsubscribes, so nothing is missed, and messages published in between arrive twice. The
second one is dropped. Messages are compared by the identity that their publisher gave them, as our clients do, and otherwise by content;
each is dropped as often as it arrived over the other session.
"""

from collections import Counter, OrderedDict

from ._message import Message
from ._topics import matches

# The most messages that are remembered; the oldest are dropped first.
REMEMBERED = 65_536


class Ledger:
    """The messages that arrived over each session while filters move."""

    def __init__(self) -> None:
        self._moving: Counter[str] = Counter()
        self._open: OrderedDict[object, list[int]] = OrderedDict()

    def begin(self, topic_filter: str) -> None:
        """`topic_filter` begins to move."""
        self._moving[topic_filter] += 1

    def end(self, topic_filter: str) -> None:
        """A move of `topic_filter` is over, on both sessions."""
        self._moving[topic_filter] -= 1
        self._moving += Counter()
        if not self._moving:
            self._open.clear()

    def admits(self, session: int, message: Message, identity: str | None) -> bool:
        """Whether `message`, which arrived over `session`, should be delivered."""
        if message.qos != 2 or not self._moving:
            return True
        if not any(matches(topic_filter, message.topic) for topic_filter in self._moving):
            return True
        key: object = (message.topic, identity)
        if identity is None:
            key = (message.topic, message.payload, message.content_type, message.response_topic)
            key = (*key, message.correlation_data, message.user_properties)
        sessions = self._open.setdefault(key, [])
        for other in sessions:
            if other != session:
                sessions.remove(other)
                return False
        sessions.append(session)
        if len(self._open) > REMEMBERED:
            self._open.popitem(last=False)
        return True
