//! What the settings of the nodes are compared by.

use std::collections::BTreeMap;

use thicket_overlay::NodeId;

use crate::{Disagreement, SharedSetting};

/// Limits for the settings of a node, and for the bytes of one: a node that lies must not fill the others up.
pub(in crate::hub) const MAXIMUM: usize = 64;

pub(in crate::hub) const MAXIMUM_BYTES: usize = 512;

/// What this node has set, and what others have.
#[derive(Debug, Default)]
pub(in crate::hub) struct Agreement {
    pub own: Vec<SharedSetting>,
    pub others: BTreeMap<NodeId, Vec<SharedSetting>>,
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
    pub fn learn(&mut self, node: NodeId, announced: &[(&str, &str)]) -> Vec<Disagreement> {
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
