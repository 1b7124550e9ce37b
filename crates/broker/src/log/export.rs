//! Exports lines of the log as OTLP log records.

use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::SystemTime;

use thicket_telemetry::{Attribute, Exporter, LogRecord, Severity, unix_nanos};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// One for the process, like the log.
static EXPORTER: RwLock<Weak<Exporter>> = RwLock::new(Weak::new());

/// Target of the lines that exporting causes: a line about a request must not cause the next request.
const OWN_TARGET: &str = "thicket_telemetry";

/// From now on lines are also sent to this exporter, as long as it exists.
pub(crate) fn export_to(exporter: &Arc<Exporter>) {
    let mut current = EXPORTER.write().unwrap_or_else(PoisonError::into_inner);
    *current = Arc::downgrade(exporter);
}

/// Hands every line to the exporter, if there is one.
pub(super) struct Export;

impl<S: Subscriber> Layer<S> for Export {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with(OWN_TARGET) {
            return;
        }
        let exporter = EXPORTER.read().unwrap_or_else(PoisonError::into_inner);
        let exporter = exporter.upgrade();
        if let Some(exporter) = exporter {
            exporter.submit_log(record_of(event));
        }
    }
}

fn record_of(event: &Event<'_>) -> LogRecord {
    let mut line = Line::default();
    event.record(&mut line);
    LogRecord {
        unix_nanos: unix_nanos(SystemTime::now()),
        severity: match *event.metadata().level() {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warn,
            Level::INFO => Severity::Info,
            Level::DEBUG => Severity::Debug,
            Level::TRACE => Severity::Trace,
        },
        body: LogRecord::body(line.message),
        attributes: line.fields,
    }
}

/// Message and fields of a line.
#[derive(Default)]
struct Line {
    message: String,
    fields: Vec<(&'static str, Attribute)>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.fields.push((field.name(), Attribute::text(&text)));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), Attribute::text(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.push((field.name(), Attribute::Integer(value)));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.record_i64(field, value),
            Err(_) => self.record_str(field, &value.to_string()),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.push((field.name(), Attribute::Flag(value)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    struct Kept(Arc<Mutex<Vec<LogRecord>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().expect("no panic").push(record_of(event));
        }
    }

    #[test]
    fn a_line_becomes_a_record_with_its_fields_as_attributes() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Kept(Arc::clone(&kept)));
        let peer: std::net::IpAddr = [127, 0, 0, 1].into();
        tracing::subscriber::with_default(subscriber, || {
            let (client_id, nothing) = (Some("lamp"), None::<u64>);
            let most = u64::MAX;
            tracing::warn!(client_id, %peer, nodes = 3, most, nothing, is_self = true, "a line of {}", "text");
        });
        let records = std::mem::take(&mut *kept.lock().expect("no panic"));
        let [record] = &*records else {
            panic!("{records:?}");
        };
        assert_eq!(
            (record.severity, &*record.body),
            (Severity::Warn, "a line of text")
        );
        let expected = [
            ("client_id", Attribute::text("lamp")),
            ("peer", Attribute::text("127.0.0.1")),
            ("nodes", Attribute::Integer(3)),
            ("most", Attribute::text("18446744073709551615")),
            ("is_self", Attribute::Flag(true)),
        ];
        assert_eq!(record.attributes, expected);
    }
}
