"""mosquitto_pub, mosquitto_sub and mosquitto_rr, in 3.1, 3.1.1 and 5.0."""

import queue
import threading

import mosquitto_clients
from mosquitto_clients import Subscriber, publish, run
from nodes import OneNode, ThreeNodes

VERSIONS = ("mqttv31", "mqttv311", "mqttv5")


class MosquittoCases:
    """Cases for every version, on one node and on several."""

    version = "mqttv311"

    def subscriber(self, *arguments, port=None, **options):
        """A subscriber of this version that is killed when the test ends."""
        subscriber = Subscriber(port or self.here, "-V", self.version, *arguments, **options)
        self.addCleanup(subscriber.kill)
        return subscriber

    def publish(self, rest, message, *arguments):
        publish(self.there, self.topic(rest), message, "-V", self.version, *arguments)

    def test_messages_of_every_qos_arrive(self):
        """[MQTT-3.8.4-8]"""
        for granted in (0, 1, 2):
            with self.subscriber("-t", self.topic("+/temp"), "-q", granted) as subscriber:
                for published in (0, 1, 2):
                    self.publish("1/temp", f"{published}", "-q", published)
                    qos = f"{min(granted, published)}"
                    self.assertEqual(subscriber.take(), (self.topic("1/temp"), qos, "0", f"{published}"))

    def test_versions_talk_to_each_other(self):
        """Whatever the publisher speaks."""
        subscriber = self.subscriber("-t", self.topic("#"), "-q", 2)
        for version in VERSIONS:
            publish(self.there, self.topic(version), version, "-V", version, "-q", 2)
            self.assertEqual(subscriber.take(), (self.topic(version), "2", "0", version))

    def test_a_retained_message_waits_for_subscribers_until_it_is_cleared(self):
        """[MQTT-3.3.1-5] [MQTT-3.3.1-6]"""
        watcher = self.subscriber("-t", self.topic(), "-q", 1)
        self.publish("topic", "kept", "-q", 1, "-r")
        self.assertEqual(watcher.take()[2:], ("0", "kept"))
        for _ in range(2):
            with self.subscriber("-t", self.topic(), "-q", 1) as subscriber:
                self.assertEqual(subscriber.take(), (self.topic(), "1", "1", "kept"))
        self.publish("topic", "", "-r", "-q", 1)
        self.assertEqual(watcher.take()[3], "")
        later = self.subscriber("-t", self.topic())
        self.publish("topic", "end")
        self.assertEqual(later.take()[3], "end")

    def test_a_killed_clients_will_is_sent(self):
        """[MQTT-3.1.2-8] [MQTT-3.1.2-15]"""
        watcher = self.subscriber("-t", self.topic("will"), "-q", 2)
        will = ("--will-topic", self.topic("will"), "--will-payload", "gone", "--will-qos", 2, "--will-retain")
        mortal = self.subscriber("-t", self.topic("none"), *will, port=self.there)
        mortal.kill()
        self.assertEqual(watcher.take(), (self.topic("will"), "2", "0", "gone"))
        later = self.subscriber("-t", self.topic("will"), "-q", 2)
        self.assertEqual(later.take(), (self.topic("will"), "2", "1", "gone"))

    def test_a_client_that_leaves_politely_sends_no_will(self):
        """[MQTT-3.1.2-10]"""
        watcher = self.subscriber("-t", self.topic("#"))
        will = ("--will-topic", self.topic("will"), "--will-payload", "gone")
        leaver = self.subscriber("-t", self.topic("once"), "-C", 1, *will, port=self.there)
        self.publish("once", "now go")
        leaver.wait_for_end()
        self.publish("end", "end")
        self.assertEqual([watcher.take()[3] for _ in range(2)], ["now go", "end"])

    def test_a_persistent_session_gets_what_came_while_it_was_away(self):
        """[MQTT-3.1.2-5] [MQTT-4.5.0-1]"""
        session = ("-i", self.client_id("s"), "-c", "-q", 2, "-t", self.topic("+"))
        self.subscriber(*session).kill()
        for number in range(5):
            self.publish("x", f"{number}", "-q", 2)
        back = self.subscriber(*session, port=self.elsewhere)
        self.assertEqual([back.take()[3] for _ in range(5)], ["0", "1", "2", "3", "4"])

    def test_members_of_a_group_share_the_messages(self):
        """4.8.2: each message comes to one of them."""
        lines = queue.Queue()
        for port in (self.here, self.there, self.elsewhere):
            group = ("-q", 1, "-t", f"$share/{self.unique}/{self.topic('#')}")
            member = self.subscriber(*group, port=port, lines=lines)
        numbers = "".join(f"{number}\n" for number in range(30))
        topic = ("-t", self.topic(), "-q", 1)
        run("mosquitto_pub", "-p", self.there, "-V", self.version, "-l", *topic, text=numbers)
        # All members write to one queue, so that any of them will do.
        self.assertEqual(sorted(int(member.take()[3]) for _ in range(30)), list(range(30)))

    def test_several_filters_and_an_unsubscribe_in_one_command(self):
        """[MQTT-3.8.4-5] [MQTT-3.10.4-4]"""
        session = ("-i", self.client_id("s"), "-c", "-q", 1)
        self.subscriber(*session, "-t", self.topic("a"), "-t", self.topic("b")).kill()
        again = self.subscriber(*session, "-t", self.topic("c"), "-U", self.topic("a"))
        again.wait_for("Client")
        for name in ("a", "b", "c"):
            self.publish(name, name, "-q", 1)
        self.assertEqual([again.take()[3] for _ in range(2)], ["b", "c"])


