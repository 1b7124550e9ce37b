//! An MQTT client whose sessions are where its topics are.
//!
//! One [`Client`] publishes, subscribes and receives messages. It has one or several sessions. At a Thicket cluster it asks where its topics are and
//! opens up to [`Options::max_sessions`] sessions there (Detti IV.A); at any other broker it is a plain client with one session. When a connection
//! breaks, it reconnects to any node it knows, and it follows redirections of the cluster.
//!
//! ```no_run
//! use thicket_client::{Client, Message, Options, Qos};
//!
//! # async fn example() -> Result<(), thicket_client::Error> {
//! let client = Client::connect(Options::new("mqtt://localhost:1883")).await?;
//! client.subscribe("site/+/temp", Qos::AtLeastOnce).await?;
//! client.publish(Message::new("site/1/temp", "21").qos(Qos::AtLeastOnce)).await?;
//! while let Some(message) = client.next().await {
//!     println!("{} {}", message.topic, message.text().unwrap_or("(bytes)"));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Left to others: where sessions should be (the cluster decides), persistence of unsent messages (the application), and callbacks.
//!
//! # Invariants
//! - [`Client::publish`] returns when the broker has acknowledged; unacknowledged messages are sent again after a lost connection.
//! - At QoS 1 no message is lost, and a message may arrive twice. At QoS 2 none arrives twice. Both hold while nodes of a cluster fail, clients are
//!   redirected, and subscriptions move between sessions: a client identifier has one session in a Thicket cluster, in which every exchange
//!   resumes, and a subscription is made at its new session before it ends at the old one.
//! - Messages of one topic stay in the order in which their publisher sent them. A topic's publications change sessions only when none of them is
//!   in flight. While a subscription moves to another session its messages arrive over both, and some may overtake others.
//! - While a subscription moves, duplicates at QoS 2 are dropped. A message that a Thicket client published carries an identity (user property
//!   `thicket-id`, added while a placement is followed and removed by the receiving client), by which the second of two is recognised. Messages
//!   of other publishers are compared by content.
//!
//! # Limits of several sessions
//! - Order between topics on different sessions. Even of one publisher's two messages on two topics the later may arrive first, on the
//!   receiving side and on the publishing side. With `max_sessions: 1` the order is the broker's.
//! - The will and the session of an earlier run ([`Options::resume`]) belong to the first session. If it breaks, its will is published
//!   although others may still be connected.
//! - Filters that overlap, such as `a/#` and `a/b`, stay in one session, so that a message arrives as often as from a plain broker.
//! - Limits that a broker sets for a client apply to each session.
//!
//! # Limits of the standard
//! A broker of another kind that loses a session, or redirects the client to one that does not have it, leaves the outcome of messages in flight
//! unknown. Those of QoS 1 are published again. Those of QoS 2 are not: [`Client::publish`] returns [`Error::OutcomeUnknown`]. Subscriptions are made
//! again; messages published in between are missed.
//!
//! # Bounds
//! [`Options::receive_queue`], [`Options::send_queue`]; when they are full the broker stops
//! sending, or publishers wait.
//!
//! # Acknowledgements
//! By default a message is acknowledged when the application asks for the next one: a process that
//! is killed loses none. [`Acknowledge`] has the other ways. PUBREC is the acknowledgement at QoS
//! 2. It is not sent at receipt: the broker may forget a message whose PUBREC it has, and a client
//! whose process ends has forgotten it too. While the process lives, nothing of QoS 2 is delivered
//! twice.

/// Compiles the first example of the documentation for users.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/clients.md")]
struct Page;

pub mod control;
mod delivery;
mod director;
mod endpoint;
mod error;
mod ledger;
mod message;
mod options;
pub mod placement;
mod plan;
mod random;
mod routes;
mod session;
#[cfg(test)]
mod vectors;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thicket_session::topic::TopicName;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use self::delivery::Inbox;
use self::director::{Command, Director, Parts};
use self::ledger::Ledger;
use self::plan::Plan;
use self::routes::{Outgoing, Pending, Routes};
use self::session::{Report, Shared};

pub use delivery::Delivery;
pub use error::Error;
pub use message::{Message, MessageProperties};
pub use options::{Acknowledge, Options, Placement, SubscriptionOptions};
pub use thicket_mqtt::{ProtocolVersion, Qos, ReasonCode, RetainHandling};
pub use thicket_session::client::WillConfig;
pub use thicket_transport::tls::ClientTls;

/// Commands and reports that wait for their receiver; senders wait beyond it.
const CHANNEL_CAPACITY: usize = 64;

