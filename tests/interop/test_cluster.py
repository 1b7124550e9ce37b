"""The cluster as its clients see it: many of them at once, nodes that join late, that die, and strangers."""

import signal

from nodes import Node, OneNode, ThreeNodes, wait_until
from wire import Kind, RawCases, RawClient, connect, publish, subscribe


class CrowdCases(RawCases):
    """Many clients at once, on one node and on several."""

    def test_three_hundred_clients_talk_at_once(self):
        """All connect, subscribe and publish without waiting for each other."""
        ports = (self.here, self.there, self.elsewhere)
        clients = [RawClient(ports[number % 3]) for number in range(300)]
        for number, client in enumerate(clients):
            self.addCleanup(client.close)
            filters = [(self.topic("all"), 1), (self.topic(f"own/{number}"), 1)]
            client.send(connect(self.client_id(f"{number}")), subscribe(1, *filters))
        for client in clients:
            self.assertEqual(client.expect(Kind.CONNACK).reason_code, 0)
            self.assertEqual(client.expect(Kind.SUBACK).codes, [1, 1])
        collector = self.subscriber((self.topic("collect/+"), 1), role="collector")
        publisher = self.publisher()
        for number in range(5):
            publisher.publish(self.topic("all"), f"{number}", qos=1)
        for client in clients:
            self.assertEqual([int(client.take_message().payload) for _ in range(5)], list(range(5)))
        for number, client in enumerate(clients):
            neighbour = self.topic(f"own/{(number + 1) % 300}")
            client.send(publish(self.topic(f"collect/{number}"), f"{number}", 1, 9), publish(neighbour, "hello", 1, 10))
        for client in clients:
            client.expect_answer(Kind.PUBACK, 9)
            if not any(one.kind == Kind.PUBACK for one in client.aside):
                client.expect_answer(Kind.PUBACK, 10)
            while (greeting := client.receive()).kind != Kind.PUBLISH:
                self.assertEqual(greeting.kind, Kind.PUBACK)
            self.assertEqual(greeting.payload, b"hello")
        collected = [int(collector.take_message().payload) for _ in range(300)]
        self.assertEqual(sorted(collected), list(range(300)))


class CrowdOnOneNode(CrowdCases, OneNode):
    pass


class CrowdAcrossNodes(CrowdCases, ThreeNodes):
    pass


class NodesComeAndGo(RawCases, ThreeNodes):
    """What clients notice of nodes that join, stop and die."""

    def join(self, *arguments):
        """One more node, which knows of the first; ended with the test."""
        node = Node("late", [self.here], arguments)
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        return node

    def test_a_node_that_joins_late_knows_retained_messages_and_subscriptions(self):
        """It tells its clients what was retained before it came, and finds those who want what they publish."""
        self.publisher().publish(self.topic("kept"), "kept", qos=1, retain=True)
        subscriber = self.subscriber((self.topic("live"), 1))
        late = self.join()
        self.assertTrue(late.wait_until_ready(4))
        newcomer = self.raw(late.port, "newcomer")
        newcomer.subscribe((self.topic("#"), 1))
        self.assertEqual(newcomer.take_message().payload, b"kept")
        newcomer.publish(self.topic("live"), "from the late one", qos=1)
        self.assertEqual(subscriber.take_message().payload, b"from the late one")
        self.assertEqual(newcomer.take_message().payload, b"from the late one")
        self.publisher("another").publish(self.topic("live"), "to the late one", qos=1)
        self.assertEqual(newcomer.take_message().payload, b"to the late one")

    def test_a_session_is_found_from_a_node_that_joined_later(self):
        """[MQTT-3.1.2-5]: the session and its queue move to the newcomer."""
        subscriber = self.keeper(self.here, "subscriber")
        subscriber.subscribe((self.topic(), 1))
        subscriber.disconnect()
        self.publisher().publish(self.topic(), "queued", qos=1)
        late = self.join()
        self.assertTrue(late.wait_until_ready(4))
        again = self.keeper(late.port, "subscriber")
        self.assertTrue(again.connack.session_present)
        self.assertEqual(again.take_message().payload, b"queued")

    def test_a_stranger_of_another_cluster_name_is_not_let_in(self):
        """Its clients and ours hear nothing of each other; both say so in their logs or not at all, but go on."""
        stranger = self.join("--cluster-name", "another")
        self.assertTrue(stranger.wait_until_ready(1))
        ours = self.subscriber((self.topic("#"), 1))
        theirs = self.raw(stranger.port, "theirs")
        theirs.subscribe((self.topic("#"), 1))
        theirs.publish(self.topic("x"), "theirs", qos=1)
        self.publisher().publish(self.topic("x"), "ours", qos=1)
        self.assertEqual(ours.take_message().payload, b"ours")
        self.assertEqual(theirs.take_message().payload, b"theirs")
        self.assertEqual([client.ping() for client in (ours, theirs)], [[], []])
        self.assertEqual(stranger.sees(), 1)
        self.assertEqual(self.cluster.nodes[0].sees(), 3)

    def test_a_node_that_dies_holds_nobody_up(self):
        """Messages between the others go on, QoS 1 included, though the dead node had a subscriber of them."""
        subscriber = self.subscriber((self.topic(), 1))
        lost = self.keeper(self.elsewhere, "lost")
        lost.subscribe((self.topic(), 1))
        publisher = self.publisher()
        publisher.publish(self.topic(), "before", qos=1)
        victim = self.cluster.nodes[2]
        self.expected_to_die.add(victim.name)
        victim.kill()
        for number in range(10):
            publisher.publish(self.topic(), f"{number}", qos=1)
        came = [subscriber.take_message().payload for _ in range(11)]
        self.assertEqual(came, [b"before"] + [b"%d" % number for number in range(10)])
        wait_until(lambda: self.cluster.nodes[0].sees() == 2, "the dead node to be missed")
        # A client of the dead node finds its session elsewhere, with what came before and what came since.
        moved = self.keeper(self.there, "lost")
        self.assertTrue(moved.connack.session_present)
        publisher.publish(self.topic(), "after", qos=1)
        came = [moved.take_message().payload for _ in range(12)]
        self.assertEqual(came, [b"before"] + [b"%d" % number for number in range(10)] + [b"after"])

    def test_a_node_that_stands_still_costs_only_its_own_clients(self):
        """Frozen, not dead: a message nobody there wants flows on between the others."""
        subscriber = self.subscriber((self.topic(), 1))
        frozen_subscriber = self.raw(self.elsewhere, "frozen")
        frozen_subscriber.subscribe((self.topic("frozen"), 1))
        publisher = self.publisher()
        frozen = self.cluster.nodes[2]
        frozen.process.send_signal(signal.SIGSTOP)
        try:
            for number in range(100):
                publisher.publish(self.topic(), f"{number}", qos=1)
                self.assertEqual(subscriber.take_message().payload, b"%d" % number)
        finally:
            frozen.process.send_signal(signal.SIGCONT)
        publisher.publish(self.topic("frozen"), "awake", qos=1)
        self.assertEqual(frozen_subscriber.take_message().payload, b"awake")
