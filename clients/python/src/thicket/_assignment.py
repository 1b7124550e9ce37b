"""What a session should be, and what it reports to its client."""

import asyncio
import enum
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ._errors import Refused, ThicketError
from ._inbound import Receipt
from ._message import Message
from ._placement import Address
from ._plan import Subscription
from ._subscription import SubscriptionOptions


class Leave(enum.Enum):
    """Whether and how a session is to be left."""

    STAY = enum.auto()
    # When no more messages arrive and everything sent is acknowledged. The session ends.
    WHEN_READ = enum.auto()
    # When everything sent is acknowledged, or it takes too long.
    NOW = enum.auto()
    NOW_AND_KEEP = enum.auto()


@dataclass(frozen=True)
class Assignment:
    """What a session should be; only the latest counts."""

    # The address that the control plane assigned, and the number of its answer: a new answer is followed even to the same address.
    address: tuple[int, Address] | None = None
    filters: dict[str, Subscription] = field(default_factory=dict)
    leave: Leave = Leave.STAY
    # Incremented when the request in the CONNECT should be repeated at once: the session then reconnects to the same address.
    requests: int = 0


@dataclass
class Outgoing:
    """A message on its way to the broker."""

    message: Message
    identity: str | None
    reply: asyncio.Future[int]
    # The connection on which it was given to Paho.
    connection: int = 0


@dataclass(frozen=True)
class Login:
    """How a client identifies itself to its brokers."""

    client_id: str
    version: int
    user_name: str | None
    password: str | None
    tls: ssl.SSLContext | None
    keep_alive: int
    session_expiry: int
    receive_maximum: int
    will: Message | None


@dataclass(frozen=True)
class Timing:
    """Limits and pauses, in seconds."""

    dial: float
    first_pause: float
    longest_pause: float
    quiet: float


class Owner(Protocol):
    """What a session reports to its client."""

    def is_full(self) -> bool: ...
    def known(self) -> list[Address]: ...
    def properties(self, number: int) -> list[tuple[str, str]]: ...
    def on_message(self, number: int, message: Message, identity: str | None, receipt: Receipt | None) -> None: ...
    def on_connected(self, number: int, address: Address, placement: str | None) -> None: ...
    def on_asked(self, number: int, topic_filters: Iterable[str]) -> None: ...
    def on_subscribed(
        self, number: int, topic_filter: str, options: SubscriptionOptions, code: int, error: ThicketError | None
    ) -> None: ...
    def on_unsubscribed(self, number: int, topic_filter: str) -> None: ...
    def on_drained(self, number: int) -> None: ...
    def on_better(self, topic: str, address: Address, *, is_filter: bool) -> None: ...
    def on_refused(self, number: int, error: Refused) -> None: ...
    def on_disconnected(self, number: int) -> None: ...
    def on_problem(self, problem: str) -> None: ...
    def on_taken_over(self) -> None: ...
    def on_settled(self, outgoing: Outgoing, error: ThicketError | None, code: int = 0) -> None: ...
    def on_left(self, number: int) -> None: ...
