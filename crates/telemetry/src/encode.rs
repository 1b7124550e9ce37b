//! Encodes tables of metrics and lists of spans and log records for OTLP.

use prost::Message;

use crate::message::{
    AnyValue, ExportLogs, ExportMetrics, ExportTraces, Gauge, Histogram, HistogramPoint, KeyValue,
    Kind, LogRecordMessage, Metric, NumberPoint, Resource, ResourceLogs, ResourceMetrics,
    ResourceSpans, Scope, ScopeLogs, ScopeMetrics, ScopeSpans, SeverityNumber, SpanMessage, Sum,
    Temporality, any_value, metric::Data, number_point,
};
use crate::metric::{self, Buckets, Family, Sample, Table, Value};
use crate::record::{LogRecord, Severity};
use crate::span::{Attribute, Role, Span};

/// The trace is sampled: the flag of `traceparent`.
const SAMPLED: u32 = 1;

/// The time span of counters, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// When they were zero.
    pub start_unix_nanos: u64,
    /// When they were read.
    pub end_unix_nanos: u64,
}

/// `ExportMetricsServiceRequest`. Metrics without samples are left out.
#[must_use]
pub fn metrics_request(resource: &[(String, String)], table: &Table, period: Period) -> Vec<u8> {
    let families = table.families.iter().filter(|it| !it.samples.is_empty());
    let request = ExportMetrics {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource_of(resource)),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics: families.map(|family| metric_of(family, period)).collect(),
            }],
        }],
    };
    request.encode_to_vec()
}

/// `ExportTraceServiceRequest`.
#[must_use]
pub fn traces_request(resource: &[(String, String)], spans: &[Span]) -> Vec<u8> {
    let request = ExportTraces {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource_of(resource)),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans: spans.iter().map(span_of).collect(),
            }],
        }],
    };
    request.encode_to_vec()
}

/// `ExportLogsServiceRequest`.
#[must_use]
pub fn logs_request(resource: &[(String, String)], records: &[LogRecord]) -> Vec<u8> {
    let request = ExportLogs {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource_of(resource)),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope()),
                log_records: records.iter().map(record_of).collect(),
            }],
        }],
    };
    request.encode_to_vec()
}

fn scope() -> Scope {
    Scope {
        name: "thicket".into(),
    }
}

fn resource_of(attributes: &[(String, String)]) -> Resource {
    let attributes = attributes.iter();
    Resource {
        attributes: attributes
            .map(|(key, value)| key_value(key, any_value::Value::Text(value.clone())))
            .collect(),
    }
}

fn metric_of(family: &Family, period: Period) -> Metric {
    let numbers = || {
        let points = family.samples.iter();
        points.map(|sample| number_point(sample, period)).collect()
    };
    let data = match family.kind {
        metric::Kind::Gauge => Data::Gauge(Gauge {
            data_points: numbers(),
        }),
        metric::Kind::Counter => Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: Temporality::Cumulative.into(),
            is_monotonic: true,
        }),
        metric::Kind::Histogram => Data::Histogram(Histogram {
            data_points: family
                .samples
                .iter()
                .filter_map(|sample| histogram_point(sample, period))
                .collect(),
            aggregation_temporality: Temporality::Cumulative.into(),
        }),
    };
    Metric {
        name: family.name.into(),
        description: family.help.into(),
        unit: family.unit().into(),
        data: Some(data),
    }
}

fn number_point(sample: &Sample, period: Period) -> NumberPoint {
    let value = match &sample.value {
        Value::Integer(value) => Some(number_point::Value::Integer(*value)),
        Value::Float(value) => Some(number_point::Value::Float(*value)),
        Value::Buckets(_) => None,
    };
    NumberPoint {
        start_time_unix_nano: period.start_unix_nanos,
        time_unix_nano: period.end_unix_nanos,
        value,
        attributes: labels_of(sample),
    }
}

fn histogram_point(sample: &Sample, period: Period) -> Option<HistogramPoint> {
    let Value::Buckets(buckets) = &sample.value else {
        return None;
    };
    let Buckets {
        bounds,
        counts,
        sum,
    } = buckets;
    Some(HistogramPoint {
        start_time_unix_nano: period.start_unix_nanos,
        time_unix_nano: period.end_unix_nanos,
        count: buckets.count(),
        sum: Some(*sum),
        bucket_counts: counts.clone(),
        explicit_bounds: bounds.clone(),
        attributes: labels_of(sample),
    })
}

fn labels_of(sample: &Sample) -> Vec<KeyValue> {
    let labels = sample.labels.iter();
    labels
        .map(|(name, text)| key_value(name, any_value::Value::Text(text.clone())))
        .collect()
}

fn record_of(record: &LogRecord) -> LogRecordMessage {
    let body = any_value::Value::Text(record.body.clone());
    let severity = match record.severity {
        Severity::Trace => SeverityNumber::Trace,
        Severity::Debug => SeverityNumber::Debug,
        Severity::Info => SeverityNumber::Info,
        Severity::Warn => SeverityNumber::Warn,
        Severity::Error => SeverityNumber::Error,
    };
    LogRecordMessage {
        time_unix_nano: record.unix_nanos,
        severity_number: severity.into(),
        severity_text: record.severity.name().into(),
        body: Some(AnyValue { value: Some(body) }),
        attributes: attributes_of(&record.attributes),
        observed_time_unix_nano: record.unix_nanos,
    }
}

