"""The client: one object for all its sessions."""

import asyncio
import contextlib
import random
import re
import secrets
import ssl
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from . import _control
from ._assignment import Assignment, Leave, Login, Outgoing, Timing
from ._errors import ClosedError, ConnectError, Refused, TakenOver, ThicketError
from ._inbound import Receipt
from ._ledger import Ledger
from ._message import Message, check_message, check_qos
from ._placement import (
    PLACE,
    Address,
    Entry,
    Request,
    format_address,
    parse_answer,
    parse_reference,
    session_name,
    sorted_unique,
    to_request,
)  # fmt: skip
from ._plan import Plan
from ._routes import Routes
from ._session import Session
from ._topics import LONGEST, check_filter, check_text

MOST_SESSIONS = 16
MOST_PER_S = 1_000_000_000
# The most that a Receive Maximum can be.
MOST_UNACKNOWLEDGED = 65_535
# The most brokers that are remembered.
KNOWN = 64
# The most denied filters that are remembered.
DENIED = 1000
# Topics that change within this time are requested together.
GATHER_S = 0.02
# Longest wait before a control plane that did not answer is asked again; the wait is drawn evenly.
ASK_AGAIN_S = 20.0
# How often undeclared topics that were published to are looked for.
LOOK_S = 1.0
# After the last message of a moved filter on the old session, its messages may still wait on the new one.
LATE_S = 2.0


