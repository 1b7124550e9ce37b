//! Requests and placements as bytes: texts with their lengths, rates as the bits of a double, NaN for one that is unknown.

use std::sync::Arc;

use thicket_placement::{Asked, PlacedSession, Placement, Wanted};

use crate::hub::wire::{Reader, put_bytes, put_u64};

/// Bytes of a topic or filter of a request besides its text.
const BYTES_OF_TOPIC: usize = 64;

/// What a placement is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hub) enum Follows {
    /// Its client asked.
    Request {
        /// Sessions that it may have; 0: unknown.
        max_sessions: u8,
    },
    /// Its client asked once, and follows its subscribers.
    Subscribers,
    /// Its client did not ask: this is where it is, and what it was seen doing.
    Activity {
        /// How often it was refused since it was served last: this is where it should connect.
        refused: u8,
    },
}

impl Follows {
    pub const fn is_learned(self) -> bool {
        matches!(self, Self::Activity { .. })
    }
}

/// What the placer is to do: all of it in one sequence, or a placement could come back that was removed.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::hub) enum PlacementOrder {
    Place {
        asked: Asked,
        /// Who is charged for it; none: an operator asks.
        payer: Option<Arc<str>>,
    },
    /// By client.
    Remove(String),
}

impl PlacementOrder {
    pub fn client_id(&self) -> &str {
        match self {
            Self::Place { asked, .. } => &asked.client_id,
            Self::Remove(client_id) => client_id,
        }
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        let topics = match self {
            Self::Place { asked, .. } => lengths_of(asked).map(|len| len + BYTES_OF_TOPIC).sum(),
            Self::Remove(_) => 0,
        };
        self.client_id().len() + topics
    }
}

/// The lengths of the topics and filters of a request.
pub(in crate::hub) fn lengths_of(asked: &Asked) -> impl Iterator<Item = usize> {
    let publish = asked.publish.iter().map(|(name, _)| name.len());
    let subscribe = asked.subscribe.iter().map(|wanted| wanted.filter.len());
    publish.chain(subscribe)
}

pub(super) fn put_asked(out: &mut Vec<u8>, asked: &Asked) {
    put_bytes(out, asked.client_id.as_bytes());
    put_u64(out, asked.max_sessions as u64);
    put_u64(out, asked.publish.len() as u64);
    for (name, rate) in &asked.publish {
        put_rated(out, name, rate.unwrap_or(f64::NAN));
    }
    for wanted in &asked.subscribe {
        put_rated(out, &wanted.filter, wanted.rate.unwrap_or(f64::NAN));
        out.push(u8::from(wanted.best.is_some()));
        put_u64(out, wanted.best.unwrap_or(0));
    }
}

pub(super) fn read_asked(reader: &mut Reader<'_>) -> Option<Asked> {
    let client_id = reader.text()?.to_owned();
    let max_sessions = usize::try_from(reader.u64()?).ok()?;
    let mut publish = Vec::new();
    for _ in 0..reader.u64()? {
        let (name, rate) = read_rated(reader)?;
        publish.push((name, known(rate)));
    }
    let subscribe = reader.rest_of(|reader| {
        let (filter, rate) = read_rated(reader)?;
        let (has_best, best) = (reader.flag()?, reader.u64()?);
        Some(Wanted {
            filter,
            best: has_best.then_some(best),
            rate: known(rate),
        })
    })?;
    Some(Asked {
        client_id,
        publish,
        subscribe,
        max_sessions,
        // The placer sets it to the node that sent the request.
        home: None,
    })
}

/// One byte, then how often the client was refused, or how many sessions it may have if that is known (0 otherwise).
pub(super) fn put_follows(out: &mut Vec<u8>, follows: Follows) {
    match follows {
        Follows::Request { max_sessions: 0 } => out.push(0),
        Follows::Request { max_sessions } => out.extend([3, max_sessions]),
        Follows::Subscribers => out.push(1),
        Follows::Activity { refused } => out.extend([2, refused]),
    }
}

pub(super) fn read_follows(reader: &mut Reader<'_>) -> Option<Follows> {
    Some(match reader.u8()? {
        0 => Follows::Request { max_sessions: 0 },
        3 => Follows::Request {
            max_sessions: reader.u8()?,
        },
        2 => Follows::Activity {
            refused: reader.u8()?,
        },
        _ => Follows::Subscribers,
    })
}

/// Nobody is an empty text.
pub(super) fn put_payer(out: &mut Vec<u8>, payer: Option<&str>) {
    put_bytes(out, payer.unwrap_or_default().as_bytes());
}

pub(super) fn read_payer(reader: &mut Reader<'_>) -> Option<Option<Arc<str>>> {
    let payer = reader.text()?;
    Some((!payer.is_empty()).then(|| payer.into()))
}

pub(super) fn put_placement(out: &mut Vec<u8>, placement: &Placement) {
    put_bytes(out, placement.client_id.as_bytes());
    for session in &placement.sessions {
        put_u64(out, u64::from(session.number));
        put_u64(out, session.node);
        for topics in [&session.publish, &session.subscribe] {
            put_u64(out, topics.len() as u64);
            for (name, rate) in topics {
                put_rated(out, name, *rate);
            }
        }
    }
}

pub(super) fn read_placement(reader: &mut Reader<'_>) -> Option<Placement> {
    let client_id = reader.text()?.to_owned();
    let sessions = reader.rest_of(|reader| {
        Some(PlacedSession {
            number: u16::try_from(reader.u64()?).ok()?,
            node: reader.u64()?,
            publish: read_topics(reader)?,
            subscribe: read_topics(reader)?,
        })
    })?;
    Some(Placement {
        client_id,
        sessions,
    })
}

fn read_topics(reader: &mut Reader<'_>) -> Option<Vec<(String, f64)>> {
    let mut topics = Vec::new();
    for _ in 0..reader.u64()? {
        topics.push(read_rated(reader)?);
    }
    Some(topics)
}

fn put_rated(out: &mut Vec<u8>, name: &str, rate: f64) {
    put_bytes(out, name.as_bytes());
    put_u64(out, rate.to_bits());
}

fn read_rated(reader: &mut Reader<'_>) -> Option<(String, f64)> {
    Some((reader.text()?.to_owned(), f64::from_bits(reader.u64()?)))
}

/// What is no rate is unknown.
fn known(rate: f64) -> Option<f64> {
    (rate.is_finite() && rate >= 0.0).then_some(rate)
}
