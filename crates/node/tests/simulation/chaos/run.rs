//! A cluster with clients that do what chance tells them, and with a network that does its worst.

use std::{sync::Arc, time::Duration};

use thicket_mqtt::{
    Disconnect, Packet, Publish, Qos, Subscribe, SubscribeFilter, SubscriptionOptions,
};
use thicket_node::{
    ClientAddress, ClientTransport, ListenerLikeness, NodeLoad, OnFull, Partition, RebalanceConfig,
    RebalanceMode, RedirectionConfig,
};
use thicket_overlay::routing::RoutingMode;
use thicket_placement::Policy;
use thicket_session::{
    client::{CleanStart, ClientConfig, WillConfig},
    time::Instant,
    topic::SubscriptionFilter,
};

use super::{
    faults::LONGEST_PAUSE_MILLIS,
    ledger::{Held, Ledger, Life, Publication, Record, payload_of, publication_of},
    plan::{Fault, Plan},
};
use thicket_simulation::{
    World,
    client::Told,
    net::{Place, Wake, Weather},
    node::NodeSpec,
    random::Random,
};

const TOPICS: [&str; 6] = ["t/0/a", "t/0/b", "t/1/a", "t/1/b", "t/2/a", "t/2"];
const FILTERS: [&str; 6] = ["t/0/a", "t/+/a", "t/#", "t/1/+", "t/2/#", "+/0/b"];
/// A session that moves has no backup for less than this.
pub const MOVING_MILLIS: u64 = 1_000;
/// A session that two nodes had is one again in this time after they see each other.
pub const FORK_MILLIS: u64 = 3_000;
/// What follows from the end of a connection is done everywhere in this time.
pub const ENDING_MILLIS: u64 = 1_000;
/// Longest step of a clock. Clocks that are set stay within two steps of the earliest time.
pub const STEP_MILLIS: u64 = 3_600_000;
/// Longer than any time-out in the nodes but keep-alives and expiries.
const AGED_MILLIS: u64 = 40_000;
/// Longest round of a slow node, ms.
const SLOW_MILLIS: u64 = 40;
/// A node measures what it has to do so often.
const LOAD_MILLIS: u64 = 1_000;
/// How much faster or slower than time clocks go, millionths: far more than any quartz.
const DRIFT_PPM: i64 = 20_000;
/// The rights of clients of the first node end after this; of others a little later.
const RIGHTS_END_AFTER_S: u64 = 4;
const GROUPS: [&str; 2] = ["$share/g/t/#", "$share/h/t/+/a"];

/// Nothing holds more than a few messages.
fn cramp(spec: &mut NodeSpec) {
    spec.limits.queue_messages = 40;
    spec.limits.on_full = OnFull::Refuse;
    spec.limits.inflight_maximum = 4;
    spec.hint_bytes = 2_000;
    spec.overlay_limits.batch_bytes = 1_000;
    spec.overlay_limits.out_buffer_bytes = 4_000;
    spec.overlay_limits.credit_bytes = 8_000;
    spec.overlay_limits.resend_messages = 200;
    spec.overlay_limits.interest_changes = 4;
}

/// Everybody may do everything, for so long.
fn end_rights(spec: &mut NodeSpec, after_s: u64) {
    let anonymous = thicket_access::Policy {
        allows_anonymous: true,
        ..thicket_access::Policy::default()
    };
    spec.policy = Some(Arc::new(anonymous));
    spec.listeners[0].allow_anonymous = false;
    spec.rights_end_after_s = Some(after_s);
}

/// CPU alone decides who goes where.
fn redirection_of(node: usize) -> RedirectionConfig {
    let likeness = ListenerLikeness {
        transport: ClientTransport::Tcp,
        topic_prefix: "".into(),
    };
    RedirectionConfig {
        policy: Some(Policy::Cpu),
        listeners: vec![Some(likeness.clone())],
        addresses: vec![ClientAddress {
            likeness,
            address: format!("{node}:1883").into(),
        }],
        ..RedirectionConfig::default()
    }
}

/// Nobody but the rebalancer sends clients away, and it does so all the time.
fn rebalance(config: &mut RedirectionConfig) {
    config.policy = None;
    config.rebalance = RebalanceConfig {
        mode: RebalanceMode::On,
        rest: Duration::from_secs(1),
        interval: Duration::from_millis(500),
        noise: 0,
    };
}

