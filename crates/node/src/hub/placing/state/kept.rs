//! The placements that a node keeps, with the bytes they take: in all, and of each payer.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::Arc,
};

use thicket_placement::Placement;
use thicket_session::time::Instant;

use crate::{Now, hub::control::Follows};

/// Bytes of a placement besides those of its names: what the tables of this node and of the
/// strategy have for it. Measured, as [`FOR_TOPIC`].
const FOR_PLACEMENT: usize = 1000;
/// The same for each topic and filter.
const FOR_TOPIC: usize = 350;
/// How often a name is stored: in the placement, in that of the strategy, and in its tables.
const COPIES_OF_NAME: usize = 4;
/// The placements of one payer take one of so many parts of all that is allowed at most; requests
/// that wait for their answers take another one.
pub(in crate::hub) const PARTS: usize = 4;
/// Topics and filters of the placements that one round handles.
const PART_TOPICS: usize = 4096;
/// Placements that are examined in one step for whether their time is over.
const EXAMINED: usize = 4096;

/// A placement.
#[derive(Debug)]
pub(in crate::hub) struct Known {
    pub placement: Placement,
    pub until: Instant,
    pub follows: Follows,
    /// Who is charged for it (`Payer`); none: it was learned, or is an operator's.
    pub payer: Option<Arc<str>>,
    /// Sessions that its client asked for; 0: unknown.
    pub max_sessions: u8,
    /// When its client was refused first since it was served last.
    pub refused_since: Option<Instant>,
}

impl Known {
    /// Its client asked for it, and it holds.
    pub fn is_asked(&self, now: Now) -> bool {
        self.until > now.instant && !self.follows.is_learned()
    }

    fn bytes(&self) -> usize {
        bytes_of(&self.placement)
    }
}

/// The bytes that a placement takes at a node, about.
pub(in crate::hub) fn bytes_of(placement: &Placement) -> usize {
    bytes_of_names(placement.client_id.len(), topics_of(placement))
}

/// The lengths of its topics and filters.
fn topics_of(placement: &Placement) -> impl Iterator<Item = usize> {
    placement.sessions.iter().flat_map(|session| {
        let all = session.publish.iter().chain(&session.subscribe);
        all.map(|(name, _)| name.len())
    })
}

/// The same for a client that is not placed yet.
pub(in crate::hub) fn bytes_of_names(
    client_id: usize,
    topics: impl Iterator<Item = usize>,
) -> usize {
    let of_topics = topics.map(|len| FOR_TOPIC + COPIES_OF_NAME * len);
    FOR_PLACEMENT + COPIES_OF_NAME * client_id + of_topics.sum::<usize>()
}

/// By the name of the client's first session.
#[derive(Debug, Default)]
pub(in crate::hub) struct Kept {
    by_name: BTreeMap<Arc<str>, Known>,
    bytes: usize,
    by_payer: HashMap<Arc<str>, usize>,
    /// The last name that was examined; none: the next step begins with the first.
    examined: Option<Arc<str>>,
}

impl Kept {
    /// How many.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// What they take in memory, about.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, name: &str) -> Option<&Known> {
        self.by_name.get(name)
    }

    /// In the order of their names, from the first one after `after`.
    pub fn after(&self, after: Option<&str>) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range::<str, _>((start, Bound::Unbounded))
    }

    /// In the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        self.by_name.iter()
    }

    /// Whether a placement of so many bytes may be added, or replace the one of this name.
    pub fn has_room(&self, name: &str, bytes: usize, payer: Option<&str>, limit: usize) -> bool {
        let before = self.by_name.get(name);
        let replaced = before.map_or(0, Known::bytes);
        let of_payer = |payer: &str| {
            let all = self.by_payer.get(payer).copied().unwrap_or(0);
            let is_its = before.is_some_and(|known| known.payer.as_deref() == Some(payer));
            all - if is_its { replaced } else { 0 }
        };
        self.bytes - replaced + bytes <= limit
            && payer.is_none_or(|payer| of_payer(payer) + bytes <= limit / PARTS)
    }

    pub fn insert(&mut self, known: Known) {
        let name: Arc<str> = known.placement.client_id.as_str().into();
        self.remove(&name);
        let bytes = known.bytes();
        self.bytes += bytes;
        if let Some(payer) = &known.payer {
            *self.by_payer.entry(Arc::clone(payer)).or_default() += bytes;
        }
        self.by_name.insert(name, known);
    }

    pub fn remove(&mut self, name: &str) -> Option<Known> {
        let known = self.by_name.remove(name)?;
        let bytes = known.bytes();
        self.bytes -= bytes;
        if let Some(payer) = &known.payer
            && let Some(all) = self.by_payer.get_mut(payer)
        {
            *all -= bytes;
            if *all == 0 {
                self.by_payer.remove(payer);
            }
        }
        Some(known)
    }

    /// The next placements behind one, with [`PART_TOPICS`] topics and filters or little more, and
    /// the name of the last of them if there are more.
    pub fn part(&self, after: Option<&str>) -> (Vec<&Known>, Option<Arc<str>>) {
        let mut topics = 0;
        let mut behind = self.after(after);
        let last = behind.find(|(_, known)| {
            topics += 1 + topics_of(&known.placement).count();
            topics >= PART_TOPICS
        });
        let last = last.filter(|_| behind.next().is_some());
        let last = last.map(|(name, _)| Arc::clone(name));
        let end = last.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let part = self.by_name.range::<str, _>((start, end));
        (part.map(|(_, known)| known).collect(), last)
    }

    /// The next placements to examine, a part of them each time.
    pub fn examine(&mut self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        let from = self.examined.take();
        let last = self.after(from.as_deref()).nth(EXAMINED - 1);
        self.examined = last.map(|(name, _)| Arc::clone(name));
        let until = self
            .examined
            .clone()
            .map_or(Bound::Unbounded, Bound::Included);
        let start = from.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range((start, until))
    }
}

