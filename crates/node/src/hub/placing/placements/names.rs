//! Sessions that placements asked for: session n above 1 of client `C` connects as `C~n`.
//!
//! Only what was placed is resolved: a client that merely has the client identifier `C~2` is a client of its own.

use thicket_overlay::NodeId;
use thicket_placement::{PlacedSession, session_client_id};

use super::Known;
use crate::{
    Now, PlacedName,
    hub::placing::Placing,
    messages::BetterNodeSubject,
    scope::{client_id_of, user_name_of},
};

impl Placing {
    /// See [`crate::HubView::placed_name`].
    pub(in crate::hub) fn placed_name(&self, now: Now, name: &str) -> Option<PlacedName> {
        let (known, session) = self.placed_session(now, name)?;
        let placement = &known.placement;
        let client_id = client_id_of(&placement.client_id);
        let all = placement.sessions.iter().map(|session| {
            let named = session_client_id(client_id, session.number);
            (named, NodeId(session.node).to_string())
        });
        Some(PlacedName {
            client_id: client_id.to_owned(),
            sessions: all.collect(),
            number: session.number,
            max_sessions: Some(known.max_sessions).filter(|most| *most > 0),
            publish: session.publish.iter().map(|it| it.0.clone()).collect(),
        })
    }

    /// The same by the client identifier alone, whatever user it belongs to: of several users' clients any.
    pub(in crate::hub::placing) fn placed_client(
        &self,
        now: Now,
        client_id: &str,
    ) -> Option<PlacedName> {
        let mut known = self.placements.known.iter();
        known.find_map(|(name, _)| {
            let of = client_id_of(name);
            let is_its = client_id
                .strip_prefix(of)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('~'));
            let owner = name.strip_suffix(of).filter(|_| is_its)?;
            self.placed_name(now, &format!("{owner}{client_id}"))
        })
    }

    /// See [`crate::HubView::placed_names`].
    pub(in crate::hub) fn placed_names(
        &self,
        now: Now,
        client_id: &str,
        user_name: Option<&str>,
    ) -> Vec<String> {
        let is_it = |name: &str| {
            let is_its = name == client_id || client_id_of(name) == client_id;
            is_its && user_name.is_none_or(|user| user_name_of(name) == Some(user))
        };
        let known = self.placements.known.iter();
        let found = known.filter(|(name, known)| is_it(name) && known.is_asked(now));
        found.map(|(name, _)| (**name).to_owned()).collect()
    }

    /// See [`crate::HubView::further_sessions`].
    pub(in crate::hub) fn further_sessions(&self, now: Now, client_id: &str) -> Vec<String> {
        let known = self.placements.known.iter();
        let of_client =
            known.filter(|(name, known)| client_id_of(name) == client_id && known.is_asked(now));
        let sessions = of_client.flat_map(|(_, known)| &known.placement.sessions);
        let further = sessions.filter(|session| session.number > 1);
        further
            .map(|session| session_client_id(client_id, session.number))
            .collect()
    }

    /// The node where a client should publish a topic or subscribe to a filter, by the name of one of its sessions: according to its placement.
    pub(super) fn topic_placed_at(
        &self,
        now: Now,
        name: &str,
        question: &BetterNodeSubject,
    ) -> Option<NodeId> {
        let (known, _) = self.placed_session(now, name)?;
        let names = |session: &&PlacedSession| match question {
            BetterNodeSubject::Filter { filter, .. } => {
                session.subscribe.iter().any(|it| *it.0 == **filter)
            }
            BetterNodeSubject::Topic { topic, .. } => {
                session.publish.iter().any(|it| *it.0 == **topic)
            }
        };
        let session = known.placement.sessions.iter().find(names)?;
        Some(NodeId(session.node))
    }

    /// The node where the session of a client should be, by its name.
    pub(in crate::hub::placing) fn placed_at(&self, now: Now, name: &str) -> Option<NodeId> {
        let (_, session) = self.placed_session(now, name)?;
        Some(NodeId(session.node))
    }

    fn placed_session(&self, now: Now, name: &str) -> Option<(&Known, &PlacedSession)> {
        let known = |name: &str, number: u16| {
            let known = self.asked(now, name)?;
            let mut sessions = known.placement.sessions.iter();
            let session = sessions.find(|session| session.number == number)?;
            Some((known, session))
        };
        known(name, 1).or_else(|| {
            let (of, number) = name.rsplit_once('~')?;
            known(of, number.parse().ok()?)
        })
    }
}
