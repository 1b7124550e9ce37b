//! MQTT packets to bytes and back: 3.1, 3.1.1 and 5.0, for both ends of a connection.
//!
//! [`decode`] reads one packet from the front of a buffer and borrows from it: a PUBLISH costs no allocation.
//! [`Packet::encode`] and [`Publish::encode`] append one to a buffer. Everything a single packet can get wrong is refused
//! here with the reason code to answer; what needs to know the connection (order of packets, direction, aliases, limits
//! agreed on, validity of a filter) is left to the session.
//!
//! Invariants: no input panics; nothing beyond the packet is looked at; what fails to encode leaves the output as it was;
//! what was encoded decodes to the same packet.
//!
//! ```
//! use thicket_mqtt::{Packet, ProtocolVersion, Publish, decode};
//!
//! let mut bytes = Vec::new();
//! Publish::new("tide/height", b"3.2").encode(ProtocolVersion::V5, &mut bytes)?;
//!
//! let maximum_packet_size = 1024;
//! match decode(&bytes, ProtocolVersion::V5, maximum_packet_size)? {
//!     Some((Packet::Publish(publish), len)) => {
//!         assert_eq!((publish.topic, publish.payload), ("tide/height", b"3.2".as_slice()));
//!         assert_eq!(len, bytes.len());
//!     }
//!     other => panic!("expected one whole PUBLISH, got {other:?}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod acknowledge;
mod application;
mod connect;
mod error;
mod packet;
mod packet_kind;
mod publish;
mod reason;
mod server_reference;
mod subscribe;
mod types;

mod decode;
mod encode;
mod property;
mod reader;
mod write;

pub use acknowledge::{Acknowledgement, AcknowledgementKind, Auth, Disconnect};
pub use application::{ApplicationProperties, ApplicationProperty};
pub use connect::{Connack, Connect, Login, Will};
pub use decode::{
    FrameHeader, PLAIN_ACKNOWLEDGEMENT_LEN, connect_version, decode, decode_publish, frame_header,
    plain_acknowledgement,
};
pub use encode::encode_plain_acknowledgement;
pub use error::{DecodeError, EncodeError};
pub use packet::Packet;
pub use packet_kind::PacketKind;
pub use publish::{Publish, SubscriptionIdentifiers};
pub use reason::{ReasonCode, UnknownReasonCode};
pub use server_reference::{ServerReference, server_references};
pub use subscribe::{
    Suback, Subscribe, SubscribeFilter, SubscriptionOptions, Unsuback, Unsubscribe,
};
pub use types::{PacketId, ProtocolVersion, Qos, RetainHandling, UserProperties};
