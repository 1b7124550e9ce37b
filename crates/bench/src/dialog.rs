//! A connection of one client that does one thing at a time and waits: for probes and scenarios, not for load.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use thicket_mqtt::{
    Connect, Packet, PacketId, ProtocolVersion, Publish, Qos, ReasonCode, Subscribe, decode,
    server_references,
};

use crate::arrivals::place_of;

/// A connected client.
#[derive(Debug)]
pub(crate) struct Dialog {
    stream: TcpStream,
    version: ProtocolVersion,
    received: Vec<u8>,
    /// How much of `received` was processed.
    taken: usize,
}

impl Dialog {
    /// Connects; each later step also takes at most `patience`. Returns whether there was a session.
    pub fn connect(
        address: SocketAddr,
        connect: Connect<'_>,
        patience: Duration,
    ) -> io::Result<(Self, bool)> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        let mut dialog = Self {
            stream,
            version: connect.version,
            received: Vec::new(),
            taken: 0,
        };
        dialog.send(&Packet::Connect(Box::new(connect)))?;
        let session_present = dialog.expect(|packet| match packet {
            Packet::Connack(connack) if connack.reason_code.is_error() => Some(Err(redirected(
                connack.reason_code,
                connack.server_reference,
            )
            .unwrap_or_else(|| refused("the connection", connack.reason_code)))),
            Packet::Connack(connack) => Some(Ok(connack.session_present)),
            _ => None,
        })?;
        Ok((dialog, session_present))
    }

    /// Subscribes and waits for the SUBACK.
    pub fn subscribe(&mut self, filter: &str, qos: Qos) -> io::Result<()> {
        let id = PacketId::new(1).expect("1 is not 0");
        self.send(&Packet::Subscribe(Subscribe::new(id, filter, qos)))?;
        self.expect(|packet| match packet {
            Packet::Suback(suback) => match suback.reason_codes.first() {
                Some(code) if code.is_error() => Some(Err(refused("the subscription", *code))),
                _ => Some(Ok(())),
            },
            _ => None,
        })
    }

    /// Publishes all payloads at QoS 1 before it waits for the acknowledgements.
    pub fn publish_all<'a>(
        &mut self,
        messages: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut count = 0;
        for (topic, payload) in messages {
            count += 1;
            let publish = Publish {
                qos: Qos::AtLeastOnce,
                packet_id: PacketId::new(count),
                ..Publish::new(topic, payload)
            };
            encode(&Packet::Publish(publish), self.version, &mut bytes)?;
        }
        self.stream.write_all(&bytes)?;
        for _ in 0..count {
            self.expect_puback()?;
        }
        Ok(())
    }

    /// Publishes one message at QoS 1 and waits for the acknowledgement.
    pub fn publish(&mut self, publish: Publish<'_>) -> io::Result<()> {
        self.send(&Packet::Publish(publish))?;
        self.expect_puback()
    }

    fn expect_puback(&mut self) -> io::Result<()> {
        self.expect(|packet| match packet {
            Packet::Puback(ack) if ack.reason_code.is_error() => {
                Some(Err(refused("a message", ack.reason_code)))
            }
            Packet::Puback(_) => Some(Ok(())),
            _ => None,
        })
    }

    /// Sets how long a read waits.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// Sends encoded packets, and empties the buffer.
    pub fn write(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if !bytes.is_empty() {
            self.stream.write_all(bytes)?;
            bytes.clear();
        }
        Ok(())
    }

    /// Hands over available packets, or those that arrive with one read; none if that takes longer than the timeout.
    pub fn poll(&mut self, handle: &mut dyn FnMut(Packet<'_>)) -> io::Result<()> {
        if self.take_packets(handle)? {
            return Ok(());
        }
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => self.received.extend_from_slice(&chunk[..len]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        self.take_packets(handle).map(drop)
    }

    /// Returns whether there was one.
    fn take_packets(&mut self, handle: &mut dyn FnMut(Packet<'_>)) -> io::Result<bool> {
        let mut has_any = false;
        while let Some((packet, len)) = decode(&self.received[self.taken..], self.version, u32::MAX)
            .map_err(io::Error::other)?
        {
            if let Packet::Disconnect(disconnect) = &packet {
                let reason_code = disconnect.reason_code;
                return Err(redirected(reason_code, disconnect.server_reference)
                    .unwrap_or_else(|| refused("to go on", reason_code)));
            }
            handle(packet);
            self.taken += len;
            has_any = true;
        }
        self.received.drain(..std::mem::take(&mut self.taken));
        Ok(has_any)
    }

    /// Sends one packet.
    pub fn send(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode(packet, self.version, &mut bytes)?;
        self.stream.write_all(&bytes)
    }

    /// Reads packets until `wanted` returns a value.
    pub fn expect<T>(
        &mut self,
        wanted: impl Fn(&Packet<'_>) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        let mut chunk = [0; 16 * 1024];
        loop {
            while let Some((packet, len)) =
                decode(&self.received[self.taken..], self.version, u32::MAX)
                    .map_err(io::Error::other)?
            {
                let answer = wanted(&packet);
                self.taken += len;
                if let Some(answer) = answer {
                    return answer;
                }
            }
            self.received.drain(..std::mem::take(&mut self.taken));
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.received.extend_from_slice(&chunk[..len]),
                // A read with a timeout ends so when the process was stopped and goes on (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The server redirects the client (5.0, 4.11).
#[derive(Debug, thiserror::Error)]
#[error("sent to {0}")]
struct Redirected(String);

/// Where an error of a dialog redirects the client: HOST:PORT.
pub(crate) fn sent_to(error: &io::Error) -> Option<&str> {
    let redirected = error.get_ref()?.downcast_ref::<Redirected>()?;
    Some(&redirected.0)
}

fn redirected(reason_code: ReasonCode, reference: Option<&str>) -> Option<io::Error> {
    let is_redirect = matches!(
        reason_code,
        ReasonCode::UseAnotherServer | ReasonCode::ServerMoved
    );
    let reference = reference.filter(|_| is_redirect)?;
    let place = place_of(server_references(reference).first()?);
    Some(io::Error::new(
        io::ErrorKind::PermissionDenied,
        Redirected(place),
    ))
}

/// Appends a packet.
pub(crate) fn encode(
    packet: &Packet<'_>,
    version: ProtocolVersion,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    packet.encode(version, out).map_err(io::Error::other)?;
    Ok(())
}

fn refused(what: &str, reason_code: ReasonCode) -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "refused {what}: {reason_code:?} (0x{:02X})",
            reason_code as u8
        ),
    )
}
