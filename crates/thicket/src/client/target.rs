//! Where to connect, and what lies between the socket and MQTT: an address or a URL, and files for TLS.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use thicket_transport::client::{Place, Target};
use thicket_transport::tls::ClientTls;

const PORT: u16 = 1883;
const TLS_PORT: u16 = 8883;
const DEFAULT_PATH: &str = "/mqtt";

/// Where to connect.
#[derive(Debug, clap::Args)]
pub struct Where {
    /// Host of the broker
    #[arg(short = 'h', long, default_value = "localhost")]
    host: String,
    /// Port of the broker [default: 1883, with TLS 8883]
    #[arg(short, long)]
    port: Option<u16>,
    /// URL instead of host and port: mqtt://HOST:PORT, mqtts://..., ws://HOST:PORT/path, wss://..., unix:PATH
    #[arg(short = 'L', long, value_name = "URL", conflicts_with_all = ["host", "port", "unix"])]
    url: Option<String>,
    /// Unix socket instead of host and port
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    unix: Option<PathBuf>,
    /// PEM file of the trusted certificate authorities; enables TLS [default: those that the system trusts]
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    cafile: Option<PathBuf>,
    /// PEM file of the client certificate
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "TLS")]
    cert: Option<PathBuf>,
    /// PEM file of the key of the client certificate
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "TLS")]
    key: Option<PathBuf>,
    /// Accept any certificate of the broker
    #[arg(long, conflicts_with = "cafile", help_heading = "TLS")]
    insecure: bool,
}

/// What a URL says.
#[derive(Debug, PartialEq, Eq)]
struct Parsed {
    place: Place,
    is_tls: bool,
    websocket: Option<String>,
}

impl Where {
    /// The broker, with the files read.
    pub fn target(&self) -> anyhow::Result<Target> {
        let wants_tls = self.cafile.is_some() || self.cert.is_some() || self.insecure;
        let Parsed {
            place,
            is_tls,
            websocket,
        } = match (&self.url, &self.unix) {
            (Some(url), _) => parse(url)?,
            (None, Some(path)) => Parsed {
                place: Place::Unix(path.clone()),
                is_tls: false,
                websocket: None,
            },
            (None, None) => Parsed {
                place: Place::Tcp(
                    self.host.clone(),
                    self.port.unwrap_or(if wants_tls { TLS_PORT } else { PORT }),
                ),
                is_tls: wants_tls,
                websocket: None,
            },
        };
        ensure!(
            is_tls || !wants_tls,
            "--cafile, --cert and --insecure are for TLS: expected mqtts:// or wss://"
        );
        let tls = ClientTls {
            authorities: self.cafile.clone(),
            identity: self.cert.clone().zip(self.key.clone()),
            insecure: self.insecure,
        };
        Ok(Target {
            place,
            tls: is_tls.then(|| tls.load()).transpose()?,
            websocket,
        })
    }
}

fn parse(url: &str) -> anyhow::Result<Parsed> {
    if let Some(path) = url.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        ensure!(!path.is_empty(), "{url}: expected unix:PATH");
        return Ok(Parsed {
            place: Place::Unix(path.into()),
            is_tls: false,
            websocket: None,
        });
    }
    let (scheme, rest) = url
        .split_once("://")
        .with_context(|| format!("{url}: expected a URL such as wss://HOST:PORT/mqtt"))?;
    let (is_tls, is_websocket, port) = match scheme {
        "mqtt" | "tcp" => (false, false, PORT),
        "mqtts" | "tls" | "ssl" => (true, false, TLS_PORT),
        "ws" => (false, true, 80),
        "wss" => (true, true, 443),
        _ => bail!("{url}: expected mqtt://, mqtts://, ws://, wss:// or unix:"),
    };
    let (place, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    ensure!(
        is_websocket || path.trim_start_matches('/').is_empty(),
        "{url}: only WebSocket has a path"
    );
    let (host, port) =
        host_and_port(place, port).with_context(|| format!("{url}: expected HOST or HOST:PORT"))?;
    let path = if path.is_empty() { DEFAULT_PATH } else { path };
    Ok(Parsed {
        place: Place::Tcp(host, port),
        is_tls,
        websocket: is_websocket.then(|| path.to_owned()),
    })
}

fn host_and_port(text: &str, default: u16) -> Option<(String, u16)> {
    let is_bare = text.ends_with(']') || !text.contains(':');
    let (host, port) = match text.rsplit_once(':').filter(|_| !is_bare) {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (text, default),
    };
    let good =
        !host.is_empty() && !host.contains('@') && (!host.contains(':') || host.starts_with('['));
    good.then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, is_tls: bool, path: Option<&str>) -> Parsed {
        Parsed {
            place: Place::Tcp(host.into(), port),
            is_tls,
            websocket: path.map(str::to_owned),
        }
    }

    #[test]
    fn a_url_names_transport_host_port_and_path() {
        let cases = [
            ("mqtt://localhost", tcp("localhost", 1883, false, None)),
            (
                "mqtts://broker.example",
                tcp("broker.example", 8883, true, None),
            ),
            ("tls://[::1]:9/", tcp("[::1]", 9, true, None)),
            ("ws://a", tcp("a", 80, false, Some("/mqtt"))),
            (
                "ws://a:8083/other/path",
                tcp("a", 8083, false, Some("/other/path")),
            ),
            ("wss://[fd00::1]/x", tcp("[fd00::1]", 443, true, Some("/x"))),
        ];
        for (url, expected) in cases {
            assert_eq!(parse(url).expect(url), expected, "{url}");
        }
        for url in ["unix:/run/t.sock", "unix:///run/t.sock"] {
            assert_eq!(
                parse(url).expect(url).place,
                Place::Unix("/run/t.sock".into())
            );
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for url in [
            "localhost",
            "http://a",
            "mqtt://",
            "mqtt://a:b",
            "mqtt://a/b",
            "mqtt://fd00::1",
            "mqtt://u:p@a",
            "unix:",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
    }
}
