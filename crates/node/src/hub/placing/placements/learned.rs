//! Clients that do not ask where to connect, with `redirect = "topics"`: what they do is learned by client identifier, so that they are where their
//! topics are after they have connected again.
//!
//! | step | node |
//! | --- | --- |
//! | examines the activity of its clients every [`LOOKED`], and sends all others what is new | the one where a client is |
//! | keeps it, for [`LEASE`] | every node |
//! | compares itself with the others when the client connects again, and sends all its decision | the one where the client connects |
//!
//! A client of 5.0 is redirected then. One before 5.0 can be refused only, so that its balancer picks another node: `refusals` times in
//! [`REFUSED_FOR`] at most, after which it is served where it connects. Where a client is served is learned at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use thicket_overlay::NodeId;
use thicket_placement::{PlacedSession, Placement};

use super::{Known, LEASE};
use crate::{
    LearnedReport, Now,
    hub::{
        context::Context,
        control::{END, Follows, LEARNING},
        placing::{
            Placing,
            state::learned::{Learned, Topics},
        },
    },
    messages::ClientActivity,
    scope::client_id_of,
};

/// Time between two examinations.
const LOOKED: Duration = Duration::from_secs(15);
/// A client is refused this long at most, counted from its first refusal.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// What was learned of a client is sent again when this much of its time is over.
const RENEWED: Duration = Duration::from_secs(300);
/// Topics that a filter with wildcards stands for: those with most messages.
const MATCHES: usize = 64;
/// Filters with wildcards that are matched in one examination, each different one counted once.
const WILD: usize = 100;
/// Topics of one client, of each kind.
const TOPICS: usize = 256;
/// The rate of a topic that is not seen any more is halved each time, and is forgotten below this.
const FORGOTTEN_PER_S: f64 = 0.01;
/// Messages a second of a topic whose publishers no node has reported.
const UNKNOWN_RATE: f64 = 1.0;

impl Placing {
    /// Examines the clients of this node now and then.
    pub(in crate::hub::placing) fn learn_clients(&mut self, cx: &mut Context, now: Now) {
        let learning = &mut self.placements.learning;
        let is_due = now.instant.since(learning.looked_at) >= LOOKED && !learning.is_looking;
        if !cx.config.redirection.by_topics || !is_due {
            return;
        }
        thicket_session::reach!("time LOOKED");
        learning.looked_at = now.instant;
        learning.is_looking = true;
        learning.wild.clear();
        self.handle_activity_requested(cx, cx.own(), LEARNING, 0);
    }

    /// The workers have listed some clients; the next are requested.
    pub(in crate::hub::placing) fn learn_activity(
        &mut self,
        cx: &mut Context,
        now: Now,
        next: u64,
        clients: &[ClientActivity],
    ) {
        for client in clients {
            self.learn_client(cx, now, client);
        }
        if next == END {
            self.placements.learning.is_looking = false;
        } else {
            self.handle_activity_requested(cx, cx.own(), LEARNING, next);
        }
    }

    fn learn_client(&mut self, cx: &mut Context, now: Now, activity: &ClientActivity) {
        let name = &*activity.client_id;
        if self.placed_at(now, name).is_some() {
            return;
        }
        let Some(subscribe) = self.topics_of(cx, now, &activity.filters) else {
            return;
        };
        let before = self.learned(now, name);
        let publish = published(activity, before.map(|known| &known.placement.sessions[0]));
        if publish.is_empty() && subscribe.is_empty() {
            return;
        }
        let session = PlacedSession {
            number: 1,
            node: cx.own().0,
            publish,
            subscribe,
        };
        if before.is_some_and(|known| !is_news(now, known, &session)) {
            return;
        }
        let placement = Placement {
            client_id: name.to_owned(),
            sessions: vec![session],
        };
        self.send_learned(cx, now, placement, 0);
    }

    /// What a client subscribes to, by topic; `None`: it cannot be found out now, and what was learned before stays.
    fn topics_of(&mut self, cx: &Context, now: Now, filters: &[Arc<str>]) -> Option<Topics> {
        let mut topics = BTreeMap::new();
        for filter in filters {
            if topics.len() >= TOPICS {
                break;
            }
            if !filter.contains(['+', '#']) {
                let of_node = self
                    .rates_by_node(cx)
                    .filter_map(|(_, rates)| rates.get(filter));
                let rate = match of_node.sum::<u64>() {
                    0 => UNKNOWN_RATE,
                    rate => rate as f64 / 1000.0,
                };
                topics.insert(filter.to_string(), rate);
                continue;
            }
            let learning = &self.placements.learning;
            if !learning.wild.contains_key(filter) {
                if learning.wild.len() >= WILD {
                    continue;
                }
                let matches = self.matches_of(cx, now, filter)?;
                let learning = &mut self.placements.learning;
                learning.wild.insert(Arc::clone(filter), matches);
            }
            topics.extend(self.placements.learning.wild[filter].iter().cloned());
        }
        Some(topics.into_iter().take(TOPICS).collect())
    }

