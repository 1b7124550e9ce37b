"""The options of a client, checked."""

import re
import secrets
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from ._assignment import Login, Timing
from ._message import Message, check_message
from ._placement import Address, parse_reference
from ._subscription import Qos, SubscriptionOptions, check_subscription
from ._topics import LONGEST, check_filter, check_text

MOST_SESSIONS = 16
MOST_PER_S = 1_000_000_000
# The most that a Receive Maximum can be.
MOST_UNACKNOWLEDGED = 65_535

Acknowledge = Literal["next", "manual", "arrival"]
Placement = Literal["mqtt"] | Sequence[str] | None


@dataclass(frozen=True)
class Settings:
    """The options of a client, with nothing left out."""

    addresses: list[Address]
    login: Login
    timing: Timing
    # For control planes by `https`.
    trusted: ssl.SSLContext | None
    will: Message | None
    resume: bool
    placement: Placement
    max_sessions: int
    publish: tuple[str, ...]
    subscribe: dict[str, SubscriptionOptions]
    rates: dict[str, float]
    acknowledge: Acknowledge
    receive_queue: int
    send_queue: int
    connect_timeout: float


def check(
    servers: str | Sequence[str],
    *,
    client_id: str,
    version: Literal[4, 5],
    user_name: str | None,
    password: str | None,
    tls: ssl.SSLContext | None,
    will: Message | None,
    keep_alive: int,
    session_expiry: int,
    resume: bool,
    placement: Placement,
    max_sessions: int,
    publish: Iterable[str],
    subscribe: Mapping[str, Qos | int | SubscriptionOptions] | None,
    rates: Mapping[str, float] | None,
    acknowledge: Acknowledge,
    receive_queue: int,
    send_queue: int,
    dial_timeout: float,
    connect_timeout: float,
    first_pause: float,
    longest_pause: float,
    quiet: float,
) -> Settings:
    """Checks the options of `Client`; ValueError that names the one that is wrong."""
    addresses, is_tls = _parse_servers(servers)
    _check_numbers(
        {"receive_queue": receive_queue, "send_queue": send_queue, "max_sessions": max_sessions},
        {"keep_alive": (keep_alive, 0xFFFF), "session_expiry": (session_expiry, 0xFFFF_FFFF)},
        {"dial_timeout": dial_timeout, "connect_timeout": connect_timeout, "first_pause": first_pause, "longest_pause": longest_pause,
         "quiet": quiet},
    )  # fmt: skip
    _check_login(version, {"client_id": client_id, "user_name": user_name, "password": password}, tls)
    if resume and not (client_id and session_expiry):
        raise ValueError("resume: expected a client_id, and a session_expiry above 0")
    if acknowledge not in ("next", "manual", "arrival"):
        raise ValueError(f"acknowledge: {acknowledge!r}: expected 'next', 'manual' or 'arrival'")
    _check_placement(placement)
    _check_will(will)
    name = client_id or f"thicket-{secrets.token_hex(8)}"
    context = (tls or ssl.create_default_context()) if is_tls else None
    receive_maximum = min(receive_queue, MOST_UNACKNOWLEDGED)
    return Settings(
        addresses=addresses,
        login=Login(name, version, user_name, password, context, keep_alive, session_expiry, receive_maximum, None),
        timing=Timing(dial_timeout, first_pause, longest_pause, quiet),
        trusted=tls,
        will=will,
        resume=resume,
        placement=placement if version == 5 else None,
        max_sessions=max_sessions,
        publish=_check_publish(publish),
        subscribe=_check_subscribe(subscribe or {}, version),
        rates=_check_rates(rates or {}),
        acknowledge=acknowledge,
        receive_queue=receive_queue,
        send_queue=send_queue,
        connect_timeout=connect_timeout,
    )


