//! Which connections are closed when connections, or memory for their buffers, run out: those of the address that uses most. So an address that uses
//! up everything harms only itself.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use thicket_mqtt::ReasonCode;

use super::{
    WorkerOperator,
    context::Context,
    state::{
        connection::{Connection, Phase},
        sessions::Cause,
    },
};
use crate::{ConnectionId, EventLevel, ListenerId, Source};

/// A client that has just connected is given this time for its CONNECT, however scarce places are.
const JUST_CONNECTED: Duration = Duration::from_millis(500);
/// Connections that are looked at, each time others, for one that yields to another: a stranger who opens many makes no work by that.
const LOOKED_AT: usize = 512;
/// While memory is short, a connection that holds no more than this keeps it, bytes.
const SMALL_BUFFER: usize = 64 * 1024;
/// While memory is short, one part in `GIVEN_UP` of what connections hold is given up at a time, and no sooner than `GIVEN_UP_EVERY` after the last
/// time: until then the memory of the process shows how much that freed.
const GIVEN_UP: u64 = 4;
const GIVEN_UP_EVERY: Duration = Duration::from_millis(100);

/// Connections that hold `enough` together, with what each holds: those of the address that holds most first; of one address those that hold most, and of
/// these the oldest.
fn heaviest<'a>(
    connections: impl Iterator<Item = (ConnectionId, &'a Connection)>,
    held: impl Fn(&Connection) -> usize,
    enough: u64,
) -> Vec<(ConnectionId, usize)> {
    let mut by_source: BTreeMap<Source, (u64, Vec<_>)> = BTreeMap::new();
    for (id, connection) in connections {
        let held = held(connection);
        if held > 0 {
            let source = Source::from(connection.peer.ip());
            let (sum, of_source) = by_source.entry(source).or_default();
            *sum += held as u64;
            of_source.push((Reverse(held), connection.serial, id));
        }
    }
    let mut sources: Vec<_> = by_source.into_values().collect();
    sources.sort_unstable_by_key(|(sum, _)| Reverse(*sum));
    let mut left = enough;
    let all = sources.into_iter().flat_map(|(_, mut of_source)| {
        of_source.sort_unstable();
        of_source
    });
    let enough = all.map_while(|(Reverse(held), _, id)| {
        let is_wanted = left > 0;
        left = left.saturating_sub(held as u64);
        is_wanted.then_some((id, held))
    });
    enough.collect()
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
    for (id, held) in heaviest(cx.connections.iter(), |it| it.half_open, too_much) {
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
        let Some((id, _)) = heaviest(some, is_idle, 1).pop() else {
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
        for (id, held) in heaviest(self.worker.cx.connections.iter(), held, all / GIVEN_UP) {
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

#[cfg(test)]
mod tests {
    use thicket_session::time::Instant;

    use super::*;

    #[test]
    fn the_address_that_holds_most_yields_first_with_what_is_largest() {
        let connection = |serial, host: u8, bytes| {
            let peer = ([192, 0, 2, host], 1).into();
            let mut connection = Connection::new(serial, ListenerId(0), peer, Instant::default());
            connection.partial = vec![0; bytes];
            connection
        };
        let all = [
            connection(1, 1, 50),
            connection(2, 2, 30),
            connection(3, 2, 10),
            connection(4, 2, 30),
            connection(5, 3, 0),
        ];
        let yielding = |enough| {
            let all = (0..).map(ConnectionId).zip(&all);
            let found = heaviest(all, |it| it.partial.len(), enough);
            found.into_iter().map(|(id, _)| id.0).collect::<Vec<_>>()
        };
        assert!(yielding(0).is_empty());
        assert_eq!(yielding(1), [1], "the older one of two");
        assert_eq!(yielding(60), [1, 3]);
        assert_eq!(yielding(71), [1, 3, 2, 0], "the next address");
        assert_eq!(yielding(1000), [1, 3, 2, 0]);
    }
}
