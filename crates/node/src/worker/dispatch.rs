//! What other threads send to a worker, handed to what handles it: messages, and sockets.

use std::sync::Arc;

use super::{
    Worker,
    activity::handle_activity_requested,
    better_nodes::handle_better_node,
    connect::handle_claim_refused,
    redirect::handle_movable_asked,
    retained::handle_retained_page,
    state::{
        connection::{Connection, Phase},
        effort::RecordBatch,
    },
    transfer::NO_CONNECTION,
};
use crate::{
    ConnectionId, Handover, Now, Peer,
    messages::{Cluster, ToHub, ToWorker, WorkerMessage},
};

impl Worker {
    pub(super) fn handle_adopted(&mut self, now: Now, id: ConnectionId, state: Handover) {
        let serial = self.cx.serial();
        let mut connection = Connection::new(serial, state.listener, state.peer, now.instant);
        connection.partial = state.buffered;
        if let Some(relocated) = state.relocated {
            return self.take_relocated(now, id, connection, *relocated);
        }
        let (assigned, admission, terms, placed) = match state.claim {
            Some(claim) => (claim.assigned, claim.admission, claim.terms, claim.placed),
            None => Default::default(),
        };
        connection.admission = admission;
        connection.phase = Phase::AwaitClaim {
            assigned: assigned.map(|id| (*id).into()),
            terms,
            placed,
        };
        self.cx.connections.insert(id, connection);
        self.attach(now, id);
    }

    /// The cluster has changed.
    pub(super) fn handle_cluster(&mut self, now: Now, cluster: Arc<Cluster>) {
        let before = std::mem::replace(&mut self.cx.cluster, Arc::clone(&cluster));
        if cluster.incarnation != before.incarnation {
            // What was gathered under the old one leaves under it.
            self.cx.seal_records();
            self.cx.config.incarnation = cluster.incarnation;
        }
        if cluster.up != before.up || cluster.members != before.members {
            self.primaries.handle_nodes(&mut self.cx, now, &before.up);
            self.groups.reassign_from_lost(&mut self.cx, now);
            self.take_back_drained(now);
        }
        if !Arc::ptr_eq(&cluster.bans, &before.bans) {
            self.disconnect_banned(now);
        }
        if cluster.is_minority != before.is_minority {
            self.handle_minority(now);
        }
    }

    pub(super) fn handle_message(&mut self, now: Now, from: Peer, message: WorkerMessage) {
        match message.0 {
            ToWorker::Records { origin, bytes } => {
                self.handle_records(now, from, RecordBatch::new(origin, bytes));
            }
            ToWorker::Processed { bytes } => self.cx.batches.note_processed(from, bytes),
            ToWorker::Record { origin, bytes, way } => {
                self.handle_single_record(now, origin, &bytes, way);
            }
            ToWorker::Acknowledged(runs) => self.handle_acknowledged(&runs),
            ToWorker::Refused { by, numbers } => self.handle_refused(now, by, &numbers),
            ToWorker::MembersRefused { record } => {
                (self.groups).members_refused(&mut self.cx, now, from, &record);
            }
            ToWorker::InterestSettled { sequence, since } => {
                self.handle_interest_settled(sequence, since);
            }
            ToWorker::Peers { sequence, changes } => {
                self.cx.effort.spend_on_changes(changes.len());
                self.groups.apply_interests(&mut self.cx, now, &changes);
                // What was published here before was not sent there by these interests: if it is retained, the hub must have it before it reports the
                // time of the retained messages [MQTT-3.3.1-9].
                self.cx
                    .send_to_hub_after_records(ToHub::PeersApplied { sequence });
            }
            ToWorker::ClaimAnswered {
                connection: NO_CONNECTION,
                serial,
                client_id,
                answer,
            } => self.handle_import_answered(now, serial, &client_id, answer.ok()),
            ToWorker::ClaimAnswered {
                connection,
                serial,
                client_id,
                answer,
            } => match answer {
                Ok(grant) => self.handle_granted(now, (connection, serial), &client_id, grant),
                Err(refusal) => {
                    handle_claim_refused(&mut self.cx, (connection, serial), &refusal);
                }
            },
            ToWorker::BetterNode(asked, node) => handle_better_node(&mut self.cx, &asked, node),
            ToWorker::MovableAsked => handle_movable_asked(&mut self.cx, now),
            ToWorker::ActivityRequested { asker, round, from } => {
                handle_activity_requested(&mut self.cx, now, asker, round, from);
            }
            ToWorker::SendClient { client_id, to } => {
                self.handle_send_client(now, &client_id, &to);
            }
            ToWorker::Fetch {
                request,
                client_id,
                to,
                purpose,
            } => self.handle_fetch(now, request, &client_id, (to, purpose)),
            ToWorker::CancelSwitchover { client_id, to } => {
                self.handle_cancel_switchover(now, &client_id, to)
            }
            ToWorker::Import {
                request,
                snapshot,
                merge,
            } => self.handle_import(now, request, &snapshot, merge),
            ToWorker::ImportQueue {
                request,
                client_id,
                queue,
            } => {
                self.primaries.handle_import_queue(
                    &mut self.cx,
                    now,
                    request,
                    &client_id,
                    queue.as_deref(),
                );
            }
            ToWorker::RetainedPage {
                session,
                page,
                records,
                rest,
            } => {
                handle_retained_page(&mut self.cx, now, (session, page), &records, rest);
            }
            ToWorker::Cluster(cluster) => self.handle_cluster(now, cluster),
            ToWorker::Replicate {
                from,
                stream,
                position,
                record,
            } => self.handle_replicated(now, from, stream, position, &record),
            ToWorker::BackupReport {
                from,
                stream,
                report,
            } => self
                .primaries
                .handle_backup_report(&mut self.cx, now, from, stream, report),
            ToWorker::BackupsLost { node, absence } => {
                if let Some(absence) = absence {
                    self.primaries
                        .note_absence(&mut self.cx, now, node, absence);
                }
                self.handle_backups_lost(now, node);
            }
            ToWorker::BarrierPassed { home, barrier } => {
                self.handle_barrier_passed(now, home, barrier);
            }
            ToWorker::Promote {
                node,
                publishes_wills,
            } => self.handle_promote(now, node, publishes_wills),
            ToWorker::Adoptions {
                by,
                adopted,
                replaced,
            } => self
                .sources
                .handle_adoptions(&mut self.cx, now, by, &adopted, &replaced),
            ToWorker::DropBackups { node } => self.handle_drop_backups(now, node),
            ToWorker::Evict {
                client_id,
                may_contest,
            } => self.handle_evict(now, &client_id, may_contest),
            ToWorker::Offer { relocation, load } => {
                self.relocations
                    .handle_offer(&mut self.cx, now, from, relocation, load)
            }
            ToWorker::Relocate { to, relocation } => {
                self.relocations
                    .handle_relocate(&mut self.cx, now, to, relocation)
            }
        }
    }
}
