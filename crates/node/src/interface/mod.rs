//! Inputs and outputs of a worker and of the hub: the whole contract between the pure node and its shell.
//!
//! A shell thread runs rounds. In a round it hands over everything it has (`handle_input`), then calls `end_round`, then stores what `unstored`
//! returns. Only then has the machine a way out ([`crate::Egress`]): the shell performs all outputs (`poll_output`), and flushes each connection
//! named by a `Flush` once (`pending_output`, `handle_written`).
//!
//! Between rounds it reads what it wants to know ([`crate::WorkerView`], [`crate::HubView`]), and passes on what operators order
//! ([`crate::WorkerOperator`], [`crate::HubOperator`]).

mod authentication;
mod event;
mod hub;
mod identifiers;
mod worker;

pub use self::{authentication::*, event::*, hub::*, identifiers::*, worker::*};
pub use crate::messages::{HubMessage, WorkerMessage};
