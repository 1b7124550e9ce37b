//! What the listener that a connection came through grants its client.

use super::context::Context;
use crate::{ConnectionId, ListenerConfig};

/// The listener a connection came through.
pub(in crate::worker) fn listener(cx: &Context, id: ConnectionId) -> Option<&ListenerConfig> {
    let listener = cx.connections.get(id)?.listener;
    cx.config.listeners.get(usize::from(listener.0))
}

/// The topic prefix of the listener a connection came through.
pub(super) fn prefix(cx: &Context, id: ConnectionId) -> &str {
    listener(cx, id).map_or("", |listener| &listener.topic_prefix)
}

/// Largest packet a client may send, bytes.
pub(super) fn maximum_packet_size(cx: &Context, id: ConnectionId) -> u32 {
    let maximum = cx.config.limits.maximum_packet_size;
    listener(cx, id).map_or(maximum, |listener| {
        listener.maximum_packet_size.min(maximum)
    })
}
