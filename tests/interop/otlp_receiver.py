"""A receiver of OTLP over HTTP, as small as it can be: it reads requests with the protocol's own messages and answers as it is told."""

import http.server
import ssl
import threading
import time

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest, "/v1/logs": ExportLogsServiceRequest}


class Receiver:
    """Answers with the triples of status, headers and body in `answers`, and then with 200; None: it hangs until it is closed."""

    def __init__(self, port=0, tls=None):
        self.answers, self.released = [], threading.Event()
        # Of each request: when it came, the status it got, its path, headers and message.
        self.requests = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                message = REQUESTS[self.path].FromString(body)
                answer = receiver.answers.pop(0) if receiver.answers else (200, {}, b"")
                status, headers, reply = answer or (None, {}, b"")
                receiver.requests.append((time.monotonic(), status, self.path, dict(self.headers.items()), message))
                if status is None:
                    receiver.released.wait()
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def accepted(self, path):
        """The messages of requests that were accepted."""
        return [message for _, status, found, _, message in list(self.requests) if (found, status) == (path, 200)]

    def metrics(self):
        """By name, as they came last."""
        message = self.accepted("/v1/metrics")[-1]
        return {metric.name: metric for scope in message.resource_metrics[0].scope_metrics for metric in scope.metrics}

    def spans(self, *names):
        """All that came, each with the attributes of its resource."""
        found = []
        for message in self.accepted("/v1/traces"):
            for of_resource in message.resource_spans:
                resource = attributes(of_resource.resource.attributes)
                found += [(resource, span) for scope in of_resource.scope_spans for span in scope.spans]
        return [(resource, span) for resource, span in found if not names or span.name in names]

    def lines(self, *bodies):
        """Log records that came, each with the attributes of its resource."""
        found = []
        for message in self.accepted("/v1/logs"):
            for of_resource in message.resource_logs:
                resource = attributes(of_resource.resource.attributes)
                found += [(resource, record) for scope in of_resource.scope_logs for record in scope.log_records]
        return [(resource, record) for resource, record in found if not bodies or record.body.string_value in bodies]

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


def attributes(pairs):
    """Names and values."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
