//! The cost of TLS: by how much it lowers the highest sustainable rate (Comparison M6).

use crate::summary::{Row, SUSTAINABLE as RATE, number};

/// The parameter it is about.
const TLS: &str = "workload.tls";

/// A system whose rate was measured without and with TLS.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    /// Its name, with its other parameters.
    pub name: String,
    pub plain_per_s: f64,
    pub tls_per_s: f64,
    /// Whether the first, and the second, was limited by the load generator, so that the broker's rate is at least that.
    pub is_lower_bound: [bool; 2],
}

impl Cost {
    /// The rate without TLS.
    pub fn plain(&self) -> String {
        bounded(self.plain_per_s, self.is_lower_bound[0])
    }

    /// The rate with TLS.
    pub fn with_tls(&self) -> String {
        bounded(self.tls_per_s, self.is_lower_bound[1])
    }

    /// By how much TLS lowers the rate, as far as the two rates determine it.
    pub fn lowering(&self) -> String {
        let percent = 100.0 * self.lowered_by();
        match self.is_lower_bound {
            [false, false] => format!("{percent:.0} %"),
            [true, false] => format!("at least {percent:.0} %"),
            [false, true] => format!("at most {percent:.0} %"),
            [true, true] => "not known: the load generator was the limit".to_owned(),
        }
    }

    /// By how much TLS lowers the rate, as a share; 0.25: to three quarters.
    pub fn lowered_by(&self) -> f64 {
        1.0 - self.tls_per_s / self.plain_per_s
    }
}

fn bounded(rate: f64, is_lower_bound: bool) -> String {
    let rate = number(rate);
    if is_lower_bound {
        format!("at least {rate}")
    } else {
        rate
    }
}

/// One for each system and combination of other parameters; empty where TLS was not varied.
pub(crate) fn costs(rows: &[Row]) -> Vec<Cost> {
    let of = |row: &Row, tls: &str| {
        let is = |(key, value): &(String, String)| key == TLS && value == tls;
        let rate = row.figures.get(RATE).filter(|rate| rate.mean > 0.0)?;
        (row.parameters.iter().any(is)).then(|| (rate.mean, row.is_lower_bound()))
    };
    let others = |row: &Row| row.name(|key| key != TLS);
    let cost = |row: &Row| {
        let (name, plain) = (others(row), of(row, "false")?);
        let same = rows.iter().filter(|other| others(other) == name);
        let tls = same.filter_map(|other| of(other, "true")).next()?;
        Some(Cost {
            name,
            plain_per_s: plain.0,
            tls_per_s: tls.0,
            is_lower_bound: [plain.1, tls.1],
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

    #[test]
    fn a_rate_that_the_generator_limits_is_said_to_be_one() {
        let cost = |is_lower_bound| Cost {
            name: "a".to_owned(),
            plain_per_s: 4000.0,
            tls_per_s: 3000.0,
            is_lower_bound,
        };
        assert_eq!(cost([false, false]).lowering(), "25 %");
        assert_eq!(cost([true, false]).lowering(), "at least 25 %");
        assert_eq!(cost([true, false]).plain(), "at least 4000");
        assert_eq!(cost([false, true]).lowering(), "at most 25 %");
        assert!(cost([true, true]).lowering().starts_with("not known"));
    }
}
