//! Encodes and decodes frames (RFC 6455, section 5).
//!
//! The decoder works in place: it gets the bytes of one read, and moves the payloads of the data frames to their start, one after the other. It never
//! waits for a whole frame and keeps only a header or a control frame, at most 125 bytes, whatever length a peer claims.

/// Longest header: two bytes, a length of eight, a mask of four.
const LONGEST_HEADER: usize = 14;
/// Longest payload of a control frame (section 5.5).
const LONGEST_CONTROL: usize = 125;

/// The side that decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// We are the server: frames must be masked.
    Server,
    /// We are the client: frames must not be masked.
    Client,
}

/// The kind of a frame (section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// The continuation of a message.
    Continuation,
    /// Not for MQTT [MQTT-6.0.0-1].
    Text,
    /// Packets.
    Binary,
    /// The peer closes the connection.
    Close,
    /// Wants a pong.
    Ping,
    /// Answers a ping.
    Pong,
}

/// A received control frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control<'a> {
    /// Answer with a pong of the same payload.
    Ping(&'a [u8]),
    /// Nothing to do.
    Pong,
    /// Answer with a close frame of this status, if one came, and close. Nothing is decoded after it.
    Close(Option<u16>),
}

/// A frame the peer should not have sent; close the connection with [`FrameError::status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Malformed: against section 5.
    #[error("malformed frame: {0}")]
    Malformed(&'static str),
    /// Protocol: MQTT travels in binary frames only [MQTT-6.0.0-1].
    #[error("a text frame, where MQTT wants binary ones")]
    Text,
    /// Refused: a frame longer than we allow.
    #[error("a frame of {len} bytes, {maximum} are allowed")]
    TooLong {
        /// As claimed.
        len: u64,
        /// As allowed.
        maximum: u64,
    },
}

impl FrameError {
    /// The status of the close frame (section 7.4.1).
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 1002,
            Self::Text => 1003,
            Self::TooLong { .. } => 1009,
        }
    }
}

/// Decodes the frames of one direction of a connection.
#[derive(Debug, Clone)]
pub struct Decoder {
    role: Role,
    maximum: u64,
    /// A message is incomplete: continuations follow.
    in_message: bool,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Header {
        bytes: [u8; LONGEST_HEADER],
        len: usize,
    },
    Data {
        left: u64,
        mask: [u8; 4],
        offset: usize,
    },
    Control {
        opcode: Opcode,
        mask: [u8; 4],
        wanted: usize,
        bytes: [u8; LONGEST_CONTROL],
        len: usize,
    },
    Closed,
}

/// A decoded header.
#[derive(Debug, Clone, Copy)]
struct Header {
    is_final: bool,
    opcode: Opcode,
    mask: Option<[u8; 4]>,
    payload_len: u64,
}

const START: State = State::Header {
    bytes: [0; LONGEST_HEADER],
    len: 0,
};

impl Decoder {
    /// For a connection on which nothing was received after the handshake. `maximum` bounds the payload of one frame, in bytes.
    #[must_use]
    pub const fn new(role: Role, maximum: u64) -> Self {
        Self {
            role,
            maximum,
            in_message: false,
            state: START,
        }
    }

    /// Decodes all of `bytes`: payloads of data frames are moved to its start, and their total length is returned. Control frames are reported in
    /// order.
    ///
    /// # Errors
    /// The first invalid frame. What came before it is lost; the connection must be closed.
    pub fn decode(
        &mut self,
        bytes: &mut [u8],
        mut on_control: impl FnMut(Control<'_>),
    ) -> Result<usize, FrameError> {
        let (mut read, mut written) = (0, 0);
        while read < bytes.len() {
            match &mut self.state {
                State::Header { bytes: header, len } => {
                    header[*len] = bytes[read];
                    *len += 1;
                    read += 1;
                    let (header, len) = (*header, *len);
                    if let Some(header) = decode_header(&header[..len])? {
                        self.begin(header)?;
                        // A control frame without payload is complete already.
                        self.end_control(&mut on_control);
                    }
                }
                State::Data { left, mask, offset } => {
                    let count = usize::try_from(*left)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len() - read);
                    bytes.copy_within(read..read + count, written);
                    apply_mask(&mut bytes[written..written + count], *mask, *offset);
                    *offset = (*offset + count) % 4;
                    *left -= count as u64;
                    read += count;
                    written += count;
                    if *left == 0 {
                        self.state = START;
                    }
                }
                State::Control {
                    wanted,
                    bytes: kept,
                    len,
                    ..
                } => {
                    let count = (*wanted - *len).min(bytes.len() - read);
                    kept[*len..*len + count].copy_from_slice(&bytes[read..read + count]);
                    *len += count;
                    read += count;
                    self.end_control(&mut on_control);
                }
                State::Closed => break,
            }
        }
        Ok(written)
    }

