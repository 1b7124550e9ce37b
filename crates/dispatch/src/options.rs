//! Parses `--listen` and `--broker`: an address, then words after commas.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use thicket_transport::tls::{ClientCertificates, ServerTls};

use crate::DispatchError;
use crate::source::{Figure, Source};

/// The default port of a node's HTTP API.
const NODE_HTTP_PORT: u16 = 18_830;

/// Where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// As given.
    pub text: String,
    /// Where to listen.
    pub address: SocketAddr,
    /// How TLS is handled.
    pub tls: Tls,
}

/// How TLS is handled at a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    /// Clients use plain MQTT.
    Off,
    /// It is relayed to the broker's own TLS, still encrypted.
    PassedThrough,
    /// It ends here.
    Ended(ServerTls),
}

/// A broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// HOST:PORT as given: its name in logs and metrics.
    pub name: String,
    /// HOST:PORT in redirections; `name` unless configured.
    pub advertised: String,
    /// HOST:PORT of its TLS listener.
    pub tls: Option<String>,
    /// Sources of its load, at most one for each figure.
    pub sources: Vec<Source>,
}

impl Listener {
    /// Parses `HOST:PORT`, `HOST:PORT,passthrough` or `HOST:PORT,cert=FILE,key=FILE`.
    ///
    /// # Errors
    /// The text is none of these, or the host has no address.
    pub fn parse(text: &str) -> Result<Self, DispatchError> {
        let wrong = |problem: &str| DispatchError::Option {
            option: "--listen",
            value: text.to_owned(),
            problem: problem.to_owned(),
        };
        let mut words = text.split(',');
        let address = resolve(words.next().unwrap_or_default()).map_err(|why| wrong(&why))?;
        let (mut passthrough, mut certificate, mut key) = (false, None, None);
        for word in words {
            match word.split_once('=') {
                None if word == "passthrough" => passthrough = true,
                Some(("cert", file)) => certificate = Some(PathBuf::from(file)),
                Some(("key", file)) => key = Some(PathBuf::from(file)),
                _ => {
                    return Err(wrong(&format!(
                        "`{word}` is none of passthrough, cert=, key="
                    )));
                }
            }
        }
        let tls = match (passthrough, certificate, key) {
            (false, None, None) => Tls::Off,
            (true, None, None) => Tls::PassedThrough,
            (false, Some(certificate), Some(key)) => Tls::Ended(ServerTls {
                certificate,
                key,
                client_authorities: None,
                client_certificates: ClientCertificates::Off,
            }),
            (true, ..) => return Err(wrong("passthrough takes no cert= and key=")),
            (false, ..) => return Err(wrong("cert= and key= go together")),
        };
        Ok(Self {
            text: text.to_owned(),
            address,
            tls,
        })
    }
}

