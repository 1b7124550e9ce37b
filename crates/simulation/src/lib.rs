//! A whole cluster with its clients in one thread: virtual time, all chance from one seed.
//!
//! What runs here are the machines of `thicket-node`, never a copy of them. Around them are a shell as `doors` describes it (`node`), a
//! network of connections that delay, lose, hold and cut (`net`), disks that fill up, stall and fail (`disk`), and clients.

pub mod client;
pub mod disk;
pub mod net;
pub mod node;
pub mod pipe;
pub mod random;
pub mod spec;
pub mod steps;
pub mod tester;
pub mod users;
pub mod words;
mod world;

pub use world::{TesterId, World};
