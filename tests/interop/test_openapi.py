"""The document of the HTTP API against a running node: every operation answers what it says, and refuses what is not valid.

`Schema` checks as much of JSON Schema as the document uses; a word that it does not know fails the test.
"""

import http.client
import json
import unittest
import urllib.parse

from nodes import OneNode, free_port
from test_placement_listener import basic
from test_rights import Files, passwd
from wire import RawCases, publish

PROBLEM = "application/problem+json"
SAYS_NOTHING = {"description", "title", "default", "example", "format", "$schema", "deprecated"}


class Schema:
    """Says what is wrong with a value."""

    def __init__(self, document):
        self.named = document["components"]["schemas"]

    def problems(self, schema, value, at="body"):
        unknown = set(schema) - SAYS_NOTHING - {name.removeprefix("of_") for name in dir(self) if name.startswith("of_")} - {"$ref"}
        if unknown:
            return [f"{at}: the checker does not know {unknown}"]
        if "$ref" in schema:
            return self.problems(self.named[schema["$ref"].rsplit("/", 1)[1]], value, at)
        found = []
        for word, argument in schema.items():
            if word not in SAYS_NOTHING:
                found += getattr(self, f"of_{word}")(argument, value, at, schema)
        return found

    def of_type(self, kinds, value, at, _):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        held = {
            "null": value is None,
            "boolean": isinstance(value, bool),
            "integer": is_number and float(value).is_integer(),
            "number": is_number,
            "string": isinstance(value, str),
            "array": isinstance(value, list),
            "object": isinstance(value, dict),
        }
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return [] if any(held[kind] for kind in kinds) else [f"{at}: {value!r} is no {kinds}"]

    def of_properties(self, properties, value, at, _):
        if not isinstance(value, dict):
            return []
        return [p for name, schema in properties.items() if name in value for p in self.problems(schema, value[name], f"{at}.{name}")]

    def of_required(self, names, value, at, _):
        return [f"{at}: {name} is missing" for name in names if isinstance(value, dict) and name not in value]

    def of_additionalProperties(self, schema, value, at, whole):
        if not isinstance(value, dict):
            return []
        more = {name: it for name, it in value.items() if name not in whole.get("properties", {})}
        if isinstance(schema, bool):
            return [] if schema else [f"{at}: {name} is unknown" for name in more]
        return [p for name, it in more.items() for p in self.problems(schema, it, f"{at}.{name}")]

    def of_propertyNames(self, schema, value, at, _):
        return [p for name in value if isinstance(value, dict) for p in self.problems(schema, name, f"{at}: {name}")]

    def of_items(self, schema, value, at, whole):
        if not isinstance(value, list):
            return []
        rest = value[len(whole.get("prefixItems", [])) :]
        if schema is False:
            return [f"{at}: too many"] if rest else []
        return [p for index, it in enumerate(rest) for p in self.problems(schema, it, f"{at}[{index}]")]

    def of_prefixItems(self, schemas, value, at, _):
        return [p for schema, it in zip(schemas, value, strict=False) for p in self.problems(schema, it, at)]

    def of_enum(self, values, value, at, _):
        return [] if value in values else [f"{at}: {value!r} is none of {values}"]

    def of_minimum(self, least, value, at, _):
        return [f"{at}: {value} is less than {least}"] if isinstance(value, (int, float)) and value < least else []

    def of_maximum(self, most, value, at, _):
        return [f"{at}: {value} is more than {most}"] if isinstance(value, (int, float)) and value > most else []

    def of_minItems(self, least, value, at, _):
        return [f"{at}: too few"] if isinstance(value, list) and len(value) < least else []

    def of_maxItems(self, most, value, at, _):
        return [f"{at}: too many"] if isinstance(value, list) and len(value) > most else []

    def of_allOf(self, schemas, value, at, _):
        return [p for schema in schemas for p in self.problems(schema, value, at)]

    def of_oneOf(self, schemas, value, at, _):
        found = [self.problems(schema, value, at) for schema in schemas]
        return [] if sum(not it for it in found) == 1 else [f"{at}: not exactly one of {found}"]

    def of_anyOf(self, schemas, value, at, _):
        found = [self.problems(schema, value, at) for schema in schemas]
        return [] if any(not it for it in found) else [f"{at}: none of {found}"]


