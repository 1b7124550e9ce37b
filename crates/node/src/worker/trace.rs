//! Traces of messages: what the shell makes spans of, where [`Observed::traces`](crate::Observed) enables it. Elsewhere nothing here is called.
//!
//! A message is traced if its user property `traceparent` marks its trace as sampled, or if it has none and is drawn. One that is drawn gets the
//! property, as the last of its properties, so that other nodes and subscribers continue the trace.

use std::collections::BTreeMap;

use thicket_mqtt::{ApplicationProperties, ApplicationProperty, Publish};
use thicket_session::time::Instant;

use super::{
    context::Context,
    state::{
        debts::{Debt, Owed, Publisher},
        interests::Recipient,
        sessions::SessionKey,
    },
};
use crate::{SpanContext, Traced, Tracing, WorkerOutput, scope::client_id_of};

/// The user property of W3C Trace Context.
const TRACE_PARENT: &str = "traceparent";
/// Publications that wait for their acknowledgements with a span; beyond it the oldest one's span is given up.
const OPEN: usize = 1024;

/// Identifies an acknowledgement: session, its serial number, and its place in the line.
pub(super) type Line = (SessionKey, u64, u64);

/// Publications whose spans have not ended.
#[derive(Debug, Default)]
pub(super) struct Traces {
    open: BTreeMap<Line, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    span_id: u64,
    /// Numbers that are still to be acknowledged.
    open: u16,
    since: Instant,
}

/// The trace that a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Belonging {
    /// The publisher's span.
    To(SpanContext),
    /// To one that is not sampled.
    Unsampled,
    /// To none.
    None,
}

impl Traces {
    /// A publication waits for its acknowledgements, `open` numbers.
    pub(super) fn begin(&mut self, now: Instant, line: Line, span_id: u64, open: u16) {
        let waiting = Waiting {
            span_id,
            open,
            since: now,
        };
        if self.open.len() >= OPEN
            && let Some((oldest, _)) = self.open.iter().min_by_key(|(_, it)| it.since)
        {
            let oldest = *oldest;
            self.open.remove(&oldest);
        }
        self.open.insert(line, waiting);
    }

    /// Conditions of acknowledgements were met.
    #[inline]
    pub(super) fn trace_met(&mut self, cx: &mut Context) {
        if !self.open.is_empty() {
            self.end_met(cx);
        }
    }

    #[cold]
    fn end_met(&mut self, cx: &mut Context) {
        let mut ended = Vec::new();
        for debt in &cx.debts.met {
            let Debt::Publisher(Publisher::Client(owed)) = debt else {
                continue;
            };
            let Some(waiting) = self.open.get_mut(&line(owed)) else {
                continue;
            };
            waiting.open = waiting.open.saturating_sub(1);
            if waiting.open == 0 {
                ended.push(waiting.span_id);
                self.open.remove(&line(owed));
            }
        }
        for span_id in ended {
            note_traced(cx, Traced::Acknowledged { span_id });
        }
    }
}

/// Sessions of `recipients` have got a message; `before`: what clients had been sent until then, as members of shared subscriptions get it too.
pub(super) fn trace_delivery(
    cx: &mut Context,
    recipients: &[Recipient],
    publish: &Publish<'_>,
    sender: Option<SessionKey>,
    parent: SpanContext,
    before: u64,
) {
    let gets = |recipient: &&Recipient| {
        let session = cx.sessions.get(recipient.session);
        !(recipient.no_local && sender == Some(recipient.session))
            && session.is_some_and(|session| session.backup().is_none())
    };
    let sent = cx.traffic.external_out_messages - before;
    let recipients = (recipients.iter().filter(gets).count() as u64).max(sent);
    if recipients > 0 {
        let span = new_span(cx, parent.trace_id);
        note_traced(
            cx,
            Traced::Delivered {
                span,
                parent,
                topic: publish.topic.to_owned(),
                qos: publish.qos as u8,
                recipients,
            },
        );
    }
}

/// A message left the queue of a session.
#[cold]
pub(super) fn trace_sent(cx: &mut Context, key: SessionKey, publish: &Publish<'_>) {
    let Belonging::To(parent) = belonging(&publish.properties) else {
        return;
    };
    let Some(client_id) = client_id(cx, key) else {
        return;
    };
    let span = new_span(cx, parent.trace_id);
    note_traced(
        cx,
        Traced::Sent {
            span,
            parent,
            client_id,
            topic: publish.topic.to_owned(),
            qos: publish.qos as u8,
        },
    );
}

pub(super) fn is_drawn(cx: &mut Context, tracing: Tracing) -> bool {
    tracing.drawn > 0 && cx.random.next_u64() <= tracing.drawn
}

pub(super) fn new_span(cx: &mut Context, trace_id: u128) -> SpanContext {
    let span_id = cx.random.next_u64().max(1);
    SpanContext { trace_id, span_id }
}

pub(super) fn client_id(cx: &Context, key: SessionKey) -> Option<String> {
    let session = cx.sessions.get(key)?;
    Some(client_id_of(&session.client_id).to_owned())
}

