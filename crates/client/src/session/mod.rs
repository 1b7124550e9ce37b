//! One session of a client: a task that keeps it connected and makes it match the client's [`Assignment`].

mod events;
mod inbound;
mod serve;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thicket_mqtt::{PacketId, ReasonCode};
use thicket_session::client::{CleanStart, Client};
use thicket_transport::tls::rustls;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::Error;
use crate::delivery::{Line, Queued, Receipt};
use crate::endpoint::{Address, Stream, dial};
use crate::ledger::Ledger;
use crate::message::Message;
use crate::options::SubscriptionOptions;
use crate::placement::Entry;
use crate::random::{pause, shuffle};
use crate::routes::{Outgoing, Pending, Routes};

/// A connection that ended sooner counts as a failed attempt.
const STABLE: Duration = Duration::from_secs(1);
/// Most redirections followed in a row before the pause of a failed attempt.
const MOST_HOPS: usize = 4;
/// Most addresses at which a leaving session is looked for.
const MOST_PLACES: usize = 8;

/// The assignment of a session; only the latest counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Assignment {
    /// Where the control plane places it, and the number of its answer: a new answer is followed even if the address is the same.
    pub(crate) address: Option<(u64, Address)>,
    pub(crate) filters: BTreeMap<String, Subscription>,
    /// User properties for the CONNECT.
    pub(crate) properties: Vec<(String, String)>,
    /// Increased when the request in `properties` should be made again at once: the session connects once more where it is.
    pub(crate) requests: usize,
    pub(crate) leave: Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) options: SubscriptionOptions,
    /// Another session has it as well, and received the retained messages.
    pub(crate) is_moved: bool,
}

/// A request of a session to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Subscribe,
    Unsubscribe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Leave {
    #[default]
    Stay,
    /// When no more messages arrive and all sent ones are acknowledged. The session ends.
    WhenRead,
    /// When all sent messages are acknowledged and the broker is known that has the session, or after a timeout.
    Now { keep_session: bool },
}

/// A report of a session to its client.
#[derive(Debug)]
pub(crate) enum Report {
    Connected {
        address: Address,
        placement: Option<String>,
        /// The topic or filter of the CONNECT for which the placement was refused.
        denied: Option<Entry>,
        /// Dropped when the client has followed the placement: the session waits until it has its assignment.
        followed: oneshot::Sender<()>,
    },
    /// The session is about to send a SUBSCRIBE or UNSUBSCRIBE; it sends only what the client agrees to.
    Asking {
        filters: Vec<String>,
        ask: Ask,
        agreed: oneshot::Sender<Vec<String>>,
    },
    Subscribed {
        filter: String,
        options: SubscriptionOptions,
        result: Result<ReasonCode, Error>,
    },
    /// The session no longer has this subscription.
    Unsubscribed {
        filter: String,
    },
    /// No messages arrived for some time after the last unsubscription.
    Drained,
    /// The broker has named a better node for a topic or filter.
    Better {
        topic: String,
        is_filter: bool,
        address: Address,
    },
    /// The broker refused this session.
    Refused(ReasonCode),
    /// The broker has redirected it to another one, which it is about to connect to.
    Redirected,
    Problem(String),
    TakenOver,
    /// The task has ended.
    Left,
}

/// The part that sessions of one client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) port: u16,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    pub(crate) dial_timeout: Duration,
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
    pub(crate) quiet: Duration,
    /// Brokers to try: those configured, and those of the placement.
    pub(crate) known: Mutex<Vec<Address>>,
    pub(crate) ledger: Ledger,
    pub(crate) routes: Arc<Routes>,
    pub(crate) reports: mpsc::Sender<(usize, Report)>,
    pub(crate) messages: mpsc::UnboundedSender<Queued>,
    /// Places in the queue, for messages that no Receive Maximum bounds.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) start: Instant,
}

