//! The loop: time goes from event to event, each node runs rounds as a shell would, and what it says is checked at once.

use std::collections::BTreeSet;

use thicket_mqtt::Qos;
use thicket_overlay::record::Record;
use thicket_overlay::routing::RoutingMode;
use thicket_overlay::{
    Delivery, EventLevel, FarEnd, Forward, ForwardError, Incarnation, Input, InterestKey,
    InterestValue, KeyId, LinkId, NodeId, NodeSlot, Output, Overlay, OverlayConfig, Sharing,
    StreamId,
};
use thicket_session::time::Instant;
use thicket_session::topic::TopicFilter;

use crate::network::{Chunk, Dice, Network};
use crate::node::{Later, Life, MessageName, Node, Sent};

/// All simulated nodes prove themselves by it.
const KEY: KeyId = KeyId([1, 2, 3, 4]);

/// What a scenario may change of the defaults.
#[derive(Clone, Copy)]
pub struct Settings {
    pub nodes: usize,
    pub delay: u64,
    /// No faults: what the nodes think of each other is true.
    pub is_calm: bool,
    pub mode: RoutingMode,
    pub configure: fn(&mut OverlayConfig),
}

/// All nodes and the network between them.
pub struct Cluster {
    pub now: u64,
    pub dice: Dice,
    pub network: Network,
    pub nodes: Vec<Node>,
    pub settings: Settings,
    /// What could not be forwarded for lack of capacity, which must not happen unless a scenario wants it.
    pub refused: usize,
    /// Messages that got a destination later, so their order says nothing.
    pub rematched: BTreeSet<MessageName>,
}

impl Cluster {
    pub fn new(seed: u64, settings: Settings) -> Self {
        let mut cluster = Self {
            now: 1000,
            dice: Dice::new(seed),
            network: Network::default(),
            nodes: Vec::new(),
            settings,
            refused: 0,
            rematched: BTreeSet::new(),
        };
        for index in 0..settings.nodes {
            // Identities in no order of the addresses.
            let id = NodeId(cluster.dice.next() << 8 | index as u64);
            let address = format!("node-{index}:1883");
            cluster.nodes.push(Node {
                id,
                address,
                incarnation: 1,
                lives: Vec::new(),
                is_alive: false,
            });
            cluster.start(index, 1);
        }
        cluster
    }

    /// Starts a node, with the first one as its seed.
    pub fn start(&mut self, index: usize, incarnation: u64) {
        let seed = self.dice.next();
        let node = &mut self.nodes[index];
        node.incarnation = incarnation;
        let mut config =
            OverlayConfig::new(node.id, Incarnation(incarnation), "reef", &node.address);
        config.routing.mode = self.settings.mode;
        (self.settings.configure)(&mut config);
        let now = Instant::from_millis(self.now);
        let mut overlay = Overlay::new(config, now, seed);
        let address = if index == 0 {
            "node-1:1883"
        } else {
            "node-0:1883"
        };
        overlay.handle_input(now, Input::Discovered { address });
        node.lives.push(Life::new(overlay, incarnation));
        node.is_alive = true;
        self.end_round(index);
    }

    /// The process ends. With `quietly` nobody is told: the machine lost its power.
    pub fn kill(&mut self, index: usize, quietly: bool) {
        self.nodes[index].is_alive = false;
        for wire in 0..self.network.wires.len() {
            for end in [0, 1] {
                if self.network.wires[wire].ends[end].node != index {
                    continue;
                }
                if quietly {
                    self.network.wires[wire].ends[end].is_open = false;
                } else {
                    self.network.close(self.now, wire, end);
                }
            }
        }
        self.nodes[index].life().links.clear();
    }

