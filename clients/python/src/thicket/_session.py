"""One session of a client: a task that keeps it connected and makes it match its Assignment.

Paho keeps the session's state (packet identifiers, messages in flight) when connections break. The event loop drives it. Only its
`connect`, which blocks, runs on a thread of the loop's executor.
"""

import asyncio
import contextlib
import os
import random
import socket
import ssl
import threading
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from ._assignment import Assignment, Leave, Login, Outgoing, Owner, Timing
from ._errors import ClosedError, OutcomeUnknown, Refused
from ._inbound import Inbound, Receipt, Reception
from ._limits import Limits
from ._message import new_properties, received, to_properties
from ._paho import PahoClient
from ._placement import PLACE, PLACEMENT, REDIRECTED, Address, format_address, parse_reference
from ._plan import Subscription
from ._subscription import RetainHandling, SubscriptionOptions

# A connection that ended sooner counts as a failed attempt.
STABLE_S = 1.0
# Redirections that are followed in a row, before a pause as after a failed attempt.
MOST_HOPS = 4
# Addresses at which a session that is to be left is looked for.
MOST_PLACES = 8
# Messages of QoS 1 and 2 in flight for each session; fewer if the broker demands it.
MAX_IN_FLIGHT = 100
# Messages given to Paho at once; the next ones follow when these are written.
BATCH = 64
# Longest wait for missing answers when the client closes.
CLOSE_WAIT_S = 3.0
# How often Paho checks keep alive.
MISC_S = 1.0

USE_ANOTHER_SERVER, SERVER_MOVED, SESSION_TAKEN_OVER, IDENTIFIER_NOT_FOUND = 0x9C, 0x9D, 0x8E, 0x92
# Temporary refusals: unspecified, implementation specific, unavailable, busy, shutting down, quota, rate, redirection.
TEMPORARY = {0x80, 0x83, 0x88, 0x89, 0x8B, 0x97, USE_ANOTHER_SERVER, SERVER_MOVED, 0x9F}


@dataclass
class _Lost:
    problem: str


@dataclass
class _Redirected:
    addresses: list[Address]


@dataclass
class _Switch:
    address: Address


@dataclass
class _Refused:
    error: Refused


class _TakenOver:
    pass


class _Left:
    pass


_End = _Lost | _Redirected | _Switch | _Refused | _TakenOver | _Left


@dataclass
class _Quiet:
    since: float


class _Pinged:
    """A PINGREQ is sent: when its answer arrives, everything that the broker sent before has arrived."""


class _Drained:
    pass


# How far a session that lost a subscription has been read; None: that is not needed.
_Drain = _Quiet | _Pinged | _Drained | None


