//! `/v1/retained` and `/v1/publish`: messages over HTTP. Every node has all retained messages, so any node answers for the cluster.

use std::time::Duration;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use thicket_access::Role;
use thicket_mqtt::{ApplicationProperties, Publish, Qos};
use thicket_node::Published;
use thicket_overlay::record::{Record, Records};
use thicket_session::retained::RetainedCursor;
use thicket_session::topic::{TopicFilter, TopicName};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{Answer, bad_body, bad_field, bad_query, bad_value, failure, silent};
use super::cluster::limit_of;
use super::guard::Asker;
use super::{ApiState, Inspector, audit};
use crate::api::messages::{PublishedEntry, RetainedEntry, RetainedPage};
use crate::api::transfer::{LineError, MessageBody};

/// Topics that the hub examines between two rounds.
const STEP: usize = 1024;
/// Bytes of messages after which a page ends.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// What may be asked of `/v1/retained`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct RetainedQuery {
    /// A topic filter; without it all topics.
    filter: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// Messages on a page; 100 if it is not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// With the whole message of each; takes the role or scope `admin`.
    #[serde(default)]
    #[param(required = false)]
    payload: bool,
    /// Name or identity of the node that is to answer; without it the node that is asked.
    // Read by `relay`.
    #[serde(rename = "node")]
    _node: Option<String>,
}

/// What may be asked of `/v1/retained/message`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct OneQuery {
    /// The topic name.
    topic: String,
    /// Name or identity of the node that is to answer; without it the node that is asked.
    // Read by `relay`.
    #[serde(rename = "node")]
    _node: Option<String>,
}

/// A message whose parts were decoded.
pub(super) struct Parts {
    topic: String,
    qos: Qos,
    retain: bool,
    expiry_s: Option<u32>,
    payload: Vec<u8>,
    properties: Vec<u8>,
}

impl Parts {
    pub(super) fn of(body: MessageBody) -> Result<Self, LineError> {
        body.checked_topic()?;
        let expiry_s = body.expiry_left_ms.map(|left| left.div_ceil(1000));
        Ok(Self {
            qos: body.checked_qos()?,
            retain: body.retain,
            expiry_s: expiry_s.map(|left| u32::try_from(left).unwrap_or(u32::MAX)),
            payload: body.payload()?,
            properties: body.properties()?,
            topic: body.topic,
        })
    }

    pub(super) fn publish(&self) -> Publish<'_> {
        Publish {
            qos: self.qos,
            retain: self.retain,
            message_expiry_interval: self.expiry_s,
            // They were checked when they were encoded.
            properties: ApplicationProperties::from_encoded(&self.properties).unwrap_or_default(),
            ..Publish::new(&self.topic, &self.payload)
        }
    }
}

/// A retained message.
pub(super) fn body_of(record: &Record<'_>) -> MessageBody {
    let publish = Publish {
        qos: record.qos,
        retain: true,
        properties: record.properties,
        ..Publish::new(record.topic, record.payload)
    };
    let left = record.expiry_left_ms.map(Duration::from_millis);
    MessageBody::new(&publish, left)
}

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(browse))
        .routes(routes!(read, remove))
        .routes(routes!(publish))
}

/// A page of the retained messages of the cluster.
#[utoipa::path(
    get, path = "/v1/retained", tag = "messages", operation_id = "retained", params(RetainedQuery),
    responses(
        (status = 200, description = "A page", body = RetainedPage),
        (status = 400, description = "A parameter is not valid"),
    ),
)]
async fn browse(
    State(inspector): State<Inspector>,
    asker: Option<Extension<Asker>>,
    query: Result<Query<RetainedQuery>, QueryRejection>,
) -> Answer<RetainedPage> {
    let Query(query) = query.map_err(|rejection| bad_query(&rejection))?;
    let limit = limit_of(query.limit).map_err(|words| bad_field("limit", &words))?;
    if query.payload
        && let Some(answer) = withheld_from(asker.as_deref())
    {
        return Err(answer);
    }
    let mut cursor = match query.filter.as_deref().map(TopicFilter::new) {
        None => RetainedCursor::over_all_topics(),
        Some(Ok(filter)) => RetainedCursor::new(&filter),
        Some(Err(error)) => return Err(bad_field("filter", &format!("`filter`: {error}"))),
    };
    if let Some(after) = &query.after {
        cursor = cursor.behind(after);
    }
    // One more shows whether there is another page.
    let wanted = limit + 1;
    let mut messages = inspector.retained(cursor, wanted, query.payload).await?;
    let has_more = messages.len() > limit || payload_bytes(&messages) > PAGE_BYTES;
    messages.truncate(limit);
    let last = messages.last().map(|last| last.topic.clone());
    Ok(Json(RetainedPage {
        next: last.filter(|_| has_more),
        messages,
    }))
}

