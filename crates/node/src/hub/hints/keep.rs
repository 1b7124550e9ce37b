//! The side of the nodes that keep messages for one that is down: capacity, a second holder, and delivery when the node is back.

use super::*;

/// Where a message of a worker goes besides the nodes that are up.
#[derive(Debug, Default)]
struct Plan {
    /// Nodes that are up.
    live: Vec<NodeSlot>,
    /// Nodes that are down and have sessions that subscribe to it.
    targets: Vec<NodeId>,
    /// Nodes that are about to be back, perhaps with such sessions.
    expected: Vec<NodeId>,
    /// Nodes that may or may not be down.
    undecided: Vec<NodeSlot>,
}

impl Hub {
    /// Whether destinations may be down.
    pub(in super::super) fn may_hint(&self) -> bool {
        !self.hints.is_idle() || self.cx.quorum.is_unsure()
    }

    /// The destinations that are up.
    pub(in super::super) fn live_of(&self, destinations: &[NodeSlot]) -> Vec<NodeSlot> {
        let is_live = |slot: &&NodeSlot| !self.cx.overlay.is_down(**slot);
        destinations.iter().filter(is_live).copied().collect()
    }

    fn plan(&self, entry: &ForwardEntry, record: &[u8], destinations: &[NodeSlot]) -> Plan {
        let live = self.live_of(destinations);
        let mut plan = Plan {
            live,
            ..Plan::default()
        };
        if entry.number == 0 || entry.qos == Qos::AtMostOnce {
            return plan;
        }
        if let Ok((record, _)) = Record::decode(record)
            && record.shared.is_empty()
        {
            (plan.targets, plan.expected) = self.hints.recipients(record.topic);
            let is_undecided =
                |slot: &&NodeSlot| self.cx.overlay.is_down(**slot) && self.cx.up.contains_key(slot);
            plan.undecided = destinations.iter().filter(is_undecided).copied().collect();
        }
        plan
    }

    /// A message of a worker, while nodes are down: it is kept for them, and acknowledged when one more node keeps it.
    pub(in super::super) fn forward_or_hint(
        &mut self,
        now: Now,
        from: WorkerId,
        entry: &ForwardEntry,
        record: &[u8],
        destinations: &[NodeSlot],
    ) -> Forwarded {
        let Plan {
            live,
            targets,
            expected,
            mut undecided,
        } = self.plan(entry, record, destinations);
        let refuses = self.cx.config.on_full == OnFull::Refuse;
        let cost = record.len() as u64;
        let undecided_bytes = self.hints.undecided.bytes + cost * undecided.len() as u64;
        let is_over = !undecided.is_empty() && undecided_bytes > self.cx.config.hint_bytes;
        if refuses
            && (is_over
                || targets
                    .iter()
                    .any(|node| !self.has_handoff_capacity(now, *node, cost)))
        {
            self.hints.dropped += 1;
            self.refuse_forward(from, entry.number);
            return Forwarded::Refused;
        }
        if is_over {
            self.hints.dropped += 1;
            undecided.clear();
        }
        let forwarded = self.forward_live(now, from, entry, record, &live);
        let unheld = (targets.len() + undecided.len()) as u32;
        let is_under_way = match forwarded {
            Forwarded::Refused => return forwarded,
            Forwarded::Sent => true,
            Forwarded::Nobody => false,
        };
        if unheld > 0 {
            let waiting = Waiting {
                is_under_way,
                unheld,
                is_refused: false,
            };
            let name = (u16::from(from.0), entry.number);
            self.hints.waiting.insert(name, waiting);
        } else if !is_under_way && entry.number > 0 {
            self.cx.outgoing.acknowledge(from, entry.number);
        }
        if unheld == 0 && expected.is_empty() {
            return forwarded;
        }
        let message = Abandoned {
            stream: StreamId(u16::from(from.0)),
            number: entry.number,
            incarnation: self.cx.config.overlay.incarnation,
            at: now.instant,
            record: record.into(),
        };
        for slot in undecided {
            self.hints.undecided.push(slot, message.clone());
        }
        let hint = self.hint_of(&message);
        self.add_hints(now, &targets, &hint);
        self.add_hints(now, &expected, &hint.not_awaited(Holder::Speculative));
        match unheld {
            0 => forwarded,
            _ => Forwarded::Sent,
        }
    }

    fn add_hints(&mut self, now: Now, targets: &[NodeId], hint: &Hint) {
        for target in targets {
            self.add_hint(now, *target, hint.clone());
        }
    }

