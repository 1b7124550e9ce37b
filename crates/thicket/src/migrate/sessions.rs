//! What Mosquitto has stored, as the lines that `thicket ctl import` reads.
//!
//! Mosquitto delivers a QoS 2 message when its PUBREL comes, a node when its PUBLISH comes. So a message whose PUBREL has not come is put into the
//! queues of the sessions that it is for, and its identifier counts as received: the client that publishes it again gets its PUBREC, and nobody gets it twice.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use thicket_broker::api::transfer::{
    EndLine, FORMAT, HeaderLine, InboundLine, Line, MessageBody, MessageLine, PubrelLine,
    SessionLine, SessionScope, SubscriptionLine, VERSION, session_name,
};
use thicket_mqtt::{Packet, ProtocolVersion, Publish, decode};
use thicket_session::topic::{SubscriptionFilter, TopicName};

use super::Prefixes;
use super::database::{Client, ClientMessage, Database, State, StoredMessage};

/// A Session Expiry Interval that never ends.
const NEVER: u32 = u32::MAX;
/// Clients, filters and topics of nodes.
const RESERVED: &str = "$thicket/";
/// Identifiers of the local sides of Mosquitto's bridges begin so if they are not configured; they have no listener.
const ITS_BRIDGE: &str = "local.";
/// Identifiers of the bridges of nodes begin so if they are not configured.
const OUR_BRIDGE: &str = "thicket-bridge-";

/// How sessions are named where they go.
#[derive(Debug)]
pub struct Names {
    pub scope: SessionScope,
    pub prefixes: Prefixes,
}

/// A conversion: what it has written, and what it left out.
#[derive(Debug)]
pub struct Conversion<'a> {
    database: &'a Database<'a>,
    names: &'a Names,
    /// Seconds since 1970.
    now: i64,
    end: EndLine,
    left_out: BTreeMap<&'static str, u64>,
}

/// A message that somebody has published and not released.
struct Unreleased<'a> {
    publisher: &'a str,
    message: &'a StoredMessage<'a>,
    /// The shared subscriptions that have it already.
    groups: BTreeSet<&'a str>,
}

/// Seconds since 1970.
pub fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

impl<'a> Conversion<'a> {
    pub fn new(database: &'a Database<'a>, names: &'a Names, now: i64) -> Self {
        let mut conversion = Self {
            database,
            names,
            now,
            end: EndLine::default(),
            left_out: BTreeMap::new(),
        };
        if database.without_client > 0 {
            let why = "subscription or message of a session that ended with its connection";
            conversion.left_out.insert(why, database.without_client);
        }
        if database.foreign_names > 0 {
            let why = "user name of another client; this Mosquitto mixes them up, so look whose the sessions of clients without a user name are";
            conversion.left_out.insert(why, database.foreign_names);
        }
        conversion
    }

    /// How many lines there were.
    pub const fn end(&self) -> EndLine {
        self.end
    }

    /// What was left out, and how often.
    pub fn left_out(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.left_out.iter().map(|(why, count)| (*why, *count))
    }

    fn leave_out(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_default() += 1;
    }

    /// Writes all lines.
    pub fn write(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        let header = HeaderLine {
            format: FORMAT.to_owned(),
            version: VERSION,
            node: "mosquitto".to_owned(),
        };
        write_line(out, &Line::Header(header))?;
        let mut unreleased = self.unreleased();
        for (client_id, client) in &self.database.clients {
            match self.session(client_id, client) {
                Ok(session) => {
                    self.write_session(out, client_id, client, session, &mut unreleased)?;
                }
                Err(why) => self.leave_out(why),
            }
        }
        self.write_retained(out, &unreleased)?;
        write_line(out, &Line::End(self.end))
    }

