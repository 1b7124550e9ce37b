//! `/v1/audit`: changes made over the API of this node, by whom and from where. Each is a line of the log, and the last ones are kept in memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::{RawQuery, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use thicket_access::Credential;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::answer::{Answer, bad_field};
use super::guard::Asker;
use super::serve::Peer;
use crate::api::audit::AuditEntry;
use crate::api::overlay::text_of_query;
use crate::clock::wall_ms;

/// Entries that are kept; beyond it the oldest is dropped.
const KEPT: usize = 1000;
/// Characters kept of a path or a subject.
const LONGEST: usize = 256;

/// The last changes, shared by all handlers.
#[derive(Debug, Clone, Default)]
pub(super) struct Audit(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// The oldest first.
    entries: VecDeque<AuditEntry>,
    /// Number of the last entry.
    last: u64,
}

/// The subject of a change, taken from its body: an extension of the answer.
#[derive(Debug, Clone)]
struct Subject(String);

/// Marks the answer to a change with the subject from its body.
pub(super) fn about(subject: &str, mut answer: Response) -> Response {
    answer.extensions_mut().insert(Subject(clip(subject)));
    answer
}

/// The subject of an answer, which goes along to the node that relayed the request.
pub(super) fn subject(answer: &Response) -> Option<&str> {
    let subject = answer.extensions().get::<Subject>();
    subject.map(|subject| &*subject.0)
}

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(page))
}

