//! Ways to attach compared with the first one: ratios within a seed, with their confidence.

use serde::Serialize;

use super::{Attach, PlacementOutcome};
use crate::report::Table;
use crate::statistics::estimate;

/// One way to attach beside the first one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairedRatio {
    /// How clients attach.
    pub attach: Attach,
    /// The way it is compared with.
    pub over: Attach,
    /// Seeds that played both.
    pub seeds: usize,
    /// CPU a message divided by that of the other way with the same seed: the geometric mean over the seeds.
    pub cpu: f64,
    /// The ends of its 95 % confidence interval, by Student's t of the logarithms; `None` with one seed.
    pub cpu_95: Option<[f64; 2]>,
    /// Messages between nodes, all seeds together, divided by those of the other way; `None` if there are none there.
    pub internal: Option<f64>,
}

/// Compares the ways of `attach` with the first of them.
#[must_use]
pub fn paired_ratios(attach: &[Attach], outcomes: &[PlacementOutcome]) -> Vec<PairedRatio> {
    let Some((&over, others)) = attach.split_first() else {
        return Vec::new();
    };
    let ratio = |&attach: &Attach| {
        let pairs: Vec<(&PlacementOutcome, &PlacementOutcome)> = outcomes
            .iter()
            .filter(|one| one.attach == attach)
            .filter_map(|one| {
                let same = |base: &&PlacementOutcome| base.attach == over && base.seed == one.seed;
                Some((one, outcomes.iter().find(same)?))
            })
            .collect();
        let logarithms: Vec<f64> = (pairs.iter())
            .map(|(one, base)| (one.cpu_us / base.cpu_us).ln())
            .collect();
        let cpu = estimate(&logarithms).filter(|cpu| cpu.mean.is_finite())?;
        let sum = |(one, base): (f64, f64), pair: &(&PlacementOutcome, &PlacementOutcome)| {
            (one + pair.0.internal_per_s, base + pair.1.internal_per_s)
        };
        let internal = pairs.iter().fold((0.0, 0.0), sum);
        Some(PairedRatio {
            attach,
            over,
            seeds: pairs.len(),
            cpu: cpu.mean.exp(),
            cpu_95: (cpu.half_width_95)
                .map(|half| [(cpu.mean - half).exp(), (cpu.mean + half).exp()]),
            internal: (internal.1 > 0.0).then(|| internal.0 / internal.1),
        })
    };
    others.iter().filter_map(ratio).collect()
}

/// The ratios as a table; `None` if there are none.
pub(super) fn table(ratios: &[PairedRatio]) -> Option<Table> {
    let over = ratios.first()?.over.name();
    let mut table = Table::new([
        "clients attach",
        &format!("CPU a message, over {over}"),
        "95 %: from",
        "to",
        "seeds",
        &format!("between nodes, over {over}"),
    ]);
    for one in ratios {
        let end =
            |index: usize| (one.cpu_95).map_or("-".to_owned(), |it| format!("{:.3}", it[index]));
        let internal = one.internal.map_or("-".to_owned(), |it| format!("{it:.3}"));
        table.row([
            one.attach.name(),
            format!("{:.3}", one.cpu),
            end(0),
            end(1),
            one.seeds.to_string(),
            internal,
        ]);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;

    const PLACED: Attach = Attach::Placed { max_sessions: 4 };

    /// Outcomes of both ways by seed, in any order: CPU at random and placed.
    fn outcomes(cpu: &[(f64, f64)]) -> Vec<PlacementOutcome> {
        let of = |attach, seed: usize, internal, cpu_us| PlacementOutcome {
            cpu_us,
            ..outcome(attach, seed as u64, internal)
        };
        let both = |(seed, (random, placed)): (usize, &(f64, f64))| {
            let random = of(Attach::Random, seed, 20.0, *random);
            let placed = of(PLACED, seed, 1.0, *placed);
            if seed % 2 == 1 {
                [placed, random]
            } else {
                [random, placed]
            }
        };
        cpu.iter().enumerate().flat_map(both).collect()
    }

    #[test]
    fn a_ratio_is_taken_within_a_seed() {
        // The machine is four times as slow in the second seed, and the ratios are 0.5 and 0.5.
        let outcomes = outcomes(&[(10.0, 5.0), (40.0, 20.0)]);
        let ratios = paired_ratios(&[Attach::Random, PLACED], &outcomes);
        let [ratio] = &*ratios else {
            panic!("{ratios:?}")
        };
        assert_eq!(
            (ratio.attach, ratio.over, ratio.seeds),
            (PLACED, Attach::Random, 2)
        );
        assert!((ratio.cpu - 0.5).abs() < 1e-9, "{ratio:?}");
        let [from, to] = ratio.cpu_95.unwrap();
        assert!(
            (from - 0.5).abs() < 1e-9 && (to - 0.5).abs() < 1e-9,
            "{ratio:?}"
        );
        assert_eq!(ratio.internal, Some(0.05));
    }

    #[test]
    fn the_interval_is_that_of_a_worked_example() {
        // Logarithms of 0 and 0.2: mean 0.1, standard deviation 0.1414, half width 12.706 * 0.1.
        let outcomes = outcomes(&[(1.0, 1.0), (1.0, 0.2_f64.exp())]);
        let ratios = paired_ratios(&[Attach::Random, PLACED], &outcomes);
        let [from, to] = ratios[0].cpu_95.unwrap();
        assert!((ratios[0].cpu - 0.1_f64.exp()).abs() < 1e-9);
        assert!((from - (0.1_f64 - 1.2706).exp()).abs() < 1e-6, "{from}");
        assert!((to - (0.1_f64 + 1.2706).exp()).abs() < 1e-6, "{to}");
    }

    #[test]
    fn one_seed_has_no_interval_and_one_way_no_ratio() {
        let outcomes = outcomes(&[(2.0, 1.0)]);
        let ratios = paired_ratios(&[Attach::Random, PLACED], &outcomes);
        assert_eq!(ratios[0].cpu_95, None);
        let text = table(&ratios).unwrap().to_text();
        assert!(text.contains("CPU a message, over at random"), "{text}");
        let row = text.lines().last().unwrap();
        let words: Vec<&str> = row.split_whitespace().skip(5).collect();
        assert_eq!(words, ["0.500", "-", "-", "1", "0.050"], "{text}");
        assert_eq!(paired_ratios(&[PLACED], &outcomes), []);
        assert_eq!(table(&[]), None);
    }

    #[test]
    fn a_seed_that_lacks_one_way_is_left_out() {
        let mut outcomes = outcomes(&[(2.0, 1.0), (2.0, 1.0)]);
        outcomes.pop();
        let ratios = paired_ratios(&[PLACED, Attach::Random], &outcomes);
        assert_eq!(ratios[0].seeds, 1, "{ratios:?}");
    }
}
