//! WebSocket (RFC 6455) as MQTT uses it: the subprotocol `mqtt`, binary frames only, packets split into frames as the sender chooses [MQTT-6.0.0-1]
//! to [MQTT-6.0.0-4].

mod frame;
mod handshake;

pub use frame::{
    Control, Decoder, FrameError, Opcode, Role, apply_mask, close_frame, frame_header, pong_frame,
};
pub use handshake::{
    HandshakeError, LONGEST_HANDSHAKE, Request, accept_key, decode_request, decode_response,
    encode_request, encode_response,
};
