//! Tokens of clients. They expire by the clock of the node that a client is connected to, which may be set, and go faster or slower than others.

use std::collections::BTreeSet;

use thicket_access::LEEWAY_S;

use super::{plan::Plan, run::Run};
use thicket_simulation::{client::ClientEvent, tokens::issue};

/// How long a token may be used, s: from, to.
const LIVES_S: (u64, u64) = (1, 20);
/// The last ones are valid for longer than what is left of any run, s.
const LAST_LIFE_S: u64 = 100_000;
/// In this time, ms, what a node sent before a token expired has arrived.
const ARRIVED_MILLIS: u64 = 500;
/// A node looks at its wall clock so often at least, ms: it may have been set, or the node may have been suspended.
const LOOKED_MILLIS: u64 = 1_000;
/// Both.
const SLACK_MILLIS: u64 = ARRIVED_MILLIS + LOOKED_MILLIS;

/// The token that a client connected with last.
#[derive(Debug, Clone, Default)]
struct Token {
    /// When the node ends the connection, by its own clock, ms: `exp` and the leeway.
    ends_at: u64,
    is_refused: bool,
    is_last: bool,
    /// What the client published when the token had expired for longer than the slack.
    late: BTreeSet<usize>,
}

/// The tokens of all clients.
#[derive(Debug)]
pub struct Tokens {
    /// Empty if the plan has no tokens.
    of_clients: Vec<Token>,
    /// When the clock of a node was set last.
    set_at: Vec<u64>,
    /// Until when a node stands still.
    pub paused_until: Vec<u64>,
    /// From now on tokens do not expire in this run.
    pub are_last: bool,
}

impl Tokens {
    pub fn new(plan: Plan) -> Self {
        Self {
            of_clients: vec![Token::default(); if plan.tokens { plan.clients } else { 0 }],
            set_at: vec![0; plan.nodes],
            paused_until: vec![0; plan.nodes],
            are_last: false,
        }
    }
}

impl Run {
    /// The wall clock of a node, ms.
    fn wall_ms(&self, node: usize) -> u64 {
        let now = self.world.nodes[node].clock(&self.world.net);
        now.wall.as_unix_millis()
    }

    /// A client is about to connect: with the token that it has, or with a new one.
    pub fn choose_token(&mut self, client: usize, node: usize) {
        let Some(token) = self.tokens.of_clients.get(client) else {
            return;
        };
        let is_kept = token.ends_at > 0 && !token.is_refused && !self.tokens.are_last;
        if is_kept && self.random.chance(1, 2) {
            return;
        }
        let (least, most) = LIVES_S;
        let life_s = match self.tokens.are_last {
            true => LAST_LIFE_S,
            false => self.random.between(least, most),
        };
        let ends_at_s = self.wall_ms(node) / 1000 + life_s;
        let client_id = self.ledger.records[client].client_id.clone();
        let password = issue(&client_id, ends_at_s - LEEWAY_S);
        for node in &mut self.world.nodes {
            let passwords = &mut node.spec.passwords;
            passwords.insert(client_id.clone(), password.clone());
        }
        let token = &mut self.tokens.of_clients[client];
        token.ends_at = ends_at_s * 1000;
        token.is_refused = false;
        token.is_last = self.tokens.are_last;
        self.say(client, || format!("has a token until {ends_at_s}"));
    }

    /// Since when the token that a client is connected with has expired, by the clock of its node; not before that clock was set last.
    fn expired_since(&self, client: usize) -> Option<u64> {
        let token = self.tokens.of_clients.get(client)?;
        let node = self.world.clients[client].node;
        let beyond = self.wall_ms(node).checked_sub(token.ends_at)?;
        let since = self.world.net.now.saturating_sub(beyond);
        Some(since.max(self.tokens.set_at[node]))
    }

    /// Since when it has expired, if that is so long ago that its node must have acted on it, unless that stands still.
    fn long_expired_since(&self, client: usize) -> Option<u64> {
        let since = self.expired_since(client)?;
        let was_set = since == self.tokens.set_at[self.world.clients[client].node];
        let slack = if was_set {
            SLACK_MILLIS
        } else {
            ARRIVED_MILLIS
        };
        (since + slack < self.world.net.now).then_some(since)
    }

    /// Whether a client is connected with a token that expires in this run.
    pub fn has_short_token(&self, client: usize) -> bool {
        let is_short = |token: &Token| !token.is_last;
        let has_short = self.tokens.of_clients.get(client).is_some_and(is_short);
        has_short && self.world.clients[client].is_connected()
    }

