//! Settings that must be the same on all nodes of a cluster. A node sends its own to every node that comes up; a node that finds another value logs
//! it, once for each difference, and keeps it for reports.
//!
//! A setting that only one of two nodes has belongs to another version, and is ignored.
//!
//! With its settings a node sends its site, which differs from node to node and is not compared.

use thicket_overlay::{NodeId, NodeSlot};

use super::{Hub, HubOperator, Message};
use crate::{Disagreement, EventLevel, SharedSetting};

/// The key under which a node sends its site.
const SITE: &str = "site";

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

    pub(super) fn member_name(&self, node: NodeId) -> String {
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
