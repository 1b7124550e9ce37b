//! Where something comes from, as far as strangers can be distinguished.

use std::net::{IpAddr, Ipv6Addr};

/// An address; of IPv6 the network of a subscriber (64 bits), inside of which addresses cost nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from(network))
            }
        })
    }
}

impl Source {
    /// A Unix socket has no address, so its peers cannot be distinguished.
    #[must_use]
    pub const fn is_known(self) -> bool {
        !self.0.is_unspecified()
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_one_network_of_ipv6_are_one_source() {
        let of = |text: &str| Source::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1").to_string(), "192.0.2.1");
        assert_eq!(of("2001:db8:0:1::1").to_string(), "2001:db8:0:1::/64");
        assert!(of("192.0.2.1").is_known() && !of("0.0.0.0").is_known());
    }
}
