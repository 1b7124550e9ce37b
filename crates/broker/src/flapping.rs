//! Clients that connect too often: this node counts them, and bans them from all nodes for a time.
//!
//! Only an accepted CONNECT counts, and a ban applies to the clients that share the session of those that were counted: the identifier of one user, or of
//! clients without a user, at listeners with one topic prefix. So nobody can get another client banned without its credentials.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thicket_node::{
    Ban, BanSubject, BannedClients, BannedUser, CLIENT_CONNECTED, Event, Now, Published,
    Remembered, SessionScope,
};
use thicket_session::time::{Instant, WallClock};

use crate::config::FlappingLimit;
use crate::counters::Counters;
use crate::event::SessionName;
use crate::log::{self, Subject};
use crate::mailbox::Letter;

/// Clients counted at a time; beyond it the one counted longest is forgotten.
const CLIENTS: usize = 65_536;
/// Bans of this node that have not ended: the list of the cluster keeps capacity for operators.
const BANS: usize = 1024;
/// The reason of such a ban.
const REASON: &str = "flapping";

/// Counts how often clients connect.
#[derive(Debug, Default)]
pub(crate) struct Flapping {
    /// `None`: off.
    limit: Option<FlappingLimit>,
    scope: SessionScope,
    table: Mutex<Table>,
    /// A client is identified by a hash of session and user, as both may be long.
    hashes: RandomState,
}

#[derive(Debug, Default)]
struct Table {
    /// Start of the window, and number of connects.
    clients: HashMap<u64, (Instant, u32)>,
    /// In the order of their windows. An entry is stale if the client's window has started again since.
    order: VecDeque<(Instant, u64)>,
    /// When the bans end, ascending.
    bans: VecDeque<Instant>,
}

/// The result for a client that has connected.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Fine,
    Flapping,
    /// The number of bans is at its limit.
    OverLimit,
}

impl Flapping {
    pub(crate) fn new(limit: Option<FlappingLimit>, scope: SessionScope) -> Self {
        Self {
            limit,
            scope,
            ..Self::default()
        }
    }

    /// Notes an event of a worker. Returns a letter for the worker if it must ban a client.
    pub(crate) fn note(&self, now: Now, event: &Event, counters: &Arc<Counters>) -> Option<Letter> {
        let limit = self.limit?;
        if event.message != CLIENT_CONNECTED {
            return None;
        }
        let field = |key: &str| {
            let field = event.fields.iter().find(|(name, _)| *name == key);
            field.map_or("", |(_, value)| value.as_str())
        };
        let (session, user_name) = (field("client_id"), field("user_name"));
        let name = SessionName::of(session);
        let client_id = name.client_id;
        let client = self.hashes.hash_one((session, user_name));
        let found = {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            table.count(now.instant, client, limit)
        };
        let message = match found {
            Found::Fine => return None,
            Found::Flapping => "a client connects too often and is banned",
            Found::OverLimit => "a client connects too often, but as many are banned as may be",
        };
        if let Some(suppressed) = log::may_say(Subject::Message(message)) {
            tracing::warn!(client_id, user_name, suppressed, "{message}");
        }
        let clients = BannedClients {
            client_id: Some(client_id.to_owned()),
            user: Some(match user_name {
                "" => BannedUser::Anonymous,
                name => BannedUser::Name(name.to_owned()),
            }),
            topic_prefix: match self.scope {
                SessionScope::User => Some(name.topic_prefix.unwrap_or_default().to_owned()),
                // Listeners with different prefixes share its session.
                SessionScope::Client => None,
            },
        };
        (found == Found::Flapping).then(|| ban(now, clients, limit.ban, counters))?
    }

    /// The number of counted clients; `None`: counting is off.
    pub(crate) fn remembered(&self) -> Option<Remembered> {
        self.limit?;
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let what = "clients whose connects are counted";
        Some(Remembered::new(what, table.clients.len(), CLIENTS))
    }
}

impl Table {
    fn count(&mut self, now: Instant, client: u64, limit: FlappingLimit) -> Found {
        self.forget(now, limit.window);
        let (_, count) = self.clients.entry(client).or_insert_with(|| {
            self.order.push_back((now, client));
            (now, 0)
        });
        *count += 1;
        if *count <= limit.connects {
            return Found::Fine;
        }
        // Counting starts again when the ban has ended or was lifted.
        self.clients.remove(&client);
        while self.bans.front().is_some_and(|end| *end <= now) {
            self.bans.pop_front();
        }
        if self.bans.len() >= BANS {
            return Found::OverLimit;
        }
        self.bans.push_back(now + limit.ban);
        Found::Flapping
    }

