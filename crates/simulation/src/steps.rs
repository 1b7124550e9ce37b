//! Steps that scenarios are made of: a tester comes to the first node, subscribes, publishes, and what it then hears is compared.

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
    /// A client in service, its CONNACK heard.
    #[track_caller]
    pub fn client(&mut self, connect: Connect<'_>, connack: &str) -> TesterId {
        let tester = self.connect(0, connect);
        self.expect(tester, &[connack]);
        tester
    }

    /// A client in service that hears at once what waited for it.
    #[track_caller]
    pub fn client_with(&mut self, connect: Connect<'_>, expected: &[&str]) -> TesterId {
        let tester = self.connect(0, connect);
        self.expect(tester, expected);
        tester
    }

    /// Lets a second pass; what the tester heard meanwhile.
    pub fn hear(&mut self, tester: TesterId) -> Vec<String> {
        self.run_for(1_000);
        self.tester(tester).take_heard()
    }

    /// A 5.0 client in service, whose session ends with its connection.
    #[track_caller]
    pub fn plain(&mut self, client_id: &str) -> TesterId {
        self.client(Connect::new(ProtocolVersion::V5, client_id), "CONNACK")
    }

    /// Subscribes with packet identifier 1 and hears that it worked.
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
