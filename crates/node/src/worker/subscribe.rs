//! SUBSCRIBE and UNSUBSCRIBE. A SUBACK waits until every reachable node has applied what it changes (rule 4 between nodes).

use std::collections::BTreeSet;

use thicket_mqtt::{
    Packet, ReasonCode, RetainHandling, Suback, Subscribe, SubscribeFilter, Unsuback, Unsubscribe,
};
use thicket_overlay::record::HybridTime;
use thicket_session::{server::Subscription, topic::SubscriptionFilter};

use super::{
    Worker, WorkerView,
    activity::restart_rates,
    better_nodes::ask_better_node_for_filter,
    context::Context,
    listeners::prefix,
    minority::{refuses_subscribe, refuses_unsubscribe},
    refusal::Refusal,
    replication::report_taken_over,
    retained::{
        advance_replay, begin_overtaking, begin_replay, end_overtaking, end_replays, restart_replay,
    },
    state::{
        gates::{Gate, GatedSuback},
        interests::Member,
        places::PLACE,
        replica::stream::Level,
        sessions::SessionKey,
    },
};
use crate::{
    ConnectionId, Now, SUBSCRIBED, UNSUBSCRIBED,
    messages::{InterestChange, SessionState, ToHub},
};

impl Worker {
    pub(super) fn handle_subscribe(
        &mut self,
        now: Now,
        id: ConnectionId,
        key: SessionKey,
        subscribe: &Subscribe<'_>,
    ) -> Result<(), Refusal> {
        if refuses_subscribe(&mut self.cx, id, subscribe) {
            return Ok(());
        }
        self.choose_backup_for(now, key, subscribe);
        begin_overtaking(&mut self.cx, key);
        let mut reason_codes = Vec::with_capacity(subscribe.filters.len());
        let mut replays = Vec::new();
        let mut changes = Vec::new();
        for asked in &subscribe.filters {
            let asked = options_for(&self.cx, id, asked);
            match self.subscribe(
                now,
                id,
                key,
                &asked,
                subscribe.subscription_identifier,
                &mut changes,
            )? {
                Ok(granted) => {
                    reason_codes.push(granted.reason_code);
                    replays.extend(granted.replay);
                }
                Err(reason_code) => reason_codes.push(reason_code),
            }
        }
        self.cx.effort.spend_on_changes(subscribe.filters.len());
        self.primaries.covers.note_uncovered(&mut self.cx, key);
        let asks_place = ask_place_of(&mut self.cx, id, subscribe);
        advance_replay(&mut self.cx, key);
        if changes.is_empty() && (!replays.is_empty() || asks_place) {
            // Nothing is new to others, but the hub must report the time of the retained messages, and the question must be answered.
            self.cx.send_interests(changes);
        } else {
            self.cx.announce(changes);
        }
        let connection_serial = self.cx.connections.get(id).map(|it| it.serial);
        let (Some(connection_serial), Some(session)) =
            (connection_serial, self.cx.sessions.get_mut(key))
        else {
            return Ok(());
        };
        session.gated_subacks += 1;
        let gated = GatedSuback {
            connection: id,
            connection_serial,
            session: key,
            session_serial: session.serial,
            packet_id: subscribe.packet_id,
            reason_codes,
            place: None,
            replays,
        };
        self.wait_for_interests(Gate::Suback(gated));
        Ok(())
    }

    /// A session that holds nothing yet gets its backup where there are subscribers already for what it subscribes to.
    fn choose_backup_for(&mut self, now: Now, key: SessionKey, subscribe: &Subscribe<'_>) {
        if self.cx.config.backups > 0 {
            let filters = subscribe.filters.iter();
            let parsed = filters.filter_map(|asked| SubscriptionFilter::parse(asked.filter).ok());
            let plain = parsed.filter(|filter| !filter.is_shared());
            let filters: Vec<_> = plain.map(|filter| filter.filter).collect();
            self.primaries
                .choose_backup_again(&mut self.cx, now, key, &filters);
        }
    }

