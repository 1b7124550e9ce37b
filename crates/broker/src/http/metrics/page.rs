//! The table of metrics under construction, to which each subject appends its families.

use thicket_telemetry::Kind::{self, Histogram};
use thicket_telemetry::{Buckets, Table, Value};

use crate::histogram::Distribution;

/// A table under construction.
#[derive(Debug, Default)]
pub(super) struct Page(pub(super) Table);

impl Page {
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.0.family(name, kind, help);
    }

    /// Adds a value to the metric that was begun last.
    pub(super) fn sample(&mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) {
        self.0.sample(labels, value);
    }

    pub(super) fn single(
        &mut self,
        name: &'static str,
        kind: Kind,
        help: &'static str,
        value: u64,
    ) {
        self.0.single(name, kind, help, value);
    }

    pub(super) fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        found: &Distribution,
    ) {
        // Buckets are read one by one while threads count, so the total may lag behind them.
        let beyond = found.count.saturating_sub(found.within.iter().sum());
        let buckets = Buckets {
            bounds: found.bounds.to_vec(),
            counts: found.within.into_iter().chain([beyond]).collect(),
            sum: found.seconds,
        };
        self.0
            .single(name, Histogram, help, Value::Buckets(buckets));
    }
}
