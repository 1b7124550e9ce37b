"""Telemetry over OTLP: what a receiver gets, and what becomes of it when the receiver does not take it."""

import pathlib
import re
import signal
import tempfile
import threading
import time
import unittest

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from opentelemetry.proto.trace.v1.trace_pb2 import Span

import mosquitto_clients
from certificates import Authority
from nodes import Node, free_port, wait_until
from otlp_receiver import Receiver, attributes
from paho_clients import PahoClient
from wire import RawClient

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# They follow the moment, so two looks at them need not agree.
RESTLESS = re.compile(r"_per_second$|_cpu_ratio$|_free_bytes$|_rtt_seconds$")


def page_of(node):
    """Types by name, and values by name and labels."""
    text = node.ask("/metrics").decode()
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    values = {}
    for name, labels, value in SAMPLE.findall(text):
        values[name, frozenset(LABEL.findall(labels))] = float(value)
    return types, values


def points_of(metric):
    """Of a metric that came over OTLP: its type as Prometheus calls it, and the values that its samples have there."""
    kind = metric.WhichOneof("data")
    points = getattr(metric, kind).data_points
    if kind != "histogram":
        values = {}
        for point in points:
            values[metric.name, frozenset(attributes(point.attributes).items())] = getattr(point, point.WhichOneof("value"))
        return {"sum": "counter", "gauge": "gauge"}[kind], values
    values = {}
    for point in points:
        labels, within = frozenset(attributes(point.attributes).items()), 0
        for bound, count in zip([*point.explicit_bounds, "+Inf"], point.bucket_counts, strict=True):
            within += count
            text = bound if bound == "+Inf" else f"{bound:g}"
            values[f"{metric.name}_bucket", labels | {("le", text)}] = within
        values[f"{metric.name}_sum", labels], values[f"{metric.name}_count", labels] = point.sum, point.count
    return kind, values


def plain_bounds(values):
    """Bounds of buckets are numbers: 0.00001 and 1e-05 are the same."""

    def plain(label):
        name, text = label
        return (name, f"{float(text):g}" if name == "le" and text != "+Inf" else text)

    return {(name, frozenset(map(plain, labels))): value for (name, labels), value in values.items()}


class Otlp(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = pathlib.Path(self.directory.name)

    def receiver(self, *answers, **options):
        receiver = Receiver(**options)
        self.addCleanup(receiver.close)
        receiver.answers = list(answers)
        return receiver

    def node(self, url, *arguments, name="n1", seeds=()):
        node = Node(name, seeds, ["--otlp-endpoint", url, *map(str, arguments)])
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1 + len(seeds)), node.log_from(0))
        return node

    def requests(self, node, signal_name="metrics"):
        _, values = page_of(node)
        return {
            dict(labels)["outcome"]: int(value)
            for (name, labels), value in values.items()
            if name == "thicket_otlp_requests_total" and ("signal", signal_name) in labels
        }


