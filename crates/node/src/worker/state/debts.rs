//! What is owed for messages: acknowledgements to those who published them.

use std::{cell::Cell, collections::BTreeMap, rc::Rc};

use thicket_mqtt::PacketId;

use super::{pending::Pending, session_key::SessionKey};
use crate::{
    ConnectionId, Peer,
    messages::{NumberRuns, Origin, RefusedBy},
};

/// What this worker owes.
#[derive(Debug)]
pub(in crate::worker) struct Debts {
    /// When other workers and nodes have admitted the messages.
    pub pending: Pending<Option<Debt>>,
    /// Owed acknowledgements whose conditions were met while something else was borrowed.
    pub met: Vec<Debt>,
    /// The same of messages that were refused.
    pub refused: Vec<(Debt, RefusedBy)>,
    /// What waits until another node is sent a session, with its serial, that accepted a message and is not replicated yet.
    pub until_replicated: BTreeMap<(SessionKey, u64), Vec<SharedDebt>>,
    /// Connections to close, because their clients cannot be sent a refusal of a message.
    pub to_close: Vec<ConnectionId>,
    /// Messages that are given in portions, by numbers of their own.
    divided: BTreeMap<u64, DividedDebt>,
    last_divided: u64,
}

/// What is owed for a message that is given in portions.
#[derive(Debug)]
struct DividedDebt {
    /// Conditions of the portions so far, and one until the last one was given.
    open: u64,
    /// It is over the limit of one of its destinations.
    refused: Option<RefusedBy>,
    owed: Debt,
}

impl Debts {
    pub const fn new() -> Self {
        Self {
            pending: Pending::new(),
            met: Vec::new(),
            refused: Vec::new(),
            until_replicated: BTreeMap::new(),
            to_close: Vec::new(),
            divided: BTreeMap::new(),
            last_divided: 0,
        }
    }

    /// Others have admitted these numbers. Returns what is owed for those that were over a limit on their way.
    pub fn acknowledge(&mut self, runs: &NumberRuns) -> Vec<(Debt, RefusedBy)> {
        let Self { pending, met, .. } = self;
        let mut refused = Vec::new();
        for &(from, to) in runs {
            pending.acknowledge(from, to, |owed, is_refused| {
                if is_refused {
                    refused.extend(owed.map(|owed| (owed, RefusedBy::Place)));
                } else {
                    met.extend(owed);
                }
            });
        }
        refused
    }

    /// A condition of what is owed is met when another node has been sent this session, with its serial, and has applied that.
    pub fn wait_until_replicated(&mut self, session: (SessionKey, u64), owed: SharedDebt) {
        self.until_replicated.entry(session).or_default().push(owed);
    }

    /// A condition of what is owed is met.
    pub fn meet(&mut self, (debt, open): SharedDebt) {
        let is_last = open.is_none_or(|open| {
            open.set(open.get() - 1);
            open.get() == 0
        });
        if is_last {
            self.met.push(debt);
        }
    }

    /// Divides a message: `owed` is met when all portions were given and their conditions are met. Returns the debt of each portion.
    pub fn divide(&mut self, owed: Debt) -> Debt {
        self.last_divided += 1;
        let divided = DividedDebt {
            open: 1,
            refused: None,
            owed,
        };
        self.divided.insert(self.last_divided, divided);
        Debt::Portion(self.last_divided)
    }

    /// A portion was given; what is owed for it waits for `open` conditions.
    pub fn wait_for_portion(&mut self, debt: Option<Debt>, open: u16) {
        if let Some(Debt::Portion(number)) = debt
            && let Some(divided) = self.divided.get_mut(&number)
        {
            divided.open += u64::from(open);
        }
    }

    /// A portion was refused; that does not meet its condition.
    pub fn refuse_portion(&mut self, number: u64, by: RefusedBy) {
        if let Some(divided) = self.divided.get_mut(&number) {
            divided.refused = divided.refused.max(Some(by));
        }
    }