# Statuses that need circumstances: users, a name of two nodes, a node or a disk that fails.
OF_CIRCUMSTANCES = {"401", "403", "409", "429", "502", "503", "504", "507"}
# More than a body may have, and than the buffers of a connection hold.
TOO_LONG = "x" * 9_000_000


class Walk(Files, RawCases, OneNode):
    """Asks for operations as the document describes them."""

    credentials = {}

    def setUp(self):
        super().setUp()
        # Operations by the statuses that they have answered.
        self.seen = {}

    @property
    def port(self):
        return self.cluster.nodes[0].http_port

    def call(self, method, path, query=None, body=None, kind="application/json", credentials=None):
        """Status, media type and text of an answer; of a stream of events the data of the first."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        self.addCleanup(connection.close)
        if query:
            path += "?" + urllib.parse.urlencode(query)
        headers = self.credentials if credentials is None else credentials
        if body is not None:
            headers = {**headers, "content-type": kind}
            body = body if isinstance(body, str) else json.dumps(body)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        media = (answer.headers["content-type"] or "").split(";")[0]
        if media == "text/event-stream":
            self.addCleanup(answer.close)
            return answer.status, media, answer.readline().decode().removeprefix("data: ")
        return answer.status, media, answer.read().decode()

    def document(self):
        return json.loads(self.call("GET", "/v1/openapi.json")[2])

    def operations(self, document):
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                yield method.upper(), path, operation

    def check(self, document, operation, answer, expected=None):
        """The answer is one that the document lists, and its body is as described; the body."""
        status, media, text = answer
        self.assertIn(str(status), operation["responses"], text)
        self.seen.setdefault(operation["operationId"], set()).add(str(status))
        if expected is not None:
            self.assertEqual(status, expected, text)
        content = operation["responses"][str(status)].get("content", {})
        if not content:
            self.assertEqual(text, "")
            return None
        self.assertEqual([media], list(content))
        schema = content[media]["schema"]
        if media == "application/x-ndjson":
            values = [json.loads(line) for line in text.splitlines()]
        else:
            values = [json.loads(text) if "json" in media or media == "text/event-stream" else text]
        for value in values:
            self.assertEqual(Schema(document).problems(schema, value), [])
        return values[-1]

    def refused(self, document, operation, answer, status, field=None):
        problem = self.check(document, operation, answer, status)
        self.assertEqual(answer[1], PROBLEM)
        self.assertEqual((problem["status"], problem["error"]), (status, problem["detail"]))
        if field:
            self.assertEqual(problem["field"], field, problem)
        return problem

    def expect_all_seen(self, operations, *exceptions):
        """No operation lists a status that it does not answer."""
        for (method, path), operation in operations.items():
            listed = set(operation["responses"]) - OF_CIRCUMSTANCES
            unseen = listed - self.seen.get(operation["operationId"], set())
            unseen = {status for status in unseen if (method, path, status) not in exceptions}
            self.assertEqual(unseen, set(), f"{method} {path}")

    def refuse_bodies(self, document, operation, method, path):
        answer = self.call(method, path, None, TOO_LONG)
        self.refused(document, operation, answer, 413)
        for body, kind, status in (("{", "application/json", 400), ("{}", "text/plain", 415), ('{"nonsense": 1}', "application/json", 422)):
            problem = self.refused(document, operation, self.call(method, path, None, body, kind), status)
            self.assertEqual(problem["field"] is not None, status == 422, problem)


class OfTheNode(Walk):
    """Every operation of a node that has something of everything."""

    @classmethod
    def write_files(cls):
        cls.arguments = ("--data", str(cls.directory / "data"), "--rebalance", "suggest", "--workers", "1")

    # What is asked so that the answer has something in it: query, body and status. Operations that end something come last.
    def examples(self):
        client = self.client_id()
        message = {"topic": "shown/a", "payload": "21", "retain": True, "qos": 1, "user_properties": [["unit", "C"]]}
        return {
            ("POST", "/v1/publish"): (None, message, 200),
            ("POST", "/v1/placements"): (None, {"client_id": client, "publish": ["p/1"], "subscribe": ["p/#"], "rates": {"p/1": 2.5}}, 200),
            ("POST", "/v1/bans"): (None, {"address": "192.0.2.1", "reason": "loud", "seconds": 60}, 200),
            ("POST", "/v1/trace"): (None, {"client_id": client}, 200),
            ("GET", "/v1/nodes"): (None, None, 200),
            ("GET", "/v1/membership"): (None, None, 200),
            ("GET", "/v1/sessions"): ({"search": client, "limit": 5}, None, 200),
            ("GET", "/v1/clients"): ({"search": client, "order": "rate", "limit": 10}, None, 200),
            ("GET", "/v1/subscribers"): ({"topic": "shown/a"}, None, 200),
            ("GET", "/v1/subscriptions"): (None, None, 200),
            ("GET", "/v1/retained"): ({"filter": "shown/#", "payload": "true"}, None, 200),
            ("GET", "/v1/retained/message"): ({"topic": "shown/a"}, None, 200),
            ("GET", "/v1/bans"): (None, None, 200),
            ("GET", "/v1/placements"): ({"after": ""}, None, 200),
            ("GET", "/v1/placements/{client_id}"): (None, None, 200),
            ("GET", "/v1/rebalance"): (None, None, 200),
            ("POST", "/v1/rebalance"): (None, {"dry_run": True}, 200),
            ("GET", "/v1/recording"): ({"limit": 3}, None, 200),
            ("GET", "/v1/topics"): (None, None, 200),
            ("GET", "/v1/traffic"): (None, None, 200),
            ("GET", "/v1/bridges"): (None, None, 200),
            ("GET", "/v1/memory"): (None, None, 200),
            ("GET", "/v1/overlay"): (None, None, 200),
            ("GET", "/v1/explain"): ({"topic": "shown/a"}, None, 200),
            ("GET", "/v1/health/live"): (None, None, 200),
            ("GET", "/v1/health/ready"): (None, None, 200),
            ("GET", "/v1/watch"): (None, None, 200),
            ("GET", "/v1/whoami"): (None, None, 200),
            ("GET", "/v1/openapi.json"): (None, None, 200),
            ("GET", "/metrics"): (None, None, 200),
            ("GET", "/"): (None, None, 200),
            ("GET", "/page.css"): (None, None, 200),
            ("GET", "/page.js"): (None, None, 200),
            ("POST", "/v1/trace/lines"): (None, None, 200),
            ("POST", "/v1/reload"): (None, None, 200),
            ("POST", "/v1/export"): (None, None, 200),
            ("POST", "/v1/import"): ({"replace": "false"}, "EXPORT", 200),
            ("POST", "/v1/forget"): (None, {"node": "nobody"}, 404),
            ("GET", "/v1/audit"): ({"after": 0, "limit": 50}, None, 200),
            ("DELETE", "/v1/trace"): (None, None, 200),
            ("DELETE", "/v1/bans"): ({"address": "192.0.2.1"}, None, 200),
            ("DELETE", "/v1/retained/message"): ({"topic": "shown/a"}, None, 200),
            ("DELETE", "/v1/placements/{client_id}"): (None, None, 204),
            ("POST", "/v1/kick"): (None, {"client_id": client}, 200),
            ("DELETE", "/v1/sessions/{client_id}"): (None, None, 200),
            ("POST", "/v1/drain"): ({"force": "true"}, None, 200),
            ("DELETE", "/v1/drain"): (None, None, 204),
        }

    def test_every_operation_answers_as_described_and_refuses_what_is_not_valid(self):
        document = self.document()
        operations = {(method, path): operation for method, path, operation in self.operations(document)}
        examples = self.examples()
        self.assertEqual(set(operations), set(examples), "every operation has an example")
        client = self.keeper(self.here)
        client.subscribe(("shown/#", 1))
        client.send(publish("shown/b", b"x"))
        for (method, path), (query, body, status) in examples.items():
            operation = operations[method, path]
            place = path.replace("{client_id}", self.client_id())
            with self.subTest(f"{method} {path}"):
                self.refuse_parameters(document, operation, method, place, query)
                if body == "EXPORT":
                    body = self.call("POST", "/v1/export")[2]
                elif body is not None:
                    self.refuse_bodies(document, operation, method, place)
                kind = next(iter(operation.get("requestBody", {"content": {"": {}}})["content"]))
                answer = self.call(method, place, query, body, kind)
                self.check(document, operation, answer, status)
            if path != place:
                self.refused(document, operation, self.call(method, path.replace("{client_id}", "%FF")), 400, "client_id")
        self.expected_answers(document, operations)
        forgotten = self.call("POST", "/v1/forget", None, {"node": "nobody"})
        self.refused(document, operations["POST", "/v1/forget"], forgotten, 404)
        self.refused(document, operations["POST", "/v1/import"], self.call("POST", "/v1/import", None, "{", "application/x-ndjson"), 400)
        # There is no second node to forget, and nothing that cannot be read again.
        self.expect_all_seen(operations, ("POST", "/v1/forget", "200"), ("POST", "/v1/reload", "422"))

    def test_operations_have_tags_and_the_document_a_server(self):
        document = self.document()
        self.assertEqual(document["servers"], [{"url": "/"}])
        named = {tag["name"] for tag in document["tags"]}
        used = {tag for _, _, operation in self.operations(document) for tag in operation["tags"]}
        self.assertEqual(named, used)
        self.assertTrue(all(tag["description"] for tag in document["tags"]))
        for method, path, operation in self.operations(document):
            self.assertEqual(len(operation["tags"]), 1, f"{method} {path}")

    def refuse_parameters(self, document, operation, method, place, query):
        """A node that is not there, and every parameter that has a form in another one."""
        answer = self.call(method, place, {**(query or {}), "node": "nowhere"}, None)
        self.assertIn("nowhere", self.refused(document, operation, answer, 404)["detail"])
        for parameter in operation["parameters"]:
            name, schema = parameter["name"], parameter["schema"]
            if parameter["in"] != "query" or schema.get("type") in ("string", ["string", "null"]) and "enum" not in schema:
                continue
            bad = [str(schema[word] + step) for word, step in (("minimum", -1), ("maximum", 1)) if schema.get(word, 0) > 0]
            for value in ["no such value", *bad]:
                answer = self.call(method, place, {**(query or {}), name: value})
                self.refused(document, operation, answer, 400, name)

    def expected_answers(self, document, operations):
        """Fields that are named where no type gives them away."""
        for method, path, query, body, status, field in (
            ("GET", "/v1/explain", {"topic": "a/#"}, None, 400, "topic"),
            ("GET", "/v1/clients", {"order": "rate", "after": "x"}, None, 400, "after"),
            ("GET", "/v1/clients", {"colour": "red"}, None, 400, "colour"),
            ("GET", "/v1/clients", {"address": "here"}, None, 400, "address"),
            ("GET", "/v1/retained", {"filter": "a/#/b"}, None, 400, "filter"),
            ("GET", "/v1/retained/message", {}, None, 400, "topic"),
            ("DELETE", "/v1/retained/message", {}, None, 400, "topic"),
            ("DELETE", "/v1/bans", {"address": "here"}, None, 400, "address"),
            ("POST", "/v1/trace", None, {"topic": "a/#/b"}, 422, "topic"),
            ("POST", "/v1/publish", None, {"topic": "a", "qos": 7}, 422, "qos"),
            ("POST", "/v1/publish", None, {"topic": "a", "qos": "x"}, 422, "qos"),
            ("POST", "/v1/publish", None, {"payload": "x"}, 422, "topic"),
            ("POST", "/v1/placements", None, {"client_id": "c", "max_sessions": 0}, 422, "max_sessions"),
            ("GET", "/v1/placements", {"limits": 3}, None, 400, "limits"),
        ):
            with self.subTest(f"{method} {path} {query or body}"):
                self.refused(document, operations[method, path], self.call(method, path, query, body), status, field)
        status, media, text = self.call("GET", "/v1/explain", {"client_id": "c"})
        self.check(document, operations["GET", "/v1/explain"], (status, media, text), 200)
        self.assertIn("is_here", json.loads(text))
        self.assertEqual(self.call("GET", "/v1/nothing")[:2], (404, PROBLEM))
        self.assertEqual(self.call("DELETE", "/v1/nodes")[:2], (405, PROBLEM))


class OfUsers(Walk):
    """A node whose API has users."""

    credentials = basic("root", "secret")

    @classmethod
    def write_files(cls):
        users = passwd("root", "secret", "--role", "admin") + passwd("eye", "secret", "--role", "viewer")
        cls.arguments = ("--http-users", cls.write("http-users", users))

    def test_every_operation_says_who_may_ask(self):
        document = self.document()
        self.assertEqual(set(document["components"]["securitySchemes"]), {"password", "token"})
        for method, path, operation in self.operations(document):
            place = path.replace("{client_id}", "c")
            with self.subTest(f"{method} {path}"):
                if path.startswith("/v1/health/"):
                    self.assertEqual(operation["security"], [])
                    self.check(document, operation, self.call(method, place, credentials={}), 200)
                    continue
                self.refused(document, operation, self.call(method, place, credentials={}), 401)
                if method != "GET":
                    self.refused(document, operation, self.call(method, place, credentials=basic("eye", "secret")), 403)


class OfThePlacementListener(Walk):
    """The document of the listener for clients elsewhere describes its own operations only."""

    @classmethod
    def write_files(cls):
        cls.placement_port = free_port()
        cls.arguments = ("--placement-listen", f"127.0.0.1:{cls.placement_port}", "--users", cls.write("users", passwd("ann", "a")))
        cls.credentials = basic("ann", "a")

    @property
    def port(self):
        return self.placement_port

    def test_every_operation_answers_as_described_and_refuses_what_is_not_valid(self):
        document = self.document()
        told = {(method, path) for method, path, _ in self.operations(document)}
        place = "/v1/placements"
        one = f"{place}/{{client_id}}"
        self.assertEqual(told, {("GET", "/v1/openapi.json"), ("POST", place), ("GET", one), ("DELETE", one)})
        operations = {(method, path): operation for method, path, operation in self.operations(document)}
        asked = {"client_id": self.client_id(), "publish": ["p/1"]}
        self.refuse_bodies(document, operations["POST", place], "POST", place)
        self.check(document, operations["POST", place], self.call("POST", place, None, asked), 200)
        self.refused(document, operations["POST", place], self.call("POST", place, None, {**asked, "max_sessions": 0}), 422, "max_sessions")
        self.refused(document, operations["POST", place], self.call("POST", place, None, asked, credentials={}), 401)
        for method, status in (("GET", 200), ("DELETE", 204), ("GET", 404), ("DELETE", 404)):
            answer = self.call(method, f"{place}/{self.client_id()}")
            self.check(document, operations[method, one], answer, status)
            self.refused(document, operations[method, one], self.call(method, f"{place}/{'c' * 1025}"), 422, "client_id")
            self.refused(document, operations[method, one], self.call(method, f"{place}/%FF"), 400, "client_id")
        self.assertEqual(self.call("GET", place)[:2], (405, PROBLEM))
        describe = operations["GET", "/v1/openapi.json"]
        self.check(document, describe, self.call("GET", "/v1/openapi.json"), 200)
        self.expect_all_seen(operations)


del Walk

if __name__ == "__main__":
    unittest.main()