/// One session. See the [module](self).
#[derive(Debug)]
pub(crate) struct Session {
    number: usize,
    shared: Arc<Shared>,
    client: Client,
    clean_start: CleanStart,
    assignment: watch::Receiver<Assignment>,
    outgoing: mpsc::Receiver<Outgoing>,
    /// The number of the last answer that was followed.
    followed: u64,
    /// See [`Assignment::requests`].
    requests: usize,
    /// User properties of the last CONNECT.
    asked_in_connect: Vec<(String, String)>,
    candidates: VecDeque<Address>,
    /// Where the session is if the broker that it connects to does not have it: the only addresses that a leaving session still tries.
    places: VecDeque<Address>,
    /// The address of its last connection.
    last: Option<Address>,
    hops: usize,
    failures: u32,
    /// Messages in flight.
    waiting: HashMap<PacketId, Pending>,
    /// Messages to send before those in `outgoing`.
    first: VecDeque<Outgoing>,
    /// Subscriptions confirmed by the broker. Other options are requested by another SUBSCRIBE.
    subscribed: BTreeMap<String, SubscriptionOptions>,
    asked: HashMap<PacketId, Asked>,
    /// Filters with an unanswered request on a connection that has ended: the session may have them or not.
    doubtful: BTreeSet<String>,
    /// Refused filters: not requested again until they are assigned again.
    refused: BTreeMap<String, SubscriptionOptions>,
    /// Received messages that wait for a place in the queue of the application.
    arrived: VecDeque<Arrived>,
    /// The number of the next delivery.
    next_delivery: u64,
    /// The deliveries for which an acknowledgement is owed.
    owed: HashMap<PacketId, Arc<Receipt>>,
    line: Line,
    acknowledgements: mpsc::UnboundedReceiver<Arc<Receipt>>,
    last_arrival: Instant,
    drain: Option<Drain>,
    /// When a leaving session stops waiting.
    closing: Option<Instant>,
    /// The previous connection, kept open until this one has the session: closing it earlier would lose the session.
    previous: Option<(ReadHalf<Stream>, WriteHalf<Stream>)>,
}

/// How a connection ended.
#[derive(Debug)]
enum End {
    Lost(String),
    Redirected(Vec<Address>),
    /// The control plane places the session elsewhere, and a connection there is established.
    Switch {
        stream: Stream,
        address: Address,
        previous: (ReadHalf<Stream>, WriteHalf<Stream>),
    },
    Refused(ReasonCode),
    TakenOver,
    Left,
}

/// A received message, with the identity that its publisher gave it.
#[derive(Debug)]
struct Arrived {
    message: Message,
    id: Option<String>,
    receipt: Option<Arc<Receipt>>,
}

#[derive(Debug)]
enum Asked {
    Subscribe(String, SubscriptionOptions),
    Unsubscribe(Vec<String>),
}

/// The progress of waiting for silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    Quiet {
        since: Instant,
    },
    /// A PINGREQ was sent: its answer comes after everything that the broker sent before.
    Pinged,
    Done,
}

impl Session {
    pub(crate) fn new(
        number: usize,
        shared: Arc<Shared>,
        client: Client,
        clean_start: CleanStart,
        assignment: watch::Receiver<Assignment>,
        outgoing: mpsc::Receiver<Outgoing>,
    ) -> Self {
        let start = shared.start;
        let (sender, acknowledgements) = mpsc::unbounded_channel();
        let line = Line {
            acknowledgements: sender,
            sent_again_before: Arc::default(),
        };
        Self {
            number,
            shared,
            client,
            clean_start,
            assignment,
            outgoing,
            followed: 0,
            requests: 0,
            asked_in_connect: Vec::new(),
            candidates: VecDeque::new(),
            places: VecDeque::new(),
            last: None,
            hops: 0,
            failures: 0,
            waiting: HashMap::new(),
            first: VecDeque::new(),
            subscribed: BTreeMap::new(),
            asked: HashMap::new(),
            doubtful: BTreeSet::new(),
            refused: BTreeMap::new(),
            arrived: VecDeque::new(),
            next_delivery: 0,
            owed: HashMap::new(),
            line,
            acknowledgements,
            last_arrival: start,
            drain: None,
            closing: None,
            previous: None,
        }
    }

    /// Runs until the session is left.
    pub(crate) async fn run(mut self) {
        let mut ready = None;
        loop {
            let next = match ready.take() {
                Some(next) => Some(next),
                None => self.establish().await,
            };
            let Some((stream, address)) = next else {
                break;
            };
            self.last = Some(address.clone());
            let begun = Instant::now();
            let end = self.serve(stream, &address).await;
            self.client.handle_closed();
            if begun.elapsed() > STABLE {
                self.failures = 0;
            }
            if !self.is_leaving_now() {
                self.previous = None;
            }
            match end {
                End::Lost(problem) => {
                    self.report(Report::Problem(format!("{address}: {problem}")))
                        .await;
                }
                End::Redirected(addresses) => {
                    self.report(Report::Redirected).await;
                    self.hops += 1;
                    self.candidates.clear();
                    if self.hops <= MOST_HOPS {
                        self.places.retain(|place| !addresses.contains(place));
                        for address in addresses.iter().rev() {
                            self.places.push_front(address.clone());
                        }
                        self.places.truncate(MOST_PLACES);
                        self.candidates.extend(addresses);
                    }
                }
                End::Switch {
                    stream,
                    address: next,
                    previous,
                } => {
                    self.previous = Some(previous);
                    self.places = [address].into();
                    ready = Some((stream, next));
                    continue;
                }
                End::Refused(code) => {
                    self.report(Report::Refused(code)).await;
                }
                End::TakenOver => {
                    self.report(Report::TakenOver).await;
                    break;
                }
                End::Left => break,
            }
        }
        self.settle_all();
        self.report(Report::Left).await;
    }

