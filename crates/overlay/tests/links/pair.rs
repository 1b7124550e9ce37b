//! Two overlays joined by sockets that take everything at once: `a` dials `b`.

use std::collections::{BTreeMap, VecDeque};

use thicket_overlay::{
    Delivery, Event, FarEnd, Incarnation, Input, KeyId, LinkId, NodeId, Output, Overlay,
    OverlayConfig,
};
use thicket_session::time::Instant;

/// Which of the two.
pub const A: usize = 0;
pub const B: usize = 1;

const KEY: KeyId = KeyId([1, 2, 3, 4]);

pub fn config(node: u64) -> OverlayConfig {
    // Without an address nobody is dialled but by discovery.
    OverlayConfig::new(NodeId(node), Incarnation(10), "reef", "")
}

/// What one side did besides bytes.
#[derive(Default)]
pub struct Side {
    pub outputs: Vec<Output>,
    /// Number and payload length of each delivery.
    pub delivered: Vec<(u64, usize)>,
    pub origins: Vec<thicket_overlay::Origin>,
}

/// Changes bytes on their way.
type Tap = Box<dyn FnMut(usize, &mut Vec<u8>)>;

pub struct Pair {
    pub now: u64,
    pub nodes: [Overlay; 2],
    pub sides: [Side; 2],
    /// Links open, numbered alike at both ends; true: `b` was told of it.
    pub open: BTreeMap<LinkId, bool>,
    pub tap: Tap,
    /// Whether the socket from a side takes bytes.
    pub is_writable: [bool; 2],
    /// Whether a side proves to the other that it belongs to the cluster.
    pub proves: [bool; 2],
    next: u32,
}

impl Pair {
    pub fn new(a: OverlayConfig, b: OverlayConfig) -> Self {
        let now = Instant::from_millis(1000);
        let nodes = [Overlay::new(a, now, 1), Overlay::new(b, now, 2)];
        Self {
            now: 1000,
            nodes,
            sides: Default::default(),
            open: BTreeMap::new(),
            tap: Box::new(|_, _| {}),
            is_writable: [true; 2],
            proves: [true; 2],
            next: 0,
        }
    }

    /// Two nodes that are up for each other.
    pub fn linked(a: OverlayConfig, b: OverlayConfig) -> Self {
        let mut pair = Self::new(a, b);
        pair.dial();
        for side in &pair.sides {
            assert!(
                side.outputs
                    .iter()
                    .any(|output| matches!(output, Output::NodeUp { .. })),
                "{:?}",
                side.outputs
            );
        }
        pair
    }

    pub fn instant(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    pub fn dial(&mut self) {
        let now = self.instant();
        self.nodes[A].handle_input(now, Input::Discovered { address: "b" });
        self.run();
    }

    /// Lets time pass, round by round.
    pub fn advance(&mut self, millis: u64) {
        let end = self.now + millis;
        while self.now < end {
            self.now = (self.now + 50).min(end);
            self.run();
        }
    }

    /// Runs rounds until nothing happens any more.
    pub fn run(&mut self) {
        for round in 0.. {
            assert!(round < 500, "never quiet");
            let mut is_quiet = true;
            for side in [A, B] {
                self.nodes[side].end_round(self.instant());
                let mut outputs = VecDeque::new();
                outputs.extend(std::iter::from_fn(|| self.nodes[side].poll_output()));
                is_quiet &= outputs.is_empty();
                outputs
                    .into_iter()
                    .for_each(|output| self.perform(side, output));
            }
            if is_quiet {
                return;
            }
        }
    }

    fn perform(&mut self, side: usize, output: Output) {
        let now = self.instant();
        match output {
            Output::Dial { address } if address == "b" => {
                assert_eq!(side, A);
                let link = LinkId(self.next);
                self.next += 1;
                self.open.insert(link, false);
                self.nodes[A].handle_input(now, Input::Dialled { address: "b", link });
                if self.proves[B] {
                    self.nodes[A].handle_input(now, Input::LinkProved { link, key: KEY });
                }
            }
            Output::Flush(link) => self.flush(side, link),
            Output::Close(link) => {
                self.flush(side, link);
                if self.open.remove(&link).is_some() {
                    self.nodes[1 - side].handle_input(now, Input::Closed { link });
                }
            }
            output => self.sides[side].outputs.push(output),
        }
    }

    pub fn flush(&mut self, side: usize, link: LinkId) {
        if !self.is_writable[side] {
            return;
        }
        let mut bytes = self.nodes[side].pending_output(link).to_vec();
        self.nodes[side].handle_written(self.instant(), link, bytes.len());
        (self.tap)(side, &mut bytes);
        if !bytes.is_empty() && self.open.contains_key(&link) {
            self.deliver(1 - side, link, &bytes);
        }
    }

    /// Hands bytes to a side as if they had come from the other.
    pub fn deliver(&mut self, side: usize, link: LinkId, bytes: &[u8]) {
        let now = self.instant();
        if side == B && !std::mem::replace(self.open.get_mut(&link).expect("open"), true) {
            let end = FarEnd {
                key: self.proves[A].then_some(KEY),
                ..FarEnd::default()
            };
            let accepted = Input::LinkAccepted { link, end, bytes };
            return self.nodes[B].handle_input(now, accepted);
        }
        let (delivered, origins) = (
            &mut self.sides[side].delivered,
            &mut self.sides[side].origins,
        );
        self.nodes[side].handle_received(now, link, bytes, |delivery: Delivery<'_>| {
            delivered.push((delivery.record.number, delivery.record.payload.len()));
            origins.push(delivery.origin);
        });
    }

    /// The socket breaks.
    pub fn cut(&mut self) {
        let now = self.instant();
        for (link, is_accepted) in std::mem::take(&mut self.open) {
            self.nodes[A].handle_input(now, Input::Closed { link });
            if is_accepted {
                self.nodes[B].handle_input(now, Input::Closed { link });
            }
        }
    }

    /// The events of a side with this text, and their fields as one line.
    pub fn events(&self, side: usize, message: &str) -> Vec<String> {
        let text = |event: &Event| {
            event
                .fields
                .iter()
                .map(|(name, value)| format!("{name}={value} "))
                .collect()
        };
        let events = self.sides[side]
            .outputs
            .iter()
            .filter_map(|output| match output {
                Output::Event(event) if event.message == message => Some(text(event)),
                _ => None,
            });
        events.collect()
    }
}
