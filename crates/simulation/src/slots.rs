//! The sockets of a thread.

use std::collections::BTreeSet;

use thicket_node::{ConnectionId, Peer};

use crate::pipe::EndId;

/// A socket of a thread.
#[derive(Debug)]
pub(crate) struct Slot {
    pub end: EndId,
    pub owner: Peer,
    pub is_paused: bool,
    /// Its last write was incomplete.
    pub is_blocked: bool,
}

/// Sockets of a thread by `ConnectionId`; the identifier freed last is reused first, so that identifiers are reused as early as possible.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Freed when the round has ended.
    removed: Vec<u32>,
    /// Sockets whose last write was incomplete; some may be gone or have continued since.
    pub blocked: BTreeSet<ConnectionId>,
}

impl Slots {
    pub fn insert(&mut self, end: EndId, owner: Peer) -> ConnectionId {
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index as usize] = Some(Slot {
            end,
            owner,
            is_paused: false,
            is_blocked: false,
        });
        ConnectionId(index)
    }

    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    pub fn remove(&mut self, id: ConnectionId) -> Option<Slot> {
        let slot = self.slots.get_mut(id.0 as usize)?.take();
        if slot.is_some() {
            self.removed.push(id.0);
        }
        slot
    }

    pub fn free_removed(&mut self) {
        self.free.append(&mut self.removed);
    }

    pub fn of(&self, owner: Peer) -> Vec<ConnectionId> {
        let owned = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.owner == owner);
        (0..self.slots.len())
            .filter(|index| owned(&self.slots[*index]))
            .map(|index| ConnectionId(index as u32))
            .collect()
    }
}