class Metrics(Otlp):
    def test_every_metric_is_exported_with_its_type_unit_labels_and_value(self):
        receiver = self.receiver()
        node = self.node(receiver.url, "--otlp-interval", "1s", "--data", self.path / "data", "--cluster-name", "c1")
        mosquitto_clients.publish(node.port, "a/b", "x", "-q", 1)
        # Nodes tell each other of their load once a second.
        wait_until(lambda: "thicket_node_cpu_ratio{" in node.ask("/metrics").decode(), "a load")
        before = page_of(node)[1]
        seen = len(receiver.requests)
        wait_until(lambda: len(receiver.requests) > seen + 1, "a request that began after that")
        message = receiver.accepted("/v1/metrics")[-1]
        types, after = page_of(node)
        before, after = plain_bounds(before), plain_bounds(after)

        resource = attributes(message.resource_metrics[0].resource.attributes)
        self.assertRegex(resource.pop("thicket.node.id"), "^[0-9a-f]{16}$")
        self.assertRegex(resource.pop("service.version"), r"^\d+\.\d+\.\d+")
        self.assertEqual(resource, {"service.name": "thicket", "service.instance.id": "n1", "thicket.cluster.name": "c1"})

        exported, kinds = {}, {}
        for scope in message.resource_metrics[0].scope_metrics:
            for metric in scope.metrics:
                self.assertNotIn(metric.name, kinds)
                kinds[metric.name], values = points_of(metric)
                exported |= plain_bounds(values)
                self.assertTrue(metric.description)
                if kinds[metric.name] != "gauge":
                    data = getattr(metric, metric.WhichOneof("data"))
                    self.assertEqual(data.aggregation_temporality, AGGREGATION_TEMPORALITY_CUMULATIVE)
                    self.assertTrue(all(0 < it.start_time_unix_nano <= it.time_unix_nano for it in data.data_points))
                if kinds[metric.name] == "counter":
                    self.assertTrue(metric.sum.is_monotonic)
        with_samples = {name for name in types if any(re.match(rf"{name}(_bucket|$)", found) for found, _ in after)}
        self.assertEqual(kinds, {name: types[name] for name in with_samples})
        self.assertGreater(len(kinds), 90)
        # A label may have come or gone in between.
        self.assertLessEqual(exported.keys(), before.keys() | after.keys())
        self.assertLessEqual(before.keys() & after.keys(), exported.keys())
        for key, value in exported.items():
            name = key[0]
            if RESTLESS.search(name) or not (key in before and key in after):
                continue
            low, high = sorted((before[key], after[key]))
            slack = 0 if types.get(name) == "counter" else 1 + 0.2 * high
            self.assertTrue(low - slack <= value <= high + slack, f"{key}: {value} between {low} and {high}")
        units = {metric: receiver.metrics()[metric].unit for metric in kinds}
        self.assertEqual(units["thicket_bytes_total"], "By")
        self.assertEqual(units["thicket_round_seconds"], "s")
        self.assertEqual(units["thicket_node_cpu_ratio"], "1")
        self.assertEqual(units["thicket_ready"], "")

    def test_nothing_is_exported_by_default(self):
        node = Node("n1", [])
        self.addCleanup(node.log.close)
        self.addCleanup(node.stop)
        self.assertTrue(node.wait_until_ready(1), node.log_from(0))
        self.assertNotIn("otlp", node.ask("/metrics").decode())
        threads = pathlib.Path(f"/proc/{node.process.pid}/task").glob("*/comm")
        self.assertFalse([name for name in (it.read_text() for it in threads) if "otlp" in name])

    def test_metrics_come_again_when_the_receiver_is_back_and_failures_are_told(self):
        port = free_port()
        node = self.node(f"http://127.0.0.1:{port}", "--otlp-interval", "1s")
        wait_until(lambda: self.requests(node)["failed"] >= 2, "two failures")
        self.assertEqual(self.requests(node)["accepted"], 0)
        self.assertEqual(node.log_from(0).count("the OTLP receiver does not accept requests"), 1)
        receiver = self.receiver(port=port)
        wait_until(lambda: receiver.accepted("/v1/metrics"), "metrics")
        points = points_of(receiver.metrics()["thicket_otlp_requests_total"])[1]
        failed = points["thicket_otlp_requests_total", frozenset({("signal", "metrics"), ("outcome", "failed")})]
        self.assertGreaterEqual(failed, 2)
        wait_until(lambda: "the OTLP receiver accepts requests again" in node.log_from(0), "the line of the log")

    def test_a_receiver_that_asks_to_wait_is_not_asked_before(self):
        receiver = self.receiver((503, {"Retry-After": "3"}, b""), (429, {"Retry-After": "2"}, b""))
        self.node(receiver.url, "--otlp-interval", "1s")
        wait_until(lambda: len(receiver.requests) >= 4, "four requests")
        times = [request[0] for request in receiver.requests]
        self.assertGreaterEqual(times[1] - times[0], 3)
        self.assertGreaterEqual(times[2] - times[1], 2)

    def test_what_a_receiver_rejects_of_a_request_is_counted(self):
        partial = ExportMetricsPartialSuccess(rejected_data_points=7, error_message="too old")
        reply = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()
        receiver = self.receiver((200, {"content-type": "application/x-protobuf"}, reply), (400, {}, b""))
        node = self.node(receiver.url, "--otlp-interval", "1s")
        wait_until(lambda: self.requests(node)["accepted"] >= 2, "requests after that")
        self.assertEqual(self.requests(node)["failed"], 1)
        self.assertEqual(page_of(node)[1]["thicket_otlp_rejected_total", frozenset({("signal", "metrics")})], 7)
        self.assertIn("too old", node.log_from(0))

    def test_headers_of_a_file_are_sent_and_read_again(self):
        headers = self.path / "headers"
        headers.write_text("Authorization: Bearer first\nx-scope: t1\n")
        receiver = self.receiver()
        node = self.node(receiver.url, "--otlp-interval", "1s", "--otlp-headers-file", headers, "--log-level", "trace")
        wait_until(lambda: receiver.requests, "a request")
        found = {name.lower(): value for name, value in receiver.requests[0][3].items()}
        self.assertEqual((found["authorization"], found["x-scope"]), ("Bearer first", "t1"))
        self.assertEqual(found["content-type"], "application/x-protobuf")
        headers.write_text("Authorization: Bearer second\n")
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "Bearer second" in receiver.requests[-1][3].values(), "the new header")
        self.assertNotIn("Bearer", node.log_from(0))

    def test_a_receiver_with_tls_is_checked_against_its_authority(self):
        with Authority() as authority, Authority("other") as other:
            receiver = self.receiver(tls=authority.issue("receiver"))
            self.node(receiver.url, "--otlp-interval", "1s", "--otlp-ca", authority.certificate)
            wait_until(lambda: receiver.requests, "a request")
            stranger = self.node(receiver.url, "--otlp-interval", "1s", "--otlp-ca", other.certificate, name="n2")
            wait_until(lambda: self.requests(stranger)["failed"] >= 1, "a failure")
            self.assertEqual(self.requests(stranger)["accepted"], 0)

    def test_a_receiver_that_hangs_delays_neither_clients_nor_the_end_of_the_node(self):
        receiver = self.receiver(*[None] * 100)
        node = self.node(receiver.url, "--otlp-interval", "1s")
        wait_until(lambda: receiver.requests, "the request that hangs")
        mosquitto_clients.publish(node.port, "a/b", "x", "-q", 1)
        node.stop()
        self.assertEqual(node.process.returncode, 0, node.log_from(0))
        self.assertIn("node stopped", node.log_from(0))

    def test_what_was_counted_until_the_end_is_exported(self):
        receiver = self.receiver()
        node = self.node(receiver.url, "--otlp-interval", "1h")
        mosquitto_clients.publish(node.port, "a/b", "x", "-q", 1)
        node.stop()
        _, values = points_of(receiver.metrics()["thicket_client_connects_total"])
        self.assertEqual(list(values.values()), [1])

    def test_a_bad_endpoint_is_refused_at_the_start_with_its_key(self):
        for arguments, expected in (
            (["--otlp-endpoint", "localhost:4318"], "otlp_endpoint = localhost:4318: expected http://HOST:PORT"),
            (["--otlp-endpoint", "http://localhost:99999"], "otlp_endpoint = http://localhost:99999: expected the base URL"),
            (["--otlp-interval", "5s"], "otlp_queue_log_records have no effect without otlp_endpoint"),
            (["--otlp-endpoint", "http://localhost:1", "--otlp-headers-file", "/nowhere"], "otlp_headers_file: cannot read /nowhere"),
        ):
            node = Node("n1", [], arguments)
            self.addCleanup(node.log.close)
            self.addCleanup(node.stop)
            self.assertNotEqual(node.process.wait(20), 0)
            self.assertIn(expected, node.log_from(0))


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def parent(number=0, flags="01"):
    """A `traceparent`; each number is a trace of its own."""
    return f"00-{number:08x}{TRACE[8:]}-{SPAN}-{flags}"


