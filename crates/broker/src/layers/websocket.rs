//! WebSocket inside rounds: frames are decoded in place, and each flush is one frame.

use std::io;
use std::sync::Arc;

use thicket_transport::websocket::{
    Control, Decoder, LONGEST_HANDSHAKE, Opcode, Role, close_frame, decode_request,
    encode_response, frame_header, pong_frame,
};

use super::failure::invalid;
use crate::config;

/// The status of a close frame for a normal end (RFC 6455 7.4.1).
const NORMAL: u16 = 1000;

/// The server's side of a WebSocket.
#[derive(Debug)]
pub(crate) struct WebSocket {
    state: State,
    /// Frame bytes that the layer below has not accepted yet: nothing is sent before them.
    pub(crate) unsent: Vec<u8>,
    /// Payload bytes that belong to the frame whose header was written.
    frame_left: usize,
    /// The answer to the last ping (RFC 6455 5.5.3: answering the last is enough).
    pong: Option<Box<[u8]>>,
    /// The status of a close frame to send.
    close: Option<u16>,
    /// Our close frame is in `unsent` or was sent.
    has_closed: bool,
}

#[derive(Debug)]
enum State {
    /// The request so far.
    Handshake {
        request: Vec<u8>,
        settings: Arc<config::WebSocket>,
    },
    Open(Decoder),
}

impl WebSocket {
    pub(crate) const fn new(settings: Arc<config::WebSocket>) -> Self {
        Self {
            state: State::Handshake {
                request: Vec::new(),
                settings,
            },
            unsent: Vec::new(),
            frame_left: 0,
            pong: None,
            close: None,
            has_closed: false,
        }
    }

    /// The request has not been answered yet.
    pub(super) const fn is_handshaking(&self) -> bool {
        matches!(self.state, State::Handshake { .. })
    }

    /// Decodes received bytes; the payloads of data frames are moved to the start of `bytes`. Returns their length.
    pub(crate) fn unframe(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let State::Handshake { request, settings } = &mut self.state else {
            return self.decode(bytes);
        };
        // Bytes beyond the limit would be frames; no client sends so many before the answer.
        if request.len() + bytes.len() > 2 * LONGEST_HANDSHAKE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        request.extend_from_slice(bytes);
        let decoded = match decode_request(request, &settings.path) {
            Ok(None) => return Ok(0),
            Ok(Some(decoded)) => decoded,
            Err(error) => {
                self.unsent = error.response();
                // The answer takes the place of a close frame.
                self.has_closed = true;
                return Err(invalid(error));
            }
        };
        let rest = request.split_off(decoded.len);
        self.unsent = encode_response(&decoded);
        self.state = State::Open(Decoder::new(Role::Server, settings.frame_bytes));
        let Some(rest_bytes) = bytes.get_mut(..rest.len()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        rest_bytes.copy_from_slice(&rest);
        self.decode(rest_bytes)
    }

    fn decode(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let State::Open(decoder) = &mut self.state else {
            return Ok(0);
        };
        let (pong, close) = (&mut self.pong, &mut self.close);
        let result = decoder.decode(bytes, |control| match control {
            Control::Ping(payload) => *pong = Some(payload.into()),
            Control::Pong => {}
            Control::Close(status) => *close = Some(status.unwrap_or(NORMAL)),
        });
        result.map_err(|error| {
            self.close = Some(error.status());
            self.queue_owed();
            invalid(error)
        })
    }

    /// The peer sent its close frame.
    pub(crate) const fn is_over(&self) -> bool {
        match &self.state {
            State::Handshake { .. } => false,
            State::Open(decoder) => decoder.is_closed(),
        }
    }

    /// Our close frame is sent before remaining data of MQTT, which is dropped: no data follows a close frame (RFC 6455 5.5.1).
    pub(super) fn has_ended(&mut self) -> bool {
        self.queue_owed();
        self.has_closed && self.frame_left == 0
    }

    /// The next `len` bytes of payload are sent: returns how many belong to the current frame, which is begun if there is none.
    pub(crate) fn begin_frame(&mut self, len: usize) -> usize {
        if self.frame_left == 0 && len > 0 {
            self.queue_owed();
            frame_header(Opcode::Binary, len, None, &mut self.unsent);
            self.frame_left = len;
        }
        self.frame_left.min(len)
    }

    /// The layer below has accepted so many bytes of `unsent` and of the payload.
    pub(crate) fn consume(&mut self, of_unsent: usize, of_payload: usize) {
        self.unsent.drain(..of_unsent);
        if self.unsent.is_empty() && self.unsent.capacity() > 64 {
            self.unsent = Vec::new();
        }
        self.frame_left -= of_payload;
    }

    /// Moves pending control frames into `unsent`, unless a data frame is incomplete.
    pub(crate) fn queue_owed(&mut self) {
        if self.frame_left > 0 || self.has_closed || matches!(self.state, State::Handshake { .. }) {
            return;
        }
        if let Some(payload) = self.pong.take() {
            pong_frame(&payload, None, &mut self.unsent);
        }
        if let Some(status) = self.close.take() {
            close_frame(Some(status), None, &mut self.unsent);
            self.has_closed = true;
        }
    }

    pub(crate) const fn has_unsent(&self) -> bool {
        let owes = self.frame_left == 0
            && !self.has_closed
            && (self.pong.is_some() || self.close.is_some());
        !self.unsent.is_empty() || owes
    }

    /// Closes the connection from this side.
    pub(crate) fn close(&mut self) {
        if self.close.is_none() {
            self.close = Some(NORMAL);
        }
        self.queue_owed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> WebSocket {
        let settings = config::WebSocket {
            path: "/mqtt".into(),
            frame_bytes: 1000,
        };
        WebSocket {
            state: State::Open(Decoder::new(Role::Server, settings.frame_bytes)),
            ..WebSocket::new(Arc::new(settings))
        }
    }

    #[test]
    fn no_data_follows_the_answer_to_a_close_frame() {
        let mut socket = open();
        assert!(!socket.has_ended());
        assert_eq!(socket.begin_frame(2), 2);
        socket.consume(socket.unsent.len(), 1);
        let mut close = [0x88, 0x80, 0, 0, 0, 0];
        assert!(matches!(socket.unframe(&mut close), Ok(0)));
        assert!(
            socket.is_over() && !socket.has_ended(),
            "a frame is under way"
        );
        assert_eq!(socket.begin_frame(1), 1, "the rest of it");
        socket.consume(0, 1);
        assert!(socket.has_ended());
        assert_eq!(socket.unsent, [0x88, 2, 0x03, 0xe8]);
    }
}
