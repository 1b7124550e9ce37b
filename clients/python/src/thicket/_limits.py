"""The broker's limits from its CONNACK. It closes the connection of a client that exceeds them, at every retry."""

from dataclasses import dataclass

from paho.mqtt.properties import Properties

from ._errors import Refused
from ._message import Message

PACKET_TOO_LARGE, RETAIN_NOT_SUPPORTED, QOS_NOT_SUPPORTED = 0x95, 0x9A, 0x9B


@dataclass(frozen=True)
class Limits:
    """See the module. In 3.1.1 a broker states no limits."""

    qos: int = 2
    retain: bool = True
    packet_size: int | None = None

    @classmethod
    def of(cls, connack: Properties | None) -> "Limits":
        return cls(
            getattr(connack, "MaximumQoS", 2),
            bool(getattr(connack, "RetainAvailable", True)),
            getattr(connack, "MaximumPacketSize", None),
        )

    def refusal(self, message: Message, properties: Properties | None) -> Refused | None:
        """Why a message cannot be sent; None if it can."""
        if message.qos > self.qos:
            return Refused(QOS_NOT_SUPPORTED, f"QoS {message.qos}, the broker allows at most {self.qos}")
        if message.retain and not self.retain:
            return Refused(RETAIN_NOT_SUPPORTED, "the broker retains no messages")
        if self.packet_size is not None and (size := publish_size(message, properties)) > self.packet_size:
            return Refused(PACKET_TOO_LARGE, f"a packet of {size} bytes, the broker allows at most {self.packet_size}")
        return None


def publish_size(message: Message, properties: Properties | None) -> int:
    """Bytes of the PUBLISH (5.0)."""
    packed = 1 if properties is None else len(properties.pack())  # type: ignore[no-untyped-call]
    remaining = 2 + len(message.topic.encode()) + (2 if message.qos else 0) + packed + len(message.payload)
    length_bytes = 1 + (remaining >= 1 << 7) + (remaining >= 1 << 14) + (remaining >= 1 << 21)
    return 1 + length_bytes + remaining
