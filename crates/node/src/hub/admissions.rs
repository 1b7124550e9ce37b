//! Messages of other nodes that more than one worker has to admit. What goes to only one worker is acknowledged when that worker admits it.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::messages::{NumberRuns, Origin};

/// Numbers in a row, by the first of them, that the same number of workers have still to admit.
type Runs = BTreeMap<u64, Awaited>;

#[derive(Debug, Clone, Copy)]
struct Awaited {
    last: u64,
    /// Workers that have not admitted them.
    open: u32,
}

/// All of them. Workers admit what they accepted in a round at once, so that few runs stand for many messages.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    open: HashMap<Origin, Runs, foldhash::fast::FixedState>,
}

impl Admissions {
    /// Expects each of these numbers to be admitted by `workers` workers.
    pub fn expect(&mut self, origin: Origin, (first, last): (u64, u64), workers: u32) {
        let runs = self.open.entry(origin).or_default();
        match runs.last_entry() {
            Some(mut before) if before.get().last < first => {
                let before = before.get_mut();
                if before.last + 1 == first && before.open == workers {
                    before.last = last;
                    return;
                }
            }
            Some(_) => {
                cut(runs, first, last);
                let known: Vec<u64> = runs.range(first..=last).map(|(first, _)| *first).collect();
                for first in known {
                    runs.remove(&first);
                }
            }
            None => {}
        }
        let open = workers;
        runs.insert(first, Awaited { last, open });
    }

    /// A worker has admitted these numbers. Returns those of them that no other has still to admit, ascending.
    pub fn admit(&mut self, origin: Origin, numbers: &NumberRuns) -> NumberRuns {
        let mut done = NumberRuns::new();
        let Some(runs) = self.open.get_mut(&origin) else {
            done.extend(numbers);
            return done;
        };
        for &(first, last) in numbers {
            cut(runs, first, last);
            let mut next = first;
            let mut closed = Vec::new();
            for (run_first, run) in runs.range_mut(first..=last) {
                // Numbers that are in no run were for one worker.
                push(&mut done, next, *run_first - 1);
                next = run.last + 1;
                run.open -= 1;
                if run.open == 0 {
                    push(&mut done, *run_first, run.last);
                    closed.push(*run_first);
                }
            }
            push(&mut done, next, last);
            for first in closed {
                runs.remove(&first);
            }
        }
        if runs.is_empty() {
            self.open.remove(&origin);
        }
        done
    }
}

/// No run begins before these numbers and reaches into them, or begins among them and ends behind.
fn cut(runs: &mut Runs, first: u64, last: u64) {
    for at in [first, last + 1] {
        if let Some((_, run)) = runs.range_mut(..at).next_back()
            && run.last >= at
        {
            let rest = *run;
            run.last = at - 1;
            runs.insert(at, rest);
        }
    }
}

/// Adds numbers, if there are any, to those that are done.
fn push(done: &mut NumberRuns, first: u64, last: u64) {
    match done.last_mut() {
        _ if last < first => {}
        Some((_, before)) if *before + 1 == first => *before = last,
        Some(_) | None => done.push((first, last)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thicket_overlay::{Incarnation, NodeId, StreamId};

    use super::*;

    fn origin(node: u64) -> Origin {
        Origin {
            node: NodeId(node),
            incarnation: Incarnation(1),
            stream: StreamId(0),
        }
    }

    #[test]
    fn a_number_is_done_when_all_its_workers_have_admitted_it() {
        let mut admissions = Admissions::default();
        for number in (1..=5).chain(7..=10) {
            admissions.expect(origin(1), (number, number), 2);
        }
        admissions.expect(origin(1), (11, 20), 3);
        admissions.expect(origin(2), (1, 5), 2);
        let steps: [(&str, NumberRuns, NumberRuns); 9] = [
            (
                "for one worker",
                vec![(6, 6), (30, 40)],
                vec![(6, 6), (30, 40)],
            ),
            ("the first of two", vec![(1, 8)], vec![(6, 6)]),
            ("the second, in part", vec![(3, 4)], vec![(3, 4)]),
            (
                "the second of some, the first of others",
                vec![(5, 10)],
                vec![(5, 8)],
            ),
            ("the rest", vec![(1, 2), (9, 10)], vec![(1, 2), (9, 10)]),
            ("the first of three", vec![(11, 20)], vec![]),
            ("the second of three", vec![(15, 20)], vec![]),
            ("the second and the third", vec![(11, 16)], vec![(15, 16)]),
            (
                "the last",
                vec![(11, 14), (17, 20)],
                vec![(11, 14), (17, 20)],
            ),
        ];
        for (name, admitted, done) in steps {
            assert_eq!(admissions.admit(origin(1), &admitted), done, "{name}");
        }
        assert!(!admissions.open.contains_key(&origin(1)), "nothing is open");
        assert_eq!(admissions.admit(origin(2), &vec![(1, 5)]), []);
        assert_eq!(admissions.admit(origin(2), &vec![(1, 5)]), [(1, 5)]);
        assert!(admissions.open.is_empty());
    }

    #[test]
    fn runs_say_what_single_numbers_would() {
        let mut random = 7_u64;
        let mut draw = |bound: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % bound
        };
        let mut admissions = Admissions::default();
        let mut open: BTreeMap<u64, u32> = BTreeMap::new();
        for _ in 0..2_000 {
            let first = 1 + draw(60);
            let last = first + draw(12);
            if draw(3) == 0 {
                let workers = 2 + draw(3) as u32;
                admissions.expect(origin(1), (first, last), workers);
                open.extend((first..=last).map(|number| (number, workers)));
                continue;
            }
            let mut expected = Vec::new();
            for number in first..=last {
                let left = open.get(&number).map_or(0, |open| open - 1);
                if left == 0 {
                    open.remove(&number);
                    expected.push(number);
                } else {
                    open.insert(number, left);
                }
            }
            let done = admissions.admit(origin(1), &vec![(first, last)]);
            let done: Vec<u64> = done.into_iter().flat_map(|(from, to)| from..=to).collect();
            assert_eq!(done, expected);
        }
    }
}
