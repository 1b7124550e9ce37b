//! Events at clients, and their entries in the ledger.

use super::{
    ledger::{Life, publication_of},
    plan::Fault,
    run::{FORK_MILLIS, MOVING_MILLIS, Run},
};
use thicket_simulation::client::ClientEvent;

impl Run {
    pub fn note(&mut self, client: usize) -> super::checks::Verdict {
        let now = self.world.net.now;
        for event in self.world.clients[client].take_events_without_times() {
            self.check_served(client, &event)?;
            if let Some(log) = &mut self.log {
                let node = self.world.clients[client].node;
                log.push(format!(
                    "{now:>8} client-{client} at node {node} hears {event:?}"
                ));
            }
            let has_connected = matches!(event, ClientEvent::Connected { .. });
            self.note_event(client, now, event)?;
            if has_connected && self.is_member(client) {
                self.join_group(client);
            }
        }
        Ok(())
    }

    fn note_event(
        &mut self,
        client: usize,
        now: u64,
        event: ClientEvent,
    ) -> super::checks::Verdict {
        let record = &mut self.ledger.records[client];
        match event {
            ClientEvent::Connected { session_present } => {
                let since = std::mem::replace(&mut record.connected_at, now);
                let connecting_at = record.connecting_at.take().unwrap_or(now);
                let is_forked = self
                    .ledger
                    .disturbed
                    .iter()
                    .any(|(_, end)| end.is_none_or(|end| end + FORK_MILLIS >= connecting_at));
                let has_moved =
                    std::mem::replace(&mut record.served_by, record.node) != record.node;
                // What is found may be the session of a CONNECT that came to another node before, and was late.
                if record.is_established && record.may_be_cleaned {
                    record.life().forked_at = now;
                    for publication in record.publishing.values() {
                        self.ledger.publications[*publication].is_sent_again = true;
                    }
                    record.end_life(now);
                }
                let is_lost = record.is_established && !session_present;
                // On its way between nodes that are partitioned at that moment, a session has no backup, and whoever asks for it then finds none.
                let may_be_lost = |start: u64, end: Option<u64>| {
                    let was_moving = start.abs_diff(since) < MOVING_MILLIS
                        || (connecting_at..=now).contains(&start);
                    end.is_none_or(|end| end >= since) && (!self.ledger.is_split || was_moving)
                };
                let mut disturbed = self.ledger.disturbed.iter();
                if is_lost
                    && self.ledger.forgets_interests
                    && disturbed.any(|(_, end)| end.is_none())
                {
                    // Its session is at a node that is not up yet, and is merged with this one when it is.
                } else if is_lost && disturbed.any(|(start, end)| may_be_lost(*start, *end)) {
                    // Partitioned nodes each had a session, and one was given up.
                    record.end_life(now);
                } else if is_lost {
                    let client_id = &record.client_id;
                    return Err(format!(
                        "no session is lost: {client_id} found none at {now}"
                    ));
                }
                if !record.is_established {
                    record.end_life(now);
                    record.lives.push(Life {
                        began_at: now,
                        ..Life::default()
                    });
                }
                record.is_established = record.is_persistent;
                if is_forked && self.ledger.is_split {
                    // What both nodes sent may have come twice. A client that finds no session forgets what it has received.
                    let forgets = self.ledger.forgets_interests && !session_present;
                    record.life().forks += usize::from(has_moved || forgets);
                    record.life().forked_at = now;
                } else if is_forked {
                    record.life().forks += 1;
                    record.life().forked_at = now;
                    // Subscriptions of a session that was given up are gone with it.
                    for held in &mut record.life().held {
                        held.until.get_or_insert(now);
                    }
                }
                for publication in record.publishing.values() {
                    self.ledger.publications[*publication].is_sent_again = true;
                }
                record.is_cleaning = false;
                record.is_cut = false;
                record.uncertain -= 1;
                record.dropped += 1;
            }
            ClientEvent::Message {
                topic,
                payload,
                qos,
                retain,
            } => {
                if let Some(index) = topic.strip_prefix("will/") {
                    let index = index.parse().expect("as in the configuration");
                    *self.ledger.wills.entry(index).or_default() += 1;
                    return Ok(());
                }
                let Some(publication) = publication_of(&payload) else {
                    return Err(format!("payloads arrive whole: {payload:?} on {topic}"));
                };
                if self.ledger.publications[publication].topic != topic {
                    return Err(format!(
                        "topics arrive as published: p{publication} on {topic}"
                    ));
                }
                let (forks, connection) = (record.life().forks, record.connections);
                let arrival = super::ledger::Arrival {
                    forks,
                    connection,
                    publication,
                    qos,
                    is_replay: retain,
                    at: now,
                };
                record.life().arrivals.push(arrival);
            }
            ClientEvent::Acknowledged {
                packet_id,
                reason_code,
            } => {
                let publication = record.publishing.remove(&packet_id);
                if let Some(publication) = publication
                    && !reason_code.is_error()
                {
                    self.ledger.publications[publication].acknowledged_at = Some(now);
                }
            }
            ClientEvent::Discarded { packet_id } => {
                record.publishing.remove(&packet_id);
            }
            ClientEvent::Subscribed {
                packet_id,
                reason_codes,
            } => {
                if let Some(held) = record.subscribing.remove(&packet_id)
                    && !reason_codes[0].is_error()
                {
                    record.life().held[held].since = Some(now);
                }
            }
            ClientEvent::Unsubscribed { .. } => {}
            ClientEvent::Redirected { to, was_connected } => {
                let node = to.split(':').next().and_then(|node| node.parse().ok());
                record.sent_to = node;
                // Its will does not go out because of that.
                if was_connected {
                    record.dropped -= 1;
                } else {
                    record.uncertain -= 1;
                }
            }
            ClientEvent::Refused(code) => {
                // Nobody can say who has the session now, or a new one would exceed a limit: the client comes again later.
                let is_full =
                    code as u8 == 0x89 && self.plan.faults.contains(&Fault::ShortOfMemory);
                let has_expired = (self.plan.tokens || self.plan.rights_end) && code as u8 == 0x86;
                let is_drained = self.plan.faults.contains(&Fault::Drain) && code as u8 == 0x9C;
                if code as u8 != 0x88 && !is_full && !has_expired && !is_drained {
                    return Err(format!("clients are accepted: {code:?} at {now}"));
                }
            }
            ClientEvent::DisconnectedBy(code) => {
                let is_refused = self.plan.majority && code as u8 == 0x97;
                let has_ended = (self.plan.rights_end || self.plan.tokens) && code as u8 == 0xA0;
                let is_drained = self.plan.faults.contains(&Fault::Drain) && code as u8 == 0x9C;
                let is_stopped = self.plan.boots_apart && code as u8 == 0x8B;
                let is_told_why = is_refused || has_ended || is_drained || is_stopped;
                if ![0x8E, 0x8D].contains(&(code as u8)) && !is_told_why {
                    return Err(format!(
                        "clients that keep the rules stay: {code:?} at {now}"
                    ));
                }
            }
            ClientEvent::Broken(reason) if reason.contains("Timeout") => {}
            ClientEvent::Broken(reason) => {
                return Err(format!("nodes keep the protocol: {reason} at {now}"));
            }
            ClientEvent::Closed => {
                self.ledger.endings.push((client, record.served_by, now));
                record.subscribing.clear();
                if !record.is_persistent {
                    record.end_life(now);
                }
            }
        }
        Ok(())
    }
}
