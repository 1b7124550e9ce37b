//! Which connections are closed when connections, or memory for their buffers, run out: those of the address that uses most. So an address that uses
//! up everything harms only itself.

use std::time::Duration;

use thicket_mqtt::ReasonCode;
use thicket_placement::{Held, JUST_CONNECTED, LOOKED_AT, heaviest};

use super::{
    WorkerOperator,
    context::Context,
    state::{
        connection::{Connection, Phase},
        sessions::Cause,
    },
};
use crate::{ConnectionId, EventLevel, ListenerId};

/// While memory is short, a connection that holds no more than this keeps it, bytes.
const SMALL_BUFFER: usize = 64 * 1024;
/// While memory is short, one part in `GIVEN_UP` of what connections hold is given up at a time, and no sooner than `GIVEN_UP_EVERY` after the last
/// time: until then the memory of the process shows how much that freed.
const GIVEN_UP: u64 = 4;
const GIVEN_UP_EVERY: Duration = Duration::from_millis(100);

/// What yields of these connections. `held`: what each holds.
fn yielding<'a>(
    connections: impl Iterator<Item = (ConnectionId, &'a Connection)>,
    held: impl Fn(&Connection) -> usize,
    enough: u64,
) -> Vec<(ConnectionId, usize)> {
    let all = connections.map(|(id, connection)| Held {
        id,
        source: connection.peer.ip().into(),
        serial: connection.serial,
        amount: held(connection),
    });
    heaviest(all, enough)
}

/// What a connection without a session holds, bytes.
fn held_half_open(connection: &Connection) -> usize {
    match connection.phase {
        Phase::AwaitConnect
        | Phase::AwaitVerdict
        | Phase::AwaitAuth(_)
        | Phase::AwaitClaim { .. } => connection.partial.len(),
        Phase::Attached(_) | Phase::Closing => 0,
    }
}

/// Connections without a session hold what they sent; too much of that in all, and some end.
pub(super) fn bound_half_open(cx: &mut Context, id: ConnectionId) {
    let Some(connection) = cx.connections.get(id) else {
        return;
    };
    let held = held_half_open(connection);
    cx.connections.count_half_open(id, held);
    let (bytes, limit) = (
        cx.connections.half_open_bytes(),
        cx.config.limits.half_open_bytes,
    );
    if held == 0 || bytes <= limit {
        return;
    }
    // More than what is too much, so that this is seldom.
    let too_much = bytes - limit + limit / 8;
    for (id, held) in yielding(cx.connections.iter(), |it| it.half_open, too_much) {
        cx.traffic.half_open_refused += 1;
        cx.event(
            EventLevel::Warn,
            "connection closed: incomplete CONNECTs exceed `half_open_bytes`",
            vec![("bytes", held.to_string())],
        );
        cx.close(id);
    }
}

impl WorkerOperator<'_> {
    /// There is no place for another connection: of some that have sent no CONNECT yet, the oldest of the address with most of them is closed. `false`:
    /// there are none. `has_place`: whether a connection at a listener has such a place.
    pub fn make_way(&mut self, has_place: impl Fn(ConnectionId, ListenerId) -> bool) -> bool {
        let now = self.now;
        let is_idle = |connection: &Connection| {
            let has_waited = now.instant.since(connection.last_packet) >= JUST_CONNECTED;
            if has_waited {
                thicket_session::reach!("time JUST_CONNECTED");
            }
            usize::from(has_waited && matches!(connection.phase, Phase::AwaitConnect))
        };
        let some = self.worker.cx.connections.next(LOOKED_AT);
        let some = some.filter(|(id, it)| has_place(*id, it.listener));
        let Some((id, _)) = yielding(some, is_idle, 1).pop() else {
            return false;
        };
        self.worker.cx.traffic.half_open_refused += 1;
        self.worker.cx.close(id);
        true
    }

    /// While memory is short: connections that hold much of what their clients sent in part, or have not received, are closed (0x97), those of the
    /// address that holds most first. Sessions stay. Returns how many bytes these held.
    pub fn give_up_buffers(&mut self) -> u64 {
        let now = self.now;
        if now.instant.since(self.worker.cx.gave_up_at) < GIVEN_UP_EVERY {
            return 0;
        }
        thicket_session::reach!("time GIVEN_UP_EVERY");
        self.worker.cx.gave_up_at = now.instant;
        let held = |connection: &Connection| {
            let held = connection.partial.capacity() + connection.out.bytes.capacity();
            let is_open = !matches!(connection.phase, Phase::Closing);
            if is_open && held > SMALL_BUFFER {
                held
            } else {
                0
            }
        };
        let all: u64 = (self.worker.cx.connections.iter())
            .map(|(_, it)| held(it) as u64)
            .sum();
        let mut given_up = 0;
        for (id, held) in yielding(self.worker.cx.connections.iter(), held, all / GIVEN_UP) {
            given_up += held as u64;
            self.worker.cx.event(
                EventLevel::Warn,
                "connection closed: memory limit reached, and its buffers are among the largest",
                vec![("bytes", held.to_string())],
            );
            if self.worker.cx.session_at(id).is_some() {
                let reason = "memory is short, and the connection holds much";
                (self.worker.cx).disconnect(id, ReasonCode::QuotaExceeded, reason);
                self.worker.detach(now, id, Cause::Closed);
            } else {
                self.worker.cx.close(id);
            }
        }
        given_up
    }
}
