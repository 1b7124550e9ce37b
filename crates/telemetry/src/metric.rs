//! The description of metrics: name, type, help, and a value for each set of labels.

/// What a metric counts or measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rises only, while the node runs.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts in buckets, and the sum of the values.
    Histogram,
}

impl Kind {
    /// Its name for Prometheus.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A value: [`Buckets`] for a histogram, a number for the other kinds.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// A histogram.
    Buckets(Buckets),
}

/// Counts of values by bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    /// Upper bounds, inclusive and ascending.
    pub bounds: Vec<f64>,
    /// Number of values in each bucket alone; one entry more than there are bounds, for values above the last.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

impl Buckets {
    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl From<u64> for Value {
    /// A value that does not fit (no counter gets that far) becomes the largest number.
    fn from(value: u64) -> Self {
        Self::Integer(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<&u64> for Value {
    fn from(value: &u64) -> Self {
        Self::from(*value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::from(value as u64)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&i64> for Value {
    fn from(value: &i64) -> Self {
        Self::Integer(*value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

/// A value and its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name and text, in the order in which they are written.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
}

/// A metric with all its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// By the rules of Prometheus: counters end in `_total`, and the name contains the unit.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What it means.
    pub help: &'static str,
    /// Each set of labels once.
    pub samples: Vec<Sample>,
}

/// Units by the last word of a name, in the case-sensitive codes of UCUM.
const UNITS: [(&str, &str); 14] = [
    ("_messages_per_second", "{message}/s"),
    ("_bytes_per_second", "By/s"),
    ("_seconds", "s"),
    ("_bytes", "By"),
    ("_ratio", "1"),
    ("_messages", "{message}"),
    ("_connections", "{connection}"),
    ("_sessions", "{session}"),
    ("_subscriptions", "{subscription}"),
    ("_nodes", "{node}"),
    ("_requests", "{request}"),
    ("_events", "{event}"),
    ("_spans", "{span}"),
    ("_records", "{record}"),
];

impl Family {
    /// The unit, according to its name; empty: none. It is "1" only for ratios: collectors append `_ratio` to such names.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        let unit = UNITS.iter().find(|(word, _)| name.ends_with(word));
        unit.map_or("", |(_, unit)| unit)
    }
}

/// Metrics at one moment, each once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// In the order in which they are written.
    pub families: Vec<Family>,
}

impl Table {
    /// Begins a metric, to which the samples that follow belong.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.families.push(Family {
            name,
            kind,
            help,
            samples: Vec::new(),
        });
    }

    /// Adds a value to the metric that was begun last.
    pub fn sample(&mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) {
        let labels = labels.iter();
        let sample = Sample {
            labels: labels
                .map(|(name, text)| (*name, (*text).to_owned()))
                .collect(),
            value: value.into(),
        };
        let family = self.families.last_mut();
        family
            .expect("a metric begins with its family")
            .samples
            .push(sample);
    }

    /// Adds a metric with one value and no labels.
    pub fn single(
        &mut self,
        name: &'static str,
        kind: Kind,
        help: &'static str,
        value: impl Into<Value>,
    ) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_that_names_end_in() {
        for (name, unit) in [
            ("thicket_bytes_total", "By"),
            ("process_cpu_seconds_total", "s"),
            ("thicket_round_seconds", "s"),
            ("thicket_node_bytes_per_second", "By/s"),
            ("thicket_node_cpu_ratio", "1"),
            ("thicket_certificate_expiry_seconds", "s"),
            ("thicket_dropped_messages_total", "{message}"),
            ("thicket_is_minority", ""),
        ] {
            let family = Family {
                name,
                kind: Kind::Gauge,
                help: "",
                samples: Vec::new(),
            };
            assert_eq!(family.unit(), unit, "{name}");
        }
    }
}
