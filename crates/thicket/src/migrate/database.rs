//! The persistence file of Mosquitto 2.0 (`mosquitto.db`, version 6 of its format), read as it lies there.
//!
//! After a magic and a version follow chunks, each with a kind, a length and that many bytes. Lengths, identifiers of packets and the like are in network
//! byte order; the numbers of stored messages and times are in the byte order of the machine that wrote the file, here little-endian.
//!
//! | chunk | content |
//! | --- | --- |
//! | configuration | the size of the number of a stored message |
//! | stored message | number, when it expires, publisher, topic, payload, properties |
//! | client | identifier, user name, port of the listener, when the session expires, the last packet identifier |
//! | client message | a stored message in the queue of a client, or in flight from or to it, and how far |
//! | retained message | the number of a stored message |
//! | subscription | client, filter, options |
//!
//! No length in the file is trusted: everything is a part of the bytes that were read.

use std::collections::{BTreeMap, BTreeSet};

/// The first bytes.
const MAGIC: &[u8] = b"\x00\xb5\x00mosquitto db";
const VERSION: u32 = 6;
/// Between the magic and the version are four bytes without meaning.
const UNUSED: usize = 4;
/// Of a configuration on a machine with 64 bits, or 32 bits where numbers of 64 bits begin at multiples of 8.
const CONFIGURATION_BYTES: usize = 16;
/// Of the number of a stored message.
const NUMBER_BYTES: u8 = 8;

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseError {
    /// Of the chunk, from the start of the file.
    pub offset: usize,
    pub chunk: &'static str,
    pub problem: String,
}

impl std::fmt::Display for DatabaseError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            offset,
            chunk,
            problem,
        } = self;
        write!(formatter, "{chunk} at byte {offset}: {problem}")
    }
}

impl std::error::Error for DatabaseError {}

/// All that a file has.
#[derive(Debug, Default)]
pub struct Database<'a> {
    /// By client identifier.
    pub clients: BTreeMap<&'a str, Client<'a>>,
    /// By number.
    pub messages: BTreeMap<u64, StoredMessage<'a>>,
    /// Numbers of stored messages.
    pub retained: Vec<u64>,
    /// Subscriptions and messages of clients that the file does not have, as Mosquitto writes them of sessions that end with their connection.
    pub without_client: u64,
    /// Clients with the name of another client's user.
    pub foreign_names: u64,
}

/// A session.
#[derive(Debug, Default)]
pub struct Client<'a> {
    pub user_name: Option<&'a str>,
    /// 0: of no listener with a port.
    pub listener_port: u16,
    /// 4294967295: never.
    pub session_expiry_interval: u32,
    /// Seconds since 1970; 0: the client was connected.
    pub session_expires_at: i64,
    pub last_packet_id: u16,
    /// In the order of the file: those from the client before those to it, those in flight before those in the queue.
    pub messages: Vec<ClientMessage<'a>>,
    pub subscriptions: Vec<Subscription<'a>>,
}

/// A message of a client.
#[derive(Debug, Clone, Copy)]
pub struct ClientMessage<'a> {
    /// Of the stored message, which the file has.
    pub number: u64,
    pub packet_id: u16,
    pub qos: u8,
    pub state: State,
    pub retain: bool,
    /// The properties of a PUBLISH, their length first, or nothing.
    pub properties: &'a [u8],
}

/// How far a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// To the client: it waits in the queue.
    Queued,
    /// To the client: sent or about to be sent, and not acknowledged.
    InFlight,
    /// To the client: its PUBREC has come, and its PUBCOMP has not.
    Received,
    /// From the client: its PUBREC was sent or is due, and its PUBREL has not come. Mosquitto delivers it after that.
    Unreleased,
    /// From the client: it was delivered, or the client sends it again.
    Settled,
}

/// A subscription of a client.
#[derive(Debug, Clone, Copy)]
pub struct Subscription<'a> {
    pub filter: &'a str,
    pub identifier: u32,
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
}

/// A message as published.
#[derive(Debug, Clone, Copy)]
pub struct StoredMessage<'a> {
    /// Seconds since 1970; 0: never.
    pub expires_at: i64,
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: u8,
    pub retain: bool,
    /// The properties of a PUBLISH, their length first, or nothing.
    pub properties: &'a [u8],
}