class Client:
    """An MQTT client. `async with` connects and closes it, `async for` receives its messages.

    `servers`: URLs of brokers, or of nodes of one cluster, all `mqtt://HOST[:PORT]` or all `mqtts://...`; tried in random order.
    `client_id`: of the first session; if empty, one is drawn at random. Further sessions are named `ID~2`, `ID~3` and so on.
    `version`: 5 (5.0) or 4 (3.1.1): then there is one session, no placement and no redirection.
    `tls`: for `mqtts` and for control planes by `https`; without it the authorities of the system are trusted.
    `will`: of the first session.
    `session_expiry`: how long the broker keeps the sessions of a client that is not connected. With 0 every reconnection begins a new
    session, and messages in between are lost.
    `resume`: resume the session of an earlier run, and leave it at the broker when the client closes.
    `placement`: who decides where to connect: `"mqtt"` (the broker itself, in the CONNECT of the first session), URLs of control planes,
    or None.
    `max_sessions`: 1 to 16.
    `publish`, `subscribe` and `rates` (messages a second by topic) announce topics to the control plane; other topics may be used too.
    `acknowledge`: when a message of QoS 1 or 2 is acknowledged: `"next"`, when the application asks for the next one; `"manual"`, by
    `Message.acknowledge` only; `"arrival"`, when it enters the receive queue, which is lost if the process ends.
    `receive_queue`: messages of QoS 1 and 2 that a broker may send before they are acknowledged (Receive Maximum), for each session. As
    many of QoS 0 wait for the application, with `"arrival"` and with 3.1.1 of any QoS; then no more is read from the broker.
    `send_queue`: messages that wait to be sent, in each session; at this number `publish` waits.
    `dial_timeout`: how long a connection to one address may take, CONNACK included. `connect_timeout`: how long `async with` tries.
    `first_pause`: longest pause before the second attempt to connect again; it doubles with each, up to `longest_pause`. Each is drawn
    evenly between 0 and its length.
    `quiet`: how long a session that lost a subscription must be silent before it counts as read to its end.
    Times are in seconds. The guarantees are in the README.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        client_id: str = "",
        version: Literal[4, 5] = 5,
        user_name: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        will: Message | None = None,
        keep_alive: int = 60,
        session_expiry: int = 300,
        resume: bool = False,
        placement: Literal["mqtt"] | Sequence[str] | None = "mqtt",
        max_sessions: int = 4,
        publish: Iterable[str] = (),
        subscribe: Mapping[str, int] | None = None,
        rates: Mapping[str, float] | None = None,
        acknowledge: Literal["next", "manual", "arrival"] = "next",
        receive_queue: int = 1024,
        send_queue: int = 256,
        dial_timeout: float = 3.0,
        connect_timeout: float = 20.0,
        first_pause: float = 0.1,
        longest_pause: float = 10.0,
        quiet: float = 0.5,
    ) -> None:
        self._known, is_tls = _parse_servers([servers] if isinstance(servers, str) else servers)
        _check_numbers(
            {"receive_queue": receive_queue, "send_queue": send_queue, "max_sessions": max_sessions},
            {"keep_alive": (keep_alive, 0xFFFF), "session_expiry": (session_expiry, 0xFFFF_FFFF)},
            {"dial_timeout": dial_timeout, "connect_timeout": connect_timeout, "first_pause": first_pause, "longest_pause": longest_pause,
             "quiet": quiet},
        )  # fmt: skip
        if resume and not (client_id and session_expiry):
            raise ValueError("resume: expected a client_id, and a session_expiry above 0")
        _check_acknowledge(acknowledge)
        _check_placement(placement)
        _check_login(version, client_id, user_name or "", password or "")
        self.client_id = client_id or f"thicket-{secrets.token_hex(8)}"
        self._subscribe = dict(subscribe or {})
        self._publish = tuple(publish)
        _check_declared(self._publish, self._subscribe, will)
        self._rates = _check_rates(rates or {})
        self._placement = placement if version == 5 else None
        self._max_sessions = max_sessions
        self._resume = resume
        self._acknowledge = acknowledge
        self._receive_queue = receive_queue
        self._send_queue = send_queue
        self._connect_timeout = connect_timeout
        self._will = will
        self._trusted = tls
        used = (tls or ssl.create_default_context()) if is_tls else None
        self._login = Login(
            self.client_id, version, user_name, password, used, keep_alive, session_expiry, min(receive_queue, MOST_UNACKNOWLEDGED), None
        )
        self._timing = Timing(dial_timeout, first_pause, longest_pause, quiet)
        self._plan = Plan(max_sessions, tls=is_tls)
        self._ledger = Ledger()
        self._sessions: dict[int, Session] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._messages: deque[tuple[Message, Receipt | None]] = deque()
        # Of these, the messages that no Receive Maximum bounds.
        self._unbounded = 0
        # Of the message that the application has.
        self._last: Receipt | None = None
        self._subscribing: dict[str, list[asyncio.Future[int]]] = {}
        self._unsubscribing: dict[str, list[asyncio.Future[None]]] = {}
        self._granted: dict[str, int] = {}
        self._to_be_read: set[int] = set()
        self._addresses: dict[int, Address] = {}
        self._later: asyncio.TimerHandle | None = None
        # Topics and filters that the control plane denied: requests leave them out, filters until a broker grants them.
        self._denied: set[Entry] = set()
        # The request in the last CONNECT of the first session.
        self._asked: Request | None = None
        # Number of changes of the request in the CONNECT of the first session that should be sent at once.
        self._requests = 0
        self._is_placed = False
        self._last_problem = ""
        self._ended: ClosedError | None = ClosedError("the client was not opened: use it in `async with`")
        self._run = secrets.token_hex(8)
        self._published = 0

    # Life cycle

    async def __aenter__(self) -> Self:
        if self._sessions or self._tasks:
            raise ClosedError("the client was opened before")
        self._ended = None
        self._routes = Routes()
        # Set when a message arrives, when messages can be accepted, when anything changes.
        self._arrived = asyncio.Event()
        self._changed = asyncio.Event()
        self._asks = asyncio.Event()
        self._connecting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        declared: list[asyncio.Future[int]] = []
        for topic_filter, qos in self._subscribe.items():
            self._plan.subscribe(topic_filter, qos)
            declared.append(asyncio.get_running_loop().create_future())
            self._subscribing.setdefault(topic_filter, []).append(declared[-1])
        try:
            if self._control_urls():
                await self._ask()
                self._start(self._keep_asking())
            self._settle()
            async with asyncio.timeout(self._connect_timeout):
                await asyncio.shield(self._connecting)
                # Declared subscriptions are made on every session before the client counts as connected.
                await asyncio.gather(*declared)
        except TimeoutError:
            is_connected = self._connecting.done()
            await self._end(ClosedError("the client is closed"), Leave.NOW)
            if is_connected:
                raise ConnectError(f"subscriptions were not answered within {self._connect_timeout} s") from None
            raise ConnectError(f"no broker can be reached: {self._last_problem}") from None
        except BaseException:
            await self._end(ClosedError("the client is closed"), Leave.NOW)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Sends all messages that were handed over, ends the sessions (with `resume` leaves them at the broker), and disconnects."""
        await self._end(ClosedError("the client is closed"), Leave.NOW_AND_KEEP if self._resume else Leave.NOW)

    async def _end(self, why: ClosedError, leave: Leave) -> None:
        if self._ended is None:
            self._ended = why
        self._routes.close_all()
        for session in self._sessions.values():
            session.assign(Assignment(filters=session.assignment.filters, leave=leave))
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        for task in list(self._background):
            task.cancel()
        if self._later is not None:
            self._later.cancel()
        self._fail_all(self._ended)

    def _fail_all(self, why: ClosedError) -> None:
        futures: list[asyncio.Future[Any]] = [future for waiting in self._subscribing.values() for future in waiting]
        futures += [future for waiting in self._unsubscribing.values() for future in waiting]
        for future in futures:
            if not future.done():
                future.set_exception(why)
        if not self._connecting.done():
            self._connecting.set_exception(why)
            # A caller that waits gets the error; if none waits, that is no fault.
            self._connecting.exception()
        self._notify()
        self._arrived.set()

    # The application's calls

    @property
    def sessions(self) -> dict[int, str]:
        """The sessions that are connected, by number from 1: the address of each."""
        return {number: format_address(address) for number, address in sorted(self._addresses.items())}

    @property
    def is_placed(self) -> bool:
        """Whether a control plane has answered."""
        return self._is_placed

    @property
    def last_problem(self) -> str:
        """The latest problem with a connection or the control plane, even if it is over."""
        return self._last_problem

    async def wait_for_sessions(self, sessions: Mapping[int, str]) -> None:
        """Waits until `sessions` are connected, each at its address, and no others."""
        while self.sessions != dict(sessions):
            self._raise_if_ended()
            await self._changed.wait()

    async def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        """Subscribes; returns the QoS that the broker grants. If the filter is subscribed already, its QoS stays."""
        check_filter(topic_filter)
        check_qos(qos)
        self._raise_if_ended()
        if self._plan.is_home(topic_filter) and topic_filter in self._granted:
            return self._granted[topic_filter]
        self._plan.subscribe(topic_filter, qos)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._subscribing.setdefault(topic_filter, []).append(future)
        self._ask_soon()
        self._settle()
        return await future

    async def unsubscribe(self, topic_filter: str) -> None:
        """Ends a subscription, on all sessions. Messages in flight still arrive."""
        self._raise_if_ended()
        self._granted.pop(topic_filter, None)
        if not self._plan.unsubscribe(topic_filter):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsubscribing.setdefault(topic_filter, []).append(future)
        self._ask_soon()
        self._settle()
        await future

    async def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        expiry: int | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        user_properties: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Publishes, and waits for the acknowledgement of QoS 1 or 2. Without a connection it waits for the next one."""
        is_text = isinstance(payload, str)
        message = Message(
            topic=topic,
            payload=payload.encode() if isinstance(payload, str) else bytes(payload),
            qos=qos,
            retain=retain,
            expiry=expiry,
            is_text=is_text,
            content_type=content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
            user_properties=tuple(user_properties),
        )
        await (await self.send(message))

    async def send(self, message: Message) -> "asyncio.Future[None]":
        """Hands a message over, in order; the future is done when it is acknowledged. Waits while the queue of its session is full."""
        check_message(message)
        self._raise_if_ended()
        identity = None
        if message.qos == 2 and self._is_placed:
            self._published += 1
            identity = f"{self._run}-{self._published:x}"
        number = await self._routes.enter(message.topic)
        while number is not None and number in self._sessions and len(self._sessions[number].outgoing) >= self._send_queue:
            await self._changed.wait()
        if number is None or number not in self._sessions or self._ended is not None:
            if number is not None:
                self._routes.leave(message.topic)
            raise self._ended or ClosedError("the client is closed")
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        session = self._sessions[number]
        session.outgoing.append(Outgoing(message, identity, reply))
        session.wake()
        return reply

    async def __aiter__(self) -> AsyncIterator[Message]:
        """The messages of all subscriptions, until the client is closed; TakenOver if another client uses its identifier.

        With `acknowledge="next"` each acknowledges the one before. That is for one task; several tasks acknowledge by themselves.
        """
        while True:
            self._acknowledge_last()
            while (taken := self._next_message()) is not None:
                message, self._last = taken
                yield message
                self._acknowledge_last()
            if isinstance(self._ended, TakenOver):
                raise self._ended
            if self._ended is not None:
                return
            self._arrived.clear()
            await self._arrived.wait()

    def _acknowledge_last(self) -> None:
        """The application asks for the next message."""
        last, self._last = self._last, None
        if self._acknowledge == "next" and last is not None and not last.is_in_block:
            last.acknowledge()

    def _next_message(self) -> tuple[Message, Receipt | None] | None:
        while self._messages:
            message, receipt = self._messages.popleft()
            was_full = self.is_full()
            self._unbounded -= self._is_unbounded(receipt)
            if was_full and not self.is_full():
                for session in self._sessions.values():
                    session.resume_reading()
                    session.wake()
            # When the client has ended, no acknowledgement can be sent: whoever resumes the session gets the message.
            if receipt is None or receipt.is_acknowledged or not (receipt.is_superseded or self._ended is not None):
                return message, receipt
        return None

    def _is_unbounded(self, receipt: Receipt | None) -> bool:
        return self._login.version == 4 or receipt is None or receipt.is_acknowledged

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Callbacks of sessions

    def is_full(self) -> bool:
        return self._unbounded >= self._receive_queue

    def known(self) -> list[Address]:
        return list(self._known)

    def properties(self, number: int) -> list[tuple[str, str]]:
        """The current user properties for a session's CONNECT."""
        properties = [] if self._placement is None else [(PLACE, "1")]
        if number == 1 and self._placement == "mqtt":
            self._asked = self._request()
            properties += self._asked.to_properties()
        return properties

    def on_message(self, number: int, message: Message, identity: str | None, receipt: Receipt | None) -> None:
        is_admitted = self._ledger.admits(number, message, identity)
        if receipt is not None and (self._acknowledge == "arrival" or not is_admitted):
            receipt.acknowledge()
        if is_admitted:
            self._messages.append((message, receipt))
            self._unbounded += self._is_unbounded(receipt)
            self._arrived.set()

    def on_connected(self, number: int, address: Address, placement: str | None) -> None:
        self._plan.note_address(number, address)
        self._addresses[number] = address
        if placement is not None and number == 1 and self._placement == "mqtt":
            self._follow(placement)
            entry = self._asked.refused(placement) if self._asked is not None else None
            if entry is not None and self._deny(entry):
                self._requests += 1
        if number == 1 and not self._connecting.done():
            self._connecting.set_result(None)
        elif number == 1:
            # It may have been redirected here because its sessions should be elsewhere now.
            self._ask_soon()
        self._settle()
        self._notify()

    def on_asked(self, number: int, topic_filters: Iterable[str]) -> None:
        for topic_filter in topic_filters:
            self._plan.on_asked(number, topic_filter)

    def on_subscribed(self, number: int, topic_filter: str, qos: int, error: ThicketError | None) -> None:
        if error is None:
            self._plan.on_subscribed(number, topic_filter)
            self._granted[topic_filter] = qos
            if ("subscribe", topic_filter) in self._denied:
                self._denied.remove(("subscribe", topic_filter))
                self._ask_soon()
            is_done = self._plan.home(topic_filter) in (number, None)
        else:
            is_done = not self._plan.on_refused(number, topic_filter)
        if is_done:
            for future in self._subscribing.pop(topic_filter, []):
                if future.done():
                    continue
                if error is None:
                    future.set_result(qos)
                else:
                    future.set_exception(error)
        self._settle()

    def on_unsubscribed(self, number: int, topic_filter: str) -> None:
        self._plan.on_unsubscribed(number, topic_filter)
        self._settle()

    def on_drained(self, number: int) -> None:
        self._end_moves(self._plan.on_drained(number))
        self._settle()

    def on_better(self, topic: str, address: Address, *, is_filter: bool) -> None:
        if is_filter and not self._plan.may_move(topic):
            return
        number = self._plan.session_at(address)
        if number is None:
            return
        if not is_filter:
            self._routes.place(topic, number)
        elif self._plan.move_to(topic, number):
            self._ledger.begin(topic)
        self._settle()

    def on_refused(self, number: int, error: Refused) -> None:
        self._last_problem = str(error)
        if number > 1:
            # The broker refuses a further session: the first one serves its topics.
            self._plan.give_up(number)
            self._routes.forget(number)
            self._sessions[number].assign(Assignment(leave=Leave.NOW))
            self._settle()
        elif not self._connecting.done():
            self._connecting.set_exception(error)

    def on_disconnected(self, number: int) -> None:
        self._addresses.pop(number, None)
        self._notify()

    def on_problem(self, problem: str) -> None:
        self._last_problem = problem
        self._ask_soon()

    def on_taken_over(self) -> None:
        if self._ended is None:
            self._start(self._end(TakenOver("another client took over the session"), Leave.NOW))

    def on_settled(self, outgoing: Outgoing, error: ThicketError | None) -> None:
        self._routes.leave(outgoing.message.topic)
        # A denied topic is remembered, or the next request would have it again.
        if isinstance(error, Refused) and ("publish", outgoing.message.topic) not in self._denied:
            self._routes.unlearn(outgoing.message.topic)
        self._notify()
        if outgoing.reply.done():
            return
        if error is None:
            outgoing.reply.set_result(None)
        else:
            outgoing.reply.set_exception(error)
            # A caller that waits gets the error; if none waits, that is no fault.
            outgoing.reply.exception()

    def on_left(self, number: int) -> None:
        self._addresses.pop(number, None)
        self._sessions.pop(number, None)
        self._tasks.pop(number, None)
        self._routes.close(number)
        self._to_be_read.discard(number)
        self._end_moves(self._plan.on_left(number, is_routed=self._routes.uses(number)))
        if self._ended is None:
            self._settle()
        self._notify()

    # Placement

    def _control_urls(self) -> Sequence[str]:
        return () if self._placement is None or isinstance(self._placement, str) else self._placement

    def _request(self) -> Request:
        published = sorted_unique([*self._publish, *self._routes.learned])
        request = to_request(self.client_id, published, self._plan.wanted, self._max_sessions, self._rates)
        return request.without(self._denied)

    def _deny(self, entry: Entry) -> bool:
        """Leaves it out of requests from now on. Returns whether it was in them so far."""
        kind, name = entry
        self._last_problem = f"the control plane does not place {name!r}: denied"
        filters = sum(1 for other, _ in self._denied if other == "subscribe")
        if entry in self._denied or (kind == "subscribe" and filters >= DENIED):
            return False
        self._denied.add(entry)
        return True

    async def _ask(self) -> None:
        login = None if self._login.user_name is None else (self._login.user_name, self._login.password or "")
        placing = await asyncio.to_thread(_control.ask, self._control_urls(), login, self._trusted, self._request())
        for entry in sorted(placing.denied):
            self._deny(entry)
        if placing.answer is None:
            self._last_problem = placing.problem
            self._ask_later(random.uniform(0, ASK_AGAIN_S))
        else:
            self._follow(placing.answer)

    def _ask_later(self, seconds: float) -> None:
        if self._later is not None:
            # However often no control plane answers, there is one next request.
            self._later.cancel()
        self._later = asyncio.get_running_loop().call_later(seconds, self._asks.set)

    def _ask_soon(self) -> None:
        self._asks.set()

    async def _keep_asking(self) -> None:
        learned = len(self._routes.learned)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._asks.wait()
            if not self._asks.is_set() and learned == len(self._routes.learned):
                continue
            await asyncio.sleep(GATHER_S)
            self._asks.clear()
            learned = len(self._routes.learned)
            await self._ask()
            self._settle()

    def _follow(self, text: str) -> None:
        try:
            placed = parse_answer(text, self.client_id, self._max_sessions)
        except ValueError as error:
            self._last_problem = f"the placement is not followed: {error}"
            return
        for topic_filter in self._plan.apply(placed):
            self._ledger.begin(topic_filter)
        self._to_be_read = {number for number, session in placed.items() if not session.publish and not session.subscribe}
        self._routes.replace({topic: number for number, session in placed.items() for topic in session.publish})
        for number in placed:
            address = self._plan.address(number)
            if address is not None and address[1] not in self._known and len(self._known) < KNOWN:
                self._known.append(address[1])
        self._is_placed = True

    def _end_moves(self, filters: Iterable[str]) -> None:
        for topic_filter in filters:
            asyncio.get_running_loop().call_later(LATE_S, self._ledger.end, topic_filter)

    def _settle(self) -> None:
        """Opens missing sessions, and gives each session its assignment."""
        if self._ended is not None:
            return
        for topic_filter in [one for one in self._unsubscribing if self._plan.is_unsubscribed(one)]:
            for future in self._unsubscribing.pop(topic_filter):
                if not future.done():
                    future.set_result(None)
        for number in self._plan.sessions():
            if number not in self._sessions:
                self._open(number)
            leave = Leave.STAY
            is_used = self._routes.uses(number) and number not in self._to_be_read
            if not is_used and self._plan.leaves(number):
                self._routes.close(number)
                leave = Leave.WHEN_READ
            requests = self._requests if number == 1 else 0
            self._sessions[number].assign(Assignment(self._plan.address(number), self._plan.filters(number), leave, requests))

    def _open(self, number: int) -> None:
        name = session_name(self.client_id, number)
        login = self._login
        login = Login(
            name, login.version, login.user_name, login.password, login.tls, login.keep_alive, login.session_expiry,
            login.receive_maximum, self._will if number == 1 else None,
        )  # fmt: skip
        clean_start = not (self._resume or number in self._to_be_read)
        session = Session(number, self, login, self._timing, clean_start=clean_start)
        self._sessions[number] = session
        self._tasks[number] = asyncio.get_running_loop().create_task(session.run(), name=name)
        self._routes.open(number)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


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