/// A run under way.
#[derive(Debug)]
pub struct Run {
    pub world: World,
    pub ledger: Ledger,
    /// What the checks permitted.
    pub excuses: super::checks::Excuses,
    pub plan: Plan,
    routing: RoutingMode,
    /// What to do next: apart from the world's chance, so that changes of the nodes change no plan.
    pub random: Random,
    /// When and how clocks are set: apart from all else, so that the rest of a run is the same without it.
    pub clocks: Random,
    downs: u64,
    /// Nothing happens before the cluster is older than every time-out in the nodes.
    is_aged: bool,
    /// Who hears all wills; does nothing else.
    watcher: usize,
    /// Faults that are not over, with when they are.
    pub faults: Vec<(u64, super::faults::Cure)>,
    /// When the nodes last measured what they have to do.
    measured_at: u64,
    /// Of each node, in thousandths.
    cpu: Vec<u16>,
    /// Where nodes are killed.
    pub points: super::points::Points,
    /// What clients did and heard, if somebody wants to read it.
    pub log: Option<Vec<String>>,
}

impl Run {
    pub fn new(mut plan: Plan, routing: RoutingMode, seed: u64) -> Self {
        // By fours, as every way to route has its turn. In the other runs less is allowed for.
        plan.sets_clocks &= !(seed / 4).is_multiple_of(2);
        let mut world = World::new(seed, Weather::CALM);
        let mut random = Random::new(!seed);
        for index in 0..plan.nodes {
            let mut spec = NodeSpec::new(plan.workers);
            spec.routing = routing;
            spec.backups = plan.backups + index as u8 % (1 + plan.more_backups);
            if plan.majority {
                spec.partition = Partition::Majority;
            }
            spec.wall_ahead = STEP_MILLIS + index as u64 * plan.skew;
            spec.limits.out_buffer_bytes = 4_000;
            spec.limits.relocate_after = 1;
            spec.stores = plan.kills || plan.blacks_out || plan.stores;
            spec.small_log_bytes = 8_000;
            spec.sync_part_bytes = if (seed / 2).is_multiple_of(2) {
                500
            } else {
                64 * 1024
            };
            if plan.is_slow {
                let is_slowest = seed % plan.nodes as u64 == index as u64;
                spec.round_millis = (
                    0,
                    if is_slowest {
                        SLOW_MILLIS
                    } else {
                        SLOW_MILLIS / 10
                    },
                );
            }
            if plan.drifts {
                spec.drift_ppm = DRIFT_PPM * (index as i64 % 3 - 1);
            }
            if plan.rights_end {
                end_rights(&mut spec, RIGHTS_END_AFTER_S + index as u64);
            }
            if plan.is_cramped {
                cramp(&mut spec);
            }
            if plan.redirects {
                spec.redirection = redirection_of(index);
            }
            if plan.rebalances {
                rebalance(&mut spec.redirection);
            }
            world.add_node(spec);
            world.start(index);
        }
        let mut run = Self {
            world,
            excuses: super::checks::Excuses::new(),
            ledger: Ledger {
                is_split: plan.is_disturbed(),
                has_partitions: plan.parts || plan.pauses || !plan.faults.is_empty(),
                is_cramped: plan.is_cramped,
                others: plan.nodes - 1,
                is_still: !plan.roams,
                ..Ledger::default()
            },
            plan,
            routing,
            random: random.clone(),
            clocks: Random::new(seed.rotate_left(32)),
            downs: 0,
            is_aged: !(seed / 8).is_multiple_of(2),
            watcher: 0,
            log: None,
            faults: Vec::new(),
            measured_at: 0,
            cpu: vec![0; plan.nodes],
            points: super::points::Points::new(seed),
        };
        for index in 0..plan.clients {
            run.add_client(index, &mut random);
        }
        let mut watcher = ClientConfig::new(super::V5, "watcher");
        let stays = plan.dies || plan.kills || plan.blacks_out;
        if stays {
            watcher.session_expiry_interval = 1_000_000;
        }
        run.watcher = run.add(watcher, stays);
        // A will that waits or goes out is on one other node, whatever else has backups.
        // That of a client that was sent away, and whose connection was dead so that it did not hear so, waits for it to come back.
        let is_told = plan.dies && !plan.redirects;
        run.ledger.hears_all_wills = is_told && plan.backups + plan.more_backups < 2;
        // A will that is being published is lost if the two nodes that hold it die in that moment.
        run.ledger.hears_stored_wills = (plan.kills && !plan.at_points) || plan.blacks_out;
        run
    }

