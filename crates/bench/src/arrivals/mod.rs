//! Publishers of several types that arrive one after the other, each with a rate of its own (Dispatcher IV).
//!
//! It answers where the load of each of them goes: at its turn, to the broker that a dispatcher names, or after a move. So it
//! counts by broker and by second, with the CPU and memory of given processes beside it. There are no subscribers.
//!
//! Messages are due at even times of each publisher and leave in millisecond ticks; what was written to a broker's socket counts
//! as published there.

mod publisher;
mod run;
mod types;

pub(crate) use publisher::place_of;
pub use run::{Arrivals, ArrivalsOutcome, BrokerSeries, ProcessSeries, Rates, Use, run};
pub use types::{ArrivalOrder, Attach, PublisherType, Redirect, in_order, parse_types};