    /// Whether the peer has sent its close frame.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// A header is complete: checks it; its payload follows.
    fn begin(&mut self, header: Header) -> Result<(), FrameError> {
        let mask = match (self.role, header.mask) {
            (Role::Server, Some(mask)) => mask,
            (Role::Client, None) => [0; 4],
            (Role::Server, None) => {
                return Err(FrameError::Malformed("a client's frame must be masked"));
            }
            (Role::Client, Some(_)) => {
                return Err(FrameError::Malformed("a server's frame must not be masked"));
            }
        };
        match header.opcode {
            Opcode::Text => return Err(FrameError::Text),
            Opcode::Close | Opcode::Ping | Opcode::Pong => return self.begin_control(header, mask),
            Opcode::Continuation if !self.in_message => {
                return Err(FrameError::Malformed("a continuation of nothing"));
            }
            Opcode::Binary if self.in_message => {
                return Err(FrameError::Malformed("a message within a message"));
            }
            Opcode::Continuation | Opcode::Binary => {}
        }
        if header.payload_len > self.maximum {
            return Err(FrameError::TooLong {
                len: header.payload_len,
                maximum: self.maximum,
            });
        }
        self.in_message = !header.is_final;
        self.state = match header.payload_len {
            0 => START,
            left => State::Data {
                left,
                mask,
                offset: 0,
            },
        };
        Ok(())
    }

    fn begin_control(&mut self, header: Header, mask: [u8; 4]) -> Result<(), FrameError> {
        let wanted = usize::try_from(header.payload_len).unwrap_or(usize::MAX);
        if !header.is_final || wanted > LONGEST_CONTROL {
            return Err(FrameError::Malformed(
                "a control frame is one frame of 125 bytes at most",
            ));
        }
        if header.opcode == Opcode::Close && wanted == 1 {
            return Err(FrameError::Malformed("a close frame with half a status"));
        }
        self.state = State::Control {
            opcode: header.opcode,
            mask,
            wanted,
            bytes: [0; LONGEST_CONTROL],
            len: 0,
        };
        Ok(())
    }