    /// One filter. Outer error: the connection ends; inner error: the code for this filter.
    fn subscribe(
        &mut self,
        now: Now,
        id: ConnectionId,
        key: SessionKey,
        asked: &SubscribeFilter<'_>,
        identifier: Option<u32>,
        changes: &mut Vec<InterestChange>,
    ) -> Result<Result<Granted, ReasonCode>, Refusal> {
        let Self { cx, primaries, .. } = self;
        let filter = match parse_filter(cx, id, asked.filter) {
            Ok(filter) => filter,
            Err(reason_code) => return Ok(Err(reason_code)),
        };
        if filter.is_shared() && asked.options.no_local {
            // [MQTT-3.8.3-4]
            return Err(Refusal::protocol("No Local on a shared subscription"));
        }
        let maximum = cx.config.limits.subscriptions as usize;
        let Some(session) = cx.sessions.get_mut(key) else {
            return Ok(Err(ReasonCode::UnspecifiedError));
        };
        let is_new = !session.subscriptions.contains_key(&filter);
        let is_full = session.stored.is_some() && cx.journal.is_full_for_sessions();
        if is_new && (session.subscriptions.len() >= maximum || is_full) {
            return Ok(Err(ReasonCode::QuotaExceeded));
        }
        if !session.may_subscribe(&filter) {
            return Ok(Err(ReasonCode::NotAuthorized));
        }
        if is_new && !session.charge.subscribe(&filter, &cx.config.limits) {
            return Ok(Err(ReasonCode::QuotaExceeded));
        }
        let subscription = Subscription {
            options: asked.options,
            identifier,
        };
        let wants_retained = match asked.options.retain_handling {
            RetainHandling::SendAtSubscribe => true,
            RetainHandling::SendIfNew => is_new,
            RetainHandling::DoNotSend => false,
        };
        // A shared subscription gets no retained messages (5.0, 4.8.2).
        let wants_retained = wants_retained && !filter.is_shared();
        let known = session.subscriptions.entry(filter.clone()).or_default();
        known.subscription = subscription;
        // Otherwise those that an earlier SUBSCRIBE asked for still come.
        if wants_retained {
            known.replay = Some(Box::default());
        }
        cx.journal
            .subscription(session.stored, &filter, Some(known));
        if wants_retained {
            restart_replay(session, &filter);
        }
        let is_persistent = session.is_persistent();
        if is_new {
            restart_rates(cx, now, id);
        }
        primaries.note_operation(cx, now, key, &filter);
        cx.note_subscription(key, SUBSCRIBED, || {
            let qos = asked.options.qos as u8;
            vec![("filter", filter.to_string()), ("qos", qos.to_string())]
        });
        let member = Member {
            is_backup: false,
            subscription,
            persistent: is_persistent,
            connected: true,
        };
        changes.extend(cx.interests.subscribe(key, &filter, member));
        let replay = wants_retained.then_some((filter, subscription));
        Ok(Ok(Granted {
            reason_code: granted_code(asked),
            replay,
        }))
    }

    pub(super) fn handle_unsubscribe(
        &mut self,
        now: Now,
        id: ConnectionId,
        key: SessionKey,
        unsubscribe: &Unsubscribe<'_>,
    ) -> Result<(), Refusal> {
        let Self { cx, primaries, .. } = self;
        if refuses_unsubscribe(cx, id, key, unsubscribe)? {
            return Ok(());
        }
        let mut reason_codes = Vec::with_capacity(unsubscribe.filters.len());
        let mut changes = Vec::new();
        let mut unsubscribed = BTreeSet::new();
        for text in &unsubscribe.filters {
            let filter = match parse_filter(cx, id, text) {
                Ok(filter) => filter,
                Err(reason_code) => {
                    reason_codes.push(reason_code);
                    continue;
                }
            };
            let Some(session) = cx.sessions.get_mut(key) else {
                return Ok(());
            };
            let code = match session.subscriptions.remove(&filter) {
                Some(_) => {
                    session.charge.unsubscribe(&filter);
                    cx.journal.subscription(session.stored, &filter, None);
                    primaries.note_operation(cx, now, key, &filter);
                    cx.note_subscription(key, UNSUBSCRIBED, || {
                        vec![("filter", filter.to_string())]
                    });
                    ReasonCode::Success
                }
                None => ReasonCode::NoSubscriptionExisted,
            };
            changes.extend(cx.interests.unsubscribe(key, &filter));
            unsubscribed.insert(filter);
            reason_codes.push(code);
        }
        cx.gates.cancel_replays_of(key, &unsubscribed);
        end_replays(cx, key);
        cx.effort.spend_on_changes(unsubscribe.filters.len());
        if reason_codes.contains(&ReasonCode::Success) {
            restart_rates(cx, now, id);
        }
        cx.announce(changes);
        cx.hold_output(id, key);
        cx.send(
            id,
            &Packet::Unsuback(Unsuback::new(unsubscribe.packet_id, reason_codes)),
        );
        Ok(())
    }