    pub fn run_until(&mut self, end: u64) {
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            for index in 0..self.nodes.len() {
                if self.nodes[index].is_alive {
                    self.run_node(index);
                }
            }
        }
        self.now = end;
    }

    fn next_event(&self) -> Option<u64> {
        let alive = self.nodes.iter().filter(|node| node.is_alive);
        let wakes = alive.filter_map(|node| node.lives.last().and_then(Life::next_wake));
        wakes.chain(self.network.next_arrival()).min()
    }

    fn run_node(&mut self, index: usize) {
        let (now, instant) = (self.now, Instant::from_millis(self.now));
        let arrived = self.network.take_arrived(now, index);
        let life = self.nodes[index].life();
        let due = life.take_later(now);
        let is_timeout = life.overlay.poll_timeout().is_some_and(|at| at <= instant);
        if arrived.is_empty() && due.is_empty() && !is_timeout {
            return;
        }
        life.rounds_now = if life.rounds_now.0 == now {
            (now, life.rounds_now.1 + 1)
        } else {
            (now, 0)
        };
        assert!(life.rounds_now.1 < 200, "node {index} spins at {now}");
        for (wire, end, chunk) in arrived {
            self.receive(index, wire, end, chunk);
        }
        for what in due {
            self.perform_later(index, what);
        }
        if is_timeout {
            self.nodes[index]
                .life()
                .overlay
                .handle_input(instant, Input::Timeout);
        }
        self.end_round(index);
    }

    fn receive(&mut self, index: usize, wire: usize, end: usize, chunk: Chunk) {
        let instant = Instant::from_millis(self.now);
        let socket = &mut self.network.wires[wire].ends[end];
        let life = self.nodes[index].lives.last_mut().expect("alive");
        match (socket.link, chunk) {
            (None, Chunk::Fin) => socket.is_open = false,
            (None, Chunk::Bytes(bytes)) => {
                let link = life.free_link();
                socket.link = Some(link);
                life.links.insert(link, (wire, end));
                life.overlay.handle_input(
                    instant,
                    Input::LinkAccepted {
                        link,
                        end: FarEnd {
                            key: Some(KEY),
                            ..FarEnd::default()
                        },
                        bytes: &bytes,
                    },
                );
            }
            (Some(link), Chunk::Fin) => {
                socket.is_open = false;
                life.links.remove(&link);
                life.removed.insert(link);
                life.overlay.handle_input(instant, Input::Closed { link });
            }
            (Some(link), Chunk::Bytes(bytes)) => {
                let mut deliveries = Vec::new();
                life.overlay
                    .handle_received(instant, link, &bytes, |delivery| {
                        deliveries.push(note(&delivery))
                    });
                for delivery in deliveries {
                    self.deliver(index, delivery);
                }
            }
        }
    }

    fn deliver(&mut self, index: usize, note: Note) {
        let at = self.now + self.dice.below(40);
        let is_rematched = self.rematched.contains(&note.name);
        let life = self.nodes[index].life();
        if note.number == 0 {
            life.plain_delivered += 1;
            life.later.push((
                at,
                Later::Release(note.origin.slot, note.origin.incarnation, note.len),
            ));
            return;
        }
        let name = note.name;
        assert!(
            life.delivered.insert(name),
            "node {index} got {name:?} twice at {}",
            self.now
        );
        if !is_rematched {
            let last = life
                .last_delivered
                .entry((name.0, name.1, name.2))
                .or_default();
            life.out_of_order += usize::from(name.3 < *last);
            *last = name.3.max(*last);
        }
        life.later
            .push((at, Later::Admit(note.origin, note.number, name)));
    }

    fn perform_later(&mut self, index: usize, what: Later) {
        let (now, instant) = (self.now, Instant::from_millis(self.now));
        match what {
            Later::Admit(origin, number, name) => {
                let life = self.nodes[index].life();
                life.admitted.insert(name);
                life.overlay.admitted(origin, number..=number);
            }
            Later::Release(slot, incarnation, bytes) => {
                self.nodes[index]
                    .life()
                    .overlay
                    .released(slot, incarnation, bytes)
            }
            Later::Applied(slot, version, mark, other_life) => {
                let Some(other) = self.node_of(index, slot) else {
                    return;
                };
                let life = self.nodes[index].life();
                // The workers answer whatever became of the node since; that it is void the overlay must see.
                life.overlay.interests_applied(slot, version);
                let ever = life.ever_applied.entry((other, other_life)).or_default();
                *ever = mark.max(*ever);
            }
            Later::Dial(address) => {
                let target = self.nodes.iter().position(|node| node.address == address);
                let reached = target.filter(|target| {
                    self.nodes[*target].is_alive && !self.network.is_blocked(index, *target)
                });
                let Some(target) = reached else {
                    let input = Input::DialFailed {
                        address: &address,
                        error: "unreachable",
                    };
                    return self.nodes[index]
                        .life()
                        .overlay
                        .handle_input(instant, input);
                };
                let delay = self.dice.below(self.settings.delay + 1);
                let life = self.nodes[index].life();
                let link = life.free_link();
                let wire = self.network.connect(index, link, target, delay);
                life.links.insert(link, (wire, 0));
                life.overlay.handle_input(
                    instant,
                    Input::Dialled {
                        address: &address,
                        link,
                    },
                );
                let proved = Input::LinkProved { link, key: KEY };
                life.overlay.handle_input(instant, proved);
            }
            Later::Writable(link) => self.write(now, index, link),
        }
    }

    /// A round ends: outputs are performed in order.
    pub fn end_round(&mut self, index: usize) {
        let instant = Instant::from_millis(self.now);
        self.nodes[index].life().overlay.end_round(instant);
        while let Some(output) = self.nodes[index].life().overlay.poll_output() {
            self.perform(index, output);
        }
        self.nodes[index].life().removed.clear();
    }

    fn perform(&mut self, index: usize, output: Output) {
        let now = self.now;
        match output {
            Output::Dial { address } => {
                let at = now + 1 + self.dice.below(self.settings.delay + 1);
                self.nodes[index]
                    .life()
                    .later
                    .push((at, Later::Dial(address)));
            }
            Output::Flush(link) => self.write(now, index, link),
            Output::Close(link) => {
                self.write(now, index, link);
                // One that the other end has closed in this round is passed over.
                let life = self.nodes[index].life();
                if let Some((wire, end)) = life.links.remove(&link) {
                    life.removed.insert(link);
                    self.network.close(now, wire, end);
                }
            }
            Output::NodeUp {
                slot,
                node,
                incarnation,
                ..
            } => {
                let other = self
                    .nodes
                    .iter()
                    .position(|known| known.id == node)
                    .expect("one of ours");
                let other_life = self.life_of(other, incarnation);
                let life = self.nodes[index].life();
                assert_eq!(
                    life.up.insert(slot, other_life),
                    None,
                    "node {index}: up twice"
                );
                life.tables.insert(slot, Default::default());
                life.control_sent.entry(slot).or_default();
                life.control_received.insert(slot, Vec::new());
            }
            Output::NodeDown { slot, .. } => {
                let life = self.nodes[index].life();
                assert!(life.up.remove(&slot).is_some(), "node {index}: down twice");
                life.tables.remove(&slot);
                life.went_out.insert(slot);
                for sent in life.sent.values_mut() {
                    sent.destinations.remove(&slot);
                }
            }
            Output::InterestChanged {
                slot,
                version,
                changes,
            } => {
                let at = now + self.dice.below(30);
                let life = self.nodes[index].life();
                let table = life.tables.get_mut(&slot).expect("of a node that is up");
                for change in changes {
                    match change.value {
                        Some(value) => drop(table.insert(change.key, value)),
                        None => {
                            assert!(table.remove(&change.key).is_some(), "removes what is there")
                        }
                    }
                }
                let other_life = life.up[&slot];
                let mark = table.get(&marker()).map_or(0, |value| value.weight);
                life.later
                    .push((at, Later::Applied(slot, version, mark, other_life)));
            }
            Output::InterestSettled { version } => self.check_settled(index, version),
            Output::Control { from, payload, .. } => {
                let number = u64::from_le_bytes(payload[..8].try_into().expect("eight bytes"));
                let life = self.nodes[index].life();
                let received = life
                    .control_received
                    .get_mut(&from)
                    .expect("from a node that is up");
                assert!(
                    received.last().is_none_or(|last| *last < number),
                    "node {index}: control {number} after {received:?}"
                );
                received.push(number);
            }
            Output::ControlLost { slot } => {
                self.nodes[index].life().control_lost.insert(slot);
            }
            Output::Acknowledged { stream, ranges } => {
                for number in ranges.into_iter().flatten() {
                    self.check_acknowledged(index, stream, number);
                }
            }
            Output::Unreadable { origin, number } => {
                panic!("{number} of {origin:?} cannot be read at node {index}")
            }
            Output::IdentityInUse { address } => panic!("{address} is another node {index}"),
            Output::IncarnationChanged { incarnation } => {
                self.nodes[index].incarnation = incarnation.0;
                self.nodes[index].life().jumps += 1;
            }
            Output::Event(event) => {
                if event.level <= EventLevel::Info {
                    let line = format!("{now} {} {:?}", event.message, event.fields);
                    self.nodes[index].life().events.push(line);
                }
            }
        }
    }

    /// The socket takes all, or a part and the rest later.
    fn write(&mut self, now: u64, index: usize, link: LinkId) {
        let instant = Instant::from_millis(now);
        let (is_short, part, again) = (
            self.dice.one_in(4),
            self.dice.below(3000),
            now + 1 + self.dice.below(5),
        );
        let jitter = self.dice.below(3);
        let life = self.nodes[index].lives.last_mut().expect("alive");
        let Some(&(wire, end)) = life.links.get(&link) else {
            return;
        };
        let pending = life.overlay.pending_output(link);
        let limits = 3 * 1024 * 1024;
        assert!(
            pending.len() < limits,
            "node {index}: out-buffer of {} bytes",
            pending.len()
        );
        let count = if is_short {
            pending.len().min(part as usize)
        } else {
            pending.len()
        };
        let bytes = pending[..count].to_vec();
        if count < pending.len() {
            life.later.push((again, Later::Writable(link)));
        }
        life.overlay.handle_written(instant, link, count);
        if !bytes.is_empty() {
            self.network
                .send(now, wire, end, Chunk::Bytes(bytes), jitter);
        }
    }

    fn node_of(&self, index: usize, slot: NodeSlot) -> Option<usize> {
        let id = self.nodes[index].lives.last()?.overlay.node_of(slot)?;
        self.nodes.iter().position(|node| node.id == id)
    }

    /// The life of a node that has or had an incarnation.
    fn life_of(&self, node: usize, incarnation: Incarnation) -> usize {
        let had = |life: &Life| {
            (life.first_incarnation..=life.overlay.incarnation().0).contains(&incarnation.0)
        };
        self.nodes[node]
            .lives
            .iter()
            .rposition(had)
            .expect("an incarnation of that node")
    }

    /// Rule 4: every node that is up has applied the version, as far as its process is the one that said so.
    fn check_settled(&mut self, index: usize, version: u64) {
        let own_life = self.nodes[index].lives.len() - 1;
        let life = self.nodes[index].life();
        assert_eq!(version, life.overlay.settled_version());
        let mark = life
            .marks
            .range(..=version)
            .next_back()
            .map(|(_, mark)| *mark);
        if self.settings.is_calm {
            self.check_settled_in_calm(index, version, mark);
        }
        let life = self.nodes[index].life();
        let up: Vec<_> = life
            .up
            .iter()
            .map(|(slot, other_life)| (*slot, *other_life))
            .collect();
        for (slot, other_life) in up {
            let other = self.node_of(index, slot).expect("up");
            let there = &self.nodes[other].lives[other_life];
            // What a node forgot when it gave us up in between, it had applied: that is enough.
            let applied = there.ever_applied.get(&(index, own_life)).copied();
            assert!(
                applied >= mark,
                "node {index} settled {version}, node {other} has {applied:?}"
            );
        }
    }

    /// Without faults even a node for which we are up, and that is not up for us yet, is waited for.
    fn check_settled_in_calm(&self, index: usize, version: u64, mark: Option<u32>) {
        let own_life = self.nodes[index].lives.len() - 1;
        for (other, node) in self.nodes.iter().enumerate() {
            let Some(there) = node
                .lives
                .last()
                .filter(|_| node.is_alive && other != index)
            else {
                continue;
            };
            let slot = there.overlay.slot_of(self.nodes[index].id);
            if slot.is_some_and(|slot| there.up.get(&slot) == Some(&own_life)) {
                let applied = there.ever_applied.get(&(index, own_life)).copied();
                assert!(
                    applied >= mark,
                    "node {index} settled {version}, node {other} has {applied:?}"
                );
            }
        }
    }

    /// Every destination still waited for has admitted the message.
    fn check_acknowledged(&mut self, index: usize, stream: StreamId, number: u64) {
        let own_life = self.nodes[index].lives.len() - 1;
        let name = (index, own_life, stream.0, number);
        let sent = self.nodes[index]
            .life()
            .sent
            .get_mut(&(stream.0, number))
            .expect("acknowledges what was sent");
        assert!(
            !std::mem::replace(&mut sent.is_acknowledged, true),
            "{name:?} acknowledged twice"
        );
        for (other, other_life) in sent.destinations.clone().into_values() {
            let has = self.nodes[other].lives[other_life].admitted.contains(&name);
            assert!(
                has,
                "{name:?} acknowledged at {} before node {other} admitted it",
                self.now
            );
        }
    }

    /// Forwards a message to some of the nodes that are up.
    pub fn forward(&mut self, index: usize, qos: Qos) {
        let (stream, chosen) = (StreamId(self.dice.below(2) as u16), self.dice.next());
        let len = if self.dice.one_in(30) {
            self.dice.below(90_000)
        } else {
            self.dice.below(200)
        };
        let own_life = self.nodes[index].lives.len() - 1;
        let up: Vec<_> = self.nodes[index]
            .life()
            .up
            .iter()
            .map(|(slot, life)| (*slot, *life))
            .collect();
        let chosen: Vec<_> = up
            .iter()
            .enumerate()
            .filter(|(at, _)| chosen >> at & 1 == 1)
            .map(|(_, up)| *up)
            .collect();
        let known: Vec<_> = chosen
            .iter()
            .filter_map(|(slot, life)| Some((*slot, (self.node_of(index, *slot)?, *life))))
            .collect();
        let life = self.nodes[index].life();
        let last = life.numbers.entry(stream).or_default();
        let number = if qos == Qos::AtMostOnce {
            0
        } else {
            *last + 1 + chosen.len() as u64 % 2
        };
        let name: MessageName = (index, own_life, stream.0, number);
        let mut payload = vec![0; 26 + len as usize];
        for (at, part) in [name.0 as u64, name.1 as u64, name.3]
            .into_iter()
            .enumerate()
        {
            payload[at * 8..at * 8 + 8].copy_from_slice(&part.to_le_bytes());
        }
        payload[24..26].copy_from_slice(&name.2.to_le_bytes());
        let mut record = Vec::new();
        Record {
            number,
            qos,
            topic: "t",
            payload: &payload,
            ..Record::default()
        }
        .encode(&mut record);
        let destinations: Vec<_> = chosen.iter().map(|(slot, _)| *slot).collect();
        let message = Forward {
            stream,
            number,
            qos,
            destinations: &destinations,
            interested: None,
            record: &record,
        };
        match life
            .overlay
            .forward(Instant::from_millis(self.now), message)
        {
            Ok(()) if number == 0 => life.plain_sent += destinations.len() as u64,
            Ok(()) => {
                *last = number;
                let sent = Sent {
                    destinations: known.into_iter().collect(),
                    is_acknowledged: false,
                };
                life.sent.insert((stream.0, number), sent);
            }
            Err(ForwardError::Full { .. }) => self.refused += 1,
            Err(error) => panic!("{error}"),
        }
    }

    /// Matches what is unacknowledged again: one more destination for some.
    pub fn rematch(&mut self, index: usize) {
        let own_life = self.nodes[index].lives.len() - 1;
        let chosen = self.dice.next();
        let life = self.nodes[index].life();
        let names: Vec<_> = life
            .overlay
            .unacknowledged()
            .map(|message| (message.stream, message.number))
            .collect();
        let up: Vec<_> = life
            .up
            .iter()
            .map(|(slot, other_life)| (*slot, *other_life))
            .collect();
        let Some((slot, other_life)) = up.get(chosen as usize % up.len().max(1)).copied() else {
            return;
        };
        let other = self.node_of(index, slot).expect("up");
        let life = self.nodes[index].life();
        for (stream, number) in names.into_iter().step_by(3) {
            if life.overlay.add_destination(stream, number, slot) {
                let sent = life
                    .sent
                    .get_mut(&(stream.0, number))
                    .expect("unacknowledged");
                sent.destinations.insert(slot, (other, other_life));
                self.rematched.insert((index, own_life, stream.0, number));
            }
        }
    }

    pub fn change_interest(&mut self, index: usize) {
        let (which, value) = (self.dice.below(30), self.dice.below(8));
        let filter = TopicFilter::new(&format!("site/{which}/+")).expect("a filter");
        let sharing = if which % 3 == 0 {
            Sharing::Group("g".into())
        } else {
            Sharing::Plain
        };
        let key = InterestKey { filter, sharing };
        let life = self.nodes[index].life();
        if value < 3 {
            life.own.remove(&key);
            life.overlay.clear_interest(&key);
        } else {
            let value = InterestValue {
                qos: Qos::AtLeastOnce,
                persistent: value == 3,
                weight: value as u32,
            };
            life.own.insert(key.clone(), value);
            life.overlay.set_interest(key, value);
        }
        // Counts the changes, for all to see: who has this weight has everything before it.
        let mark = life.marks.len() as u32 + 1;
        let value = InterestValue {
            qos: Qos::AtMostOnce,
            persistent: false,
            weight: mark,
        };
        life.own.insert(marker(), value);
        let version = life.overlay.set_interest(marker(), value);
        life.marks.insert(version, mark);
    }

    pub fn send_control(&mut self, index: usize) {
        let chosen = self.dice.next() as usize;
        let life = self.nodes[index].life();
        let up: Vec<_> = life.up.keys().copied().collect();
        let Some(slot) = up.get(chosen % up.len().max(1)) else {
            return;
        };
        let count = life.control_sent.get_mut(slot).expect("up");
        *count += 1;
        life.overlay
            .send_control(*slot, 7, &count.to_le_bytes())
            .expect("up, and small");
    }
}

/// The interest whose weight counts the changes of a node.
fn marker() -> InterestKey {
    InterestKey {
        filter: TopicFilter::new("mark").expect("a filter"),
        sharing: Sharing::Plain,
    }
}

/// What the model keeps of a delivery.
struct Note {
    origin: thicket_overlay::Origin,
    number: u64,
    len: u64,
    name: MessageName,
}

fn note(delivery: &Delivery<'_>) -> Note {
    let payload = delivery.record.payload;
    let part = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight bytes"));
    let stream = u16::from_le_bytes(payload[24..26].try_into().expect("two bytes"));
    assert_eq!(stream, delivery.origin.stream.0);
    assert_eq!(part(16), delivery.record.number);
    Note {
        origin: delivery.origin,
        number: delivery.record.number,
        len: delivery.bytes.len() as u64,
        name: (part(0) as usize, part(8) as usize, stream, part(16)),
    }
}
