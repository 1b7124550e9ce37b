//! Messages that this worker accepted and that others have not all admitted yet: what an acknowledgement to the publisher waits for.

use std::collections::VecDeque;

/// Numbers of one stream with what is owed when their conditions are met.
#[derive(Debug)]
pub(in crate::worker) struct Pending<T> {
    /// Number of `slots[0]`.
    first: u64,
    slots: VecDeque<Option<Slot<T>>>,
    /// Slots that wait.
    waiting: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// Conditions still open: destinations that have not acknowledged.
    open: u32,
    /// It is over the limit of one of them.
    is_refused: bool,
    owed: T,
}

impl<T> Pending<T> {
    pub const fn new() -> Self {
        Self {
            first: 1,
            slots: VecDeque::new(),
            waiting: 0,
        }
    }

    /// The number the next message gets.
    pub fn next_number(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Takes the next number for a message with `open` conditions, at least one.
    pub fn add(&mut self, open: u32, owed: T) -> u64 {
        let number = self.next_number();
        self.waiting += 1;
        self.slots.push_back(Some(Slot {
            open,
            is_refused: false,
            owed,
        }));
        number
    }

    /// Uses a number up for a message that nobody waits for.
    pub fn skip(&mut self) -> u64 {
        let number = self.next_number();
        if self.slots.is_empty() {
            self.first += 1;
        } else {
            self.slots.push_back(None);
        }
        number
    }

    /// Each number in `from..=to` is over the limit of one of its destinations; this does not acknowledge the number.
    pub fn refuse(&mut self, from: u64, to: u64) {
        let end = to.saturating_add(1).min(self.next_number());
        for number in from.max(self.first)..end {
            if let Some(slot) = &mut self.slots[(number - self.first) as usize] {
                slot.is_refused = true;
            }
        }
    }

    /// One condition of each number in `from..=to` is met; calls `done` for those that have none left, with whether one of its
    /// destinations refused it. Unknown numbers are passed over.
    pub fn acknowledge(&mut self, from: u64, to: u64, mut done: impl FnMut(T, bool)) {
        let end = to.saturating_add(1).min(self.next_number());
        for number in from.max(self.first)..end {
            let slot = &mut self.slots[(number - self.first) as usize];
            let Some(open) = slot.as_mut() else { continue };
            open.open -= 1;
            if open.open == 0
                && let Some(slot) = slot.take()
            {
                self.waiting -= 1;
                done(slot.owed, slot.is_refused);
            }
        }
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// Removes what is owed for a number that nobody acknowledges any more.
    pub fn take(&mut self, number: u64) -> Option<T> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(index)?.take()?;
        self.waiting -= 1;
        Some(slot.owed)
    }

    /// Messages waiting.
    pub const fn len(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_done_when_its_last_condition_is_met_in_any_order() {
        let mut pending = Pending::new();
        let first = pending.add(2, "first");
        let second = pending.add(1, "second");
        let mut done = Vec::new();
        pending.acknowledge(second, second, |owed, _| done.push(owed));
        pending.acknowledge(first, first, |owed, _| done.push(owed));
        assert_eq!(done, ["second"]);
        pending.acknowledge(first, first, |owed, _| done.push(owed));
        assert_eq!(done, ["second", "first"]);
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn what_one_destination_refused_is_refused_whoever_answers_last() {
        let mut pending = Pending::new();
        let number = pending.add(2, "owed");
        let other = pending.add(1, "other");
        let mut done = Vec::new();
        pending.refuse(0, number);
        for _ in 0..2 {
            pending.acknowledge(number, other, |owed, is_refused| {
                done.push((owed, is_refused));
            });
        }
        assert_eq!(done, [("other", false), ("owed", true)]);
        pending.refuse(number, u64::MAX);
    }

    #[test]
    fn unknown_and_repeated_numbers_change_nothing() {
        let mut pending = Pending::new();
        assert_eq!(pending.skip(), 1);
        let number = pending.add(1, ());
        let mut done = 0;
        pending.acknowledge(0, 1, |(), _| done += 1);
        pending.acknowledge(number, u64::MAX, |(), _| done += 1);
        pending.acknowledge(number, number, |(), _| done += 1);
        assert_eq!(done, 1);
        assert_eq!(pending.next_number(), 3);
    }
}