def trace_of(text):
    return bytes.fromhex(text.split("-")[1])


class Traces(Otlp):
    def two_nodes(self, receiver, *arguments):
        one = self.node(receiver.url, *arguments)
        two = self.node(receiver.url, *arguments, name="n2", seeds=[one.port])
        wait_until(lambda: one.sees() == 2, "the other node")
        return one, two

    def client(self, node, client_id, **options):
        client = PahoClient(node.port, client_id, **options)
        self.addCleanup(client.vanish)
        return client

    def subscriber(self, node, client_id, topic, qos, **options):
        client = self.client(node, client_id, **options)
        client.subscribe(topic, qos)
        return client

    def recipients(self, receiver, trace):
        """By the name of the node, of all its threads together."""
        found = {}
        for resource, span in receiver.spans("deliver"):
            if span.trace_id == trace:
                node = resource["service.instance.id"]
                found[node] = found.get(node, 0) + attributes(span.attributes)["recipients"]
        return found

    def test_a_sampled_publish_is_one_trace_over_two_nodes(self):
        receiver = self.receiver()
        one, two = self.two_nodes(receiver)
        subscribers = [self.subscriber(one, "s1", "a/#", 2), self.subscriber(two, "s2", "a/#", 2)]
        subscribers.append(self.subscriber(two, "s3", "a/b", 2))
        publisher = self.client(one, "p")
        for qos in (0, 1, 2):
            with self.subTest(qos=qos):
                pairs = [("first", "1"), ("traceparent", parent(qos)), ("tracestate", "a=b")]
                publisher.publish("a/b", b"x", qos, UserProperty=pairs)
                for subscriber in subscribers:
                    self.assertEqual(subscriber.take().properties.UserProperty, pairs)
                self.check_trace(receiver, trace_of(parent(qos)), qos)

    def check_trace(self, receiver, trace, qos):
        def spans():
            return [pair for pair in receiver.spans() if pair[1].trace_id == trace]

        wait_until(lambda: self.recipients(receiver, trace) == {"n1": 1, "n2": 2}, "all deliveries")
        wait_until(lambda: "publish" in {span.name for _, span in spans()}, "the publication")
        self.assertEqual({span.parent_span_id.hex() for _, span in spans()}, {SPAN})
        self.assertEqual(len({span.span_id for _, span in spans()}), len(spans()))
        for resource, span in spans():
            node, found = resource["service.instance.id"], attributes(span.attributes)
            self.assertLessEqual(span.start_time_unix_nano, span.end_time_unix_nano)
            self.assertEqual((found["messaging.system"], found["messaging.destination.name"]), ("mqtt", "a/b"))
            self.assertEqual((found["qos"], found["node"]), (qos, node))
            if span.name == "publish":
                self.assertEqual((node, span.kind, found["client_id"]), ("n1", Span.SPAN_KIND_SERVER, "p"))
            else:
                self.assertEqual(span.kind, Span.SPAN_KIND_PRODUCER)

    def test_messages_that_are_not_sampled_give_no_spans(self):
        receiver = self.receiver()
        one, two = self.two_nodes(receiver)
        subscriber = self.subscriber(two, "s", "a", 1)
        publisher = self.client(one, "p")
        publisher.publish("a", b"plain", 1)
        for text in (parent(1, "00"), parent(1, "1"), f"00-{'0' * 32}-{SPAN}-01", "x", ""):
            publisher.publish("a", b"not sampled", 1, UserProperty=("traceparent", text))
        publisher.publish("a", b"sampled", 1, UserProperty=("traceparent", parent(7)))
        subscriber.take_until(b"sampled")
        trace = trace_of(parent(7))
        wait_until(lambda: receiver.spans("publish") and self.recipients(receiver, trace), "the spans of the last one")
        self.assertEqual({span.trace_id for _, span in receiver.spans()}, {trace})

    def test_a_node_begins_traces_of_its_own(self):
        receiver = self.receiver()
        one, two = self.two_nodes(receiver, "--otlp-sample", "1")
        subscriber = self.subscriber(two, "s", "a", 1)
        publisher = self.client(one, "p")
        publisher.publish("a", b"x", 1, UserProperty=("traceparent", parent(1, "00")))
        self.assertEqual(subscriber.take().properties.UserProperty, [("traceparent", parent(1, "00"))])
        publisher.publish("a", b"y", 1, UserProperty=("first", "1"), ContentType="text/plain")
        message = subscriber.take()
        self.assertEqual(message.properties.ContentType, "text/plain")
        first, (name, text) = message.properties.UserProperty
        self.assertEqual((first, name), (("first", "1"), "traceparent"))
        wait_until(lambda: receiver.spans("publish") and receiver.spans("deliver"), "both spans")
        [(_, published)], [(resource, delivered)] = receiver.spans("publish"), receiver.spans("deliver")
        self.assertEqual(published.parent_span_id, b"")
        self.assertEqual(text, f"00-{published.trace_id.hex()}-{published.span_id.hex()}-01")
        self.assertEqual((delivered.trace_id, delivered.parent_span_id), (published.trace_id, published.span_id))
        self.assertEqual(resource["service.instance.id"], "n2")

    def test_a_share_of_messages_begins_traces(self):
        receiver = self.receiver()
        node = self.node(receiver.url, "--otlp-sample", "0.5")
        publisher = self.client(node, "p")
        for _ in range(200):
            publisher.publish("a", b"x", 1)
        node.stop()
        # The odds against this are a million to one.
        self.assertTrue(60 < len(receiver.spans("publish")) < 140)

    def test_backups_deliver_nothing_and_one_member_of_a_group_is_one_recipient(self):
        receiver = self.receiver()
        one, two = self.two_nodes(receiver)
        kept = self.subscriber(two, "kept", "a", 1, persistent=True)
        publisher = self.client(one, "p")
        publisher.publish("a", b"x", 1, UserProperty=("traceparent", parent(1)))
        kept.take()
        members = [self.subscriber(node, f"m-{node.name}", "$share/g/b", 1) for node in (one, two)]
        publisher.publish("b", b"x", 1, UserProperty=("traceparent", parent(2)))
        publisher.publish("c", b"for nobody", 1, UserProperty=("traceparent", parent(3)))
        wait_until(lambda: len(receiver.spans("publish")) == 3, "three publications")
        wait_until(lambda: len(receiver.spans("deliver")) == 2, "two deliveries")
        self.assertEqual(self.recipients(receiver, trace_of(parent(1))), {"n2": 1})
        self.assertEqual(sum(self.recipients(receiver, trace_of(parent(2))).values()), 1)
        self.assertEqual(len(members), 2)

    def test_a_message_that_waits_in_a_queue_has_a_span_when_it_is_sent(self):
        receiver = self.receiver()
        one, two = self.two_nodes(receiver)
        away = self.subscriber(two, "away", "a", 1, persistent=True)
        away.disconnect()
        publisher = self.client(one, "p")
        publisher.publish("a", b"x", 1, UserProperty=("traceparent", parent(1)))
        publisher.publish("a", b"not sampled", 1)
        wait_until(lambda: receiver.spans("deliver"), "the message to be queued")
        self.assertEqual(receiver.spans("send"), [])
        back = self.client(two, "away", persistent=True)
        self.assertEqual([back.take().payload, back.take().payload], [b"x", b"not sampled"])
        wait_until(lambda: receiver.spans("send"), "the span of the message that left the queue")
        [(resource, sent)] = receiver.spans("send")
        self.assertEqual(resource["service.instance.id"], "n2")
        self.assertEqual(sent.trace_id, trace_of(parent(1)))
        self.assertEqual(attributes(sent.attributes)["client_id"], "away")

    def test_the_span_of_a_publication_ends_when_its_acknowledgement_is_due(self):
        receiver = self.receiver()
        one, two = self.two_nodes(receiver)
        self.subscriber(two, "s", "a", 1)
        publisher = self.client(one, "p")
        two.process.send_signal(signal.SIGSTOP)
        self.addCleanup(two.process.send_signal, signal.SIGCONT)
        # The order takes effect a moment later, thread by thread.
        threads = list(pathlib.Path(f"/proc/{two.process.pid}/task").glob("*/stat"))
        wait_until(lambda: all(thread.read_text().rpartition(") ")[2][0] == "T" for thread in threads), "the stop")
        timer = threading.Timer(0.5, two.process.send_signal, [signal.SIGCONT])
        timer.start()
        self.addCleanup(timer.join)
        publisher.publish("a", b"x", 1, UserProperty=("traceparent", parent(1)))
        wait_until(lambda: receiver.spans("publish"), "the publication")
        [(_, span)] = receiver.spans("publish")
        self.assertGreater(span.end_time_unix_nano - span.start_time_unix_nano, 250_000_000)

    def test_traces_can_be_switched_off(self):
        receiver = self.receiver()
        node = self.node(receiver.url, "--otlp-interval", "1s", "--otlp-traces=false")
        publisher = self.client(node, "p")
        publisher.publish("a", b"x", 1, UserProperty=("traceparent", parent(1)))
        node.stop()
        self.assertEqual({request[2] for request in receiver.requests}, {"/v1/metrics"})

    def test_spans_above_the_bound_of_the_queue_are_dropped_and_counted(self):
        receiver = self.receiver(*[None] * 100)
        node = self.node(receiver.url, "--otlp-interval", "1h", "--otlp-queue-spans", "5")
        publisher = self.client(node, "p")
        for number in range(50):
            publisher.publish("a", b"x", 1, UserProperty=("traceparent", parent(number)))

        def spans(outcome):
            return page_of(node)[1]["thicket_otlp_spans_total", frozenset({("outcome", outcome)})]

        # Five wait; as many may be on their way.
        wait_until(lambda: spans("dropped") >= 40, "spans that are dropped")
        self.assertEqual(spans("exported"), 0)
        self.assertLessEqual(page_of(node)[1]["thicket_otlp_queue_spans", frozenset()], 5)

    def test_spans_that_wait_when_the_node_stops_are_exported(self):
        receiver = self.receiver()
        node = self.node(receiver.url)
        self.client(node, "p").publish("a", b"x", 1, UserProperty=("traceparent", parent(1)))
        node.stop()
        self.assertEqual(len(receiver.spans("publish")), 1)


