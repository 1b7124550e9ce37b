"""An MQTT client whose sessions are where its topics are."""

from ._blocking import BlockingClient
from ._client import Client
from ._errors import ClosedError, ConnectError, OutcomeUnknown, Refused, TakenOver, ThicketError
from ._message import Message
from ._subscription import Qos, RetainHandling, SubscriptionOptions

__all__ = [
    "BlockingClient", "Client", "ClosedError", "ConnectError", "Message", "OutcomeUnknown", "Qos", "Refused", "RetainHandling",
    "SubscriptionOptions", "TakenOver", "ThicketError",
]  # fmt: skip
