//! Brokers and the bridges between them.

use std::time::Duration;

use super::broker::Broker;
use super::*;

/// One bridge and what it is connected to.
pub(super) struct Span {
    pub(super) bridge: Bridge,
    config: BridgeConfig,
    /// By side: the number of a broker.
    pub(super) ends: [usize; 2],
    /// By side: whether the transport is connected.
    is_open: [bool; 2],
    is_closing: [bool; 2],
    pub(super) reports: Vec<(Side, Report)>,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) brokers: Vec<Broker>,
    pub(super) spans: Vec<Span>,
    /// Brokers that are unreachable.
    pub(super) away: Vec<usize>,
}

impl World {
    pub(super) fn new(brokers: usize) -> Self {
        Self {
            now: Instant::from_millis(1),
            brokers: (0..brokers).map(|_| Broker::default()).collect(),
            spans: Vec::new(),
            away: Vec::new(),
        }
    }

    /// Builds a bridge from broker `local` to broker `remote`.
    pub(super) fn bridge(&mut self, config: BridgeConfig, local: usize, remote: usize) {
        self.spans.push(Span {
            bridge: Bridge::new(config.clone(), self.now, self.spans.len() as u64),
            config,
            ends: [local, remote],
            is_open: [false; 2],
            is_closing: [false; 2],
            reports: Vec::new(),
        });
        self.follow(self.spans.len() - 1);
    }

    /// Gives the last bridge its own client identifiers.
    pub(super) fn rename_last(&mut self, client_id: &str) {
        let number = self.spans.len() - 1;
        let config = &mut self.spans[number].config;
        client_id.clone_into(&mut config.local.client_id);
        client_id.clone_into(&mut config.remote.client_id);
        self.kill(number);
    }

    fn line(span: usize, side: Side) -> usize {
        span * 2 + side.index()
    }

    /// Performs the bridge's orders.
    pub(super) fn follow(&mut self, number: usize) {
        while let Some(order) = self.spans[number].bridge.poll_order() {
            match order {
                Order::Open(side) => {
                    let span = &mut self.spans[number];
                    let broker = span.ends[side.index()];
                    if self.away.contains(&broker) {
                        span.bridge.handle_closed(self.now, side);
                    } else {
                        self.brokers[broker].open(Self::line(number, side));
                        span.is_open[side.index()] = true;
                        span.bridge.handle_opened(self.now, side);
                    }
                }
                Order::Close(side) => self.spans[number].is_closing[side.index()] = true,
                Order::Report(side, report) => self.spans[number].reports.push((side, report)),
            }
        }
    }

    /// This many bytes arrive at a broker.
    pub(super) fn up(&mut self, number: usize, side: Side, count: usize) {
        let span = &mut self.spans[number];
        if !span.is_open[side.index()] {
            return;
        }
        let output = span.bridge.output(side);
        let bytes = output[..count.min(output.len())].to_vec();
        span.bridge.consume(self.now, side, bytes.len());
        self.brokers[span.ends[side.index()]].handle_bytes(Self::line(number, side), &bytes);
        if span.is_closing[side.index()] && span.bridge.output(side).is_empty() {
            self.cut(number, side);
        }
        self.follow(number);
    }

    /// This many bytes arrive at a bridge.
    pub(super) fn down(&mut self, number: usize, side: Side, count: usize) {
        let span = &mut self.spans[number];
        let broker = &mut self.brokers[span.ends[side.index()]];
        let Some(line) = broker.lines.get_mut(&Self::line(number, side)) else {
            return;
        };
        let bytes: Vec<u8> = line.output.drain(..count.min(line.output.len())).collect();
        span.bridge.handle_bytes(self.now, side, &bytes);
        self.follow(number);
    }

    /// A transport breaks: bytes under way are lost.
    pub(super) fn cut(&mut self, number: usize, side: Side) {
        let span = &mut self.spans[number];
        self.brokers[span.ends[side.index()]].close(Self::line(number, side));
        if std::mem::take(&mut span.is_open[side.index()]) {
            span.is_closing[side.index()] = false;
            span.bridge.handle_closed(self.now, side);
        }
        self.follow(number);
    }

    /// The process of a bridge is killed and restarted.
    pub(super) fn kill(&mut self, number: usize) {
        for side in Side::ALL {
            let end = self.spans[number].ends[side.index()];
            self.brokers[end].close(Self::line(number, side));
        }
        let span = &mut self.spans[number];
        span.is_open = [false; 2];
        span.is_closing = [false; 2];
        span.bridge = Bridge::new(span.config.clone(), self.now, 77);
        self.follow(number);
    }

    /// A broker becomes unreachable.
    pub(super) fn take_away(&mut self, broker: usize) {
        self.away.push(broker);
        for number in 0..self.spans.len() {
            for side in Side::ALL {
                if self.spans[number].ends[side.index()] == broker {
                    self.cut(number, side);
                }
            }
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for number in 0..self.spans.len() {
            self.spans[number].bridge.handle_timeout(self.now);
            self.follow(number);
        }
    }

    /// Delivers everything, until nothing moves; panics if that does not end.
    pub(super) fn settle(&mut self) {
        for round in 0..2000 {
            for number in 0..self.spans.len() {
                for side in Side::ALL {
                    self.up(number, side, usize::MAX);
                    self.down(number, side, usize::MAX);
                }
            }
            self.pass(Duration::from_millis(100));
            // Bytes that were just sent may have an answer.
            if round > 20 && self.is_quiet() {
                return;
            }
        }
        for span in &self.spans {
            let reports = &span.reports[..span.reports.len().min(12)];
            println!(
                "{:?}: {:?}\n{reports:?}",
                span.ends,
                span.bridge.statistics()
            );
        }
        panic!("something goes on and on");
    }

    fn is_quiet(&self) -> bool {
        let is_span_quiet = |span: &Span| {
            let statistics = span.bridge.statistics();
            Side::ALL.iter().all(|side| {
                let is_away = self.away.contains(&span.ends[side.index()]);
                is_away || (span.is_open[side.index()] && span.bridge.output(*side).is_empty())
            }) && (!self.away.is_empty()
                || statistics.inward.queue_messages + statistics.outward.queue_messages == 0)
        };
        let are_brokers_quiet = || self.brokers.iter().all(Broker::is_quiet);
        self.spans.iter().all(is_span_quiet) && (!self.away.is_empty() || are_brokers_quiet())
    }

    pub(super) fn statistics(&self, number: usize) -> Statistics {
        self.spans[number].bridge.statistics()
    }
}

/// A bridge with a name and rules, and defaults for everything else.
pub(super) fn config(id: &str, version: ProtocolVersion, rules: Vec<Rule>) -> BridgeConfig {
    BridgeConfig::new(id, version, rules)
}