/// The retained message of a topic. Requires the role or scope `admin`.
#[utoipa::path(
    get, path = "/v1/retained/message", tag = "messages", operation_id = "retained_message", params(OneQuery),
    responses(
        (status = 200, description = "The message", body = MessageBody),
        (status = 400, description = "A parameter is not valid"),
        (status = 404, description = "No message is retained on the topic, or `node` names no node that is up"),
    ),
)]
async fn read(
    State(inspector): State<Inspector>,
    asker: Option<Extension<Asker>>,
    query: Result<Query<OneQuery>, QueryRejection>,
) -> Answer<MessageBody> {
    let Query(query) = query.map_err(|rejection| bad_query(&rejection))?;
    if let Some(answer) = withheld_from(asker.as_deref()) {
        return Err(answer);
    }
    let found = inspector.retained_of(&query.topic).await?;
    found.map(Json).ok_or_else(|| nothing_on(&query.topic))
}

/// Removes the retained message of a topic, at all nodes.
#[utoipa::path(
    delete, path = "/v1/retained/message", tag = "messages", operation_id = "remove_retained_message", params(OneQuery),
    responses(
        (status = 200, description = "It is removed", body = PublishedEntry),
        (status = 400, description = "A parameter is not valid"),
        (status = 404, description = "No message is retained on the topic, or `node` names no node that is up"),
        (status = 504, description = "Not all nodes that must have it have acknowledged it yet"),
        (status = 507, description = "A queue, the disk or the retained messages have no capacity for it"),
    ),
)]
async fn remove(
    State(inspector): State<Inspector>,
    query: Result<Query<OneQuery>, QueryRejection>,
) -> Response {
    let topic = match query {
        Ok(Query(query)) => query.topic,
        Err(rejection) => return bad_query(&rejection),
    };
    let removed = inspector.remove_retained(&topic).await;
    let answer = removed.map_or_else(|answer| answer, IntoResponse::into_response);
    audit::about(&topic, answer)
}

/// Publishes a message; the answer comes when all nodes and clients that must have it have acknowledged it.
#[utoipa::path(
    post, path = "/v1/publish", tag = "messages", request_body = MessageBody,
    responses(
        (status = 200, description = "It is published", body = PublishedEntry),
        (status = 503, description = "This side of the cluster has no quorum, or the node cannot answer now"),
        (status = 504, description = "Not all nodes that must have it have acknowledged it yet"),
        (status = 507, description = "A queue, the disk or the retained messages have no capacity for it"),
    ),
)]
async fn publish(
    State(inspector): State<Inspector>,
    body: Result<Json<MessageBody>, JsonRejection>,
) -> Response {
    let body = match body {
        Ok(Json(body)) => body,
        Err(rejection) => return bad_body(&rejection),
    };
    let topic = body.topic.clone();
    let published = inspector.publish_body(body).await;
    let answer = published.map_or_else(|answer| answer, IntoResponse::into_response);
    audit::about(&topic, answer)
}

/// Payloads are only for the role `admin`: the rights of clients to topics do not apply to users of the API. `None`: they may be read.
fn withheld_from(asker: Option<&Asker>) -> Option<Response> {
    let is_viewer = asker.is_some_and(|Asker(user)| user.role < Role::Admin);
    is_viewer.then(|| {
        failure(
            StatusCode::FORBIDDEN,
            "payloads take the role or scope `admin`",
        )
    })
}

