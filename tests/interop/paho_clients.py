"""Paho for Python, driven without threads: a test turns the client's loop until what it waits for has happened."""

import socket
import time

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from nodes import PATIENCE_S

V31 = paho.MQTTv31
V311 = paho.MQTTv311
V5 = paho.MQTTv5


def properties(kind, **values):
    """Properties for a packet type (`PacketTypes`); names as Paho writes them, user properties as a list of pairs."""
    made = Properties(kind)
    for name, value in values.items():
        setattr(made, name, value)
    return made


class PahoClient:
    """A connected client and what came to it."""

    def __init__(self, port, client_id, protocol=V5, persistent=False, will=None, **connect_properties):
        self.messages, self.granted, self.unsubscribed, self.published = [], {}, {}, {}
        self.connack = self.disconnected = None
        options = {} if protocol == V5 else {"clean_session": not persistent}
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=protocol, **options)
        self.client.on_connect = self.on_connect
        self.client.on_disconnect = self.on_disconnect
        self.client.on_message = lambda _client, _data, message: self.messages.append(message)
        self.client.on_subscribe = lambda _client, _data, mid, codes, _props: self.granted.update({mid: codes})
        self.client.on_unsubscribe = lambda _client, _data, mid, codes, _props: self.unsubscribed.update({mid: codes})
        self.client.on_publish = lambda _client, _data, mid, code, _props: self.published.update({mid: code})
        if will:
            self.client.will_set(**will)
        if protocol == V5:
            if persistent:
                connect_properties.setdefault("SessionExpiryInterval", 3600)
            made = properties(PacketTypes.CONNECT, **connect_properties)
            self.client.connect("127.0.0.1", port, clean_start=not persistent, properties=made)
        else:
            self.client.connect("127.0.0.1", port)
        self.until(lambda: self.connack is not None or self.disconnected is not None, "the CONNACK")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.vanish()

    def on_connect(self, _client, _data, flags, reason_code, props):
        self.connack = reason_code
        self.session_present = flags.session_present
        self.connack_properties = props

    def on_disconnect(self, _client, _data, _flags, reason_code, _props):
        self.disconnected = reason_code

    def until(self, condition, what):
        """Turns the loop until a condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited {PATIENCE_S} s in vain for {what}; got {self.messages}"
            assert self.client.loop(0.2) == paho.MQTT_ERR_SUCCESS or condition(), f"{what}: {self.disconnected}"

    def subscribe(self, *args, **options):
        """SUBSCRIBE, and the codes of its SUBACK as numbers."""
        result, mid = self.client.subscribe(*args, **options)
        assert result == paho.MQTT_ERR_SUCCESS
        self.until(lambda: mid in self.granted, "the SUBACK")
        return [code.value for code in self.granted[mid]]

    def unsubscribe(self, topics):
        """UNSUBSCRIBE, and the codes of its UNSUBACK as numbers."""
        result, mid = self.client.unsubscribe(topics)
        assert result == paho.MQTT_ERR_SUCCESS
        self.until(lambda: mid in self.unsubscribed, "the UNSUBACK")
        return [code.value for code in self.unsubscribed[mid]]

    def publish(self, topic, payload=b"", qos=0, retain=False, **values):
        """PUBLISH with these properties, to the end of its flow; the reason code as a number."""
        made = properties(PacketTypes.PUBLISH, **values) if values else None
        mid = self.client.publish(topic, payload, qos, retain, properties=made).mid
        self.until(lambda: mid in self.published, f"the end of the flow of QoS {qos}")
        return self.published[mid].value

    def take(self):
        """The next message."""
        self.until(lambda: self.messages, "a message")
        return self.messages.pop(0)

    def take_until(self, payload):
        """All messages before the one with this payload."""
        came = []
        while (one := self.take()).payload != payload:
            came.append(one)
        return came

    def until_disconnected(self):
        """Waits for the end of the connection; the reason code as Paho tells it."""
        self.until(lambda: self.disconnected is not None, "the end of the connection")
        return self.disconnected

    def disconnect(self, **values):
        """DISCONNECT, and waits until the socket is closed."""
        made = properties(PacketTypes.DISCONNECT, **values) if values else None
        self.client.disconnect(properties=made)
        self.until_disconnected()

    def vanish(self):
        """Breaks the connection without a DISCONNECT."""
        if (open_socket := self.client.socket()) is not None:
            open_socket.shutdown(socket.SHUT_RDWR) if open_socket.fileno() >= 0 else None
            self.client.loop(0.01)
