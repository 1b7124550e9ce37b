"""Paho, with corrections. Its private parts are used only here; tests fail if they change."""

from collections.abc import Callable

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode


class PahoClient(paho.Client):
    """A client of Paho that sends a PINGREQ on request, and reports the answer."""

    on_pong: Callable[[], None] = staticmethod(lambda: None)

    def ping(self) -> None:
        self._send_pingreq()

    def _handle_pingresp(self) -> MQTTErrorCode:
        result = super()._handle_pingresp()
        self.on_pong()
        return result

    def _handle_disconnect(self) -> None:
        """Paho does not read the reason of a DISCONNECT that has no properties after it."""
        if 0 < self._in_packet["remaining_length"] < 3:
            self._in_packet["remaining_length"] = 3
        super()._handle_disconnect()

    def keep_pubrels(self) -> None:
        """At the second attempt to connect, Paho forgets that a message was received (PUBREC), and would send it as a new one."""
        for message in self._out_messages.values():
            if message.state == paho.mqtt_ms_resend_pubrel:
                message.state = paho.mqtt_ms_wait_for_pubcomp
