//! The connections of a worker.

use std::collections::VecDeque;

use super::{
    connection::{Attached, Connection, Phase},
    session_key::SessionKey,
};
use crate::{Allowance, ConnectionId, ListenerId, ListenerTraffic, WorkerOutput};

/// All connections of a worker, by the numbers that the shell gives them.
#[derive(Debug, Default)]
pub(in crate::worker) struct Connections {
    slots: Vec<Option<Box<Connection>>>,
    /// Those with something to send.
    dirty: Vec<ConnectionId>,
    /// Sessions whose connections have capacity again.
    pub relieved: Vec<SessionKey>,
    /// Bytes that those without a session hold.
    half_open_bytes: u64,
    /// Where [`Self::next`] begins.
    looked_at: usize,
    /// By the number of the listener; those after the last are as the default.
    listeners: Vec<AtListener>,
}

/// What the clients of a listener have in common.
#[derive(Debug, Default)]
pub(in crate::worker) struct AtListener {
    /// What they may publish.
    pub allowance: Allowance,
    pub traffic: ListenerTraffic,
}

impl Connections {
    pub fn insert(&mut self, id: ConnectionId, connection: Connection) {
        let index = id.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(Box::new(connection));
    }

    pub fn take(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        self.slots.get_mut(id.0 as usize)?.take()
    }

    #[inline]
    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.slots.get(id.0 as usize)?.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// A connection, and the list of those with something to send, for [`Connection::mark_dirty`].
    #[inline]
    pub fn get_with_dirty(
        &mut self,
        id: ConnectionId,
    ) -> Option<(&mut Connection, &mut Vec<ConnectionId>)> {
        let connection = self.slots.get_mut(id.0 as usize)?.as_deref_mut()?;
        Some((connection, &mut self.dirty))
    }

    /// Whether the connection is still the one with this `serial`.
    pub fn is_same(&self, id: ConnectionId, serial: u64) -> bool {
        self.get(id).is_some_and(|it| it.serial == serial)
    }

    /// The connection if it is still the one with this `serial`.
    pub fn get_same(&mut self, id: ConnectionId, serial: u64) -> Option<&mut Connection> {
        self.get_mut(id).filter(|it| it.serial == serial)
    }

    /// A connection in service.
    pub fn attached(&self, id: ConnectionId) -> Option<&Attached> {
        self.get(id)?.attached()
    }

    pub fn attached_mut(&mut self, id: ConnectionId) -> Option<&mut Attached> {
        self.get_mut(id)?.attached_mut()
    }

    /// The session of a connection in service.
    pub fn session_of(&self, id: ConnectionId) -> Option<SessionKey> {
        Some(self.attached(id)?.session)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        let all = (0..).map(ConnectionId).zip(&self.slots);
        all.filter_map(|(id, slot)| Some((id, slot.as_deref()?)))
    }

    /// Up to `count` of them, and others with each call.
    pub fn next(&mut self, count: usize) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        let from = if self.looked_at < self.slots.len() {
            self.looked_at
        } else {
            0
        };
        self.looked_at = from + count;
        let ids = (from as u32..).map(ConnectionId);
        let some = ids.zip(&self.slots[from..]).take(count);
        some.filter_map(|(id, slot)| Some((id, slot.as_deref()?)))
    }

    /// Every number is below this.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// A connection has something to send.
    #[inline]
    pub fn mark_dirty(&mut self, id: ConnectionId) {
        if let Some((connection, dirty)) = self.get_with_dirty(id) {
            connection.mark_dirty(id, dirty);
        }
    }

    /// Whether the end of a round has something to do for them.
    pub fn want_round(&self) -> bool {
        !self.dirty.is_empty() || !self.relieved.is_empty()
    }

    /// Names the connections to flush. Once a round.
    pub fn flush(&mut self, outputs: &mut VecDeque<WorkerOutput>) {
        for id in self.dirty.drain(..) {
            let slot = self.slots.get_mut(id.0 as usize);
            let Some(connection) = slot.and_then(Option::as_deref_mut) else {
                continue;
            };
            connection.is_dirty = false;
            let listener = connection.listener;
            let delivered = (connection.attached_mut()).map_or(0, Attached::take_delivered);
            let is_closing = matches!(connection.phase, Phase::Closing);
            if !is_closing && !connection.out.pending().is_empty() {
                outputs.push_back(WorkerOutput::Flush(id));
            }
            if delivered > 0 {
                at(&mut self.listeners, listener).traffic.out_messages += delivered;
            }
        }
    }

    /// What the clients of a listener have in common.
    pub fn at(&mut self, listener: ListenerId) -> &mut AtListener {
        at(&mut self.listeners, listener)
    }

    /// The same, unless it was never needed.
    pub fn find_at(&self, listener: ListenerId) -> Option<&AtListener> {
        self.listeners.get(usize::from(listener.0))
    }

    /// What a connection without a session holds from now on. Call it with 0 before the connection goes elsewhere.
    pub fn count_half_open(&mut self, id: ConnectionId, held: usize) {
        if let Some(connection) = self.get_mut(id) {
            let before = std::mem::replace(&mut connection.half_open, held);
            self.half_open_bytes = self.half_open_bytes + held as u64 - before as u64;
        }
    }

    /// Bytes that those without a session hold.
    pub const fn half_open_bytes(&self) -> u64 {
        self.half_open_bytes
    }
}

fn at(listeners: &mut Vec<AtListener>, listener: ListenerId) -> &mut AtListener {
    let index = usize::from(listener.0);
    if index >= listeners.len() {
        listeners.resize_with(index + 1, AtListener::default);
    }
    &mut listeners[index]
}
