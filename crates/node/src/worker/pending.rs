//! Messages that this worker took and that others have not all admitted yet: what an acknowledgement to the publisher waits for.

use std::collections::VecDeque;

/// Numbers of one stream with what is owed when their conditions are met.
#[derive(Debug)]
pub(super) struct Pending<T> {
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
        self.slots.push_back(Some(Slot { open, owed }));
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

    /// One condition of each number in `from..=to` is met; calls `done` for those that have none left. Unknown numbers are passed over.
    pub fn acknowledge(&mut self, from: u64, to: u64, mut done: impl FnMut(T)) {
        let end = to.saturating_add(1).min(self.next_number());
        for number in from.max(self.first)..end {
            let slot = &mut self.slots[(number - self.first) as usize];
            let Some(open) = slot.as_mut() else { continue };
            open.open -= 1;
            if open.open == 0
                && let Some(slot) = slot.take()
            {
                self.waiting -= 1;
                done(slot.owed);
            }
        }
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// What is owed for a number that nobody answers for any more.
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
        pending.acknowledge(second, second, |owed| done.push(owed));
        pending.acknowledge(first, first, |owed| done.push(owed));
        assert_eq!(done, ["second"]);
        pending.acknowledge(first, first, |owed| done.push(owed));
        assert_eq!(done, ["second", "first"]);
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn unknown_and_repeated_numbers_change_nothing() {
        let mut pending = Pending::new();
        assert_eq!(pending.skip(), 1);
        let number = pending.add(1, ());
        let mut done = 0;
        pending.acknowledge(0, 1, |()| done += 1);
        pending.acknowledge(number, u64::MAX, |()| done += 1);
        pending.acknowledge(number, number, |()| done += 1);
        assert_eq!(done, 1);
        assert_eq!(pending.next_number(), 3);
    }
}