    /// Without a serial, which each node's copy has of its own.
    fn hint_of(&self, message: &Abandoned) -> Hint {
        let expiry = Record::decode(&message.record).ok();
        let expiry = expiry.and_then(|(record, _)| record.expiry_left_ms);
        let origin = Origin {
            node: self.cx.own(),
            incarnation: message.incarnation,
            stream: message.stream,
        };
        Hint {
            serial: 0,
            origin,
            number: message.number,
            record: Rc::from(&*message.record),
            since: message.at,
            expires_at: expiry.map(|ms| message.at + Duration::from_millis(ms)),
            holder: Holder::Unassigned,
            is_awaited: true,
        }
    }

    pub(super) fn add_hint(&mut self, now: Now, target: NodeId, mut hint: Hint) {
        let len = hint.record.len() as u64;
        let is_speculative = hint.holder == Holder::Speculative;
        if is_speculative {
            if !self
                .hints
                .has_capacity(target, len, self.cx.config.hint_bytes)
            {
                return;
            }
        } else if !self.has_handoff_capacity(now, target, len) {
            self.hints.dropped += 1;
            return self.settle(&hint, self.cx.config.on_full == OnFull::Refuse);
        }
        self.hints.last_serial += 1;
        hint.serial = self.hints.last_serial;
        let queue = self.hints.queues.entry(target).or_default();
        let is_first = queue.is_empty();
        queue.push(hint);
        if is_first && !is_speculative {
            let fields = vec![("node", target.to_string())];
            let message = "messages are kept for the sessions of a node that is down";
            self.cx.event(EventLevel::Info, message, fields);
        }
    }

    /// Whether a record is within the limit. What has expired is removed first, and what the node may not want.
    fn has_handoff_capacity(&mut self, now: Now, target: NodeId, len: u64) -> bool {
        let maximum = self.cx.config.hint_bytes;
        let mut is_there = self.hints.has_capacity(target, len, maximum);
        if !is_there {
            self.expire_hints(now);
            if let Some(queue) = self.hints.queues.get_mut(&target) {
                queue.forget_speculative();
            }
            is_there = self.hints.has_capacity(target, len, maximum);
        }
        let queue = self.hints.queues.entry(target).or_default();
        let is_new = !is_there && !queue.is_overrun;
        queue.is_overrun = !is_there;
        if is_new {
            let fields = vec![("node", target.to_string())];
            let message = "no more capacity for messages of a node that is down";
            self.cx.event(EventLevel::Warn, message, fields);
        }
        is_there
    }

    /// A message is not waited for any more.
    fn settle(&mut self, hint: &Hint, is_refused: bool) {
        let is_ours = hint.origin.node == self.cx.own();
        if hint.is_awaited && is_ours {
            self.settle_number(hint.origin.stream, hint.number, is_refused);
        }
    }

    fn settle_number(&mut self, stream: StreamId, number: u64, is_refused: bool) {
        let Some(waiting) = self.hints.waiting.get_mut(&(stream.0, number)) else {
            return;
        };
        waiting.unheld -= 1;
        waiting.is_refused |= is_refused;
        if waiting.unheld == 0 && !waiting.is_under_way {
            self.answer_waiting(stream, number);
        }
    }

    fn answer_waiting(&mut self, stream: StreamId, number: u64) {
        let waiting = self.hints.waiting.remove(&(stream.0, number));
        let is_refused = waiting.is_some_and(|it| it.is_refused);
        let worker = WorkerId(stream.0 as u8);
        if is_refused {
            self.refuse_forward(worker, number);
        } else {
            self.cx.outgoing.acknowledge(worker, number);
        }
    }

    /// Nodes that are up have admitted these numbers. Returns those whose acknowledgement may leave now; `None`: all of them. The others leave when
    /// what they wait for elsewhere is settled.
    pub(in super::super) fn release_acknowledged_hints(
        &mut self,
        stream: StreamId,
        ranges: &[RangeInclusive<u64>],
    ) -> Option<NumberRuns> {
        if self.hints.waiting.is_empty() {
            return None;
        }
        let mut runs = NumberRuns::new();
        for range in ranges {
            self.hints.release_acknowledged(stream, range, &mut runs);
        }
        let is_done = |((of, number), it): (&(u16, u64), &Waiting)| {
            (*of == stream.0 && it.unheld == 0 && !it.is_under_way).then_some(*number)
        };
        let done: Vec<u64> = self.hints.waiting.iter().filter_map(is_done).collect();
        for number in done {
            self.answer_waiting(stream, number);
        }
        Some(runs)
    }

