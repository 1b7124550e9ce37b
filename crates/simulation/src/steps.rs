//! Steps of scenarios: a tester connects to the first node, subscribes and publishes, and the packets it receives are compared.

use thicket_mqtt::{Connect, Packet, PacketId, ProtocolVersion, Publish, Qos, Subscribe};

use crate::{TesterId, World};

/// A packet identifier.
pub fn id(value: u16) -> PacketId {
    PacketId::new(value).expect("not zero")
}

/// A QoS by its number.
pub fn qos(value: u8) -> Qos {
    Qos::from_bits(value).expect("0, 1 or 2")
}

impl World {
    /// A connected client that has received its CONNACK.
    #[track_caller]
    pub fn client(&mut self, connect: Connect<'_>, connack: &str) -> TesterId {
        let tester = self.connect(0, connect);
        self.expect(tester, &[connack]);
        tester
    }

    /// A connected client that receives at once what waited for it.
    #[track_caller]
    pub fn client_with(&mut self, connect: Connect<'_>, expected: &[&str]) -> TesterId {
        let tester = self.connect(0, connect);
        self.expect(tester, expected);
        tester
    }

    /// Lets a second pass; returns what the tester received meanwhile.
    pub fn hear(&mut self, tester: TesterId) -> Vec<String> {
        self.run_for(1_000);
        self.tester(tester).take_heard()
    }

    /// A connected 5.0 client whose session ends with its connection.
    #[track_caller]
    pub fn plain(&mut self, client_id: &str) -> TesterId {
        self.client(Connect::new(ProtocolVersion::V5, client_id), "CONNACK")
    }

    /// Subscribes with packet identifier 1 and expects the SUBACK.
    #[track_caller]
    pub fn subscribe(&mut self, tester: TesterId, filter: &str, granted: u8) {
        self.send(
            tester,
            &Packet::Subscribe(Subscribe::new(id(1), filter, qos(granted))),
        );
        self.expect(tester, &[&format!("SUBACK 1 [{granted:02X}]")]);
    }

    /// Sends a PUBLISH; with an identifier if it has a QoS.
    pub fn publish(
        &mut self,
        tester: TesterId,
        topic: &str,
        payload: &str,
        of_qos: u8,
        as_id: u16,
    ) {
        let publish = Publish {
            qos: qos(of_qos),
            packet_id: PacketId::new(as_id),
            ..Publish::new(topic, payload.as_bytes())
        };
        self.send(tester, &Packet::Publish(publish));
    }
}
