//! The options of a client.

use std::collections::BTreeMap;
use std::time::Duration;

use thicket_mqtt::{ProtocolVersion, Qos, RetainHandling};
use thicket_session::client::WillConfig;
use thicket_session::topic::SubscriptionFilter;
use thicket_transport::tls::ClientTls;

use crate::Error;
use crate::endpoint::{Address, Scheme};

/// Most sessions that a client may request.
const MOST_SESSIONS: usize = 16;
/// Most messages a second that nodes believe of a topic.
const MOST_PER_S: f64 = 1e9;
/// The largest Subscription Identifier.
const LARGEST_IDENTIFIER: u32 = 268_435_455;

/// The options of a client. [`Options::new`] has the defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// Brokers, or nodes of one cluster: `mqtt://HOST[:PORT]`, `mqtts://HOST[:PORT]`, all of one scheme. Tried in random order.
    pub servers: Vec<String>,
    /// Client identifier; if empty, a random one. Further sessions of the same client are named `ID~2`, `ID~3` and so on.
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
    /// How long the broker keeps the sessions of a disconnected client, in whole seconds. With 0 every reconnection starts a new session, and
    /// messages published in between are missed.
    pub session_expiry: Duration,
    /// Resume the session that the broker has from an earlier run, and keep it there when this client closes.
    pub resume: bool,
    /// Where to ask for a placement.
    pub placement: Placement,
    /// Most sessions to open, 1 to 16. Fewer if the cluster decides so.
    pub max_sessions: usize,
    /// Topics, or filters of topics, that will be published to, for the placement; publishing to others is possible too.
    pub publish: Vec<String>,
    /// Messages a second by topic, as far as known, for the placement.
    pub rates: BTreeMap<String, f64>,
    /// The initial subscriptions.
    pub subscribe: Vec<(String, SubscriptionOptions)>,
    /// When received messages of QoS 1 and 2 are acknowledged.
    pub acknowledge: Acknowledge,
    /// Messages of QoS 1 and 2 that a broker may send before they are acknowledged (Receive
    /// Maximum), for each session. As many of QoS 0 wait for the application, with
    /// [`Acknowledge::Arrival`] and before 5.0 of any QoS; then no more is read from the broker.
    pub receive_queue: usize,
    /// Messages that wait to be sent, in each session; at this number [`crate::Client::publish`] waits.
    pub send_queue: usize,
    /// Timeout of a socket and its handshakes, for one address.
    pub dial_timeout: Duration,
    /// How long [`crate::Client::connect`] tries.
    pub connect_timeout: Duration,
    /// Longest pause before the second attempt to reconnect; it doubles with each.
    pub first_pause: Duration,
    /// The limit of this pause. Each pause is uniformly random between zero and its length.
    pub longest_pause: Duration,
    /// How long a session that lost a subscription must be silent before it counts as drained.
    pub quiet: Duration,
}

/// Where to ask for a placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Nowhere: one session, at one of the servers.
    Off,
    /// At the server itself, by user properties of the first session's CONNECT. A server that does not support them is a plain broker.
    Mqtt,
    /// At a control plane, over HTTP: URLs of the listeners for placements of one node or several, such as `http://node-1:18840`. Asked again when
    /// topics change. With `https` [`Options::tls`] has the trusted authorities.
    Http(Vec<String>),
}

/// How a filter is subscribed. All except `qos` need 5.0. A [`Qos`] converts to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionOptions {
    /// The highest QoS with which messages are sent.
    pub qos: Qos,
    /// Messages that this session published are not sent to it.
    pub no_local: bool,
    /// RETAIN of a message is as its publisher set it.
    pub retain_as_published: bool,
    /// Whether the broker sends the retained messages.
    pub retain_handling: RetainHandling,
    /// Subscription Identifier, 1 to 268,435,455. It comes with each message that matches the
    /// filter.
    pub identifier: Option<u32>,
}

impl From<Qos> for SubscriptionOptions {
    fn from(qos: Qos) -> Self {
        Self {
            qos,
            ..Self::default()
        }
    }
}

impl SubscriptionOptions {
    pub(crate) fn check(self, filter: &str, version: ProtocolVersion) -> Result<(), Error> {
        check_filter(filter)?;
        if let Some(number) = self.identifier
            && !(1..=LARGEST_IDENTIFIER).contains(&number)
        {
            let problem = format!("{number}: expected 1 to {LARGEST_IDENTIFIER}");
            return Err(Error::option("identifier", problem));
        }
        if !version.has_properties() && self != Self::from(self.qos) {
            let problem = "for options other than the QoS of a subscription expected 5.0";
            return Err(Error::option("version", problem));
        }
        if self.no_local && filter.starts_with("$share/") {
            let problem = format!("expected false for the shared subscription {filter:?}");
            return Err(Error::option("no_local", problem));
        }
        Ok(())
    }
}

/// When a received message of QoS 1 or 2 is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// When the application asks for the next one, or earlier by [`crate::Delivery::acknowledge`].
    #[default]
    Next,
    /// By [`crate::Delivery::acknowledge`] only: for an application that handles several messages
    /// at the same time.
    Manual,
    /// When it arrives. The receive queue is lost if the process ends.
    Arrival,
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
            acknowledge: Acknowledge::Next,
            receive_queue: 1024,
            send_queue: 256,
            dial_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(20),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            quiet: Duration::from_millis(500),
        }
    }

    /// Checks all options; returns the servers, with their scheme.
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
        for filter in &self.publish {
            check_filter(filter)?;
        }
        for (filter, options) in &self.subscribe {
            options.check(filter, self.version)?;
        }
        let is_bad = |(_, rate): &(&String, &f64)| !(0.0..=MOST_PER_S).contains(*rate);
        if let Some((topic, rate)) = self.rates.iter().find(is_bad) {
            let problem = format!("{rate} for {topic:?}: expected 0 to 1000000000 a second");
            return Err(Error::option("rates", problem));
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
