//! From tables of metrics and lists of spans to the bytes of OTLP.

use prost::Message;

use crate::message::{
    AnyValue, ExportMetrics, ExportTraces, Gauge, Histogram, HistogramPoint, KeyValue, Kind,
    Metric, NumberPoint, Resource, ResourceMetrics, ResourceSpans, Scope, ScopeMetrics, ScopeSpans,
    SpanMessage, Sum, Temporality, any_value, metric::Data, number_point,
};
use crate::metric::{self, Buckets, Family, Sample, Table, Value};
use crate::span::{Attribute, Role, Span};

/// In the flags of a span: it is known whether its parent is of another process, and it is (bits 8 and 9).
const IS_REMOTE_KNOWN: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// The trace is sampled: the flag of `traceparent`.
const SAMPLED: u32 = 1;

/// The time between which counters counted, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// When they were 0.
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

fn scope() -> Scope {
    Scope {
        name: "thicket".into(),
        version: env!("CARGO_PKG_VERSION").into(),
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

fn span_of(span: &Span) -> SpanMessage {
    let parent = span.parent.as_ref();
    let attributes = span.attributes.iter().map(|(key, value)| {
        let value = match value {
            Attribute::Text(text) => any_value::Value::Text(text.clone()),
            Attribute::Integer(number) => any_value::Value::Integer(*number),
        };
        key_value(key, value)
    });
    let is_remote = parent.is_some_and(|it| it.is_remote);
    SpanMessage {
        trace_id: span.trace_id.into(),
        span_id: span.span_id.into(),
        parent_span_id: parent.map_or_else(Vec::new, |it| it.span_id.into()),
        name: span.name.into(),
        kind: match span.role {
            Role::Server => Kind::Server,
            Role::Producer => Kind::Producer,
        }
        .into(),
        start_time_unix_nano: span.start_unix_nanos,
        end_time_unix_nano: span.end_unix_nanos,
        attributes: attributes.collect(),
        flags: SAMPLED | IS_REMOTE_KNOWN | if is_remote { IS_REMOTE } else { 0 },
    }
}

fn key_value(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue { value: Some(value) }),
    }
}
