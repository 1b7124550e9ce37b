//! What a client is told about its broker and itself.

use std::collections::BTreeMap;
use std::time::Duration;

use thicket_mqtt::{ProtocolVersion, Qos};
use thicket_session::client::WillConfig;
use thicket_session::topic::SubscriptionFilter;
use thicket_transport::tls::ClientTls;

use crate::Error;
use crate::endpoint::{Address, Scheme};

/// Most sessions a client may ask for.
const MOST_SESSIONS: usize = 16;

/// What a client is told. [`Options::new`] gives the defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// Brokers, or nodes of one cluster: `mqtt://HOST[:PORT]`, `mqtts://HOST[:PORT]`, all of one scheme. Tried in an order drawn by lot.
    pub servers: Vec<String>,
    /// Client identifier; if empty, one is drawn by lot. Further sessions of the same client are named `ID~2`, `ID~3` and so on.
    pub client_id: String,
    /// Protocol version; without 5.0 there is one session, no placement and no redirection.
    pub version: ProtocolVersion,
    /// User name.
    pub user_name: Option<String>,
    /// Password.
    pub password: Option<Vec<u8>>,
    /// Authorities, certificate and key for `mqtts`, and for control planes by `https`.
    pub tls: ClientTls,
    /// Will message, of the first session.
    pub will: Option<WillConfig>,
    /// Keep Alive, in whole seconds.
    pub keep_alive: Duration,
    /// How long the broker keeps the sessions of a client it has lost, in whole seconds. With 0 every reconnection begins anew, and
    /// what came in between is lost.
    pub session_expiry: Duration,
    /// Take up the session that the broker has of an earlier run, and leave it there when this client closes.
    pub resume: bool,
    /// Who is asked where to connect.
    pub placement: Placement,
    /// Sessions to open at most, 1 to 16. Fewer if the cluster says so.
    pub max_sessions: usize,
    /// Topics, or filters of topics, that will be published to, for the placement; others may be, too.
    pub publish: Vec<String>,
    /// Messages a second of topics, as far as known, for the placement.
    pub rates: BTreeMap<String, f64>,
    /// What to subscribe to from the beginning.
    pub subscribe: Vec<(String, Qos)>,
    /// Received messages that wait for [`crate::Client::next`]; at this many no more is read from the broker.
    pub receive_queue: usize,
    /// Messages that wait to be sent, in each session; at this many [`crate::Client::publish`] waits.
    pub send_queue: usize,
    /// How long a socket and its handshakes may take, for one address.
    pub dial_timeout: Duration,
    /// How long [`crate::Client::connect`] tries.
    pub connect_timeout: Duration,
    /// Longest pause before the second attempt to connect again; it doubles with each.
    pub first_pause: Duration,
    /// Longest pause of all. Each is drawn evenly between nothing and its length.
    pub longest_pause: Duration,
    /// How long a session that lost a subscription must be silent before it counts as read to the end.
    pub quiet: Duration,
}

/// Who is asked where to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Nobody: one session, at one of the servers.
    Off,
    /// The server itself, in user properties of the first session's CONNECT. One that knows nothing of it is a plain broker.
    Mqtt,
    /// A control plane, by HTTP: URLs of one or several, such as `http://127.0.0.1:18830`. Asked again when topics change. With `https`
    /// [`Options::tls`] says who is trusted.
    Http(Vec<String>),
}

impl Options {
    /// One server, no login, placement over MQTT with up to four sessions that outlive a lost connection by five minutes.
    #[must_use]
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            servers: vec![server.into()],
            client_id: String::new(),
            version: ProtocolVersion::V5,
            user_name: None,
            password: None,
            tls: ClientTls::default(),
            will: None,
            keep_alive: Duration::from_secs(60),
            session_expiry: Duration::from_secs(300),
            resume: false,
            placement: Placement::Mqtt,
            max_sessions: 4,
            publish: Vec::new(),
            rates: BTreeMap::new(),
            subscribe: Vec::new(),
            receive_queue: 1024,
            send_queue: 256,
            dial_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(20),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            quiet: Duration::from_millis(500),
        }
    }

    /// Checks everything; the servers, with their scheme.
    pub(crate) fn check(&self) -> Result<(Scheme, Vec<Address>), Error> {
        if self.servers.is_empty() {
            return Err(Error::option("servers", "expected at least one URL"));
        }
        let mut addresses = Vec::new();
        let mut schemes = Vec::new();
        for url in &self.servers {
            let (scheme, address) =
                Scheme::parse(url).map_err(|problem| Error::option("servers", problem))?;
            schemes.push(scheme);
            addresses.push(address);
        }
        if schemes.iter().any(|scheme| *scheme != schemes[0]) {
            return Err(Error::option("servers", "expected one scheme for all"));
        }
        if !(1..=MOST_SESSIONS).contains(&self.max_sessions) {
            let problem = format!("{}: expected 1 to {MOST_SESSIONS}", self.max_sessions);
            return Err(Error::option("max_sessions", problem));
        }
        for (option, count) in [
            ("receive_queue", self.receive_queue),
            ("send_queue", self.send_queue),
        ] {
            if count == 0 {
                return Err(Error::option(option, "0: expected at least 1"));
            }
        }
        if self.resume && self.client_id.is_empty() {
            return Err(Error::option("resume", "expected a client_id as well"));
        }
        if self.resume && self.session_expiry.is_zero() {
            return Err(Error::option("resume", "expected a session_expiry above 0"));
        }
        for filter in self
            .publish
            .iter()
            .chain(self.subscribe.iter().map(|(filter, _)| filter))
        {
            check_filter(filter)?;
        }
        if let Placement::Http(urls) = &self.placement {
            let is_url = |url: &&String| url.starts_with("http://") || url.starts_with("https://");
            let problem = match urls.iter().find(|url| !is_url(url)) {
                Some(url) => Some(format!(
                    "{url:?}: expected http://HOST:PORT or https://HOST:PORT"
                )),
                None if urls.is_empty() => Some("expected at least one URL".to_owned()),
                None => None,
            };
            if let Some(problem) = problem {
                return Err(Error::option("placement", problem));
            }
        }
        Ok((schemes[0], addresses))
    }
}

pub(crate) fn check_filter(filter: &str) -> Result<(), Error> {
    match SubscriptionFilter::parse(filter) {
        Ok(_) => Ok(()),
        Err(source) => Err(Error::Filter {
            filter: filter.to_owned(),
            source,
        }),
    }
}
