//! `/v1/recording`: the sessions of this node with their filters, a page at a time.

use axum::Json;
use axum::extract::{RawQuery, State};
use thicket_node::{HubView, Now, SessionRecord, Worker};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{Answer, bad_field, silent};
use super::{ApiState, Inspector, Silence};
use crate::api::overlay::text_of_query;
use crate::api::recording::{RecordedSession, RecordingPage};

/// Most sessions on a page.
const SESSIONS: usize = 1000;
/// Most filters on a page, except for a session that alone has more.
const FILTERS: usize = 20_000;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(page))
}

/// The sessions of this node with their filters, a page, for `thicket plan`.
#[utoipa::path(
    get, path = "/v1/recording", tag = "placement", operation_id = "recording",
    params(
        ("after" = Option<String>, Query, description = "`next` of the page before."),
        ("limit" = Option<usize>, Query, description = "Sessions on a page; 1000 if it is not given.", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page", body = RecordingPage),
        (status = 400, description = "A parameter is not valid"),
    ),
)]
async fn page(
    State(inspector): State<Inspector>,
    RawQuery(query): RawQuery,
) -> Answer<RecordingPage> {
    let query = query.unwrap_or_default();
    let limit = limit_of(&query).map_err(|words| bad_field("limit", &words))?;
    let after = text_of_query(&query, "after");
    let records = inspector.session_records(after, limit + 1).await;
    let (records, next) = cut(records.map_err(silent)?, limit);
    let asked = inspector.order_hub(move |hub, now| entries(hub.view(), now, records));
    let mut page = asked.await.map_err(silent)?;
    page.next = next;
    Ok(Json(page))
}

fn limit_of(query: &str) -> Result<usize, String> {
    let Some(text) = text_of_query(query, "limit") else {
        return Ok(SESSIONS);
    };
    let limit = text.parse().ok();
    limit
        .filter(|limit| (1..=SESSIONS).contains(limit))
        .ok_or_else(|| format!("`limit` must be a number of sessions, 1 to {SESSIONS}"))
}

/// The first page, and where the next one begins.
fn cut(mut records: Vec<SessionRecord>, limit: usize) -> (Vec<SessionRecord>, Option<String>) {
    let mut filters = 0;
    let fits = |record: &SessionRecord| {
        filters += record.filters.len();
        filters <= FILTERS
    };
    let fitting = records.iter().take(limit).map(fits);
    let count = fitting.take_while(|fits| *fits).count().max(1);
    let is_last = records.len() <= count;
    records.truncate(count);
    let next = records.last().map(|last| last.name.clone());
    (records, next.filter(|_| !is_last))
}

fn entries(hub: HubView<'_>, now: Now, records: Vec<SessionRecord>) -> RecordingPage {
    let entry = |record: SessionRecord| {
        let placed = hub.placed_name(now, &record.name);
        let is_placed = placed.is_some();
        let max_sessions = placed.as_ref().and_then(|placed| placed.max_sessions);
        let (client_id, session, publish) = match placed {
            Some(placed) => (placed.client_id, placed.number, placed.publish),
            None => (record.client_id, 1, Vec::new()),
        };
        RecordedSession {
            client_id,
            user_name: record.user_name,
            session,
            placed: is_placed,
            max_sessions,
            publish,
            subscribe: record.filters,
        }
    };
    let nodes = hub.nodes().into_iter();
    let own = nodes.filter(|node| node.is_self).map(|node| node.id);
    RecordingPage {
        node: own.collect(),
        site_price: hub.site_prices().texts().collect(),
        sessions: records.into_iter().map(entry).collect(),
        next: None,
    }
}

impl Inspector {
    /// The sessions after a name, sorted by name, up to a number.
    async fn session_records(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<SessionRecord>, Silence> {
        let of_worker = move |worker: &mut Worker, _: Now| {
            worker.view().session_records(after.as_deref(), limit)
        };
        let mut all = self.ask_all(of_worker).await?.concat();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.truncate(limit);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(filters: &[usize]) -> Vec<SessionRecord> {
        let record = |(number, filters): (usize, &usize)| SessionRecord {
            name: format!("c{number}"),
            client_id: format!("c{number}"),
            user_name: None,
            filters: vec!["f".into(); *filters],
        };
        filters.iter().enumerate().map(record).collect()
    }

    #[test]
    fn a_page_ends_with_its_sessions_or_its_filters_and_has_one_session_at_least() {
        let (full, half) = (FILTERS, FILTERS / 2);
        let cases: [(&[usize], usize, usize, Option<&str>); 6] = [
            (&[], 2, 0, None),
            (&[1, 1], 2, 2, None),
            (&[1, 1, 1], 2, 2, Some("c1")),
            (&[half, half, 1], 5, 2, Some("c1")),
            (&[full + 1, 1], 5, 1, Some("c0")),
            (&[full + 1], 5, 1, None),
        ];
        for (filters, limit, count, next) in cases {
            let (page, found) = cut(records(filters), limit);
            assert_eq!((page.len(), found.as_deref()), (count, next), "{filters:?}");
        }
    }

    #[test]
    fn a_limit_that_is_none_is_refused() {
        assert_eq!(limit_of(""), Ok(SESSIONS));
        assert_eq!(limit_of("limit=7"), Ok(7));
        for bad in ["limit=0", "limit=1001", "limit=x", "limit=-1"] {
            let words = limit_of(bad).unwrap_err();
            assert!(words.contains("`limit`"), "{bad}: {words}");
        }
    }
}
