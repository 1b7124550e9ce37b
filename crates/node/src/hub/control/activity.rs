//! Activity of clients as bytes: texts with their lengths, rates in thousandths of a message a second.

use crate::{
    hub::wire::{Reader, put_bytes, put_u64},
    messages::ClientActivity,
};

/// The cursor behind the last client of a node.
pub(in crate::hub) const END: u64 = u64::MAX;
/// The round of a node that asks itself: the rebalancer counts from 1.
pub(in crate::hub) const LEARNING: u64 = 0;

pub(super) fn put_activity(out: &mut Vec<u8>, clients: &[ClientActivity]) {
    for client in clients {
        put_bytes(out, client.client_id.as_bytes());
        out.push(u8::from(client.can_move));
        put_u64(out, client.millis_per_s);
        put_u64(out, client.publishes.len() as u64);
        for (topic, rate) in &client.publishes {
            put_bytes(out, topic.as_bytes());
            put_u64(out, *rate);
        }
        put_u64(out, client.filters.len() as u64);
        for filter in &client.filters {
            put_bytes(out, filter.as_bytes());
        }
    }
}

/// Clients until the end.
pub(super) fn read_activity(reader: &mut Reader<'_>) -> Option<Vec<ClientActivity>> {
    reader.rest_of(|reader| {
        let client_id = reader.text()?.into();
        let can_move = reader.flag()?;
        let millis_per_s = reader.u64()?;
        let mut publishes = Vec::new();
        for _ in 0..reader.u64()? {
            publishes.push((reader.text()?.into(), reader.u64()?));
        }
        let mut filters = Vec::new();
        for _ in 0..reader.u64()? {
            filters.push(reader.text()?.into());
        }
        Some(ClientActivity {
            client_id,
            can_move,
            millis_per_s,
            publishes,
            filters,
        })
    })
}