fn attributes_of(attributes: &[(&str, Attribute)]) -> Vec<KeyValue> {
    let attributes = attributes.iter().map(|(key, value)| {
        let value = match value {
            Attribute::Text(text) => any_value::Value::Text(text.clone()),
            Attribute::Integer(number) => any_value::Value::Integer(*number),
            Attribute::Flag(flag) => any_value::Value::Flag(*flag),
        };
        key_value(key, value)
    });
    attributes.collect()
}

fn span_of(span: &Span) -> SpanMessage {
    SpanMessage {
        trace_id: span.trace_id.into(),
        span_id: span.span_id.into(),
        parent_span_id: span.parent.map_or_else(Vec::new, Into::into),
        name: span.name.into(),
        kind: match span.role {
            Role::Server => Kind::Server,
            Role::Producer => Kind::Producer,
        }
        .into(),
        start_time_unix_nano: span.start_unix_nanos,
        end_time_unix_nano: span.end_unix_nanos,
        attributes: attributes_of(&span.attributes),
        flags: SAMPLED,
    }
}

fn key_value(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests as serialised by the protocol's own implementation for Python.
    const METRICS: [&str; 6] = [
        "0a9c020a1b0a190a0c736572766963652e6e616d6512090a07746869636b657412fc010a090a07746869636b657412560a10",
        "615f6d657373616765735f746f74616c1201411a097b6d6573736167657d3a340a2e11010000000000000019020000000000",
        "00003107000000000000003a110a09646972656374696f6e12040a02696e10021801122e0a07625f726174696f1201421a01",
        "312a1d0a1b11010000000000000019020000000000000021000000000000e03f12670a09635f7365636f6e64731201431a01",
        "734a540a50110100000000000000190200000000000000210500000000000000290000000000803f40321802000000000000",
        "00000000000000000003000000000000003a10fca9f1d24d62503f000000000000f03f1002",
    ];
    const TRACES: [&str; 5] = [
        "0ade010a1b0a190a0c736572766963652e6e616d6512090a07746869636b657412be010a090a07746869636b657412700a10",
        "0101010101010101010101010101010112080202020202020202220803030303030303032a077075626c6973683002390100",
        "0000000000004102000000000000004a1a0a106d6573736167696e672e73797374656d12060a046d7174744a090a03716f73",
        "12021801850101000000123f0a1001010101010101010101010101010101120804040404040404042a0764656c6976657230",
        "04390100000000000000410300000000000000850101000000",
    ];

    const LOGS: [&str; 3] = [
        "0a87010a1b0a190a0c736572766963652e6e616d6512090a07746869636b657412680a090a07746869636b6574125b090700",
        "000000000000100d1a045741524e2a100a0e636c69656e74207265667573656432130a09636c69656e745f696412060a046c",
        "616d7032090a03716f7312021801320d0a0769735f73656c6612021001590700000000000000",
    ];

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn resource() -> [(String, String); 1] {
        [("service.name".into(), "thicket".into())]
    }

    #[test]
    fn metrics_are_encoded_by_their_kinds_and_those_without_samples_left_out() {
        let mut table = Table::default();
        table.family("a_messages_total", metric::Kind::Counter, "A");
        table.sample(&[("direction", "in")], 7_u64);
        table.single("b_ratio", metric::Kind::Gauge, "B", 0.5);
        table.single(
            "c_seconds",
            metric::Kind::Histogram,
            "C",
            Value::Buckets(Buckets {
                bounds: vec![0.001, 1.0],
                counts: vec![2, 0, 3],
                sum: 31.5,
            }),
        );
        table.family("d", metric::Kind::Gauge, "Of nothing");
        let period = Period {
            start_unix_nanos: 1,
            end_unix_nanos: 2,
        };
        let request = metrics_request(&resource(), &table, period);
        assert_eq!(hex(&request), METRICS.concat());
    }

    #[test]
    fn log_records_are_encoded_with_severity_and_attributes() {
        let record = LogRecord {
            unix_nanos: 7,
            severity: Severity::Warn,
            body: "client refused".into(),
            attributes: vec![
                ("client_id", Attribute::text("lamp")),
                ("qos", Attribute::Integer(1)),
                ("is_self", Attribute::Flag(true)),
            ],
        };
        let request = logs_request(&resource(), &[record]);
        assert_eq!(hex(&request), LOGS.concat());
    }

    #[test]
    fn spans_are_encoded_with_parent_kind_and_attributes() {
        let publish = Span {
            trace_id: [1; 16],
            span_id: [2; 8],
            parent: Some([3; 8]),
            name: "publish",
            role: Role::Server,
            start_unix_nanos: 1,
            end_unix_nanos: 2,
            attributes: vec![
                ("messaging.system", Attribute::text("mqtt")),
                ("qos", Attribute::Integer(1)),
            ],
        };
        let deliver = Span {
            span_id: [4; 8],
            parent: None,
            name: "deliver",
            role: Role::Producer,
            end_unix_nanos: 3,
            attributes: Vec::new(),
            ..publish.clone()
        };
        let request = traces_request(&resource(), &[publish, deliver]);
        assert_eq!(hex(&request), TRACES.concat());
    }
}
