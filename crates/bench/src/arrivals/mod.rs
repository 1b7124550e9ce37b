//! Publishers of several types that arrive one after the other, each with a rate of its own (Dispatcher IV).
//!
//! It measures where the load of each publisher goes: to the next broker in turn, to the one that a dispatcher names, or after a move. So it counts
//! by broker and by second, beside the CPU and memory of given processes. Subscribers of everything may be there before; what comes to them is counted too.
//!
//! Messages of each publisher are due at regular times and are sent in millisecond ticks; a message written to a broker's socket counts as published
//! there.

mod client;
mod run;
mod types;

pub(crate) use client::place_of;
pub use run::{Arrivals, ArrivalsOutcome, BrokerSeries, ProcessSeries, Rates, Receipt, Use, run};
pub use types::{ArrivalOrder, Attach, PublisherType, Redirect, in_order, parse_types};
