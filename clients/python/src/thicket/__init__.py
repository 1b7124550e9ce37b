"""An MQTT client whose sessions are where its topics are."""

from ._client import Client
from ._errors import ClosedError, ConnectError, OutcomeUnknown, Refused, TakenOver, ThicketError
from ._message import Message

__all__ = ["Client", "ClosedError", "ConnectError", "Message", "OutcomeUnknown", "Refused", "TakenOver", "ThicketError"]
