//! Who is charged for what a client uses.

use thicket_placement::Source;

/// The account that is charged for what a client uses here.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Payer {
    User(Box<str>),
    Address(Source),
}

impl std::fmt::Display for Payer {
    /// As retained messages carry it: a user never looks like an address.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Address(source) => write!(f, "address {source}"),
        }
    }
}