/// A client. See the [crate's documentation](crate). Clones are the same client; when the last is dropped its connections break, and the
/// broker keeps the sessions for [`Options::session_expiry`]. [`Client::close`] ends them.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client_id: String,
    version: ProtocolVersion,
    commands: mpsc::Sender<Command>,
    inbox: tokio::sync::Mutex<Inbox>,
    routes: Arc<Routes>,
    status: watch::Receiver<Status>,
    /// Prefix of the identities of this run's messages.
    run: u64,
    published: AtomicU64,
}

/// The state of a client.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// The sessions that are connected, by number from 1: the address of each.
    pub sessions: BTreeMap<usize, String>,
    /// Whether a control plane has answered.
    pub is_placed: bool,
    /// The latest problem with a connection or the control plane, even if it is over.
    pub last_problem: Option<String>,
    /// Why the client has ended.
    pub ended: Option<Error>,
}

/// The acknowledgement of a message that was handed over by [`Client::send`].
#[derive(Debug)]
pub struct Sent(oneshot::Receiver<Result<ReasonCode, Error>>);

impl Client {
    /// Connects; returns when the first session is connected.
    ///
    /// # Errors
    /// [`Error::Option`]; [`Error::Refused`] by the first broker that answers; [`Error::Connect`].
    pub async fn connect(options: Options) -> Result<Self, Error> {
        let (scheme, addresses) = options.check()?;
        let tls = match scheme {
            endpoint::Scheme::Mqtt => None,
            endpoint::Scheme::Mqtts => Some(
                options
                    .tls
                    .load()
                    .map_err(|error| Error::option("tls", error.to_string()))?,
            ),
        };
        let mut options = options;
        if !options.version.has_properties() {
            options.placement = Placement::Off;
        }
        let client_id = match &*options.client_id {
            "" => format!("thicket-{:016x}", random::number()),
            given => given.to_owned(),
        };
        let declared = options.subscribe.clone();
        let (commands, command_end) = mpsc::channel(CHANNEL_CAPACITY);
        let (reports, report_end) = mpsc::channel::<(usize, Report)>(CHANNEL_CAPACITY);
        let (deliver, messages) = mpsc::unbounded_channel();
        let (connecting, connected) = oneshot::channel();
        let (status, status_end) = watch::channel(Status::default());
        let routes = Arc::new(Routes::default());
        let limit = options.connect_timeout;
        let version = options.version;
        let inbox = Inbox::new(messages, options.acknowledge, status_end.clone());
        let shared = Shared {
            port: scheme.port(),
            tls,
            dial_timeout: options.dial_timeout,
            first_pause: options.first_pause,
            longest_pause: options.longest_pause,
            quiet: options.quiet,
            known: Mutex::new(addresses),
            ledger: Ledger::default(),
            routes: Arc::clone(&routes),
            reports,
            messages: deliver,
            places: Arc::new(Semaphore::new(
                options.receive_queue.min(Semaphore::MAX_PERMITS),
            )),
            start: tokio::time::Instant::now(),
        };
        let director = Director::new(Parts {
            client_id: client_id.clone(),
            plan: Plan::new(options.max_sessions, scheme),
            routes: Arc::clone(&routes),
            shared: Arc::new(shared),
            commands: command_end,
            reports: report_end,
            connecting,
            status,
            options,
        });
        tokio::spawn(director.run());
        // Dropping this on an early return ends what was started.
        let client = Self {
            inner: Arc::new(Inner {
                client_id,
                version,
                commands,
                inbox: tokio::sync::Mutex::new(inbox),
                routes,
                status: status_end,
                run: random::number(),
                published: AtomicU64::new(0),
            }),
        };
        // The declared subscriptions are made on every session before the caller relies on them.
        let established = async {
            connected.await.map_err(|_| Error::Closed)??;
            for (filter, options) in declared {
                client.subscribe(&filter, options).await?;
            }
            Ok(())
        };
        match tokio::time::timeout(limit, established).await {
            Ok(result) => result.map(|()| client),
            Err(_) => Err(Error::Connect(client.why_not_connected(limit))),
        }
    }

    fn why_not_connected(&self, limit: Duration) -> String {
        let Status {
            sessions,
            last_problem,
            ..
        } = self.status();
        if sessions.is_empty() {
            format!(
                "no broker can be reached: {}",
                last_problem.unwrap_or_default()
            )
        } else {
            format!(
                "subscriptions were not answered within {} s",
                limit.as_secs_f64()
            )
        }
    }

