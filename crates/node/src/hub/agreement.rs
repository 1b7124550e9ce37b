//! Settings that must be the same on all nodes of a cluster. A node sends its own to every node that comes up; a node that finds another value logs
//! it, once for each difference, and keeps it for reports.
//!
//! A setting that only one of two nodes has belongs to another version, and is ignored.
//!
//! With its settings a node sends its site, which differs from node to node and is not compared.

use std::collections::BTreeMap;

use thicket_overlay::{NodeId, NodeSlot};

use super::{Hub, HubOperator, Message};
use crate::{Disagreement, EventLevel, SharedSetting};

/// Limits for the settings of a node, and for the bytes of one: a node that lies must not fill the others up.
const MAXIMUM: usize = 64;
const MAXIMUM_BYTES: usize = 512;
/// The key under which a node sends its site.
const SITE: &str = "site";

/// What this node has set, and what others have.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    own: Vec<SharedSetting>,
    others: BTreeMap<NodeId, Vec<SharedSetting>>,
}

impl Agreement {
    /// Where a node that is up differs.
    pub fn with(&self, node: NodeId) -> Vec<Disagreement> {
        let announced = self.others.get(&node).into_iter().flatten();
        let differs = |theirs: &SharedSetting| {
            let own = self.own.iter().find(|own| own.key == theirs.key)?;
            (own.value != theirs.value).then(|| Disagreement {
                key: own.key.clone(),
                own: own.value.clone(),
                theirs: theirs.value.clone(),
            })
        };
        announced.filter_map(differs).collect()
    }

    /// A node is down: it may come back with others.
    pub fn forget(&mut self, node: NodeId) {
        self.others.remove(&node);
    }

    /// Another node has these. Returns where it differs, if that is new.
    fn learn(&mut self, node: NodeId, announced: &[(&str, &str)]) -> Vec<Disagreement> {
        let before = self.with(node);
        let fits = |(key, value): &&(&str, &str)| key.len().max(value.len()) <= MAXIMUM_BYTES;
        let announced = announced.iter().take(MAXIMUM).filter(fits);
        let setting = |(key, value): &(&str, &str)| SharedSetting {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        };
        self.others.insert(node, announced.map(setting).collect());
        let mut found = self.with(node);
        found.retain(|it| !before.contains(it));
        found
    }
}

impl Hub {
    /// Sends one node what is set here.
    pub(super) fn send_settings(&mut self, slot: NodeSlot, node: NodeId) {
        let own = self.agreement.own.iter();
        let site = self.cx.config.redirection.site.iter();
        let settings = own.map(|it| (&*it.key, &*it.value));
        let announced: Vec<_> = settings.chain(site.map(|site| (SITE, &**site))).collect();
        if announced.is_empty() {
            return;
        }
        let encoded = Message::Settings(announced).encode();
        self.cx.send_encoded(node, slot, encoded);
    }

    pub(super) fn handle_settings(&mut self, from: NodeId, announced: &[(&str, &str)]) {
        let found = self.agreement.learn(from, announced);
        self.warn_of(from, found);
        let site = announced.iter().find(|(key, _)| *key == SITE);
        self.placing.learn_site(from, site.map(|(_, site)| *site));
        let (here, there) = (self.member_name(self.cx.own()), self.member_name(from));
        if here == there {
            let fields = vec![("name", here), ("node", from.to_string())];
            let message = "another node of the cluster has the same name: give each one of its own";
            self.cx.event(EventLevel::Warn, message, fields);
        }
    }

    fn warn_of(&mut self, node: NodeId, found: Vec<Disagreement>) {
        let (here, mut there) = (self.member_name(self.cx.own()), self.member_name(node));
        if here == there {
            there = format!("{there} ({node})");
        }
        for Disagreement { key, own, theirs } in found {
            let fields = vec![
                ("key", key),
                ("here", format!("{here} has {own:?}")),
                ("there", format!("{there} has {theirs:?}")),
            ];
            let message = "a setting that must be the same on all nodes differs";
            self.cx.event(EventLevel::Warn, message, fields);
        }
    }

    fn member_name(&self, node: NodeId) -> String {
        let mut members = self.cx.members.iter();
        let member = members.find(|(id, _)| *id == node);
        member.map_or_else(|| node.to_string(), |(_, member)| member.name.clone())
    }
}

impl HubOperator<'_> {
    /// What must be the same on all nodes, as it is set here. Others may have sent theirs before.
    pub fn set_shared_settings(&mut self, settings: Vec<SharedSetting>) {
        self.hub.agreement.own = settings;
        for (slot, node) in self.hub.cx.up.clone() {
            self.hub.send_settings(slot, node);
            let found = self.hub.agreement.with(node);
            self.hub.warn_of(node, found);
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
        let announced = [("routing", "tree"), ("partition", "serve"), ("newer", "1")];
        let found = agreement.learn(NODE, &announced);
        let expected = Disagreement {
            key: "routing".into(),
            own: "mesh".into(),
            theirs: "tree".into(),
        };
        assert_eq!(found, std::slice::from_ref(&expected));
        assert_eq!(agreement.learn(NODE, &announced), []);
        assert_eq!(agreement.with(NODE), [expected]);
        agreement.forget(NODE);
        assert_eq!(agreement.with(NODE), []);
        assert_eq!(agreement.learn(NODE, &announced).len(), 1);
        assert_eq!(agreement.learn(NODE, &[("routing", "mesh")]), []);
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
        assert_eq!(agreement.learn(NODE, &[("routing", &long)]), []);
        let mut many = vec![("a", "b"); MAXIMUM];
        many.push(("routing", "tree"));
        assert_eq!(agreement.learn(NODE, &many), []);
    }
}
