"""The contract with the control plane (docs/clients.md): requests and answers."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ._topics import is_exact, overlap

# User properties of CONNECT that request a placement; the first two once for each topic or filter.
PUBLISH = "thicket-publish"
SUBSCRIBE = "thicket-subscribe"
MAX_SESSIONS = "thicket-max-sessions"
RATES = "thicket-rates"
# In CONNACK: the answer. In SUBACK and PUBACK, for clients that sent PLACE: a better node.
PLACEMENT = "thicket-placement"
PLACE = "thicket-place"
# In CONNECT: the number of redirections in a row that led here.
REDIRECTED = "thicket-redirected"

MOST_SERVERS = 16

Address = tuple[str, int]
# A topic or filter of a request, by its list.
Entry = tuple[Literal["publish", "subscribe"], str]


@dataclass(frozen=True)
class Request:
    """A request to the control plane."""

    client_id: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    max_sessions: int
    rates: Mapping[str, float]

    def to_json(self) -> str:
        return json.dumps(
            {
                "client_id": self.client_id,
                "publish": self.publish,
                "subscribe": self.subscribe,
                "max_sessions": self.max_sessions,
                "rates": dict(self.rates),
            }
        )

    def refused(self, answer: str | bytes) -> Entry | None:
        """The topic or filter that a problem document (RFC 9457) refuses, by its field, such as `publish[1]`."""
        try:
            found = re.fullmatch(r"(publish|subscribe)\[(\d{1,9})\]", json.loads(answer)["field"])
        except (ValueError, KeyError, TypeError):
            return None
        if found is None:
            return None
        kind: Literal["publish", "subscribe"] = "publish" if found[1] == "publish" else "subscribe"
        names = self.publish if kind == "publish" else self.subscribe
        return (kind, names[int(found[2])]) if int(found[2]) < len(names) else None

    def without(self, denied: Collection[Entry]) -> "Request":
        """The request without these topics and filters."""
        publish = tuple(topic for topic in self.publish if ("publish", topic) not in denied)
        subscribe = tuple(topic_filter for topic_filter in self.subscribe if ("subscribe", topic_filter) not in denied)
        rates = {topic: rate for topic, rate in self.rates.items() if topic in publish or topic in subscribe}
        return replace(self, publish=publish, subscribe=subscribe, rates=rates)

    def to_properties(self) -> list[tuple[str, str]]:
        """The user properties of a CONNECT with the same request."""
        properties = [(MAX_SESSIONS, str(self.max_sessions))]
        properties += [(PUBLISH, topic) for topic in self.publish]
        properties += [(SUBSCRIBE, topic_filter) for topic_filter in self.subscribe]
        if self.rates:
            properties.append((RATES, json.dumps(dict(self.rates))))
        return properties


def to_request(client_id: str, publish: tuple[str, ...], wanted: Iterable[str], max_sessions: int, rates: Mapping[str, float]) -> Request:
    """A request without entries for which it would be refused.

    Shared subscriptions are not placed; they stay in their session. Rates are only those of topics in the request.
    """
    subscribe = sorted_unique(topic_filter for topic_filter in wanted if not topic_filter.startswith("$share/"))
    named = {topic: rate for topic, rate in rates.items() if topic in publish or topic in subscribe}
    return Request(client_id, publish, subscribe, max_sessions, named)


@dataclass
class Placed:
    """One session of the client. A session without topics still holds messages: it is read to its end, and then left."""

    address: str
    tls: str | None
    publish: list[str]
    subscribe: list[str]


def session_name(client_id: str, number: int) -> str:
    """The name of session `number`, from 1."""
    return client_id if number == 1 else f"{client_id}~{number}"


def parse_answer(text: str, client_id: str, maximum: int) -> dict[int, Placed]:
    """Reads and checks an answer; ValueError if it cannot be followed. Filters that overlap are put together."""
    try:
        answer = json.loads(text)
        if "sessions" not in answer and (words := answer.get("detail") or answer.get("title")):
            raise ValueError(f"refused by the control plane: {words}")
        sessions = answer["sessions"]
        placed = {}
        for session in sessions:
            number = _session_number(client_id, session["client_id"])
            if number in placed:
                raise ValueError(f"the placement names the session {session['client_id']!r} twice")
            placed[number] = Placed(
                address=_text(session["address"]),
                tls=None if session.get("tls") is None else _text(session["tls"]),
                publish=[_text(topic) for topic in session.get("publish", [])],
                subscribe=[_text(topic) for topic in session.get("subscribe", [])],
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the placement is no JSON of the kind expected: {error!r}") from error
    serving = sum(1 for session in placed.values() if session.publish or session.subscribe)
    if not placed or serving > maximum:
        raise ValueError(f"the placement has {len(placed)} sessions, expected 1 to {maximum}")
    homes = unite({topic: number for number, session in placed.items() for topic in session.subscribe})
    for number, session in placed.items():
        session.subscribe = [topic for topic, home in homes.items() if home == number]
    return placed


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text: {value!r}")
    return value


def _session_number(client_id: str, name: str) -> int:
    if name == client_id:
        return 1
    found = re.fullmatch(r"~([1-9][0-9]{0,2})", name.removeprefix(client_id)) if name.startswith(client_id) else None
    if found is None or found[1] == "1":
        raise ValueError(f"the placement names the session {name!r}, expected the client identifier or it with ~2 and so on")
    return int(found[1])


def unite(homes: Mapping[str, int]) -> dict[str, int]:
    """Sessions with filters that match the same topic would each receive its messages. So such filters get one home, that of the first."""
    united = dict(homes)
    wild = [topic_filter for topic_filter in united if not is_exact(topic_filter)]
    order = {topic_filter: number for number, topic_filter in enumerate(united)}
    changed = True
    while changed:
        changed = False
        for one in wild:
            for other, home in united.items():
                if united[one] != home and overlap(one, other):
                    first, second = sorted((one, other), key=order.__getitem__)
                    united[second] = united[first]
                    changed = True
    return united


def parse_reference(text: str, port: int) -> list[Address]:
    """The servers of a Server Reference: HOST, HOST:PORT, [IPv6]:PORT, or several, separated by spaces. Invalid ones are left out."""
    words = text.split()[:MOST_SERVERS]
    return [address for word in words if (address := _parse_address(word, port)) is not None]


def _parse_address(word: str, default: int) -> Address | None:
    if word.startswith("["):
        found = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?", word)
    elif word.count(":") > 1:
        found = re.fullmatch(r"(.+)()", word)
    else:
        found = re.fullmatch(r"([^:]+)(?::(\d+))?", word)
    if found is None or re.search(r"[/@\x00-\x1f\x7f]", found[1]):
        return None
    port = int(found[2]) if found[2] else default
    return (found[1], port) if 0 < port < 65_536 else None


def format_address(address: Address) -> str:
    """As in URLs."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def sorted_unique(topics: Iterable[str]) -> tuple[str, ...]:
    """Each once, in an order that does not depend on hashes."""
    return tuple(sorted(set(topics)))
