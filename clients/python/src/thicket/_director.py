"""The part of a client that makes its sessions match its plan, and asks the control plane."""

import asyncio
import contextlib
import random
import secrets
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from . import _control
from ._assignment import Assignment, Leave, Outgoing
from ._errors import ClosedError, ConnectError, Refused, TakenOver, ThicketError
from ._inbound import Receipt
from ._ledger import Ledger
from ._message import Message
from ._options import Settings
from ._placement import PLACE, Address, Entry, Request, parse_answer, session_name, sorted_unique, to_request
from ._plan import Plan
from ._routes import Routes
from ._session import Session
from ._subscription import SubscriptionOptions

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


class Director:
    """See the module. It is the owner of the sessions."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._login = settings.login
        self._known = list(settings.addresses)
        self._plan = Plan(settings.max_sessions, tls=settings.login.tls is not None)
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
        self.addresses: dict[int, Address] = {}
        self._later: asyncio.TimerHandle | None = None
        # Topics and filters that the control plane denied: requests leave them out, filters until a broker grants them.
        self._denied: set[Entry] = set()
        # The request in the last CONNECT of the first session.
        self._asked: Request | None = None
        # Number of changes of the request in the CONNECT of the first session that should be sent at once.
        self._requests = 0
        self.is_placed = False
        self.last_problem = ""
        self._ended: ClosedError | None = ClosedError("the client was not opened: use it in `async with`")
        self._run = secrets.token_hex(8)
        self._published = 0

    # Life cycle

    async def open(self) -> None:
        """Connects. Declared subscriptions are made on every session before the client counts as connected."""
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
        for topic_filter, options in self._settings.subscribe.items():
            self._plan.subscribe(topic_filter, options)
            declared.append(asyncio.get_running_loop().create_future())
            self._subscribing.setdefault(topic_filter, []).append(declared[-1])
        try:
            if self._control_urls():
                await self._ask()
                self._start(self._keep_asking())
            self._settle()
            async with asyncio.timeout(self._settings.connect_timeout):
                await asyncio.shield(self._connecting)
                await asyncio.gather(*declared)
        except TimeoutError:
            is_connected = self._connecting.done()
            await self._end(ClosedError("the client is closed"), Leave.NOW)
            if is_connected:
                raise ConnectError(f"subscriptions were not answered within {self._settings.connect_timeout} s") from None
            raise ConnectError(f"no broker can be reached: {self.last_problem}") from None
        except BaseException:
            await self._end(ClosedError("the client is closed"), Leave.NOW)
            raise

    async def close(self) -> None:
        await self._end(ClosedError("the client is closed"), Leave.NOW_AND_KEEP if self._settings.resume else Leave.NOW)

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

    async def change(self) -> None:
        """Waits until something changes."""
        self.raise_if_ended()
        await self._changed.wait()

    async def subscribe(self, topic_filter: str, options: SubscriptionOptions) -> int:
        self.raise_if_ended()
        if self._plan.options(topic_filter) != options:
            self._granted.pop(topic_filter, None)
        if self._plan.is_home(topic_filter) and topic_filter in self._granted:
            return self._granted[topic_filter]
        self._plan.subscribe(topic_filter, options)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._subscribing.setdefault(topic_filter, []).append(future)
        self._ask_soon()
        self._settle()
        return await future

    async def unsubscribe(self, topic_filter: str) -> None:
        self.raise_if_ended()
        self._granted.pop(topic_filter, None)
        if not self._plan.unsubscribe(topic_filter):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsubscribing.setdefault(topic_filter, []).append(future)
        self._ask_soon()
        self._settle()
        await future

    async def send(self, message: Message) -> "asyncio.Future[int]":
        self.raise_if_ended()
        identity = None
        if message.qos == 2 and self.is_placed:
            self._published += 1
            identity = f"{self._run}-{self._published:x}"
        number = await self._routes.enter(message.topic)
        while number is not None and number in self._sessions and len(self._sessions[number].outgoing) >= self._settings.send_queue:
            await self._changed.wait()
        if number is None or number not in self._sessions or self._ended is not None:
            if number is not None:
                self._routes.leave(message.topic)
            raise self._ended or ClosedError("the client is closed")
        reply: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        session = self._sessions[number]
        session.outgoing.append(Outgoing(message, identity, reply))
        session.wake()
        return reply

    async def next_message(self) -> Message | None:
        """The next message; None if there will be no more."""
        last, self._last = self._last, None
        if self._settings.acknowledge == "next" and last is not None and not last.is_in_block:
            last.acknowledge()
        while (taken := self._take()) is None:
            if isinstance(self._ended, TakenOver):
                raise self._ended
            if self._ended is not None:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        message, self._last = taken
        return message

    def _take(self) -> tuple[Message, Receipt | None] | None:
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

    def raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Callbacks of sessions

    def is_full(self) -> bool:
        return self._unbounded >= self._settings.receive_queue

    def known(self) -> list[Address]:
        return list(self._known)

    def properties(self, number: int) -> list[tuple[str, str]]:
        """The current user properties for a session's CONNECT."""
        properties = [] if self._settings.placement is None else [(PLACE, "1")]
        if number == 1 and self._settings.placement == "mqtt":
            self._asked = self._request()
            properties += self._asked.to_properties()
        return properties

    def on_message(self, number: int, message: Message, identity: str | None, receipt: Receipt | None) -> None:
        is_admitted = self._ledger.admits(number, message, identity)
        if receipt is not None and (self._settings.acknowledge == "arrival" or not is_admitted):
            receipt.acknowledge()
        if is_admitted:
            self._messages.append((message, receipt))
            self._unbounded += self._is_unbounded(receipt)
            self._arrived.set()

    def on_connected(self, number: int, address: Address, placement: str | None) -> None:
        self._plan.note_address(number, address)
        self.addresses[number] = address
        if placement is not None and number == 1 and self._settings.placement == "mqtt":
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

    def on_subscribed(self, number: int, topic_filter: str, options: SubscriptionOptions, code: int, error: ThicketError | None) -> None:
        if error is None:
            self._plan.on_subscribed(number, topic_filter)
            self._granted[topic_filter] = code
            if ("subscribe", topic_filter) in self._denied:
                self._denied.remove(("subscribe", topic_filter))
                self._ask_soon()
            # Options that were replaced meanwhile are asked for next.
            is_done = self._plan.home(topic_filter) in (number, None) and self._plan.options(topic_filter) in (options, None)
        else:
            is_done = not self._plan.on_refused(number, topic_filter)
        if is_done:
            for future in self._subscribing.pop(topic_filter, []):
                if future.done():
                    continue
                if error is None:
                    future.set_result(code)
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
        self.last_problem = str(error)
        if number > 1:
            # The broker refuses a further session: the first one serves its topics.
            self._plan.give_up(number)
            self._routes.forget(number)
            self._sessions[number].assign(Assignment(leave=Leave.NOW))
            self._settle()
        elif not self._connecting.done():
            self._connecting.set_exception(error)

    def on_disconnected(self, number: int) -> None:
        self.addresses.pop(number, None)
        self._notify()

    def on_problem(self, problem: str) -> None:
        self.last_problem = problem
        self._ask_soon()

    def on_taken_over(self) -> None:
        if self._ended is None:
            self._start(self._end(TakenOver("another client took over the session"), Leave.NOW))

    def on_settled(self, outgoing: Outgoing, error: ThicketError | None, code: int = 0) -> None:
        self._routes.leave(outgoing.message.topic)
        # A denied topic is remembered, or the next request would have it again.
        if isinstance(error, Refused) and ("publish", outgoing.message.topic) not in self._denied:
            self._routes.unlearn(outgoing.message.topic)
        self._notify()
        if outgoing.reply.done():
            return
        if error is None:
            outgoing.reply.set_result(code)
        else:
            outgoing.reply.set_exception(error)
            # A caller that waits gets the error; if none waits, that is no fault.
            outgoing.reply.exception()

    def on_left(self, number: int) -> None:
        self.addresses.pop(number, None)
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
        return () if self._settings.placement is None or isinstance(self._settings.placement, str) else self._settings.placement

    def _request(self) -> Request:
        published = sorted_unique([*self._settings.publish, *self._routes.learned])
        request = to_request(self._login.client_id, published, self._plan.wanted, self._settings.max_sessions, self._settings.rates)
        return request.without(self._denied)

    def _deny(self, entry: Entry) -> bool:
        """Leaves it out of requests from now on. Returns whether it was in them so far."""
        kind, name = entry
        self.last_problem = f"the control plane does not place {name!r}: denied"
        filters = sum(1 for other, _ in self._denied if other == "subscribe")
        if entry in self._denied or (kind == "subscribe" and filters >= DENIED):
            return False
        self._denied.add(entry)
        return True

    async def _ask(self) -> None:
        login = None if self._login.user_name is None else (self._login.user_name, self._login.password or "")
        placing = await asyncio.to_thread(_control.ask, self._control_urls(), login, self._settings.trusted, self._request())
        for entry in sorted(placing.denied):
            self._deny(entry)
        if placing.answer is None:
            self.last_problem = placing.problem
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
            placed = parse_answer(text, self._login.client_id, self._settings.max_sessions)
        except ValueError as error:
            self.last_problem = f"the placement is not followed: {error}"
            return
        for topic_filter in self._plan.apply(placed):
            self._ledger.begin(topic_filter)
        self._to_be_read = {number for number, session in placed.items() if not session.publish and not session.subscribe}
        self._routes.replace({topic: number for number, session in placed.items() for topic in session.publish})
        for number in placed:
            address = self._plan.address(number)
            if address is not None and address[1] not in self._known and len(self._known) < KNOWN:
                self._known.append(address[1])
        self.is_placed = True

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
        name = session_name(self._login.client_id, number)
        login = replace(self._login, client_id=name, will=self._settings.will if number == 1 else None)
        clean_start = not (self._settings.resume or number in self._to_be_read)
        session = Session(number, self, login, self._settings.timing, clean_start=clean_start)
        self._sessions[number] = session
        self._tasks[number] = asyncio.get_running_loop().create_task(session.run(), name=name)
        self._routes.open(number)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