def _check_acknowledge(acknowledge: object) -> None:
    if acknowledge not in ("next", "manual", "arrival"):
        raise ValueError(f"acknowledge: {acknowledge!r}: expected 'next', 'manual' or 'arrival'")


def _check_login(version: int, client_id: str, user_name: str, password: str) -> None:
    if version not in (4, 5):
        raise ValueError(f"version: {version}: expected 4 (3.1.1) or 5 (5.0)")
    check_text(client_id, "client_id:")
    check_text(user_name, "user_name:")
    if len(password.encode()) > LONGEST:
        raise ValueError(f"password: expected at most {LONGEST} bytes")


def _check_declared(publish: Iterable[str], subscribe: Mapping[str, int], will: Message | None) -> None:
    for topic_filter in (*publish, *subscribe):
        check_filter(topic_filter)
    for qos in subscribe.values():
        check_qos(qos)
    if will is not None:
        if not isinstance(will, Message):
            raise ValueError(f"will: {type(will).__name__}: expected a Message")
        check_message(will)


def _check_rates(rates: Mapping[str, float]) -> dict[str, float]:
    for topic, rate in rates.items():
        if not 0 <= rate <= MOST_PER_S:
            raise ValueError(f"rates: {rate} for {topic!r}: expected 0 to {MOST_PER_S} a second")
    return dict(rates)


def _check_placement(placement: object) -> None:
    if placement is None or placement == "mqtt":
        return
    urls = [] if isinstance(placement, str) or not isinstance(placement, Sequence) else placement
    if not urls or not all(re.match(r"https?://[^/]", str(url)) for url in urls):
        raise ValueError(f"placement: {placement!r}: expected 'mqtt', a list of URLs such as http://HOST:PORT, or None")


def _parse_servers(urls: Sequence[str]) -> tuple[list[Address], bool]:
    """The addresses, and whether there is TLS."""
    if not urls:
        raise ValueError("servers: expected at least one URL")
    addresses = []
    schemes = set()
    for url in urls:
        parts = urlsplit(url)
        is_tls = parts.scheme in ("mqtts", "ssl", "tls")
        found = parse_reference(parts.netloc, 8883 if is_tls else 1883)
        if not (is_tls or parts.scheme in ("mqtt", "tcp")) or not found or parts.path.strip("/"):
            raise ValueError(f"servers: {url!r}: expected mqtt://HOST[:PORT] or mqtts://HOST[:PORT]")
        addresses.append(found[0])
        schemes.add(is_tls)
    if len(schemes) > 1:
        raise ValueError("servers: expected one scheme for all")
    return addresses, schemes.pop()
