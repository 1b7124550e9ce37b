"""A message, sent or received."""

from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from ._inbound import Receipt
from ._subscription import Qos, check_qos
from ._topics import LONGEST, check_text, check_topic

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage

# Of the 268,435,455 bytes that a packet may have, some are reserved for topic and properties.
LONGEST_PAYLOAD = 268_000_000
# A user property that identifies a message when it arrives over two sessions. Our publishers add it at QoS 2.
MESSAGE_ID = "thicket-id"


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was received, or that will be published.

    `with message` and `async with message` acknowledge a received message at the end of the block, unless it raises an exception.
    """

    topic: str
    payload: bytes
    qos: Qos | int = 0
    retain: bool = False
    # Seconds (5.0).
    expiry: int | None = None
    is_text: bool = False
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: tuple[tuple[str, str], ...] = field(default=())
    # Of a received message: the identifiers of the subscriptions that it matches, of those that have one.
    subscription_identifiers: tuple[int, ...] = ()
    _receipt: Receipt | None = field(default=None, repr=False, compare=False, kw_only=True)

    @property
    def text(self) -> str:
        """The payload as text; UnicodeDecodeError if it is not text."""
        return self.payload.decode()

    def acknowledge(self) -> None:
        """Acknowledges a received message of QoS 1 or 2 once. Any thread may call it.

        Acknowledgements are sent in the order in which the messages arrived in their session: one that is missing holds back those
        after it. On a connection that has ended it has no effect at QoS 1: the message comes again.
        """
        if self._receipt is not None:
            self._receipt.acknowledge()

    def __enter__(self) -> Self:
        if self._receipt is not None:
            self._receipt.is_in_block = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.acknowledge()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.__exit__(kind, error, trace)


def check_message(message: Message) -> None:
    """ValueError that names the field if a message cannot be sent."""
    check_topic(message.topic)
    check_qos(message.qos)
    if message.subscription_identifiers:
        raise ValueError("subscription_identifiers: expected none, they come from the broker")
    if not isinstance(message.payload, bytes):
        raise ValueError(f"payload: {type(message.payload).__name__}: expected bytes")
    if len(message.payload) > LONGEST_PAYLOAD:
        raise ValueError(f"payload: {len(message.payload)} bytes: expected at most {LONGEST_PAYLOAD}")
    if message.expiry is not None and not (isinstance(message.expiry, int) and 0 <= message.expiry < 1 << 32):
        raise ValueError(f"expiry: {message.expiry}: expected whole seconds, 0 to {(1 << 32) - 1}")
    if message.response_topic is not None:
        check_topic(message.response_topic)
    if message.correlation_data is not None and not isinstance(message.correlation_data, bytes):
        raise ValueError(f"correlation_data: {type(message.correlation_data).__name__}: expected bytes")
    if message.correlation_data is not None and len(message.correlation_data) > LONGEST:
        raise ValueError(f"correlation_data: {len(message.correlation_data)} bytes: expected at most {LONGEST}")
    check_text(message.content_type or "", "content_type")
    for pair in message.user_properties:
        for value in pair:
            check_text(value, "user_properties")


def to_bytes(payload: object) -> bytes:
    # A number would be taken for a length.
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise ValueError(f"payload: {type(payload).__name__}: expected bytes or text")
    return bytes(payload)


def received(message: "MQTTMessage", receipt: Receipt | None) -> tuple[Message, str | None]:
    """The received message, and the identity that its publisher gave it."""
    properties = message.properties
    user = list(getattr(properties, "UserProperty", ()) if properties else ())
    identity = next((value for name, value in user if name == MESSAGE_ID), None)

    def of(name: str) -> object:
        return getattr(properties, name, None) if properties else None

    identifiers = of("SubscriptionIdentifier")
    expiry, content_type, response_topic, correlation = (
        of(name) for name in ("MessageExpiryInterval", "ContentType", "ResponseTopic", "CorrelationData")
    )
    return (
        Message(
            topic=message.topic,
            payload=bytes(message.payload),
            qos=Qos(message.qos),
            retain=message.retain,
            expiry=expiry if isinstance(expiry, int) else None,
            is_text=of("PayloadFormatIndicator") == 1,
            content_type=content_type if isinstance(content_type, str) else None,
            response_topic=response_topic if isinstance(response_topic, str) else None,
            correlation_data=correlation if isinstance(correlation, bytes) else None,
            user_properties=tuple((name, value) for name, value in user if name != MESSAGE_ID),
            subscription_identifiers=tuple(identifiers) if isinstance(identifiers, list) else (),
            _receipt=receipt,
        ),
        identity,
    )


def new_properties(kind: int) -> Properties:
    """The properties of a packet, empty."""
    return Properties(kind)  # type: ignore[no-untyped-call]


def to_properties(message: Message, identity: str | None) -> Properties | None:
    """The properties of the PUBLISH; None if there are none."""
    user = list(message.user_properties)
    if identity is not None:
        user.append((MESSAGE_ID, identity))
    values = {
        "MessageExpiryInterval": message.expiry,
        "PayloadFormatIndicator": 1 if message.is_text else None,
        "ContentType": message.content_type,
        "ResponseTopic": message.response_topic,
        "CorrelationData": message.correlation_data,
        "UserProperty": user or None,
    }
    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        return None
    properties = new_properties(PacketTypes.PUBLISH)
    for name, value in given.items():
        setattr(properties, name, value)
    return properties
