//! What a node listens on: each address once.

use std::net::SocketAddr;

use super::faults::Faults;
use super::values::invalid;
use super::{Config, ConfigError};

/// Adds a fault for each address that something before it in the configuration has already.
pub(super) fn check(config: &Config, faults: &mut Faults) {
    let mut taken: Vec<(&'static str, SocketAddr)> = Vec::new();
    for (key, address) in all(config) {
        let other = taken.iter().find(|(_, other)| are_same(*other, address));
        match other {
            Some((other, _)) => faults.add(twice(key, address, other)),
            None => taken.push((key, address)),
        }
    }
}

fn all(config: &Config) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let listeners = config.listeners.iter().flat_map(|it| &it.addresses);
    let placement = config.placement.as_ref().map(|it| it.address);
    listeners
        .map(|address| ("listen", *address))
        .chain(config.http.map(|it| ("http", it)))
        .chain(config.probe.map(|it| ("probe", it)))
        .chain(placement.map(|it| ("placement_listen", it)))
}

/// Whether one process cannot listen on both. Whether IPv6 includes IPv4 is up to the system.
fn are_same(one: SocketAddr, other: SocketAddr) -> bool {
    let includes =
        one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && includes
}

fn twice(key: &'static str, address: SocketAddr, other: &str) -> ConfigError {
    let expected = if key == other {
        format!("each address once in `{key}`")
    } else {
        format!("another address or port than those of `{other}`")
    };
    invalid(key, address, expected)
}

#[cfg(test)]
mod tests {
    use crate::config::Settings;

    #[test]
    fn what_a_node_listens_on_has_an_address_of_its_own() {
        let checked = |listen: &[&str], http: &str, probe: Option<&str>| {
            let settings = Settings {
                listen: Some(listen.iter().map(|it| (*it).to_owned()).collect()),
                http: Some(http.into()),
                probe: probe.map(Into::into),
                allow_anonymous: Some(true),
                insecure_links: Some(true),
                ..Settings::default()
            };
            settings.check().err().map(|faults| faults.to_string())
        };
        for (listen, http, probe, expected) in [
            (&["127.0.0.1:1883"][..], "off", None, None),
            (&["127.0.0.1:1883", "[::1]:1883"], "off", None, None),
            (&["127.0.0.1:1883", "127.0.0.2:1883"], "off", None, None),
            (&["127.0.0.1:0", "127.0.0.1:0"], "127.0.0.1:0", None, None),
            (
                &["127.0.0.1:1883", "127.0.0.1:1884", "ws://127.0.0.1:1883"],
                "off",
                None,
                Some("listen = 127.0.0.1:1883: expected each address once in `listen`"),
            ),
            (
                &["0.0.0.0:18830"],
                "127.0.0.1:18830",
                None,
                Some(
                    "http = 127.0.0.1:18830: expected another address or port than those of `listen`",
                ),
            ),
            (
                &["127.0.0.1:1883"],
                "127.0.0.1:18830",
                Some("0.0.0.0:18830"),
                Some(
                    "probe = 0.0.0.0:18830: expected another address or port than those of `http`",
                ),
            ),
        ] {
            let found = checked(listen, http, probe);
            let found = found
                .as_deref()
                .map(|text| text.lines().last().unwrap_or_default());
            assert_eq!(found.is_some(), expected.is_some(), "{listen:?} {found:?}");
            assert!(
                found
                    .unwrap_or_default()
                    .contains(expected.unwrap_or_default()),
                "{found:?}"
            );
        }
    }
}