    pub fn note_published(&mut self, client: usize, publication: usize) {
        if self.long_expired_since(client).is_some() {
            self.tokens.of_clients[client].late.insert(publication);
        }
    }

    /// The clock of a node was set.
    pub fn note_clock_set(&mut self, node: usize) {
        self.tokens.set_at[node] = self.world.net.now;
        for client in 0..self.tokens.of_clients.len() {
            if self.world.clients[client].node == node && self.expired_since(client).is_none() {
                self.tokens.of_clients[client].late.clear();
            }
        }
    }

    /// A suspended node's wall clock is right when it is back, if tokens are to expire meanwhile.
    pub fn keep_wall_clock(&mut self, node: usize, millis: u64) {
        self.tokens.paused_until[node] = self.world.net.now + millis;
        if self.plan.tokens {
            self.world.nodes[node].spec.wall_ahead += millis;
            // What it has sent before is still on its way.
            self.tokens.set_at[node] = self.world.net.now + millis;
        }
    }

    /// Nobody is served, nor what it published, when its token has expired.
    pub fn check_served(&mut self, client: usize, event: &ClientEvent) -> super::checks::Verdict {
        if self.tokens.of_clients.is_empty() {
            return Ok(());
        }
        let now = self.world.net.now;
        match event {
            ClientEvent::Message { payload, .. } => {
                let publication = super::ledger::publication_of(payload);
                let is_late =
                    |token: &Token| publication.is_some_and(|it| token.late.contains(&it));
                if let Some(publisher) = self.tokens.of_clients.iter().position(is_late) {
                    return Err(format!(
                        "nobody is served with an expired token: {payload:?} of client-{publisher} came at {now}"
                    ));
                }
            }
            ClientEvent::Connected { .. } if client < self.tokens.of_clients.len() => {
                // They are sent again under the new connection.
                let publishing = &self.ledger.records[client].publishing;
                let token = &mut self.tokens.of_clients[client];
                token
                    .late
                    .retain(|it| !publishing.values().any(|again| again == it));
            }
            ClientEvent::Acknowledged { .. }
            | ClientEvent::Subscribed { .. }
            | ClientEvent::Unsubscribed { .. } => {}
            ClientEvent::Refused(code) if *code as u8 == 0x86 => {
                return self.check_expired(client, event);
            }
            ClientEvent::DisconnectedBy(code) if *code as u8 == 0xA0 => {
                return self.check_expired(client, event);
            }
            ClientEvent::Connected { .. }
            | ClientEvent::Refused(_)
            | ClientEvent::Redirected { .. }
            | ClientEvent::Discarded { .. }
            | ClientEvent::DisconnectedBy(_)
            | ClientEvent::Broken(_)
            | ClientEvent::Closed => return Ok(()),
        }
        match self.long_expired_since(client) {
            None => Ok(()),
            Some(since) => Err(format!(
                "nobody is served with an expired token: client-{client} hears {event:?} at {now}, expired since {since}"
            )),
        }
    }

    /// A client is sent away only when its token has expired.
    fn check_expired(&mut self, client: usize, event: &ClientEvent) -> super::checks::Verdict {
        let now = self.world.net.now;
        let node = self.world.clients[client].node;
        let was_set = self.tokens.set_at[node] + SLACK_MILLIS >= now;
        let has_expired = self.expired_since(client).is_some() || was_set;
        if let Some(token) = self
            .tokens
            .of_clients
            .get_mut(client)
            .filter(|_| has_expired)
        {
            token.is_refused = true;
            return Ok(());
        }
        Err(format!(
            "tokens are valid until they expire: client-{client} hears {event:?} at {now}"
        ))
    }

    /// Nobody stays connected when its token has expired, unless its node stands still.
    pub fn check_tokens(&self) -> super::checks::Verdict {
        let now = self.world.net.now;
        for client in 0..self.tokens.of_clients.len() {
            let at = &self.world.clients[client];
            let runs = self.tokens.paused_until[at.node] + SLACK_MILLIS < now;
            if let Some(since) = self.long_expired_since(client)
                && at.is_connected()
                && runs
            {
                return Err(format!(
                    "nobody is served with an expired token: client-{client} is connected at {now}, expired since {since}"
                ));
            }
        }
        Ok(())
    }
}
