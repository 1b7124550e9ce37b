//! Metrics of a node, described once and encoded for Prometheus and OTLP; and the exporter that sends telemetry over OTLP.
//!
//! A [`Table`] has the metrics of one moment. [`prometheus::text`] writes the page that is scraped, [`metrics_request`] the request of OTLP. An
//! [`Exporter`] posts metrics once an interval, and spans and log records in batches from bounded queues, over HTTP with protobuf. It never blocks
//! its callers: what exceeds a queue is dropped and counted. The sources of metrics, spans and lines are left to the caller.
//!
//! ```
//! use thicket_telemetry::{Kind, Table, prometheus};
//!
//! let mut table = Table::default();
//! table.family("thicket_messages_total", Kind::Counter, "Messages");
//! table.sample(&[("direction", "in")], 7_u64);
//! let page = prometheus::text(&table);
//! assert!(page.ends_with("thicket_messages_total{direction=\"in\"} 7\n"));
//! ```

mod encode;
mod exporter;
mod headers;
mod message;
mod metric;
pub mod prometheus;
mod record;
mod sender;
mod shared;
mod span;

use std::path::PathBuf;
use std::time::Duration;

pub use encode::{Period, logs_request, metrics_request, traces_request};
pub use exporter::{Exporter, ExporterError, Monitor, Statistics, unix_nanos};
pub use headers::Headers;
pub use metric::{Buckets, Family, Kind, Sample, Table, Value};
pub use record::{LogRecord, Severity};
pub use sender::PATHS;
pub use shared::{Items, Requests};
pub use span::{Attribute, Role, Span};

/// The receiver of an exporter, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExporterConfig {
    /// `http://` or `https://`; the paths of OTLP, such as `/v1/metrics`, are appended.
    pub endpoint: String,
    /// PEM file of the authorities that the certificate of an `https` receiver is checked against; `None`: those the system trusts.
    pub authorities: Option<PathBuf>,
    /// Headers of every request.
    pub headers: Headers,
    /// Attributes of the resource, which identify the node; each name once.
    pub resource: Vec<(String, String)>,
    /// Time between two requests with metrics.
    pub interval: Duration,
    /// How long a request may take.
    pub timeout: Duration,
    /// Most spans that wait.
    pub queue_spans: usize,
    /// Most log records that wait; `None`: none are sent.
    pub queue_log_records: Option<usize>,
}

impl ExporterConfig {
    /// An exporter with the defaults.
    #[must_use]
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            authorities: None,
            headers: Headers::default(),
            resource: Vec::new(),
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(5),
            queue_spans: 2048,
            queue_log_records: None,
        }
    }
}
