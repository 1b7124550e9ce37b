//! Which node and which worker has a session, and how that changes.
//!
//! | part | does |
//! | --- | --- |
//! | `registration` | has the sessions of this node registered, each at the registrar of its client identifier |
//! | `registrar` | for the identifiers that this node is the registrar of: grants claims one by one, and has branches merged |
//! | `claims` | for the clients that connect here: asks the registrar, and informs the worker when it has the session |
//! | `ended` | sessions that ended while nodes were away |
//! | `moves` | fetches sessions from other nodes, and hands over those that are claimed elsewhere |
//! | `relocations` | sessions between two workers of this node |
//! | `own_branches` | sessions that two workers of this node have |
//! | `state` | what each of them has |
//! | `barriers` | reports to a worker when all messages on their way to it have arrived |
//! | `replication` | backups on their way, and their promotion |

pub(super) mod barriers;
pub(super) mod claims;
mod ended;
pub(super) mod moves;
pub(super) mod own_branches;
pub(super) mod registrar;
pub(super) mod registration;
pub(super) mod relocations;
pub(super) mod replication;
mod state;

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use self::state::{
    barriers::Barriers, claims::Claims, moves::Moves, own_branches::OwnBranches,
    registrar::Registrar, relocations::Relocations, replication::Replication,
};
use super::context::Context;
use crate::Now;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    registrar: Registrar,
    claims: Claims,
    moves: Moves,
    relocations: Relocations,
    own_branches: OwnBranches,
    barriers: Barriers,
    replication: Replication,
}

impl Ownership {
    /// The set of nodes that are up has changed, or some may have lost what they were sent: registrars are asked again.
    pub(in crate::hub) fn view_changed(&mut self, cx: &mut Context, now: Now) {
        self.restart_claims();
        self.directory_sees(cx, now);
        self.registrar_restarts(cx, now);
        self.advance_claims(cx, now);
    }

    pub(in crate::hub) fn lose_node(&mut self, cx: &mut Context, now: Now, node: NodeId) {
        self.moves_lose_node(cx, now, node);
        self.barriers_lose_node(cx, node);
        cx.directory.asked.remove(&node);
    }

    /// Messages to or from another node may be lost: what waits for its answer begins again.
    pub(in crate::hub) fn lose_control(&mut self, cx: &mut Context, now: Now, node: NodeId) {
        self.moves_lose_control(cx, now, node);
        self.barriers_lose_control(cx, node);
        self.forget_backup_parts(node);
    }

    /// The sessions that ended while nodes were away.
    pub(in crate::hub) fn ended(&self) -> crate::Remembered {
        self.registrar.ended.report()
    }

    /// Gives up what has waited for too long. Once a round.
    pub(in crate::hub) fn expire(&mut self, cx: &mut Context, now: Now) {
        self.expire_claims(cx, now);
        self.expire_relocations(cx, now);
    }

    /// When there is something to give up.
    pub(in crate::hub) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.claims.next_deadline(),
            self.relocations.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }
}