    fn add_client(&mut self, index: usize, random: &mut Random) {
        let version = if index % 3 == 2 {
            super::V311
        } else {
            super::V5
        };
        // The last ones are members of groups; of the others every third has a session that ends with its connection.
        let is_persistent = index % 4 != 1 || self.is_member(index);
        let mut config = ClientConfig::new(version, format!("client-{index}"));
        config.keep_alive = if random.chance(1, 2) { 0 } else { 5 };
        config.session_expiry_interval = if is_persistent { 1_000_000 } else { 0 };
        if random.chance(1, 2) {
            config.receive_maximum = random.between(1, 5) as u16;
        }
        config.topic_alias_maximum = random.below(3) as u16;
        config.outbound_topic_aliases = random.below(3) as u16;
        if index.is_multiple_of(2) || !is_persistent {
            config.will = Some(WillConfig {
                topic: format!("will/{index}"),
                payload: b"gone".to_vec(),
                qos: Qos::ExactlyOnce,
                ..WillConfig::default()
            });
        }
        self.add(config, is_persistent);
    }

    fn add(&mut self, config: ClientConfig, is_persistent: bool) -> usize {
        self.ledger.records.push(Record {
            client_id: config.client_id.clone(),
            is_persistent,
            has_will: config.will.is_some(),
            ..Record::default()
        });
        self.world.add_client(config)
    }

    const fn is_member(&self, client: usize) -> bool {
        client < self.plan.clients && client + self.plan.members >= self.plan.clients
    }

    fn granted(&self, client: usize) -> Qos {
        let qos = if self.is_member(client) {
            1 + client % 2
        } else {
            client % 3
        };
        Qos::from_bits(qos as u8).expect("below 3")
    }

    /// The whole run; what is broken.
    pub fn play(&mut self) -> super::checks::Verdict {
        self.wait_until_whole()?;
        self.connect(self.watcher);
        for client in 0..self.plan.clients {
            self.connect(client);
        }
        self.pass(2_000)?;
        self.subscribe_to(self.watcher, "will/#", Qos::ExactlyOnce);
        self.pass(if self.is_aged { AGED_MILLIS } else { 2_000 })?;
        self.world.net.weather = self.plan.weather;
        self.points.is_armed = true;
        for _ in 0..self.plan.actions {
            if self.plan.kills && !self.plan.at_points && self.random.chance(1, 40) {
                self.kill()?;
            }
            if self.plan.dies
                && !self.plan.at_points
                && self.random.chance(1, 40)
                && self.world.is_covered()
            {
                self.kill()?;
            }
            if self.plan.sides && self.random.chance(1, 30) {
                self.part_into_sides();
            }
            if self.plan.pauses && self.random.chance(1, 30) {
                self.pause();
            }
            if !self.plan.faults.is_empty() {
                self.cure_faults(self.world.net.now);
                if self.random.chance(1, 30) {
                    self.begin_fault()?;
                }
            }
            if self.plan.majority && self.plan.parts && self.random.chance(1, 30) {
                self.part_or_heal()?;
            }
            if self.plan.blacks_out && self.random.chance(1, 40) {
                self.black_out()?;
            }
            if self.plan.sets_clocks && self.clocks.chance(1, 40) {
                let node = self.clocks.below(self.plan.nodes as u64) as usize;
                self.set_clock(node);
            }
            if self.plan.redirects {
                self.follow_redirections();
                self.measure_loads();
            }
            self.act();
            let millis = self.random.below(self.plan.pause);
            self.pass(millis)?;
        }
        self.points.is_armed = false;
        self.start_killed(|_| true);
        self.come_to_rest()?;
        self.check_rest()?;
        super::checks::check(&self.ledger, self.routing, &mut self.excuses)
    }

    fn wait_until_whole(&mut self) -> super::checks::Verdict {
        self.ledger.disturbed.push((0, None));
        for _ in 0..100 {
            self.pass(300)?;
            if self.ledger.disturbed.iter().all(|(_, end)| end.is_some()) {
                return Ok(());
            }
        }
        Err("the nodes find each other".into())
    }