impl<'a> Database<'a> {
    /// Reads a whole file.
    ///
    /// # Errors
    /// [`DatabaseError`]: it is no such file, of another version, cut off or damaged.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DatabaseError> {
        let mut reader = Reader::new("the head", 0, bytes);
        check_head(&mut reader)?;
        let mut database = Self::default();
        let mut later = Later::default();
        while !reader.rest.is_empty() {
            let mut chunk = chunk(&mut reader, bytes.len())?;
            match chunk.kind {
                Kind::Configuration => check_configuration(&mut chunk.content)?,
                Kind::StoredMessage => database.read_stored_message(&mut chunk.content)?,
                Kind::ClientMessage => later.messages.push(chunk.content),
                Kind::Retained => later.retained.push(chunk.content),
                Kind::Subscription => later.subscriptions.push(chunk.content),
                Kind::Client => database.read_client(&mut chunk.content)?,
            }
        }
        later.read_into(&mut database)?;
        Ok(database)
    }

    fn read_stored_message(&mut self, chunk: &mut Reader<'a>) -> Result<(), DatabaseError> {
        let number = chunk.u64_of_host()?;
        let expires_at = chunk.i64_of_host()?;
        let payload_len = chunk.u32()? as usize;
        let _packet_id = chunk.u16()?;
        let publisher_len = chunk.u16()?;
        let user_len = chunk.u16()?;
        let topic_len = chunk.u16()?;
        let _port = chunk.u16()?;
        let (qos, retain) = (chunk.qos()?, chunk.u8()? != 0);
        chunk.text(publisher_len, "the publisher")?;
        chunk.take(user_len.into(), "the user of the publisher")?;
        let message = StoredMessage {
            expires_at,
            topic: chunk.text(topic_len, "the topic")?,
            payload: chunk.take(payload_len, "the payload")?,
            qos,
            retain,
            properties: chunk.rest(),
        };
        match self.messages.insert(number, message) {
            None => Ok(()),
            Some(_) => Err(chunk.error(format!("message {number} is there twice"))),
        }
    }

    fn read_client(&mut self, chunk: &mut Reader<'a>) -> Result<(), DatabaseError> {
        let session_expires_at = chunk.i64_of_host()?;
        let session_expiry_interval = chunk.u32()?;
        let last_packet_id = chunk.u16()?;
        let id_len = chunk.u16()?;
        let listener_port = chunk.u16()?;
        let user_len = chunk.u16()?;
        chunk.take(4, "the padding")?;
        let client_id = chunk.text(id_len, "the client identifier")?;
        let user_name = chunk.take(user_len.into(), "the user name")?;
        chunk.end()?;
        // Mosquitto 2.0.11 writes what it last had in memory as the name of a client without one: a name ends with its NUL, and no user's name has one.
        let user_name = match std::str::from_utf8(user_name) {
            _ if user_name.contains(&0) => {
                self.foreign_names += 1;
                None
            }
            Ok("") => None,
            Ok(name) => Some(name),
            Err(_) => return Err(chunk.error("the user name is not UTF-8")),
        };
        let client = Client {
            user_name,
            listener_port,
            session_expiry_interval,
            session_expires_at,
            last_packet_id,
            ..Client::default()
        };
        match self.clients.insert(client_id, client) {
            None => Ok(()),
            Some(_) => Err(chunk.error(format!("client {client_id:?} is there twice"))),
        }
    }
}

/// Chunks that name others, which may stand behind them.
#[derive(Debug, Default)]
struct Later<'a> {
    messages: Vec<Reader<'a>>,
    retained: Vec<Reader<'a>>,
    subscriptions: Vec<Reader<'a>>,
}

impl<'a> Later<'a> {
    fn read_into(self, database: &mut Database<'a>) -> Result<(), DatabaseError> {
        for mut chunk in self.retained {
            let number = chunk.number_of_message(&database.messages)?;
            chunk.end()?;
            database.retained.push(number);
        }
        for mut chunk in self.subscriptions {
            let (client_id, subscription) = read_subscription(&mut chunk)?;
            match database.clients.get_mut(client_id) {
                Some(client) => client.subscriptions.push(subscription),
                None => database.without_client += 1,
            }
        }
        let mut in_flight = BTreeSet::new();
        for mut chunk in self.messages {
            let (client_id, message) = read_client_message(&mut chunk, &database.messages)?;
            let Some(client) = database.clients.get_mut(client_id) else {
                database.without_client += 1;
                continue;
            };
            let is_outgoing = match message.state {
                State::InFlight | State::Received => Some(true),
                State::Unreleased => Some(false),
                State::Queued | State::Settled => None,
            };
            if let Some(is_outgoing) = is_outgoing {
                let id = message.packet_id;
                if id == 0 {
                    return Err(chunk.error("a message in flight has no packet identifier"));
                }
                if !in_flight.insert((client_id, is_outgoing, id)) {
                    let problem =
                        format!("two messages of client {client_id:?} are in flight as {id}");
                    return Err(chunk.error(problem));
                }
            }
            client.messages.push(message);
        }
        Ok(())
    }
}

