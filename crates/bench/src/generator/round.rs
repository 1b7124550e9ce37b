//! One round of the loop: wait, read, check, write.

use std::io;
use std::time::Duration;

use super::client::{Phase, Role};
use super::{Generator, TIMER};
use crate::BenchError;
use crate::socket::ReadOutcome;
use crate::wire::{self, Frame, Malformed};

impl Generator {
    /// Waits for events, or only polls while some socket may still have something to read.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BenchError> {
        let timeout = if self.readable.is_empty() {
            timeout
        } else {
            Some(Duration::ZERO)
        };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(BenchError::system("epoll")(error))
            }
            _ => Ok(()),
        }
    }

    /// Sends a PINGREQ of each client when three quarters of the keep alive are over.
    pub(super) fn ping(&mut self) -> Result<(), BenchError> {
        let keep_alive_ns = 1_000_000_000 * u64::from(self.scenario.keep_alive_s);
        let now_ns = self.now_ns();
        if keep_alive_ns == 0 || now_ns - self.pinged_ns < keep_alive_ns / 4 * 3 {
            return Ok(());
        }
        self.pinged_ns = now_ns;
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if client.is_ready()
                && let Err(source) = client.socket.send(&wire::PINGREQ)
            {
                let error = self.broken(index, source);
                self.on_lost(index, error)?;
            }
        }
        Ok(())
    }

    /// Sorts the events into the lists of clients to read and to write.
    pub(super) fn note_events(&mut self) {
        for event in self.events.iter() {
            let token = event.token();
            if token == TIMER {
                continue;
            }
            let client = &mut self.clients[token.0];
            if matches!(client.phase, Phase::Waits { .. }) {
                continue;
            }
            if event.is_readable() && !client.readable {
                client.readable = true;
                self.readable.push(token.0 as u32);
            }
            if event.is_writable() && client.socket.unsent() > 0 && !client.dirty {
                client.dirty = true;
                self.dirty.push(token.0 as u32);
            }
        }
    }

    /// Reads every ready socket once. Returns the clients whose CONNACK arrived.
    pub(super) fn read_all(&mut self) -> Result<Vec<u32>, BenchError> {
        let mut accepted = Vec::new();
        let mut ready = std::mem::take(&mut self.readable);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut still = 0;
        for position in 0..ready.len() {
            let index = ready[position];
            let client = &mut self.clients[index as usize];
            if matches!(client.phase, Phase::Waits { .. }) {
                continue;
            }
            let (len, outcome) = client.socket.read(&mut buffer);
            if outcome != ReadOutcome::More {
                client.readable = false;
            } else {
                ready[still] = index;
                still += 1;
            }
            match self.handle_bytes(index as usize, &buffer[..len]) {
                Ok(true) => accepted.push(index),
                Ok(false) => {}
                Err(error) => self.on_lost(index as usize, error)?,
            }
            let is_replaced = matches!(
                self.clients[index as usize].phase,
                Phase::Waits { .. } | Phase::Connecting
            );
            if outcome == ReadOutcome::Closed && !is_replaced {
                let failure = self.clients[index as usize].socket.take_failure();
                let source = failure.unwrap_or_else(|| io::ErrorKind::ConnectionAborted.into());
                let error = self.broken(index as usize, source);
                self.on_lost(index as usize, error)?;
            }
        }
        ready.truncate(still);
        self.readable = ready;
        self.buffer = buffer;
        Ok(accepted)
    }

    /// Handles the complete packets in `bytes` and keeps the rest; true if one was an accepting CONNACK.
    fn handle_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<bool, BenchError> {
        let now_ns = self.now_ns();
        let handled = self.handle_packets(index, bytes, now_ns);
        self.receiving.latency.end_batch(now_ns);
        self.acknowledging.time.end_batch(now_ns);
        handled
    }

    fn handle_packets(
        &mut self,
        index: usize,
        bytes: &[u8],
        now_ns: u64,
    ) -> Result<bool, BenchError> {
        let role = self.clients[index].role;
        let mut accepted = false;
        let mut at = 0;
        while let Some(frame) =
            wire::frame(bytes, at).map_err(|error| self.malformed(index, error))?
        {
            match (frame.first_byte >> 4, role) {
                (3, Role::Subscriber(subscriber)) => self
                    .on_publish(subscriber, bytes, frame, now_ns)
                    .map_err(|error| self.malformed(index, error))?,
                (4..=7, _) => {
                    self.on_acknowledgement((index, role), bytes, frame, now_ns)
                        .map_err(|error| self.malformed(index, error))?;
                }
                (13, _) => {}
                _ => {
                    accepted |= self.on_control(index, &bytes[at..frame.end])?;
                    if self.clients[index].phase == Phase::Connecting {
                        // It has another connection now.
                        return Ok(false);
                    }
                }
            }
            at = frame.end;
        }
        let socket = &mut self.clients[index].socket;
        socket.keep_rest(&bytes[at..]);
        if !self.answers.is_empty() {
            socket
                .send(&self.answers)
                .map_err(|source| self.broken(index, source))?;
            self.answers.clear();
        }
        Ok(accepted)
    }

    #[inline]
    fn on_publish(
        &mut self,
        subscriber: u32,
        bytes: &[u8],
        frame: Frame,
        now_ns: u64,
    ) -> Result<(), Malformed> {
        let parts = wire::publish_parts(bytes, frame)?;
        let payload = wire::payload_start(bytes, frame, parts, self.properties)?;
        let topic = &bytes[parts.topic..parts.topic_end];
        match self
            .receiving
            .on_message(subscriber, topic, &bytes[payload..frame.end], now_ns)
        {
            Some((index, came_on)) => {
                let stream = &mut self.streams[index as usize];
                stream.accounted += came_on;
                if !stream.queued {
                    stream.queued = true;
                    self.queued.push(index);
                }
            }
            None => self.receiving.counts.foreign += 1,
        }
        if parts.qos > 0 {
            let answer = if parts.qos == 1 {
                wire::PUBACK
            } else {
                wire::PUBREC
            };
            wire::push_acknowledgement(
                &mut self.answers,
                answer,
                wire::number_u16(bytes, parts.topic_end)?,
            );
        }
        Ok(())
    }

    /// One step of QoS 1 or 2, on either side.
    fn on_acknowledgement(
        &mut self,
        (index, role): (usize, Role),
        bytes: &[u8],
        frame: Frame,
        now_ns: u64,
    ) -> Result<(), Malformed> {
        let packet_id = wire::number_u16(bytes, frame.body)?;
        if frame.first_byte == wire::PUBREL {
            wire::push_acknowledgement(&mut self.answers, wire::PUBCOMP, packet_id);
            return Ok(());
        }
        // A reason code follows only in 5.0, and only where it is not plain success [MQTT-3.4.2-1].
        let refused = bytes[frame.body + 2..frame.end]
            .first()
            .is_some_and(|&code| code >= 0x80);
        self.receiving.counts.refused += u64::from(refused);
        let Role::Publisher(stream_index) = role else {
            return Ok(());
        };
        let stream = &mut self.streams[stream_index as usize];
        if frame.first_byte == wire::PUBREC && !refused {
            // Sent with the next messages of the stream.
            let client = &mut self.clients[index];
            wire::push_acknowledgement(client.socket.output(), wire::PUBREL, packet_id);
            if !client.dirty {
                client.dirty = true;
                self.dirty.push(index as u32);
            }
        } else if let Some(settled) = stream.settle(packet_id, refused)
            && self.receiving.measuring
            && !refused
        {
            self.acknowledging.note(stream_index, settled, now_ns);
        }
        if !stream.queued {
            stream.queued = true;
            self.queued.push(stream_index);
        }
        Ok(())
    }

    /// Writes pending bytes on each dirty socket, once.
    pub(super) fn write_dirty(&mut self) -> Result<(), BenchError> {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let client = &mut self.clients[index as usize];
            client.dirty = false;
            if matches!(client.phase, Phase::Waits { .. }) {
                continue;
            }
            if let Err(source) = client.socket.write() {
                let error = self.broken(index as usize, source);
                self.on_lost(index as usize, error)?;
            }
        }
        self.dirty = dirty;
        Ok(())
    }

    fn malformed(&self, index: usize, error: Malformed) -> BenchError {
        BenchError::Protocol {
            node: self.node_name(index),
            client_id: self.client_id(index),
            what: error.to_string(),
        }
    }
}
