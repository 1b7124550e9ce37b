//! Asks the users' file whether a client may connect, on a thread of its own: a good password hash takes its time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use thicket_node::{ConnectionId, ListenerId, Verdict, WorkerId};

use crate::config::{Access, Users};
use crate::counters::Counters;
use crate::mailbox::{Letter, Mailboxes};

/// Clients that may wait for an answer at a time; the next is told that nobody can say now.
const WAITING: usize = 1024;

/// One client's name and password.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) worker: WorkerId,
    pub(crate) connection: ConnectionId,
    pub(crate) serial: u32,
    /// Where it came in.
    pub(crate) listener: ListenerId,
    /// The name in the client's certificate, if it has shown a good one.
    #[allow(dead_code, reason = "passwords do not need it")]
    pub(crate) certificate_name: Option<String>,
    pub(crate) user_name: Option<String>,
    pub(crate) password: Option<Vec<u8>>,
}

/// Decides who may connect.
#[derive(Debug, Clone)]
pub(crate) enum Authenticator {
    /// Everybody.
    Open,
    /// The users known to the thread behind this channel.
    Users(SyncSender<Request>),
}

impl Authenticator {
    /// Starts the thread, if there are users. `own` has the users of listeners that have some of their own, by `ListenerId`.
    pub(crate) fn start(
        access: &Access,
        own: Vec<Option<Users>>,
        boxes: &Mailboxes,
        counters: &Arc<Counters>,
    ) -> std::io::Result<Self> {
        let users = match access {
            Access::Anonymous if own.iter().all(Option::is_none) => return Ok(Self::Open),
            Access::Anonymous => None,
            Access::Users(users) | Access::UsersAndAnonymous(users) => Some(users.clone()),
        };
        let users = ByListener { own, users };
        let (sender, requests) = sync_channel(WAITING);
        let (boxes, counters) = (Arc::clone(boxes), Arc::clone(counters));
        // It ends when the last sender is gone with the last worker.
        std::thread::Builder::new()
            .name("users".into())
            .spawn(move || answer(&users, &requests, &boxes, &counters))?;
        Ok(Self::Users(sender))
    }

    /// The verdict if there is one at once; else it comes as a letter.
    pub(crate) fn ask(&self, request: Request) -> Option<Verdict> {
        match self {
            Self::Open => Some(Verdict::Allowed),
            // Where nameless clients are let in, nobody asks for them.
            Self::Users(_) if request.user_name.is_none() => Some(Verdict::NotAuthorized),
            Self::Users(thread) => match thread.try_send(request) {
                Ok(()) => None,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                    Some(Verdict::Unavailable)
                }
            },
        }
    }
}

/// The users of the node, and of listeners that have some of their own.
struct ByListener {
    own: Vec<Option<Users>>,
    users: Option<Users>,
}

impl ByListener {
    /// Where there are no users, names and passwords are not looked at.
    fn verify(&self, listener: ListenerId, name: &str, password: &[u8]) -> bool {
        let own = self
            .own
            .get(usize::from(listener.0))
            .and_then(Option::as_ref);
        own.or(self.users.as_ref())
            .is_none_or(|users| users.verify(name, password))
    }
}

fn answer(
    users: &ByListener,
    requests: &Receiver<Request>,
    boxes: &Mailboxes,
    counters: &Counters,
) {
    for request in requests {
        counters.authentications.add_one();
        let name = request.user_name.as_deref().unwrap_or_default();
        let password = request.password.as_deref().unwrap_or_default();
        let verdict = if users.verify(request.listener, name, password) {
            Verdict::Allowed
        } else {
            counters.authentications_refused.add_one();
            Verdict::BadUserNameOrPassword
        };
        let Request {
            worker,
            connection,
            serial,
            ..
        } = request;
        boxes[usize::from(worker.0)].post(Letter::Authenticated {
            connection,
            serial,
            verdict,
        });
    }
}
