//! Clients that survive failures of nodes: a persistent session each, at whichever node answers, or where a node redirects them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thicket_mqtt::{
    Acknowledgement, Connect, Disconnect, Packet, PacketId, ProtocolVersion, Publish, Qos,
    ReasonCode,
};

use super::ledger::{Ledger, STAMP, write_stamp};
use crate::BenchError;
use crate::dialog::{Dialog, encode, sent_to};
use crate::stop::Stop;

/// Timeout of one attempt to connect, and of each answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts at all nodes.
const PAUSE: Duration = Duration::from_millis(20);
/// A client that finds no node for this long fails.
const ALONE: Duration = Duration::from_secs(120);
/// Longest wait for bytes before a client checks the time again.
const TICK: Duration = Duration::from_millis(2);
/// Most unacknowledged messages of a publisher: below any known Receive Maximum.
const WINDOW: usize = 100;
/// Time for the last acknowledgements after the load.
const LAST: Duration = Duration::from_secs(30);

/// The settings of a client.
pub(super) struct Plan {
    pub client_id: String,
    /// Prefix of all topics of the run.
    pub topic: String,
    /// Index among the clients of its kind.
    pub index: usize,
    pub home: Home,
    pub ledger: Arc<Ledger>,
    pub goes_on: Arc<AtomicBool>,
    /// Ends it at once.
    pub stop: Stop,
}

/// The nodes of a client: its own first, then the next one that answers.
pub(super) struct Home {
    pub addresses: Arc<[SocketAddr]>,
    pub first: usize,
    /// A version that all nodes support.
    pub version: ProtocolVersion,
}

/// The version for a broker: 5.0, with which it can redirect clients, unless it supports only 3.1.1.
pub(super) fn version_of(address: SocketAddr) -> ProtocolVersion {
    let speaks = |version| {
        let connect = Connect {
            clean_start: true,
            ..Connect::new(version, "thicket-bench-version")
        };
        Dialog::connect(address, connect, TIMEOUT).is_ok()
    };
    if !speaks(ProtocolVersion::V5) && speaks(ProtocolVersion::V311) {
        ProtocolVersion::V311
    } else {
        ProtocolVersion::V5
    }
}

/// Outcomes of a publisher's messages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Published {
    pub refused: u64,
    pub unacknowledged: u64,
    pub sessions_lost: u64,
}

/// A subscriber that has reconnected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reconnect {
    pub session_present: bool,
    /// The time, in seconds since the start of the run.
    pub at_s: f64,
    /// From the loss of the connection to the CONNACK.
    pub away: Duration,
    /// From the CONNACK to the first message; `None`: no message arrived.
    pub resumed: Option<Duration>,
}

impl Plan {
    fn goes_on(&self) -> bool {
        self.goes_on.load(Ordering::Relaxed)
    }

    /// Connects where a node has redirected the client, else to the first node that answers, in turn; returns whether it had the session.
    ///
    /// A redirection in CONNACK is followed once.
    fn connect(&self, sent_to: Option<SocketAddr>) -> Result<(Dialog, bool), BenchError> {
        let began = Instant::now();
        let count = self.home.addresses.len();
        let mut next = sent_to;
        loop {
            let mut last = None;
            let homes =
                (0..count).map(|turn| self.home.addresses[(self.home.first + turn) % count]);
            for address in next.take().into_iter().chain(homes) {
                match self.connect_and_follow(address) {
                    Ok(connected) => return Ok(connected),
                    Err(error) => last = Some((address, error)),
                }
            }
            if began.elapsed() > ALONE
                && let Some((address, source)) = last
            {
                return Err(BenchError::Unreachable {
                    node: address.to_string(),
                    source,
                });
            }
            self.stop.sleep(PAUSE)?;
        }
    }

    fn connect_and_follow(&self, address: SocketAddr) -> io::Result<(Dialog, bool)> {
        self.connect_to(address)
            .or_else(|error| match self.redirection(&error) {
                Some(elsewhere) => self.connect_to(elsewhere),
                None => Err(error),
            })
    }

    fn connect_to(&self, address: SocketAddr) -> io::Result<(Dialog, bool)> {
        let version = self.home.version;
        let connect = Connect {
            clean_start: false,
            session_expiry_interval: version.has_properties().then_some(3600),
            ..Connect::new(version, &self.client_id)
        };
        Dialog::connect(address, connect, TIMEOUT)
    }

    /// Where a node redirects the client, if that ended the dialog.
    fn redirection(&self, error: &io::Error) -> Option<SocketAddr> {
        let place = sent_to(error)?.to_socket_addrs().ok()?.next();
        self.ledger.count_redirect();
        place
    }

