//! A single round trip: it proves that a broker works, and not only that its port is open.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thicket_mqtt::{Connect, Packet, ProtocolVersion, Publish, Qos};

use crate::dialog::Dialog;

/// Connects, subscribes, publishes and waits for the message; each step takes at most `patience`.
pub fn round_trip(address: SocketAddr, patience: Duration) -> io::Result<()> {
    let name = format!("thicket-probe-{}", std::process::id());
    let connect = Connect::new(ProtocolVersion::V311, &name);
    let (mut dialog, _) = Dialog::connect(address, connect, patience)?;
    dialog.subscribe(&name, Qos::AtMostOnce)?;
    dialog.send(&Packet::Publish(Publish::new(&name, b"there and back")))?;
    dialog.expect(|packet| {
        matches!(packet, Packet::Publish(publish) if publish.topic == name).then_some(Ok(()))
    })
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