pub(super) fn note_traced(cx: &mut Context, traced: Traced) {
    cx.outputs.push_back(WorkerOutput::Traced(Box::new(traced)));
}

pub(super) const fn line(owed: &Owed) -> Line {
    (owed.session, owed.session_serial, owed.sequence)
}

/// By the first `traceparent` that can be read: a node that samples a message with another one appends its own.
pub(super) fn belonging(properties: &ApplicationProperties<'_>) -> Belonging {
    let found = properties.iter().find_map(|property| match property {
        ApplicationProperty::UserProperty(TRACE_PARENT, value) => read(value),
        _ => None,
    });
    match found {
        Some((context, true)) => Belonging::To(context),
        Some((_, false)) => Belonging::Unsampled,
        None => Belonging::None,
    }
}

/// `VERSION-TRACE_ID-PARENT_ID-FLAGS` (W3C Trace Context, 3.2), and whether the trace is sampled. Later versions may have more behind that.
fn read(text: &str) -> Option<(SpanContext, bool)> {
    let mut parts = text.split('-');
    let [version, trace_id, span_id, flags] = [2, 32, 16, 2].map(|len| {
        let part = parts.next()?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_good = part.len() == len && part.bytes().all(is_hex);
        is_good.then(|| u128::from_str_radix(part, 16).ok())?
    });
    let version = version.filter(|it| *it != 0xff && (*it > 0 || parts.next().is_none()));
    version?;
    let context = SpanContext {
        trace_id: trace_id.filter(|it| *it > 0)?,
        span_id: span_id.filter(|it| *it > 0)? as u64,
    };
    Some((context, flags? & 1 == 1))
}

/// The properties without a `traceparent` and, as the last one, the span that continues.
pub(super) fn marked_properties(
    properties: &ApplicationProperties<'_>,
    span: SpanContext,
) -> Vec<u8> {
    let text = format!("00-{:032x}-{:016x}-01", span.trace_id, span.span_id);
    let is_mark = |it: &ApplicationProperty<'_>| {
        matches!(it, ApplicationProperty::UserProperty(TRACE_PARENT, _))
    };
    let mark = ApplicationProperty::UserProperty(TRACE_PARENT, &text);
    let others = properties.iter().filter(|it| !is_mark(it));
    // What was read is not too long, nor is a text of 55 bytes.
    ApplicationProperties::build(others.chain([mark])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_traceparent_is_read_as_the_w3c_has_it() {
        let context = SpanContext {
            trace_id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            span_id: 0xb7ad_6b71_6920_3331,
        };
        for (text, expected) in [
            (format!("00-{TRACE}-{SPAN}-01"), Some((context, true))),
            (format!("00-{TRACE}-{SPAN}-00"), Some((context, false))),
            (format!("00-{TRACE}-{SPAN}-03"), Some((context, true))),
            (format!("01-{TRACE}-{SPAN}-01-more"), Some((context, true))),
            (format!("00-{TRACE}-{SPAN}-01-more"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-+{}-{SPAN}-01", &TRACE[1..]), None),
            (format!("00-{TRACE}-{SPAN}-1"), None),
            (format!("00-{TRACE}-{SPAN}"), None),
            (String::new(), None),
        ] {
            assert_eq!(read(&text), expected, "{text}");
        }
    }

    #[test]
    fn publications_above_the_bound_give_up_the_oldest_span() {
        let mut traces = Traces::default();
        for number in 0..=OPEN as u64 {
            // The newest ones come first in the table.
            let line = (SessionKey(0), 0, u64::MAX - number);
            traces.begin(Instant::from_millis(number), line, number, 1);
        }
        assert_eq!(traces.open.len(), OPEN);
        let has = |span_id| traces.open.values().any(|it| it.span_id == span_id);
        assert!(!has(0) && has(1) && has(OPEN as u64));
    }

    #[test]
    fn a_message_that_is_drawn_keeps_its_properties_and_belongs_to_its_new_span() {
        let before = ApplicationProperties::build([
            ApplicationProperty::ContentType("text/plain"),
            ApplicationProperty::UserProperty("a", "b"),
        ])
        .expect("short");
        let before = ApplicationProperties::from_encoded(&before).expect("good");
        let span = SpanContext {
            trace_id: 7,
            span_id: 9,
        };
        let bytes = marked_properties(&before, span);
        let after = ApplicationProperties::from_encoded(&bytes).expect("good");
        assert!(after.iter().take(2).eq(before.iter()));
        assert_eq!(after.iter().count(), 3);
        assert_eq!(belonging(&after), Belonging::To(span));
        assert_eq!(belonging(&before), Belonging::None);
        let before = ApplicationProperties::build([
            ApplicationProperty::UserProperty("traceparent", "garbage"),
            ApplicationProperty::UserProperty("a", "b"),
        ])
        .expect("short");
        let before = ApplicationProperties::from_encoded(&before).expect("good");
        let bytes = marked_properties(&before, span);
        let after = ApplicationProperties::from_encoded(&bytes).expect("good");
        assert_eq!(
            after.iter().count(),
            2,
            "one that cannot be read is replaced"
        );
        assert_eq!(belonging(&after), Belonging::To(span));
    }
}
