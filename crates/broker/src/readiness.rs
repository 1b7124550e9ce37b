//! Whether the node is ready: it serves clients well, and the cluster is as the configuration expects.
//!
//! The answer decides where a balancer sends clients. Clients that connect nevertheless are accepted, so that the last remaining node serves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thicket_node::{Event, HubView, MembershipReport};

/// Time between two warnings that expected nodes are missing.
const REPEAT: Duration = Duration::from_secs(30);

/// Why a node is not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unready {
    #[error("the interests and sessions of other nodes have not been received yet")]
    Starting,
    #[error("this node is drained")]
    Draining,
    #[error("{}", .0.without_quorum())]
    Minority(MembershipReport),
    #[error(
        "this node has not found the cluster: it expects {expected} nodes and has seen {seen} (`expect_nodes`, by default 2 with seeds or DNS names; 1 for a node that serves alone){}",
        .last.as_ref().map(|last| format!("; {last}")).unwrap_or_default()
    )]
    Alone {
        expected: u32,
        seen: u64,
        /// Why there was last no link: it was refused, here or by another node, or the name of a node was not found.
        last: Option<String>,
    },
    #[error("node {node} has acknowledged nothing for {seconds} s: what is published waits for it")]
    Stalled {
        /// Its name.
        node: String,
        seconds: u64,
    },
    #[error("memory limit reached: new connections are refused")]
    Memory,
    #[error("{}", crate::disk::NOT_STORED)]
    Disk,
    #[error(
        "the provider has not sent the keys of tokens yet (`jwt_oidc_issuer`, `jwt_jwks`): logins are refused"
    )]
    Keys,
}

/// Why there was last no link to another node, for people.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastRefusal(Arc<Mutex<Option<String>>>);

impl LastRefusal {
    /// The longest text that is kept, in characters: the other end chooses it.
    const LONGEST: usize = 300;

    pub(crate) fn set(&self, text: &str) {
        self.keep(&format!("last refusal: {text}"));
    }

    /// The name of a seed, or of a node that another one named, has no address.
    pub(crate) fn note_unknown_name(&self, address: &str, error: &std::io::Error) {
        self.keep(&format!("cannot look up {address}: {error}"));
    }

    fn keep(&self, text: &str) {
        let text = text.chars().take(Self::LONGEST).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Keeps an event of the hub if it is a refusal.
    pub(crate) fn note(&self, event: &Event) {
        if !event.message.starts_with("link refused") {
            return;
        }
        let field = |name| event.fields.iter().find(|(key, _)| *key == name);
        let end = field("address").or_else(|| field("peer"));
        let end = end.map(|(_, end)| format!(" ({end})")).unwrap_or_default();
        let reason = field("reason").or_else(|| field("reason_code"));
        let reason = reason.map_or("no reason given", |(_, reason)| reason);
        self.set(&format!("{}{end}: {reason}", event.message));
    }

    fn text(&self) -> Option<String> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.clone()
    }
}

/// How many nodes must have been up at the same time before this one is ready. Once met, it stays met: a node whose cluster shrinks continues to
/// serve.
#[derive(Debug, Clone)]
pub(crate) struct Expectation {
    nodes: u32,
    is_met: Arc<AtomicBool>,
    last_refusal: LastRefusal,
}

impl Expectation {
    /// `nodes`: includes the node itself, so 1 expects no others.
    pub(crate) fn new(nodes: u32, last_refusal: LastRefusal) -> Self {
        Self {
            nodes,
            is_met: Arc::new(AtomicBool::new(nodes <= 1)),
            last_refusal,
        }
    }

    fn unmet(&self, seen: u64) -> Option<Unready> {
        if seen >= u64::from(self.nodes) {
            self.is_met.store(true, Ordering::Relaxed);
        }
        (!self.is_met.load(Ordering::Relaxed)).then(|| Unready::Alone {
            expected: self.nodes,
            seen,
            last: self.last_refusal.text(),
        })
    }

    /// Why the node is not ready, judged by its hub.
    pub(crate) fn judge(&self, hub: HubView<'_>) -> Result<(), Unready> {
        let membership = hub.membership();
        let unmet = self.unmet(membership.reachable);
        if hub.is_draining() {
            Err(Unready::Draining)
        } else if !hub.is_ready() {
            Err(Unready::Starting)
        } else if !membership.serves {
            Err(Unready::Minority(membership))
        } else if let Some(unmet) = unmet {
            Err(unmet)
        } else {
            stalled(hub.slowest_link())
        }
    }
}

/// A link over which nothing has been acknowledged for longer than this has stalled, although its node answers heartbeats.
const STALLED: Duration = Duration::from_secs(30);

