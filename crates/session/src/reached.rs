//! Rare branches, counted while tests run: which of them a simulation has reached, and which time-outs it has crossed.
//!
//! A point is named where it is: `reach!("hub/claims: a claim is made again")`. It is counted for the thread that runs it, so that a simulation,
//! which runs in one, has its own counts. Release builds have none of it.

use std::{cell::RefCell, collections::BTreeMap};

thread_local! {
    static REACHED: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts a point of the code. A point whose name begins with `time ` is where a constant of time has passed.
#[macro_export]
macro_rules! reach {
    ($point:literal) => {
        if cfg!(debug_assertions) {
            $crate::reached::note($point);
        }
    };
}

/// Counts a point; see [`reach!`](crate::reach).
pub fn note(point: &'static str) {
    REACHED.with_borrow_mut(|reached| *reached.entry(point).or_default() += 1);
}

/// The points that were reached on this thread more often than `known` says, which is brought up to date.
pub fn new_since(known: &mut BTreeMap<&'static str, u64>) -> Vec<&'static str> {
    REACHED.with_borrow(|reached| {
        let is_new = |(point, count): &(&&'static str, &u64)| known.get(*point) != Some(count);
        let new: Vec<_> = reached
            .iter()
            .filter(is_new)
            .map(|(point, _)| *point)
            .collect();
        for point in &new {
            known.insert(point, reached[point]);
        }
        new
    })
}

/// How often each point was reached on this thread since the last call.
#[must_use]
pub fn take() -> BTreeMap<&'static str, u64> {
    REACHED.take()
}
