"""Messages over HTTP: published, retained ones browsed, read and removed, and who may."""

import base64

from nodes import ThreeNodes, wait_until
from test_cluster_views import ask
from test_operating import Ctl
from test_page import EYE, ROOT, PageTest
from wire import Property, RawCases, RawClient


class MessagesOverHttp(Ctl, RawCases, ThreeNodes):
    arguments = ("--workers", "2")

    def port(self, node=0):
        return self.cluster.nodes[node].http_port

    def publish(self, node=0, expected=200, **body):
        status, answer = ask(self.port(node), "/v1/publish", "POST", body)
        self.assertEqual(status, expected, answer)
        return answer

    def retained(self, node, query):
        status, page = ask(self.port(node), f"/v1/retained?{query}")
        self.assertEqual(status, 200, page)
        return page

    def test_a_message_reaches_subscribers_on_all_nodes(self):
        topic = self.topic("news")
        clients = [self.raw(node.port, f"sub-{number}") for number, node in enumerate(self.cluster.nodes)]
        for client in clients:
            client.subscribe((topic, 2))
        properties = [["colour", "red"], ["colour", "blue"]]
        published = self.publish(
            1, topic=topic, payload="hello", qos=2, content_type="text/plain", user_properties=properties
        )
        self.assertEqual(published, {"topic": topic, "has_recipients": True})
        for client in clients:
            message = client.take_message()
            self.assertEqual((message.topic, message.payload, message.qos), (topic, b"hello", 2))
            self.assertEqual(message.values(Property.USER_PROPERTY), [tuple(pair) for pair in properties])
            self.assertEqual(message.value(Property.CONTENT_TYPE), "text/plain")

    def test_an_answer_to_qos_1_means_that_the_session_has_the_message(self):
        topic = self.topic("kept")
        keeper = self.keeper(self.cluster.nodes[2].port, "keeper")
        keeper.subscribe((topic, 1))
        keeper.close()
        for number in range(20):
            self.publish(0, topic=topic, payload=str(number), qos=1)
        (entry,) = ask(self.port(), f"/v1/clients?client_id={self.client_id('keeper')}")[1]["clients"]
        self.assertEqual(entry["queued_messages"], 20)

    def test_nobody_subscribes(self):
        for qos in (0, 1, 2):
            answer = self.publish(topic=self.topic("nobody"), payload="x", qos=qos)
            self.assertFalse(answer["has_recipients"])

    def test_bytes_that_are_no_text_are_base64(self):
        topic, payload = self.topic("bytes"), bytes(range(256))
        client = self.raw(self.cluster.nodes[1].port, "bytes")
        client.subscribe((topic, 0))
        encoded = base64.b64encode(payload).decode()
        self.publish(topic=topic, payload_base64=encoded, retain=True)
        self.assertEqual(client.take_message().payload, payload)
        status, message = ask(self.port(), f"/v1/retained/message?topic={topic}")
        self.assertEqual((status, message["payload_base64"]), (200, encoded))
        # What is read can be published.
        status, answer = ask(self.port(), "/v1/publish", "POST", message)
        self.assertEqual(status, 200, answer)

    def test_retained_messages_are_browsed_at_any_node_in_pages(self):
        topics = [self.topic(f"page/{number:02}") for number in range(15)]
        client = self.raw(self.cluster.nodes[1].port, "retains")
        for topic in topics:
            client.publish(topic, b"value of " + topic.encode(), qos=1, retain=True)
        client.publish(self.topic("other"), b"x", qos=1, retain=True)
        for node in range(3):
            found, after = [], ""
            while True:
                page = self.retained(node, f"filter={self.topic('page/%23')}&limit=4{after}")
                self.assertLessEqual(len(page["messages"]), 4)
                found += page["messages"]
                if page["next"] is None:
                    break
                after = f"&after={page['next']}"
            self.assertEqual([it["topic"] for it in found], topics)
            self.assertEqual({it["message"] for it in found}, {None})
            self.assertEqual(found[0]["payload_bytes"], len("value of " + topics[0]))
        page = self.retained(0, f"filter={topics[3]}&payload=true")
        self.assertEqual(page["messages"][0]["message"]["payload"], "value of " + topics[3])
        table = self.ctl("retained", self.topic("page/+"))
        self.assertTrue(all(topic in table for topic in topics))
        self.assertNotIn(self.topic("other"), table)

    def test_a_retained_message_is_removed_at_all_nodes(self):
        topic = self.topic("gone")
        self.ctl("publish", topic, "soon gone", "--retain", "--property", "a=b")
        for node in range(3):
            self.assertEqual(self.ctl("retained", "--read", topic, node=node), "soon gone")
        subscriber = self.raw(self.cluster.nodes[0].port, "sees")
        subscriber.subscribe((topic, 1))
        self.assertEqual(subscriber.take_message().payload, b"soon gone")
        self.assertIn("removed", self.ctl("retained", "--delete", topic, node=2))
        self.assertEqual(subscriber.take_message().payload, b"")
        for node in range(3):
            path = f"/v1/retained/message?topic={topic}"
            wait_until(lambda node=node: ask(self.port(node), path)[0] == 404, "the message to be gone")
        status, answer = ask(self.port(), f"/v1/retained/message?topic={topic}", "DELETE")
        self.assertEqual(status, 404)
        self.assertIn(topic, answer["error"])
        entries = ask(self.port(2), "/v1/audit")[1]
        removed = [it for it in entries if it["method"] == "DELETE" and it["path"] == "/v1/retained/message"]
        self.assertEqual((removed[-1]["subject"], removed[-1]["status"]), (topic, 200))

    def test_a_retained_message_expires(self):
        topic = self.topic("expires")
        self.publish(topic=topic, payload="x", retain=True, expiry_left_ms=600_000)
        (entry,) = self.retained(1, f"filter={topic}")["messages"]
        self.assertTrue(0 < entry["expiry_left_ms"] <= 600_000)

    def test_what_cannot_be_published_is_refused_in_words(self):
        for field, body in (
            ("topic", {"topic": "a/+"}),
            ("topic", {"topic": ""}),
            ("topic", {"topic": "$thicket/x"}),
            ("qos", {"topic": "a", "qos": 3}),
            ("payload_base64", {"topic": "a", "payload_base64": "?"}),
            ("payload", {"topic": "a", "payload": "x", "payload_base64": "eA=="}),
        ):
            answer = self.publish(expected=422, **body)
            self.assertEqual(answer["field"], field, body)
            self.assertIn(field, answer["error"])
        self.assertIn("colour", self.publish(expected=422, topic="a", colour="red")["error"])
        self.assertIn("topic", self.publish(expected=422, payload="x")["error"])
        for query in ("filter=a/%23/b", "limit=0", "colour=red", "payload=perhaps"):
            self.assertEqual(ask(self.port(), f"/v1/retained?{query}")[0], 400, query)
        self.assertEqual(ask(self.port(), "/v1/retained/message?topic=a/%2B")[0], 400)


