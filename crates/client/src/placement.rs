//! The contract with the control plane (`docs/clients.md`): requests and answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use thicket_session::topic::matches;

/// User properties of CONNECT that request a placement; the first two occur once for each topic or filter.
pub(crate) const PUBLISH: &str = "thicket-publish";
pub(crate) const SUBSCRIBE: &str = "thicket-subscribe";
pub(crate) const MAX_SESSIONS: &str = "thicket-max-sessions";
/// JSON: messages a second by topic.
pub(crate) const RATES: &str = "thicket-rates";
/// In CONNACK: the answer. In SUBACK and PUBACK, for clients that sent [`PLACE`]: a better node.
pub(crate) const PLACEMENT: &str = "thicket-placement";
pub(crate) const PLACE: &str = "thicket-place";
/// In CONNECT: the number of redirections in a row that led here.
pub(crate) const REDIRECTED: &str = "thicket-redirected";

/// A request to the control plane.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Request {
    /// The client identifier, of its first session.
    pub client_id: String,
    /// Topics.
    pub publish: BTreeSet<String>,
    /// Filters.
    pub subscribe: BTreeSet<String>,
    /// 1 to 16.
    pub max_sessions: usize,
    /// Messages a second by topic, as far as known.
    pub rates: BTreeMap<String, f64>,
}

/// The answer. Unknown fields are ignored, so that the contract can grow.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Answer {
    /// The client's sessions.
    pub sessions: Vec<Placed>,
}

/// One session of the client. Without topics it still has messages: it is drained, and then left.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct Placed {
    /// The node's name in the cluster.
    #[serde(default)]
    pub node: String,
    /// `HOST:PORT` for MQTT over TCP.
    pub address: String,
    /// The same for TLS, if there is such a listener.
    #[serde(default)]
    pub tls: Option<String>,
    /// The session's client identifier.
    pub client_id: String,
    /// Topics that it publishes.
    #[serde(default)]
    pub publish: Vec<String>,
    /// Filters that it subscribes to.
    #[serde(default)]
    pub subscribe: Vec<String>,
}

/// The answer of a control plane that does not place the client (RFC 9457).
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Problem {
    pub(crate) detail: Option<String>,
    pub(crate) title: Option<String>,
    /// The part of the request that is refused.
    pub(crate) field: Option<String>,
}

/// A topic or filter of a request, by its list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// In `publish`.
    Publish(String),
    /// In `subscribe`.
    Subscribe(String),
}

impl Entry {
    /// The entry that `field` names, such as `publish[1]`.
    pub(crate) fn named<'a>(
        field: &str,
        mut publish: impl Iterator<Item = &'a String>,
        mut subscribe: impl Iterator<Item = &'a String>,
    ) -> Option<Self> {
        let (list, rest) = field.split_once('[')?;
        let at: usize = rest.strip_suffix(']')?.parse().ok()?;
        match list {
            "publish" => publish.nth(at).cloned().map(Self::Publish),
            "subscribe" => subscribe.nth(at).cloned().map(Self::Subscribe),
            _ => None,
        }
    }

    /// The user property of a CONNECT that the answer in its CONNACK refuses.
    pub(crate) fn refused(answer: &str, properties: &[(String, String)]) -> Option<Self> {
        let problem: Problem = serde_json::from_str(answer).ok()?;
        let values = |wanted: &'static str| {
            properties
                .iter()
                .filter(move |(name, _)| name == wanted)
                .map(|(_, value)| value)
        };
        Self::named(&problem.field?, values(PUBLISH), values(SUBSCRIBE))
    }
}

/// An answer that cannot be followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// A problem document; its message.
    #[error("refused by the control plane: {0}")]
    Problem(String),
    /// Not the JSON of the contract; the fault.
    #[error("the placement is no JSON of the kind expected: {0}")]
    Json(String),
    /// More sessions than requested, or none.
    #[error("the placement has {sessions} sessions, expected 1 to {maximum}")]
    Count {
        /// Sessions in the answer.
        sessions: usize,
        /// Sessions that were requested.
        maximum: usize,
    },
    /// A session of another client; its name.
    #[error(
        "the placement names the session {0:?}, expected the client identifier or it with ~2 and so on"
    )]
    ClientId(String),
    /// A session that is named twice.
    #[error("the placement names the session {0:?} twice")]
    Twice(String),
}

impl Request {
    /// Leaves out the entry that `field` names, such as `publish[1]`, and returns it.
    pub(crate) fn leave_out(&mut self, field: &str) -> Option<Entry> {
        let entry = Entry::named(field, self.publish.iter(), self.subscribe.iter())?;
        match &entry {
            Entry::Publish(topic) => self.publish.remove(topic),
            Entry::Subscribe(filter) => self.subscribe.remove(filter),
        };
        self.leave_out_what_is_refused();
        Some(entry)
    }

