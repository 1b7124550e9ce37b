"""Received messages of QoS 1 and 2 of one session, and the acknowledgements that are owed for them.

A message is owed its acknowledgement, PUBACK or PUBREC, until the application gives it. QoS 2, one packet identifier:

| state | PUBLISH | PUBREL | acknowledged by the application |
| --- | --- | --- | --- |
| free | delivered: owed | PUBCOMP | |
| owed | nothing | PUBCOMP | PUBREC: held |
| held | PUBREC again | PUBCOMP: free | |

PUBREC is not sent at receipt: the broker may forget a message whose PUBREC it has, and a client whose process ends has forgotten it too.
While the process lives, nothing of QoS 2 is delivered twice: a message that is owed or held is recognised on the next connection.
At QoS 1 the broker sends what was not acknowledged again on the next connection. It is delivered again, and an acknowledgement of the
earlier delivery has no effect.
"""

import enum
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


class Reception(enum.Enum):
    """What to do about a PUBLISH that is not to be delivered."""

    # Answer without a second delivery [MQTT-4.3.3-10].
    ACKNOWLEDGE_AGAIN = enum.auto()
    # The application has it, and has not acknowledged it yet.
    IGNORE = enum.auto()
    # The broker sent more than our Receive Maximum [MQTT-3.3.4-9].
    EXCEEDED = enum.auto()


@dataclass(eq=False, slots=True)
class Receipt:
    """What is owed for one delivery."""

    qos: int
    packet_id: int
    on_acknowledged: Callable[["Receipt"], None]
    is_acknowledged: bool = False
    # The broker sends the message again, on another connection: this delivery can be dropped if the application has not taken it.
    is_superseded: bool = False
    # The application acknowledges it at the end of a block, or not at all: asking for the next message does not.
    is_in_block: bool = False

    def acknowledge(self) -> None:
        """Only the first call has an effect."""
        if not self.is_acknowledged:
            self.is_acknowledged = True
            self.on_acknowledged(self)


class Inbound:
    """See the module. `maximum` is our Receive Maximum, None before 5.0."""

    def __init__(self, maximum: int | None, on_acknowledged: Callable[[Receipt], None]) -> None:
        self._maximum = maximum
        self._on_acknowledged = on_acknowledged
        # Unacknowledged deliveries in order, by QoS and then by packet identifier.
        self._owed: dict[int, OrderedDict[int, Receipt]] = {1: OrderedDict(), 2: OrderedDict()}
        # QoS 2: PUBREC was sent, PUBREL has not arrived.
        self._held: set[int] = set()
        # Of QoS 2 since an earlier connection, and not sent again on this one: Receive Maximum counts for each connection.
        self._earlier: set[int] = set()
        # Of QoS 1, unacknowledged on connections that have ended.
        self._interrupted: list[Receipt] = []

    @property
    def is_settled(self) -> bool:
        """Whether the application has acknowledged everything."""
        return not any(self._owed.values())

    def on_publish(self, qos: int, packet_id: int) -> Receipt | Reception:
        """A PUBLISH has arrived. A receipt: it is to be delivered."""
        is_held = qos == 2 and packet_id in self._held
        if is_held or packet_id in self._owed[qos]:
            self._earlier.discard(packet_id)
            return Reception.ACKNOWLEDGE_AGAIN if is_held else Reception.IGNORE
        unacknowledged = len(self._owed[1]) + len(self._owed[2]) + len(self._held) - len(self._earlier)
        if self._maximum is not None and unacknowledged >= self._maximum:
            return Reception.EXCEEDED
        receipt = Receipt(qos, packet_id, self._on_acknowledged)
        self._owed[qos][packet_id] = receipt
        return receipt

    def on_pubrel(self, packet_id: int) -> None:
        self._held.discard(packet_id)
        self._earlier.discard(packet_id)

    def due(self, qos: int) -> list[int]:
        """The packet identifiers to acknowledge now, in the order of their messages [MQTT-4.6.0-2] [MQTT-4.6.0-3]."""
        owed = self._owed[qos]
        due = []
        while owed and next(iter(owed.values())).is_acknowledged:
            packet_id, _ = owed.popitem(last=False)
            due.append(packet_id)
        if qos == 2:
            self._held.update(due)
        return due

    def on_closed(self) -> None:
        """The connection has ended."""
        self._interrupted += self._owed[1].values()
        self._owed[1].clear()
        self._earlier = self._held | self._owed[2].keys()

    def on_connected(self, *, session_present: bool) -> None:
        """A broker has accepted the session. If it does not have it, everything that it sends is new."""
        if session_present:
            for receipt in self._interrupted:
                receipt.is_superseded = True
        else:
            self._owed[2].clear()
            self._held.clear()
            self._earlier.clear()
        self._interrupted.clear()
