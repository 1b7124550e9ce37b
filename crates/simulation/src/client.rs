//! A client machine on a connection, with the events it reported to its owner.

use std::collections::VecDeque;

use thicket_mqtt::{PacketId, Qos, ReasonCode};
use thicket_session::{
    client::{CleanStart, Client, ClientConfig, ConnectionState, DisconnectReason, Event},
    time::Instant,
};

use crate::{
    net::{Net, Wake},
    pipe::{EndId, Read},
};

/// Events for a client's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server accepted the connection.
    Connected {
        /// It had the session.
        session_present: bool,
    },
    /// The server refused the connection.
    Refused(ReasonCode),
    /// The server ended the connection, or refused it, and named another one.
    Redirected {
        /// The Server Reference.
        to: String,
        /// After CONNACK.
        was_connected: bool,
    },
    /// A message was received.
    Message {
        /// Its topic.
        topic: String,
        /// Its payload.
        payload: Vec<u8>,
        /// Its QoS on this connection.
        qos: Qos,
        /// It was a retained message.
        retain: bool,
    },
    /// A publication is acknowledged: PUBACK, PUBREC with an error, or PUBCOMP.
    Acknowledged {
        /// The publication.
        packet_id: PacketId,
        /// The server's reason code.
        reason_code: ReasonCode,
    },
    /// Not resent: the server's state for it is gone.
    Discarded {
        /// The publication.
        packet_id: PacketId,
    },
    /// SUBACK.
    Subscribed {
        /// The SUBSCRIBE.
        packet_id: PacketId,
        /// One for each filter.
        reason_codes: Vec<ReasonCode>,
    },
    /// UNSUBACK.
    Unsubscribed {
        /// The UNSUBSCRIBE.
        packet_id: PacketId,
    },
    /// The server ended the connection with a reason code.
    DisconnectedBy(ReasonCode),
    /// The server violated the protocol; a description.
    Broken(String),
    /// The connection is gone.
    Closed,
}

/// A client.
#[derive(Debug)]
pub struct SimulatedClient {
    /// Its place in `World::clients`.
    pub index: usize,
    /// The protocol state machine.
    pub machine: Client,
    /// Its connection.
    pub end: Option<EndId>,
    /// The node it is connected to.
    pub node: usize,
    /// Events not taken yet, each with its time, ms.
    events: VecDeque<(u64, ClientEvent)>,
    /// All its output had been written when it closed.
    pub has_said_all: bool,
}

impl SimulatedClient {
    /// A client that is not connected.
    pub fn new(index: usize, config: ClientConfig) -> Self {
        Self {
            index,
            machine: Client::new(config),
            end: None,
            node: 0,
            events: VecDeque::new(),
            has_said_all: false,
        }
    }

    /// Sends CONNECT over a new connection.
    pub fn connect(&mut self, net: &mut Net, end: EndId, clean_start: CleanStart) {
        self.end = Some(end);
        self.machine
            .connect(Instant::from_millis(net.now), clean_start)
            .expect("disconnected, and configured well");
        self.write(net);
    }

    /// Drops the connection without a DISCONNECT.
    pub fn drop_connection(&mut self, net: &mut Net) {
        if let Some(end) = self.end.take() {
            net.close(end);
            self.machine.handle_closed();
            self.events.push_back((net.now, ClientEvent::Closed));
        }
    }

    /// Gives the connection up without closing it.
    pub fn forget_connection(&mut self, net: &Net) {
        self.end = None;
        self.machine.handle_closed();
        self.events.push_back((net.now, ClientEvent::Closed));
    }

    /// Reads the bytes that have arrived, and handles timeouts.
    pub fn round(&mut self, net: &mut Net) {
        let now = Instant::from_millis(net.now);
        while let Some(end) = self.end {
            match net.read(end) {
                Read::Bytes(bytes) => {
                    let events = &mut self.events;
                    self.machine
                        .handle_bytes(now, &bytes, |event| note_event(events, net.now, event));
                }
                Read::End => {
                    self.drop_connection(net);
                }
                Read::Nothing => break,
            }
            self.finish(net);
        }
        let events = &mut self.events;
        self.machine
            .handle_timeout(now, |event| note_event(events, net.now, event));
        self.finish(net);
    }

    /// Writes pending output; closes a connection that is finished.
    pub fn finish(&mut self, net: &mut Net) {
        self.write(net);
        if self.machine.state() == ConnectionState::Closing {
            self.has_said_all = self.machine.output().is_empty();
            self.drop_connection(net);
        }
        if let Some(at) = self.machine.poll_timeout() {
            let at = at.as_millis().max(net.now + 1);
            net.wake(at, Wake::Client(self.index));
        }
    }

    fn write(&mut self, net: &mut Net) {
        while let Some(end) = self.end {
            let count = net.write(end, self.machine.output());
            self.machine.consume(count);
            if count == 0 {
                return;
            }
        }
    }

    /// The events since the last call, in order, without their times.
    pub fn take_events_without_times(&mut self) -> Vec<ClientEvent> {
        self.events.drain(..).map(|(_, event)| event).collect()
    }

    /// The events since the last call, in order, each with the virtual time at which it occurred, ms.
    pub fn take_events(&mut self) -> Vec<(u64, ClientEvent)> {
        self.events.drain(..).collect()
    }

    /// Whether it is connected.
    pub fn is_connected(&self) -> bool {
        self.machine.state() == ConnectionState::Connected
    }
}

fn note_event(events: &mut VecDeque<(u64, ClientEvent)>, now: u64, event: Event<'_>) {
    let event = match event {
        Event::Connected {
            session_present, ..
        } => ClientEvent::Connected { session_present },
        Event::Message(publish) => ClientEvent::Message {
            topic: publish.topic.to_owned(),
            payload: publish.payload.to_vec(),
            qos: publish.qos,
            retain: publish.retain,
        },
        Event::Acknowledged {
            packet_id,
            reason_code,
        } => ClientEvent::Acknowledged {
            packet_id,
            reason_code,
        },
        Event::Discarded { packet_id, .. } => ClientEvent::Discarded { packet_id },
        Event::Subscribed {
            packet_id,
            reason_codes,
        } => ClientEvent::Subscribed {
            packet_id,
            reason_codes: reason_codes.to_vec(),
        },
        Event::Unsubscribed { packet_id, .. } => ClientEvent::Unsubscribed { packet_id },
        Event::Disconnected(DisconnectReason::Refused(connack)) => match connack.server_reference {
            Some(to) => ClientEvent::Redirected {
                to: to.to_owned(),
                was_connected: false,
            },
            None => ClientEvent::Refused(connack.reason_code),
        },
        Event::Disconnected(DisconnectReason::ByServer(disconnect)) => {
            match disconnect.server_reference {
                Some(to) => ClientEvent::Redirected {
                    to: to.to_owned(),
                    was_connected: true,
                },
                None => ClientEvent::DisconnectedBy(disconnect.reason_code),
            }
        }
        Event::Disconnected(reason) => ClientEvent::Broken(format!("{reason:?}")),
        Event::Authentication(_) | Event::Pong => return,
    };
    events.push_back((now, event));
}
