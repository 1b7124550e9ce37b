//! A node's role for a session: its primary, its primary until the next one has taken over, or a backup.
//!
//! | role | event | next |
//! | --- | --- | --- |
//! | primary | asked: a client has come to another node, or that node merges this branch | switching |
//! | primary | handed over: the node is drained, and a backup is complete | handed |
//! | switching, handed | asked again by the same node; handed before this node was started: by any node | switching |
//! | switching, handed | handed over: the same node is a complete backup, or has read the branch | handed |
//! | switching, handed | lost: a client waits at a node that has lost what it was sent | switching: it is sent again |
//! | switching, handed | taken back: the other node gives up, or is down | primary |
//! | backup | promoted: the primary hands the session over, or is down | primary |
//!
//! Nothing else changes a role. A session of which another node is the primary for sure ends here. Messages are queued in every role; only the
//! primary serves the client.

use thicket_overlay::NodeId;

use super::replica::backup::Backup;

/// See the module.
#[derive(Debug)]
pub(in crate::worker) enum Role {
    /// This node serves the session.
    Primary,
    /// Another node is to be the primary.
    Switching(Switchover),
    /// The whole session was sent to another node, which becomes the primary or merges this branch.
    Handed(Handed),
    /// Another node is the primary.
    Backup(Box<Backup>),
}

/// Where a session goes, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) struct Switchover {
    pub to: NodeId,
    pub reason: Reason,
}

/// Why a session goes to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Reason {
    /// A client waits there. The number by which the hub is answered.
    Claim(u64),
    /// This node is drained.
    Drain,
    /// Two nodes have it, and the other one merges this branch. The number by which the hub is to be answered, until it is.
    Branch(Option<u64>),
}

/// A session that is here until the other node has it for sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) struct Handed {
    /// `None`: this node was started since, and the session is served here if nobody else has it.
    pub switchover: Option<Switchover>,
    /// The sequence of the first message that it accepted since.
    pub from: u64,
}

/// What changes a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Event {
    /// Another node asks for the session.
    Asked(Switchover),
    /// Another node was sent all of it, messages below this sequence included.
    HandedOver(Switchover, u64),
    /// That node is up, and has lost what it was sent.
    Lost,
    /// No other node is to have it.
    TakenBack,
    /// Its primary has handed it over, or is down.
    Promoted,
}

impl Reason {
    /// The number by which the hub is answered.
    pub const fn request(self) -> Option<u64> {
        match self {
            Self::Claim(request) | Self::Branch(Some(request)) => Some(request),
            Self::Branch(None) | Self::Drain => None,
        }
    }
}

impl Role {
    /// Applies an event, and returns the role before; `None`: the event does not apply to this role, which stays.
    pub fn change(&mut self, event: Event) -> Option<Self> {
        let next = self.next(event)?;
        Some(std::mem::replace(self, next))
    }

    /// The table of the module.
    fn next(&self, event: Event) -> Option<Self> {
        let before = self.switchover();
        match (self, event) {
            (Self::Primary, Event::Asked(switchover)) => Some(Self::Switching(switchover)),
            (Self::Switching(_) | Self::Handed(_), Event::Asked(switchover)) => before
                .is_none_or(|before| before.to == switchover.to)
                .then_some(Self::Switching(switchover)),
            (Self::Primary, Event::HandedOver(switchover, from)) => {
                let is_drained = switchover.reason == Reason::Drain;
                is_drained.then(|| Self::handed_over(switchover, from))
            }
            (Self::Switching(_) | Self::Handed(_), Event::HandedOver(switchover, from)) => before
                .is_some_and(|before| before.to == switchover.to)
                .then(|| Self::handed_over(switchover, from)),
            (Self::Switching(_) | Self::Handed(_), Event::Lost) => before
                .filter(|before| matches!(before.reason, Reason::Claim(_)))
                .map(Self::Switching),
            (Self::Switching(_) | Self::Handed(_), Event::TakenBack) => Some(Self::Primary),
            (Self::Backup(_), Event::Promoted) => Some(Self::Primary),
            (Self::Primary, Event::Lost | Event::TakenBack | Event::Promoted)
            | (Self::Switching(_) | Self::Handed(_), Event::Promoted)
            | (
                Self::Backup(_),
                Event::Asked(_) | Event::HandedOver(..) | Event::Lost | Event::TakenBack,
            ) => None,
        }
    }