    /// Reports a control frame, if it is complete.
    fn end_control(&mut self, on_control: &mut impl FnMut(Control<'_>)) {
        let State::Control {
            opcode,
            mask,
            wanted,
            mut bytes,
            len,
        } = self.state
        else {
            return;
        };
        if len < wanted {
            return;
        }
        let payload = &mut bytes[..wanted];
        apply_mask(payload, mask, 0);
        self.state = START;
        match opcode {
            Opcode::Ping => on_control(Control::Ping(payload)),
            Opcode::Close => {
                let status = payload
                    .first_chunk()
                    .map(|status| u16::from_be_bytes(*status));
                self.state = State::Closed;
                on_control(Control::Close(status));
            }
            Opcode::Pong => on_control(Control::Pong),
            Opcode::Continuation | Opcode::Text | Opcode::Binary => {}
        }
    }
}

/// `None`: the header is incomplete. `bytes` contains at most a header.
fn decode_header(bytes: &[u8]) -> Result<Option<Header>, FrameError> {
    let &[first, second, ref rest @ ..] = bytes else {
        return Ok(None);
    };
    if first & 0x70 != 0 {
        return Err(FrameError::Malformed(
            "a reserved bit is set, and no extension was agreed on",
        ));
    }
    let opcode = match first & 0x0f {
        0x0 => Opcode::Continuation,
        0x1 => Opcode::Text,
        0x2 => Opcode::Binary,
        0x8 => Opcode::Close,
        0x9 => Opcode::Ping,
        0xa => Opcode::Pong,
        _ => return Err(FrameError::Malformed("unknown opcode")),
    };
    let (length_len, smallest) = match second & 0x7f {
        126 => (2, 126),
        127 => (8, 1 << 16),
        _ => (0, 0),
    };
    let is_masked = second & 0x80 != 0;
    if rest.len() < length_len + if is_masked { 4 } else { 0 } {
        return Ok(None);
    }
    let (length, mask) = rest.split_at(length_len);
    let payload_len = match length_len {
        0 => u64::from(second & 0x7f),
        _ => length
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    if payload_len < smallest || payload_len >> 63 != 0 {
        // Section 5.2: the shortest form, and the highest bit is 0.
        return Err(FrameError::Malformed(
            "a length in a form that is not its own",
        ));
    }
    Ok(Some(Header {
        is_final: first & 0x80 != 0,
        opcode,
        mask: is_masked.then(|| mask.first_chunk().copied()).flatten(),
        payload_len,
    }))
}

/// Masks or unmasks; `offset` is where in the payload `bytes` starts (section 5.3).
pub fn apply_mask(bytes: &mut [u8], mask: [u8; 4], offset: usize) {
    if mask == [0; 4] {
        return;
    }
    let mut rotated = mask;
    rotated.rotate_left(offset % 4);
    let wide = u64::from_ne_bytes([
        rotated[0], rotated[1], rotated[2], rotated[3], rotated[0], rotated[1], rotated[2],
        rotated[3],
    ]);
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        let word = u64::from_ne_bytes([
            chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
        ]);
        chunk.copy_from_slice(&(word ^ wide).to_ne_bytes());
    }
    for (byte, mask) in chunks
        .into_remainder()
        .iter_mut()
        .zip(rotated.iter().cycle())
    {
        *byte ^= mask;
    }
}

/// Appends the header of a final frame whose payload is `payload_len` bytes.
pub fn frame_header(opcode: Opcode, payload_len: usize, mask: Option<[u8; 4]>, into: &mut Vec<u8>) {
    let code = match opcode {
        Opcode::Continuation => 0x0,
        Opcode::Text => 0x1,
        Opcode::Binary => 0x2,
        Opcode::Close => 0x8,
        Opcode::Ping => 0x9,
        Opcode::Pong => 0xa,
    };
    into.push(0x80 | code);
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload_len {
        0..=125 => into.push(masked | payload_len as u8),
        126..=0xffff => {
            into.push(masked | 126);
            into.extend((payload_len as u16).to_be_bytes());
        }
        _ => {
            into.push(masked | 127);
            into.extend((payload_len as u64).to_be_bytes());
        }
    }
    into.extend(mask.into_iter().flatten());
}

/// Appends a close frame.
pub fn close_frame(status: Option<u16>, mask: Option<[u8; 4]>, into: &mut Vec<u8>) {
    let mut payload = status
        .map(u16::to_be_bytes)
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    control_frame(Opcode::Close, &mut payload, mask, into);
}

/// Appends the answer to a ping.
pub fn pong_frame(payload: &[u8], mask: Option<[u8; 4]>, into: &mut Vec<u8>) {
    control_frame(Opcode::Pong, &mut payload.to_vec(), mask, into);
}

fn control_frame(opcode: Opcode, payload: &mut [u8], mask: Option<[u8; 4]>, into: &mut Vec<u8>) {
    frame_header(opcode, payload.len(), mask, into);
    apply_mask(payload, mask.unwrap_or_default(), 0);
    into.extend(payload.iter());
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    const MAXIMUM: u64 = 1 << 20;

    /// A frame as a client sends it.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame_header(Opcode::Binary, payload.len(), Some(MASK), &mut bytes);
        bytes[0] = first;
        let mut payload = payload.to_vec();
        apply_mask(&mut payload, MASK, 0);
        bytes.extend(payload);
        bytes
    }

    /// What a server decodes from bytes in pieces of `step`: data, and control frames in words.
    fn decode(bytes: &[u8], step: usize) -> Result<(Vec<u8>, Vec<String>), FrameError> {
        let mut decoder = Decoder::new(Role::Server, MAXIMUM);
        let (mut data, mut controls) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(step) {
            let mut piece = piece.to_vec();
            let count =
                decoder.decode(&mut piece, |control| controls.push(format!("{control:?}")))?;
            data.extend(&piece[..count]);
        }
        Ok((data, controls))
    }

