//! A single round trip: the proof that a broker works, not only that its port is open.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use thicket_mqtt::{Connect, Packet, PacketId, ProtocolVersion, Publish, Qos, Subscribe, decode};

const VERSION: ProtocolVersion = ProtocolVersion::V311;

/// Connects, subscribes, publishes and waits for the message; each step takes at most `patience`.
pub fn round_trip(address: SocketAddr, patience: Duration) -> io::Result<()> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    let mut probe = Probe {
        stream,
        received: Vec::new(),
    };
    let name = format!("thicket-probe-{}", std::process::id());
    probe.send(&Packet::Connect(Box::new(Connect::new(VERSION, &name))))?;
    probe.expect(|packet| match packet {
        Packet::Connack(connack) if connack.reason_code.is_error() => Some(Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("refused: {:?}", connack.reason_code),
        ))),
        Packet::Connack(_) => Some(Ok(())),
        _ => None,
    })?;
    let id = PacketId::new(1).expect("1 is not 0");
    probe.send(&Packet::Subscribe(Subscribe::new(
        id,
        &name,
        Qos::AtMostOnce,
    )))?;
    probe.expect(|packet| matches!(packet, Packet::Suback(_)).then_some(Ok(())))?;
    probe.send(&Packet::Publish(Publish::new(&name, b"there and back")))?;
    probe.expect(|packet| {
        matches!(packet, Packet::Publish(publish) if publish.topic == name).then_some(Ok(()))
    })
}

struct Probe {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Probe {
    fn send(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        packet
            .encode(VERSION, &mut bytes)
            .map_err(io::Error::other)?;
        self.stream.write_all(&bytes)
    }

    /// Reads packets until `wanted` answers.
    fn expect(&mut self, wanted: impl Fn(&Packet<'_>) -> Option<io::Result<()>>) -> io::Result<()> {
        let mut chunk = [0; 1024];
        loop {
            while let Some((packet, len)) =
                decode(&self.received, VERSION, u32::MAX).map_err(io::Error::other)?
            {
                let answer = wanted(&packet);
                self.received.drain(..len);
                if let Some(answer) = answer {
                    return answer;
                }
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => self.received.extend_from_slice(&chunk[..len]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::Relay;

    #[test]
    fn a_relay_answers_a_round_trip_and_a_silent_listener_does_not() {
        let relay = Relay::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = relay.local_addr().unwrap();
        std::thread::spawn(move || relay.run());
        round_trip(address, Duration::from_secs(20)).unwrap();

        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error =
            round_trip(silent.local_addr().unwrap(), Duration::from_millis(50)).unwrap_err();
        assert!(
            matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ),
            "{error:?}"
        );
    }
}