fn nothing_on(topic: &str) -> Response {
    let words = format!("no message is retained on {topic:?}");
    failure(StatusCode::NOT_FOUND, &words)
}

/// The answer if a message did not reach every recipient that must have it.
pub(super) fn not_published(published: Option<Published>) -> Option<Response> {
    let (status, words) = match published {
        Some(Published::Done | Published::NoSubscribers) => return None,
        Some(Published::Reserved) => {
            let words = "topic: clients may not publish to it";
            return Some(bad_value(Some("topic"), words));
        }
        Some(Published::NoCapacity) => (
            StatusCode::INSUFFICIENT_STORAGE,
            "a queue, the disk or the retained messages are at their limit; other nodes may have received it",
        ),
        Some(Published::NoQuorum) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "this side of the cluster has no quorum",
        ),
        None => (
            StatusCode::GATEWAY_TIMEOUT,
            "it was taken, but not all nodes that must have it have acknowledged it yet",
        ),
    };
    Some(failure(status, words))
}

fn payload_bytes(messages: &[RetainedEntry]) -> usize {
    let with_payload = messages.iter().filter(|it| it.message.is_some());
    with_payload.map(|it| it.payload_bytes as usize).sum()
}

impl Inspector {
    /// Retained messages from a cursor on: `wanted` of them, or as many as fit into a page.
    async fn retained(
        &self,
        mut cursor: RetainedCursor,
        wanted: usize,
        has_payload: bool,
    ) -> Result<Vec<RetainedEntry>, Response> {
        let mut messages = Vec::new();
        loop {
            let looked = self.order_hub(move |hub, now| {
                let (page, has_more) = hub.view().browse_retained(now, &mut cursor, STEP);
                (page, has_more, cursor)
            });
            let (page, has_more, place) = looked.await.map_err(silent)?;
            cursor = place;
            let records = Records::new(&page).flatten();
            messages.extend(records.map(|(record, _)| RetainedEntry {
                topic: record.topic.to_owned(),
                qos: record.qos as u8,
                payload_bytes: record.payload.len() as u64,
                expiry_left_ms: record.expiry_left_ms,
                message: has_payload.then(|| body_of(&record)),
            }));
            if !has_more || messages.len() >= wanted || payload_bytes(&messages) > PAGE_BYTES {
                return Ok(messages);
            }
        }
    }

    async fn retained_of(&self, topic: &str) -> Result<Option<MessageBody>, Response> {
        let name = TopicName::new(topic)
            .map_err(|error| bad_field("topic", &format!("`topic`: {error}")))?;
        let filter = TopicFilter::new(name.as_str())
            .map_err(|error| bad_field("topic", &format!("`topic`: {error}")))?;
        let found = self.retained(RetainedCursor::new(&filter), 1, true).await?;
        Ok(found.into_iter().find_map(|entry| entry.message))
    }

    async fn remove_retained(&self, topic: &str) -> Answer<PublishedEntry> {
        if self.retained_of(topic).await?.is_none() {
            return Err(nothing_on(topic));
        }
        let removal = MessageBody {
            topic: topic.to_owned(),
            qos: Qos::AtLeastOnce as u8,
            retain: true,
            ..MessageBody::default()
        };
        self.publish_body(removal).await
    }

    async fn publish_body(&self, body: MessageBody) -> Answer<PublishedEntry> {
        let topic = body.topic.clone();
        let refused = |error: LineError| bad_value(Some(error.field), &error.to_string());
        let parts = Parts::of(body).map_err(refused)?;
        let done = self.publish(move |worker, now, number| {
            worker
                .operate(now)
                .publish_unowned(number, &parts.publish());
        });
        let published = done.await;
        if let Some(answer) = not_published(published) {
            return Err(answer);
        }
        let has_recipients = published == Some(Published::Done);
        Ok(Json(PublishedEntry {
            topic,
            has_recipients,
        }))
    }
}