    /// Ends the session, so that a later run does not find it.
    fn end_session(&self, mut dialog: Dialog) {
        if !self.home.version.has_properties() {
            drop(dialog);
            let clean = Connect {
                clean_start: true,
                ..Connect::new(self.home.version, &self.client_id)
            };
            // If the node fails at this moment, it keeps the session.
            let _ = Dialog::connect(self.home.addresses[self.home.first], clean, TIMEOUT);
            return;
        }
        let goodbye = Disconnect {
            session_expiry_interval: Some(0),
            ..Disconnect::default()
        };
        // If the node fails at this moment, it keeps the session for an hour.
        let _ = dialog.send(&Packet::Disconnect(goodbye));
    }
}

/// The state of a publisher's message.
#[derive(Debug, Clone, Copy)]
enum Under {
    /// Sent.
    Way,
    /// PUBREC was received.
    Release,
}

struct Publisher<'a> {
    plan: &'a Plan,
    qos: Qos,
    topic: String,
    payload: Vec<u8>,
    /// In the order of sending: identifiers rise, and restart at 1 when they are free.
    open: BTreeMap<u64, (PacketId, Under)>,
    /// Number of the next message and, from it, the next identifier.
    next: u64,
    next_id: u16,
    result: Published,
}

/// Publishes until stopped, then completes open messages.
pub(super) fn publish(
    plan: &Plan,
    qos: Qos,
    interval: Duration,
    payload_len: usize,
) -> Result<Published, BenchError> {
    let mut publisher = Publisher {
        plan,
        qos,
        topic: format!("{}{}", plan.topic, plan.index),
        payload: vec![b'x'; payload_len.max(STAMP)],
        open: BTreeMap::new(),
        next: 0,
        next_id: 1,
        result: Published::default(),
    };
    let mut due = Instant::now();
    let mut stopped = None;
    let mut is_first = true;
    let mut elsewhere = None;
    loop {
        let (mut dialog, session_present) = plan.connect(elsewhere)?;
        let _connected = plan.ledger.connected();
        if !is_first && !session_present {
            publisher.result.sessions_lost += 1;
        }
        is_first = false;
        // The connection breaks if a node has failed, or redirects the client.
        let ended = publisher.serve(&mut dialog, interval, &mut due, &mut stopped);
        elsewhere = ended.as_ref().err().and_then(|it| plan.redirection(it));
        let is_late = stopped.is_some_and(|at: Instant| at.elapsed() > LAST);
        if ended.is_ok() || is_late {
            publisher.result.unacknowledged += publisher.open.len() as u64;
            plan.end_session(dialog);
            return Ok(publisher.result);
        }
    }
}

impl Publisher<'_> {
    /// Sends open messages again, then those that are due, until all are complete (`Ok`) or the connection breaks.
    fn serve(
        &mut self,
        dialog: &mut Dialog,
        interval: Duration,
        due: &mut Instant,
        stopped: &mut Option<Instant>,
    ) -> io::Result<()> {
        dialog.set_patience(TICK)?;
        let mut out = Vec::new();
        for (number, (id, under)) in self.open.clone() {
            match under {
                Under::Way => self.write(&mut out, number, id, true)?,
                Under::Release => self.release(&mut out, id)?,
            }
        }
        loop {
            let now = Instant::now();
            if !self.plan.goes_on() {
                let since = *stopped.get_or_insert(now);
                if self.open.is_empty() || since.elapsed() > LAST {
                    return Ok(());
                }
            }
            // A delay of more than a second is never caught up: an open loop that catches up would be another load.
            if now.saturating_duration_since(*due) > Duration::from_secs(1) {
                *due = now;
            }
            while stopped.is_none() && *due <= now && self.open.len() < WINDOW {
                let (number, id) = (self.next, self.free_id());
                self.open.insert(number, (id, Under::Way));
                self.write(&mut out, number, id, false)?;
                self.next += 1;
                *due += interval;
            }
            dialog.write(&mut out)?;
            let mut answers = Vec::new();
            dialog.poll(&mut |packet| match packet {
                Packet::Puback(ack) => answers.push((ack.packet_id, ack.reason_code, 1)),
                Packet::Pubrec(ack) => answers.push((ack.packet_id, ack.reason_code, 2)),
                Packet::Pubcomp(ack) => answers.push((ack.packet_id, ack.reason_code, 3)),
                _ => {}
            })?;
            for (id, code, step) in answers {
                self.answer(id, code, step, &mut out)?;
            }
        }
    }

    fn free_id(&mut self) -> PacketId {
        loop {
            let id = PacketId::new(self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            if let Some(id) = id
                && !self.open.values().any(|(taken, _)| *taken == id)
            {
                return id;
            }
        }
    }

    fn write(&mut self, out: &mut Vec<u8>, number: u64, id: PacketId, dup: bool) -> io::Result<()> {
        write_stamp(&mut self.payload, self.plan.index, number);
        let publish = Publish {
            qos: self.qos,
            dup,
            packet_id: Some(id),
            ..Publish::new(&self.topic, &self.payload)
        };
        encode(&Packet::Publish(publish), self.plan.home.version, out)
    }

    /// `step`: 1 PUBACK, 2 PUBREC, 3 PUBCOMP.
    fn answer(
        &mut self,
        id: PacketId,
        code: ReasonCode,
        step: u8,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let found = self.open.iter().find(|(_, (open, _))| *open == id);
        let Some((&number, &(_, under))) = found else {
            return if step == 2 {
                self.release(out, id)
            } else {
                Ok(())
            };
        };
        match (step, under) {
            (1 | 2, Under::Way) if code.is_error() => {
                self.result.refused += 1;
                self.open.remove(&number);
            }
            (1, _) => {
                self.plan.ledger.acknowledge(self.plan.index, number);
                self.open.remove(&number);
            }
            (2, _) => {
                self.plan.ledger.acknowledge(self.plan.index, number);
                self.open.insert(number, (id, Under::Release));
                self.release(out, id)?;
            }
            (_, Under::Release) => {
                self.open.remove(&number);
            }
            (_, Under::Way) => {}
        }
        Ok(())
    }

    fn release(&self, out: &mut Vec<u8>, id: PacketId) -> io::Result<()> {
        let pubrel = Acknowledgement::new(id, ReasonCode::Success);
        encode(&Packet::Pubrel(pubrel), self.plan.home.version, out)
    }
}