    /// Leaves out what the control plane would refuse the whole request for: shared subscriptions, which it does not place (they stay in their session), and
    /// rates of topics that the request does not name (the client may name them later).
    pub(crate) fn leave_out_what_is_refused(&mut self) {
        self.subscribe
            .retain(|filter| !filter.starts_with("$share/"));
        let (publish, subscribe) = (&self.publish, &self.subscribe);
        self.rates
            .retain(|topic, _| publish.contains(topic) || subscribe.contains(topic));
    }

    /// The user properties of a CONNECT with the same request.
    pub(crate) fn to_properties(&self) -> Vec<(String, String)> {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut properties = vec![pair(MAX_SESSIONS, &self.max_sessions.to_string())];
        properties.extend(self.publish.iter().map(|topic| pair(PUBLISH, topic)));
        properties.extend(self.subscribe.iter().map(|filter| pair(SUBSCRIBE, filter)));
        if let (false, Ok(rates)) = (self.rates.is_empty(), serde_json::to_string(&self.rates)) {
            properties.push((RATES.to_owned(), rates));
        }
        properties
    }
}

/// The name of session `number`, from 1, of `client_id`.
#[must_use]
pub fn session_name(client_id: &str, number: usize) -> String {
    if number == 1 {
        client_id.to_owned()
    } else {
        format!("{client_id}~{number}")
    }
}

impl Answer {
    /// Parses and checks an answer to `client_id`; returns the sessions by number. Overlapping filters are put on one session.
    ///
    /// # Errors
    /// [`AnswerError`]; the answer must not be followed.
    pub fn parse(
        json: &str,
        client_id: &str,
        maximum: usize,
    ) -> Result<BTreeMap<usize, Placed>, AnswerError> {
        let answer: Self = serde_json::from_str(json).map_err(|error| {
            let problem: Option<Problem> = serde_json::from_str(json).ok();
            match problem.and_then(|problem| problem.detail.or(problem.title)) {
                Some(words) => AnswerError::Problem(words),
                None => AnswerError::Json(error.to_string()),
            }
        })?;
        let sessions = answer.sessions.len();
        // Sessions that only need to be drained may come in addition.
        let serving = |placed: &&Placed| !placed.publish.is_empty() || !placed.subscribe.is_empty();
        if sessions == 0 || answer.sessions.iter().filter(serving).count() > maximum {
            return Err(AnswerError::Count { sessions, maximum });
        }
        let mut placed = BTreeMap::new();
        for session in answer.sessions {
            let number = session_number(client_id, &session.client_id)
                .ok_or_else(|| AnswerError::ClientId(session.client_id.clone()))?;
            let name = session.client_id.clone();
            if placed.insert(number, session).is_some() {
                return Err(AnswerError::Twice(name));
            }
        }
        unite_overlapping(&mut placed);
        Ok(placed)
    }
}

fn session_number(client_id: &str, name: &str) -> Option<usize> {
    match name.strip_prefix(client_id)? {
        "" => Some(1),
        rest => {
            let digits = rest.strip_prefix('~')?;
            let number: usize = digits
                .parse()
                .ok()
                .filter(|number| (2..=999).contains(number))?;
            (number.to_string() == digits).then_some(number)
        }
    }
}

/// Two sessions whose filters match one topic would each receive its messages: such filters go to the session of the first.
fn unite_overlapping(placed: &mut BTreeMap<usize, Placed>) {
    let mut homes: Vec<(String, usize)> = placed
        .iter()
        .flat_map(|(number, session)| {
            session
                .subscribe
                .iter()
                .map(move |filter| (filter.clone(), *number))
        })
        .collect();
    if unite(&mut homes) {
        for session in placed.values_mut() {
            session.subscribe.clear();
        }
        for (filter, number) in homes {
            if let Some(session) = placed.get_mut(&number) {
                session.subscribe.push(filter);
            }
        }
    }
}

/// Gives overlapping filters the same home, that of the first; returns whether any changed.
pub(crate) fn unite(homes: &mut [(String, usize)]) -> bool {
    let mut changed = false;
    // Exact filters overlap only with wildcards, and each pass may join two groups.
    let wild: Vec<usize> = (0..homes.len())
        .filter(|index| homes[*index].0.contains(['+', '#']))
        .collect();
    loop {
        let mut moved = HashMap::new();
        for &one in &wild {
            for other in 0..homes.len() {
                let (first, second) = (one.min(other), one.max(other));
                if homes[first].1 != homes[second].1 && overlap(&homes[one].0, &homes[other].0) {
                    moved.insert(homes[second].1, homes[first].1);
                    homes[second].1 = homes[first].1;
                }
            }
        }
        if moved.is_empty() {
            return changed;
        }
        changed = true;
    }
}

