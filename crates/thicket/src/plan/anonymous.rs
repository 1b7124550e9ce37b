//! Recordings that can be shared: names are replaced by hashes.

use thicket_placement::Arrival;

use sha2::{Digest as _, Sha256};

use super::recording::Recording;

/// Whose names are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Anonymous {
    /// Client identifiers
    Clients,
    /// Client identifiers and topics
    All,
}

/// Replaces names: the same name by the same hash within a recording, by another one in the next.
#[derive(Debug)]
pub(super) struct Disguise {
    what: Anonymous,
    salt: [u8; 32],
}

impl Disguise {
    pub(super) fn new(what: Anonymous) -> anyhow::Result<Self> {
        let mut salt = [0; 32];
        getrandom::fill(&mut salt).map_err(|error| anyhow::anyhow!("no random salt: {error}"))?;
        Ok(Self { what, salt })
    }

    pub(super) fn put_on(&self, recording: &mut Recording) {
        for (place, arrival) in &mut recording.arrivals {
            *arrival = self.arrival(std::mem::take(arrival));
            if place.starts_with(super::live::PLACE) {
                *place = format!("{}{}", super::live::PLACE, arrival.client);
            }
        }
    }

    fn arrival(&self, arrival: Arrival) -> Arrival {
        let topics = |all: Vec<String>| all.iter().map(|name| self.topic(name)).collect();
        Arrival {
            client: self.hash("client", &arrival.client),
            publish: topics(arrival.publish),
            subscribe: topics(arrival.subscribe),
            rates: arrival
                .rates
                .into_iter()
                .map(|(name, rate)| (self.topic(&name), rate))
                .collect(),
            nodes: arrival
                .nodes
                .into_iter()
                .map(|(name, node)| (self.topic(&name), node))
                .collect(),
            leave: arrival.leave,
            max_sessions: arrival.max_sessions,
        }
    }

    /// Level by level, so that filters match what they matched.
    fn topic(&self, name: &str) -> String {
        if self.what == Anonymous::Clients {
            return name.to_owned();
        }
        let level = |level: &str| match level {
            "+" | "#" | "" => level.to_owned(),
            level if level.starts_with('$') => format!("${}", self.hash("level", level)),
            level => self.hash("level", level),
        };
        let levels: Vec<String> = name.split('/').map(level).collect();
        levels.join("/")
    }

    fn hash(&self, kind: &str, name: &str) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.salt);
        hasher.update(kind);
        hasher.update([0]);
        hasher.update(name);
        let digest = hasher.finalize();
        digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_what_they_matched_and_names_are_gone() {
        let disguise = Disguise::new(Anonymous::All).unwrap();
        let topic = disguise.topic("site/7/temp");
        let filter = disguise.topic("site/+/temp");
        let (levels, wanted): (Vec<_>, Vec<_>) =
            (topic.split('/').collect(), filter.split('/').collect());
        assert_eq!((levels[0], levels[2]), (wanted[0], wanted[2]));
        assert_eq!(wanted[1], "+");
        assert!(!topic.contains("site"));
        assert!(disguise.topic("$SYS/x").starts_with('$'));
        assert_eq!(disguise.topic("a/#").split_once('/').unwrap().1, "#");
        let other = Disguise::new(Anonymous::All).unwrap();
        assert_ne!(topic, other.topic("site/7/temp"));
        let clients = Disguise::new(Anonymous::Clients).unwrap();
        assert_eq!(clients.topic("site/7/temp"), "site/7/temp");
    }
}