/// The kinds of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Configuration,
    StoredMessage,
    ClientMessage,
    Retained,
    Subscription,
    Client,
}

impl Kind {
    const ALL: [(u32, Self, &'static str); 6] = [
        (1, Self::Configuration, "configuration"),
        (2, Self::StoredMessage, "stored message"),
        (3, Self::ClientMessage, "message of a client"),
        (4, Self::Retained, "retained message"),
        (5, Self::Subscription, "subscription"),
        (6, Self::Client, "client"),
    ];
}

struct Chunk<'a> {
    kind: Kind,
    content: Reader<'a>,
}

/// The next chunk of a file of `len` bytes.
fn chunk<'a>(reader: &mut Reader<'a>, len: usize) -> Result<Chunk<'a>, DatabaseError> {
    reader.name = "a chunk";
    reader.offset = len - reader.rest.len();
    let (kind, length) = (reader.u32()?, reader.u32()? as usize);
    let known = Kind::ALL.iter().find(|(number, ..)| *number == kind);
    let Some((_, kind, name)) = known else {
        return Err(reader.error(format!("there is no chunk of kind {kind}")));
    };
    let offset = reader.offset;
    reader.name = name;
    let content = reader.take(length, "its content")?;
    let content = Reader::new(name, offset, content);
    Ok(Chunk {
        kind: *kind,
        content,
    })
}

fn check_head(reader: &mut Reader<'_>) -> Result<(), DatabaseError> {
    if reader.take(MAGIC.len(), "the magic").ok() != Some(MAGIC) {
        return Err(reader.error("this is no persistence file of Mosquitto"));
    }
    reader.take(UNUSED, "the checksum")?;
    let version = reader.u32()?;
    if version != VERSION {
        return Err(reader.error(format!(
            "version {version} of the format, and only {VERSION} is read: let Mosquitto 2.0 start with it and stop, which writes it anew"
        )));
    }
    Ok(())
}

fn check_configuration(chunk: &mut Reader<'_>) -> Result<(), DatabaseError> {
    let is_known = chunk.rest.len() == CONFIGURATION_BYTES && chunk.rest[9] == NUMBER_BYTES;
    is_known.then_some(()).ok_or_else(|| {
        chunk.error("it was written on another kind of machine: numbers of 64 bits at multiples of 8 bytes are read")
    })
}

fn read_subscription<'a>(
    chunk: &mut Reader<'a>,
) -> Result<(&'a str, Subscription<'a>), DatabaseError> {
    const NO_LOCAL: u8 = 0x04;
    const RETAIN_AS_PUBLISHED: u8 = 0x08;
    let identifier = chunk.u32()?;
    let (id_len, filter_len) = (chunk.u16()?, chunk.u16()?);
    let (qos, options) = (chunk.qos()?, chunk.u8()?);
    chunk.take(2, "the padding")?;
    let client_id = chunk.text(id_len, "the client identifier")?;
    let subscription = Subscription {
        filter: chunk.text(filter_len, "the filter")?,
        identifier,
        qos,
        no_local: options & NO_LOCAL != 0,
        retain_as_published: options & RETAIN_AS_PUBLISHED != 0,
    };
    chunk.end()?;
    Ok((client_id, subscription))
}

