//! `thicket pub` and `thicket sub`: one session of MQTT on the command line.
//!
//! The protocol is that of [`thicket_session::client`]; here are arguments, a socket, and words. Flags are those of the mosquitto
//! clients where both have the same thing.

mod arguments;
mod connection;
mod publish;
mod subscribe;
mod target;
mod words;

pub use publish::{Pub, run as publish};
pub use subscribe::{Sub, run as subscribe};
