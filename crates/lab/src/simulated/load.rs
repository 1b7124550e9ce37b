//! The load of a scenario in virtual time: clients connect, subscribe and publish, and every arrival is counted.

use std::collections::{BTreeMap, VecDeque};

use thicket_bench::generator::{self, Node, Schedule, WillMessage};
use thicket_bench::stamp::{self, Stamp, StampForm};
use thicket_bench::workload::attach;
use thicket_mqtt::{PacketId, Publish, SubscribeFilter, SubscriptionOptions};
use thicket_session::client::{CleanStart, ClientConfig, WillConfig};
use thicket_session::time::Instant;
use thicket_simulation::client::ClientEvent;
use thicket_simulation::net::Wake;

use super::faults::TimeLine;
use super::network::{SimulatedLab, TIMEOUT_MS};
use super::tally::Tally;
use crate::results::OWN_COUNTERS;
use crate::scenario::{Measure, Scenario, clients, prefix};

/// Clients that connect or subscribe in one millisecond.
const AT_ONCE: usize = 100;
/// Expiry of persistent sessions, as that of the load generator.
const SESSION_EXPIRY_S: u32 = 60;
/// Maximum number of problems reported.
const MOST_PROBLEMS: usize = 10;

/// Connected clients: publishers first, then subscribers, by their places in the world.
pub(super) struct Load<'a> {
    lab: &'a mut SimulatedLab,
    settings: generator::Scenario,
    pub tally: Tally,
    publishers: usize,
    /// Sites of all clients.
    sites: Vec<usize>,
    connected: usize,
    subscribed: usize,
    /// Publications that wait until their client may send, by stream.
    held: Vec<VecDeque<Vec<u8>>>,
    holds: usize,
    /// Publications that wait for their last acknowledgement, by stream.
    waiting: Vec<BTreeMap<PacketId, Stamp>>,
    refused: u64,
    /// Errors that ended clients.
    pub problems: Vec<String>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
}

/// Milliseconds of seconds.
pub(super) fn millis(seconds: f64) -> u64 {
    (1e3 * seconds).round() as u64
}

/// The will of a client, as its machine has it.
fn will(will: &WillMessage) -> WillConfig {
    WillConfig {
        topic: will.topic.clone(),
        payload: vec![b'.'; will.payload_len],
        qos: will.qos,
        retain: will.retain,
        delay_interval: 0,
        message_expiry_interval: None,
        properties: Vec::new(),
    }
}

impl<'a> Load<'a> {
    /// Connects all clients and subscribes; it ends with the last SUBACK. `run`: number of the
    /// cell, and repeat.
    pub fn connect(
        lab: &'a mut SimulatedLab,
        scenario: &Scenario,
        run: (usize, u64),
    ) -> Result<Self, String> {
        let seed = scenario.seed + run.1;
        let names = lab.topology.sites.clone();
        let node = |name: &String| Node {
            name: name.clone(),
            address: ([127, 0, 0, 1], 1883).into(),
            namespace: None,
        };
        let nodes: Vec<Node> = names.iter().map(node).collect();
        let (cell, repeat) = run;
        let mut settings = clients(scenario, &names, &nodes, &prefix(cell, repeat), seed);
        if let Measure::Connections { count, .. } = scenario.measure {
            settings.workload = thicket_bench::workload::Workload::Idle { clients: count };
        }
        let plan = settings
            .plan()
            .map_err(|error| format!("workload: {error}"))?;
        let publishers = plan.topics.len();
        let (publish_at, subscribe_at) = attach(
            settings.attachment,
            settings.nodes.len(),
            publishers,
            plan.subscribers.len(),
            seed,
        );
        let place: BTreeMap<&String, usize> = names.iter().zip(0..).collect();
        let site = |at: usize| place[&settings.nodes[at].name];
        let sites: Vec<usize> = (publish_at.into_iter().chain(subscribe_at))
            .map(site)
            .collect();
        let mut load = Self {
            lab,
            tally: Tally::new(plan),
            publishers,
            sites,
            connected: 0,
            subscribed: 0,
            held: vec![VecDeque::new(); publishers],
            holds: 0,
            waiting: vec![BTreeMap::new(); publishers],
            refused: 0,
            problems: Vec::new(),
            warnings: Vec::new(),
            settings,
        };
        load.connect_all()?;
        load.subscribe_all()?;
        Ok(load)
    }

