//! Acknowledged messages that were dropped, for the log: a line a second at most for each reason.

use std::{rc::Rc, time::Duration};

use thicket_session::time::Instant;

/// Time between two lines about one reason.
const SAID_EVERY: Duration = Duration::from_secs(1);

/// Why a message that was acknowledged to its publisher does not reach a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum DropReason {
    /// The session's queue, that of its user or tenant, or the disk is full.
    QueueFull,
    /// It is larger than the client accepts [MQTT-3.1.2-25].
    TooLarge,
    /// No member of its shared subscription has room, or none is there in time.
    NoMember,
}

impl DropReason {
    const ALL: [Self; 3] = [Self::QueueFull, Self::TooLarge, Self::NoMember];

    const fn in_words(self) -> &'static str {
        match self {
            Self::QueueFull => "the queue is full",
            Self::TooLarge => "larger than the client accepts",
            Self::NoMember => "no member of the shared subscription takes it",
        }
    }
}

/// What was dropped for one reason since the last line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dropped {
    messages: u64,
    /// The last one.
    client_id: Rc<str>,
    topic: String,
}

/// By reason.
#[derive(Debug, Default)]
pub(in crate::worker) struct Drops {
    since: [Option<Dropped>; DropReason::ALL.len()],
    said_at: [Option<Instant>; DropReason::ALL.len()],
}

impl Drops {
    /// `client_id`: whose session; of a shared subscription its filter.
    pub fn note(&mut self, reason: DropReason, client_id: &Rc<str>, topic: &str) {
        let before = self.since[reason as usize].take();
        self.since[reason as usize] = Some(Dropped {
            messages: before.map_or(0, |it| it.messages) + 1,
            client_id: Rc::clone(client_id),
            topic: topic.to_owned(),
        });
    }

    /// The fields of the lines that are due.
    pub fn due(&mut self, now: Instant) -> Vec<Vec<(&'static str, String)>> {
        let mut lines = Vec::new();
        for reason in DropReason::ALL {
            let index = reason as usize;
            let waits = self.said_at[index].is_some_and(|at| now < at + SAID_EVERY);
            let Some(dropped) = self.since[index].take_if(|_| !waits) else {
                continue;
            };
            if self.said_at[index].replace(now).is_some() {
                thicket_session::reach!("time SAID_EVERY");
            }
            lines.push(vec![
                ("reason", reason.in_words().to_owned()),
                ("messages", dropped.messages.to_string()),
                ("client_id", dropped.client_id.to_string()),
                ("topic", dropped.topic),
            ]);
        }
        lines
    }

    /// Whether a round has lines to consider.
    pub fn is_empty(&self) -> bool {
        self.since.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_says_how_many_were_dropped_and_names_the_last() {
        let at = Instant::from_millis;
        let mut drops = Drops::default();
        drops.note(DropReason::QueueFull, &"a".into(), "t");
        let said = |lines: Vec<Vec<(&str, String)>>| -> Vec<String> {
            let lines = lines.iter().map(|line| {
                let values: Vec<&str> = line.iter().map(|(_, value)| &**value).collect();
                values.join(", ")
            });
            lines.collect()
        };
        assert_eq!(said(drops.due(at(0))), ["the queue is full, 1, a, t"]);
        drops.note(DropReason::QueueFull, &"a".into(), "t");
        drops.note(DropReason::QueueFull, &"b".into(), "u");
        drops.note(DropReason::TooLarge, &"c".into(), "v");
        assert_eq!(
            said(drops.due(at(999))),
            ["larger than the client accepts, 1, c, v"]
        );
        assert!(!drops.is_empty());
        assert_eq!(said(drops.due(at(1000))), ["the queue is full, 2, b, u"]);
        assert!(drops.is_empty());
    }
}
