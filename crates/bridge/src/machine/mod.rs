//! The bridge as a state machine: two clients, two queues, no I/O.
//!
//! Inputs are bytes and ends of connections of either side, and the time; outputs are [`Order`]s for the shell and bytes to write.
//!
//! A message must not return to where it came from. These mechanisms prevent it:
//!
//! * *No Local*, at a broker of 5.0: it does not send us what we published.
//! * *The mark*, a user property [`MARK`] with the bridge's identifier, added to every message that crosses. A message with our own mark
//!   is dropped: it passes a ring whose bridges all use 5.0 at most once.
//! * *The memory of echoes*, for a broker of 3.1.1, which has neither: topic and payload of recently sent messages. The echo of each is
//!   dropped once for each time it was sent.
//! * *The count of repeats*, for rings through a broker of 3.1.1, where marks are lost. It applies to messages that another bridge has
//!   marked and that go to a broker of 3.1.1, or that came from one over another bridge (user property [`BLIND`]): when the same was
//!   sent more than [`BridgeConfig::ring_repeats`] times within [`BridgeConfig::memory`], the next one is dropped, which ends the loop.
//!   A publisher that repeats the same message looks the same, and loses what exceeds that count. A ring whose turn takes longer than
//!   the time divided by the count is not stopped.
//!
//! A ring is not stopped either if every hop goes from one broker of 3.1.1 straight into the next, as when
//! nodes of Thicket are bridged to each other in a circle with 3.1.1. Nodes support 5.0; their bridges should use it.

mod config;
mod half;
mod intake;
mod lane;
mod memory;
mod statistics;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use thicket_mqtt::ReasonCode;
use thicket_session::Instant;
use thicket_session::client::{Client, ClientError};

use self::half::{Fate, Half, Link, Next};
use self::intake::{Intake, Note};
use self::lane::{History, Lane};
use self::memory::{Digester, Memory};
use crate::{Rule, Side};

pub use config::{Bounds, BridgeConfig, FIRST_RETRY, SideConfig};
pub use statistics::{LaneStatistics, SideStatistics, Statistics};

/// Name of the user property with the bridges that a message has crossed.
pub const MARK: &str = "thicket-bridge";

/// Name of the user property of a message that was received from a broker of 3.1.1: where it had been before is lost.
pub const BLIND: &str = "thicket-bridge-blind";

/// Orders to the shell, to perform in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Connect; [`Bridge::handle_opened`] or [`Bridge::handle_closed`] answers.
    Open(Side),
    /// Write what [`Bridge::output`] has and close; [`Bridge::handle_closed`] answers.
    Close(Side),
    /// Report to the operator.
    Report(Side, Report),
}

/// A report for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The broker has accepted the connection.
    Connected {
        /// Whether it resumed the session.
        session_present: bool,
    },
    /// The connection ended for another reason than a broken transport.
    Disconnected {
        /// The reason.
        why: String,
    },
    /// The broker refused a subscription.
    SubscriptionRefused {
        /// The filter.
        filter: String,
        /// Why.
        reason_code: ReasonCode,
    },
    /// A packet could not be sent.
    Unsayable {
        /// Why.
        error: ClientError,
    },
    /// The queue of messages from this side has capacity again. The bridge reconnects so that those it gave back are sent again.
    AskedAgain,
}

/// A bridge. See the [module](self).
#[derive(Debug)]
pub struct Bridge {
    config: BridgeConfig,
    /// By side.
    halves: [Half; 2],
    /// By the side the messages come from.
    lanes: [Lane; 2],
    counts: [LaneStatistics; 2],
    digester: Digester,
    /// Recently sent messages, by the side they came from.
    memories: [Memory; 2],
    orders: VecDeque<Order>,
    random: u64,
}

impl Bridge {
    /// A bridge that starts by connecting both sides. `seed` should be unpredictable.
    #[must_use]
    pub fn new(config: BridgeConfig, now: Instant, seed: u64) -> Self {
        let half = |side, config: &BridgeConfig| {
            let of_side = match side {
                Side::Local => &config.local,
                Side::Remote => &config.remote,
            };
            Half::new(side, of_side, config.bounds, now)
        };
        let mut bridge = Self {
            halves: Side::ALL.map(|side| half(side, &config)),
            lanes: Side::ALL.map(|_| Lane::new(config.bounds)),
            counts: Default::default(),
            digester: Digester::new(seed),
            memories: Side::ALL.map(|_| Memory::new(config.memory_messages, config.memory)),
            orders: VecDeque::new(),
            random: seed,
            config,
        };
        bridge.handle_timeout(now);
        bridge
    }