    /// The session may leave the node where it was when every reachable node has applied the interests here, including nodes that are back since they
    /// last received them.
    pub(super) fn wait_for_import(&mut self, request: u64) {
        if self.cx.gates.is_settled() {
            self.cx.announce_all(Vec::new());
        }
        self.wait_for_interests(Gate::Import { request });
    }

    /// Reports to the hub that a session was taken over: of a member of groups when every node has its membership here. Otherwise a message might be
    /// routed in between, and find no member anywhere.
    pub(super) fn report_taken_over_when_known(&mut self, key: SessionKey) {
        let Some(session) = self.cx.sessions.get(key) else {
            return;
        };
        if session.subscriptions.keys().any(|it| it.is_shared()) {
            let (session, serial) = (key, session.serial);
            self.wait_for_interests(Gate::TakenOver { session, serial });
        } else {
            report_taken_over(&mut self.cx, key, SessionState::TakenOver);
        }
    }

    fn wait_for_interests(&mut self, gate: Gate) {
        if self.cx.gates.is_settled() {
            self.open(gate, HybridTime::default());
        } else {
            self.cx.gates.waiting.push_back((self.cx.gates.sent, gate));
        }
    }

    /// Every reachable node has applied our changes up to `sequence`.
    pub(super) fn handle_interest_settled(&mut self, sequence: u64, since: HybridTime) {
        self.cx.gates.settled = self.cx.gates.settled.max(sequence);
        while let Some((_, count)) =
            (self.cx.gates.unsettled).pop_front_if(|(waits_for, _)| *waits_for <= sequence)
        {
            self.cx.gates.changes -= count;
        }
        while let Some((_, gate)) = self
            .cx
            .gates
            .waiting
            .pop_front_if(|(waits_for, _)| *waits_for <= sequence)
        {
            self.open(gate, since);
        }
    }

    /// `since`: no retained message that was here when the interests were settled was written later.
    fn open(&mut self, gate: Gate, since: HybridTime) {
        match gate {
            Gate::Suback(gated) => self.send_suback(gated, since),
            Gate::Import { request } => self.cx.send_to_hub(ToHub::Imported { request }),
            Gate::TakenOver { session, serial } => {
                if self.cx.sessions.get_same(session, serial).is_some() {
                    report_taken_over(&mut self.cx, session, SessionState::TakenOver);
                }
            }
        }
    }

    fn send_suback(&mut self, gated: GatedSuback, since: HybridTime) {
        let Self { cx, system, .. } = self;
        let (key, session_serial) = (gated.session, gated.session_serial);
        if let Some(session) = cx.sessions.get_same(key, session_serial) {
            session.gated_subacks -= 1;
        }
        let (id, serial) = (gated.connection, gated.connection_serial);
        let is_connected = cx.connections.is_same(id, serial);
        if is_connected {
            cx.hold_output_until(id, key, Level::Held);
            let is_granted = gated.reason_codes.iter().all(|code| !code.is_error());
            let place = gated.place.as_deref().filter(|_| is_granted);
            let suback = Suback {
                user_properties: place.map(|node| (PLACE, node)).into_iter().collect(),
                ..Suback::new(gated.packet_id, gated.reason_codes)
            };
            cx.send(id, &Packet::Suback(suback));
        }
        if cx.sessions.get_same(key, session_serial).is_none() {
            return;
        }
        for (filter, subscription) in gated.replays {
            begin_replay(cx, key, &filter, since);
            if is_connected {
                system.start_replay(key, session_serial, &filter, subscription);
            }
        }
        end_overtaking(cx, key);
    }
}

/// A filter with the options that its client cannot ask for: a bridge of a version without them is sent no echo of what it publishes, and RETAIN as
/// published. They are those of the subscription from now on, stored and replicated with it.
fn options_for<'a>(
    cx: &Context,
    id: ConnectionId,
    asked: &SubscribeFilter<'a>,
) -> SubscribeFilter<'a> {
    let attached = cx.connections.attached(id);
    let is_bridge = attached.is_some_and(|attached| attached.is_bridge);
    let mut asked = *asked;
    asked.options.retain_as_published |= is_bridge;
    // A shared subscription has no No Local [MQTT-3.8.3-4].
    asked.options.no_local |= is_bridge && !asked.filter.starts_with("$share/");
    asked
}

