//! Clients that lose their connection in the middle of a run and make another one.

use std::time::Duration;

use super::Generator;
use super::client::{Client, Phase, Role};
use crate::BenchError;

/// Before the next attempt.
const PAUSE: Duration = Duration::from_millis(200);
/// Without an answer to CONNECT or SUBSCRIBE for so long, the next attempt begins.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Generator {
    /// A client has lost its connection, or got none: it waits before the next one. Where clients do not connect again, and where the broker broke the
    /// protocol, that is the error.
    pub(super) fn on_lost(&mut self, index: usize, error: BenchError) -> Result<(), BenchError> {
        let is_of_connection = matches!(
            error,
            BenchError::Closed { .. }
                | BenchError::Refused { .. }
                | BenchError::SubscriptionRefused { .. }
                | BenchError::Unreachable { .. }
        );
        let is_connecting_first = self.plan.is_none() || !self.is_running;
        if is_connecting_first || !is_of_connection {
            return Err(error);
        }
        let until_ns = self.now_ns() + PAUSE.as_nanos() as u64;
        // What is left for the client that is being read is of the old connection.
        self.answers.clear();
        let client = &mut self.clients[index];
        let counts = &mut self.receiving.counts;
        if client.is_ready() {
            counts.closed_connections += 1;
            self.away.push(index as u32);
        } else {
            counts.refused_connections += 1;
        }
        client.phase = Phase::Waits { until_ns };
        // It is closed when the next one takes its place.
        let _ = self.poll.registry().deregister(&mut client.socket.stream);
        let _ = client.socket.stream.shutdown(std::net::Shutdown::Both);
        Ok(())
    }

    /// CONNECT on the connections that were made.
    pub(super) fn send_connects(&mut self) -> Result<(), BenchError> {
        for index in self.opened() {
            if let Err(error) = self.send_connect(index) {
                self.on_lost(index, error)?;
            }
        }
        Ok(())
    }

    /// Takes the next step of every client that is away. `accepted`: those whose CONNACK has just come.
    pub(super) fn reconnect(&mut self, accepted: &[u32]) -> Result<(), BenchError> {
        let Some(plan) = self.plan.take() else {
            return Ok(());
        };
        let mut result = Ok(());
        for &index in accepted {
            if let Err(error) = self.subscribe(index as usize, &plan) {
                result = result.and(self.on_lost(index as usize, error));
            }
        }
        self.plan = Some(plan);
        result?;
        let now_ns = self.now_ns();
        let mut away = std::mem::take(&mut self.away);
        let mut still = Vec::new();
        for index in away.drain(..) {
            match self.clients[index as usize].phase {
                Phase::Ready => self.resume(index as usize)?,
                Phase::Waits { until_ns } if until_ns <= now_ns => {
                    self.dial_again(index as usize)?;
                    still.push(index);
                }
                Phase::Waits { .. } => still.push(index),
                Phase::Connecting | Phase::AwaitsConnack | Phase::AwaitsSuback(_) => {
                    let since_ns = self.clients[index as usize].dialled_ns;
                    if now_ns.saturating_sub(since_ns) > TIMEOUT.as_nanos() as u64 {
                        let source = std::io::ErrorKind::TimedOut.into();
                        let node = self.node_name(index as usize);
                        self.on_lost(index as usize, BenchError::Unreachable { node, source })?;
                    }
                    still.push(index);
                }
            }
        }
        still.append(&mut self.away);
        self.away = still;
        Ok(())
    }

    fn dial_again(&mut self, index: usize) -> Result<(), BenchError> {
        let (role, node) = (self.clients[index].role, self.clients[index].node);
        match self.open_to(index, node) {
            Ok(stream) => {
                self.clients[index] = Client {
                    dialled_ns: self.now_ns(),
                    ..Client::new(stream, role, node)
                };
                Ok(())
            }
            Err(error) => self.on_lost(index, error),
        }
    }

    /// A publisher sends again what was not acknowledged.
    fn resume(&mut self, index: usize) -> Result<(), BenchError> {
        let Role::Publisher(stream_index) = self.clients[index].role else {
            return Ok(());
        };
        let stream = &mut self.streams[stream_index as usize];
        let mut again = Vec::new();
        self.receiving.counts.unknown += stream.write_again(&mut again);
        if !stream.queued {
            stream.queued = true;
            self.queued.push(stream_index);
        }
        match self.clients[index].socket.send(&again) {
            Ok(()) => Ok(()),
            Err(source) => {
                let error = self.broken(index, source);
                self.on_lost(index, error)
            }
        }
    }
}