    const fn handed_over(switchover: Switchover, from: u64) -> Self {
        let switchover = Some(switchover);
        Self::Handed(Handed { switchover, from })
    }

    /// Where the session goes.
    pub const fn switchover(&self) -> Option<Switchover> {
        match self {
            Self::Switching(switchover) => Some(*switchover),
            Self::Handed(handed) => handed.switchover,
            Self::Primary | Self::Backup(_) => None,
        }
    }

    /// Whether another node merges this branch of the session.
    pub const fn is_branch(&self) -> bool {
        matches!(
            self.switchover(),
            Some(Switchover {
                reason: Reason::Branch(_),
                ..
            })
        )
    }

    /// Whether nobody is served, and no timer of the session counts: another node is to be the primary.
    pub const fn is_frozen(&self) -> bool {
        self.switchover().is_some()
    }

    /// Whether no other node is involved in what becomes of the session now.
    pub const fn is_primary(&self) -> bool {
        matches!(self, Self::Primary)
    }

    /// What was handed over.
    pub const fn handed(&self) -> Option<Handed> {
        match self {
            Self::Handed(handed) => Some(*handed),
            Self::Primary | Self::Switching(_) | Self::Backup(_) => None,
        }
    }

    /// Whether another node was sent all of it to be the primary, and may be that already.
    pub fn has_successor(&self) -> bool {
        let handed = self.handed();
        handed.is_some_and(|it| it.switchover.is_some()) && !self.is_branch()
    }

    /// The number by which the hub must still be answered what became of the session.
    pub const fn unanswered(&self) -> Option<u64> {
        match self {
            Self::Switching(switchover) => switchover.reason.request(),
            Self::Primary | Self::Handed(_) | Self::Backup(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(node: u64, reason: Reason) -> Switchover {
        let to = NodeId(node);
        Switchover { to, reason }
    }

    fn handed(switchover: Option<Switchover>) -> Role {
        Role::Handed(Handed {
            switchover,
            from: 5,
        })
    }

    fn backup() -> Role {
        Role::Backup(Box::new(Backup::of_a_test((NodeId(9), 0))))
    }

    fn name(role: &Role) -> String {
        match role {
            Role::Primary => "primary".to_owned(),
            Role::Switching(switchover) => format!("switching {}", switchover.to.0),
            Role::Handed(Handed { switchover, from }) => {
                let to = switchover.map_or(0, |it| it.to.0);
                format!("handed {to} from {from}")
            }
            Role::Backup(_) => "backup".to_owned(),
        }
    }

    #[test]
    fn each_event_changes_each_role_as_the_table_says() {
        let (claim, drain, branch) = (Reason::Claim(1), Reason::Drain, Reason::Branch(None));
        let events = [
            Event::Asked(to(1, claim)),
            Event::Asked(to(2, claim)),
            Event::HandedOver(to(1, claim), 7),
            Event::HandedOver(to(1, drain), 7),
            Event::Lost,
            Event::TakenBack,
            Event::Promoted,
        ];
        let (one, two) = ("switching 1", "switching 2");
        let given = "handed 1 from 7";
        for (role, expected) in [
            (Role::Primary, [one, two, "", given, "", "", ""]),
            (
                Role::Switching(to(1, claim)),
                [one, "", given, given, one, "primary", ""],
            ),
            (
                Role::Switching(to(1, branch)),
                [one, "", given, given, "", "primary", ""],
            ),
            (
                handed(Some(to(1, claim))),
                [one, "", given, given, one, "primary", ""],
            ),
            (
                handed(Some(to(1, drain))),
                [one, "", given, given, "", "primary", ""],
            ),
            (
                handed(Some(to(1, branch))),
                [one, "", given, given, "", "primary", ""],
            ),
            (handed(None), [one, two, "", "", "", "primary", ""]),
            (backup(), ["", "", "", "", "", "", "primary"]),
        ] {
            let found = events.map(|event| role.next(event));
            let found = found
                .each_ref()
                .map(|next| next.as_ref().map_or(String::new(), name));
            assert_eq!(found, expected, "{}", name(&role));
        }
    }

    #[test]
    fn an_event_that_is_none_of_a_role_leaves_it() {
        let mut role = Role::Primary;
        assert!(role.change(Event::Promoted).is_none());
        assert!(role.is_primary());
        assert!(role.change(Event::Asked(to(1, Reason::Claim(1)))).is_some());
        assert_eq!(name(&role), "switching 1");
    }
}
