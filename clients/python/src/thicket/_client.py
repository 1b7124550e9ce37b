"""The client: one object for all its sessions."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from ._director import Director
from ._message import Message, check_message, to_bytes
from ._options import Acknowledge, Placement, check
from ._placement import format_address
from ._subscription import Qos, RetainHandling, SubscriptionOptions, check_subscription


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
    `subscribe`: filters to subscribe to from the beginning, with the QoS or the SubscriptionOptions of each.
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
        placement: Placement = "mqtt",
        max_sessions: int = 4,
        publish: Iterable[str] = (),
        subscribe: Mapping[str, Qos | int | SubscriptionOptions] | None = None,
        rates: Mapping[str, float] | None = None,
        acknowledge: Acknowledge = "next",
        receive_queue: int = 1024,
        send_queue: int = 256,
        dial_timeout: float = 3.0,
        connect_timeout: float = 20.0,
        first_pause: float = 0.1,
        longest_pause: float = 10.0,
        quiet: float = 0.5,
    ) -> None:
        settings = check(
            servers, client_id=client_id, version=version, user_name=user_name, password=password, tls=tls, will=will,
            keep_alive=keep_alive, session_expiry=session_expiry, resume=resume, placement=placement,
            max_sessions=max_sessions, publish=publish, subscribe=subscribe, rates=rates, acknowledge=acknowledge,
            receive_queue=receive_queue, send_queue=send_queue, dial_timeout=dial_timeout, connect_timeout=connect_timeout,
            first_pause=first_pause, longest_pause=longest_pause, quiet=quiet,
        )  # fmt: skip
        self._version = version
        self._client_id = settings.login.client_id
        self._director = Director(settings)

    async def __aenter__(self) -> Self:
        await self._director.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Sends all messages that were handed over, ends the sessions (with `resume` leaves them at the broker), and disconnects."""
        await self._director.close()

    @property
    def client_id(self) -> str:
        """The client identifier, of the first session."""
        return self._client_id

    @property
    def sessions(self) -> dict[int, str]:
        """The sessions that are connected, by number from 1: the address of each."""
        return {number: format_address(address) for number, address in sorted(self._director.addresses.items())}

    @property
    def is_placed(self) -> bool:
        """Whether a control plane has answered."""
        return self._director.is_placed

    @property
    def last_problem(self) -> str:
        """The latest problem with a connection or the control plane, even if it is over."""
        return self._director.last_problem

    async def wait_for_sessions(self, sessions: Mapping[int, str]) -> None:
        """Waits until `sessions` are connected, each at its address, and no others."""
        while self.sessions != dict(sessions):
            await self._director.change()

    async def subscribe(
        self,
        topic_filter: str,
        qos: Qos | int = Qos.AT_MOST_ONCE,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: RetainHandling | int = RetainHandling.SEND_AT_SUBSCRIBE,
        identifier: int | None = None,
    ) -> Qos:
        """Subscribes; returns the QoS that the broker grants.

        A filter that is subscribed already with other options is subscribed again: the new options replace the old ones. With the same
        options nothing is sent. The options are those of SubscriptionOptions.
        """
        options = SubscriptionOptions(qos, no_local, retain_as_published, retain_handling, identifier)
        check_subscription(topic_filter, options, self._version)
        return Qos(await self._director.subscribe(topic_filter, options))

    async def unsubscribe(self, topic_filter: str) -> None:
        """Ends a subscription, on all sessions. Messages in flight still arrive."""
        await self._director.unsubscribe(topic_filter)

    async def publish(
        self,
        topic: str,
        payload: bytes | bytearray | memoryview | str = b"",
        *,
        qos: Qos | int = Qos.AT_MOST_ONCE,
        retain: bool = False,
        expiry: int | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        user_properties: Iterable[tuple[str, str]] = (),
    ) -> int:
        """Publishes, and waits for the acknowledgement of QoS 1 or 2. Without a connection it waits for the next one.

        Returns the reason code of the acknowledgement: 0, or 0x10 if no subscription matches and the broker reports that, which brokers
        do at QoS 1. Errors are `Refused`.
        """
        is_text = isinstance(payload, str)
        message = Message(
            topic=topic,
            payload=payload.encode() if isinstance(payload, str) else to_bytes(payload),
            qos=qos,
            retain=retain,
            expiry=expiry,
            is_text=is_text,
            content_type=content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
            user_properties=tuple(user_properties),
        )
        return await (await self.send(message))

    async def send(self, message: Message) -> "asyncio.Future[int]":
        """Hands a message over, in order; the future is done when it is acknowledged. Waits while the queue of its session is full."""
        check_message(message)
        return await self._director.send(message)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """The messages of all subscriptions, until the client is closed; TakenOver if another client uses its identifier.

        With `acknowledge="next"` each acknowledges the one before. That is for one task; several tasks acknowledge by themselves.
        """
        while (message := await self._director.next_message()) is not None:
            yield message