    fn connect_all(&mut self) -> Result<(), String> {
        let begun = self.lab.world.net.now;
        for client in 0..self.sites.len() {
            let id = match client.checked_sub(self.publishers) {
                None => format!("{}-p{client}", self.settings.prefix),
                Some(subscriber) => format!("{}-s{subscriber}", self.settings.prefix),
            };
            let is_subscriber = client >= self.publishers;
            let mut config = ClientConfig::new(self.settings.version, id);
            config.keep_alive = self.settings.keep_alive_s;
            config.will = self.settings.will.as_ref().map(will);
            let mut clean_start = CleanStart::Yes;
            if self.settings.persistent && is_subscriber {
                config.session_expiry_interval = SESSION_EXPIRY_S;
                clean_start = CleanStart::No;
            }
            let world = &mut self.lab.world;
            let index = world.add_client(config);
            world.connect_client(index, self.sites[client], clean_start);
            match self.settings.connects_per_s {
                Some(rate) => self.advance(begun + millis((client + 1) as f64 / rate)),
                None if client % AT_ONCE == AT_ONCE - 1 => {
                    self.advance(self.lab.world.net.now + 1);
                }
                None => {}
            }
        }
        let all = self.sites.len();
        self.wait("accepted", all, |load| load.connected)
    }

    fn subscribe_all(&mut self) -> Result<(), String> {
        let mut asked = 0;
        for subscriber in 0..self.sites.len() - self.publishers {
            let filters = self.tally.plan().subscribers[subscriber].filters.clone();
            if filters.is_empty() {
                continue;
            }
            let options = SubscriptionOptions {
                qos: self.settings.subscriptions_qos(),
                ..SubscriptionOptions::default()
            };
            let filters: Vec<_> = (filters.iter())
                .map(|filter| SubscribeFilter { filter, options })
                .collect();
            let world = &mut self.lab.world;
            let client = &mut world.clients[self.publishers + subscriber];
            let now = Instant::from_millis(world.net.now);
            let sent = client.machine.subscribe(now, &filters, None);
            sent.map_err(|error| format!("workload: a subscriber cannot subscribe: {error}"))?;
            client.finish(&mut world.net);
            asked += 1;
            if asked % AT_ONCE == 0 {
                self.advance(self.lab.world.net.now + 1);
            }
        }
        self.wait("subscribed", asked, |load| load.subscribed)
    }

    /// Waits until `all` clients are counted by `so_far`.
    fn wait(&mut self, what: &str, all: usize, so_far: fn(&Self) -> usize) -> Result<(), String> {
        let from = self.lab.world.net.now;
        while so_far(self) < all {
            if let Some(problem) = self.problems.first() {
                return Err(problem.clone());
            }
            let now = self.lab.world.net.now;
            if now - from > TIMEOUT_MS {
                let came = so_far(self);
                return Err(format!(
                    "{came} of {all} clients were {what} within {TIMEOUT_MS} ms"
                ));
            }
            self.advance(now + 1);
        }
        Ok(())
    }

    /// Lets time pass and handles what clients receive.
    pub fn advance(&mut self, until: u64) {
        while let Some(wake) = self.lab.world.step(until) {
            if let Wake::Client(client) = wake {
                self.hear(client);
            }
        }
        let now = &mut self.lab.world.net.now;
        *now = until.max(*now);
    }

