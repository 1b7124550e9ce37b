//! A broker dies while clients with persistent sessions reconnect, in virtual time (Comparison M5 and Fig. 5).
//!
//! A publisher and a subscriber are at the first site, a subscriber is at the one that dies. A client whose connection ends tries the other nodes in
//! turn. Loss is counted against the messages acknowledged to the publisher.

use std::collections::{BTreeMap, BTreeSet};

use thicket_mqtt::{PacketId, ProtocolVersion, Publish, Qos, SubscribeFilter, SubscriptionOptions};
use thicket_session::client::{CleanStart, ClientConfig};
use thicket_session::time::Instant;
use thicket_simulation::World;
use thicket_simulation::client::ClientEvent;
use thicket_simulation::net::Wake;

use super::faults::TimeLine;
use super::load::millis;
use super::network::{SimulatedLab, TIMEOUT_MS};
use crate::scenario::{Action, CRASH_PER_S, Death, Fault, Measure, Scenario};

const TOPIC: &str = "crash/messages";
/// The publisher; the others subscribe.
const PUBLISHER: usize = 0;
/// Interval of a client's attempts, ms.
const RETRY: u64 = 20;
/// A client stops waiting for a node that does not answer after this, ms.
const NO_ANSWER: u64 = 1_000;
/// After this time without news, missing messages are lost, ms.
const QUIET: u64 = 3_000;

/// A client that reconnects.
#[derive(Debug, Default)]
struct Returning {
    is_connected: bool,
    was_connected: bool,
    /// When its connection ended.
    lost_at: Option<u64>,
    tries_at: u64,
    received: BTreeMap<u32, u64>,
}

/// The clients, and the messages acknowledged to them.
struct Clients<'a> {
    lab: &'a mut SimulatedLab,
    all: Vec<Returning>,
    qos: Qos,
    payload_len: usize,
    next: u32,
    unacknowledged: BTreeMap<PacketId, u32>,
    acknowledged: BTreeSet<u32>,
    subscribed: usize,
    sessions_lost: u64,
    reconnect_ms: Vec<u64>,
    last_news: u64,
}

/// Plays the death that the scenario requests; returns its figures.
pub(super) fn play(
    lab: &mut SimulatedLab,
    scenario: &Scenario,
) -> Result<BTreeMap<String, f64>, String> {
    let Measure::Crash {
        site,
        how,
        before_s,
        after_s,
    } = &scenario.measure
    else {
        return Err("measure.kind: no death is asked for".to_owned());
    };
    let dies = lab
        .site(site)
        .ok_or_else(|| format!("measure.site: there is no site {site}"))?;
    let rate = scenario
        .workload
        .rate_per_s
        .map_or(CRASH_PER_S, |rate| rate.value());
    let qos = match scenario.workload.qos {
        2 => Qos::ExactlyOnce,
        _ => Qos::AtLeastOnce,
    };
    let mut clients = Clients::connect(lab, [0, 0, dies], qos, scenario.workload.payload_bytes)?;
    clients.publish_for(millis(before_s.value()), rate);
    let mut line = TimeLine::new(&[], clients.now());
    let fault = |action| Fault::of_site(action, site);
    match how {
        Death::Kill => line.apply(&fault(Action::Kill), clients.lab),
        Death::PowerOff => line.apply(&fault(Action::PowerOff), clients.lab),
        Death::Drain => {
            line.apply(&fault(Action::Drain), clients.lab);
            let from = clients.now();
            while line.is_draining() && clients.now() - from < TIMEOUT_MS {
                line.act(clients.lab);
                clients.publish_for(RETRY, rate);
            }
            line.apply(&fault(Action::Kill), clients.lab);
        }
    }
    // A single node has no other to fail over to: it restarts at once.
    let is_alone = clients.lab.world.nodes.len() == 1;
    if is_alone {
        line.apply(&fault(Action::Restart), clients.lab);
    }
    clients.publish_for(millis(after_s.value()), rate);
    if !is_alone {
        line.apply(&fault(Action::Restart), clients.lab);
    }
    clients.drain();
    Ok(clients.metrics())
}

impl<'a> Clients<'a> {
    fn connect(
        lab: &'a mut SimulatedLab,
        sites: [usize; 3],
        qos: Qos,
        payload_len: usize,
    ) -> Result<Self, String> {
        let mut clients = Self {
            lab,
            all: sites.map(|_| Returning::default()).into(),
            qos,
            payload_len,
            next: 0,
            unacknowledged: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            subscribed: 0,
            sessions_lost: 0,
            reconnect_ms: Vec::new(),
            last_news: 0,
        };
        for (number, site) in sites.into_iter().enumerate() {
            let mut config = ClientConfig::new(ProtocolVersion::V5, format!("crash-{number}"));
            config.session_expiry_interval = 3_600;
            let world = &mut clients.lab.world;
            let client = world.add_client(config);
            world.connect_client(client, site, CleanStart::No);
        }
        clients.wait("connected", |it| it.all.iter().all(|it| it.is_connected))?;
        for client in 1..sites.len() {
            let filter = SubscribeFilter {
                filter: TOPIC,
                options: SubscriptionOptions {
                    qos,
                    ..SubscriptionOptions::default()
                },
            };
            let world = &mut clients.lab.world;
            let now = Instant::from_millis(world.net.now);
            let machine = &mut world.clients[client].machine;
            let sent = machine.subscribe(now, &[filter], None);
            sent.map_err(|error| format!("a subscriber cannot subscribe: {error}"))?;
            world.clients[client].finish(&mut world.net);
        }
        clients.wait("subscribed", |it| it.subscribed == sites.len() - 1)?;
        clients.wait("replicated", |it| World::is_covered(&it.lab.world))?;
        Ok(clients)
    }