fn read_client_message<'a>(
    chunk: &mut Reader<'a>,
    messages: &BTreeMap<u64, StoredMessage<'a>>,
) -> Result<(&'a str, ClientMessage<'a>), DatabaseError> {
    let number = chunk.number_of_message(messages)?;
    let (packet_id, id_len) = (chunk.u16()?, chunk.u16()?);
    let (qos, state) = (chunk.qos()?, chunk.u8()?);
    let (retain_dup, direction) = (chunk.u8()?, chunk.u8()?);
    let state = match (direction, state) {
        // 0: not sent yet; 1, 2, 4: to be sent as QoS 0, 1, 2; 3, 5: PUBACK, PUBREC is awaited.
        (1, 0..=5) => State::InFlight,
        // PUBREL is to be sent, PUBCOMP is awaited.
        (1, 6 | 9) => State::Received,
        (1, 11) => State::Queued,
        // PUBREL is awaited, PUBREC is to be sent.
        (0, 7 | 10) => State::Unreleased,
        (0, 0..=11) => State::Settled,
        (0 | 1, _) => return Err(chunk.error(format!("there is no state {state}"))),
        (_, _) => return Err(chunk.error(format!("there is no direction {direction}"))),
    };
    let client_id = chunk.text(id_len, "the client identifier")?;
    let message = ClientMessage {
        number,
        packet_id,
        qos,
        state: match state {
            // QoS 0 is never in flight.
            State::InFlight if qos == 0 => State::Queued,
            state => state,
        },
        retain: retain_dup >> 4 != 0,
        properties: chunk.rest(),
    };
    Ok((client_id, message))
}

