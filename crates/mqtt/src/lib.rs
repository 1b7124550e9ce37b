//! MQTT packets to bytes and back: 3.1, 3.1.1 and 5.0.

mod packet;
mod publish;
mod reason;
mod types;

mod decode;
mod encode;

pub use decode::{DecodeError, FrameHeader, decode, frame_header};
pub use encode::EncodeError;
pub use packet::{
    Acknowledgement, Auth, Connack, Connect, Disconnect, Login, Packet, PacketKind, Suback, Subscribe,
    SubscribeFilter, SubscriptionOptions, Unsuback, Unsubscribe, UserProperties, Will,
};
pub use publish::{ApplicationProperties, ApplicationProperty, Publish};
pub use reason::ReasonCode;
pub use types::{PacketId, ProtocolVersion, Qos, RetainHandling};