    /// Forgets clients whose window is over, and the oldest if there are too many.
    fn forget(&mut self, now: Instant, window: Duration) {
        while let Some((since, client)) = self.order.front() {
            if now.since(*since) < window && self.order.len() < CLIENTS {
                return;
            }
            if self.clients.get(client).is_some_and(|it| it.0 == *since) {
                self.clients.remove(client);
            }
            self.order.pop_front();
        }
    }
}

/// The order to ban a client; `None`: it cannot be banned.
fn ban(
    now: Now,
    clients: BannedClients,
    lasts: Duration,
    counters: &Arc<Counters>,
) -> Option<Letter> {
    let lasts_ms = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
    let until_ms = now.wall.as_unix_millis().saturating_add(lasts_ms);
    let ban = Ban {
        subject: BanSubject::Clients(clients),
        reason: REASON.to_owned(),
        by: None,
        since: now.wall,
        until: Some(WallClock::from_unix_millis(until_ms)),
    };
    let ban = ban.checked().ok()?;
    let counters = Arc::clone(counters);
    let answer = move |published| match published {
        Published::Done | Published::NoSubscribers => counters.flapping_bans.add_one(),
        Published::Reserved | Published::NoCapacity | Published::NoQuorum => {
            let message = "a client that connects too often cannot be banned";
            if let Some(suppressed) = log::may_say(Subject::Message(message)) {
                tracing::warn!(reason = ?published, suppressed, "{message}");
            }
        }
    };
    Some(Letter::Publish(
        Box::new(move |worker, now, number| worker.operate(now).ban(number, &ban)),
        Box::new(answer),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: FlappingLimit = FlappingLimit {
        connects: 2,
        window: Duration::from_secs(10),
        ban: Duration::from_secs(60),
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    #[test]
    fn a_client_is_banned_when_it_connects_too_often_within_the_window() {
        let mut table = Table::default();
        let mut count = |seconds, client| table.count(at(seconds), client, LIMIT);
        assert_eq!((count(0, 1), count(9, 1)), (Found::Fine, Found::Fine));
        assert_eq!((count(9, 2), count(9, 2)), (Found::Fine, Found::Fine));
        // The window of the first is over.
        assert_eq!((count(10, 1), count(11, 1)), (Found::Fine, Found::Fine));
        assert_eq!(count(12, 1), Found::Flapping);
        assert_eq!(count(12, 2), Found::Flapping);
        // A new window has begun.
        assert_eq!((count(13, 1), count(13, 1)), (Found::Fine, Found::Fine));
        assert_eq!(count(13, 1), Found::Flapping);
    }

    #[test]
    fn clients_and_bans_have_bounds() {
        let mut table = Table::default();
        for client in 0..CLIENTS as u64 + 100 {
            assert_eq!(table.count(at(0), client, LIMIT), Found::Fine);
        }
        assert!(table.clients.len() <= CLIENTS && table.order.len() <= CLIENTS);
        let mut ban = |seconds, client| {
            table.count(at(seconds), client, LIMIT);
            table.count(at(seconds), client, LIMIT);
            table.count(at(seconds), client, LIMIT)
        };
        for client in 0..BANS as u64 {
            assert_eq!(ban(100, client), Found::Flapping);
        }
        assert_eq!(ban(101, u64::MAX), Found::OverLimit);
        // The first bans have ended.
        assert_eq!(ban(160, u64::MAX), Found::Flapping);
    }

    #[test]
    fn only_connects_are_counted_and_only_where_there_is_a_limit() {
        let counters = Arc::default();
        let now = Now {
            instant: at(1),
            wall: WallClock::from_unix_millis(1),
        };
        let of_user = |message, user: &str| Event {
            level: thicket_node::EventLevel::Info,
            message,
            fields: vec![
                ("client_id", "lamp".to_owned()),
                ("user_name", user.to_owned()),
            ],
        };
        let event = |message| of_user(message, "ann");
        let connects = |flapping: &Flapping, message, times| {
            let letters = (0..times).map(|_| flapping.note(now, &event(message), &counters));
            letters.filter(Option::is_some).count()
        };
        let limited = Flapping::new(Some(LIMIT), SessionScope::User);
        assert_eq!(connects(&limited, CLIENT_CONNECTED, 3), 1);
        assert_eq!(connects(&limited, "CONNECT refused", 9), 0);
        assert_eq!(limited.remembered().map(|it| it.entries), Some(0));
        for user in ["ann", "bob", "ann", "bob"] {
            let connected = of_user(CLIENT_CONNECTED, user);
            assert!(limited.note(now, &connected, &counters).is_none(), "{user}");
        }
        assert_eq!(connects(&Flapping::default(), CLIENT_CONNECTED, 9), 0);
    }
}
