//! Wills being published that other nodes hold.

use std::{collections::BTreeMap, rc::Rc};

use thicket_session::server::StoredWill;

use crate::worker::state::replica::will::WillBackup;

/// Wills that other nodes are to forget, and have not forgotten yet.
#[derive(Debug, Default)]
pub(in super::super) struct PendingWills {
    pub wills: BTreeMap<u64, PendingWill>,
    pub next: u64,
    pub clients: BTreeMap<Rc<str>, Waiting>,
    /// Clients one of whose wills was forgotten since the last call of `settle_forgotten`.
    pub over: Vec<Rc<str>>,
    /// Wills that were being published when the node stopped, by the numbers they are stored under.
    pub recovered: Vec<(u64, Rc<str>, StoredWill)>,
}

/// A will being published that not all destinations have.
#[derive(Debug)]
pub(in super::super) struct PendingWill {
    /// `None`: of a node that is down.
    pub client_id: Option<Rc<str>>,
    pub backup: Option<WillBackup>,
    /// The number it is stored under.
    pub stored: Option<u64>,
    /// Conditions that are not met.
    pub open: u16,
}

/// What waits until the wills of a client are forgotten.
#[derive(Debug, Default)]
pub(in super::super) struct Waiting {
    /// How many are not forgotten.
    pub wills: usize,
    /// Requests of other nodes for its session, which has ended.
    pub requests: Vec<u64>,
}

impl PendingWills {
    /// One more will of a client is to be forgotten.
    pub fn begin(&mut self, client_id: &Rc<str>) {
        self.clients.entry(Rc::clone(client_id)).or_default().wills += 1;
    }

    pub fn has(&self, client_id: &str) -> bool {
        !self.clients.is_empty() && self.clients.contains_key(client_id)
    }

    /// Another node has forgotten a will.
    pub fn note_forgotten(&mut self, client_id: Option<Rc<str>>) {
        self.over.extend(client_id);
    }
}
