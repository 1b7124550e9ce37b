//! A worker and a hub: the two pure machines a node is made of.

mod config;
mod doors;
mod hub;
mod journal;
mod load;
mod mail;
mod marks;
mod placing;
mod queue;
mod random;
mod rebalance;
mod report;
mod scope;
mod source;
mod transfer;
mod visits;
mod worker;

pub use config::*;
pub use doors::*;
pub use hub::Hub;
pub use journal::{Keyspace, LogStatus, RecoverError, StoreOperation, Stored, Unstored};
pub use load::*;
pub use placing::{PlacedSessionEntry, PlacementAsked, PlacementEntry, ProblemEntry};
pub use rebalance::*;
pub use report::*;
pub(crate) use source::Payer;
pub use source::Source;
pub use transfer::*;
pub use visits::{CLIENT_CONNECTED, CLIENT_DISCONNECTED, CONNECT_REFUSED};
pub use worker::Worker;
