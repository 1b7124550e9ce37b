//! Checks of single values, whatever key they belong to.

use std::net::SocketAddr;
use std::path::Path;

use super::ConfigError;

/// Names travel in the same datagram as the address.
const LONGEST_NAME: usize = 255;

pub(super) fn invalid(
    key: &'static str,
    value: impl ToString,
    expected: impl Into<String>,
) -> ConfigError {
    ConfigError::Invalid {
        key,
        value: value.to_string(),
        expected: expected.into(),
    }
}

pub(super) fn checked_name(key: &'static str, name: String) -> Result<String, ConfigError> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(invalid(
            key,
            format!("{name:?}"),
            format!("1 to {LONGEST_NAME} bytes without control characters"),
        ));
    }
    Ok(name)
}

pub(super) fn in_range<T>(
    key: &'static str,
    given: Option<T>,
    default: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, ConfigError>
where
    T: PartialOrd + std::fmt::Display,
{
    let value = given.unwrap_or(default);
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(invalid(
            key,
            value,
            format!("{} to {}", range.start(), range.end()),
        ))
    }
}

/// HOST:PORT with a port other than 0; HOST is not resolved here.
pub(super) fn host_and_port(key: &'static str, text: String) -> Result<String, ConfigError> {
    let good = text.rsplit_once(':').is_some_and(|(host, port)| {
        let bare_v6 = host.contains(':') && !host.starts_with('[');
        !host.is_empty()
            && !bare_v6
            && !host.contains(char::is_whitespace)
            && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if good && text.len() <= LONGEST_NAME {
        Ok(text)
    } else {
        Err(invalid(
            key,
            text,
            "HOST:PORT, such as broker-2:1883, 10.0.0.2:1883 or [fd00::2]:1883",
        ))
    }
}

/// An address that is given to others.
pub(super) fn reachable(key: &'static str, text: String) -> Result<String, ConfigError> {
    let text = host_and_port(key, text)?;
    let address = text.parse::<SocketAddr>();
    if address.is_ok_and(|address| address.ip().is_unspecified()) {
        let expected = "an address where others reach this node, such as broker-1:1883: this one stands for all addresses of whoever connects";
        return Err(invalid(key, text, expected));
    }
    Ok(text)
}

pub(super) fn all_hosts_and_ports(
    key: &'static str,
    texts: Option<&[String]>,
) -> Result<Vec<String>, ConfigError> {
    texts
        .unwrap_or_default()
        .iter()
        .map(|text| host_and_port(key, text.clone()))
        .collect()
}

/// Checks for `http://` or `https://`, and a host.
pub(super) fn checked_url(key: &'static str, url: String) -> Result<String, ConfigError> {
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split('/').next());
    if host.is_none_or(|host| host.is_empty() || host.contains('@')) {
        return Err(invalid(
            key,
            url,
            "http://HOST:PORT/PATH or https://HOST:PORT/PATH",
        ));
    }
    Ok(url)
}

/// The bytes of a file without the line ending.
pub(super) fn password(key: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    let bytes = super::text::read_bytes(path).map_err(|source| ConfigError::Unreadable {
        key,
        path: path.to_owned(),
        source,
    })?;
    let password = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let password = password.strip_suffix(b"\r").unwrap_or(password);
    Ok(password.to_vec())
}