    /// The heaviest topics that a filter matches.
    fn matches_of(&mut self, cx: &Context, now: Now, filter: &str) -> Option<Topics> {
        let mut all: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
        for (_, topic, rate) in self.topics.matching(cx.own(), now.instant, filter)? {
            *all.entry(topic).or_default() += rate;
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|(_, rate)| std::cmp::Reverse(*rate));
        let heaviest = all.into_iter().take(MATCHES);
        let heaviest = heaviest.map(|(topic, rate)| (topic.to_string(), rate as f64 / 1000.0));
        Some(heaviest.collect())
    }

    fn learned(&self, now: Now, name: &str) -> Option<&Known> {
        let known = self.placements.known.get(name)?;
        let holds = known.follows.is_learned() && known.until > now.instant;
        (holds && known.placement.sessions.len() == 1).then_some(known)
    }

    /// Which node is best for a client that connects here again.
    pub(in crate::hub::placing) fn learned_node(
        &mut self,
        cx: &Context,
        now: Now,
        name: &str,
    ) -> Learned {
        if self.learned(now, name).is_none() || self.prepare_control(cx, now) != Ok(true) {
            return Learned::Unknown;
        }
        let own = cx.own().0;
        let control = self.placements.control.as_mut();
        match control.and_then(|control| control.strategy.better_node(name, own)) {
            Some(better) => Learned::At(NodeId(better.node)),
            None => Learned::Here,
        }
    }

    /// Whether a client before 5.0 may be refused once more. `Some(false)`: it was refused often enough, or for long enough.
    pub(in crate::hub::placing) fn may_be_refused(
        &self,
        cx: &Context,
        now: Now,
        name: &str,
    ) -> Option<bool> {
        let known = self.learned(now, name)?;
        let Follows::Activity { refused } = known.follows else {
            return None;
        };
        let since = known.refused_since.unwrap_or(now.instant);
        let in_time = now.instant.since(since) < REFUSED_FOR;
        Some(refused < cx.config.redirection.refusals && in_time)
    }

    /// The client is refused here, as it should connect there.
    pub(in crate::hub::placing) fn learn_refused(
        &mut self,
        cx: &mut Context,
        now: Now,
        name: &str,
        to: NodeId,
    ) {
        let Some(known) = self.learned(now, name) else {
            return;
        };
        let Follows::Activity { refused } = known.follows else {
            return;
        };
        let mut placement = known.placement.clone();
        placement.sessions[0].node = to.0;
        self.send_learned(cx, now, placement, refused.saturating_add(1));
    }

    /// The client is served here.
    pub(in crate::hub::placing) fn learn_served(&mut self, cx: &mut Context, now: Now, name: &str) {
        let own = cx.own().0;
        let Some(known) = self.learned(now, name) else {
            return;
        };
        let is_here = known.placement.sessions[0].node == own;
        if is_here && known.follows == (Follows::Activity { refused: 0 }) {
            return;
        }
        let mut placement = known.placement.clone();
        placement.sessions[0].node = own;
        self.send_learned(cx, now, placement, 0);
    }

    fn send_learned(&mut self, cx: &mut Context, now: Now, placement: Placement, refused: u8) {
        let follows = Follows::Activity { refused };
        self.send_all_placed(cx, &placement, follows, None);
        self.handle_placement(cx, now, placement, follows, None);
    }

    /// For reports.
    pub(in crate::hub::placing) fn learned_report(
        &self,
        now: Now,
        client_id: &str,
    ) -> Option<LearnedReport> {
        let mut all = self.placements.known.iter();
        let known = all.find_map(|(name, _)| {
            let is_it = client_id_of(name) == client_id;
            self.learned(now, name).filter(|_| is_it)
        })?;
        let session = &known.placement.sessions[0];
        let names = |topics: &Topics| topics.iter().map(|it| it.0.clone()).collect();
        let refused = match known.follows {
            Follows::Activity { refused } => refused,
            Follows::Request { .. } | Follows::Subscribers => 0,
        };
        Some(LearnedReport {
            node: NodeId(session.node).to_string(),
            publish: names(&session.publish),
            subscribe: names(&session.subscribe),
            refused,
        })
    }
}

