//! Addresses, and connections to them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use thicket_mqtt::server_references;
use thicket_transport::tls::rustls;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Whether there is TLS below MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Mqtt,
    Mqtts,
}

/// A host by name or address, without brackets, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Scheme {
    /// Parses `mqtt://HOST[:PORT]` or `mqtts://...`.
    pub(crate) fn parse(url: &str) -> Result<(Self, Address), String> {
        let expected = || format!("{url:?}: expected mqtt://HOST[:PORT] or mqtts://HOST[:PORT]");
        let (scheme, place) = url.split_once("://").ok_or_else(expected)?;
        if place.contains('@') {
            // The URL is not shown: it may have a password.
            let hint = "a URL with a user name: expected user_name and password as options";
            return Err(hint.to_owned());
        }
        let scheme = match scheme {
            "mqtt" | "tcp" => Self::Mqtt,
            "mqtts" | "ssl" | "tls" => Self::Mqtts,
            _ => return Err(expected()),
        };
        let place = place.trim_end_matches('/');
        let one = Address::list(place, scheme.port()).into_iter().next();
        let address = one.filter(|_| !place.contains(' ')).ok_or_else(expected)?;
        Ok((scheme, address))
    }

    pub(crate) const fn port(self) -> u16 {
        match self {
            Self::Mqtt => 1883,
            Self::Mqtts => 8883,
        }
    }
}

impl Address {
    /// The addresses of a Server Reference, in its order; `port` is used where none is named.
    pub(crate) fn list(reference: &str, port: u16) -> Vec<Self> {
        server_references(reference)
            .into_iter()
            .map(|server| Self {
                host: server.host.to_owned(),
                port: server.port.unwrap_or(port),
            })
            .collect()
    }
}

/// A connection to a broker.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects and completes the handshakes.
pub(crate) async fn dial(
    address: Address,
    tls: Option<Arc<rustls::ClientConfig>>,
    limit: Duration,
) -> io::Result<Stream> {
    let dialling = async {
        let socket = TcpStream::connect((&*address.host, address.port)).await?;
        socket.set_nodelay(true)?;
        let Some(config) = tls else {
            return Ok(Stream::Plain(socket));
        };
        let name = rustls::pki_types::ServerName::try_from(address.host.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let stream = TlsConnector::from(config).connect(name, socket).await?;
        Ok(Stream::Tls(Box::new(stream)))
    };
    tokio::time::timeout(limit, dialling)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_and_an_address() {
        for (url, expected) in [
            ("mqtt://a", "Mqtt a:1883"),
            ("mqtt://a:1/", "Mqtt a:1"),
            ("mqtts://[::1]", "Mqtts [::1]:8883"),
            ("tcp://10.0.0.1:5", "Mqtt 10.0.0.1:5"),
        ] {
            let (scheme, address) = Scheme::parse(url).expect(url);
            assert_eq!(format!("{scheme:?} {address}"), expected, "{url}");
        }
        for url in ["a:1883", "http://a", "mqtt://", "mqtt://a b", "mqtt://u@a"] {
            assert!(Scheme::parse(url).is_err(), "{url}");
        }
    }
}
