//! Metrics as they are described once: name, type, help, and a value for each set of labels.

/// What a metric counts or measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises while the node runs.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts in buckets, with the sum of what was counted.
    Histogram,
}

impl Kind {
    /// As Prometheus calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A value. Of a histogram it is a [`Buckets`], of the other kinds a number.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// Any other.
    Float(f64),
    /// A histogram.
    Buckets(Buckets),
}

/// How many values came to lie in which bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    /// Upper bounds, inclusive and ascending.
    pub bounds: Vec<f64>,
    /// Values of each bucket alone: one entry more than there are bounds, for those above the last one.
    pub counts: Vec<u64>,
    /// All values together.
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
    /// What does not fit (nothing counts that far) is the largest number that does.
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
    /// By the rules of Prometheus: counters end in `_total`, the unit stands in the name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What it means.
    pub help: &'static str,
    /// Each set of labels once.
    pub samples: Vec<Sample>,
}

/// Units by the word that stands for them at the end of a name, in the case-sensitive codes of UCUM.
const UNITS: [(&str, &str); 15] = [
    ("_messages_per_second", "{message}/s"),
    ("_bytes_per_second", "By/s"),
    ("_seconds", "s"),
    ("_bytes", "By"),
    ("_days", "d"),
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
    /// The unit, as its name has it; empty: none. It is never "1" for what is no ratio: collectors put `_ratio` behind such names.
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
    /// Begins a metric; samples that follow are its own.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.families.push(Family {
            name,
            kind,
            help,
            samples: Vec::new(),
        });
    }

    /// A value of the metric that was begun last.
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

    /// A metric with one value and no labels.
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
            ("thicket_certificate_expiry_days", "d"),
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