/// Records what a request changed or tried to change. It runs after the guard, so the request is authenticated.
pub(super) async fn record(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    if !is_change(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    let asker = request.extensions().get::<Asker>();
    let peer = request.extensions().get::<Peer>();
    let origin = state.inspector.origin(&request);
    let address = match &origin {
        Some(origin) => Some(origin.address),
        None => peer.map(|peer| peer.address.ip()),
    };
    let query = request.uri().query().unwrap_or_default();
    let mut entry = AuditEntry {
        number: 0,
        time_ms: 0,
        user: asker.map(|asker| asker.0.name.to_string()),
        by_token: asker.is_some_and(|asker| asker.0.credential == Credential::Token),
        peer: address.map_or_else(String::new, |address| address.to_string()),
        relayed_by: None,
        method: request.method().to_string(),
        path: clip(request.uri().path()),
        node: text_of_query(query, "node").map(|node| clip(&node)),
        subject: None,
        status: 0,
        times: 1,
        last_time_ms: 0,
    };
    if let Some(origin) = origin {
        entry.relayed_by = Some(state.inspector.name_of(origin.relayed_by).await);
    }
    let answer = next.run(request).await;
    entry.subject = subject(&answer).map(str::to_owned);
    entry.status = answer.status().as_u16();
    if state.audit.lock().add(entry.clone(), wall_ms()) {
        let AuditEntry {
            user,
            by_token,
            peer,
            relayed_by,
            method,
            path,
            node,
            subject,
            status,
            ..
        } = entry;
        tracing::info!(
            user,
            by_token,
            peer,
            relayed_by,
            method,
            path,
            node,
            subject,
            status,
            "change over the HTTP API"
        );
    }
    answer
}

/// The lines of a trace are fetched by POST, which changes nothing. Requests for placements are too frequent to record.
fn is_change(method: &Method, path: &str) -> bool {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    !is_read && path != "/v1/trace/lines" && !path.starts_with("/v1/placements")
}

fn clip(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

impl Audit {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Returns false if the change only repeats the last one.
    fn add(&mut self, mut entry: AuditEntry, now_ms: u64) -> bool {
        if let Some(last) = self.entries.back_mut()
            && is_same(last, &entry)
        {
            last.times += 1;
            last.last_time_ms = now_ms;
            return false;
        }
        self.last += 1;
        entry.number = self.last;
        (entry.time_ms, entry.last_time_ms) = (now_ms, now_ms);
        if self.entries.len() >= KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
        true
    }

    /// The oldest entries after a number.
    fn after(&self, number: u64, limit: usize) -> Vec<AuditEntry> {
        let later = self.entries.iter().filter(|entry| entry.number > number);
        later.take(limit).cloned().collect()
    }
}

fn is_same(a: &AuditEntry, b: &AuditEntry) -> bool {
    let key = |it: &AuditEntry| {
        let texts = [&it.peer, &it.method, &it.path].map(Clone::clone);
        let who = (it.user.clone(), it.by_token, it.relayed_by.clone());
        (texts, who, it.node.clone(), it.subject.clone(), it.status)
    };
    key(a) == key(b)
}

/// Changes made over the API of this node, the oldest first.
#[utoipa::path(
    get, path = "/v1/audit", tag = "administration", operation_id = "audit",
    params(
        ("after" = Option<u64>, Query, description = "Only entries with a higher number."),
        ("limit" = Option<u64>, Query, description = "At most this many."),
    ),
    responses(
        (status = 200, description = "The entries that are kept", body = Vec<AuditEntry>),
        (status = 400, description = "A parameter is not valid"),
    ),
)]
async fn page(State(audit): State<Audit>, RawQuery(query): RawQuery) -> Answer<Vec<AuditEntry>> {
    let query = query.unwrap_or_default();
    let number = |name: &str, default: u64| {
        let text = text_of_query(&query, name);
        text.map_or(Ok(default), |text| {
            text.parse().map_err(|_| name.to_owned())
        })
    };
    let (after, limit) = number("after", 0)
        .and_then(|after| Ok((after, number("limit", KEPT as u64)?)))
        .map_err(|name| {
            let words = format!("`{name}` must be a number, of entries of the audit log");
            bad_field(&name, &words)
        })?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(Json(audit.lock().after(after, limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, status: u16) -> AuditEntry {
        AuditEntry {
            number: 0,
            time_ms: 0,
            user: Some("ann".into()),
            by_token: false,
            peer: "192.0.2.1".into(),
            relayed_by: None,
            method: "POST".into(),
            path: path.into(),
            node: None,
            subject: None,
            status,
            times: 1,
            last_time_ms: 0,
        }
    }

    #[test]
    fn the_same_in_a_row_is_one_entry_that_counts() {
        let mut kept = Kept::default();
        assert!(kept.add(entry("/v1/drain", 200), 1));
        assert!(!kept.add(entry("/v1/drain", 200), 5));
        assert!(kept.add(entry("/v1/drain", 503), 6));
        assert!(kept.add(entry("/v1/drain", 200), 7));
        let mut other = entry("/v1/drain", 200);
        other.user = Some("eve".into());
        assert!(kept.add(other, 8));
        let all = kept.after(0, KEPT);
        let told: Vec<_> = all.iter().map(|it| (it.number, it.times)).collect();
        assert_eq!(told, [(1, 2), (2, 1), (3, 1), (4, 1)]);
        assert_eq!((all[0].time_ms, all[0].last_time_ms), (1, 5));
    }

    #[test]
    fn the_oldest_go_and_pages_follow_numbers() {
        let mut kept = Kept::default();
        for status in 0..=KEPT as u16 {
            kept.add(entry("/v1/kick", status), 0);
        }
        let numbers = |after, limit| -> Vec<u64> {
            let page = kept.after(after, limit);
            page.iter().map(|it| it.number).collect()
        };
        assert_eq!(kept.entries.len(), KEPT);
        assert_eq!(numbers(0, 2), [2, 3]);
        assert_eq!(numbers(3, 2), [4, 5]);
        assert_eq!(numbers(KEPT as u64, 2), [KEPT as u64 + 1]);
        assert_eq!(numbers(KEPT as u64 + 1, 2), [0_u64; 0]);
    }

    #[test]
    fn what_changes_nothing_is_not_written_down() {
        let cases = [
            (Method::GET, "/v1/nodes", false),
            (Method::HEAD, "/v1/nodes", false),
            (Method::POST, "/v1/kick", true),
            (Method::DELETE, "/v1/sessions/a", true),
            (Method::POST, "/v1/trace", true),
            (Method::POST, "/v1/trace/lines", false),
            (Method::POST, "/v1/placements", false),
        ];
        for (method, path, expected) in cases {
            assert_eq!(is_change(&method, path), expected, "{method} {path}");
        }
        assert_eq!(clip(&"ä".repeat(LONGEST + 1)), "ä".repeat(LONGEST));
    }
}