    /// The next order, `None` when there is none.
    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.halves.iter().filter_map(Half::poll_timeout).min()
    }

    /// Acts on deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        for side in Side::ALL {
            let half = &mut self.halves[side.index()];
            if let Link::Waiting { until } = half.link
                && now >= until
            {
                half.link = Link::Opening;
                self.orders.push_back(Order::Open(side));
            }
            self.hear(now, side, |client, intake| {
                client.handle_timeout(now, |event| intake.on_event(&event));
            });
        }
        self.forward(now);
    }

    /// The transport to `side` is connected.
    pub fn handle_opened(&mut self, now: Instant, side: Side) {
        let half = &mut self.halves[side.index()];
        if half.link != Link::Opening {
            return self.orders.push_back(Order::Close(side));
        }
        if let Err(error) = half.open(now) {
            half.disconnect(Next::Retry);
            self.report(side, Report::Unsayable { error });
            self.orders.push_back(Order::Close(side));
        }
    }

    /// The transport to `side` is closed, or failed to connect.
    pub fn handle_closed(&mut self, now: Instant, side: Side) {
        let jitter = self.next_random();
        self.halves[side.index()].on_closed(now, self.config.longest_retry, jitter);
        self.handle_timeout(now);
    }

    /// Bytes were received from `side`.
    pub fn handle_bytes(&mut self, now: Instant, side: Side, bytes: &[u8]) {
        self.hear(now, side, |client, intake| {
            client.handle_bytes(now, bytes, |event| intake.on_event(&event));
        });
        self.forward(now);
    }

    /// Bytes to write to `side`.
    #[must_use]
    pub fn output(&self, side: Side) -> &[u8] {
        self.halves[side.index()].client.output()
    }

    /// The first `count` bytes of [`Bridge::output`] were written.
    pub fn consume(&mut self, now: Instant, side: Side, count: usize) {
        self.halves[side.index()].client.consume(count);
        self.forward(now);
    }

    /// Disconnects from both brokers; the sessions stay.
    pub fn stop(&mut self) {
        for half in &mut self.halves {
            match half.link {
                Link::Open => {
                    half.disconnect(Next::Stop);
                    self.orders.push_back(Order::Close(half.side));
                }
                Link::Opening | Link::Closing { .. } => {
                    half.link = Link::Closing { next: Next::Stop }
                }
                Link::Waiting { .. } | Link::Stopped => half.link = Link::Stopped,
            }
        }
    }

    /// Whether both connections have ended after [`Bridge::stop`].
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.halves.iter().all(|half| half.link == Link::Stopped)
    }

    /// The counts so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let of_side = |half: &Half| SideStatistics {
            is_connected: half.is_connected() && half.is_subscribed,
            connects: half.connects,
        };
        let of_lane = |side: Side| LaneStatistics {
            queue_messages: self.lanes[side.index()].messages(),
            queue_bytes: self.lanes[side.index()].bytes(),
            ..self.counts[side.index()]
        };
        Statistics {
            local: of_side(&self.halves[Side::Local.index()]),
            remote: of_side(&self.halves[Side::Remote.index()]),
            outward: of_lane(Side::Local),
            inward: of_lane(Side::Remote),
        }
    }

    /// Lets the client of `side` work, and acts on its events.
    fn hear(&mut self, now: Instant, side: Side, work: impl FnOnce(&mut Client, &mut Intake<'_>)) {
        let half = &mut self.halves[side.index()];
        let has_properties = half.has_properties();
        let (from, to) = split(&mut self.lanes, side);
        let (from_count, to_count) = split(&mut self.counts, side);
        let mut intake = Intake {
            now,
            side,
            id: &self.config.id,
            rules: &self.config.rules,
            digester: &self.digester,
            has_properties,
            memory: &mut self.memories[side.other().index()],
            epochs: &mut half.epochs,
            answered: &mut half.answered,
            from,
            from_count,
            to,
            to_count,
            notes: Vec::new(),
            again: Vec::new(),
        };
        work(&mut half.client, &mut intake);
        let Intake {
            notes, again, to, ..
        } = intake;
        to.put_back(again);
        for note in notes {
            self.act(now, side, note);
        }
    }

    fn act(&mut self, now: Instant, side: Side, note: Note) {
        let half = &mut self.halves[side.index()];
        match note {
            Note::Acknowledge(packet_id) => {
                // The connection may have ended in the same bytes: then the message is sent again.
                let _ = half.client.acknowledge(now, packet_id, ReasonCode::Success);
            }
            Note::GiveBack(packet_id) => {
                let _ = half.client.give_back(packet_id);
            }
            Note::Settle(origin) => self.halves[side.other().index()].settle(now, origin),
            Note::Connected { session_present } => {
                let waiting = self.lanes[side.other().index()].waiting();
                half.on_connected(now, session_present, waiting);
                self.report(side, Report::Connected { session_present });
            }
            Note::Subscribed(reason_codes) => {
                half.is_subscribed = true;
                self.report_refused(side, &reason_codes);
            }
            Note::Disconnected(why) => {
                half.link = Link::Closing { next: Next::Retry };
                self.report(side, Report::Disconnected { why });
                self.orders.push_back(Order::Close(side));
            }
        }
    }

    fn report(&mut self, side: Side, report: Report) {
        self.orders.push_back(Order::Report(side, report));
    }

    /// The reason codes are in the order of the rules, as the filters were.
    fn report_refused(&mut self, side: Side, reason_codes: &[ReasonCode]) {
        let filters = self
            .config
            .rules
            .iter()
            .filter_map(|rule| rule.filter(side));
        let refused: Vec<_> = filters
            .zip(reason_codes)
            .filter(|(_, reason_code)| reason_code.is_error())
            .map(|(filter, reason_code)| Report::SubscriptionRefused {
                filter: filter.as_str().to_owned(),
                reason_code: *reason_code,
            })
            .collect();
        for report in refused {
            self.report(side, report);
        }
    }

    /// Forwards queued messages up to the limits, and reconnects a side whose messages were given back once there is capacity.
    fn forward(&mut self, now: Instant) {
        for side in Side::ALL {
            loop {
                self.subscribe(now, side.other());
                if !self.forward_one(now, side) {
                    break;
                }
            }
            if self.lanes[side.index()].wants_again() && self.halves[side.index()].is_connected() {
                self.halves[side.index()].disconnect(Next::Reopen);
                self.report(side, Report::AskedAgain);
                self.orders.push_back(Order::Close(side));
            }
        }
    }

    fn subscribe(&mut self, now: Instant, side: Side) {
        let asked = self.halves[side.index()].subscribe(now, &self.config.rules);
        if let Err(error) = asked {
            self.report(side, Report::Unsayable { error });
        }
    }

    /// Forwards the first message from `side`; returns whether the next may be tried.
    fn forward_one(&mut self, now: Instant, side: Side) -> bool {
        let (lane, count) = (
            &mut self.lanes[side.index()],
            &mut self.counts[side.index()],
        );
        let target = &mut self.halves[side.other().index()];
        let memory = &mut self.memories[side.index()];
        let Some(message) = lane.first().filter(|_| target.is_connected()) else {
            return false;
        };
        let digest = self.digester.digest(&message.topic, &message.payload);
        let has_properties = target.has_properties();
        let may_have_come_round = match message.history {
            History::Fresh | History::SentBefore => false,
            History::Bridged => !has_properties,
            History::Blind => true,
        };
        let comes_back = |rule: &Rule| rule.map(side.other(), &message.topic).is_some();
        let expects_echo = !has_properties && self.config.rules.iter().any(comes_back);
        let fate = if may_have_come_round && memory.count(now, digest) > self.config.ring_repeats {
            Fate::CameRound
        } else {
            target.publish(now, message)
        };
        if fate != Fate::Later {
            target.on_forwarded();
        }
        match fate {
            Fate::Later => return false,
            Fate::Sent(packet_id) => {
                memory.remember(now, digest, expects_echo);
                if let Some(packet_id) = packet_id {
                    lane.on_sent(packet_id, (digest, expects_echo));
                    return true;
                }
                count.forwarded += 1;
            }
            Fate::Expired => count.expired += 1,
            Fate::NotTaken => count.refused += 1,
            Fate::CameRound => count.looped += 1,
        }
        let origin = lane.pop().and_then(|message| message.origin);
        if let Some(origin) = origin {
            self.halves[side.index()].settle(now, origin);
        }
        true
    }

    /// From 0 to 1 (splitmix64).
    fn next_random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The element of `side`, and that of the other.
fn split<T>(both: &mut [T; 2], side: Side) -> (&mut T, &mut T) {
    let [local, remote] = both;
    match side {
        Side::Local => (local, remote),
        Side::Remote => (remote, local),
    }
}