    /// The client identifier; the names of further sessions end with `~2` and so on.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.inner.client_id
    }

    /// The current state of the client.
    #[must_use]
    pub fn status(&self) -> Status {
        self.inner.status.borrow().clone()
    }

    /// Waits until `condition` holds. Returns the status then, or when the client has ended.
    pub async fn wait_for(&self, mut condition: impl FnMut(&Status) -> bool) -> Status {
        let mut status = self.inner.status.clone();
        match status
            .wait_for(|status| status.ended.is_some() || condition(status))
            .await
        {
            Ok(status) => status.clone(),
            Err(_) => self.status(),
        }
    }

    /// Subscribes to `filter` with a [`Qos`] or [`SubscriptionOptions`]; returns the QoS that the
    /// broker grants.
    ///
    /// A filter that is subscribed already with other options is subscribed again: the new options
    /// replace the old ones. With the same options nothing is sent.
    ///
    /// # Errors
    /// [`Error::Filter`], [`Error::Option`], [`Error::Refused`], [`Error::NotTaken`];
    /// [`Error::Closed`], [`Error::TakenOver`].
    pub async fn subscribe(
        &self,
        filter: &str,
        options: impl Into<SubscriptionOptions> + Send,
    ) -> Result<Qos, Error> {
        let options = options.into();
        options.check(filter, self.inner.version)?;
        let (reply, answer) = oneshot::channel();
        self.command(Command::Subscribe(filter.to_owned(), options, reply))
            .await?;
        answer.await.map_err(|_| self.ended())?
    }

    /// Ends the subscription to `filter`, on all sessions. Messages in flight still arrive.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::TakenOver`].
    pub async fn unsubscribe(&self, filter: &str) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.command(Command::Unsubscribe(filter.to_owned(), reply))
            .await?;
        answer.await.map_err(|_| self.ended())?
    }

    /// Publishes, and waits for the acknowledgement of QoS 1 or 2. Without a connection it waits for the next.
    ///
    /// Returns the reason code of the acknowledgement: [`ReasonCode::Success`], or
    /// [`ReasonCode::NoMatchingSubscribers`] if the broker reports that, which brokers do at QoS 1.
    ///
    /// # Errors
    /// As [`Client::send`] and [`Sent::acknowledged`].
    pub async fn publish(&self, message: Message) -> Result<ReasonCode, Error> {
        self.send(message).await?.acknowledged().await
    }

    /// Hands a message over, in order, and does not wait for its acknowledgement. Waits while the queue of its session is full.
    ///
    /// # Errors
    /// [`Error::Topic`]; [`Error::Closed`], [`Error::TakenOver`].
    pub async fn send(&self, mut message: Message) -> Result<Sent, Error> {
        if let Err(source) = TopicName::check(&message.topic) {
            let topic = message.topic;
            return Err(Error::Topic { topic, source });
        }
        let inner = &self.inner;
        if message.qos == Qos::ExactlyOnce && inner.status.borrow().is_placed {
            let number = inner.published.fetch_add(1, Ordering::Relaxed);
            let id = format!("{:x}-{number:x}", inner.run);
            let name = message::MESSAGE_ID.to_owned();
            message.properties.user.push((name, id));
        }
        let (reply, answer) = oneshot::channel();
        let mut reply = reply;
        loop {
            let (door, ticket) = inner
                .routes
                .enter(&message.topic)
                .await
                .ok_or_else(|| self.ended())?;
            let pending = Pending { reply, ticket };
            match door.send(Outgoing { message, pending }).await {
                Ok(()) => return Ok(Sent(answer)),
                // That session is closing: another has the topic.
                Err(mpsc::error::SendError(back)) => {
                    message = back.message;
                    reply = back.pending.reply;
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// The next message of any subscription, `None` when the client has ended. With
    /// [`Acknowledge::Next`] the call acknowledges the message before.
    ///
    /// Each message goes to one of several callers: they acknowledge by themselves, with
    /// [`Acknowledge::Manual`].
    pub async fn next(&self) -> Option<Delivery> {
        self.inner.inbox.lock().await.next().await
    }

    /// Sends what was handed over, ends the sessions, or with [`Options::resume`] leaves them at the broker, and disconnects. Waits at most three
    /// seconds for acknowledgements, and for the answer to a CONNECT: a broker may have the session before it answers.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.command(Command::Close(done)).await.is_ok() {
            // An error means that it has ended too.
            let _ = closed.await;
        }
    }

    async fn command(&self, command: Command) -> Result<(), Error> {
        let sent = self.inner.commands.send(command).await;
        sent.map_err(|_| self.ended())
    }

    fn ended(&self) -> Error {
        self.status().ended.unwrap_or(Error::Closed)
    }
}

impl Sent {
    /// Waits until the message is acknowledged; at QoS 0 until its session has accepted it. The
    /// reason code of the acknowledgement.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::NotTaken`], [`Error::OutcomeUnknown`], [`Error::Encode`]; [`Error::Closed`] if the client ended before
    /// it was acknowledged.
    pub async fn acknowledged(self) -> Result<ReasonCode, Error> {
        self.0.await.unwrap_or(Err(Error::Closed))
    }
}