class Mosquitto5Cases(MosquittoCases):
    """What 5.0 adds."""

    version = "mqttv5"

    def test_properties_are_passed_on(self):
        """[MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-20]: as mosquitto_sub prints them."""
        line = mosquitto_clients.MARK + "%C|%R|%D|%P|%S|%F|%p"
        identifier = ("-D", "subscribe", "subscription-identifier", 42)
        subscriber = self.subscriber("-t", self.topic(), *identifier, line_format=line)
        pairs = {"content-type": "text/plain", "response-topic": "answers", "correlation-data": "7"}
        properties = [part for key, value in pairs.items() for part in ("-D", "publish", key, value)]
        properties += ["-D", "publish", "user-property", "b", "1", "-D", "publish", "user-property", "a", "2"]
        properties += ["-D", "publish", "payload-format-indicator", 1]
        self.publish("topic", "x", *properties)
        self.assertEqual(subscriber.wait_for(mosquitto_clients.MARK), "text/plain|answers|7|b:1 a:2|42|1|x")

    def test_an_expired_session_has_no_messages(self):
        """[MQTT-3.1.2-23]: -x 0 ends the session with the connection."""
        session = ("-i", self.client_id("s"), "-c", "-q", 1, "-t", self.topic())
        self.subscriber(*session, "-x", 0).kill()
        self.publish("topic", "unwanted", "-q", 1)
        back = self.subscriber(*session, "-x", 3600)
        self.publish("topic", "wanted", "-q", 1)
        self.assertEqual(back.take()[3], "wanted")

    def test_a_request_of_mosquitto_rr_is_answered(self):
        """4.10: the responder is a mosquitto_sub and a mosquitto_pub in a row."""
        line = mosquitto_clients.MARK + "%R|%p"
        responder = self.subscriber("-t", self.topic("requests"), line_format=line)

        def respond():
            response_topic, question = responder.wait_for(mosquitto_clients.MARK).split("|")
            publish(self.here, response_topic, f"answer to {question}", "-V", "mqttv5")

        thread = threading.Thread(target=respond)
        thread.start()
        request = ("-t", self.topic("requests"), "-e", self.topic("answers"), "-m", "question")
        answer = run("mosquitto_rr", "-V", "mqttv5", "-p", self.there, "-W", 20, *request)
        thread.join()
        self.assertEqual(answer, "answer to question\n")

    def test_a_topic_alias_of_mosquitto_pub_is_resolved(self):
        """[MQTT-3.3.2-12]"""
        subscriber = self.subscriber("-t", self.topic())
        self.publish("topic", "aliased", "-D", "publish", "topic-alias", 3, "-q", 1)
        self.assertEqual(subscriber.take()[0], self.topic())


class Mosquitto31OnOneNode(MosquittoCases, OneNode):
    version = "mqttv31"


class Mosquitto311OnOneNode(MosquittoCases, OneNode):
    pass


class Mosquitto311AcrossNodes(MosquittoCases, ThreeNodes):
    pass


class Mosquitto5OnOneNode(Mosquitto5Cases, OneNode):
    pass


class Mosquitto5AcrossNodes(Mosquitto5Cases, ThreeNodes):
    pass
