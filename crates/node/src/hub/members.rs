//! Who belongs to the cluster: every node that ever joined and was not removed. Each node keeps the whole list, also on disk, and sends it to the
//! others; the lists of two nodes are merged without asking anybody.
//!
//! Each member has a count of changes: odd while it belongs to the cluster, even when it was removed. Joining and removing add one; the higher of two
//! counts wins, so that all nodes come to the same list in whatever order they receive it. A removed node that receives its removal has joined again,
//! unless it leaves, and announces that itself.
//!
//! With `partition = "majority"` a node with the name and the address of a member that is down replaces it: it was started there without the data of the
//! one before, which is gone. Otherwise a node that starts again and again without its data would add members until no side has a majority. Only a side
//! that has quorum does that, so of two sides that do not see each other at most one has another list, as with `ctl forget`. Until then, members that are
//! down and have one name and one address count once: at most one of them runs, on whatever side.
//!
//! ```text
//! value  version u8 | changes u64 | bytes of the address u16 | address | name
//! ```

use std::collections::{BTreeMap, BTreeSet};

use thicket_overlay::NodeId;
use thicket_session::time::WallClock;

/// Members listed at most, removed ones included: a node that lies must not fill the others up.
const MAXIMUM: usize = 4096;
/// Longest name, as on links; bytes.
const MAXIMUM_NAME: usize = 1024;
/// Longest address that is kept; bytes.
const MAXIMUM_ADDRESS: usize = 1024;
/// Version of the stored format.
const VERSION: u8 = 2;
/// The version before, in which the name follows the changes.
const WITHOUT_ADDRESS: u8 = 1;

/// One member, as sent to other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Membership<'a> {
    pub node: NodeId,
    /// Odd: it belongs to the cluster.
    pub changes: u64,
    pub name: &'a str,
}

/// One node that joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub name: String,
    /// HOST:PORT for links, as it announced it; empty: this node was not up while that one was.
    address: String,
    changes: u64,
    /// When it went down, if this process noticed.
    pub down_since: Option<WallClock>,
}

impl Member {
    pub const fn belongs(&self) -> bool {
        self.changes % 2 == 1
    }
}

/// All nodes that ever joined.
#[derive(Debug, Default)]
pub(super) struct Members {
    known: BTreeMap<NodeId, Member>,
    /// Those that must be stored.
    changed: Vec<NodeId>,
    /// Those that must be sent to others.
    unannounced: BTreeSet<NodeId>,
    /// A node has joined or is down since the last look for members that are replaced.
    is_unreviewed: bool,
}

impl Members {
    /// A node is linked for the first time, or is this one: it belongs to the cluster, whatever the list was before. `address`: as it announces it.
    pub fn join(&mut self, node: NodeId, name: &str, address: &str) {
        self.is_unreviewed = true;
        let is_new = !self.known.contains_key(&node);
        if is_new && self.known.len() >= MAXIMUM && !self.give_one_up() {
            return;
        }
        let member = self.known.entry(node).or_insert(Member {
            name: name.to_owned(),
            address: String::new(),
            changes: 0,
            down_since: None,
        });
        member.down_since = None;
        let has_address = address.is_empty() || member.address == address;
        if member.belongs() && member.name == name && has_address {
            return;
        }
        if !member.belongs() {
            member.changes += 1;
        }
        name.clone_into(&mut member.name);
        if address.len() <= MAXIMUM_ADDRESS {
            address.clone_into(&mut member.address);
        }
        self.changed.push(node);
    }

    /// Makes space for a member: removes one that was removed from the cluster, or one that is down. False: there is none.
    fn give_one_up(&mut self) -> bool {
        let find = |is_it: fn(&Member) -> bool| {
            let mut known = self.known.iter();
            known
                .find(|(_, member)| is_it(member))
                .map(|(node, _)| *node)
        };
        let node = find(|it| !it.belongs()).or_else(|| find(|it| it.down_since.is_some()));
        node.is_some_and(|node| self.known.remove(&node).is_some())
    }