/// Whether publishers have waited too long for one of the other nodes.
fn stalled(slowest: Option<(String, Duration)>) -> Result<(), Unready> {
    match slowest {
        Some((node, waits)) if waits >= STALLED => Err(Unready::Stalled {
            node,
            seconds: waits.as_secs(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Logs when the node becomes ready and when it no longer is, in the sense of `/v1/health/ready`; warns repeatedly that expected nodes are missing.
#[derive(Debug)]
pub(crate) struct Reminder {
    due: Instant,
    last: Result<(), Unready>,
}

impl Reminder {
    /// The first warning about missing nodes comes only after the interval: nodes that start together need a moment to find each other.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            due: now + REPEAT / 6,
            last: Err(Unready::Starting),
        }
    }

    pub(crate) fn note(&mut self, now: Instant, state: Result<(), Unready>) {
        match &state {
            Ok(()) if self.last.is_err() => tracing::info!("the node is ready for clients"),
            Ok(()) => {}
            Err(reason) if self.is_news(now, reason) => {
                self.due = now + REPEAT;
                tracing::warn!(%reason, "the node is not ready");
            }
            Err(_) => {}
        }
        self.last = state;
    }

    fn is_news(&self, now: Instant, reason: &Unready) -> bool {
        let is_other = match &self.last {
            Ok(()) => true,
            Err(last) => std::mem::discriminant(last) != std::mem::discriminant(reason),
        };
        match reason {
            Unready::Alone { .. } => now >= self.due,
            Unready::Starting
            | Unready::Draining
            | Unready::Minority(_)
            | Unready::Stalled { .. }
            | Unready::Memory
            | Unready::Disk
            | Unready::Keys => is_other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_were_seen_once_are_not_expected_again() {
        let expectation = Expectation::new(3, LastRefusal::default());
        let alone = |seen| {
            Some(Unready::Alone {
                expected: 3,
                seen,
                last: None,
            })
        };
        assert_eq!(expectation.unmet(1), alone(1));
        assert_eq!(expectation.unmet(2), alone(2));
        assert_eq!(expectation.unmet(3), None);
        assert_eq!(expectation.unmet(1), None, "two nodes went down since");
    }

    #[test]
    fn a_node_that_expects_one_node_is_content_alone() {
        assert_eq!(Expectation::new(1, LastRefusal::default()).unmet(1), None);
    }

    #[test]
    fn a_link_that_acknowledges_nothing_for_long_is_named() {
        let judge = |seconds| stalled(Some(("b".to_owned(), Duration::from_secs(seconds))));
        assert_eq!(stalled(None), Ok(()));
        assert_eq!(judge(29), Ok(()));
        let text = judge(31).expect_err("too long").to_string();
        assert!(
            text.starts_with("node b has acknowledged nothing for 31 s"),
            "{text}"
        );
    }

    #[test]
    fn a_node_that_found_nobody_names_the_last_refusal() {
        let expectation = Expectation::new(2, LastRefusal::default());
        let event = |message, reason: &str| Event {
            level: thicket_node::EventLevel::Warn,
            message,
            fields: vec![
                ("reason", reason.to_owned()),
                ("address", "b:1883".to_owned()),
            ],
        };
        let last = &expectation.last_refusal;
        last.note(&event("link refused by the other node", "of cluster x"));
        last.note(&event("link lost", "timeout"));
        let text = expectation.unmet(1).expect("nobody seen").to_string();
        let expected = "; last refusal: link refused by the other node (b:1883): of cluster x";
        assert!(text.ends_with(expected), "{text}");
        last.note_unknown_name("nosuch:1883", &std::io::Error::other("no such name"));
        let text = expectation.unmet(1).expect("nobody seen").to_string();
        let expected = "; cannot look up nosuch:1883: no such name";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn each_change_of_readiness_is_logged_once_and_missing_nodes_again_and_again() {
        let start = Instant::now();
        let mut reminder = Reminder::new(start);
        let alone = || Unready::Alone {
            expected: 2,
            seen: 1,
            last: None,
        };
        let at = |seconds| start + Duration::from_secs(seconds);
        for (second, state, is_news) in [
            (0, Unready::Starting, false),
            (1, alone(), false),
            (5, alone(), true),
            (6, alone(), false),
            (35, alone(), true),
            (36, Unready::Draining, true),
            (37, Unready::Draining, false),
        ] {
            assert_eq!(reminder.is_news(at(second), &state), is_news, "at {second}");
            reminder.note(at(second), Err(state));
        }
        reminder.note(at(38), Ok(()));
        assert!(reminder.is_news(at(39), &Unready::Disk), "it was ready");
    }
}