/// A better node is asked for only if the filter is alone in its SUBSCRIBE: the answer is then about that one.
fn ask_place_of(cx: &mut Context, id: ConnectionId, subscribe: &Subscribe<'_>) -> bool {
    let [asked] = &subscribe.filters[..] else {
        return false;
    };
    let follows = cx
        .connections
        .attached(id)
        .is_some_and(|attached| attached.better_nodes.is_some());
    follows
        && parse_filter(cx, id, asked.filter)
            .is_ok_and(|filter| ask_better_node_for_filter(cx, id, subscribe.packet_id, &filter))
}

/// The filter with the listener's prefix, if clients may have it.
fn parse_filter(
    cx: &Context,
    id: ConnectionId,
    text: &str,
) -> Result<SubscriptionFilter, ReasonCode> {
    let maximum = usize::from(cx.config.limits.topic_levels);
    let prefix = prefix(cx, id);
    let parse = |text: &str| {
        SubscriptionFilter::parse_with_maximum_levels(text, maximum)
            .map_err(|error| error.reason_code())
    };
    let filter = parse(text)?;
    if filter.filter.as_str().starts_with("$thicket/") {
        return Err(ReasonCode::NotAuthorized);
    }
    match &filter.share_name {
        _ if prefix.is_empty() => Ok(filter),
        None => parse(&format!("{prefix}{text}")),
        Some(name) => parse(&format!("$share/{name}/{prefix}{}", filter.filter)),
    }
}

impl Context {
    /// Connections whose SUBACK waits.
    pub(super) fn subscribing(&self) -> impl Iterator<Item = ConnectionId> {
        let waiting = self.gates.waiting.iter();
        waiting.filter_map(|(_, gate)| match gate {
            Gate::Suback(gated) => {
                let (id, serial) = (gated.connection, gated.connection_serial);
                self.connections.is_same(id, serial).then_some(id)
            }
            Gate::Import { .. } | Gate::TakenOver { .. } => None,
        })
    }

    /// Sends changes of this worker's interests to the hub.
    pub(super) fn announce(&mut self, changes: Vec<InterestChange>) {
        if !changes.is_empty() {
            self.send_interests(changes);
        }
    }

    /// Sends changes of this worker's interests to the hub, even if there are none: the answer means that all earlier ones are applied everywhere.
    pub(super) fn announce_all(&mut self, changes: Vec<InterestChange>) {
        self.send_interests(changes);
    }

    fn send_interests(&mut self, changes: Vec<InterestChange>) {
        self.gates.sent += 1;
        let sequence = self.gates.sent;
        if !changes.is_empty() {
            self.gates.unsettled.push_back((sequence, changes.len()));
            self.gates.changes += changes.len();
        }
        // What was published before must be kept before the hub reports the position of the retained messages.
        self.send_to_hub_after_records(ToHub::Interest { sequence, changes });
    }

    /// Messages of shared subscriptions go to connected members first: announces a change of that.
    pub(super) fn set_members_connected(&mut self, key: SessionKey, connected: bool) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let mut changes = Vec::new();
        for filter in session
            .subscriptions
            .keys()
            .filter(|filter| filter.is_shared())
        {
            changes.extend(self.interests.set_connected(key, filter, connected));
        }
        self.announce(changes);
    }
}

/// A filter that was granted.
#[derive(Debug)]
struct Granted {
    reason_code: ReasonCode,
    replay: Option<(SubscriptionFilter, Subscription)>,
}

const fn granted_code(asked: &SubscribeFilter<'_>) -> ReasonCode {
    match asked.options.qos {
        thicket_mqtt::Qos::AtMostOnce => ReasonCode::Success,
        thicket_mqtt::Qos::AtLeastOnce => ReasonCode::GrantedQos1,
        thicket_mqtt::Qos::ExactlyOnce => ReasonCode::GrantedQos2,
    }
}

impl WorkerView<'_> {
    /// Whether every reachable node has applied this worker's interests, and the hub has its sessions.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.worker.cx.gates.is_settled()
    }
}