class Logs(Otlp):
    def test_lines_are_records_with_severity_time_and_fields(self):
        receiver = self.receiver()
        began = time.time_ns()
        node = self.node(receiver.url, "--otlp-logs")
        with PahoClient(node.port, "ada") as client:
            client.disconnect()
        wait_until(lambda: receiver.lines("client disconnected"), "the line")
        [(resource, record)] = receiver.lines("client connected")
        self.assertEqual((record.severity_number, record.severity_text), (9, "INFO"))
        self.assertTrue(began <= record.time_unix_nano == record.observed_time_unix_nano <= time.time_ns())
        self.assertEqual((resource["service.name"], resource["service.instance.id"]), ("thicket", "n1"))
        fields = attributes(record.attributes)
        self.assertEqual(fields["client_id"], "ada")
        self.assertTrue(fields["peer"].startswith("127.0.0.1:"), fields)
        with RawClient(node.port) as stranger:
            stranger.socket.sendall(b"\x00\x00 no MQTT")
            stranger.until_closed()
        wait_until(lambda: any(record.severity_number == 13 for _, record in receiver.lines()), "a warning")
        node.stop()
        # The last line of all is among them, and standard error has the same.
        self.assertEqual(receiver.lines()[-1][1].body.string_value, "node stopped")
        for _, record in receiver.lines():
            self.assertIn(record.body.string_value, node.log_from(0))

    def test_no_line_is_sent_unless_that_is_asked_for(self):
        receiver = self.receiver()
        node = self.node(receiver.url, "--otlp-interval", "1s")
        with PahoClient(node.port, "ada") as client:
            client.disconnect()
        node.stop()
        self.assertEqual({path for _, _, path, *_ in receiver.requests}, {"/v1/metrics"})

    def test_lines_above_the_bound_of_the_queue_are_dropped_and_counted(self):
        receiver = self.receiver(*[None] * 100)
        node = self.node(receiver.url, "--otlp-interval", "1h", "--otlp-logs", "--otlp-queue-log-records", "1")
        for _ in range(10):
            mosquitto_clients.publish(node.port, "a", "x")
        lines = len(node.log_from(0).splitlines())
        self.assertGreater(lines, 5)

        def records(outcome):
            return page_of(node)[1]["thicket_otlp_log_records_total", frozenset({("outcome", outcome)})]

        # One waits; another one may be on its way.
        wait_until(lambda: records("dropped") >= lines - 2, "lines that are dropped")
        self.assertEqual(records("exported"), 0)
        self.assertLessEqual(page_of(node)[1]["thicket_otlp_queue_log_records", frozenset()], 1)

    def test_a_receiver_that_fails_gets_the_same_lines_again_and_none_about_itself(self):
        receiver = self.receiver((503, {}, b""))
        node = self.node(receiver.url, "--otlp-interval", "1h", "--otlp-logs", "--log-level", "debug")
        wait_until(lambda: self.requests(node, "logs") == {"accepted": 1, "failed": 1}, "the second attempt", 30)
        first, second = (message for _, _, path, _, message in receiver.requests if path == "/v1/logs")
        self.assertEqual(first, second)
        self.assertIn("the OTLP receiver does not accept requests", node.log_from(0))
        node.stop()
        self.assertFalse([record for _, record in receiver.lines() if "OTLP" in record.body.string_value])


if __name__ == "__main__":
    unittest.main()