    /// What a node that is down now had not admitted is kept for the nodes that are down and subscribe to it, if it was not before.
    pub(super) fn keep_abandoned(
        &mut self,
        now: Now,
        slot: NodeSlot,
        abandoned: Vec<Abandoned>,
        active: &[NodeId],
    ) {
        let undecided = self.hints.undecided.take(slot);
        let messages = abandoned.into_iter().map(|message| (message, false));
        let messages = messages.chain(undecided.into_iter().map(|message| (message, true)));
        for (message, is_counted) in messages {
            let targets = match Record::decode(&message.record) {
                Ok((record, _)) if record.shared.is_empty() && record.qos > Qos::AtMostOnce => {
                    let wants = |node: &&NodeId| {
                        let absent = self.hints.absent.get(node);
                        absent.is_some_and(|absent| absent.wants(record.topic))
                    };
                    active.iter().filter(wants).copied().collect()
                }
                Ok(_) | Err(_) => Vec::new(),
            };
            let key = (message.stream.0, message.number);
            if !targets.is_empty() {
                // The overlay reports that all others have it only after this.
                let new = Waiting {
                    is_under_way: true,
                    ..Waiting::default()
                };
                let waiting = self.hints.waiting.entry(key).or_insert(new);
                waiting.unheld += targets.len() as u32;
                let hint = self.hint_of(&message);
                self.add_hints(now, &targets, &hint);
            }
            if is_counted {
                self.settle_number(message.stream, message.number, false);
            }
        }
    }

    // A second holder.

    /// Asks for second holders, sends what is kept to nodes that are back, forgets what is no longer needed. Once a round.
    pub(in super::super) fn advance_hints(&mut self, now: Now) {
        if self.hints.queues.is_empty() && self.hints.absent.is_empty() {
            return;
        }
        self.forget_hints_for_unknown_nodes();
        self.review_expected(now);
        if self.hints.sweep_at <= now.instant {
            thicket_session::reach!("time SWEEP");
            self.hints.sweep_at = now.instant + SWEEP;
            self.expire_hints(now);
        }
        let targets: Vec<NodeId> = self.hints.queues.keys().copied().collect();
        for target in targets {
            self.seek_second_holder(now, target);
            // What another node was responsible for until now may be for one that is back already.
            self.open_hints(target);
            self.send_hints(now, target);
        }
        // A queue over its limit is reported once.
        let Hints { queues, absent, .. } = &mut self.hints;
        let is_kept = |node: &NodeId| absent.contains_key(node);
        queues.retain(|node, queue| !queue.is_empty() || (queue.is_overrun && is_kept(node)));
    }

    /// Nodes that were removed from the cluster do not come back.
    fn forget_hints_for_unknown_nodes(&mut self) {
        let (hints, members) = (&mut self.hints, &self.cx.members);
        let known = hints.queues.keys().chain(hints.absent.keys());
        let strangers: Vec<NodeId> = known.filter(|it| !members.has(**it)).copied().collect();
        for node in strangers {
            if let Some(absent) = self.hints.absent.remove(&node) {
                let changes = self.interests.send_again(absent.slot, &Entries::new());
                self.send_places(&changes);
            }
            self.drop_hints_for(node);
        }
    }

    /// A node's sessions are elsewhere, or it will not be back.
    pub(super) fn drop_hints_for(&mut self, node: NodeId) {
        if let Some(mut queue) = self.hints.queues.remove(&node) {
            let hints = queue.taken(u64::MAX);
            hints.iter().for_each(|hint| self.settle(hint, false));
            self.send_done(node, queue.holders(), u64::MAX);
        }
    }

    fn send_done(&mut self, target: NodeId, holders: Vec<NodeId>, upto: u64) {
        for holder in holders {
            self.send_hint_message(holder, &HintMessage::Done { target, upto });
        }
    }

    fn expire_hints(&mut self, now: Now) {
        let queues = self.hints.queues.values_mut();
        let expired: Vec<Hint> = queues.flat_map(|queue| queue.expire(now.instant)).collect();
        expired.iter().for_each(|hint| self.settle(hint, false));
    }

    fn seek_second_holder(&mut self, now: Now, target: NodeId) {
        let candidates: Vec<NodeId> = (self.cx.up.iter())
            .filter(|(slot, node)| **node != target && !self.cx.quorum.is_gone(**slot))
            .map(|(_, node)| *node)
            .collect();
        let second = rendezvous(&target.to_string(), &candidates);
        while let Some(queue) = self.hints.queues.get_mut(&target) {
            let mut unheld = queue.unheld(BATCH_BYTES);
            if unheld.is_empty() {
                return;
            }
            let Some(second) = second else {
                let alone = unheld.iter_mut().map(|hint| {
                    hint.holder = Holder::Alone;
                    let awaited = hint.clone();
                    hint.is_awaited = false;
                    awaited
                });
                let alone: Vec<Hint> = alone.collect();
                alone.iter().for_each(|hint| self.settle(hint, false));
                continue;
            };
            let before: Vec<u64> = unheld.iter().map(|hint| hint.serial).collect();
            let records: Vec<_> = unheld
                .iter_mut()
                .map(|hint| {
                    hint.holder = Holder::Asked(second);
                    (hint.serial, hint.origin, hint.aged(now.instant))
                })
                .collect();
            queue.note_holder(second);
            let hints = carried(&records);
            if !self.send_hint_message(second, &HintMessage::Keep { target, hints }) {
                // It accepts no more now: again in a later round.
                if let Some(queue) = self.hints.queues.get_mut(&target) {
                    queue.want_again(&before);
                }
                return;
            }
        }
    }

