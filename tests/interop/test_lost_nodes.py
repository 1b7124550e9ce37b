"""Wills of clients whose node is killed or stopped: they go out once, be the sessions persistent or not."""

import unittest

from nodes import ThreeNodes, wait_until
from wire import Property, RawCases, Will


class LostNodes(RawCases, ThreeNodes):
    """The third node is lost; the watcher is at the first one, the second one is where clients come back."""

    def setUp(self):
        super().setUp()
        self.watcher = self.raw(self.here, "watcher")
        self.watcher.subscribe((self.topic("#"), 1))
        self.victim = self.cluster.nodes[2]
        self.expected_to_die.add(self.victim.name)

    def mortal(self, role, port=None, qos=1, retain=False, delay=0, **options):
        """A client with a will to a topic named as itself."""
        props = ((Property.WILL_DELAY_INTERVAL, delay),) if delay else ()
        will = Will(self.topic(role), payload=b"offline", qos=qos, retain=retain, properties=props)
        return self.raw(port or self.elsewhere, role, will=will, **options)

    def crowd(self):
        """Clients of the node that is to be lost, whose wills are to come; and some whose wills are not."""
        for version in (3, 4, 5):
            for qos in (0, 1, 2):
                self.mortal(f"{version}-{qos}", version=version, qos=qos)
        self.mortal("delayed", delay=600)
        self.mortal("persistent", props=((Property.SESSION_EXPIRY_INTERVAL, 600),))
        self.mortal("retained", retain=True)
        expected = {f"{version}-{qos}" for version in (3, 4, 5) for qos in (0, 1, 2)}
        self.mortal("polite").disconnect()
        self.mortal("moved")
        self.mortal("moved", port=self.there)
        self.assertEqual(self.watcher.take_message().topic, self.topic("moved"))
        return {self.topic(role) for role in expected | {"delayed", "persistent", "retained"}}

    def expect_once(self, expected):
        came = [self.watcher.take_message().topic for _ in expected]
        self.assertEqual((set(came), len(came)), (expected, len(expected)))
        wait_until(lambda: self.cluster.nodes[0].sees() == 2, "the node to be missed")
        self.publisher().publish(self.topic("fence"), "fence", qos=1)
        self.assertEqual(self.messages_until(self.watcher, b"fence"), [])
        for port in (self.here, self.there):
            late = self.raw(port, f"late-{port}")
            late.subscribe((self.topic("retained"), 1))
            self.assertEqual(late.take_message().payload, b"offline")

    def test_wills_go_out_once_when_a_node_is_killed(self):
        expected = self.crowd()
        self.victim.kill()
        self.expect_once(expected)

    def test_wills_go_out_once_when_a_node_is_stopped(self):
        expected = self.crowd()
        self.victim.stop()
        self.expect_once(expected)

    def test_a_device_that_is_back_at_once_is_online(self):
        """Its will must not come behind what it says when it is back, or it would count as offline for good."""
        names = [f"device-{number}" for number in range(20)]
        for name in names:
            self.mortal(name, retain=True)
        self.victim.kill()
        for name in names:
            back = self.mortal(name, port=self.there, retain=True)
            back.publish(self.topic(name), "online", qos=1, retain=True)
        came = {name: [] for name in names}
        for _ in range(2 * len(names)):
            one = self.watcher.take_message()
            came[one.topic.rsplit("/", 1)[1]].append(one.payload)
        self.assertEqual(came, dict.fromkeys(names, [b"offline", b"online"]))
        for port in (self.here, self.there):
            late = self.raw(port, f"late-{port}")
            late.subscribe((self.topic("+"), 1))
            self.assertEqual([late.take_message().payload for _ in names], [b"online"] * len(names))


if __name__ == "__main__":
    unittest.main()
