//! A peer that sends and receives single packets, for scenarios.

use std::collections::VecDeque;

use thicket_mqtt::{Acknowledgement, Packet, PacketId, ProtocolVersion, ReasonCode, decode};

use crate::{
    net::Net,
    pipe::{EndId, Read},
    words::words,
};

/// A connection with the packets received on it.
#[derive(Debug)]
pub struct Tester {
    /// Its protocol version.
    pub version: ProtocolVersion,
    /// Its connection.
    pub end: Option<EndId>,
    to_write: Vec<u8>,
    unread: Vec<u8>,
    heard: VecDeque<String>,
    /// Authentication Data of the last AUTH or CONNACK.
    pub authentication_data: Vec<u8>,
    /// Acknowledges what it receives.
    pub acknowledges: bool,
    /// Reads nothing.
    pub is_asleep: bool,
}

impl Tester {
    /// A tester on a connection.
    pub const fn new(version: ProtocolVersion, end: EndId) -> Self {
        Self {
            version,
            end: Some(end),
            to_write: Vec::new(),
            unread: Vec::new(),
            heard: VecDeque::new(),
            authentication_data: Vec::new(),
            acknowledges: false,
            is_asleep: false,
        }
    }

    /// Queues a packet.
    pub fn send(&mut self, packet: &Packet<'_>) {
        packet
            .encode(self.version, &mut self.to_write)
            .expect("scenarios send what can be encoded");
    }

    /// Queues bytes.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.to_write.extend_from_slice(bytes);
    }

    /// Closes without a DISCONNECT.
    pub fn close(&mut self, net: &mut Net) {
        self.write(net);
        if let Some(end) = self.end.take() {
            net.close(end);
        }
    }

    /// Reads what has arrived, and writes what waits.
    pub fn round(&mut self, net: &mut Net) {
        while let Some(end) = self.end
            && !self.is_asleep
        {
            match net.read(end) {
                Read::Bytes(bytes) => {
                    self.unread.extend_from_slice(&bytes);
                    self.hear(net);
                }
                Read::End => {
                    self.heard.push_back("closed".into());
                    self.end = None;
                    net.close(end);
                }
                Read::Nothing => break,
            }
        }
        self.write(net);
    }

    /// Writes what the connection accepts.
    pub fn write(&mut self, net: &mut Net) {
        while let Some(end) = self.end
            && !self.to_write.is_empty()
        {
            let count = net.write(end, &self.to_write);
            self.to_write.drain(..count);
            if count == 0 {
                return;
            }
        }
    }

    fn hear(&mut self, net: &Net) {
        let unread = std::mem::take(&mut self.unread);
        let mut rest = &unread[..];
        loop {
            match decode(rest, self.version, u32::MAX) {
                Ok(Some((packet, len))) => {
                    self.heard.push_back(words(&packet));
                    let data = match &packet {
                        Packet::Auth(auth) => auth.authentication_data,
                        Packet::Connack(connack) => connack.authentication_data,
                        _ => None,
                    };
                    if let Some(data) = data {
                        self.authentication_data = data.to_vec();
                    }
                    if self.acknowledges {
                        self.acknowledge(&packet);
                    }
                    rest = &rest[len..];
                }
                Ok(None) => break,
                Err(error) => panic!("seed {}: a node sent {rest:02X?}: {error}", net.seed),
            }
        }
        self.unread = rest.to_vec();
    }

    fn acknowledge(&mut self, packet: &Packet<'_>) {
        let plain = |id: PacketId| Acknowledgement::new(id, ReasonCode::Success);
        match packet {
            Packet::Publish(publish) => match (publish.qos as u8, publish.packet_id) {
                (1, Some(id)) => self.send(&Packet::Puback(plain(id))),
                (2, Some(id)) => self.send(&Packet::Pubrec(plain(id))),
                _ => {}
            },
            Packet::Pubrec(ack) => self.send(&Packet::Pubrel(plain(ack.packet_id))),
            Packet::Pubrel(ack) => self.send(&Packet::Pubcomp(plain(ack.packet_id))),
            _ => {}
        }
    }

    /// The packets received since the last call.
    pub fn take_heard(&mut self) -> Vec<String> {
        self.heard.drain(..).collect()
    }
}