    /// Lets time pass and notes what clients are told.
    pub fn pass(&mut self, millis: u64) -> super::checks::Verdict {
        let until = self.world.net.now + millis;
        while let Some(wake) = self.world.step(until) {
            let now = self.world.net.now;
            self.start_killed(|until| until <= now);
            match wake {
                Wake::Client(client) => self.note(client)?,
                Wake::Shell(node, _) => {
                    self.note_downs();
                    if self.plan.at_points {
                        self.kill_at_point(node)?;
                    }
                }
                Wake::Tester(_) | Wake::Dials | Wake::Nobody => {}
            }
        }
        self.world.net.now = self.world.net.now.max(until);
        let whole = self.world.is_whole();
        let now = self.world.net.now;
        if let Some((_, end @ None)) = self.ledger.disturbed.last_mut()
            && whole
        {
            *end = Some(now + 500);
        }
        super::checks::check_bounds(self)
    }

    fn note_downs(&mut self) {
        if self.plan.dies || self.plan.blacks_out {
            // What is promised holds when nodes die one at a time, and when all lose their power.
            return;
        }
        let downs = self.world.nodes.iter().map(|node| node.downs).sum();
        if downs > self.downs {
            self.downs = downs;
            if !matches!(self.ledger.disturbed.last(), Some((_, None))) {
                self.ledger.disturbed.push((self.world.net.now, None));
            }
        }
    }

    pub fn note(&mut self, client: usize) -> super::checks::Verdict {
        let now = self.world.net.now;
        for told in self.world.clients[client].take_told() {
            if let Some(log) = &mut self.log {
                let node = self.world.clients[client].node;
                log.push(format!(
                    "{now:>8} client-{client} at node {node} hears {told:?}"
                ));
            }
            let has_connected = matches!(told, Told::Connected { .. });
            self.note_told(client, now, told)?;
            if has_connected && self.is_member(client) {
                self.join_group(client);
            }
        }
        Ok(())
    }

