//! Messages between the threads of a node: a vector behind a mutex, swapped out once a round. A thread that is awake is not woken.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::Waker;
use thicket_access::Policy;
use thicket_node::{
    ConnectionId, Handover, Hub, HubMessage, HubView, Now, Peer, PlacementError, PlacementReport,
    Published, RebalanceDone, Verdict, Worker, WorkerId, WorkerMessage, WorkerView,
};

use crate::transport::Transport;

/// A query to the worker and hub of a thread, run between two rounds. The hub is on thread 0 only.
pub(crate) type Question = Box<dyn FnOnce(WorkerView<'_>, Option<HubView<'_>>) + Send>;

/// An order to the worker of a thread, run between two rounds.
pub(crate) type Order = Box<dyn FnOnce(&mut Worker, Now) + Send>;

/// An order to the hub, run between two rounds; only on thread 0.
pub(crate) type HubOrder = Box<dyn FnOnce(&mut Hub, Now) + Send>;

/// Orders the hub to place a client, with the number of its answer.
pub(crate) type PlacementOrder = Box<dyn FnOnce(&mut Hub, Now, u64) + Send>;

/// Receives the result of a placement.
pub(crate) type PlacementAnswer = Box<dyn FnOnce(Result<PlacementReport, PlacementError>) + Send>;

/// Orders the worker to publish a message, with the number of its answer.
pub(crate) type PublishOrder = Box<dyn FnOnce(&mut Worker, Now, u64) + Send>;

/// Receives the result of a publication.
pub(crate) type PublishAnswer = Box<dyn FnOnce(Published) + Send>;

/// A message from one thread, or a helper, to another.
pub(crate) enum Letter {
    /// To the worker of the thread.
    WorkerMessage { from: Peer, message: WorkerMessage },
    /// To the hub, from a worker of another thread.
    HubMessage { from: WorkerId, message: HubMessage },
    /// A socket that changes its thread; it is not registered with a poll.
    Socket {
        transport: Transport,
        to: Peer,
        state: Box<Handover>,
    },
    /// From the authenticator. `serial` distinguishes the connection from a later one with the same index.
    Authenticated {
        connection: ConnectionId,
        serial: u32,
        verdict: Verdict,
    },
    /// Users and rights were reloaded.
    Reloaded(Arc<Policy>),
    /// From the resolver: the addresses for the host of a `Dial`.
    Resolved {
        address: String,
        found: io::Result<Vec<SocketAddr>>,
    },
    /// From the planner.
    Planned(Box<RebalanceDone>),
    /// From seeds and DNS.
    Discovered { address: String },
    /// From announcements.
    Announced { address: String },
    /// The keys or certificates of links have changed.
    LinksChanged,
    /// From a worker's thread to the hub's: what this node reports to others about its clients.
    Summary { from: WorkerId, summary: Summary },
    /// From the HTTP API.
    Ask(Question),
    /// From the HTTP API or the housekeeper.
    Order(Order),
    /// From the HTTP API.
    OrderHub(HubOrder),
    /// From the HTTP API: a numbered order to the hub, and the recipient of its result.
    Place(PlacementOrder, PlacementAnswer),
    /// From the HTTP API: a message to publish, and the recipient of the result.
    Publish(PublishOrder, PublishAnswer),
    /// All threads are ready: accept connections.
    Serve,
    /// Close the listeners and disconnect the clients.
    StopWorker,
    /// Disconnect from the other nodes.
    StopHub,
}

/// A worker's part of its node's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Summary {
    pub(crate) clients: u64,
    pub(crate) subscriptions: u64,
}

/// One thread's mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Inside {
    letters: Vec<Letter>,
    /// The reader waits for the kernel: the next writer must wake it.
    is_asleep: bool,
}

impl Mailbox {
    pub(crate) const fn new(waker: Waker) -> Self {
        Self {
            inside: Mutex::new(Inside {
                letters: Vec::new(),
                is_asleep: false,
            }),
            waker,
        }
    }

    /// Adds one letter.
    pub(crate) fn post(&self, letter: Letter) {
        let is_asleep = {
            let mut inside = self.lock();
            inside.letters.push(letter);
            std::mem::take(&mut inside.is_asleep)
        };
        self.wake_if(is_asleep);
    }