    fn hear(&mut self, client: usize) {
        for (at, event) in self.lab.world.clients[client].take_events() {
            let gone = match event {
                ClientEvent::Message { payload, .. } => {
                    if let Some(subscriber) = client.checked_sub(self.publishers) {
                        self.tally.note(subscriber, &payload, at);
                    }
                    continue;
                }
                ClientEvent::Connected { .. } => {
                    self.connected += 1;
                    continue;
                }
                ClientEvent::Subscribed { reason_codes, .. } => {
                    match reason_codes.iter().find(|code| code.is_error()) {
                        None => self.subscribed += 1,
                        Some(code) => self.tell(client, &format!("may not subscribe: {code:?}")),
                    }
                    continue;
                }
                ClientEvent::Acknowledged {
                    reason_code,
                    packet_id,
                } => {
                    let waiting = self.waiting.get_mut(client);
                    let stamp = waiting.and_then(|waiting| waiting.remove(&packet_id));
                    if reason_code.is_error() {
                        self.refused += 1;
                        self.tally.not_accepted.extend(stamp);
                    } else if let Some(stamp) = stamp {
                        self.tally.note_acknowledged(stamp, at);
                    }
                    continue;
                }
                ClientEvent::Discarded { .. } | ClientEvent::Unsubscribed { .. } => continue,
                ClientEvent::Refused(code) => format!("was refused: {code:?}"),
                ClientEvent::Redirected { to, .. } => format!("was sent to {to}"),
                ClientEvent::DisconnectedBy(code) => format!("was disconnected: {code:?}"),
                ClientEvent::Broken(why) => format!("got what it cannot read: {why}"),
                ClientEvent::Closed => "lost its connection: place clients at sites whose broker lives, or measure a crash".to_owned(),
            };
            self.tell(client, &gone);
        }
    }

    fn tell(&mut self, client: usize, what: &str) {
        if self.problems.len() < MOST_PROBLEMS {
            let site = &self.lab.topology.sites[self.sites[client]];
            self.problems
                .push(format!("client {client} at {site} {what}"));
        }
    }

    /// Virtual time, ms.
    pub const fn now(&self) -> u64 {
        self.lab.world.net.now
    }

    /// Rests; the phase of subscriptions ends with it.
    pub fn settle(&mut self, seconds: f64) -> crate::results::Phase {
        self.advance(self.lab.world.net.now + millis(seconds));
        self.lab.phase("subscriptions")
    }

    /// Publishes and follows the time line until everything has arrived, or nothing arrives any more; the phase ends with it.
    pub fn publish(
        &mut self,
        scenario: &Scenario,
        line: &mut TimeLine,
    ) -> (crate::results::Phase, BTreeMap<String, f64>) {
        let start = self.lab.world.net.now;
        let workload = &scenario.workload;
        let warm_up_s = workload.warm_up_s.map_or(0.0, |seconds| seconds.value());
        let measured_from = start + millis(warm_up_s);
        self.tally.begin(start, measured_from);
        let own_before = self.lab.own_counters();
        let budget = workload.messages.unwrap_or(u64::MAX);
        let end = workload
            .seconds
            .map_or(u64::MAX, |seconds| measured_from + millis(seconds.value()));
        match (workload.rate_per_s, workload.window) {
            (Some(rate), _) if self.publishers > 0 => {
                let warm = (rate.value() * warm_up_s).ceil() as u64;
                let schedule = Schedule::new(
                    workload.spacing(),
                    rate.value(),
                    self.publishers as u32,
                    start * 1_000_000,
                    self.settings.seed,
                );
                self.publish_by(schedule, budget.saturating_add(warm), end, line);
            }
            (Some(_), _) => {}
            (None, window) => self.publish_in_window(window.unwrap_or(1), budget, end, line),
        }
        let sent_until = self.lab.world.net.now;
        let by_then = self.tally.delivered();
        self.drain(millis(scenario.phases.drain_s.value()), line);
        let phase = self.lab.phase("publish");
        let mut metrics = self.tally.metrics();
        let (until, delivered) = if workload.seconds.is_some() {
            (sent_until, by_then)
        } else {
            (
                self.tally.last_arrival.max(sent_until),
                self.tally.delivered(),
            )
        };
        let seconds = (until - start) as f64 / 1e3;
        if seconds > 0.0 {
            let published: u64 = self.tally.sent.iter().sum();
            metrics.insert(
                "published_msgs_per_s".to_owned(),
                published as f64 / seconds,
            );
            metrics.insert(
                "delivered_msgs_per_s".to_owned(),
                delivered as f64 / seconds,
            );
        }
        let own = own_before.into_iter().zip(self.lab.own_counters());
        for (name, (before, after)) in OWN_COUNTERS.into_iter().zip(own) {
            let sent = after.saturating_sub(before) as f64;
            metrics.insert(name.to_owned(), sent);
        }
        if self.holds > 0 {
            self.problems.push(format!(
                "{} messages were never sent: their clients had no acknowledgements",
                self.holds
            ));
        }
        if self.refused > 0 {
            let problem = format!("the brokers refused {} messages", self.refused);
            if scenario.faults.is_empty() {
                self.problems.push(problem);
            } else {
                // Under faults that is a result.
                metrics.insert("refused_messages".to_owned(), self.refused as f64);
                self.warnings.push(problem);
            }
        }
        (phase, metrics)
    }