/// What a client publishes: what it was seen publishing now, and what it published before and was not seen with now at half its rate, since topics
/// are seen in a sample.
fn published(activity: &ClientActivity, before: Option<&PlacedSession>) -> Topics {
    let seen = activity.publishes.iter();
    let seen = seen.map(|(topic, millis)| (topic.to_string(), *millis as f64 / 1000.0));
    let mut publish: Topics = seen.filter(|(_, rate)| *rate > 0.0).collect();
    let is_silent = publish.is_empty();
    let seen: BTreeSet<String> = publish.iter().map(|it| it.0.clone()).collect();
    for (topic, rate) in before.iter().flat_map(|session| &session.publish) {
        // A client that has just come back has not been seen publishing.
        let rate = if is_silent { *rate } else { rate / 2.0 };
        if !seen.contains(topic) && rate >= FORGOTTEN_PER_S {
            publish.push((topic.clone(), rate));
        }
    }
    publish.truncate(TOPICS);
    publish
}

/// Whether it must be sent to the others.
fn is_news(now: Now, known: &Known, session: &PlacedSession) -> bool {
    let before = &known.placement.sessions[0];
    let names = |topics: &Topics| {
        topics
            .iter()
            .map(|it| it.0.clone())
            .collect::<BTreeSet<_>>()
    };
    let is_other_rate = |(topic, rate): &(String, f64)| {
        let known = before.publish.iter().find(|it| it.0 == *topic);
        known.is_none_or(|known| *rate > 2.0 * known.1 || 2.0 * *rate < known.1)
    };
    let is_old = known.until.since(now.instant) + RENEWED < LEASE;
    is_old
        || known.follows != (Follows::Activity { refused: 0 })
        || before.node != session.node
        || names(&before.subscribe) != names(&session.subscribe)
        || names(&before.publish) != names(&session.publish)
        || session.publish.iter().any(is_other_rate)
}

#[cfg(test)]
mod tests {
    use thicket_session::time::WallClock;

    use super::*;
    use thicket_session::time::Instant;

    fn activity(publishes: &[(&str, u64)]) -> ClientActivity {
        let publishes = publishes.iter();
        ClientActivity {
            client_id: "c".into(),
            can_move: false,
            millis_per_s: 1000,
            publishes: publishes
                .map(|(topic, rate)| ((*topic).into(), *rate))
                .collect(),
            filters: Vec::new(),
        }
    }

    fn session(publish: Topics) -> PlacedSession {
        PlacedSession {
            number: 1,
            node: 7,
            publish,
            subscribe: Vec::new(),
        }
    }

    #[test]
    fn topics_that_are_not_seen_fade_unless_their_client_is_silent() {
        let mut known = session(published(&activity(&[("a", 4000)]), None));
        assert_eq!(known.publish, [("a".to_owned(), 4.0)]);
        let silent = published(&activity(&[]), Some(&known));
        assert_eq!(silent, known.publish, "it has just come back");
        known.publish = published(&activity(&[("b", 1000)]), Some(&known));
        assert_eq!(
            known.publish,
            [("b".to_owned(), 1.0), ("a".to_owned(), 2.0)]
        );
        for _ in 0..8 {
            known.publish = published(&activity(&[("b", 1000)]), Some(&known));
        }
        assert_eq!(known.publish, [("b".to_owned(), 1.0)]);
    }

    #[test]
    fn news_are_other_topics_another_node_twice_the_messages_and_the_end_of_the_lease() {
        let at = |s: u64| Now {
            instant: Instant::from_millis(s * 1000),
            wall: WallClock::default(),
        };
        let known = |refused| Known {
            placement: Placement {
                client_id: "c".into(),
                sessions: vec![session(vec![("a".into(), 1.0)])],
            },
            until: at(0).instant + LEASE,
            payer: None,
            follows: Follows::Activity { refused },
            max_sessions: 0,
            refused_since: None,
        };
        let same = session(vec![("a".into(), 1.9)]);
        let mut elsewhere = same.clone();
        elsewhere.node = 8;
        let twice = session(vec![("a".into(), 2.1)]);
        let more = session(vec![("a".into(), 1.0), ("b".into(), 1.0)]);
        assert!(!is_news(at(1), &known(0), &same));
        assert!(is_news(at(1), &known(1), &same), "it was refused");
        assert!(is_news(at(301), &known(0), &same), "it is old");
        for other in [elsewhere, twice, more] {
            assert!(is_news(at(1), &known(0), &other), "{other:?}");
        }
    }
}