    fn note_told(&mut self, client: usize, now: u64, told: Told) -> super::checks::Verdict {
        let record = &mut self.ledger.records[client];
        match told {
            Told::Connected { session_present } => {
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
                if is_lost && disturbed.any(|(start, end)| may_be_lost(*start, *end)) {
                    // Parted nodes each had a session, and one was given up.
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
                    // What both nodes sent may have come twice.
                    record.life().forks += usize::from(has_moved);
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
            Told::Message {
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
            Told::Acknowledged {
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
            Told::Discarded { packet_id } => {
                record.publishing.remove(&packet_id);
            }
            Told::Subscribed {
                packet_id,
                reason_codes,
            } => {
                if let Some(held) = record.subscribing.remove(&packet_id)
                    && !reason_codes[0].is_error()
                {
                    record.life().held[held].since = Some(now);
                }
            }
            Told::Unsubscribed { .. } => {}
            Told::Redirected { to, was_connected } => {
                let node = to.split(':').next().and_then(|node| node.parse().ok());
                record.sent_to = node;
                // Its will does not go out because of that.
                if was_connected {
                    record.dropped -= 1;
                } else {
                    record.uncertain -= 1;
                }
            }
            Told::Refused(code) => {
                // Nobody can say who has the session now, or there is no room for a new one: the client comes again later.
                let is_full =
                    code as u8 == 0x89 && self.plan.faults.contains(&Fault::ShortOfMemory);
                if code as u8 != 0x88 && !is_full {
                    return Err(format!("clients are accepted: {code:?} at {now}"));
                }
            }
            Told::DisconnectedBy(code) => {
                let is_refused = self.plan.majority && code as u8 == 0x97;
                let has_ended = self.plan.rights_end && code as u8 == 0xA0;
                if ![0x8E, 0x8D].contains(&(code as u8)) && !is_refused && !has_ended {
                    return Err(format!(
                        "clients that keep the rules stay: {code:?} at {now}"
                    ));
                }
            }
            Told::Broken(reason) if reason.contains("Timeout") => {}
            Told::Broken(reason) => {
                return Err(format!("nodes keep the protocol: {reason} at {now}"));
            }
            Told::Closed => {
                self.ledger.endings.push((client, record.served_by, now));
                record.subscribing.clear();
                if !record.is_persistent {
                    record.end_life(now);
                }
            }
        }
        Ok(())
    }

    /// One of the things that happen.
    fn act(&mut self) {
        let client = self.random.below(self.plan.clients as u64) as usize;
        let connected = self.world.clients[client].is_connected();
        if self.ledger.is_still && !self.is_settled() {
            // Who stays where it is knows what comes to it.
            if connected {
                self.publish(client);
            }
            return;
        }
        match self.random.below(100) {
            0..50 if connected => self.publish(client),
            50..62 if connected => self.subscribe(client),
            62..66 if connected => self.unsubscribe(client),
            66..70 if connected => self.disconnect(client),
            70..74 if connected => self.hang_up(client),
            74..78 if connected => {
                self.ledger.records[client].is_cut = true;
                self.world.cut_client(client);
            }
            78..82 => self.abandon(client),
            _ if !connected => self.connect(client),
            82..100 => self.act_on_network(),
            _ => {}
        }
    }

    /// Clients go where they were sent; one of eight forgets it.
    fn follow_redirections(&mut self) {
        for client in 0..self.plan.clients {
            if self.ledger.records[client].sent_to.is_some()
                && self.world.clients[client].end.is_none()
            {
                if self.random.chance(1, 8) {
                    self.ledger.records[client].sent_to = None;
                }
                self.connect(client);
            }
        }
    }

    /// Now and then a node has much to do, or nothing.
    fn measure_loads(&mut self) {
        let now = self.world.net.now;
        if now < self.measured_at + LOAD_MILLIS {
            return;
        }
        self.measured_at = now;
        for node in 0..self.plan.nodes {
            if self.random.chance(1, 20) {
                self.cpu[node] = self.random.below(1_000) as u16;
            }
            let clients = self.world.clients.iter();
            let connected = clients.filter(|client| client.is_connected() && client.node == node);
            let load = NodeLoad {
                cpu_permille: Some(self.cpu[node]),
                connections: connected.count() as u64,
                ..NodeLoad::default()
            };
            self.world.set_load(node, load);
        }
    }

    fn connect(&mut self, client: usize) {
        if self.world.clients[client].end.is_some() {
            return;
        }
        let anywhere = self.random.below(self.plan.nodes as u64) as usize;
        let node = self.ledger.records[client].sent_to.take();
        let node = node.unwrap_or(anywhere);
        let now = self.world.net.now;
        let record = &mut self.ledger.records[client];
        let resets = !self.world.clients[client]
            .machine
            .config()
            .version
            .has_properties();
        let resets = !resets && self.random.chance(self.plan.resets, 100);
        let is_member =
            client < self.plan.clients && client + self.plan.members >= self.plan.clients;
        let cleans = !record.is_persistent || (resets && !is_member) || record.is_cleaning;
        let clean_start = if cleans {
            CleanStart::Yes
        } else {
            CleanStart::No
        };
        if cleans {
            record.end_life(now);
            record.is_cleaning = true;
        }
        if self.plan.places {
            let held = record.held_now();
            let filters = held.map(|filter| ("thicket-subscribe".to_owned(), filter));
            let topic = TOPICS[client % TOPICS.len()].to_owned();
            let others = [("max-sessions", "3".to_owned()), ("publish", topic)];
            let others = others.map(|(name, value)| (format!("thicket-{name}"), value));
            let asked = others.into_iter().chain(filters).collect();
            self.world.clients[client]
                .machine
                .set_user_properties(asked);
        }
        record.connections += 1;
        record.connecting_at.get_or_insert(now);
        record.uncertain += 1;
        record.node = node;
        self.world.connect_client(client, node, clean_start);
        self.say(client, || {
            format!("connects to node {node}, {clean_start:?}")
        });
    }

    fn say(&mut self, client: usize, what: impl FnOnce() -> String) {
        let now = self.world.net.now;
        if let Some(log) = &mut self.log {
            log.push(format!("{now:>8} client-{client} {}", what()));
        }
    }

    fn publish(&mut self, client: usize) {
        for _ in 0..self.random.between(1, 4) {
            let topic = *self.random.pick(&TOPICS);
            let qos = Qos::from_bits(self.random.below(3) as u8).expect("below 3");
            let retain = self.random.chance(15, 100);
            let number = self.ledger.publications.len();
            let payload = payload_of(number);
            let publish = Publish {
                qos,
                retain,
                ..Publish::new(topic, &payload)
            };
            let now = self.world.net.now;
            let machine = &mut self.world.clients[client].machine;
            let Ok(packet_id) = machine.publish(Instant::from_millis(now), &publish) else {
                break;
            };
            let record = &mut self.ledger.records[client];
            record.publishing.extend(packet_id.map(|id| (id, number)));
            let publication = Publication {
                publisher: client,
                life: record.lives.len(),
                connection: record.connections,
                topic: topic.into(),
                qos,
                retain,
                submitted_at: now,
                acknowledged_at: None,
                is_sent_again: false,
            };
            self.say(client, || format!("publishes p{number} {publication:?}"));
            self.ledger.publications.push(publication);
        }
        self.world.clients[client].finish(&mut self.world.net);
    }

    /// Clients with wildcards have one session, however many they ask for.
    const fn filters(&self) -> &'static [&'static str; 6] {
        if self.plan.places { &TOPICS } else { &FILTERS }
    }

    fn subscribe(&mut self, client: usize) {
        let filter = *self.random.pick(self.filters());
        if !self.is_member(client) && !self.ledger.records[client].holds(filter) {
            self.subscribe_to(client, filter, self.granted(client));
        }
    }

    /// Unless it is a member. A connection that has ended by now joins nothing: the next one does.
    fn join_group(&mut self, client: usize) {
        let group = GROUPS[client % GROUPS.len()];
        if self.ledger.records[client].holds(group) {
            return;
        }
        self.subscribe_to(client, group, self.granted(client));
    }

    fn subscribe_to(&mut self, client: usize, filter: &str, qos: Qos) {
        let options = SubscriptionOptions {
            qos,
            ..SubscriptionOptions::default()
        };
        let now = Instant::from_millis(self.world.net.now);
        let machine = &mut self.world.clients[client].machine;
        let filters = [SubscribeFilter { filter, options }];
        let Ok(packet_id) = machine.subscribe(now, &filters, None) else {
            return;
        };
        self.say(client, || format!("subscribes to {filter} with {qos:?}"));
        let record = &mut self.ledger.records[client];
        let held = Held {
            filter: SubscriptionFilter::parse(filter).expect("one of ours"),
            qos,
            since: None,
            until: None,
        };
        record.life().held.push(held);
        let index = record.life().held.len() - 1;
        record.subscribing.insert(packet_id, index);
        self.world.clients[client].finish(&mut self.world.net);
    }

    fn unsubscribe(&mut self, client: usize) {
        let now = self.world.net.now;
        let filter = *self.random.pick(self.filters());
        if self.is_member(client) || !self.ledger.records[client].holds(filter) {
            return;
        }
        self.say(client, || format!("unsubscribes from {filter}"));
        for held in &mut self.ledger.records[client].life().held {
            if held.filter.to_string() == filter {
                held.until.get_or_insert(now);
            }
        }
        let machine = &mut self.world.clients[client].machine;
        let _ = machine.unsubscribe(Instant::from_millis(now), &[filter]);
        self.world.clients[client].finish(&mut self.world.net);
    }

    fn disconnect(&mut self, client: usize) {
        self.say(client, || "disconnects".into());
        let machine = &mut self.world.clients[client].machine;
        if machine.disconnect(&Disconnect::default()).is_ok() {
            self.world.clients[client].finish(&mut self.world.net);
            // The connection may break before the node has read it. Nothing to move for one whose node was killed meanwhile.
            let is_heard = self.plan.dies && self.world.clients[client].has_said_all;
            let record = &mut self.ledger.records[client];
            if record.dropped > 0 {
                record.dropped -= 1;
                record.uncertain += usize::from(!is_heard || record.is_cut);
            }
            let _ = self.note(client);
        }
    }

    fn hang_up(&mut self, client: usize) {
        self.say(client, || "hangs up".into());
        self.world.clients[client].drop_connection(&mut self.world.net);
        let _ = self.note(client);
    }

    /// The client goes away and the node does not notice.
    fn abandon(&mut self, client: usize) {
        self.say(client, || "abandons its connection".into());
        if let Some(end) = self.world.clients[client].end {
            let record = &mut self.ledger.records[client];
            record.may_be_cleaned |= record.is_cleaning;
            self.world.net.give(end, Place::Nobody);
            self.world.clients[client].forget_connection(&self.world.net);
            let _ = self.note(client);
        }
    }

    /// The network heals, everybody comes back, and all that was promised is done.
    fn come_to_rest(&mut self) -> super::checks::Verdict {
        // Nobody is sent away any more.
        self.plan.redirects = false;
        for node in 0..self.plan.nodes {
            self.world.set_load(node, NodeLoad::default());
        }
        self.cure_faults(u64::MAX);
        for (one, other) in self.world.net.partings() {
            self.world.net.heal(one, other);
        }
        self.world.net.weather = Weather::CALM;
        if self.ledger.is_still {
            self.pass(LONGEST_PAUSE_MILLIS + 3 * FORK_MILLIS)?;
        }
        let mut restless = String::new();
        for _ in 0..120 {
            for client in 0..=self.plan.clients {
                self.connect_again(client);
            }
            self.pass(1_000)?;
            restless = self.restless();
            if restless.is_empty() {
                return self.pass(1_000);
            }
        }
        Err(format!("everything comes to rest: {restless}"))
    }

    fn connect_again(&mut self, client: usize) {
        self.plan.resets = 0;
        self.connect(client);
    }

    /// What is still under way.
    fn restless(&self) -> String {
        let mut restless = String::new();
        let mut add = |what: String| {
            restless.push_str(&what);
            restless.push_str("; ");
        };
        if !self.world.is_whole() {
            add("nodes do not see each other".into());
        }
        for client in &self.world.clients {
            let name = &client.machine.config().client_id;
            if !client.is_connected() {
                add(format!("{name} is {:?}", client.machine.state()));
            } else if client.machine.inflight() > 0 {
                add(format!(
                    "{name} waits for {} acknowledgements",
                    client.machine.inflight()
                ));
            }
        }
        for (node, session) in self.world.sessions() {
            if session.queued_messages > 0 || session.inflight > 0 {
                add(format!("node {node}: {session:?}"));
            }
        }
        for node in 0..self.plan.nodes {
            for (index, traffic) in self.world.traffic(node).iter().enumerate() {
                if traffic.unacknowledged_messages > 0 {
                    let count = traffic.unacknowledged_messages;
                    add(format!(
                        "node {node}, worker {index} owes {count} acknowledgements"
                    ));
                }
            }
        }
        restless
    }

    fn check_rest(&mut self) -> super::checks::Verdict {
        super::checks::one_connection_a_client_identifier(&self.world, self.plan.clients + 1)?;
        super::checks::wills_are_published_as_promised(&self.ledger)?;
        let retained: Vec<Vec<String>> = (0..self.plan.nodes)
            .map(|node| self.retained_at(node))
            .collect();
        let others = self.plan.nodes as u64 - 1;
        // A node by itself replaces what it has, however its clock is set.
        let drifts = u64::from(self.plan.drifts);
        let drifted = drifts * self.world.net.now * 2 * DRIFT_PPM.unsigned_abs() / 1_000_000;
        let frozen = self.plan.faults.contains(&Fault::Freeze);
        let skew = if frozen || self.plan.sets_clocks && others > 0 {
            2 * STEP_MILLIS
        } else {
            self.plan.skew * others + drifted
        };
        super::checks::retained_messages_converge(&self.ledger, &retained, skew)
    }

    /// What a node has retained, in words.
    fn retained_at(&mut self, node: usize) -> Vec<String> {
        let client_id = format!("checker-{node}");
        let connect = thicket_mqtt::Connect::new(super::V5, &client_id);
        let checker = self.world.connect(node, connect);
        let id = thicket_mqtt::PacketId::new(1).expect("one");
        let subscribe = Subscribe::new(id, "t/#", Qos::AtMostOnce);
        self.world.send(checker, &Packet::Subscribe(subscribe));
        self.world.run_for(2_000);
        let mut heard = self.world.tester(checker).take_heard();
        heard.retain(|said| said.starts_with("PUBLISH"));
        heard.sort();
        self.world.hang_up(checker);
        heard
    }
}
