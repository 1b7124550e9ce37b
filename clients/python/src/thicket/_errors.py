"""Errors.

ThicketError
├── ConnectError        no broker accepted the client
├── Refused             the broker refused a request: reason_code
├── OutcomeUnknown      a message of QoS 2 was in flight when the broker lost the session
└── ClosedError         the client has ended
    └── TakenOver       because another client uses its identifier

Wrong arguments are ValueError.
"""


class ThicketError(Exception):
    """Base of all errors except wrong arguments."""


class ConnectError(ThicketError):
    """None of the brokers accepted the first connection in time."""


class Refused(ThicketError):  # noqa: N818 - the specification's word
    """The broker refused a request. The client continues."""

    def __init__(self, reason_code: int, reason: str) -> None:
        super().__init__(f"refused by the broker: {reason} (0x{reason_code:02x})")
        self.reason_code = reason_code


class OutcomeUnknown(ThicketError):  # noqa: N818 - says what is known
    """The message may or may not have arrived, at most once. It is not sent again."""


class ClosedError(ThicketError):
    """The client has ended, or was never opened."""


class TakenOver(ClosedError):  # noqa: N818 - the specification's word
    """Another client uses the same client identifier. This one has ended."""
