//! The cluster and the clients of a run, as its plan and its seed say.

use std::{sync::Arc, time::Duration};

use thicket_mqtt::Qos;
use thicket_node::{
    ClientAddress, ClientTransport, ListenerLikeness, OnFull, Partition, RebalanceConfig,
    RebalanceMode, RedirectionConfig,
};
use thicket_overlay::routing::RoutingMode;
use thicket_placement::Policy;
use thicket_session::client::{ClientConfig, WillConfig};

use super::{
    ledger::{Ledger, Record},
    plan::Plan,
    run::{DRIFT_PPM, Run, STEP_MILLIS},
};
use thicket_simulation::{World, net::Weather, node::NodeSpec, random::Random, tokens};

/// Longest round of a slow node, ms.
const SLOW_MILLIS: u64 = 40;
/// The rights of clients of the first node end after this; of others a little later.
const RIGHTS_END_AFTER_S: u64 = 4;

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

/// How far the wall clocks of nodes are apart at most, ms: in one run of four by seconds, hours or
/// years. Tokens come with a time of day.
fn apart(plan: &Plan, random: &mut Random) -> u64 {
    const HOUR: u64 = 3_600_000;
    if plan.tokens || !random.chance(1, 4) {
        return 0;
    }
    *random.pick(&[90_000, 12 * HOUR, 20 * 365 * 24 * HOUR])
}

impl Run {
    pub fn new(mut plan: Plan, routing: RoutingMode, seed: u64) -> Self {
        // By fours, as every way to route has its turn. In the other runs less is allowed for.
        plan.sets_clocks &= !(seed / 4).is_multiple_of(2);
        let mut world = World::new(seed, Weather::CALM);
        let mut random = Random::new(!seed);
        let clocks = Random::new(seed.rotate_left(32));
        let mut skews = Random::new(seed.rotate_left(16));
        let apart = apart(&plan, &mut skews);
        for index in 0..plan.nodes {
            let mut spec = NodeSpec::new(plan.workers);
            spec.routing = routing;
            spec.backups = plan.backups + index as u8 % (1 + plan.more_backups);
            if plan.majority {
                spec.partition = Partition::Majority;
            }
            spec.wall_ahead = STEP_MILLIS + index as u64 * plan.skew + skews.below(apart + 1);
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
            if plan.tokens {
                spec.policy = Some(Arc::new(tokens::policy()));
                spec.listeners[0].allow_anonymous = false;
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
                is_split: plan.is_disturbed() && !plan.is_partitioned_while_clients_move(),
                has_partitions: plan.parts
                    || plan.boots_apart
                    || plan.pauses
                    || !plan.faults.is_empty(),
                is_cramped: plan.is_cramped,
                forgets_interests: plan.boots_apart || plan.restarts_partitioned,
                others: plan.nodes - 1,
                is_still: !plan.roams,
                ..Ledger::default()
            },
            plan,
            routing,
            random: random.clone(),
            clocks,
            apart,
            downs: 0,
            is_aged: !(seed / 8).is_multiple_of(2),
            watcher: 0,
            log: None,
            faults: Vec::new(),
            faults_begun: 0,
            measured_at: 0,
            cpu: vec![0; plan.nodes],
            drain: None,
            was_covered: false,
            points: super::points::Points::new(seed),
            tokens: super::tokens::Tokens::new(plan),
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

    /// Starts a node again.
    pub fn start(&mut self, node: usize) {
        self.world.start(node);
    }

    fn add_client(&mut self, index: usize, random: &mut Random) {
        let version = if index % 3 == 2 {
            super::V311
        } else {
            super::V5
        };
        // The last ones are members of groups; of the others every third has a session that ends with its connection.
        let publishes_only = self.publishes_only(index);
        let is_persistent = !publishes_only && (index % 4 != 1 || self.is_member(index));
        let mut config = ClientConfig::new(version, format!("client-{index}"));
        config.keep_alive = if random.chance(1, 2) { 0 } else { 5 };
        config.session_expiry_interval = if is_persistent { 1_000_000 } else { 0 };
        if random.chance(1, 2) {
            config.receive_maximum = random.between(1, 5) as u16;
        }
        config.topic_alias_maximum = random.below(3) as u16;
        config.outbound_topic_aliases = random.below(3) as u16;
        if !publishes_only && (index.is_multiple_of(2) || !is_persistent) {
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

    pub const fn is_member(&self, client: usize) -> bool {
        client < self.plan.clients && client + self.plan.members >= self.plan.clients
    }

    pub const fn publishes_only(&self, client: usize) -> bool {
        client < self.plan.publishers
    }

    pub fn granted(&self, client: usize) -> Qos {
        let qos = if self.is_member(client) {
            1 + client % 2
        } else {
            client % 3
        };
        Qos::from_bits(qos as u8).expect("below 3")
    }
}
