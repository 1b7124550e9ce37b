//! Mail between the threads of a node: a vector behind a mutex, swapped out once a round. A thread that has a round anyway is not
//! woken.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::Waker;
use thicket_access::Policy;
use thicket_node::{
    ConnectionId, Handover, Hub, HubMessage, Now, Peer, PlacementError, PlacementReport, Published,
    Verdict, Worker, WorkerId, WorkerMessage,
};

use crate::transport::Transport;

/// A question to the machines of a thread, asked between two rounds. The hub is on thread 0 only.
pub(crate) type Question = Box<dyn FnOnce(&Worker, Option<&Hub>) + Send>;

/// Something to be done by the worker of a thread, between two rounds.
pub(crate) type Order = Box<dyn FnOnce(&mut Worker, Now) + Send>;

/// Something to be done by the hub, between two rounds; only on thread 0.
pub(crate) type HubOrder = Box<dyn FnOnce(&mut Hub, Now) + Send>;

/// Has the hub place a client, with the number of its answer.
pub(crate) type PlacementOrder = Box<dyn FnOnce(&mut Hub, Now, u64) + Send>;

/// Hears what came of a placement.
pub(crate) type PlacementAnswer = Box<dyn FnOnce(Result<PlacementReport, PlacementError>) + Send>;

/// Has the worker publish a message, with the number of its answer.
pub(crate) type PublishOrder = Box<dyn FnOnce(&mut Worker, Now, u64) + Send>;

/// Hears what came of a publication.
pub(crate) type PublishAnswer = Box<dyn FnOnce(Published) + Send>;

/// What one thread, or a helper, tells another.
pub(crate) enum Letter {
    /// To the worker of the thread.
    WorkerMessage { from: Peer, message: WorkerMessage },
    /// To the hub, from a worker of another thread.
    HubMessage { from: WorkerId, message: HubMessage },
    /// A socket that changes its thread; not registered anywhere.
    Socket {
        transport: Transport,
        to: Peer,
        state: Box<Handover>,
    },
    /// From the authenticator. `serial` tells the connection from a later one of the same index.
    Authenticated {
        connection: ConnectionId,
        serial: u32,
        verdict: Verdict,
    },
    /// Users and rights were read again.
    Reloaded(Arc<Policy>),
    /// From the resolver: what the host of a `Dial` stands for.
    Resolved {
        address: String,
        found: io::Result<Vec<SocketAddr>>,
    },
    /// From seeds and DNS.
    Discovered { address: String },
    /// From the announcements.
    Announced { address: String },
    /// What protects links has changed.
    LinksChanged,
    /// From a worker's thread to the hub's: what the other nodes are told of this one's clients.
    Summary { from: WorkerId, summary: Summary },
    /// From the HTTP API.
    Ask(Question),
    /// From the HTTP API or the housekeeper.
    Order(Order),
    /// From the HTTP API.
    OrderHub(HubOrder),
    /// From the HTTP API: an order to the hub with a number, and who hears what came of it.
    Place(PlacementOrder, PlacementAnswer),
    /// From the HTTP API: a message to publish, and who hears what came of it.
    Publish(PublishOrder, PublishAnswer),
    /// All threads are ready: accept connections.
    Serve,
    /// Close the listeners and say goodbye to the clients.
    StopWorker,
    /// Say goodbye to the other nodes.
    StopHub,
}

/// What a worker adds to its node's record.
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
    /// The reader waits for the kernel's word: whoever writes next must wake it.
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

    /// Puts one letter in.
    pub(crate) fn post(&self, letter: Letter) {
        let is_asleep = {
            let mut inside = self.lock();
            inside.letters.push(letter);
            std::mem::take(&mut inside.is_asleep)
        };
        self.wake_if(is_asleep);
    }

    /// Puts all letters of a batch in, in order, and leaves it empty.
    fn post_all(&self, batch: &mut Vec<Letter>) {
        let is_asleep = {
            let mut inside = self.lock();
            inside.letters.append(batch);
            std::mem::take(&mut inside.is_asleep)
        };
        self.wake_if(is_asleep);
    }

    /// Swaps what is there for `empty`, whose capacity is used again. The reader is awake.
    pub(crate) fn swap(&self, empty: &mut Vec<Letter>) {
        debug_assert!(empty.is_empty());
        let mut inside = self.lock();
        inside.is_asleep = false;
        std::mem::swap(&mut inside.letters, empty);
    }

    /// The reader is about to wait: from now on a letter wakes it. False: there are letters, so it must not.
    pub(crate) fn fall_asleep(&self) -> bool {
        let mut inside = self.lock();
        inside.is_asleep = inside.letters.is_empty();
        inside.is_asleep
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever finds the reader awake knows that it looks here before it sleeps.
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

/// What a thread writes to others in a round: one lock a round and receiver, not one a letter.
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

    /// Posts everything kept.
    pub(crate) fn post(&mut self) {
        for (mailbox, batch) in self.boxes.iter().zip(&mut self.batches) {
            if !batch.is_empty() {
                mailbox.post_all(batch);
            }
        }
    }
}

/// The thread a machine runs on: the hub shares that of worker 0.
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
