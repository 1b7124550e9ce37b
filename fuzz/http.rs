//! Bodies and queries of the HTTP API, lines of an import among them.

use thicket_broker::api::overlay::topic_of_query;
use thicket_broker::api::transfer::{Line, MessageLine, SessionLine};
use thicket_broker::api::{KickEntry, TraceRequest};
use thicket_session::server::{SessionSnapshot, decode_queue, encode_queue};
use thicket_session::time::Instant;

/// When lines are read: times in them are time left.
const AT: Instant = Instant::from_millis(0);

/// Reads `bytes` as every body there is, line by line, and as a query.
///
/// # Panics
/// If a line that makes sense does not survive the way into a machine and out of it again.
pub fn read_bodies(bytes: &[u8]) {
    let _ = serde_json::from_slice::<KickEntry>(bytes);
    let _ = serde_json::from_slice::<TraceRequest>(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = topic_of_query(text);
    }
    let mut lines = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    while let Some(line) = lines.next() {
        match line {
            Line::Session(session) => read_session(*session, &lines.by_ref().collect::<Vec<_>>()),
            Line::Message(message) => read_message(&message),
            Line::Retained(body) => {
                let _ = (body.checked_topic(), body.payload(), body.properties());
            }
            Line::Header(_) | Line::Pubrel(_) | Line::End(_) => {}
        }
    }
}

fn read_session(session: SessionLine, in_flight: &[Line]) {
    let Ok(snapshot) = session.join(in_flight, AT) else {
        return;
    };
    let bytes = snapshot.encode(AT);
    let read = SessionSnapshot::decode(&bytes, AT).expect("what was written is read");
    let (line, in_flight) = SessionLine::split(read, AT);
    let again = line
        .join(&in_flight, AT)
        .expect("what was exported is imported");
    assert_eq!(again.encode(AT), bytes);
}

fn read_message(line: &MessageLine) {
    let Ok(delivery) = line.delivery(AT) else {
        return;
    };
    let bytes = encode_queue([&delivery], AT);
    let read = decode_queue(&bytes, AT).expect("what was written is read");
    let again = MessageLine::new(line.client_id.clone(), None, &read[0], AT);
    let again = again.delivery(AT).expect("what was exported is imported");
    assert_eq!(encode_queue([&again], AT), bytes);
}
