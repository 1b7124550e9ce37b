//! The text format of Prometheus.

use std::fmt::Write;

use crate::metric::{Buckets, Table, Value};

/// The page that Prometheus scrapes.
#[must_use]
pub fn text(table: &Table) -> String {
    let mut page = String::new();
    for family in &table.families {
        let (name, kind, help) = (family.name, family.kind.name(), family.help);
        // Writing to a string cannot fail.
        let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for sample in &family.samples {
            let labels = Labels(&sample.labels);
            let _ = match &sample.value {
                Value::Integer(value) => writeln!(page, "{name}{} {value}", labels.with(None)),
                Value::Float(value) => writeln!(page, "{name}{} {value}", labels.with(None)),
                Value::Buckets(buckets) => histogram(&mut page, name, &labels, buckets),
            };
        }
    }
    page
}

/// Buckets are cumulative in this format.
fn histogram(
    page: &mut String,
    name: &str,
    labels: &Labels<'_>,
    buckets: &Buckets,
) -> std::fmt::Result {
    let mut within = 0;
    for (bound, count) in buckets.bounds.iter().zip(&buckets.counts) {
        within += count;
        let labels = labels.with(Some(&bound.to_string()));
        writeln!(page, "{name}_bucket{labels} {within}")?;
    }
    let (count, plain) = (buckets.count(), labels.with(None));
    writeln!(page, "{name}_bucket{} {count}", labels.with(Some("+Inf")))?;
    writeln!(page, "{name}_sum{plain} {}", buckets.sum)?;
    writeln!(page, "{name}_count{plain} {count}")
}

struct Labels<'a>(&'a [(&'static str, String)]);

impl Labels<'_> {
    /// The labels in braces; nothing if there are none. `le`: the bound of a bucket.
    fn with(&self, le: Option<&str>) -> String {
        let own = self
            .0
            .iter()
            .map(|(label, text)| format!("{label}=\"{}\"", escaped(text)));
        let all: Vec<_> = own
            .chain(le.map(|bound| format!("le=\"{bound}\"")))
            .collect();
        if all.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", all.join(","))
        }
    }
}

/// Escapes backslash, quote and line end in a label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Kind;

    #[test]
    fn each_kind_has_its_lines() {
        let mut table = Table::default();
        table.family("a_total", Kind::Counter, "Of A");
        table.sample(&[("who", "x\"\\\ny"), ("what", "z")], 7_u64);
        table.single("b_seconds", Kind::Gauge, "Of B", 0.5);
        table.single(
            "c_seconds",
            Kind::Histogram,
            "Of C",
            Value::Buckets(Buckets {
                bounds: vec![0.001, 1.0],
                counts: vec![2, 0, 3],
                sum: 31.5,
            }),
        );
        let expected = r#"# HELP a_total Of A
# TYPE a_total counter
a_total{who="x\"\\\ny",what="z"} 7
# HELP b_seconds Of B
# TYPE b_seconds gauge
b_seconds 0.5
# HELP c_seconds Of C
# TYPE c_seconds histogram
c_seconds_bucket{le="0.001"} 2
c_seconds_bucket{le="1"} 2
c_seconds_bucket{le="+Inf"} 5
c_seconds_sum 31.5
c_seconds_count 5
"#;
        assert_eq!(text(&table), expected);
    }
}