impl Broker {
    /// Parses `HOST:PORT` and, after commas, facts about the broker: `sys`, `pid=N`, `nodes[=HOST:PORT]`, `metrics=URL#NAME` (CPU),
    /// `messages=URL#NAME`, `connections=URL#NAME`, `tls=HOST:PORT`, `advertise=HOST:PORT`.
    ///
    /// # Errors
    /// The text is not of this form.
    pub fn parse(text: &str) -> Result<Self, DispatchError> {
        let wrong = |problem: String| DispatchError::Option {
            option: "--broker",
            value: text.to_owned(),
            problem,
        };
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default().to_owned();
        let (host, _) = split(&name).map_err(wrong)?;
        let mut broker = Self {
            advertised: name.clone(),
            name: name.clone(),
            tls: None,
            sources: Vec::new(),
        };
        for word in words {
            let (key, value) = match word.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (word, None),
            };
            let place = |value: &str| split(value).map(|_| value.to_owned()).map_err(wrong);
            match (key, value) {
                ("sys", None) => broker.sources.push(Source::Sys),
                ("pid", Some(value)) => {
                    let pid = value.parse().ok().filter(|&pid: &u32| pid > 0);
                    let pid = pid.ok_or_else(|| wrong(format!("`{value}` is no process id")))?;
                    broker.sources.push(Source::Process { pid });
                }
                ("nodes", None) => broker.sources.push(Source::Node {
                    http: format!("{host}:{NODE_HTTP_PORT}"),
                }),
                ("nodes", Some(value)) => broker.sources.push(Source::Node {
                    http: place(value)?,
                }),
                ("metrics", Some(value)) => {
                    broker
                        .sources
                        .push(metric(value, Figure::Cpu).map_err(wrong)?);
                }
                ("messages", Some(value)) => {
                    broker
                        .sources
                        .push(metric(value, Figure::Messages).map_err(wrong)?);
                }
                ("connections", Some(value)) => {
                    broker
                        .sources
                        .push(metric(value, Figure::Connections).map_err(wrong)?);
                }
                ("tls", Some(value)) => broker.tls = Some(place(value)?),
                ("advertise", Some(value)) => broker.advertised = place(value)?,
                _ => {
                    let known = "sys, pid=N, nodes[=HOST:PORT], metrics=URL#NAME, messages=URL#NAME, connections=URL#NAME, tls=HOST:PORT, advertise=HOST:PORT";
                    return Err(wrong(format!("`{word}` is none of {known}")));
                }
            }
        }
        Ok(broker)
    }
}

