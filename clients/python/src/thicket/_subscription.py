"""How a filter is subscribed."""

import enum
from dataclasses import dataclass

from ._topics import check_filter

LARGEST_IDENTIFIER = 268_435_455


class Qos(enum.IntEnum):
    """Quality of service. Plain 0, 1 and 2 are accepted wherever a Qos is."""

    AT_MOST_ONCE = 0
    AT_LEAST_ONCE = 1
    EXACTLY_ONCE = 2


class RetainHandling(enum.IntEnum):
    """Whether the broker sends the retained messages of a filter when it is subscribed."""

    SEND_AT_SUBSCRIBE = 0
    # Only if the session did not have the subscription.
    SEND_IF_NEW = 1
    DO_NOT_SEND = 2


@dataclass(frozen=True, slots=True)
class SubscriptionOptions:
    """The options of a subscription. All except `qos` need 5.0."""

    qos: Qos | int = Qos.AT_MOST_ONCE
    # Messages that this session published are not sent to it.
    no_local: bool = False
    # RETAIN of a message is as its publisher set it.
    retain_as_published: bool = False
    retain_handling: RetainHandling | int = RetainHandling.SEND_AT_SUBSCRIBE
    # Comes with each message that matches the filter, 1 to 268,435,455.
    identifier: int | None = None


def check_qos(qos: object) -> None:
    if isinstance(qos, bool) or qos not in (0, 1, 2):
        raise ValueError(f"qos: {qos!r}: expected 0, 1 or 2")


def check_subscription(topic_filter: str, options: SubscriptionOptions, version: int) -> None:
    """ValueError that names the option if a filter cannot be subscribed like this."""
    check_filter(topic_filter)
    check_qos(options.qos)
    for name, flag in (("no_local", options.no_local), ("retain_as_published", options.retain_as_published)):
        if not isinstance(flag, bool):
            raise ValueError(f"{name}: {flag!r}: expected True or False")
    if isinstance(options.retain_handling, bool) or options.retain_handling not in (0, 1, 2):
        raise ValueError(f"retain_handling: {options.retain_handling!r}: expected a RetainHandling")
    number = options.identifier
    if number is not None and not (isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= LARGEST_IDENTIFIER):
        raise ValueError(f"identifier: {number!r}: expected 1 to {LARGEST_IDENTIFIER}")
    if version != 5 and options != SubscriptionOptions(options.qos):
        raise ValueError("no_local, retain_as_published, retain_handling, identifier: expected version 5")
    if options.no_local and topic_filter.startswith("$share/"):
        raise ValueError(f"no_local: expected False for the shared subscription {topic_filter!r}")
