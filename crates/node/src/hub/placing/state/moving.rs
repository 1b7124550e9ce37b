//! Clients that are moved from a busy node.

use thicket_session::time::Instant;

use crate::{WorkerId, messages::Movable};

/// The progress of giving clients away.
#[derive(Debug)]
pub(in crate::hub) enum Moving {
    Idle,
    Watching {
        since: Instant,
    },
    Asked {
        answers: Vec<(WorkerId, Movable)>,
        waiting: usize,
    },
    Settling {
        until: Instant,
    },
}