    fn is_leaving_now(&self) -> bool {
        matches!(self.assignment.borrow().leave, Leave::Now { .. })
    }

    /// Whether a leaving session has waited long enough for what is unanswered.
    fn is_closing_over(&mut self) -> bool {
        let now = Instant::now();
        now >= *self.closing.get_or_insert(now + serve::CLOSE_WAIT)
    }

    /// Where a leaving session can still be ended.
    fn next_place(&mut self) -> Option<Address> {
        // Only a session that a broker has accepted exists.
        let ends = self.assignment.borrow().leave
            == Leave::Now {
                keep_session: false,
            }
            && self.clean_start == CleanStart::No;
        let place = self.places.pop_front().filter(|_| ends)?;
        // The broker there should serve, although the placement names another one.
        self.hops = self.hops.max(1);
        (!self.is_closing_over()).then_some(place)
    }

    /// Connects to the next address that accepts. `None`: the session must be left, and has nothing to drain.
    async fn establish(&mut self) -> Option<(Stream, Address)> {
        loop {
            let is_leaving = matches!(self.assignment.borrow_and_update().leave, Leave::Now { .. });
            if self.shared.messages.is_closed() {
                return None;
            }
            if is_leaving {
                self.candidates = [self.next_place()?].into();
            }
            if self.candidates.is_empty() {
                self.hops = 0;
                self.candidates = self.fresh_candidates();
                let shared = &self.shared;
                if self.last.is_some() || self.failures > 0 {
                    let wait = pause(shared.first_pause, shared.longest_pause, self.failures);
                    // A new assignment ends the wait early, and is handled above.
                    if let Ok(changed) = tokio::time::timeout(wait, self.assignment.changed()).await
                    {
                        changed.ok()?;
                        self.candidates.clear();
                        continue;
                    }
                }
                self.failures = self.failures.saturating_add(1);
            }
            let Some(address) = self.candidates.pop_front() else {
                continue;
            };
            let tls = self.shared.tls.clone();
            let limit = if is_leaving {
                self.shared.dial_timeout.min(serve::CLOSE_WAIT)
            } else {
                self.shared.dial_timeout
            };
            match dial(address.clone(), tls, limit).await {
                Ok(stream) => return Some((stream, address)),
                Err(error) => {
                    self.report(Report::Problem(format!("{address}: {error}")))
                        .await;
                }
            }
        }
    }

    /// The addresses to try: the last one, the assigned one, and then all others.
    fn fresh_candidates(&mut self) -> VecDeque<Address> {
        let assigned = self.assignment.borrow().address.clone();
        let mut others = self
            .shared
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        shuffle(&mut others);
        let mut candidates = VecDeque::new();
        let is_new = assigned
            .as_ref()
            .is_some_and(|(number, _)| *number > self.followed);
        let assigned = assigned.map(|(number, address)| {
            self.followed = number;
            address
        });
        let mut first: Vec<Address> = self.last.clone().into_iter().chain(assigned).collect();
        if is_new {
            first.reverse();
        }
        for address in first.into_iter().chain(others) {
            if !candidates.contains(&address) {
                candidates.push_back(address);
            }
        }
        candidates
    }

    async fn report(&self, report: Report) {
        // If the client is gone, the report is not needed.
        let _ = self.shared.reports.send((self.number, report)).await;
    }

    /// Notifies waiting publishers that no answer will come.
    fn settle_all(&mut self) {
        self.outgoing.close();
        let mut pending: Vec<Pending> = self.waiting.drain().map(|(_, pending)| pending).collect();
        pending.extend(self.first.drain(..).map(|outgoing| outgoing.pending));
        while let Ok(outgoing) = self.outgoing.try_recv() {
            pending.push(outgoing.pending);
        }
        for pending in pending {
            pending.settle(Err(Error::Closed));
        }
    }
}

impl Pending {
    fn settle(self, result: Result<ReasonCode, Error>) {
        if let Err(Error::Refused(_) | Error::NotTaken(_)) = &result {
            self.ticket.on_refused();
        }
        drop(self.ticket);
        // The caller may not wait for the answer.
        let _ = self.reply.send(result);
    }
}