/// Refuses brokers that are the same, or this dispatcher itself.
///
/// A name that does not resolve now is not an error: it may resolve later.
pub(crate) fn check_together(
    listeners: &[Listener],
    brokers: &[Broker],
) -> Result<(), DispatchError> {
    if brokers.is_empty() {
        return Err(DispatchError::NoBroker);
    }
    let mut seen: Vec<SocketAddr> = Vec::new();
    for broker in brokers {
        let Ok(address) = resolve(&broker.name) else {
            continue;
        };
        if seen.contains(&address) {
            return Err(DispatchError::Twice {
                value: broker.name.clone(),
                address,
            });
        }
        seen.push(address);
        let places = [
            Some(&broker.name),
            Some(&broker.advertised),
            broker.tls.as_ref(),
        ];
        for place in places.into_iter().flatten() {
            let oneself = resolve(place)
                .ok()
                .and_then(|address| listeners.iter().find(|one| leads_to(address, one.address)));
            if let Some(listener) = oneself {
                return Err(DispatchError::Oneself {
                    broker: place.clone(),
                    listen: listener.text.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Whether a connection to `address` arrives at a listener of this host on `listen`.
fn leads_to(address: SocketAddr, listen: SocketAddr) -> bool {
    // An address belongs to this host if a socket can be bound to it.
    let is_own = || std::net::UdpSocket::bind((address.ip(), 0)).is_ok();
    address.port() == listen.port()
        && (address.ip() == listen.ip() || (listen.ip().is_unspecified() && is_own()))
}

/// The first address of HOST:PORT.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr, String> {
    split(text)?;
    let mut addresses = text.to_socket_addrs().map_err(|error| error.to_string())?;
    addresses
        .next()
        .ok_or_else(|| "the name has no address".to_owned())
}

/// Host and port.
fn split(text: &str) -> Result<(&str, u16), String> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| {
        let is_host = !host.is_empty() && (!host.contains(':') || host.starts_with('['));
        Some((host, port.parse().ok().filter(|_| is_host)?))
    });
    parts.ok_or_else(|| format!("`{text}` is not HOST:PORT"))
}

fn metric(value: &str, figure: Figure) -> Result<Source, String> {
    let parts = value.rsplit_once('#');
    let (url, name) = parts
        .filter(|(url, name)| url.starts_with("http://") && !name.is_empty())
        .ok_or_else(|| format!("`{value}` is not http://HOST:PORT/PATH#NAME"))?;
    Ok(Source::Metric {
        url: url.to_owned(),
        name: name.to_owned(),
        figure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_read_with_all_its_words() {
        let text = "a.example:1883,pid=12,sys,nodes,metrics=http://a:9/metrics#cpu_seconds_total,tls=a.example:8883,advertise=[fd00::1]:1883";
        let broker = Broker::parse(text).unwrap();
        assert_eq!(broker.name, "a.example:1883");
        assert_eq!(broker.advertised, "[fd00::1]:1883");
        assert_eq!(broker.tls.as_deref(), Some("a.example:8883"));
        let metric = Source::Metric {
            url: "http://a:9/metrics".into(),
            name: "cpu_seconds_total".into(),
            figure: Figure::Cpu,
        };
        let node = Source::Node {
            http: "a.example:18830".into(),
        };
        assert_eq!(
            broker.sources,
            [Source::Process { pid: 12 }, Source::Sys, node, metric]
        );
    }

    #[test]
    fn a_listener_says_what_becomes_of_tls() {
        assert_eq!(Listener::parse("127.0.0.1:1883").unwrap().tls, Tls::Off);
        let passed = Listener::parse("127.0.0.1:8883,passthrough").unwrap();
        assert_eq!(passed.tls, Tls::PassedThrough);
        let ended = Listener::parse("127.0.0.1:8883,cert=a.pem,key=b.pem").unwrap();
        assert!(matches!(ended.tls, Tls::Ended(files) if files.key.ends_with("b.pem")));
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_its_name() {
        for (text, expected) in [
            ("localhost", "`localhost` is not HOST:PORT"),
            ("::1:1883", "is not HOST:PORT"),
            ("a:1883,pid=x", "`x` is no process id"),
            ("a:1883,pid=0", "`0` is no process id"),
            ("a:1883,cpu=3", "`cpu=3` is none of"),
            ("a:1883,sys=1", "`sys=1` is none of"),
            (
                "a:1883,metrics=http://a/metrics",
                "is not http://HOST:PORT/PATH#NAME",
            ),
            (
                "a:1883,metrics=https://a/m#x",
                "is not http://HOST:PORT/PATH#NAME",
            ),
            ("a:1883,tls=b", "`b` is not HOST:PORT"),
        ] {
            let error = Broker::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--broker {text}: ")), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        for (text, expected) in [
            ("127.0.0.1:1,tls", "`tls` is none of"),
            ("127.0.0.1:1,cert=a", "go together"),
            ("127.0.0.1:1,passthrough,key=a,cert=b", "takes no cert="),
        ] {
            let error = Listener::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--listen {text}: ")), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_broker_given_twice_and_a_redirect_to_oneself_are_refused() {
        let check = |listen: &str, brokers: &[&str]| {
            let brokers: Vec<Broker> = brokers
                .iter()
                .map(|text| Broker::parse(text).unwrap())
                .collect();
            check_together(&[Listener::parse(listen).unwrap()], &brokers)
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            check("127.0.0.1:1", &["127.0.0.1:2", "127.0.0.1:3"]),
            Ok(())
        );
        let twice = check("127.0.0.1:1", &["127.0.0.1:2", "127.0.0.1:2,sys"]).unwrap_err();
        assert_eq!(
            twice,
            "--broker 127.0.0.1:2: the broker 127.0.0.1:2 is given twice"
        );
        for (listen, broker) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("127.0.0.1:1", "127.0.0.1:2,advertise=127.0.0.1:1"),
            ("127.0.0.1:1,passthrough", "127.0.0.1:2,tls=127.0.0.1:1"),
        ] {
            let oneself = check(listen, &[broker]).unwrap_err();
            assert!(
                oneself.contains("listens there itself"),
                "{listen} {broker}: {oneself}"
            );
        }
        assert_eq!(
            check("127.0.0.1:1", &[]).unwrap_err(),
            "--broker: there is none"
        );
    }
}
