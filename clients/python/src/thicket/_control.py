"""Requests to a control plane over HTTP."""

import base64
import json
import random
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

from ._placement import Entry, Request

TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Placing:
    """The result of a request."""

    # None: no control plane has answered.
    answer: str | None
    # The last problem, if none has answered.
    problem: str
    # Topics and filters left out of the request, because a control plane refused them by name.
    denied: frozenset[Entry]


def ask(urls: Sequence[str], login: tuple[str, str] | None, tls: ssl.SSLContext | None, request: Request) -> Placing:
    """Asks one after the other, in random order. Blocks.

    If a topic or filter is refused by name, the same control plane is asked again without it.
    `tls`: for `https`; the authorities of the system if None.
    """
    denied: set[Entry] = set()
    problem = "no control plane is named"
    for url in random.sample(urls, len(urls)):
        # Each time the request has one entry less.
        while True:
            try:
                return Placing(_post(url, login, tls, request.to_json()), "", frozenset(denied))
            except urllib.error.HTTPError as error:
                body = error.read()
                problem = f"{url}: {error.code}: {_words(body)}"
                entry = request.refused(body)
            except (OSError, ValueError) as error:
                problem = f"{url}: {error}"
                entry = None
            if entry is None:
                break
            denied.add(entry)
            request = request.without({entry})
    return Placing(None, problem, frozenset(denied))


def _post(url: str, login: tuple[str, str] | None, tls: ssl.SSLContext | None, body: str) -> str:
    request = urllib.request.Request(url.rstrip("/") + "/v1/placements", body.encode(), method="POST")
    request.add_header("content-type", "application/json")
    if login is not None:
        request.add_header("authorization", "Basic " + base64.b64encode(":".join(login).encode()).decode())
    with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls) as answer:
        return bytes(answer.read()).decode()


def _words(body: bytes) -> str:
    """The text of a problem document (RFC 9457)."""
    try:
        problem = json.loads(body)
        return str(problem.get("detail") or problem.get("title") or "no reason given")
    except (ValueError, AttributeError):
        return "no reason given"