    const fn now(&self) -> u64 {
        self.lab.world.net.now
    }

    fn wait(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<(), String> {
        let from = self.now();
        while !holds(self) {
            if self.now() - from > TIMEOUT_MS {
                return Err(format!("the clients were not {what} in {TIMEOUT_MS} ms"));
            }
            self.advance(self.now() + 10);
        }
        Ok(())
    }

    fn advance(&mut self, until: u64) {
        while let Some(wake) = self.lab.world.step(until) {
            if let Wake::Client(client) = wake {
                self.hear(client);
            }
        }
        let now = &mut self.lab.world.net.now;
        *now = until.max(*now);
        for client in 0..self.all.len() {
            self.hear(client);
            self.come_back(client);
        }
    }

    fn hear(&mut self, client: usize) {
        for (at, event) in self.lab.world.clients[client].take_events() {
            let state = &mut self.all[client];
            match event {
                ClientEvent::Connected { session_present } => {
                    state.is_connected = true;
                    if state.was_connected {
                        self.sessions_lost += u64::from(!session_present);
                        if let Some(lost_at) = state.lost_at.take()
                            && client != PUBLISHER
                        {
                            self.reconnect_ms.push(at - lost_at);
                        }
                    }
                    state.was_connected = true;
                }
                ClientEvent::Subscribed { reason_codes, .. } => {
                    self.subscribed += usize::from(!reason_codes.iter().any(|it| it.is_error()));
                }
                ClientEvent::Message { payload, .. } => {
                    self.last_news = at;
                    if let Some(number) = payload.first_chunk() {
                        let number = u32::from_le_bytes(*number);
                        *state.received.entry(number).or_default() += 1;
                    }
                }
                ClientEvent::Acknowledged {
                    packet_id,
                    reason_code,
                } => {
                    self.last_news = at;
                    if let Some(number) = self.unacknowledged.remove(&packet_id)
                        && !reason_code.is_error()
                    {
                        self.acknowledged.insert(number);
                    }
                }
                ClientEvent::Discarded { packet_id } => {
                    self.unacknowledged.remove(&packet_id);
                }
                ClientEvent::Unsubscribed { .. } => {}
                ClientEvent::Closed
                | ClientEvent::Refused(_)
                | ClientEvent::Redirected { .. }
                | ClientEvent::DisconnectedBy(_)
                | ClientEvent::Broken(_) => {
                    state.is_connected = false;
                    state.lost_at.get_or_insert(at);
                    state.tries_at = at + RETRY;
                }
            }
        }
    }

    /// Tries the next running node, if it is time.
    fn come_back(&mut self, client: usize) {
        let now = self.now();
        let state = &mut self.all[client];
        if state.is_connected || !state.was_connected || now < state.tries_at {
            return;
        }
        state.tries_at = now + NO_ANSWER;
        let world = &mut self.lab.world;
        world.clients[client].drop_connection(&mut world.net);
        let count = world.nodes.len();
        let from = world.clients[client].node;
        let mut others = (1..=count).map(|step| (from + step) % count);
        if let Some(node) = others.find(|node| world.nodes[*node].machines.is_some()) {
            world.connect_client(client, node, CleanStart::No);
        }
    }

    fn publish_for(&mut self, length: u64, rate: f64) {
        let (start, gap) = (self.now(), 1e3 / rate);
        let mut message = 0_u64;
        while (message as f64 * gap) < length as f64 {
            self.advance(start + (message as f64 * gap) as u64);
            self.publish();
            message += 1;
        }
        self.advance(start + length);
    }

    /// A client that is not connected does not publish.
    fn publish(&mut self) {
        if !self.all[PUBLISHER].is_connected {
            return;
        }
        let mut payload = vec![0; self.payload_len];
        payload[..4].copy_from_slice(&self.next.to_le_bytes());
        let publish = Publish {
            qos: self.qos,
            ..Publish::new(TOPIC, &payload)
        };
        let world = &mut self.lab.world;
        let now = Instant::from_millis(world.net.now);
        let client = &mut world.clients[PUBLISHER];
        if let Ok(Some(packet_id)) = client.machine.publish(now, &publish) {
            self.unacknowledged.insert(packet_id, self.next);
            self.next += 1;
        }
        client.finish(&mut world.net);
    }

    fn drain(&mut self) {
        self.last_news = self.now();
        while self.now() - self.last_news < QUIET {
            self.advance(self.now() + 10);
        }
    }

    fn metrics(&self) -> BTreeMap<String, f64> {
        let subscribers = &self.all[1..];
        let came = |it: &Returning| it.received.len();
        let missed = |it: &Returning| {
            let is_missing = |number: &&u32| !it.received.contains_key(*number);
            self.acknowledged.iter().filter(is_missing).count()
        };
        let doubled = |it: &Returning| it.received.values().map(|count| count - 1).sum::<u64>();
        let acknowledged = self.acknowledged.len() * subscribers.len();
        let mut metrics: BTreeMap<String, f64> = [
            ("acknowledged_messages", acknowledged as f64),
            (
                "delivered_messages",
                subscribers.iter().map(came).sum::<usize>() as f64,
            ),
            (
                "lost_messages",
                subscribers.iter().map(missed).sum::<usize>() as f64,
            ),
            (
                "duplicated_messages",
                subscribers.iter().map(doubled).sum::<u64>() as f64,
            ),
            ("sessions_lost", self.sessions_lost as f64),
            ("unacknowledged_messages", self.unacknowledged.len() as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if let Some(longest) = self.reconnect_ms.iter().max() {
            metrics.insert("reconnect_max_ms".to_owned(), *longest as f64);
        }
        metrics
    }
}
