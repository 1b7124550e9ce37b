//! Metrics of the telemetry exporter.

use thicket_telemetry::Kind::{Counter, Gauge};
use thicket_telemetry::{Items, Statistics};

use super::page::Page;

pub(super) fn append(page: &mut Page, statistics: &Statistics) {
    let signals = [
        ("metrics", statistics.metrics),
        ("traces", statistics.traces),
        ("logs", statistics.logs),
    ];
    page.family(
        "thicket_otlp_requests_total",
        Counter,
        "Requests to the OTLP receiver that it accepted or that failed",
    );
    for (signal, requests) in signals {
        for (outcome, count) in [("accepted", requests.accepted), ("failed", requests.failed)] {
            page.sample(&[("signal", signal), ("outcome", outcome)], count);
        }
    }
    page.family(
        "thicket_otlp_rejected_total",
        Counter,
        "Data points, spans and log records that the receiver rejected in requests that it accepted",
    );
    for (signal, requests) in signals {
        page.sample(&[("signal", signal)], requests.rejected);
    }
    page.family(
        "thicket_otlp_spans_total",
        Counter,
        "Spans that were exported, or dropped: the queue was full, or the receiver refused them or failed too often",
    );
    outcomes(page, statistics.spans);
    page.single(
        "thicket_otlp_queue_spans",
        Gauge,
        "Spans that wait to be exported",
        statistics.spans.queued,
    );
    page.family(
        "thicket_otlp_log_records_total",
        Counter,
        "Lines of the log that were exported, or dropped: the queue was full, or the receiver refused them or failed too often",
    );
    outcomes(page, statistics.log_records);
    page.single(
        "thicket_otlp_queue_log_records",
        Gauge,
        "Lines of the log that wait to be exported",
        statistics.log_records.queued,
    );
}

fn outcomes(page: &mut Page, items: Items) {
    for (outcome, count) in [("exported", items.exported), ("dropped", items.dropped)] {
        page.sample(&[("outcome", outcome)], count);
    }
}
