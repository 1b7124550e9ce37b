//! What clients do: they connect and go, subscribe and publish.

use thicket_mqtt::{Disconnect, Publish, Qos, SubscribeFilter, SubscriptionOptions};
use thicket_node::NodeLoad;
use thicket_session::{client::CleanStart, time::Instant, topic::SubscriptionFilter};

use super::{
    ledger::{Held, Publication, payload_of},
    run::Run,
};
use thicket_simulation::net::Place;

const TOPICS: [&str; 6] = ["t/0/a", "t/0/b", "t/1/a", "t/1/b", "t/2/a", "t/2"];
const FILTERS: [&str; 6] = ["t/0/a", "t/+/a", "t/#", "t/1/+", "t/2/#", "+/0/b"];
/// More than a run takes.
const LONG_EXPIRY_S: u32 = 100_000;
/// Interval at which a node measures its load.
const LOAD_MILLIS: u64 = 1_000;
const GROUPS: [&str; 2] = ["$share/g/t/#", "$share/h/t/+/a"];

impl Run {
    /// One of the things that happen.
    pub fn act(&mut self) {
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
            50..66 if connected && self.publishes_only(client) => self.publish(client),
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
    pub fn follow_redirections(&mut self) {
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
    pub fn measure_loads(&mut self) {
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

    pub fn connect(&mut self, client: usize) {
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
        self.choose_token(client, node);
        let record = &mut self.ledger.records[client];
        record.connections += 1;
        record.connecting_at.get_or_insert(now);
        record.uncertain += 1;
        record.node = node;
        self.world.connect_client(client, node, clean_start);
        self.say(client, || {
            format!("connects to node {node}, {clean_start:?}")
        });
    }

    pub fn publish(&mut self, client: usize) {
        for _ in 0..self.random.between(1, 4) {
            let topic = if self.publishes_only(client) && self.random.chance(7, 8) {
                TOPICS[client % TOPICS.len()]
            } else {
                *self.random.pick(&TOPICS)
            };
            // Who publishes at QoS 0 to other nodes does not move to another worker before that has arrived.
            let least = u64::from(self.publishes_only(client) && client.is_multiple_of(2));
            let qos = self.random.between(least, 2) as u8;
            let qos = Qos::from_bits(qos).expect("at most 2");
            let retain = self.random.chance(15, 100);
            let number = self.ledger.publications.len();
            let payload = payload_of(number);
            // It does not expire meanwhile, unless a node goes by the clock of another one.
            let is_v5 = client % 3 != 2;
            let expires = self.apart > 0 && is_v5 && !retain && number.is_multiple_of(3);
            let publish = Publish {
                qos,
                retain,
                message_expiry_interval: expires.then_some(LONG_EXPIRY_S),
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
            self.note_published(client, number);
        }
        self.world.clients[client].finish(&mut self.world.net);
    }

    /// Clients with wildcards have one session, however many they ask for; and a publisher follows its messages where few want them.
    pub const fn filters(&self) -> &'static [&'static str; 6] {
        if self.plan.places || self.plan.publishers > 0 {
            &TOPICS
        } else {
            &FILTERS
        }
    }

    pub fn subscribe(&mut self, client: usize) {
        let filter = *self.random.pick(self.filters());
        if !self.is_member(client) && !self.ledger.records[client].holds(filter) {
            self.subscribe_to(client, filter, self.granted(client));
        }
    }

    /// Unless it is a member. A connection that has ended by now joins nothing: the next one does.
    pub fn join_group(&mut self, client: usize) {
        let group = GROUPS[client % GROUPS.len()];
        if self.ledger.records[client].holds(group) {
            return;
        }
        self.subscribe_to(client, group, self.granted(client));
    }

    pub fn subscribe_to(&mut self, client: usize, filter: &str, qos: Qos) {
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

    pub fn unsubscribe(&mut self, client: usize) {
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

    pub fn disconnect(&mut self, client: usize) {
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

    pub fn hang_up(&mut self, client: usize) {
        self.say(client, || "hangs up".into());
        self.world.clients[client].drop_connection(&mut self.world.net);
        let _ = self.note(client);
    }

    /// The client goes away and the node does not notice.
    pub fn abandon(&mut self, client: usize) {
        self.say(client, || "abandons its connection".into());
        if let Some(end) = self.world.clients[client].end {
            let record = &mut self.ledger.records[client];
            record.may_be_cleaned |= record.is_cleaning;
            self.world.net.give(end, Place::Nobody);
            self.world.clients[client].forget_connection(&self.world.net);
            let _ = self.note(client);
        }
    }
}
