//! Settings that must be the same on all nodes of a cluster. A node sends its own to every node that comes up; who finds another value says
//! so, once for each difference, and keeps it for whoever asks.
//!
//! What only one of two nodes knows is of another version, and is passed over.

use std::collections::BTreeMap;

use thicket_overlay::{NodeId, NodeSlot, WireVersion};

use super::{Hub, Message};
use crate::{Disagreement, EventLevel, SharedSetting};

/// Settings of a node, and bytes of one: a node that lies must not fill the others up.
const MAXIMUM: usize = 64;
const MAXIMUM_BYTES: usize = 512;

/// What this node has set, and where others differ.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    own: Vec<SharedSetting>,
    others: BTreeMap<NodeId, Vec<Disagreement>>,
}

impl Agreement {
    /// Of a node that is up.
    pub fn with(&self, node: NodeId) -> &[Disagreement] {
        self.others.get(&node).map_or(&[], Vec::as_slice)
    }

    /// A node is down: it may come back with others.
    pub fn forget(&mut self, node: NodeId) {
        self.others.remove(&node);
    }

    /// Another node has these; where it differs, if that is news.
    fn compare(&mut self, node: NodeId, told: &[(&str, &str)]) -> Vec<Disagreement> {
        let fits = |text: &str| text.len() <= MAXIMUM_BYTES;
        let told = told.iter().take(MAXIMUM);
        let told = told.filter(|(key, value)| fits(key) && fits(value));
        let differs = |(key, theirs): &(&str, &str)| {
            let own = self.own.iter().find(|own| &*own.key == *key)?;
            (&*own.value != *theirs).then(|| Disagreement {
                key: (*key).to_owned(),
                own: own.value.clone(),
                theirs: (*theirs).to_owned(),
            })
        };
        let found: Vec<Disagreement> = told.filter_map(differs).collect();
        let before = self.others.insert(node, found.clone());
        let before = before.unwrap_or_default();
        found
            .into_iter()
            .filter(|it| !before.contains(it))
            .collect()
    }
}

impl Hub {
    /// What must be the same on all nodes, as it is set here.
    pub fn set_shared_settings(&mut self, settings: Vec<SharedSetting>) {
        self.at_rest = None;
        self.agreement.own = settings;
        for (slot, node) in self.up.clone() {
            self.tell_settings(slot, node);
        }
    }

    /// Tells one node what is set here.
    pub(super) fn tell_settings(&mut self, slot: NodeSlot, node: NodeId) {
        let own = &self.agreement.own;
        if own.is_empty() || self.overlay.wire_version(slot) < WireVersion::V8 {
            return;
        }
        let told = own.iter().map(|it| (&*it.key, &*it.value)).collect();
        let encoded = Message::Settings(told).encode();
        self.send_encoded(node, slot, encoded);
    }

    pub(super) fn handle_settings(&mut self, from: NodeId, told: &[(&str, &str)]) {
        let name = |node: NodeId| {
            let mut members = self.members.iter();
            let member = members.find(|(id, _)| *id == node);
            member.map_or_else(|| node.to_string(), |(_, member)| member.name.clone())
        };
        let (here, there) = (name(self.own()), name(from));
        if here == there {
            let fields = vec![("name", here.clone()), ("node", from.to_string())];
            let message = "another node of the cluster has the same name: give each one of its own";
            self.event(EventLevel::Warn, message, fields);
        }
        for Disagreement { key, own, theirs } in self.agreement.compare(from, told) {
            let fields = vec![
                ("key", key),
                ("here", format!("{here} has {own:?}")),
                ("there", format!("{there} has {theirs:?}")),
            ];
            let message =
                "two nodes of the cluster have set differently what must be the same on all";
            self.event(EventLevel::Warn, message, fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    fn agreement(settings: &[(&str, &str)]) -> Agreement {
        let own = settings.iter().map(|(key, value)| SharedSetting {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        });
        Agreement {
            own: own.collect(),
            ..Agreement::default()
        }
    }

    #[test]
    fn a_difference_is_news_once_until_the_node_comes_back() {
        let mut agreement = agreement(&[("routing", "mesh"), ("partition", "serve")]);
        let told = [("routing", "tree"), ("partition", "serve"), ("newer", "1")];
        let found = agreement.compare(NODE, &told);
        let expected = Disagreement {
            key: "routing".into(),
            own: "mesh".into(),
            theirs: "tree".into(),
        };
        assert_eq!(found, std::slice::from_ref(&expected));
        assert_eq!(agreement.compare(NODE, &told), []);
        assert_eq!(agreement.with(NODE), [expected]);
        agreement.forget(NODE);
        assert_eq!(agreement.with(NODE), []);
        assert_eq!(agreement.compare(NODE, &told).len(), 1);
        assert_eq!(agreement.compare(NODE, &[("routing", "mesh")]), []);
        assert_eq!(
            agreement.with(NODE),
            [],
            "it was started with another value"
        );
    }

    #[test]
    fn what_is_too_long_or_too_much_is_passed_over() {
        let mut agreement = agreement(&[("routing", "mesh")]);
        let long = "m".repeat(MAXIMUM_BYTES + 1);
        assert_eq!(agreement.compare(NODE, &[("routing", &long)]), []);
        let mut many = vec![("a", "b"); MAXIMUM];
        many.push(("routing", "tree"));
        assert_eq!(agreement.compare(NODE, &many), []);
    }
}
