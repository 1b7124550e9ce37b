//! What TLS costs: by how much it lowers the highest sustainable rate (Comparison M6).

use crate::summary::Row;

/// The parameter it is about.
const TLS: &str = "workload.tls";
const RATE: &str = "sustainable_msgs_per_s";

/// A system whose rate is known without and with TLS.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    /// Its name, with its other parameters.
    pub name: String,
    pub plain_per_s: f64,
    pub tls_per_s: f64,
}

impl Cost {
    /// By how much TLS lowers the rate: 0.25: to three quarters.
    pub fn lowered_by(&self) -> f64 {
        1.0 - self.tls_per_s / self.plain_per_s
    }
}

/// One for each system and combination of other parameters; empty where TLS was not varied.
pub(crate) fn costs(rows: &[Row]) -> Vec<Cost> {
    let of = |row: &Row, tls: &str| {
        let is = |(key, value): &(String, String)| key == TLS && value == tls;
        let rate = row.figures.get(RATE).filter(|rate| rate.mean > 0.0)?;
        row.parameters.iter().any(is).then_some(rate.mean)
    };
    let others = |row: &Row| row.name(|key| key != TLS);
    let cost = |row: &Row| {
        let (name, plain_per_s) = (others(row), of(row, "false")?);
        let same = rows.iter().filter(|other| others(other) == name);
        let tls_per_s = same.filter_map(|other| of(other, "true")).next()?;
        Some(Cost {
            name,
            plain_per_s,
            tls_per_s,
        })
    };
    rows.iter().filter_map(cost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use thicket_bench::statistics::estimate;

    #[test]
    fn the_cost_is_between_two_cells_that_differ_in_tls_alone() {
        let row = |tls: &str, qos: &str, rate: f64| Row {
            system: "a".to_owned(),
            parameters: vec![
                (TLS.to_owned(), tls.to_owned()),
                ("workload.qos".to_owned(), qos.to_owned()),
            ],
            figures: BTreeMap::from([(RATE.to_owned(), estimate(&[rate]).unwrap())]),
            invalid: 0,
        };
        let rows = [
            row("false", "0", 28_000.0),
            row("false", "1", 10_000.0),
            row("true", "1", 8_000.0),
            row("true", "0", 16_000.0),
        ];
        let costs = costs(&rows);
        let found: Vec<(&str, f64)> = costs
            .iter()
            .map(|cost| (cost.name.as_str(), (100.0 * cost.lowered_by()).round()))
            .collect();
        assert_eq!(found, [("a, qos = 0", 43.0), ("a, qos = 1", 20.0)]);
    }
}
