//! The CONNECTs that wait for their sessions.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use thicket_overlay::NodeId;
use thicket_session::{server::Epoch, time::Instant};

use crate::{WorkerId, messages::Claim};

/// A CONNECT that waits.
#[derive(Debug)]
pub(in crate::hub) struct Waiting {
    pub worker: WorkerId,
    pub claim: Claim,
    pub deadline: Instant,
}

/// The stage of the first CONNECT of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hub) enum Stage {
    Waiting { retry_at: Option<Instant> },
    Asking { request: u64 },
    Moving(Granted),
    Opening(Granted),
}

impl Stage {
    pub const fn granted(self) -> Option<Granted> {
        match self {
            Self::Moving(granted) | Self::Opening(granted) => Some(granted),
            Self::Waiting { .. } | Self::Asking { .. } => None,
        }
    }
}

/// A claim that is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hub) struct Granted {
    pub epoch: Epoch,
    /// The node that hands the session over.
    pub from: Option<NodeId>,
    /// The view in which it was granted, if no other branch of the session contests it; `None`: one may.
    pub sole_in: Option<u64>,
}

/// The CONNECTs of one client identifier, in order.
#[derive(Debug)]
pub(in crate::hub) struct Line {
    pub stage: Stage,
    pub waiting: VecDeque<Waiting>,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            stage: Stage::Waiting { retry_at: None },
            waiting: VecDeque::new(),
        }
    }
}

/// All CONNECTs that wait.
#[derive(Debug, Default)]
pub(in crate::hub) struct Claims {
    pub lines: BTreeMap<Arc<str>, Line>,
    pub next_request: u64,
}

impl Claims {
    /// When something is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let of_line = |line: &Line| {
            let deadline = line.waiting.front().map(|waiting| waiting.deadline);
            let retry = match line.stage {
                Stage::Waiting { retry_at } => retry_at,
                Stage::Asking { .. } | Stage::Moving(_) | Stage::Opening(_) => None,
            };
            [deadline, retry].into_iter().flatten().min()
        };
        self.lines.values().filter_map(of_line).min()
    }

    /// Client identifiers that were granted to us and are not open yet, with their epochs.
    pub fn granted(&self) -> impl Iterator<Item = (&Arc<str>, Epoch)> {
        let lines = self.lines.iter();
        lines.filter_map(|(client_id, line)| Some((client_id, line.stage.granted()?.epoch)))
    }
}