    #[test]
    fn the_examples_of_the_specification_are_read() {
        // RFC 6455 5.7: a masked "Hello", here as a binary frame.
        let hello = [
            0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
        ];
        assert_eq!(decode(&hello, 64).expect("good").0, b"Hello");
        let ping = [
            0x89, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
        ];
        let expected = format!("{:?}", Control::Ping(b"Hello"));
        assert_eq!(decode(&ping, 64).expect("good").1, [expected]);
        let mut short = Vec::new();
        frame_header(Opcode::Binary, 256, None, &mut short);
        assert_eq!(short, [0x82, 0x7e, 0x01, 0x00]);
        let mut long = Vec::new();
        frame_header(Opcode::Binary, 65536, None, &mut long);
        assert_eq!(long, [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn packets_arrive_whole_however_they_are_cut_into_frames_and_reads() {
        let long: Vec<u8> = (0..70_000_u32).map(|n| n as u8).collect();
        let pieces: [(u8, &[u8]); 9] = [
            (0x82, b"one"),
            (0x82, b""),
            (0x02, b"two "),
            (0x89, b"are you there"),
            (0x00, b""),
            (0x8a, b""),
            (0x80, b"three"),
            (0x82, &long[..200]),
            (0x82, &long),
        ];
        let sent: Vec<u8> = pieces
            .iter()
            .flat_map(|(first, payload)| frame(*first, payload))
            .collect();
        let expected = [b"onetwo three", &long[..200], &long].concat();
        for step in [1, 2, 3, 5, 7, 1000, 1 << 20] {
            let (data, controls) = decode(&sent, step).expect("good frames");
            assert!(data == expected, "pieces of {step}");
            assert_eq!(controls.len(), 2, "pieces of {step}");
        }
    }

    #[test]
    fn nothing_is_read_after_a_close_frame() {
        for (payload, expected) in [
            (&b""[..], None),
            (&[0x03, 0xe8], Some(1000)),
            (b"\x03\xe9bye", Some(1001)),
        ] {
            let bytes = [
                frame(0x82, b"last"),
                frame(0x88, payload),
                frame(0x82, b"more"),
                vec![0xff; 8],
            ]
            .concat();
            let (data, controls) = decode(&bytes, 3).expect("good frames");
            assert_eq!(data, b"last");
            assert_eq!(controls, [format!("{:?}", Control::Close(expected))]);
        }
    }

    #[test]
    fn frames_that_should_not_come_are_refused_with_their_status() {
        let unmasked = vec![0x82, 0x01, 0x00];
        let cases: [(&str, Vec<u8>, u16); 13] = [
            ("text", frame(0x81, b"x"), 1003),
            ("not masked", unmasked, 1002),
            ("reserved bit", frame(0xc2, b"x"), 1002),
            ("opcode 3", frame(0x83, b"x"), 1002),
            ("opcode 11", frame(0x8b, b"x"), 1002),
            ("continuation of nothing", frame(0x80, b"x"), 1002),
            (
                "message within a message",
                [frame(0x02, b"x"), frame(0x82, b"y")].concat(),
                1002,
            ),
            ("ping in pieces", frame(0x09, b"x"), 1002),
            ("long ping", frame(0x89, &[0; 126]), 1002),
            ("half a status", frame(0x88, b"x"), 1002),
            (
                "long form of a short length",
                vec![0x82, 0xfe, 0, 125, 0, 0, 0, 0],
                1002,
            ),
            (
                "longest form of a short length",
                vec![0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0],
                1002,
            ),
            (
                "highest bit",
                [&[0x82, 0xff, 0x80][..], &[0; 11]].concat(),
                1002,
            ),
        ];
        for (name, bytes, status) in cases {
            for step in [1, 64] {
                let error = decode(&bytes, step).expect_err(name);
                assert_eq!(error.status(), status, "{name}: {error}");
            }
        }
    }

    #[test]
    fn a_giant_claimed_length_is_refused_with_its_header() {
        let mut header = Vec::new();
        frame_header(
            Opcode::Binary,
            MAXIMUM as usize + 1,
            Some(MASK),
            &mut header,
        );
        assert_eq!(decode(&header, 64).expect_err("too long").status(), 1009);
    }

    #[test]
    fn a_client_refuses_a_masked_frame() {
        let mut decoder = Decoder::new(Role::Client, MAXIMUM);
        assert!(decoder.decode(&mut frame(0x82, b"x"), |_| {}).is_err());
    }

    #[test]
    fn masking_twice_from_any_offset_changes_nothing() {
        let original: Vec<u8> = (0..100).collect();
        for offset in 0..8 {
            let mut bytes = original.clone();
            apply_mask(&mut bytes, MASK, offset);
            let naive: Vec<u8> = original
                .iter()
                .enumerate()
                .map(|(n, byte)| byte ^ MASK[(n + offset) % 4])
                .collect();
            assert_eq!(bytes, naive, "offset {offset}");
            apply_mask(&mut bytes, MASK, offset);
            assert_eq!(bytes, original, "offset {offset}");
        }
    }
}
