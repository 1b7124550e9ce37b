//! Events of a connection, copied from its bytes, and their effects on the session.

use thicket_mqtt::{PacketId, Publish, ReasonCode};
use thicket_session::client::{CleanStart, DisconnectReason, Event};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Asked, Drain, End, Report, Session};
use crate::Error;
use crate::endpoint::Address;
use crate::message::Message;
use crate::placement::{Entry, PLACEMENT};
use crate::routes::Outgoing;

/// An event of the client state machine that outlives its bytes.
#[derive(Debug)]
pub(super) enum Happened {
    Connected {
        session_present: bool,
        placement: Option<String>,
    },
    Message(Box<(Message, Option<String>)>, Option<PacketId>),
    Acknowledged(PacketId, ReasonCode),
    Discarded(PacketId, Option<Box<Message>>),
    Subscribed(PacketId, ReasonCode),
    Unsubscribed(PacketId),
    Pong,
    Ended(Ended),
}

#[derive(Debug)]
pub(super) enum Ended {
    Redirected(String),
    Refused(ReasonCode),
    TakenOver,
    Lost(String),
}

impl Happened {
    pub(super) fn from_event(event: &Event<'_>) -> Option<Self> {
        Some(match event {
            Event::Connected {
                session_present,
                connack,
            } => Self::Connected {
                session_present: *session_present,
                placement: connack
                    .user_properties
                    .iter()
                    .find(|(name, _)| *name == PLACEMENT)
                    .map(|(_, value)| (*value).to_owned()),
            },
            Event::Message(publish) => {
                Self::Message(Box::new(Message::received(publish)), publish.packet_id)
            }
            Event::Acknowledged {
                packet_id,
                reason_code,
            } => Self::Acknowledged(*packet_id, *reason_code),
            Event::Discarded { packet_id, publish } => {
                Self::Discarded(*packet_id, publish.as_ref().and_then(to_send_again))
            }
            Event::Subscribed {
                packet_id,
                reason_codes,
            } => Self::Subscribed(
                *packet_id,
                reason_codes.first().copied().unwrap_or_default(),
            ),
            Event::Unsubscribed { packet_id, .. } => Self::Unsubscribed(*packet_id),
            Event::Pong => Self::Pong,
            Event::Disconnected(reason) => Self::Ended(Ended::from_reason(reason)),
            Event::Authentication(_) => return None,
        })
    }
}

/// A message whose session is lost is sent again at QoS 1; at QoS 2 it might have been delivered already.
fn to_send_again(publish: &Publish<'_>) -> Option<Box<Message>> {
    use thicket_mqtt::Qos;
    match publish.qos {
        Qos::AtMostOnce | Qos::AtLeastOnce => Some(Box::new(Message::received(publish).0)),
        Qos::ExactlyOnce => None,
    }
}

impl Ended {
    fn from_reason(reason: &DisconnectReason<'_>) -> Self {
        let (code, reference, is_refusal) = match reason {
            DisconnectReason::Refused(connack) => {
                (connack.reason_code, connack.server_reference, true)
            }
            DisconnectReason::ByServer(disconnect) => {
                (disconnect.reason_code, disconnect.server_reference, false)
            }
            DisconnectReason::PeerError(error) => return Self::Lost(error.to_string()),
            DisconnectReason::ConnectTimeout => return Self::Lost("no CONNACK in time".to_owned()),
            DisconnectReason::PingTimeout => {
                return Self::Lost("no answer to PINGREQ in time".to_owned());
            }
        };
        match (code, reference) {
            (ReasonCode::UseAnotherServer | ReasonCode::ServerMoved, Some(reference)) => {
                Self::Redirected(reference.to_owned())
            }
            (ReasonCode::SessionTakenOver, _) => Self::TakenOver,
            (
                ReasonCode::ServerUnavailable
                | ReasonCode::ServerBusy
                | ReasonCode::ServerShuttingDown
                | ReasonCode::UseAnotherServer
                | ReasonCode::ServerMoved
                | ReasonCode::QuotaExceeded
                | ReasonCode::ConnectionRateExceeded
                | ReasonCode::UnspecifiedError
                | ReasonCode::ImplementationSpecificError,
                _,
            ) => Self::Lost(format!("{code:?}")),
            (code, _) if is_refusal => Self::Refused(code),
            (code, _) => Self::Lost(format!("DISCONNECT {code:?}")),
        }
    }
}

