"""Paho, with corrections. Its private parts are used only here; tests fail if they change."""

import struct
from collections.abc import Callable

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode


class PahoClient(paho.Client):
    """A client of Paho that sends a PINGREQ on request, reports the answer, and acknowledges no message by itself.

    Paho keeps messages of QoS 2 between PUBLISH and PUBREL in memory, after their PUBREC. Here they are delivered by PUBLISH, and
    PUBREC is sent by `acknowledge`.
    """

    on_pong: Callable[[], None] = staticmethod(lambda: None)
    on_pubrel: Callable[[int], None] = staticmethod(lambda _: None)

    def ping(self) -> None:
        self._send_pingreq()

    def acknowledge(self, qos: int, packet_id: int) -> None:
        """Sends PUBACK or PUBREC."""
        if qos == 1:
            self._send_puback(packet_id)
        else:
            super()._send_pubrec(packet_id)

    def _handle_pingresp(self) -> MQTTErrorCode:
        result = super()._handle_pingresp()
        self.on_pong()
        return result

    def _handle_disconnect(self) -> None:
        """Paho does not read the reason of a DISCONNECT that has no properties after it."""
        if 0 < self._in_packet["remaining_length"] < 3:
            self._in_packet["remaining_length"] = 3
        super()._handle_disconnect()

    def _send_pubrec(self, mid: int) -> MQTTErrorCode:
        """Paho would send it at receipt."""
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_publish(self) -> MQTTErrorCode:
        result = super()._handle_publish()
        # A message of QoS 2, which Paho would deliver by PUBREL.
        while self._in_messages:
            _, message = self._in_messages.popitem()
            self._handle_on_message(message)
        return result

    def _handle_pubrel(self) -> MQTTErrorCode:
        result = super()._handle_pubrel()
        if result != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return result
        (packet_id,) = struct.unpack("!H", self._in_packet["packet"][:2])
        self.on_pubrel(packet_id)
        return self._send_pubcomp(packet_id)

    def keep_pubrels(self) -> None:
        """At the second attempt to connect, Paho forgets that a message was received (PUBREC), and would send it as a new one."""
        for message in self._out_messages.values():
            if message.state == paho.mqtt_ms_resend_pubrel:
                message.state = paho.mqtt_ms_wait_for_pubcomp