/// Receives until stopped; returns every reconnect.
pub(super) fn subscribe(plan: &Plan) -> Result<Vec<Reconnect>, BenchError> {
    let mut reconnects: Vec<Reconnect> = Vec::new();
    // QoS 2 identifiers without a PUBREL: a message repeated under one of them was counted.
    let mut held: BTreeSet<u16> = BTreeSet::new();
    let mut lost_at: Option<Instant> = None;
    let mut elsewhere = None;
    loop {
        let (mut dialog, session_present) = plan.connect(elsewhere)?;
        let _connected = plan.ledger.connected();
        let connected_at = Instant::now();
        if let Some(lost_at) = lost_at {
            reconnects.push(Reconnect {
                session_present,
                at_s: plan.ledger.now_s(),
                away: connected_at.saturating_duration_since(lost_at),
                resumed: None,
            });
        }
        if !session_present {
            held.clear();
        }
        let mut first = None;
        let served = receive(plan, &mut dialog, session_present, &mut held, &mut first);
        if lost_at.is_some()
            && let (Some(reconnect), Some(first)) = (reconnects.last_mut(), first)
        {
            reconnect.resumed = Some(first.saturating_duration_since(connected_at));
        }
        match served {
            Ok(()) => {
                plan.end_session(dialog);
                return Ok(reconnects);
            }
            Err(_) if !plan.goes_on() => return Ok(reconnects),
            Err(error) => {
                elsewhere = plan.redirection(&error);
                lost_at = Some(Instant::now());
            }
        }
    }
}

/// `first`: when the first message of this connection arrived.
fn receive(
    plan: &Plan,
    dialog: &mut Dialog,
    session_present: bool,
    held: &mut BTreeSet<u16>,
    first: &mut Option<Instant>,
) -> io::Result<()> {
    if !session_present {
        let filter = format!("{}#", plan.topic);
        dialog.subscribe(&filter, Qos::ExactlyOnce)?;
        plan.ledger.enter_service();
    }
    dialog.set_patience(TICK)?;
    let mut out = Vec::new();
    while plan.goes_on() {
        let mut trouble = Ok(());
        dialog.poll(&mut |packet| {
            let answer = match packet {
                Packet::Publish(publish) => {
                    first.get_or_insert_with(Instant::now);
                    take(plan, &publish, held)
                }
                Packet::Pubrel(ack) => {
                    held.remove(&ack.packet_id.value());
                    let ack = Acknowledgement::new(ack.packet_id, ReasonCode::Success);
                    Some(Packet::Pubcomp(ack))
                }
                _ => None,
            };
            if let Some(answer) = answer
                && let Err(error) = encode(&answer, plan.home.version, &mut out)
            {
                trouble = Err(error);
            }
        })?;
        trouble?;
        dialog.write(&mut out)?;
    }
    Ok(())
}

/// Counts a message; returns the answer.
fn take(plan: &Plan, publish: &Publish<'_>, held: &mut BTreeSet<u16>) -> Option<Packet<'static>> {
    let Some(id) = publish.packet_id else {
        plan.ledger.receive(plan.index, publish.payload);
        return None;
    };
    let ack = Acknowledgement::new(id, ReasonCode::Success);
    if publish.qos == Qos::ExactlyOnce {
        if held.insert(id.value()) {
            plan.ledger.receive(plan.index, publish.payload);
        }
        return Some(Packet::Pubrec(ack));
    }
    plan.ledger.receive(plan.index, publish.payload);
    Some(Packet::Puback(ack))
}
