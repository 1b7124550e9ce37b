//! relay
pub mod relay;
pub mod wire;