    /// Conditions of portions were met. Meets the debt of each message that has no open condition left, or returns it if one of its portions was
    /// refused.
    pub fn settle_portions(&mut self) -> Vec<(Debt, RefusedBy)> {
        let mut refused = Vec::new();
        if self.divided.is_empty() {
            return refused;
        }
        let mut met = std::mem::take(&mut self.met);
        let mut next = 0;
        while let Some(debt) = met.get(next).copied() {
            next += 1;
            let Debt::Portion(number) = debt else {
                self.met.push(debt);
                continue;
            };
            let Some(divided) = self.divided.get_mut(&number) else {
                continue;
            };
            divided.open -= 1;
            if divided.open > 0 {
                continue;
            }
            let (owed, by) = (divided.owed, divided.refused);
            self.divided.remove(&number);
            match (owed, by) {
                // A member was chosen again for a portion.
                (Debt::Portion(whole), by) => {
                    if let Some(by) = by {
                        self.refuse_portion(whole, by);
                    }
                    met.push(owed);
                }
                (_, Some(by)) => refused.push((owed, by)),
                (_, None) => self.met.push(owed),
            }
        }
        refused
    }

    /// These numbers were over a limit on their way (rule 18), to a destination that acknowledges them as well.
    pub fn refuse(&mut self, runs: &NumberRuns) {
        for &(from, to) in runs {
            self.pending.refuse(from, to);
        }
    }
}

/// What is owed, and how many conditions are open, if that is not counted where it is owed.
pub(in crate::worker) type SharedDebt = (Debt, Option<Rc<Cell<u32>>>);

/// Who is owed an acknowledgement when the conditions of a message are met.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) enum Debt {
    /// Who published it.
    Publisher(Publisher),
    /// The worker or node that sent the message here, if its acknowledgement waits: the message was sent on to another member of its shared
    /// subscription, or backups must apply it first.
    Sender {
        from: Peer,
        origin: Origin,
        number: u64,
    },
    /// Nobody: another node is to forget the will with this number when all recipients have it.
    Will(u64),
    /// The hub: a branch of a session has been merged, by this number.
    Merge(u64),
    /// The hub: this node is the primary of a session, with its serial, that was handed over.
    TakenOver(SessionKey, u64),
    /// What is owed for a message that is given in portions.
    Portion(u64),
}

/// Who published a message.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) enum Publisher {
    /// A client.
    Client(Owed),
    /// An operator, by the number of the publication.
    Operator(u64),
}

/// What a client is owed when the conditions of a message are met.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Owed {
    pub session: SessionKey,
    pub session_serial: u64,
    /// In the session's line of acknowledgements.
    pub sequence: u64,
    pub packet_id: PacketId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divided_message_is_owed_for_when_its_last_portion_is_met() {
        let mut debts = Debts::new();
        let owed = Debt::Merge(7);
        let whole = debts.divide(owed);
        debts.wait_for_portion(Some(whole), 1);
        // Another member is chosen for the one of it that was waited for: its session has two backups.
        let again = debts.divide(whole);
        debts.wait_for_portion(Some(again), 2);
        for (met, is_due) in [
            (whole, false),
            (again, false),
            (again, false),
            (again, true),
        ] {
            debts.met.push(met);
            assert!(debts.settle_portions().is_empty());
            let due = std::mem::take(&mut debts.met);
            assert_eq!(due.len(), usize::from(is_due));
            assert!(due.iter().all(|it| matches!(it, Debt::Merge(7))));
        }
        assert!(debts.divided.is_empty());
    }

    #[test]
    fn a_divided_message_is_refused_when_all_its_portions_have_answered() {
        let mut debts = Debts::new();
        let whole = debts.divide(Debt::Merge(7));
        debts.wait_for_portion(Some(whole), 1);
        let Debt::Portion(number) = whole else {
            panic!("it is a portion")
        };
        debts.refuse_portion(number, RefusedBy::Members);
        debts.refuse_portion(number, RefusedBy::Place);
        debts.refuse_portion(number, RefusedBy::Members);
        debts.met.push(whole);
        assert!(debts.settle_portions().is_empty());
        debts.met.push(whole);
        let refused = debts.settle_portions();
        assert!(matches!(refused[..], [(Debt::Merge(7), RefusedBy::Place)]));
        assert!(debts.met.is_empty());
    }
}