/// Bytes of a chunk, or of the file.
#[derive(Debug)]
struct Reader<'a> {
    name: &'static str,
    offset: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    const fn new(name: &'static str, offset: usize, rest: &'a [u8]) -> Self {
        Self { name, offset, rest }
    }

    fn error(&self, problem: impl Into<String>) -> DatabaseError {
        DatabaseError {
            offset: self.offset,
            chunk: self.name,
            problem: problem.into(),
        }
    }

    fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], DatabaseError> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            let left = self.rest.len();
            return Err(self.error(format!(
                "{what} should have {len} bytes, and {left} are left"
            )));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DatabaseError> {
        let bytes = self.take(N, "a number")?;
        Ok(bytes.try_into().expect("as many as were taken"))
    }

    fn u8(&mut self) -> Result<u8, DatabaseError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, DatabaseError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, DatabaseError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64_of_host(&mut self) -> Result<u64, DatabaseError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn i64_of_host(&mut self) -> Result<i64, DatabaseError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    fn qos(&mut self) -> Result<u8, DatabaseError> {
        match self.u8()? {
            qos @ 0..=2 => Ok(qos),
            other => Err(self.error(format!("there is no QoS {other}"))),
        }
    }

    fn text(&mut self, len: u16, what: &str) -> Result<&'a str, DatabaseError> {
        let bytes = self.take(len.into(), what)?;
        std::str::from_utf8(bytes).map_err(|_| self.error(format!("{what} is not UTF-8")))
    }

    /// The number of a stored message that the file has.
    fn number_of_message(
        &mut self,
        messages: &BTreeMap<u64, StoredMessage<'_>>,
    ) -> Result<u64, DatabaseError> {
        let number = self.u64_of_host()?;
        if !messages.contains_key(&number) {
            return Err(self.error(format!("the file has no message {number}")));
        }
        Ok(number)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn end(&self) -> Result<(), DatabaseError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(self.error(format!("{left} bytes more than it should have"))),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file with chunks of these kinds.
    pub fn file(chunks: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = [MAGIC, &[0; UNUSED], &VERSION.to_be_bytes()].concat();
        bytes.extend(chunk_bytes(1, &configuration()));
        for (kind, content) in chunks {
            bytes.extend(chunk_bytes(*kind, content));
        }
        bytes
    }

    fn chunk_bytes(kind: u32, content: &[u8]) -> Vec<u8> {
        let len = u32::try_from(content.len()).expect("short");
        [&kind.to_be_bytes()[..], &len.to_be_bytes(), content].concat()
    }

    fn configuration() -> Vec<u8> {
        [&7_u64.to_le_bytes()[..], &[1, 8, 0, 0, 0, 0, 0, 0]].concat()
    }

    fn len(text: &str) -> [u8; 2] {
        (text.len() as u16).to_be_bytes()
    }

    pub fn stored(
        number: u64,
        publisher: &str,
        topic: &str,
        payload: &[u8],
        flags: [u8; 2],
    ) -> (u32, Vec<u8>) {
        expiring(number, publisher, topic, payload, flags, 0)
    }

    pub fn expiring(
        number: u64,
        publisher: &str,
        topic: &str,
        payload: &[u8],
        flags: [u8; 2],
        expires_at: i64,
    ) -> (u32, Vec<u8>) {
        let parts: [&[u8]; 12] = [
            &number.to_le_bytes(),
            &expires_at.to_le_bytes(),
            &(payload.len() as u32).to_be_bytes(),
            &[0, 0],
            &len(publisher),
            &[0, 0],
            &len(topic),
            &[0, 0],
            &flags,
            publisher.as_bytes(),
            topic.as_bytes(),
            payload,
        ];
        (2, parts.concat())
    }

    pub fn client(client_id: &str, user_name: &str, expiry: u32, port: u16) -> (u32, Vec<u8>) {
        let parts: [&[u8]; 9] = [
            &0_i64.to_le_bytes(),
            &expiry.to_be_bytes(),
            &41_u16.to_be_bytes(),
            &len(client_id),
            &port.to_be_bytes(),
            &len(user_name),
            &[0; 4],
            client_id.as_bytes(),
            user_name.as_bytes(),
        ];
        (6, parts.concat())
    }

    /// `state`: QoS, state, RETAIN and DUP, direction.
    pub fn message(number: u64, client_id: &str, packet_id: u16, state: [u8; 4]) -> (u32, Vec<u8>) {
        let parts: [&[u8]; 5] = [
            &number.to_le_bytes(),
            &packet_id.to_be_bytes(),
            &len(client_id),
            &state,
            client_id.as_bytes(),
        ];
        (3, parts.concat())
    }

    pub fn subscription(client_id: &str, filter: &str, qos: u8, options: u8) -> (u32, Vec<u8>) {
        let parts: [&[u8]; 7] = [
            &0_u32.to_be_bytes(),
            &len(client_id),
            &len(filter),
            &[qos, options],
            &[0; 2],
            client_id.as_bytes(),
            filter.as_bytes(),
        ];
        (5, parts.concat())
    }

    pub fn retained(number: u64) -> (u32, Vec<u8>) {
        (4, number.to_le_bytes().to_vec())
    }

    fn good() -> Vec<u8> {
        file(&[
            stored(1, "publisher", "a/b", b"x", [1, 0]),
            client("c", "ann", u32::MAX, 1883),
            message(1, "c", 7, [1, 3, 0, 1]),
            subscription("c", "a/#", 2, 0x0C),
            retained(1),
        ])
    }

    /// Written by Mosquitto 2.0.11: a session of 5.0 that expires after an hour, subscribed to `q/#`, with messages in every state, and a retained one.
    pub const OF_MOSQUITTO: &[u8] = include_bytes!("mosquitto-2.0.11.db");

    #[test]
    fn a_file_of_mosquitto_is_read() {
        let database = Database::parse(OF_MOSQUITTO).expect("written by Mosquitto");
        let names: Vec<_> = database.clients.keys().copied().collect();
        assert_eq!(names, ["five"]);
        let client = &database.clients["five"];
        assert_eq!(
            (client.session_expiry_interval, client.last_packet_id),
            (3600, 5)
        );
        let states: Vec<_> = client
            .messages
            .iter()
            .map(|it| (database.messages[&it.number].topic, it.qos, it.state))
            .collect();
        assert_eq!(
            states,
            [
                ("elsewhere", 2, State::Unreleased),
                ("q/flight", 1, State::InFlight),
                ("q/received", 2, State::Received),
                ("q/text", 1, State::Queued),
                ("q/bytes", 2, State::Queued),
                ("s", 1, State::Queued),
            ]
        );
        let filters: Vec<_> = client
            .subscriptions
            .iter()
            .map(|it| (it.filter, it.qos, it.identifier))
            .collect();
        assert_eq!(filters, [("q/#", 2, 7)]);
        let kept = &database.messages[&database.retained[0]];
        assert_eq!(
            (kept.topic, kept.payload, kept.retain),
            ("kept", &b"retained"[..], true)
        );
    }

    #[test]
    fn a_file_that_ends_anywhere_is_refused_or_a_part_and_never_a_panic() {
        for bytes in [good(), OF_MOSQUITTO.to_vec()] {
            for len in 0..bytes.len() {
                let parsed = Database::parse(&bytes[..len]);
                if let Err(error) = parsed {
                    assert!(error.offset <= len, "{error}");
                }
            }
        }
    }

    #[test]
    fn a_file_with_any_byte_changed_is_read_or_refused() {
        for bytes in [good(), OF_MOSQUITTO.to_vec()] {
            for at in 0..bytes.len() {
                for changed in [0, 1, 0x7F, 0xFF] {
                    let mut bytes = bytes.clone();
                    bytes[at] = changed;
                    if let Ok(database) = Database::parse(&bytes) {
                        let known = |number| database.messages.contains_key(number);
                        assert!(database.retained.iter().all(known));
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_place_and_the_chunk() {
        let long = |kind, len: u32| {
            let mut bytes = file(&[]);
            bytes.extend([u32::to_be_bytes(kind), len.to_be_bytes()].concat());
            bytes
        };
        let mut other_version = good();
        other_version[22] = 5;
        let mut small_machine = file(&[]);
        small_machine[40] = 4;
        let with = |chunk| {
            file(&[
                stored(1, "", "a", b"", [0, 0]),
                client("c", "", 1, 1),
                chunk,
            ])
        };
        let cases: [(&str, Vec<u8>, &str); 16] = [
            (
                "empty",
                Vec::new(),
                "the head at byte 0: this is no persistence file",
            ),
            (
                "text",
                b"listener 1883\npersistence true\n".to_vec(),
                "the head at byte 0: this is no persistence file",
            ),
            ("version 5", other_version, "version 5 of the format"),
            (
                "32 bits",
                small_machine,
                "configuration at byte 23: it was written on another kind of machine",
            ),
            (
                "unknown kind",
                long(9, 0),
                "a chunk at byte 47: there is no chunk of kind 9",
            ),
            (
                "claimed length",
                long(2, u32::MAX),
                "stored message at byte 47: its content should have 4294967295 bytes, and 0 are left",
            ),
            (
                "short chunk",
                file(&[(6, vec![0; 3])]),
                "client at byte 47: a number should have 8 bytes, and 3 are left",
            ),
            (
                "bytes behind",
                file(&[(4, vec![0; 9])]),
                "retained message at byte 47: the file has no message 0",
            ),
            (
                "no message",
                with(message(9, "c", 1, [1, 3, 0, 1])),
                "message of a client at byte 121: the file has no message 9",
            ),
            (
                "state",
                with(message(1, "c", 1, [1, 12, 0, 1])),
                "there is no state 12",
            ),
            (
                "direction",
                with(message(1, "c", 1, [1, 3, 0, 2])),
                "there is no direction 2",
            ),
            (
                "QoS",
                with(message(1, "c", 1, [3, 3, 0, 1])),
                "there is no QoS 3",
            ),
            (
                "no identifier",
                with(message(1, "c", 0, [1, 3, 0, 1])),
                "no packet identifier",
            ),
            (
                "client twice",
                with(client("c", "", 1, 1)),
                "client \"c\" is there twice",
            ),
            (
                "message twice",
                with(stored(1, "", "b", b"", [0, 0])),
                "message 1 is there twice",
            ),
            (
                "not UTF-8",
                with((
                    5,
                    [&[0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0][..], b"c\xff"].concat(),
                )),
                "the filter is not UTF-8",
            ),
        ];
        for (name, bytes, expected) in cases {
            let error = Database::parse(&bytes).expect_err(name).to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
        let twice = file(&[
            stored(1, "", "a", b"", [1, 0]),
            client("c", "", 1, 1),
            message(1, "c", 7, [1, 3, 0, 1]),
            message(1, "c", 7, [1, 3, 0, 1]),
        ]);
        let error = Database::parse(&twice).expect_err("twice").to_string();
        assert!(
            error.contains("two messages of client \"c\" are in flight as 7"),
            "{error}"
        );
    }

    #[test]
    fn what_stood_in_memory_is_no_user_name() {
        let bytes = file(&[client("c", "ann\0\u{1}behind it", 1, 1883)]);
        let database = Database::parse(&bytes).expect("Mosquitto reads it too");
        assert_eq!(database.clients["c"].user_name, None);
    }

    #[test]
    fn what_belongs_to_no_client_is_counted() {
        let bytes = file(&[
            stored(1, "", "a", b"", [1, 0]),
            message(1, "gone", 7, [1, 3, 0, 1]),
            subscription("gone", "a", 0, 0),
        ]);
        let database = Database::parse(&bytes).expect("Mosquitto reads it too");
        assert_eq!(database.without_client, 2);
    }
}