#[cfg(test)]
mod tests {
    use thicket_placement::PlacedSession;

    use super::*;

    fn known(name: &str, topics: usize, payer: Option<&str>) -> Known {
        let topics = (0..topics).map(|number| (format!("t{number}"), 1.0));
        Known {
            placement: Placement {
                client_id: name.to_owned(),
                sessions: vec![PlacedSession {
                    number: 1,
                    node: 1,
                    publish: topics.collect(),
                    subscribe: Vec::new(),
                }],
            },
            until: Instant::from_millis(0),
            follows: Follows::Subscribers,
            payer: payer.map(Arc::from),
            max_sessions: 0,
            refused_since: None,
        }
    }

    #[test]
    fn bytes_are_those_of_what_is_kept_whatever_is_replaced_and_removed() {
        let mut kept = Kept::default();
        kept.insert(known("a", 3, Some("ada")));
        kept.insert(known("b", 1, Some("bob")));
        kept.insert(known("a", 5, Some("bob")));
        let expected =
            bytes_of(&known("a", 5, None).placement) + bytes_of(&known("b", 1, None).placement);
        assert_eq!(kept.bytes(), expected);
        assert_eq!(kept.by_payer, HashMap::from([("bob".into(), expected)]));
        kept.remove("a");
        kept.remove("b");
        assert_eq!((kept.bytes(), kept.by_payer.len()), (0, 0));
    }

    #[test]
    fn a_payer_takes_a_quarter_and_all_no_more_than_is_allowed() {
        let one = bytes_of(&known("c00", 0, None).placement);
        let limit = 8 * one;
        let mut kept = Kept::default();
        for (name, has_room) in [("c00", true), ("c01", true), ("c02", false)] {
            assert_eq!(
                kept.has_room(name, one, Some("ada"), limit),
                has_room,
                "{name}"
            );
            if has_room {
                kept.insert(known(name, 0, Some("ada")));
            }
        }
        assert!(
            kept.has_room("c01", one, Some("ada"), limit),
            "it replaces its own"
        );
        for number in 10..16 {
            kept.insert(known(&format!("c{number}"), 0, None));
        }
        assert!(!kept.has_room("c16", one, None, limit), "all is taken");
        assert!(kept.has_room("c15", one, None, limit), "it replaces one");
    }

    #[test]
    fn parts_have_about_as_many_topics_and_all_placements_once() {
        let mut kept = Kept::default();
        for number in 0..30 {
            kept.insert(known(&format!("c{number:02}"), 999, None));
        }
        let (mut after, mut sizes) = (None, Vec::new());
        loop {
            let (part, last) = kept.part(after.as_deref());
            sizes.push(part.len());
            let Some(last) = last else { break };
            after = Some(last.to_string());
        }
        assert_eq!(sizes, [5, 5, 5, 5, 5, 5]);
        assert_eq!(Kept::default().part(None).1, None);
    }

    #[test]
    fn all_are_examined_in_parts() {
        let mut kept = Kept::default();
        let count = 2 * EXAMINED + 10;
        for number in 0..count {
            kept.insert(known(&format!("c{number:05}"), 0, None));
        }
        let parts: Vec<usize> = (0..4).map(|_| kept.examine().count()).collect();
        assert_eq!(parts, [EXAMINED, EXAMINED, 10, EXAMINED]);
    }
}
