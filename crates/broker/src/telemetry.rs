//! The telemetry of this node over OTLP.

use std::io;
use std::sync::Arc;

use thicket_overlay::NodeId;
use thicket_telemetry::{Exporter, ExporterConfig, ExporterError};

use crate::config::Config;
use crate::http::{Inspector, metrics_table};
use crate::log;
use crate::traces::TracePlan;

/// Starts the exporter, if it is configured.
pub(crate) fn start(
    config: &Config,
    name: &str,
    id: NodeId,
) -> Result<Option<Arc<Exporter>>, ExporterError> {
    let Some(plan) = &config.telemetry else {
        return Ok(None);
    };
    let resource = [
        ("service.name", "thicket"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", name),
        ("thicket.cluster.name", &config.cluster_name),
        ("thicket.node.id", &format!("{:016x}", id.0)),
    ];
    let resource = resource.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let exporter = Exporter::start(ExporterConfig {
        resource: resource.into(),
        ..plan.exporter.clone()
    })?;
    let exporter = Arc::new(exporter);
    if exporter.takes_logs() {
        log::export_to(&exporter);
    }
    Ok(Some(exporter))
}

/// How messages are traced; `None`: not at all.
pub(crate) fn traces(
    config: &Config,
    name: &str,
    exporter: Option<&Arc<Exporter>>,
) -> Option<TracePlan> {
    Some(TracePlan {
        tracing: config.telemetry.as_ref()?.traces?,
        exporter: Arc::clone(exporter?),
        node: name.into(),
    })
}

/// Starts to send the node's metrics, including those of the exporter.
pub(crate) fn start_metrics(exporter: &Exporter, inspector: Inspector) -> io::Result<()> {
    // Set once: a node has one exporter.
    let _ = inspector.counters.exporter.set(exporter.monitor());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    // If the node does not answer, this export is skipped; its log has the cause.
    exporter.start_metrics(move || runtime.block_on(metrics_table(&inspector)).ok())
}