impl Session {
    /// Handles an event; a returned value ends the connection.
    pub(super) async fn on_happened(
        &mut self,
        happened: Happened,
        address: &Address,
    ) -> Option<End> {
        match happened {
            Happened::Connected {
                session_present,
                placement,
            } => {
                self.clean_start = CleanStart::No;
                self.hops = 0;
                self.previous = None;
                self.candidates.clear();
                self.places.clear();
                self.doubt_what_was_asked();
                self.on_resumed(session_present);
                if !session_present {
                    let mut lost = std::mem::take(&mut self.doubtful);
                    lost.extend(std::mem::take(&mut self.subscribed).into_keys());
                    for filter in lost {
                        self.report(Report::Unsubscribed { filter }).await;
                    }
                }
                let denied = placement
                    .as_ref()
                    .and_then(|answer| Entry::refused(answer, &self.asked_in_connect));
                let (followed, is_followed) = oneshot::channel();
                self.report(Report::Connected {
                    address: address.clone(),
                    placement,
                    denied,
                    followed,
                })
                .await;
                // It ends when the sender is dropped, also by a client that has ended.
                let _ = is_followed.await;
            }
            Happened::Message(message, packet_id) => {
                self.last_arrival = Instant::now();
                let (message, id) = *message;
                self.on_message(message, id, packet_id);
            }
            Happened::Acknowledged(packet_id, code) => {
                if let Some(pending) = self.waiting.remove(&packet_id) {
                    // Only a PUBCOMP reports an unknown identifier: the exchange had completed before PUBREL was sent again.
                    let is_over = code == ReasonCode::PacketIdentifierNotFound;
                    pending.settle(if code.is_error() && !is_over {
                        Err(Error::Refused(code))
                    } else {
                        Ok(if is_over { ReasonCode::Success } else { code })
                    });
                }
            }
            Happened::Discarded(packet_id, message) => {
                if let Some(pending) = self.waiting.remove(&packet_id) {
                    match message {
                        Some(message) => self.first.push_back(Outgoing {
                            message: *message,
                            pending,
                        }),
                        None => pending.settle(Err(Error::OutcomeUnknown)),
                    }
                }
            }
            Happened::Subscribed(packet_id, code) => self.on_suback(packet_id, code).await,
            Happened::Unsubscribed(packet_id) => {
                if let Some(Asked::Unsubscribe(filters)) = self.asked.remove(&packet_id) {
                    for filter in filters {
                        self.subscribed.remove(&filter);
                        self.doubtful.remove(&filter);
                        self.report(Report::Unsubscribed { filter }).await;
                    }
                    let since = Instant::now();
                    self.drain = Some(Drain::Quiet { since });
                }
            }
            Happened::Pong => self.on_pong().await,
            Happened::Ended(ended) => return Some(self.end(ended)),
        }
        None
    }

    /// Requests of the previous connection will not be answered any more: their outcome is unknown.
    fn doubt_what_was_asked(&mut self) {
        for (_, asked) in self.asked.drain() {
            let filters = match asked {
                Asked::Subscribe(filter, _) => vec![filter],
                Asked::Unsubscribe(filters) => filters,
            };
            for filter in filters {
                self.subscribed.remove(&filter);
                self.doubtful.insert(filter);
            }
        }
    }

    async fn on_suback(&mut self, packet_id: PacketId, code: ReasonCode) {
        let Some(Asked::Subscribe(filter, options)) = self.asked.remove(&packet_id) else {
            return;
        };
        self.doubtful.remove(&filter);
        let result = if code.is_error() {
            self.refused.insert(filter.clone(), options);
            Err(Error::Refused(code))
        } else {
            self.subscribed.insert(filter.clone(), options);
            Ok(code)
        };
        self.report(Report::Subscribed {
            filter,
            options,
            result,
        })
        .await;
    }

    async fn on_pong(&mut self) {
        if self.drain != Some(Drain::Pinged) {
            return;
        }
        if self.last_arrival.elapsed() >= self.shared.quiet && self.arrived.is_empty() {
            self.drain = Some(Drain::Done);
            self.report(Report::Drained).await;
        } else {
            let since = self.last_arrival;
            self.drain = Some(Drain::Quiet { since });
        }
    }

    fn end(&self, ended: Ended) -> End {
        match ended {
            Ended::Redirected(reference) => {
                let addresses = Address::list(&reference, self.shared.port);
                if addresses.is_empty() {
                    return End::Lost(format!("sent to {reference:?}, which is no server"));
                }
                End::Redirected(addresses)
            }
            Ended::Refused(code) => End::Refused(code),
            Ended::TakenOver => End::TakenOver,
            Ended::Lost(problem) => End::Lost(problem),
        }
    }
}
