//! Which connections yield when places, or memory for their buffers, run out: those of the address that uses most. So an address that uses up everything
//! harms only itself.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

/// A client that has just connected is given this time for its CONNECT, however scarce places are.
pub const JUST_CONNECTED: Duration = Duration::from_millis(500);
/// Connections that are looked at, each time others, for one that yields to another: a stranger who opens many makes no work by that.
pub const LOOKED_AT: usize = 512;

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

/// A connection, and how much it holds of what is scarce.
#[derive(Debug, Clone, Copy)]
pub struct Held<I> {
    /// Which.
    pub id: I,
    /// From where.
    pub source: Source,
    /// Rises with each new connection.
    pub serial: u64,
    /// What it holds; 0: it does not yield.
    pub amount: usize,
}

/// Connections that hold `enough` together, with what each holds: those of the address that holds most first; of one address those that hold most, and of
/// these the oldest.
pub fn heaviest<I: Copy + Ord>(
    connections: impl Iterator<Item = Held<I>>,
    enough: u64,
) -> Vec<(I, usize)> {
    let mut by_source: BTreeMap<Source, (u64, Vec<_>)> = BTreeMap::new();
    for held in connections.filter(|held| held.amount > 0) {
        let (sum, of_source) = by_source.entry(held.source).or_default();
        *sum += held.amount as u64;
        of_source.push((Reverse(held.amount), held.serial, held.id));
    }
    let mut sources: Vec<_> = by_source.into_values().collect();
    sources.sort_unstable_by_key(|(sum, _)| Reverse(*sum));
    let mut left = enough;
    let all = sources.into_iter().flat_map(|(_, mut of_source)| {
        of_source.sort_unstable();
        of_source
    });
    let enough = all.map_while(|(Reverse(held), _, id)| {
        let is_wanted = left > 0;
        left = left.saturating_sub(held as u64);
        is_wanted.then_some((id, held))
    });
    enough.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_holds_most_yields_first_with_what_is_largest() {
        let held = |serial, host: u8, amount| Held {
            id: serial - 1,
            source: IpAddr::from([192, 0, 2, host]).into(),
            serial,
            amount,
        };
        let all = [
            held(1, 1, 50),
            held(2, 2, 30),
            held(3, 2, 10),
            held(4, 2, 30),
            held(5, 3, 0),
        ];
        let yielding = |enough| {
            let found = heaviest(all.into_iter(), enough);
            found.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };
        assert!(yielding(0).is_empty());
        assert_eq!(yielding(1), [1], "the older one of two");
        assert_eq!(yielding(60), [1, 3]);
        assert_eq!(yielding(71), [1, 3, 2, 0], "the next address");
        assert_eq!(yielding(1000), [1, 3, 2, 0]);
    }

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