    /// Publishes the messages of a schedule, which is that of the load generator: by default evenly, from the streams in turn.
    fn publish_by(&mut self, mut schedule: Schedule, budget: u64, end: u64, line: &mut TimeLine) {
        // Times that are a whole number of milliseconds may be a nanosecond less.
        let in_ms = |due_ns: u64| (due_ns + 500) / 1_000_000;
        let mut left = budget;
        while left > 0 && in_ms(schedule.next_due_ns()) < end && !self.lab.world.is_stopped() {
            let (due_ns, stream) = schedule.pop();
            self.pass_until(in_ms(due_ns), line);
            self.send(stream as usize);
            left -= 1;
        }
        if end < u64::MAX {
            self.pass_until(end, line);
        }
    }

    /// Each publisher has `window` messages in transit; checked every millisecond, the resolution of time.
    fn publish_in_window(&mut self, window: u32, budget: u64, end: u64, line: &mut TimeLine) {
        let mut left = budget;
        while left > 0 && self.lab.world.net.now < end && !self.lab.world.is_stopped() {
            for stream in 0..self.publishers {
                while left > 0 && self.tally.on_their_way(stream) < u64::from(window) {
                    self.send(stream);
                    left -= 1;
                    // Without recipients nothing closes the loop.
                    if self.tally.on_their_way(stream) == 0 {
                        break;
                    }
                }
            }
            self.pass_until(self.lab.world.net.now + 1, line);
        }
    }

    fn drain(&mut self, patience: u64, line: &mut TimeLine) {
        let since = self.lab.world.net.now;
        let waits = |load: &Self| load.waiting.iter().any(|waiting| !waiting.is_empty());
        while self.holds > 0 || !self.tally.is_complete() || waits(self) {
            let now = self.lab.world.net.now;
            if now - since.max(self.tally.last_arrival) >= patience {
                return;
            }
            self.pass_until(now + 1, line);
        }
    }

    /// Lets time pass, and injects the faults of the time line meanwhile.
    fn pass_until(&mut self, until: u64, line: &mut TimeLine) {
        loop {
            let now = self.lab.world.net.now;
            let held = if self.holds > 0 { now + 1 } else { u64::MAX };
            let next = until.min(line.next_at().max(now)).min(held);
            self.advance(next);
            line.act(self.lab);
            self.send_held();
            if next >= until {
                return;
            }
        }
    }

    fn send(&mut self, stream: usize) {
        let number = self.tally.sent[stream] as u32;
        let mut payload = vec![0; self.settings.payload_of(stream as u32, number)];
        let stamp = Stamp {
            stream: stream as u32,
            number,
            time_ns: self.lab.world.net.now * 1_000_000,
        };
        StampForm::Full.write(stamp, &mut payload);
        self.tally.sent[stream] += 1;
        if !self.held[stream].is_empty() || !self.try_send(stream, &payload) {
            self.held[stream].push_back(payload);
            self.holds += 1;
        }
    }

    fn try_send(&mut self, stream: usize, payload: &[u8]) -> bool {
        let publish = Publish {
            qos: self.settings.qos,
            retain: self.settings.retain,
            ..Publish::new(&self.tally.plan().topics[stream], payload)
        };
        let world = &mut self.lab.world;
        let now = Instant::from_millis(world.net.now);
        let client = &mut world.clients[stream];
        let sent = client.machine.publish(now, &publish);
        client.finish(&mut world.net);
        if let (Ok(Some(packet_id)), Some(stamp)) = (&sent, stamp::read_full(payload)) {
            self.waiting[stream].insert(*packet_id, stamp);
        }
        sent.is_ok()
    }

    fn send_held(&mut self) {
        for stream in 0..self.publishers {
            if self.holds == 0 {
                return;
            }
            while let Some(payload) = self.held[stream].pop_front() {
                if !self.try_send(stream, &payload) {
                    self.held[stream].push_front(payload);
                    break;
                }
                self.holds -= 1;
            }
        }
    }
}
