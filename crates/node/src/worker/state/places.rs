//! Better nodes for the topics of a client that follows them, as they were asked for.

use std::time::Duration;

use hashbrown::HashMap;
use thicket_mqtt::{Connect, PacketId, ProtocolVersion};
use thicket_overlay::NodeId;
use thicket_session::time::Instant;

/// The user property, in both directions.
pub(in crate::worker) const PLACE: &str = "thicket-place";
/// Its value in a CONNECT.
const FOLLOWS: &str = "1";
/// Time between two questions about a topic.
const REST: Duration = Duration::from_secs(1);

/// Topics of one client that are asked about; those it publishes to first.
const TOPICS: usize = 1000;

/// State of one client that follows.
#[derive(Debug, Default)]
pub(in crate::worker) struct BetterNodes {
    topics: HashMap<Box<str>, TopicNode>,
    /// PUBACKs that are to name a node.
    owed: Vec<(PacketId, NodeId)>,
}

/// State of a topic that the client publishes to.
#[derive(Debug)]
struct TopicNode {
    asked_at: Instant,
    /// The last answer.
    answer: Option<NodeId>,
    /// It came twice, and the client has not received it.
    is_owed: bool,
    /// What the client received since the answer was none.
    named: Option<NodeId>,
}

impl BetterNodes {
    /// For a client whose CONNECT states that it follows.
    pub fn of(connect: &Connect<'_>) -> Option<Box<Self>> {
        let mut properties = connect.user_properties.iter();
        let follows = connect.version == ProtocolVersion::V5
            && properties.any(|property| *property == (PLACE, FOLLOWS));
        follows.then(Box::default)
    }

    /// A PUBLISH arrived. The node that its PUBACK is to name is noted; true: the hub is to be asked about the topic.
    pub fn publish(&mut self, now: Instant, topic: &str, packet_id: PacketId) -> bool {
        let Some(known) = self.topics.get_mut(topic) else {
            let has_capacity = self.topics.len() < TOPICS;
            if has_capacity {
                let asked = TopicNode {
                    asked_at: now,
                    answer: None,
                    is_owed: false,
                    named: None,
                };
                self.topics.insert(topic.into(), asked);
            }
            return has_capacity;
        };
        if let (true, Some(node)) = (std::mem::take(&mut known.is_owed), known.answer) {
            known.named = Some(node);
            self.owed.push((packet_id, node));
        }
        let is_due = now.since(known.asked_at) >= REST;
        if is_due {
            thicket_session::reach!("time worker/state/places REST");
            known.asked_at = now;
        }
        is_due
    }

    pub fn answer(&mut self, topic: &str, node: Option<NodeId>) {
        if let Some(known) = self.topics.get_mut(topic) {
            known.named = known.named.filter(|_| node.is_some());
            known.is_owed = node.is_some() && known.answer == node && known.named != node;
            known.answer = node;
        }
    }

    /// The node that a PUBACK is to name.
    pub fn take_owed(&mut self, packet_id: PacketId) -> Option<NodeId> {
        let at = self.owed.iter().position(|(owed, _)| *owed == packet_id)?;
        Some(self.owed.swap_remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn packet(id: u16) -> PacketId {
        PacketId::new(id).expect("not 0")
    }

    #[test]
    fn a_publisher_is_told_once_when_two_answers_are_the_same() {
        let mut better_nodes = BetterNodes::default();
        assert!(
            better_nodes.publish(at(0), "a", packet(1)),
            "the first asks"
        );
        better_nodes.answer("a", Some(NodeId(7)));
        assert!(!better_nodes.publish(at(900), "a", packet(2)), "too early");
        assert_eq!(
            better_nodes.take_owed(packet(2)),
            None,
            "one answer is not enough"
        );
        assert!(better_nodes.publish(at(1000), "a", packet(3)));
        better_nodes.answer("a", Some(NodeId(7)));
        assert!(!better_nodes.publish(at(1100), "a", packet(4)));
        assert_eq!(better_nodes.take_owed(packet(3)), None);
        assert_eq!(better_nodes.take_owed(packet(4)), Some(NodeId(7)));
        assert!(better_nodes.publish(at(2000), "a", packet(5)));
        better_nodes.answer("a", Some(NodeId(7)));
        assert!(!better_nodes.publish(at(2100), "a", packet(6)));
        assert_eq!(better_nodes.take_owed(packet(5)), None, "it was sent");
        assert_eq!(better_nodes.take_owed(packet(6)), None, "it was sent");
        for (ms, node) in [(3000, None), (4000, Some(7)), (5000, Some(7))] {
            assert!(better_nodes.publish(at(ms), "a", packet(7)));
            better_nodes.answer("a", node.map(NodeId));
        }
        assert!(!better_nodes.publish(at(5100), "a", packet(8)));
        assert_eq!(
            better_nodes.take_owed(packet(8)),
            Some(NodeId(7)),
            "it came back"
        );
    }

    #[test]
    fn answers_that_differ_say_nothing() {
        let mut better_nodes = BetterNodes::default();
        for (ms, node) in [(0, Some(7)), (1000, Some(8)), (2000, None), (3000, Some(8))] {
            assert!(better_nodes.publish(at(ms), "a", packet(1)));
            better_nodes.answer("a", node.map(NodeId));
        }
        assert!(!better_nodes.publish(at(3500), "a", packet(2)));
        assert_eq!(better_nodes.take_owed(packet(2)), None);
    }

    #[test]
    fn so_many_topics_are_asked_about_and_no_more() {
        let mut better_nodes = BetterNodes::default();
        for number in 0..TOPICS {
            assert!(better_nodes.publish(at(0), &number.to_string(), packet(1)));
        }
        assert!(!better_nodes.publish(at(0), "one more", packet(1)));
        assert!(better_nodes.publish(at(5000), "0", packet(1)));
    }
}