class MessagesOverHttpWithUsers(PageTest):
    def test_payloads_and_changes_take_an_admin(self):
        port = self.nodes[0].http_port
        body = {"topic": "secret/1", "payload": "x", "retain": True}
        self.assertEqual(ask(port, "/v1/publish", "POST", body, EYE)[0], 403)
        self.assertEqual(ask(port, "/v1/publish", "POST", body, ROOT)[0], 200)
        status, page = ask(port, "/v1/retained?filter=secret/%23", user=EYE)
        self.assertEqual((status, [it["topic"] for it in page["messages"]]), (200, ["secret/1"]))
        for path in ("/v1/retained?payload=true", "/v1/retained/message?topic=secret/1"):
            self.assertEqual(ask(port, path, user=EYE)[0], 403, path)
            self.assertEqual(ask(port, path, user=ROOT)[0], 200, path)
        self.assertEqual(ask(port, "/v1/retained/message?topic=secret/1", "DELETE", user=EYE)[0], 403)
        self.assertEqual(ask(port, "/v1/retained/message?topic=secret/1", "DELETE", user=ROOT)[0], 200)
        with RawClient(self.nodes[0].port) as client:
            client.connect("later")
            client.subscribe(("secret/#", 0))
            self.assertEqual(ask(port, "/v1/publish", "POST", {"topic": "secret/2", "payload": "new"}, ROOT)[0], 200)
            self.assertEqual(client.take_message().topic, "secret/2")
