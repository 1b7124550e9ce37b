//! What a worker has: connections and sessions with all that belongs to them, interests, and what leaves in this round.
//!
//! Nothing here knows the [context](super::context), which is made of it, or the parts of the worker above that.

pub(super) mod activity;
pub(super) mod arrivals;
pub(super) mod barriers;
pub(super) mod batches;
pub(super) mod budget;
pub(super) mod charge;
pub(super) mod connection;
pub(super) mod connections;
pub(super) mod counts;
pub(super) mod debts;
pub(super) mod divergence;
pub(super) mod divided;
pub(super) mod drain;
pub(super) mod drops;
pub(super) mod effort;
pub(super) mod following;
pub(super) mod gates;
pub(super) mod grant_ends;
pub(super) mod interests;
pub(super) mod journal;
pub(super) mod merging;
pub(super) mod outgoing;
pub(super) mod packet_trace;
pub(super) mod pending;
pub(super) mod places;
pub(super) mod publication;
pub(super) mod reauthentication;
pub(super) mod records;
pub(super) mod relocated;
pub(super) mod replica;
pub(super) mod retained;
pub(super) mod rights;
pub(super) mod role;
pub(super) mod seen;
pub(super) mod session_key;
pub(super) mod sessions;
pub(super) mod tenants;
pub(super) mod timers;
pub(super) mod transfers;
