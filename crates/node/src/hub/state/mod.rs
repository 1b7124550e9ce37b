//! What the [`Hub`](super::Hub) has of each of its parts. Nothing here sends anything.

pub(in crate::hub) mod agreement;
pub(in crate::hub) mod arrivals;
pub(in crate::hub) mod backlog;
pub(in crate::hub) mod clocks;
pub(in crate::hub) mod interests;
pub(in crate::hub) mod refusals;
pub(in crate::hub) mod start;