def _check_numbers(counts: Mapping[str, int], whole: Mapping[str, tuple[int, int]], times: Mapping[str, float]) -> None:
    """Whole numbers from 1, whole seconds with the most of each, and seconds."""
    for name, count in counts.items():
        if not (_is_whole(count) and count >= 1):
            raise ValueError(f"{name}: {count!r}: expected a whole number, at least 1")
    if counts["max_sessions"] > MOST_SESSIONS:
        raise ValueError(f"max_sessions: {counts['max_sessions']}: expected 1 to {MOST_SESSIONS}")
    for name, (seconds, most) in whole.items():
        if not (_is_whole(seconds) and 0 <= seconds <= most):
            raise ValueError(f"{name}: {seconds!r}: expected whole seconds, 0 to {most}")
    for name, time in times.items():
        if not (isinstance(time, int | float) and time >= 0):
            raise ValueError(f"{name}: {time!r}: expected seconds, 0 or more")


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _check_login(version: object, texts: Mapping[str, object], tls: object) -> None:
    if isinstance(version, bool) or version not in (4, 5):
        raise ValueError(f"version: {version!r}: expected 4 (3.1.1) or 5 (5.0)")
    for name, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise ValueError(f"{name}: {type(text).__name__}: expected text")
        if text and name != "password":
            check_text(text, f"{name}:")
    if len(str(texts["password"] or "").encode()) > LONGEST:
        raise ValueError(f"password: expected at most {LONGEST} bytes")
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise ValueError(f"tls: {type(tls).__name__}: expected an ssl.SSLContext")


def _check_will(will: object) -> None:
    if will is None:
        return
    if not isinstance(will, Message):
        raise ValueError(f"will: {type(will).__name__}: expected a Message")
    check_message(will)


def _check_publish(publish: object) -> tuple[str, ...]:
    # A text would be taken for a list of topics of one character each.
    if isinstance(publish, str | bytes) or not isinstance(publish, Iterable):
        raise ValueError(f"publish: {publish!r}: expected a list of topics")
    topics = tuple(publish)
    for topic in topics:
        check_filter(topic)
    return topics


def _check_subscribe(subscribe: object, version: int) -> dict[str, SubscriptionOptions]:
    if not isinstance(subscribe, Mapping):
        raise ValueError(f"subscribe: {subscribe!r}: expected a mapping of filters to a QoS or SubscriptionOptions")
    subscriptions = {}
    for topic_filter, how in subscribe.items():
        options = how if isinstance(how, SubscriptionOptions) else SubscriptionOptions(how)
        check_subscription(topic_filter, options, version)
        subscriptions[topic_filter] = options
    return subscriptions


def _check_rates(rates: object) -> dict[str, float]:
    if not isinstance(rates, Mapping):
        raise ValueError(f"rates: {rates!r}: expected a mapping of topics to messages a second")
    for topic, rate in rates.items():
        if not (isinstance(rate, int | float) and 0 <= rate <= MOST_PER_S):
            raise ValueError(f"rates: {rate!r} for {topic!r}: expected 0 to {MOST_PER_S} a second")
    return dict(rates)


def _check_placement(placement: object) -> None:
    if placement is None or placement == "mqtt":
        return
    urls = [] if isinstance(placement, str) or not isinstance(placement, Sequence) else placement
    if not urls or not all(re.match(r"https?://[^/]", str(url)) for url in urls):
        raise ValueError(f"placement: {placement!r}: expected 'mqtt', a list of URLs such as http://HOST:PORT, or None")


def _parse_servers(servers: object) -> tuple[list[Address], bool]:
    """The addresses, and whether there is TLS."""
    urls = [servers] if isinstance(servers, str) else servers
    if not isinstance(urls, Sequence) or isinstance(urls, bytes) or not all(isinstance(url, str) for url in urls):
        raise ValueError(f"servers: {servers!r}: expected a URL or a list of URLs")
    if not urls:
        raise ValueError("servers: expected at least one URL")
    addresses = []
    schemes = set()
    for url in urls:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            # The URL is not shown: it may have a password.
            raise ValueError("servers: a URL with a user name: expected user_name and password as options")
        is_tls = parts.scheme in ("mqtts", "ssl", "tls")
        found = parse_reference(parts.netloc, 8883 if is_tls else 1883)
        if not (is_tls or parts.scheme in ("mqtt", "tcp")) or not found or parts.path.strip("/"):
            raise ValueError(f"servers: {url!r}: expected mqtt://HOST[:PORT] or mqtts://HOST[:PORT]")
        addresses.append(found[0])
        schemes.add(is_tls)
    if len(schemes) > 1:
        raise ValueError("servers: expected one scheme for all")
    return addresses, schemes.pop()