class Session:
    """One session. See the module."""

    def __init__(self, number: int, owner: Owner, login: Login, timing: Timing, *, clean_start: bool) -> None:
        self.outgoing: deque[Outgoing] = deque()
        self.assignment = Assignment()
        self._number = number
        self._owner = owner
        self._login = login
        self._timing = timing
        self._clean_start = clean_start
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._wake = asyncio.Event()
        self._inbound = Inbound(login.receive_maximum if login.version == 5 else None, self._on_acknowledged)
        self._paho = self._new_paho()
        self._end: _End | None = None
        self._is_connected = False
        self._is_stale = False
        self._connection = 0
        self._in_flight_limit = MAX_IN_FLIGHT
        self._limits = Limits()
        self._waiting: dict[int, Outgoing] = {}
        # With the options of each; other options are asked for by another SUBSCRIBE.
        self._subscribed: dict[str, SubscriptionOptions] = {}
        self._asked: dict[int, tuple[str, SubscriptionOptions]] = {}
        self._unasked: dict[int, tuple[str, ...]] = {}
        # Subscribed or unsubscribed on a connection that ended before the answer: the session may have these filters or not.
        self._doubtful: set[str] = set()
        self._refused: dict[str, SubscriptionOptions] = {}
        self._candidates: deque[Address] = deque()
        # Where the session is if the broker that it connects to does not have it. A session that is to be left tries only this address.
        self._places: deque[Address] = deque()
        self._last: Address | None = None
        self._followed = 0
        self._requests = 0
        self._hops = 0
        self._failures = 0
        self._probe: asyncio.Task[bool] | None = None
        self._probed: Address | None = None
        self._previous: int | None = None
        self._last_arrival = 0.0
        self._drain: _Drain = None
        self._closing_until: float | None = None
        self._is_reading = False

    def assign(self, assignment: Assignment) -> None:
        """Assigns what the session should be from now on."""
        if assignment != self.assignment and self.assignment.leave not in (Leave.NOW, Leave.NOW_AND_KEEP):
            self.assignment = assignment
            self.wake()

    def wake(self) -> None:
        """Wakes the session, so that it does what is due."""
        self._wake.set()

    def resume_reading(self) -> None:
        """Messages can be accepted again."""
        sock = self._socket()
        if sock is not None and not self._is_reading and self._is_connected:
            self._is_reading = True
            self._loop.add_reader(sock, self._on_readable)
            # TLS may hold bytes that the socket does not report as readable.
            self._loop.call_soon(self._on_readable)

    async def run(self) -> None:
        """Serves until the session is left."""
        try:
            await self._serve_all()
        finally:
            self._forget_previous()
            self._drop_connection()
            for outgoing in [*self._waiting.values(), *self.outgoing]:
                self._owner.on_settled(outgoing, ClosedError("the client is closed"))
            self._waiting.clear()
            self.outgoing.clear()
            self._owner.on_left(self._number)

    async def _serve_all(self) -> None:
        address: Address | None = None
        while True:
            if address is None:
                address = await self._next_address()
            if address is None:
                return
            self._last = address
            begun = self._loop.time()
            end = await self._serve(address)
            if self._loop.time() - begun > STABLE_S:
                self._failures = 0
            address = end.address if isinstance(end, _Switch) else None
            if not isinstance(end, _Switch):
                if not self._is_leaving_now():
                    self._forget_previous()
                self._owner.on_disconnected(self._number)
            match end:
                case _Lost():
                    self._owner.on_problem(f"{format_address(self._last)}: {end.problem}")
                case _Redirected():
                    self._hops += 1
                    self._candidates = deque(end.addresses if self._hops <= MOST_HOPS else ())
                    places = dict.fromkeys([*self._candidates, *self._places])
                    self._places = deque(list(places)[:MOST_PLACES])
                case _Refused():
                    self._owner.on_refused(self._number, end.error)
                case _TakenOver():
                    self._owner.on_taken_over()
                    return
                case _Left():
                    return
                case _Switch():
                    self._places = deque([self._last])

    def _is_leaving_now(self) -> bool:
        return self.assignment.leave in (Leave.NOW, Leave.NOW_AND_KEEP)

    async def _next_address(self) -> Address | None:
        """The next address to try. None: the session is to be left, and has no messages to read."""
        while not self._is_leaving_now():
            if self._candidates:
                return self._candidates.popleft()
            if self._last is not None or self._failures:
                await self._pause()
                if self._is_leaving_now():
                    break
            self._failures += 1
            self._hops = 0
            self._candidates = self._fresh_candidates()
        return self._next_place()

    def _next_place(self) -> Address | None:
        """Where a session that is to be left can still be ended."""
        # A session exists only after a broker has accepted it.
        if self.assignment.leave is not Leave.NOW or self._clean_start or not self._places or self._is_closing_over():
            return None
        # The broker at that address should serve, although the placement names another one.
        self._hops = max(self._hops, 1)
        return self._places.popleft()

    async def _pause(self) -> None:
        limit = min(self._timing.first_pause * 2 ** min(self._failures, 16), self._timing.longest_pause)
        until = self._loop.time() + random.uniform(0, limit)
        # A message that is handed over meanwhile wakes the session, but is no reason to retry sooner.
        while (left := until - self._loop.time()) > 0 and not self._is_leaving_now():
            await self._wait(left)

    def _fresh_candidates(self) -> deque[Address]:
        """Where it was, where it should be, and then any other address."""
        first = [self._last] if self._last is not None else []
        if self.assignment.address is not None:
            number, address = self.assignment.address
            first = [address, *first] if number > self._followed else [*first, address]
            self._followed = max(self._followed, number)
        others = self._owner.known()
        random.shuffle(others)
        return deque(dict.fromkeys([*first, *others]))

    async def _wait(self, seconds: float) -> None:
        """Waits until the session is woken, or `seconds` have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._wake.wait()
        self._wake.clear()

    async def _serve(self, address: Address) -> _End:
        if self._is_stale:
            self._renew()
        self._end = None
        if isinstance(self._drain, _Quiet | _Pinged):
            self._drain = _Quiet(self._loop.time())
        try:
            await self._connect(address)
        except (OSError, ValueError, paho.WebsocketConnectionError) as error:
            self._drop_connection()
            return _Lost(str(error) or type(error).__name__)
        deadline = self._loop.time() + self._timing.dial
        next_misc = self._loop.time() + MISC_S
        try:
            while self._end is None:
                now = self._loop.time()
                if now >= next_misc:
                    self._paho.loop_misc()
                    next_misc = now + MISC_S
                if self._is_connected:
                    self._act(address)
                elif now >= deadline:
                    return _Lost("no CONNACK in time")
                elif self._is_leaving_now() and self._is_closing_over():
                    return _Left()
                if self._end is None:
                    await self._wait(self._next_deadline(next_misc if self._is_connected else min(next_misc, deadline)))
            if isinstance(self._end, _Left):
                await self._flush()
            return self._end
        finally:
            self._cancel_probe()
            if isinstance(self._end, _Switch):
                self._keep_previous()
            self._drop_connection()

    def _next_deadline(self, at: float) -> float:
        times = [at]
        if isinstance(self._drain, _Quiet) and self._is_connected and not self._owner.is_full():
            times.append(max(self._drain.since, self._last_arrival) + self._timing.quiet)
        if self._closing_until is not None:
            times.append(self._closing_until)
        return min(times) - self._loop.time()

    # Paho

    def _new_paho(self) -> PahoClient:
        login = self._login
        client = PahoClient(
            CallbackAPIVersion.VERSION2, login.client_id, protocol=paho.MQTTv5 if login.version == 5 else paho.MQTTv311,
            clean_session=None if login.version == 5 else self._clean_start, reconnect_on_failure=False, manual_ack=True,
        )  # fmt: skip
        if login.user_name is not None:
            client.username_pw_set(login.user_name, login.password)
        if login.tls is not None:
            client.tls_set_context(login.tls)
        if login.will is not None:
            will = login.will
            client.will_set(will.topic, will.payload, will.qos, will.retain, to_properties(will, None) if login.version == 5 else None)
        # Queues are limited here: Paho gets no message that it would have to queue.
        client.max_inflight_messages_set(65_535)
        client.max_queued_messages_set(0)
        client.connect_timeout = self._timing.dial
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.on_socket_open = self._on_socket_open
        client.on_socket_close = self._on_socket_close
        client.on_socket_register_write = self._on_socket_register_write
        client.on_socket_unregister_write = self._on_socket_unregister_write
        client.on_pong = self._on_pong
        client.on_pubrel = self._inbound.on_pubrel
        return client

    async def _connect(self, address: Address) -> None:
        login = self._login
        arguments: dict[str, Any] = {}
        if login.version == 5:
            properties = new_properties(PacketTypes.CONNECT)
            if login.session_expiry:
                properties.SessionExpiryInterval = login.session_expiry
            properties.ReceiveMaximum = login.receive_maximum
            self._requests = self.assignment.requests
            user = self._owner.properties(self._number)
            if self._hops:
                user.append((REDIRECTED, str(self._hops)))
            if user:
                properties.UserProperty = user
            arguments = {"clean_start": self._clean_start, "properties": properties}
        connect = partial(self._paho.connect, address[0], address[1], login.keep_alive, **arguments)
        self._connection += 1
        self._paho.keep_pubrels()
        await self._loop.run_in_executor(None, connect)
        sock = self._socket()
        if sock is None:
            raise OSError("the broker closed the connection")
        self._is_reading = True
        self._loop.add_reader(sock, self._on_readable)
        if self._paho.want_write():
            self._loop.add_writer(sock, self._on_writable)

    def _socket(self) -> socket.socket | None:
        # The kinds of sockets of Paho, except WebSocket.
        sock = self._paho.socket()
        return sock if isinstance(sock, socket.socket) else None

    def _drop_connection(self) -> None:
        self._is_connected = False
        self._is_reading = False
        self._inbound.on_closed()
        sock = self._socket()
        if sock is not None:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
            with contextlib.suppress(OSError):
                # Paho closes it when it reconnects, or is dropped; the broker should notice now.
                if self._previous is None:
                    sock.shutdown(socket.SHUT_RDWR)

    def _keep_previous(self) -> None:
        """Paho closes the connection before it opens the next. For the broker it should stay open until the next one has the session."""
        sock = self._socket()
        if sock is not None:
            self._previous = os.dup(sock.fileno())

    def _forget_previous(self) -> None:
        if self._previous is not None:
            os.close(self._previous)
            self._previous = None

    def _renew(self) -> None:
        """The broker lost the session: Paho would send its messages in flight again, also those that must not be."""
        self._is_stale = False
        waiting, self._waiting = self._waiting, {}
        self._paho = self._new_paho()
        for outgoing in reversed(waiting.values()):
            if outgoing.message.qos == 2:
                self._owner.on_settled(outgoing, OutcomeUnknown("the broker lost the session while this message of QoS 2 was in flight"))
            else:
                self.outgoing.appendleft(outgoing)

    def _on_socket_open(self, _client: paho.Client, _userdata: object, _sock: object) -> None:
        """On the executor's thread: `_connect` continues when that is done."""

    def _on_socket_close(self, _client: paho.Client, _userdata: object, sock: Any) -> None:
        # On the executor's thread it is the socket of an earlier connection, which the loop has forgotten.
        if threading.get_ident() == self._thread:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)

    def _on_socket_register_write(self, _client: paho.Client, _userdata: object, sock: Any) -> None:
        # Before the connection is established, `_connect` does it.
        if threading.get_ident() == self._thread:
            self._loop.add_writer(sock, self._on_writable)

    def _on_socket_unregister_write(self, _client: paho.Client, _userdata: object, sock: Any) -> None:
        if threading.get_ident() == self._thread:
            self._loop.remove_writer(sock)
            self.wake()

    def _on_readable(self) -> None:
        while (sock := self._socket()) is not None and self._is_reading:
            self._paho.loop_read()
            if self._owner.is_full() and self._is_connected:
                self._is_reading = False
                self._loop.remove_reader(sock)
                return
            if not (isinstance(sock, ssl.SSLSocket) and sock.fileno() >= 0 and sock.pending()):
                return

    def _on_writable(self) -> None:
        if self._socket() is not None:
            self._paho.loop_write()

    async def _flush(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WAIT_S):
                while self._socket() is not None and self._paho.want_write():
                    self._paho.loop_write()
                    await asyncio.sleep(0.01)

    # Callbacks of Paho

    def _on_connect(
        self, _client: paho.Client, _userdata: object, flags: paho.ConnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        if code.is_failure:
            self._end = self._ended(code, properties, is_refusal=True)
            self.wake()
            return
        self._clean_start = False
        asked = self._unanswered()
        self._asked.clear()
        self._unasked.clear()
        self._doubtful |= asked
        self._subscribed = {name: options for name, options in self._subscribed.items() if name not in asked}
        self._inbound.on_connected(session_present=flags.session_present)
        if not flags.session_present:
            self._on_session_lost()
            if self._is_stale:
                return
        self._is_connected = True
        self._hops = 0
        self._candidates.clear()
        self._places.clear()
        self._forget_previous()
        self._in_flight_limit = min(MAX_IN_FLIGHT, getattr(properties, "ReceiveMaximum", MAX_IN_FLIGHT))
        self._limits = Limits.of(properties)
        user = getattr(properties, "UserProperty", ())
        placement = next((value for name, value in user if name == PLACEMENT), None)
        self._owner.on_connected(self._number, self._last or ("", 0), placement)
        self.wake()

    def _on_session_lost(self) -> None:
        lost = sorted(self._subscribed.keys() | self._doubtful)
        self._subscribed.clear()
        self._doubtful.clear()
        for topic_filter in lost:
            self._owner.on_unsubscribed(self._number, topic_filter)
        if self._waiting:
            # None of Paho's messages in flight may be sent: the connection ends here, and a new Paho client takes the new session.
            self._is_stale = True
            sock = self._socket()
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            self._candidates.appendleft(self._last or ("", 0))
            self._end = _Lost("the broker does not have the session any more")
            self.wake()

    def _on_disconnect(
        self, _client: paho.Client, _userdata: object, flags: paho.DisconnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        self._is_connected = False
        if self._end is None:
            if flags.is_disconnect_packet_from_server:
                self._end = self._ended(code, properties, is_refusal=False)
            else:
                self._end = _Lost(str(code))
        self.wake()

    def _ended(self, code: ReasonCode, properties: Properties | None, *, is_refusal: bool) -> _End:
        reference = getattr(properties, "ServerReference", None)
        if code.value in (USE_ANOTHER_SERVER, SERVER_MOVED) and reference:
            addresses = parse_reference(reference, 8883 if self._login.tls else 1883)
            return _Redirected(addresses) if addresses else _Lost(f"sent to {reference!r}, which is no server")
        if code.value == SESSION_TAKEN_OVER:
            return _TakenOver()
        if is_refusal and code.value not in TEMPORARY:
            return _Refused(Refused(code.value, str(code)))
        return _Lost(str(code))

    def _on_message(self, _client: paho.Client, _userdata: object, message: paho.MQTTMessage) -> None:
        self._last_arrival = self._loop.time()
        reception = self._inbound.on_publish(message.qos, message.mid) if message.qos else None
        match reception:
            case Receipt() | None:
                self._owner.on_message(self._number, *received(message, reception), reception)
            case Reception.ACKNOWLEDGE_AGAIN:
                self._paho.acknowledge(message.qos, message.mid)
            case Reception.EXCEEDED:
                self._end = _Lost(f"the broker exceeded the Receive Maximum, {self._login.receive_maximum}")
                self.wake()
            case Reception.IGNORE:
                pass

    def _on_acknowledged(self, receipt: Receipt) -> None:
        if threading.get_ident() == self._thread:
            self._acknowledge(receipt)
        else:
            with contextlib.suppress(RuntimeError):
                # The event loop may have ended: the broker sends the message again.
                self._loop.call_soon_threadsafe(self._acknowledge, receipt)

    def _acknowledge(self, receipt: Receipt) -> None:
        for packet_id in self._inbound.due(receipt.qos):
            # Without a connection: the broker sends the message again, and gets the PUBREC of QoS 2 then.
            if self._is_connected:
                self._paho.acknowledge(receipt.qos, packet_id)
        if self.assignment.leave is not Leave.STAY:
            self.wake()

    def _on_publish(self, _client: paho.Client, _userdata: object, mid: int, code: ReasonCode, properties: Properties | None) -> None:
        outgoing = self._waiting.pop(mid, None)
        if outgoing is None:
            return
        self._note_better(outgoing.message.topic, properties, is_filter=False)
        error = Refused(code.value, str(code)) if code.is_failure else None
        if code.value == IDENTIFIER_NOT_FOUND and outgoing.connection != self._connection:
            # The answer to a PUBREL that was sent again: the broker had completed the exchange.
            error = None
        self._owner.on_settled(outgoing, error, code.value)
        self.wake()

    def _note_better(self, topic: str, properties: Properties | None, *, is_filter: bool) -> None:
        user = getattr(properties, "UserProperty", ()) if properties else ()
        for name, value in user:
            if name == PLACE and (addresses := parse_reference(value, 8883 if self._login.tls else 1883)):
                self._owner.on_better(topic, addresses[0], is_filter=is_filter)

    def _on_subscribe(
        self, _client: paho.Client, _userdata: object, mid: int, codes: list[ReasonCode], properties: Properties | None
    ) -> None:
        found, (code, *_) = self._asked.pop(mid, None), codes
        if found is not None:
            topic_filter, options = found
            self._note_better(topic_filter, properties, is_filter=True)
            self._doubtful.discard(topic_filter)
            error = Refused(code.value, str(code)) if code.is_failure else None
            (self._subscribed if error is None else self._refused)[topic_filter] = options
            self._owner.on_subscribed(self._number, topic_filter, options, code.value, error)
        self.wake()

    def _on_unsubscribe(
        self, _client: paho.Client, _userdata: object, mid: int, _codes: list[ReasonCode], _properties: Properties | None
    ) -> None:
        for topic_filter in self._unasked.pop(mid, ()):
            self._subscribed.pop(topic_filter, None)
            self._doubtful.discard(topic_filter)
            self._owner.on_unsubscribed(self._number, topic_filter)
        self._drain = _Quiet(self._loop.time())
        self.wake()

    def _on_pong(self) -> None:
        if not isinstance(self._drain, _Pinged):
            return
        if self._loop.time() - self._last_arrival < self._timing.quiet or self._owner.is_full():
            self._drain = _Quiet(self._last_arrival)
        else:
            self._drain = _Drained()
            self._owner.on_drained(self._number)
        self.wake()

    # Work of the session

    def _act(self, address: Address) -> None:
        self._ask_for_subscriptions()
        self._publish()
        self._follow_placement(address)
        self._ping_after_silence()
        self._leave()

    def _unanswered(self) -> set[str]:
        return {name for name, _ in self._asked.values()} | {name for names in self._unasked.values() for name in names}

    def _ask_for_subscriptions(self) -> None:
        wanted = self.assignment.filters
        self._refused = {name: options for name, options in self._refused.items() if name in wanted}
        asked = self._unanswered()
        for topic_filter, how in wanted.items():
            answered = (self._subscribed.get(topic_filter), self._refused.get(topic_filter))
            if how.options not in answered and topic_filter not in asked:
                self._subscribe(topic_filter, how)
        surplus = [name for name in sorted(self._subscribed.keys() | self._doubtful) if name not in wanted and name not in asked]
        if surplus:
            _, mid = self._paho.unsubscribe(surplus[:BATCH])
            if mid is not None:
                self._unasked[mid] = tuple(surplus[:BATCH])
                self._owner.on_asked(self._number, surplus[:BATCH])

    def _subscribe(self, topic_filter: str, how: Subscription) -> None:
        """One filter for each packet: so an answer with a better node concerns one filter."""
        options = how.options
        if self._login.version == 5:
            retain_handling = options.retain_handling
            if how.is_moved:
                retain_handling = RetainHandling.DO_NOT_SEND
            elif topic_filter in self._doubtful and retain_handling == RetainHandling.SEND_AT_SUBSCRIBE:
                # The session may have the subscription, so retained messages are wanted only if it is new.
                retain_handling = RetainHandling.SEND_IF_NEW
            properties = None
            if options.identifier is not None:
                properties = new_properties(PacketTypes.SUBSCRIBE)
                properties.SubscriptionIdentifier = options.identifier
            packed = SubscribeOptions(int(options.qos), options.no_local, options.retain_as_published, int(retain_handling))
            _, mid = self._paho.subscribe(topic_filter, options=packed, properties=properties)
        else:
            _, mid = self._paho.subscribe(topic_filter, int(options.qos))
        if mid is not None:
            self._asked[mid] = (topic_filter, options)
            self._owner.on_asked(self._number, (topic_filter,))

    def _publish(self) -> None:
        """Sends waiting messages, as many as the broker accepts; the next ones follow when these are written."""
        if self._paho.want_write() and len(self._waiting) > 0:
            return
        for _ in range(min(BATCH, len(self.outgoing))):
            message = self.outgoing[0].message
            if message.qos and len(self._waiting) >= self._in_flight_limit:
                return
            outgoing = self.outgoing.popleft()
            properties = to_properties(message, outgoing.identity) if self._login.version == 5 else None
            refusal = self._limits.refusal(message, properties)
            if refusal is not None:
                self._owner.on_settled(outgoing, refusal)
                continue
            info = self._paho.publish(message.topic, message.payload, message.qos, message.retain, properties)
            if message.qos:
                outgoing.connection = self._connection
                self._waiting[info.mid] = outgoing
            else:
                self._owner.on_settled(outgoing, None)

    def _follow_placement(self, address: Address) -> None:
        """Tries the address that the control plane assigned. The current connection serves until a broker is known to listen there."""
        if self._is_leaving_now():
            # The session is ended where it is.
            self._cancel_probe()
            return
        if self._probe is not None and self._probe.done():
            is_there = self._probe.result()
            self._probe = None
            if is_there and self._probed is not None:
                self._end = _Switch(self._probed)
        wanted = address
        if self.assignment.address is not None and self.assignment.address[0] > self._followed:
            self._followed, wanted = self.assignment.address
            self._cancel_probe()
        if wanted == address:
            if self.assignment.requests > self._requests and self._end is None:
                self._end = _Switch(address)
        else:
            # A connection there makes the request too.
            self._requests = self.assignment.requests
            self._probed = wanted
            self._probe = self._loop.create_task(self._is_listening(wanted))
            self._probe.add_done_callback(lambda _: self.wake())

    async def _is_listening(self, address: Address) -> bool:
        connecting: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.open_connection(*address)
        try:
            async with asyncio.timeout(self._timing.dial):
                _, writer = await connecting
        except OSError as error:
            self._owner.on_problem(f"{format_address(address)}: {error}")
            return False
        writer.close()
        return True

    def _cancel_probe(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None

    def _ping_after_silence(self) -> None:
        if not isinstance(self._drain, _Quiet) or self._owner.is_full():
            return
        if self._loop.time() - max(self._drain.since, self._last_arrival) >= self._timing.quiet:
            self._drain = _Pinged()
            self._paho.ping()

    def _is_closing_over(self) -> bool:
        """Whether the time for missing answers is over. A CONNECT counts: the broker may already have the session."""
        if self._closing_until is None:
            self._closing_until = self._loop.time() + CLOSE_WAIT_S
        return self._loop.time() >= self._closing_until

    def _leave(self) -> None:
        leave = self.assignment.leave
        is_sent = not self.outgoing and not self._waiting
        if leave is Leave.STAY:
            return
        if leave is Leave.WHEN_READ:
            if self._drain is None:
                self._drain = _Quiet(self._loop.time())
            if not (is_sent and isinstance(self._drain, _Drained) and self._inbound.is_settled):
                return
        elif not is_sent and not self._is_closing_over():
            return
        properties = None
        if self._login.version == 5 and self._login.session_expiry and leave is not Leave.NOW_AND_KEEP:
            properties = new_properties(PacketTypes.DISCONNECT)
            properties.SessionExpiryInterval = 0
        # Before Paho's callback, which would treat it as a lost connection.
        self._end = _Left()
        self._paho.disconnect(properties=properties)