    /// Another node is responsible for these.
    pub(super) fn handle_keep(
        &mut self,
        now: Now,
        from: NodeId,
        target: NodeId,
        hints: &[Carried<'_>],
    ) {
        let Some(last) = hints.last() else { return };
        let len = hints.iter().map(|it| it.message.record.len() as u64).sum();
        let is_full = !self.has_handoff_capacity(now, target, len);
        for Carried { serial, message } in hints.iter().filter(|_| !is_full) {
            let Ok((record, _)) = Record::decode(message.record) else {
                continue;
            };
            let expiry = record.expiry_left_ms;
            let hint = Hint {
                serial: *serial,
                origin: message.origin,
                number: record.number,
                record: Rc::from(message.record),
                since: now.instant,
                expires_at: expiry.map(|ms| now.instant + Duration::from_millis(ms)),
                holder: Holder::Alone,
                is_awaited: false,
            };
            let queue = self.hints.queues.entry(target).or_default();
            queue.keep(from, hint);
        }
        let upto = last.serial;
        let kept = HintMessage::Kept {
            target,
            upto,
            is_full,
        };
        self.send_hint_message(from, &kept);
    }

    /// A second holder has answered.
    pub(super) fn handle_kept(&mut self, by: NodeId, target: NodeId, upto: u64, is_full: bool) {
        let Some(queue) = self.hints.queues.get_mut(&target) else {
            return;
        };
        let holder = if is_full {
            Holder::Alone
        } else {
            Holder::Held(by)
        };
        let mut settled = Vec::new();
        queue.answered(by, upto, holder, |hint| {
            settled.push(hint.clone());
            hint.is_awaited = false;
        });
        let refuses = is_full && self.cx.config.on_full == OnFull::Refuse;
        for hint in settled {
            if refuses && hint.is_awaited {
                self.hints.dropped += 1;
                if let Some(queue) = self.hints.queues.get_mut(&target) {
                    queue.remove(hint.serial);
                }
            }
            self.settle(&hint, refuses);
        }
    }

    // The node is back.

    fn send_hints(&mut self, now: Now, target: NodeId) {
        while let Some(queue) = self.hints.queues.get_mut(&target) {
            let next = queue.take_next(BATCH_BYTES, WINDOW_BYTES);
            let Some(first) = next.first().map(|hint| hint.serial) else {
                return;
            };
            let is_alive = |hint: &&&Hint| !hint.is_expired(now.instant);
            let records: Vec<_> = next
                .iter()
                .filter(is_alive)
                .map(|hint| (hint.serial, hint.origin, hint.aged(now.instant)))
                .collect();
            if records.is_empty() {
                // They go with the next sweep.
                continue;
            }
            let hints = carried(&records);
            if !self.send_hint_message(target, &HintMessage::Hinted { hints }) {
                if let Some(queue) = self.hints.queues.get_mut(&target) {
                    queue.send_again_from(first);
                }
                return;
            }
        }
    }

    /// A node that was down has accepted what it was sent.
    pub(super) fn handle_hints_accepted(&mut self, now: Now, target: NodeId, upto: u64) {
        let Some(queue) = self.hints.queues.get_mut(&target) else {
            return;
        };
        let taken = queue.taken(upto);
        let holders = queue.holders();
        let is_last = queue.has_delivered(u64::MAX);
        taken.iter().for_each(|hint| self.settle(hint, false));
        self.follow_moves_from(now, &taken);
        self.send_done(target, holders, upto);
        if is_last && !taken.is_empty() {
            let fields = vec![("node", target.to_string())];
            let message = "a node that was out has all that was kept for its sessions";
            self.cx.event(EventLevel::Info, message, fields);
        }
        self.answer_barriers();
    }
}

fn carried(records: &[(u64, Origin, Vec<u8>)]) -> Vec<Carried<'_>> {
    records
        .iter()
        .map(|(serial, origin, record)| Carried {
            serial: *serial,
            message: RetainedRecord {
                origin: *origin,
                record,
            },
        })
        .collect()
}