    /// A node is down.
    pub fn note_down(&mut self, node: NodeId, now: WallClock) {
        self.is_unreviewed = true;
        if let Some(member) = self.known.get_mut(&node) {
            member.down_since = Some(now);
        }
    }

    /// Whether members may be replaced that were not when [`Self::take_replaced`] was last called.
    pub const fn is_unreviewed(&self) -> bool {
        self.is_unreviewed
    }

    /// Members that are not reachable while one with the same name and address is: each with its name and that one.
    pub fn take_replaced(&mut self, reachable: &[NodeId]) -> Vec<(NodeId, String, NodeId)> {
        self.is_unreviewed = false;
        let is_reachable = |node: &NodeId| reachable.contains(node);
        let (there, down): (Vec<_>, Vec<_>) = self.iter().partition(|(node, _)| is_reachable(node));
        let place = |member: &Member| (member.name.clone(), member.address.clone());
        let there: BTreeMap<_, _> = there.iter().map(|(node, it)| (place(it), *node)).collect();
        let replaced = down.iter().filter(|(_, it)| !it.address.is_empty());
        replaced
            .filter_map(|(node, it)| Some((*node, it.name.clone(), *there.get(&place(it))?)))
            .collect()
    }

    /// A member is removed for good.
    pub fn remove(&mut self, node: NodeId) {
        if let Some(member) = self.known.get_mut(&node).filter(|it| it.belongs()) {
            member.changes += 1;
            self.changed.push(node);
        }
    }

    /// Merges an entry from another node, or from disk.
    pub fn merge(&mut self, announced: &Membership<'_>) {
        if announced.name.len() > MAXIMUM_NAME || announced.changes == 0 {
            return;
        }
        let has_capacity = self.known.len() < MAXIMUM;
        match self.known.get_mut(&announced.node) {
            Some(known) if known.changes >= announced.changes => return,
            Some(known) => {
                known.changes = announced.changes;
                announced.name.clone_into(&mut known.name);
            }
            None if has_capacity => {
                let member = Member {
                    name: announced.name.to_owned(),
                    address: String::new(),
                    changes: announced.changes,
                    down_since: None,
                };
                self.known.insert(announced.node, member);
            }
            None => return,
        }
        self.changed.push(announced.node);
    }