    fn unreleased(&self) -> Vec<Unreleased<'a>> {
        let database = self.database;
        let of_client = |(publisher, client): (&&'a str, &'a Client<'a>)| {
            let publisher = *publisher;
            let messages = client.messages.iter();
            let messages = messages.filter(|it| it.state == State::Unreleased);
            messages.map(move |it| Unreleased {
                publisher,
                message: &database.messages[&it.number],
                groups: BTreeSet::new(),
            })
        };
        database.clients.iter().flat_map(of_client).collect()
    }

    /// A session without its messages; the error says why it is left out.
    fn session(
        &mut self,
        client_id: &str,
        client: &Client<'_>,
    ) -> Result<SessionLine, &'static str> {
        let is_its_bridge = client.listener_port == 0 && client_id.starts_with(ITS_BRIDGE);
        if is_its_bridge || client_id.starts_with(OUR_BRIDGE) {
            return Err("session of a bridge, which nobody would resume, with its messages");
        }
        if client_id.is_empty() || client_id.starts_with(RESERVED) {
            return Err("session whose client identifier no client may use");
        }
        let interval = client.session_expiry_interval;
        if interval == 0 {
            return Err("session that ended with its connection");
        }
        // A client that was connected has no such time, and neither has a session that never expires.
        let is_counting = client.session_expires_at > 0 && interval != NEVER;
        let left = client.session_expires_at.saturating_sub(self.now);
        if is_counting && left <= 0 {
            return Err("session that had expired");
        }
        let away_s = u64::from(interval).saturating_sub(left.unsigned_abs());
        let prefix = self.names.prefixes.get(&client.listener_port);
        let prefix = prefix.map_or("", String::as_str);
        let name = session_name(self.names.scope, prefix, client.user_name, client_id)
            .ok_or("session whose client identifier and user name are too long together")?;
        let held = client.messages.iter();
        let held = held.filter(|message| message.state == State::Unreleased);
        let inbound: Vec<InboundLine> = (1..)
            .zip(held)
            .map(|(generation, message)| InboundLine {
                packet_id: message.packet_id,
                generation,
                is_held: true,
            })
            .collect();
        Ok(SessionLine {
            client_id: name,
            uid: new_uid(),
            session_expiry_interval_s: interval,
            away_for_ms: is_counting.then_some(away_s * 1000),
            subscriptions: self.subscriptions(client),
            inbound_generation: inbound.len() as u32,
            inbound,
            next_packet_id: client.last_packet_id.checked_add(1).unwrap_or(1),
            will: None,
        })
    }

    fn subscriptions(&mut self, client: &Client<'_>) -> Vec<SubscriptionLine> {
        let mut lines = Vec::new();
        for subscription in &client.subscriptions {
            let is_valid = SubscriptionFilter::parse(subscription.filter)
                .is_ok_and(|filter| !filter.filter.as_str().starts_with(RESERVED));
            if !is_valid {
                self.leave_out("subscription with a filter that a node does not accept");
                continue;
            }
            lines.push(SubscriptionLine {
                filter: subscription.filter.to_owned(),
                qos: subscription.qos,
                no_local: subscription.no_local,
                retain_as_published: subscription.retain_as_published,
                retain_handling: 0,
                subscription_identifier: Some(subscription.identifier).filter(|it| *it > 0),
            });
        }
        lines
    }

    /// The session, its messages in flight, its queue.
    fn write_session(
        &mut self,
        out: &mut impl Write,
        client_id: &str,
        client: &'a Client<'a>,
        session: SessionLine,
        unreleased: &mut [Unreleased<'a>],
    ) -> std::io::Result<()> {
        let name = session.client_id.clone();
        write_line(out, &Line::Session(Box::new(session)))?;
        self.end.sessions += 1;
        for message in &client.messages {
            let line = match message.state {
                State::Received => Ok(Line::Pubrel(PubrelLine {
                    client_id: name.clone(),
                    packet_id: message.packet_id,
                })),
                State::InFlight => self.message(&name, message),
                State::Queued | State::Unreleased | State::Settled => continue,
            };
            self.write_message(out, line)?;
        }
        for message in &client.messages {
            match message.state {
                State::Queued => {
                    let line = self.message(&name, message);
                    self.write_message(out, line)?;
                }
                State::InFlight | State::Received | State::Unreleased | State::Settled => {}
            }
        }
        for message in unreleased {
            if let Some(line) = self.released(&name, client_id, client, message) {
                self.write_message(out, line)?;
            }
        }
        Ok(())
    }

    fn write_message(
        &mut self,
        out: &mut impl Write,
        line: Result<Line, &'static str>,
    ) -> std::io::Result<()> {
        match line {
            Ok(line) => {
                self.end.messages += 1;
                write_line(out, &line)
            }
            Err(why) => {
                self.leave_out(why);
                Ok(())
            }
        }
    }

    /// A message in flight or in the queue.
    fn message(&self, name: &str, message: &ClientMessage<'_>) -> Result<Line, &'static str> {
        let stored = &self.database.messages[&message.number];
        let is_queued = message.state == State::Queued;
        if is_queued && message.qos == 0 {
            return Err("message of QoS 0, which does not wait for a client that is away");
        }
        let left = self.left_ms(stored);
        if is_queued && left == Some(0) {
            return Err("message that had expired");
        }
        let mut scratch = Vec::new();
        let own = publish_of(&mut scratch, "x", message.properties)
            .ok_or("message with properties that are not valid")?;
        let identifiers: Vec<u32> = own.subscription_identifiers.iter().collect();
        let mut body = body_of(stored, left)?;
        body.qos = body.qos.max(message.qos);
        Ok(Line::Message(Box::new(MessageLine {
            client_id: name.to_owned(),
            packet_id: (!is_queued).then_some(message.packet_id),
            qos: message.qos,
            retain: message.retain,
            subscription_identifiers: identifiers,
            group: None,
            message: body,
        })))
    }

    /// A message that its publisher has not released, for a session that subscribes to it.
    fn released(
        &self,
        name: &str,
        client_id: &str,
        client: &'a Client<'a>,
        unreleased: &mut Unreleased<'a>,
    ) -> Option<Result<Line, &'static str>> {
        let Unreleased {
            publisher,
            message,
            groups,
        } = unreleased;
        let mut qos = None;
        let mut retain = false;
        let mut identifiers = Vec::new();
        for subscription in &client.subscriptions {
            let Ok(filter) = SubscriptionFilter::parse(subscription.filter) else {
                continue;
            };
            let is_own = subscription.no_local && *publisher == client_id;
            if is_own || !filter.filter.matches(message.topic) {
                continue;
            }
            // One member of a group gets it.
            if filter.is_shared() && !groups.insert(subscription.filter) {
                continue;
            }
            qos = qos.max(Some(subscription.qos.min(message.qos)));
            retain |= subscription.retain_as_published && message.retain;
            identifiers.extend(Some(subscription.identifier).filter(|it| *it > 0));
        }
        let qos = qos.filter(|qos| *qos > 0)?;
        let left = self.left_ms(message);
        if left == Some(0) {
            return None;
        }
        let line = body_of(message, left).map(|body| {
            Line::Message(Box::new(MessageLine {
                client_id: name.to_owned(),
                packet_id: None,
                qos,
                retain,
                subscription_identifiers: identifiers,
                group: None,
                message: body,
            }))
        });
        Some(line)
    }

    fn write_retained(
        &mut self,
        out: &mut impl Write,
        unreleased: &[Unreleased<'a>],
    ) -> std::io::Result<()> {
        let stored = self.database.retained.iter();
        let mut retained: BTreeMap<&str, &StoredMessage<'_>> = stored
            .map(|number| &self.database.messages[number])
            .map(|message| (message.topic, message))
            .collect();
        let later = unreleased.iter().map(|it| it.message);
        retained.extend(later.filter(|it| it.retain).map(|it| (it.topic, it)));
        for message in retained.into_values() {
            // An empty payload has removed what was there.
            if message.payload.is_empty() {
                continue;
            }
            let left = self.left_ms(message);
            if left == Some(0) {
                self.leave_out("retained message that had expired");
                continue;
            }
            match body_of(message, left) {
                Ok(mut body) => {
                    body.retain = true;
                    write_line(out, &Line::Retained(Box::new(body)))?;
                    self.end.retained += 1;
                }
                Err(why) => self.leave_out(why),
            }
        }
        Ok(())
    }

    /// Milliseconds until a message expires.
    fn left_ms(&self, message: &StoredMessage<'_>) -> Option<u64> {
        let left = message.expires_at.saturating_sub(self.now).max(0);
        (message.expires_at > 0).then_some(left.unsigned_abs().saturating_mul(1000))
    }
}

fn body_of(message: &StoredMessage<'_>, left_ms: Option<u64>) -> Result<MessageBody, &'static str> {
    if TopicName::new(message.topic).is_err() || message.topic.starts_with(RESERVED) {
        return Err("message with a topic that a node does not accept");
    }
    let mut scratch = Vec::new();
    let publish = publish_of(&mut scratch, message.topic, message.properties)
        .ok_or("message with properties that are not valid")?;
    let publish = Publish {
        payload: message.payload,
        retain: message.retain,
        ..publish
    };
    Ok(MessageBody {
        qos: message.qos,
        expiry_left_ms: left_ms,
        ..MessageBody::new(&publish, None)
    })
}

/// A PUBLISH of QoS 0 of 5.0 with this topic and these encoded properties, their length first: `None` if they are not valid.
fn publish_of<'b>(
    scratch: &'b mut Vec<u8>,
    topic: &'b str,
    properties: &'b [u8],
) -> Option<Publish<'b>> {
    if properties.is_empty() {
        return Some(Publish::new(topic, b""));
    }
    let topic_len = u16::try_from(topic.len()).ok()?;
    let mut left = 2 + topic.len() + properties.len();
    scratch.push(0x30);
    while left >= 0x80 {
        scratch.push((left & 0x7F) as u8 | 0x80);
        left >>= 7;
    }
    scratch.push(left as u8);
    scratch.extend(topic_len.to_be_bytes());
    scratch.extend(topic.as_bytes());
    scratch.extend(properties);
    match decode(scratch, ProtocolVersion::V5, u32::MAX) {
        // What stands behind the properties would be its payload.
        Ok(Some((Packet::Publish(publish), _))) if publish.payload.is_empty() => Some(publish),
        _ => None,
    }
}

