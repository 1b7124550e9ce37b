"""The plan of a client's sessions: which filters each should have, and how a filter moves. Pure: reports in, assignments out.

A filter whose home changes stays at its old session until the new one has it. Then the old one unsubscribes; it is left when it is silent
and has no other filters. If the new session is refused the filter, the old one is its home again.

A session that was sent a request and has not answered may have the filter or not: messages may arrive over it, but no other session
unsubscribes in its favour.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ._placement import Address, Placed, parse_reference, unite
from ._subscription import SubscriptionOptions
from ._topics import overlap


@dataclass(frozen=True)
class Subscription:
    """How a session should have a filter."""

    options: SubscriptionOptions
    # Another session has it too, and has received the retained messages.
    is_moved: bool


@dataclass
class _Slot:
    address: tuple[int, Address] | None = None
    is_leaving: bool = False
    # Moved filters whose last messages may still arrive.
    draining: set[str] = field(default_factory=set)


class Plan:
    """Filters, sessions, and which session should have which filter."""

    def __init__(self, max_sessions: int, *, tls: bool) -> None:
        self._max_sessions = max_sessions
        self._tls = tls
        self._answers = 0
        self._options: dict[str, SubscriptionOptions] = {}
        self._home: dict[str, int] = {}
        self._at: dict[str, set[int]] = {}
        # Sessions with a SUBSCRIBE or UNSUBSCRIBE that is not answered yet.
        self._asked: dict[str, set[int]] = {}
        self._moving: set[str] = set()
        self._slots: dict[int, _Slot] = {1: _Slot()}

    @property
    def wanted(self) -> list[str]:
        """The filters that the application wants."""
        return list(self._home)

    def subscribe(self, topic_filter: str, options: SubscriptionOptions) -> None:
        """The application wants a filter. One that overlaps another joins its session. New options replace the old ones."""
        if topic_filter not in self._home:
            homes = (home for other, home in self._home.items() if overlap(topic_filter, other))
            self._home[topic_filter] = next(homes, 1)
        self._options[topic_filter] = options

    def unsubscribe(self, topic_filter: str) -> bool:
        """The application does not want a filter any more. Returns whether a session has it."""
        self._home.pop(topic_filter, None)
        self._options.pop(topic_filter, None)
        return topic_filter in self._at

    def options(self, topic_filter: str) -> SubscriptionOptions | None:
        return self._options.get(topic_filter)

    def home(self, topic_filter: str) -> int | None:
        return self._home.get(topic_filter)

    def is_home(self, topic_filter: str) -> bool:
        """Whether the session that should have the filter has it."""
        return self._home.get(topic_filter) in self._at.get(topic_filter, ())

    def apply(self, placed: Mapping[int, Placed]) -> list[str]:
        """Follows an answer of the control plane. Returns the filters that begin to move."""
        self._answers += 1
        for number, session in placed.items():
            slot = self._slots.setdefault(number, _Slot())
            reference = session.tls if self._tls else session.address
            addresses = parse_reference(reference or "", 8883 if self._tls else 1883)
            if addresses:
                slot.address = (self._answers, addresses[0])
        assigned = {topic_filter: number for number, session in placed.items() for topic_filter in session.subscribe}
        kept = {topic_filter: home if home in placed else 1 for topic_filter, home in self._home.items()}
        homes = unite({topic_filter: assigned.get(topic_filter, home) for topic_filter, home in kept.items()})
        return [topic_filter for topic_filter, home in homes.items() if self._settle(topic_filter, home)]

    def session_at(self, address: Address) -> int | None:
        """The session for an address, an existing one or a new one. None: there are enough already."""
        for number, slot in self._slots.items():
            if not slot.is_leaving and slot.address is not None and slot.address[1] == address:
                return number
        for number in range(1, self._max_sessions + 1):
            if number not in self._slots:
                self._answers += 1
                self._slots[number] = _Slot(address=(self._answers, address))
                return number
        return None

    def may_move(self, topic_filter: str) -> bool:
        """Whether a filter may have a session of its own; one that overlaps others stays with them."""
        if topic_filter not in self._home:
            return False
        return not any(other != topic_filter and overlap(other, topic_filter) for other in self._home)

    def move_to(self, topic_filter: str, home: int) -> bool:
        """Moves one filter. Returns whether it begins to move."""
        return self.may_move(topic_filter) and self._settle(topic_filter, home)

    def _settle(self, topic_filter: str, home: int) -> bool:
        changes = self._home[topic_filter] != home
        self._home[topic_filter] = home
        if not changes or not self._elsewhere(topic_filter) or topic_filter in self._moving:
            return False
        self._moving.add(topic_filter)
        return True

    def _elsewhere(self, topic_filter: str) -> set[int]:
        """Sessions besides its home that have a filter, or may have it."""
        sessions = self._at.get(topic_filter, set()) | self._asked.get(topic_filter, set())
        return sessions - {self._home.get(topic_filter)}

    def note_address(self, number: int, address: Address) -> None:
        """Where a session is, if it was not assigned an address."""
        slot = self._slots.get(number)
        if slot is not None and slot.address is None:
            slot.address = (0, address)

    def on_asked(self, number: int, topic_filter: str) -> None:
        """A SUBSCRIBE or UNSUBSCRIBE is sent on a session. Until it is answered, it is not known whether the session has the filter."""
        _remove(self._at, topic_filter, number)
        self._asked.setdefault(topic_filter, set()).add(number)

    def on_subscribed(self, number: int, topic_filter: str) -> None:
        _remove(self._asked, topic_filter, number)
        self._at.setdefault(topic_filter, set()).add(number)

    def on_refused(self, number: int, topic_filter: str) -> bool:
        """The broker refuses a filter on a session. Returns whether another session still has it."""
        _remove(self._asked, topic_filter, number)
        others = self._at.get(topic_filter, set()) - {number}
        if others and topic_filter in self._home:
            self._home[topic_filter] = min(others)
            return True
        self.unsubscribe(topic_filter)
        return False

    def on_unsubscribed(self, number: int, topic_filter: str) -> None:
        """A session no longer has a filter."""
        _remove(self._at, topic_filter, number)
        _remove(self._asked, topic_filter, number)
        if topic_filter in self._moving and self._home.get(topic_filter) != number and number in self._slots:
            self._slots[number].draining.add(topic_filter)

    def is_unsubscribed(self, topic_filter: str) -> bool:
        """Whether no session has a filter or may have it, or the application wants it again."""
        return topic_filter in self._home or (topic_filter not in self._at and topic_filter not in self._asked)

    def on_drained(self, number: int) -> list[str]:
        """A session is silent. Returns the filters whose move is over."""
        slot = self._slots.get(number)
        if slot is None:
            return []
        drained = slot.draining & self._moving
        slot.draining.clear()
        over = [topic_filter for topic_filter in sorted(drained) if not self._may_still_arrive(topic_filter)]
        self._moving.difference_update(over)
        return over

    def _may_still_arrive(self, topic_filter: str) -> bool:
        """Whether messages of a filter may arrive over a session that is not its home."""
        return bool(self._elsewhere(topic_filter)) or any(topic_filter in slot.draining for slot in self._slots.values())

    def on_left(self, number: int, *, is_routed: bool) -> list[str]:
        """A session has ended. If it is needed again by now, it begins again. Returns the filters whose move is over."""
        for topic_filter in {*self._at, *self._asked}:
            if number in self._at.get(topic_filter, ()) or number in self._asked.get(topic_filter, ()):
                self.on_unsubscribed(number, topic_filter)
        over = self.on_drained(number)
        if number in self._slots and (is_routed or number in self._home.values()):
            self._slots[number].is_leaving = False
        else:
            self._slots.pop(number, None)
        return over

    def give_up(self, number: int) -> None:
        """A session cannot be made: the first session takes over its filters."""
        for topic_filter, home in self._home.items():
            if home == number:
                self._home[topic_filter] = 1

    def sessions(self) -> list[int]:
        """The sessions that should exist."""
        return sorted(set(self._slots) | set(self._home.values()))

    def address(self, number: int) -> tuple[int, Address] | None:
        slot = self._slots.get(number)
        return slot.address if slot is not None else None

    def filters(self, number: int) -> dict[str, Subscription]:
        """What a session should have now."""
        slot = self._slots.get(number)
        if slot is not None and slot.is_leaving:
            return {}
        filters = {}
        for topic_filter, home in self._home.items():
            sessions = self._at.get(topic_filter, set())
            if home == number or (number in sessions and home not in sessions):
                filters[topic_filter] = Subscription(self._options[topic_filter], bool(sessions - {number}))
        return filters

    def leaves(self, number: int) -> bool:
        """Marks a session as one to leave, unless it has or should have filters. The first one stays."""
        slot = self._slots.setdefault(number, _Slot())
        has_any = any(number in sessions for sessions in (*self._at.values(), *self._asked.values()))
        if number != 1 and not has_any and not self.filters(number):
            slot.is_leaving = True
        return slot.is_leaving


def _remove(at: dict[str, set[int]], topic_filter: str, number: int) -> None:
    sessions = at.get(topic_filter, set())
    sessions.discard(number)
    if not sessions:
        at.pop(topic_filter, None)