    /// Those that belong to the cluster, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        let known = self.known.iter().map(|(node, member)| (*node, member));
        known.filter(|(_, member)| member.belongs())
    }

    /// Whether a node belongs to the cluster.
    pub fn has(&self, node: NodeId) -> bool {
        self.known.get(&node).is_some_and(Member::belongs)
    }

    /// Whether a node joined once, even if removed since.
    pub fn knows(&self, node: NodeId) -> bool {
        self.known.contains_key(&node)
    }

    /// How many count for a majority: members that are not reachable and have one name and one address are one, since at most one of them can run. `reachable`:
    /// ascending.
    pub fn counted(&self, reachable: &[NodeId]) -> usize {
        let mut count = 0;
        let mut down = BTreeSet::new();
        for (node, member) in self.iter() {
            let is_reachable = reachable.binary_search(&node).is_ok();
            if is_reachable || member.address.is_empty() {
                count += 1;
            } else {
                down.insert((&*member.name, &*member.address));
            }
        }
        count + down.len()
    }

    /// How many belong to the cluster.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// The whole list, removed members included, as sent to others.
    pub fn announced<'a>(&'a self) -> Vec<Membership<'a>> {
        let announced = |(node, member): (&NodeId, &'a Member)| Membership {
            node: *node,
            changes: member.changes,
            name: &member.name,
        };
        self.known.iter().map(announced).collect()
    }

    /// What has changed since the last time: keys and values for the store.
    pub fn take_changed(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        self.unannounced.extend(&changed);
        let value = |node: NodeId| {
            let member = self.known.get(&node)?;
            let mut value = vec![VERSION];
            value.extend_from_slice(&member.changes.to_le_bytes());
            let length = u16::try_from(member.address.len()).unwrap_or_default();
            value.extend_from_slice(&length.to_le_bytes());
            value.extend_from_slice(member.address.as_bytes());
            value.extend_from_slice(member.name.as_bytes());
            Some((node.0.to_be_bytes().to_vec(), value))
        };
        changed.into_iter().filter_map(value).collect()
    }

    /// Whether others must receive entries.
    pub fn has_unsent(&self) -> bool {
        !self.unannounced.is_empty()
    }

    /// Of the result of `take_changed`, the nodes whose entries others must receive; once.
    pub fn take_unsent(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.unannounced)
    }

    /// Reads what was stored.
    pub fn recover(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let node = key.try_into().map_err(|_| "its key is no node")?;
        let (version, rest) = value.split_first().ok_or("it is empty")?;
        let (changes, rest) = rest.split_first_chunk().ok_or("it ends early")?;
        let (address, name) = match *version {
            WITHOUT_ADDRESS => (&[][..], rest),
            VERSION => {
                let (length, rest) = rest.split_first_chunk().ok_or("it ends early")?;
                let length = usize::from(u16::from_le_bytes(*length));
                rest.split_at_checked(length).ok_or("it ends early")?
            }
            version => return Err(format!("version {version} is not known")),
        };
        let address = std::str::from_utf8(address).map_err(|_| "the address is no text")?;
        let announced = Membership {
            node: NodeId(u64::from_be_bytes(node)),
            changes: u64::from_le_bytes(*changes),
            name: std::str::from_utf8(name).map_err(|_| "the name is no text")?,
        };
        self.merge(&announced);
        if let Some(member) = self.known.get_mut(&announced.node) {
            address.clone_into(&mut member.address);
        }
        // It is stored already.
        self.changed.retain(|changed| *changed != announced.node);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(node: u64, changes: u64) -> Membership<'static> {
        Membership {
            node: NodeId(node),
            changes,
            name: "north",
        }
    }

    fn nodes(members: &Members) -> Vec<u64> {
        members.iter().map(|(node, _)| node.0).collect()
    }

    #[test]
    fn what_is_told_in_any_order_makes_the_same_list() {
        let mut orders = [
            vec![
                announced(1, 1),
                announced(2, 1),
                announced(2, 2),
                announced(3, 3),
            ],
            vec![
                announced(3, 3),
                announced(2, 2),
                announced(3, 2),
                announced(2, 1),
                announced(1, 1),
            ],
            vec![
                announced(2, 2),
                announced(1, 1),
                announced(3, 1),
                announced(3, 3),
                announced(3, 2),
            ],
        ];
        for order in &mut orders {
            let mut members = Members::default();
            order.iter().for_each(|announced| members.merge(announced));
            assert_eq!(nodes(&members), [1, 3], "{order:?}");
            let mut again = Members::default();
            for (key, value) in members.take_changed() {
                again.recover(&key, &value).expect("just written");
            }
            assert_eq!(again.announced(), members.announced());
            assert_eq!(again.take_changed(), [], "nothing to store");
        }
    }

    #[test]
    fn a_removed_member_that_is_linked_again_has_joined_again() {
        let mut members = Members::default();
        members.join(NodeId(1), "north", "north:1883");
        members.join(NodeId(2), "south", "south:1883");
        members.remove(NodeId(2));
        members.remove(NodeId(2));
        members.merge(&announced(2, 1));
        assert_eq!(nodes(&members), [1]);
        members.join(NodeId(2), "south", "south:1883");
        assert_eq!((nodes(&members), members.len()), (vec![1, 2], 2));
        members.merge(&announced(2, 2));
        assert_eq!(members.len(), 2, "an old removal");
    }

    #[test]
    fn a_member_that_is_down_is_replaced_by_one_with_its_name_and_address() {
        let mut members = Members::default();
        for (node, name, address) in [
            (1, "north", "north:1883"),
            (2, "south", "south:1883"),
            // Started there without its data.
            (3, "north", "north:1883"),
            // The name alone, the address alone.
            (4, "north", "elsewhere:1883"),
            (5, "other", "south:1883"),
            (6, "unknown", ""),
            (7, "unknown", ""),
        ] {
            members.join(NodeId(node), name, address);
        }
        let reachable = |nodes: &[u64]| nodes.iter().map(|it| NodeId(*it)).collect::<Vec<_>>();
        let all = reachable(&[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(members.take_replaced(&all), [], "both are up");
        assert!(!members.is_unreviewed());
        members.note_down(NodeId(1), WallClock::from_unix_millis(1));
        assert!(members.is_unreviewed());
        let up = reachable(&[3, 4, 5, 7]);
        let replaced = (NodeId(1), "north".to_owned(), NodeId(3));
        assert_eq!(members.take_replaced(&up), [replaced]);
        members.remove(NodeId(1));
        members.note_down(NodeId(1), WallClock::from_unix_millis(1));
        assert_eq!(members.take_replaced(&up), [], "no member any more");
    }

    #[test]
    fn members_that_are_down_and_have_one_name_and_address_count_once() {
        let mut members = Members::default();
        for node in [1, 2, 3] {
            members.join(NodeId(node), "north", "north:1883");
        }
        members.join(NodeId(4), "south", "south:1883");
        members.join(NodeId(5), "west", "");
        members.join(NodeId(6), "west", "");
        let counted = |reachable: &[u64]| {
            let reachable: Vec<_> = reachable.iter().map(|it| NodeId(*it)).collect();
            members.counted(&reachable)
        };
        assert_eq!(counted(&[1, 2, 3, 4, 5, 6]), 6);
        assert_eq!(counted(&[4]), 4);
        assert_eq!(counted(&[3, 4]), 5, "until it replaces the others");
        assert_eq!(counted(&[]), 4);
    }

    #[test]
    fn addresses_are_stored_and_changes_from_others_leave_them() {
        let mut members = Members::default();
        members.join(NodeId(1), "north", "north:1883");
        members.join(NodeId(2), "north", "north:1883");
        members.merge(&announced(1, 3));
        let mut again = Members::default();
        for (key, value) in members.take_changed() {
            again.recover(&key, &value).expect("just written");
        }
        again.join(NodeId(2), "north", "north:1883");
        assert_eq!(
            again.take_replaced(&[NodeId(2)]),
            [(NodeId(1), "north".to_owned(), NodeId(2))]
        );
    }

    #[test]
    fn an_entry_of_the_version_before_is_read_without_an_address() {
        let mut members = Members::default();
        let value = b"\x01\x03\0\0\0\0\0\0\0north";
        members
            .recover(&[0, 0, 0, 0, 0, 0, 0, 7], value)
            .expect("known");
        assert_eq!(members.announced(), [announced(7, 3)]);
    }

    #[test]
    fn what_cannot_be_and_what_is_too_much_is_passed_over() {
        let mut members = Members::default();
        members.merge(&announced(1, 0));
        let long = "n".repeat(MAXIMUM_NAME + 1);
        members.merge(&Membership {
            name: &long,
            ..announced(1, 1)
        });
        assert_eq!(members.announced(), []);
        for node in 0..=MAXIMUM as u64 {
            members.merge(&announced(node, 1));
        }
        members.join(NodeId(u64::MAX), "late", "");
        assert_eq!(members.len(), MAXIMUM);
        assert!(
            members.iter().all(|(node, _)| node.0 < u64::MAX),
            "all may be there"
        );
        members.note_down(NodeId(7), WallClock::from_unix_millis(1));
        members.join(NodeId(u64::MAX), "late", "");
        let nodes: Vec<u64> = nodes(&members);
        assert!(
            nodes.contains(&u64::MAX) && !nodes.contains(&7),
            "in its place"
        );
        for (key, value, problem) in [
            (&b"short"[..], &b"\x01"[..], "its key is no node"),
            (&[0; 8], b"", "it is empty"),
            (&[0; 8], b"\x0312345678", "version 3 is not known"),
            (&[0; 8], b"\x02123", "it ends early"),
            (&[0; 8], b"\x02123456780", "it ends early"),
            (&[0; 8], b"\x0212345678\x02\x001", "it ends early"),
            (
                &[0; 8],
                b"\x0212345678\x01\x00\xff",
                "the address is no text",
            ),
            (&[0; 8], b"\x0212345678\0\0\xff", "the name is no text"),
        ] {
            assert_eq!(members.recover(key, value), Err(problem.to_owned()));
        }
    }
}
