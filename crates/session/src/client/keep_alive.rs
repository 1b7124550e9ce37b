//! Keep alive: when to send a PINGREQ and when to give the server up (5.0, 3.1.2.10).
//!
//! | waiting for PINGRESP | event | then | action |
//! | --- | --- | --- | --- |
//! | no | nothing sent for three quarters of the interval | yes | PINGREQ |
//! | no | PINGRESP | no | |
//! | yes | PINGRESP | no | |
//! | yes | other bytes | yes, deadline moved | |
//! | yes | nothing sent for three quarters of the interval | yes, deadline as it was | PINGREQ |
//! | yes | deadline | - | close |

use std::time::Duration;

use crate::Instant;

#[derive(Debug)]
pub(super) struct KeepAlive {
    /// `None`: keep alive is off.
    idle_limit: Option<Duration>,
    ping_timeout: Duration,
    last_sent: Instant,
    response: Response,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Response {
    NotAwaited,
    Awaited { deadline: Instant },
}

/// What a timeout asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepAliveAction {
    Nothing,
    SendPing,
    Close,
}

impl KeepAlive {
    /// `seconds` is the interval that applies: the server's if it gave one, else ours [MQTT-3.2.2-21]. `last_sent`: when the last packet before the
    /// CONNACK left, as the server may count from there.
    pub(super) fn new(last_sent: Instant, seconds: u16, ping_timeout: Duration) -> Self {
        // Early enough that a slow timer or network does not use up what the server allows.
        let idle_limit = (seconds > 0).then(|| Duration::from_secs(seconds.into()) * 3 / 4);
        Self {
            idle_limit,
            ping_timeout,
            last_sent,
            response: Response::NotAwaited,
        }
    }

    #[inline]
    pub(super) const fn on_sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    pub(super) fn on_ping_sent(&mut self, now: Instant) {
        self.last_sent = now;
        if self.response == Response::NotAwaited {
            self.response = Response::Awaited {
                deadline: now + self.ping_timeout,
            };
        }
    }

    /// Any byte shows that the server is alive: its answer may be behind much else.
    #[inline]
    pub(super) fn on_received(&mut self, now: Instant) {
        if let Response::Awaited { deadline } = &mut self.response {
            *deadline = now + self.ping_timeout;
        }
    }

    pub(super) const fn on_pong(&mut self) {
        self.response = Response::NotAwaited;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let idle = self.idle_deadline();
        match self.response {
            Response::NotAwaited => idle,
            Response::Awaited { deadline } => {
                Some(idle.map_or(deadline, |idle| idle.min(deadline)))
            }
        }
    }

    pub(super) fn on_timeout(&self, now: Instant) -> KeepAliveAction {
        match self.response {
            Response::Awaited { deadline } if now >= deadline => KeepAliveAction::Close,
            Response::Awaited { .. } | Response::NotAwaited => match self.idle_deadline() {
                Some(deadline) if now >= deadline => KeepAliveAction::SendPing,
                Some(_) | None => KeepAliveAction::Nothing,
            },
        }
    }

    fn idle_deadline(&self) -> Option<Instant> {
        self.idle_limit.map(|limit| self.last_sent + limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    fn keep_alive(seconds: u16) -> KeepAlive {
        KeepAlive::new(at(0), seconds, Duration::from_secs(10))
    }

    #[test]
    fn every_line_of_the_table_holds() {
        use KeepAliveAction::{Close, Nothing, SendPing};
        let mut quiet = keep_alive(60);
        assert_eq!(
            (quiet.deadline(), quiet.on_timeout(at(44))),
            (Some(at(45)), Nothing)
        );
        quiet.on_sent(at(20));
        assert_eq!(
            (quiet.deadline(), quiet.on_timeout(at(45))),
            (Some(at(65)), Nothing)
        );
        assert_eq!(quiet.on_timeout(at(65)), SendPing);
        quiet.on_pong();
        assert_eq!(quiet.deadline(), Some(at(65)));

        let mut waiting = keep_alive(60);
        waiting.on_ping_sent(at(45));
        assert_eq!(
            (waiting.deadline(), waiting.on_timeout(at(54))),
            (Some(at(55)), Nothing)
        );
        waiting.on_received(at(50));
        assert_eq!(
            (waiting.deadline(), waiting.on_timeout(at(55))),
            (Some(at(60)), Nothing)
        );
        assert_eq!(waiting.on_timeout(at(60)), Close);
        waiting.on_pong();
        assert_eq!(
            (waiting.deadline(), waiting.on_timeout(at(60))),
            (Some(at(90)), Nothing)
        );

        let mut short = keep_alive(4);
        short.on_ping_sent(at(3));
        assert_eq!(
            short.on_timeout(at(6)),
            SendPing,
            "the server must hear from us while we wait"
        );
        short.on_ping_sent(at(6));
        assert_eq!(
            short.on_timeout(at(13)),
            Close,
            "the deadline stays that of the first"
        );
    }

    #[test]
    fn without_keep_alive_only_an_asked_for_ping_times_out() {
        let mut off = keep_alive(0);
        assert_eq!(
            (off.deadline(), off.on_timeout(at(1_000_000))),
            (None, KeepAliveAction::Nothing)
        );
        off.on_ping_sent(at(5));
        assert_eq!(
            (off.deadline(), off.on_timeout(at(15))),
            (Some(at(15)), KeepAliveAction::Close)
        );
    }
}