fn write_line(out: &mut impl Write, line: &Line) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// An identity that no session has: a session that is converted again is another one.
fn new_uid() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    format!("{:032x}", u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::database::tests::{
        OF_MOSQUITTO, client, expiring, file, message, retained, stored, subscription,
    };
    use super::*;

    const NOW: i64 = 1_000_000;

    fn names(scope: SessionScope) -> Names {
        let prefixes = [(1884, "tenant/".to_owned())].into();
        Names { scope, prefixes }
    }

    /// The lines, and what was left out.
    fn converted(
        bytes: &[u8],
        now: i64,
        scope: SessionScope,
    ) -> (Vec<Line>, Vec<(&'static str, u64)>) {
        let database = Database::parse(bytes).expect("a good file");
        let names = names(scope);
        let mut conversion = Conversion::new(&database, &names, now);
        let mut out = Vec::new();
        conversion.write(&mut out).expect("written to memory");
        let text = String::from_utf8(out).expect("text");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("as written"));
        (lines.collect(), conversion.left_out().collect())
    }

    /// The lines between the first and the last in few words.
    fn in_words(bytes: &[u8]) -> Vec<String> {
        let (lines, _) = converted(bytes, NOW, SessionScope::User);
        lines.iter().filter_map(words).collect()
    }

    fn words(line: &Line) -> Option<String> {
        let text = |body: &MessageBody| {
            format!(
                "{} {}",
                body.topic,
                body.payload.as_deref().unwrap_or("bytes")
            )
        };
        Some(match line {
            Line::Header(_) | Line::End(_) => return None,
            Line::Session(session) => {
                let filters: Vec<_> = session
                    .subscriptions
                    .iter()
                    .map(|it| it.filter.clone())
                    .collect();
                format!(
                    "session {} {}",
                    session.client_id.replace('\u{1f}', "|"),
                    filters.join(" ")
                )
            }
            Line::Message(line) => {
                let id = line
                    .packet_id
                    .map_or("queued".to_owned(), |id| format!("in flight {id}"));
                let retain = if line.retain { " retain" } else { "" };
                format!("{id} q{} {}{retain}", line.qos, text(&line.message))
            }
            Line::Pubrel(line) => format!("pubrel {}", line.packet_id),
            Line::Retained(body) => format!("retained {}", text(body)),
        })
    }

    #[test]
    fn what_mosquitto_wrote_becomes_a_session_with_all_its_messages() {
        let database = Database::parse(OF_MOSQUITTO).expect("a good file");
        // A moment after the file was written.
        let now = database.clients["five"].session_expires_at - 3590;
        let (lines, left_out) = converted(OF_MOSQUITTO, now, SessionScope::User);
        let words: Vec<_> = lines.iter().filter_map(words).collect();
        assert_eq!(
            words,
            [
                "session five q/#",
                "in flight 1 q1 q/flight in flight",
                "pubrel 2",
                "queued q1 q/text cafe",
                "queued q2 q/bytes bytes",
                "queued q1 s shared",
                "retained kept retained",
            ]
        );
        assert_eq!(left_out, []);
        let Line::Session(session) = &lines[1] else {
            panic!("{:?}", lines[1])
        };
        assert_eq!(session.away_for_ms, Some(10_000));
        assert_eq!(
            (session.session_expiry_interval_s, session.next_packet_id),
            (3600, 6)
        );
        assert_eq!(session.inbound.len(), 1);
        assert_eq!(
            (session.inbound[0].packet_id, session.inbound[0].is_held),
            (9, true)
        );
        let Line::Message(text) = &lines[4] else {
            panic!("{:?}", lines[4])
        };
        assert_eq!(text.subscription_identifiers, [7]);
        assert_eq!(text.message.content_type.as_deref(), Some("text"));
        assert_eq!(
            text.message.user_properties,
            [("k".to_owned(), "v".to_owned())]
        );
        assert!(
            text.message
                .expiry_left_ms
                .is_some_and(|left| left > 0 && left <= 100_000)
        );
        let Some(Line::End(end)) = lines.last() else {
            panic!("{lines:?}")
        };
        assert_eq!((end.sessions, end.messages, end.retained), (1, 5, 1));
    }

    #[test]
    fn a_session_has_the_name_that_its_client_will_have() {
        let bytes = file(&[
            client("plain", "", NOW as u32, 1883),
            client("ann's", "ann", NOW as u32, 1883),
            client("tenant's", "bob", NOW as u32, 1884),
        ]);
        let names = |scope| -> Vec<String> {
            let (lines, _) = converted(&bytes, NOW, scope);
            lines.iter().filter_map(words).collect()
        };
        assert_eq!(
            names(SessionScope::User),
            [
                "session |ann|ann's ",
                "session plain ",
                "session tenant/|bob|tenant's "
            ]
        );
        assert_eq!(
            names(SessionScope::Client),
            ["session ann's ", "session plain ", "session tenant's "]
        );
    }

    #[test]
    fn a_message_that_its_publisher_has_not_released_is_in_the_queues_it_is_for() {
        let bytes = file(&[
            stored(1, "p", "a/b", b"x", [2, 1]),
            client("p", "", u32::MAX, 1883),
            client("q1", "", u32::MAX, 1883),
            client("q0", "", u32::MAX, 1883),
            client("other", "", u32::MAX, 1883),
            client("g1", "", u32::MAX, 1883),
            client("g2", "", u32::MAX, 1883),
            message(1, "p", 7, [2, 7, 0, 0]),
            subscription("p", "a/#", 2, 0x04),
            subscription("q1", "a/b", 1, 0x08),
            subscription("q1", "a/#", 0, 0),
            subscription("q0", "a/b", 0, 0),
            subscription("other", "b", 2, 0),
            subscription("g1", "$share/g/a/b", 2, 0),
            subscription("g2", "$share/g/a/b", 2, 0),
        ]);
        assert_eq!(
            in_words(&bytes),
            [
                "session g1 $share/g/a/b",
                "queued q2 a/b x",
                "session g2 $share/g/a/b",
                "session other b",
                "session p a/#",
                "session q0 a/b",
                "session q1 a/b a/#",
                "queued q1 a/b x retain",
                "retained a/b x",
            ]
        );
    }

    #[test]
    fn what_is_left_out_is_counted_with_the_reason() {
        let bytes = file(&[
            stored(1, "", "a", b"x", [0, 0]),
            expiring(2, "", "a", b"x", [1, 0], NOW),
            stored(3, "", "$thicket/x", b"x", [1, 1]),
            expiring(4, "", "kept", b"x", [1, 1], NOW + 60),
            expiring(5, "", "gone", b"x", [1, 1], NOW - 60),
            client("c", "", u32::MAX, 1883),
            client("local.host.bridge", "", u32::MAX, 0),
            client("thicket-bridge-node-1-plant", "", u32::MAX, 1883),
            client("clean", "", 0, 1883),
            client("$thicket/x", "", u32::MAX, 1883),
            message(1, "c", 1, [0, 11, 0, 1]),
            message(2, "c", 2, [1, 11, 0, 1]),
            message(3, "c", 3, [1, 11, 0, 1]),
            subscription("c", "a/#/b", 1, 0),
            retained(3),
            retained(4),
            retained(5),
        ]);
        assert_eq!(in_words(&bytes), ["session c ", "retained kept x"]);
        let (_, left_out) = converted(&bytes, NOW, SessionScope::User);
        let counted = |part: &str| -> u64 {
            let found = left_out.iter().filter(|(why, _)| why.contains(part));
            found.map(|(_, count)| count).sum()
        };
        for (part, count) in [
            ("QoS 0", 1),
            ("message that had expired", 2),
            ("topic", 2),
            ("session of a bridge", 2),
            ("ended with its connection", 1),
            ("no client may use", 1),
            ("filter", 1),
        ] {
            assert_eq!(counted(part), count, "{part}: {left_out:?}");
        }
    }

    #[test]
    fn properties_that_are_not_valid_leave_out_their_message() {
        for properties in [
            &[1][..],
            &[0, 0],
            &[5, 0x26, 0, 1],
            &[2, 0x0B, 0],
            &[0xFF; 4],
            &[2, 0x11, 1],
        ] {
            let mut with_own = message(1, "c", 1, [1, 11, 0, 1]);
            with_own.1.extend(properties);
            let mut of_publisher = stored(1, "", "a", b"x", [1, 0]);
            of_publisher.1.extend(properties);
            let plain = (
                stored(1, "", "a", b"x", [1, 0]),
                message(1, "c", 1, [1, 11, 0, 1]),
            );
            for (stored, message) in [(of_publisher, plain.1), (plain.0, with_own)] {
                let bytes = file(&[stored, client("c", "", u32::MAX, 1883), message]);
                assert_eq!(in_words(&bytes), ["session c "], "{properties:?}");
            }
        }
    }
}
