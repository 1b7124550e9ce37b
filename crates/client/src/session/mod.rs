//! One session of a client: a task that keeps it connected and makes it what the client's [`Assignment`] says.

mod events;
mod serve;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thicket_mqtt::{PacketId, Qos, ReasonCode};
use thicket_session::client::{CleanStart, Client};
use thicket_transport::tls::rustls;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::Error;
use crate::endpoint::{Address, Stream, dial};
use crate::ledger::Ledger;
use crate::message::Message;
use crate::random::{pause, shuffle};
use crate::routes::{Routes, Ticket};

use self::serve::End;

/// A connection that ended sooner counts as an attempt that failed.
const LASTING: Duration = Duration::from_secs(1);
/// Redirections followed in a row before the pause of a failed attempt.
const MOST_HOPS: usize = 4;

/// A message on its way to the broker.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    pub(crate) pending: Pending,
}

/// Who waits for it.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) reply: oneshot::Sender<Result<(), Error>>,
    pub(crate) ticket: Ticket,
}

/// What a session shall be; only the latest counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Assignment {
    /// Where the control plane wants it, and the number of its answer: a new one is followed even if the address is the same.
    pub(crate) address: Option<(u64, Address)>,
    pub(crate) filters: BTreeMap<String, Subscription>,
    /// User properties of the CONNECT.
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) leave: Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) qos: Qos,
    /// Another session has it as well, and was sent what is retained.
    pub(crate) is_moved: bool,
}

/// What a session asks the broker for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Subscribe,
    Unsubscribe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Leave {
    #[default]
    Stay,
    /// When nothing comes any more and all that was to be sent is acknowledged. The session ends.
    WhenRead,
    /// When all that was to be sent is acknowledged, or it takes too long.
    Now { keep_session: bool },
}

/// What a session tells its client.
#[derive(Debug)]
pub(crate) enum Report {
    Connected {
        address: Address,
        placement: Option<String>,
        /// Dropped when the client has followed the placement: the session does nothing before it knows what it shall have.
        followed: oneshot::Sender<()>,
    },
    /// The session is about to send a SUBSCRIBE or UNSUBSCRIBE; it sends what is agreed to.
    Asking {
        filters: Vec<String>,
        ask: Ask,
        agreed: oneshot::Sender<Vec<String>>,
    },
    Subscribed {
        filter: String,
        result: Result<ReasonCode, Error>,
    },
    /// The session does not have this subscription any more.
    Unsubscribed {
        filter: String,
    },
    /// Nothing came for some time after the last unsubscription.
    Drained,
    /// The broker knows a better node for a topic or filter.
    Better {
        topic: String,
        is_filter: bool,
        address: Address,
    },
    /// The broker does not want this session.
    Refused(ReasonCode),
    /// The broker has sent it to another one, which it is about to reach.
    Redirected,
    Problem(String),
    TakenOver,
    /// The task has ended.
    Left,
}

/// What sessions of one client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) port: u16,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    pub(crate) dial_timeout: Duration,
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
    pub(crate) quiet: Duration,
    /// Brokers that may be tried: those configured, and those of the placement.
    pub(crate) known: Mutex<Vec<Address>>,
    pub(crate) ledger: Ledger,
    pub(crate) routes: Arc<Routes>,
    pub(crate) reports: mpsc::Sender<(usize, Report)>,
    pub(crate) messages: mpsc::Sender<Message>,
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
    /// The number of the answer that was followed last.
    followed: u64,
    candidates: VecDeque<Address>,
    /// Where it was connected last.
    last: Option<Address>,
    hops: usize,
    failures: u32,
    /// Messages under way.
    waiting: HashMap<PacketId, Pending>,
    /// Messages that come before those in `outgoing`.
    first: VecDeque<Outgoing>,
    /// Subscriptions that the broker has.
    subscribed: BTreeSet<String>,
    asked: HashMap<PacketId, Asked>,
    /// Filters asked for, or not any more, on a connection that ended before the answer: the session may have them or not.
    doubtful: BTreeSet<String>,
    /// Filters refused: not asked again until they are assigned anew.
    refused: BTreeSet<String>,
    /// Messages that came and are not with the application yet.
    arrived: VecDeque<(Message, Option<String>)>,
    last_arrival: Instant,
    drain: Option<Drain>,
    /// The connection before this one, kept until this one has the session: to close it before would be to lose it.
    previous: Option<(ReadHalf<Stream>, WriteHalf<Stream>)>,
}

#[derive(Debug)]
enum Asked {
    Subscribe(String),
    Unsubscribe(Vec<String>),
}

/// How far the wait for silence has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    Quiet {
        since: Instant,
    },
    /// A PINGREQ is on its way: what the broker sent before its answer has come.
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
        Self {
            number,
            shared,
            client,
            clean_start,
            assignment,
            outgoing,
            followed: 0,
            candidates: VecDeque::new(),
            last: None,
            hops: 0,
            failures: 0,
            waiting: HashMap::new(),
            first: VecDeque::new(),
            subscribed: BTreeSet::new(),
            asked: HashMap::new(),
            doubtful: BTreeSet::new(),
            refused: BTreeSet::new(),
            arrived: VecDeque::new(),
            last_arrival: start,
            drain: None,
            previous: None,
        }
    }

    /// Serves until the session is left.
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
            if begun.elapsed() > LASTING {
                self.failures = 0;
            }
            self.previous = None;
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
                        self.candidates.extend(addresses);
                    }
                }
                End::Switch {
                    stream,
                    address,
                    previous,
                } => {
                    self.previous = Some(previous);
                    ready = Some((stream, address));
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

    /// Connects to the next address that takes it. `None`: the session is to be left, and there is nothing to be read.
    async fn establish(&mut self) -> Option<(Stream, Address)> {
        loop {
            let leave = self.assignment.borrow_and_update().leave;
            if matches!(leave, Leave::Now { .. }) || self.shared.messages.is_closed() {
                return None;
            }
            if self.candidates.is_empty() {
                self.hops = 0;
                self.candidates = self.fresh_candidates();
                let shared = &self.shared;
                if self.last.is_some() || self.failures > 0 {
                    let wait = pause(shared.first_pause, shared.longest_pause, self.failures);
                    // A change of plans cuts the wait short, and is looked at above.
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
            match dial(address.clone(), tls, self.shared.dial_timeout).await {
                Ok(stream) => return Some((stream, address)),
                Err(error) => {
                    self.report(Report::Problem(format!("{address}: {error}")))
                        .await;
                }
            }
        }
    }

    /// Where it was, where it should be, and then any other.
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
        // Without a client nobody wants to know.
        let _ = self.shared.reports.send((self.number, report)).await;
    }

    /// Tells those who still wait that nothing comes any more.
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
    fn settle(self, result: Result<(), Error>) {
        if let Err(Error::Refused(_) | Error::NotTaken(_)) = &result {
            self.ticket.on_refused();
        }
        drop(self.ticket);
        // Whoever asked may not wait for the answer.
        let _ = self.reply.send(result);
    }
}