    /// Adds all letters of a batch, in order, and empties it.
    fn post_all(&self, batch: &mut Vec<Letter>) {
        let is_asleep = {
            let mut inside = self.lock();
            inside.letters.append(batch);
            std::mem::take(&mut inside.is_asleep)
        };
        self.wake_if(is_asleep);
    }

    /// Swaps the letters for `empty`, whose capacity is reused. The reader is awake.
    pub(crate) fn swap(&self, empty: &mut Vec<Letter>) {
        debug_assert!(empty.is_empty());
        let mut inside = self.lock();
        inside.is_asleep = false;
        std::mem::swap(&mut inside.letters, empty);
    }

    /// The reader is about to wait: from now on a letter wakes it. False: there are letters, so it must not wait.
    pub(crate) fn fall_asleep(&self) -> bool {
        let mut inside = self.lock();
        inside.is_asleep = inside.letters.is_empty();
        inside.is_asleep
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader that is awake checks its mailbox before it sleeps, so it needs no wake-up.
    fn wake_if(&self, is_asleep: bool) {
        if is_asleep && let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake a thread");
        }
    }
}

impl std::fmt::Debug for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::WorkerMessage { .. } => "WorkerMessage",
            Self::HubMessage { .. } => "HubMessage",
            Self::Socket { .. } => "Socket",
            Self::Authenticated { .. } => "Authenticated",
            Self::Reloaded(_) => "Reloaded",
            Self::Planned(_) => "Planned",
            Self::Resolved { .. } => "Resolved",
            Self::Discovered { .. } => "Discovered",
            Self::Announced { .. } => "Announced",
            Self::LinksChanged => "LinksChanged",
            Self::Summary { .. } => "Summary",
            Self::Ask(_) => "Ask",
            Self::Order(_) => "Order",
            Self::OrderHub(_) => "OrderHub",
            Self::Place(..) => "Place",
            Self::Publish(..) => "Publish",
            Self::Serve => "Serve",
            Self::StopWorker => "StopWorker",
            Self::StopHub => "StopHub",
        })
    }
}

/// The mailboxes of all threads, by worker.
pub(crate) type Mailboxes = Arc<[Arc<Mailbox>]>;

/// The letters that a thread sends to others in a round: one lock for each round and receiver, not for each letter.
#[derive(Debug)]
pub(crate) struct Outgoing {
    boxes: Mailboxes,
    batches: Vec<Vec<Letter>>,
}

impl Outgoing {
    pub(crate) fn new(boxes: Mailboxes) -> Self {
        let batches = boxes.iter().map(|_| Vec::new()).collect();
        Self { boxes, batches }
    }

    /// Keeps a letter until the end of the round.
    pub(crate) fn add(&mut self, to: Peer, letter: Letter) {
        self.batches[thread_of(to)].push(letter);
    }

    /// Posts all letters kept.
    pub(crate) fn post(&mut self) {
        for (mailbox, batch) in self.boxes.iter().zip(&mut self.batches) {
            if !batch.is_empty() {
                mailbox.post_all(batch);
            }
        }
    }
}

/// The thread that a worker or hub runs on: the hub shares that of worker 0.
const fn thread_of(peer: Peer) -> usize {
    match peer {
        Peer::Worker(WorkerId(index)) => index as usize,
        Peer::Hub => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll, Token};
    use std::time::Duration;

    fn discovered(address: &str) -> Letter {
        Letter::Discovered {
            address: address.into(),
        }
    }

    #[test]
    fn letters_arrive_in_order_with_one_wake_up() {
        let mut poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), Token(0)).expect("a waker");
        let boxes: Mailboxes = vec![Arc::new(Mailbox::new(waker))].into();
        assert!(boxes[0].fall_asleep());
        boxes[0].post(discovered("a:1"));
        assert!(!boxes[0].fall_asleep(), "there is a letter");
        let mut outgoing = Outgoing::new(Arc::clone(&boxes));
        outgoing.add(Peer::Hub, discovered("b:1"));
        outgoing.add(Peer::Worker(WorkerId(0)), discovered("c:1"));
        outgoing.post();
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::from_secs(5)))
            .expect("a poll");
        assert_eq!(events.iter().count(), 1);
        let mut letters = Vec::new();
        boxes[0].swap(&mut letters);
        let addresses = letters.iter().map(|letter| match letter {
            Letter::Discovered { address } => address.as_str(),
            other => panic!("{other:?}"),
        });
        assert_eq!(addresses.collect::<Vec<_>>(), ["a:1", "b:1", "c:1"]);
    }
}