/// Whether a topic can match both. Shared subscriptions overlap with none: each of their messages goes to one session.
#[must_use]
pub fn overlap(one: &str, other: &str) -> bool {
    if one.starts_with("$share/") || other.starts_with("$share/") {
        return false;
    }
    let exact = |filter: &str| !filter.contains(['+', '#']);
    if exact(other) {
        return matches(one, other);
    }
    if exact(one) {
        return matches(other, one);
    }
    let (mut one, mut other) = (one.split('/'), other.split('/'));
    loop {
        match (one.next(), other.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some(a), Some(b)) if a == b || a == "+" || b == "+" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_agrees_with_trying_every_topic() {
        let levels = ["a", "b", ""];
        let mut topics: Vec<String> = levels.iter().map(|level| (*level).to_owned()).collect();
        for one in levels {
            for two in levels {
                topics.push(format!("{one}/{two}"));
                topics.extend(levels.iter().map(|three| format!("{one}/{two}/{three}")));
            }
        }
        let filters = [
            "a", "+", "#", "a/b", "a/+", "+/b", "a/#", "+/+", "b/+/a", "+/#", "a/b/+", "/", "b/#",
        ];
        for one in filters {
            for other in filters {
                let expected = topics
                    .iter()
                    .filter(|topic| !topic.is_empty())
                    .any(|topic| matches(one, topic) && matches(other, topic));
                assert_eq!(overlap(one, other), expected, "{one:?} {other:?}");
            }
        }
        assert!(!overlap("$share/g/a", "a"));
    }

    #[test]
    fn a_request_leaves_out_shared_subscriptions_and_rates_of_other_topics() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let mut request = Request {
            client_id: "c".to_owned(),
            publish: names(&["a"]),
            subscribe: names(&["b/+", "$share/g/c", "$SYS/#"]),
            max_sessions: 4,
            rates: ["a", "b/+", "$share/g/c", "later"]
                .map(|name| (name.to_owned(), 2.0))
                .into(),
        };
        request.leave_out_what_is_refused();
        assert_eq!(request.subscribe, names(&["b/+", "$SYS/#"]));
        let left: Vec<&String> = request.rates.keys().collect();
        assert_eq!(left, ["a", "b/+"]);
    }

    #[test]
    fn a_refused_entry_is_found_by_its_field_and_left_out() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let mut request = Request {
            client_id: "c".to_owned(),
            publish: names(&["a", "b"]),
            subscribe: names(&["b", "c/+"]),
            max_sessions: 4,
            rates: ["a", "b"].map(|name| (name.to_owned(), 2.0)).into(),
        };
        let properties = request.to_properties();
        let refused = |field: &str| {
            let answer = serde_json::json!({"title": "no", "field": field}).to_string();
            Entry::refused(&answer, &properties)
        };
        for field in [
            "publish[2]",
            "publish[x]",
            "publish",
            "rates[0]",
            "client_id",
            "publish[0",
            "",
        ] {
            assert_eq!(refused(field), None, "{field}");
            assert_eq!(request.leave_out(field), None, "{field}");
        }
        let (first, last) = (Entry::Publish("a".into()), Entry::Subscribe("c/+".into()));
        assert_eq!(refused("publish[0]").as_ref(), Some(&first));
        assert_eq!(refused("subscribe[1]").as_ref(), Some(&last));
        assert_eq!(request.leave_out("publish[0]"), Some(first));
        assert_eq!(request.leave_out("subscribe[1]"), Some(last));
        assert_eq!(request.publish, names(&["b"]));
        assert_eq!(request.subscribe, names(&["b"]));
        let left: Vec<&String> = request.rates.keys().collect();
        assert_eq!(
            left,
            ["b"],
            "the rate of a topic that is not named is refused"
        );
    }

    #[test]
    fn an_answer_is_checked_and_filters_that_overlap_come_together() {
        let parse = |json: &str| Answer::parse(json, "c", 2);
        let good = parse(
            r#"{"sessions":[{"node":"n1","address":"a:1","tls":null,"ws":null,"client_id":"c","publish":["t"],"subscribe":["a/+"]},
                {"address":"b:1","client_id":"c~2","publish":[],"subscribe":["a/b","c"],"more":1}]}"#,
        )
        .expect("a good answer");
        assert_eq!(good[&1].subscribe, ["a/+", "a/b"]);
        assert_eq!(good[&2].subscribe, ["c"]);
        let session = |name: &str| {
            format!(r#"{{"address":"a:1","client_id":"{name}","subscribe":["{name}"]}}"#)
        };
        let many = |names: &[&str]| {
            let sessions: Vec<String> = names.iter().map(|name| session(name)).collect();
            parse(&format!(r#"{{"sessions":[{}]}}"#, sessions.join(",")))
        };
        assert!(matches!(
            many(&[]),
            Err(AnswerError::Count { sessions: 0, .. })
        ));
        assert!(matches!(
            many(&["c", "c~2", "c~3"]),
            Err(AnswerError::Count {
                sessions: 3,
                maximum: 2
            })
        ));
        for name in ["d", "cc", "c~1", "c~02", "c~x", "c~"] {
            assert_eq!(many(&[name]), Err(AnswerError::ClientId(name.to_owned())));
        }
        assert_eq!(many(&["c", "c"]), Err(AnswerError::Twice("c".to_owned())));
        assert!(matches!(parse("{}"), Err(AnswerError::Json(_))));
        let refused =
            parse(r#"{"title":"refused","detail":"subscribe[0]: the client may not use it"}"#);
        let words = "subscribe[0]: the client may not use it".to_owned();
        assert_eq!(refused, Err(AnswerError::Problem(words)));
    }
}
