//! SCRAM-SHA-256 (RFC 5802, RFC 7677) without channel binding: what is stored, and both sides of the exchange.

mod credential;
mod exchange;

pub(crate) use credential::spend;
pub use credential::{Credential, DEFAULT_ITERATIONS, LEAST_ITERATIONS, METHOD, MOST_ITERATIONS};
pub use exchange::{ClientExchange, ScramError, ServerExchange};
