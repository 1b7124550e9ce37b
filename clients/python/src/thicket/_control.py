"""Asking a control plane by HTTP."""

import base64
import json
import random
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence

TIMEOUT_S = 2.0


def ask(urls: Sequence[str], login: tuple[str, str] | None, tls: ssl.SSLContext | None, body: str) -> str:
    """Asks one after the other, in an order drawn by lot. It blocks. OSError with the last problem if none answers.

    `tls`: for `https`; the authorities of the system if None.
    """
    problem = "no control plane is named"
    for url in random.sample(urls, len(urls)):
        request = urllib.request.Request(url.rstrip("/") + "/v1/placements", body.encode(), method="POST")
        request.add_header("content-type", "application/json")
        if login is not None:
            request.add_header("authorization", "Basic " + base64.b64encode(":".join(login).encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls) as answer:
                return bytes(answer.read()).decode()
        except urllib.error.HTTPError as error:
            problem = f"{url}: {error.code}: {_words(error.read())}"
        except (OSError, ValueError) as error:
            problem = f"{url}: {error}"
    raise OSError(problem)


def _words(body: bytes) -> str:
    """What a problem document (RFC 9457) says."""
    try:
        problem = json.loads(body)
        return str(problem.get("detail") or problem.get("title") or "no reason given")
    except (ValueError, AttributeError):
        return "no reason given"
