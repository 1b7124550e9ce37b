//! The answer of `POST /v1/export`, made while it is read.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use thicket_node::{ExportPlace, Exported};
use thicket_overlay::record::Records;
use thicket_session::retained::RetainedCursor;
use thicket_session::server::{SessionSnapshot, decode_queue};
use thicket_session::time::Instant;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::super::messages::body_of;
use super::super::{Inspector, Silence};
use crate::api::transfer::{EndLine, FORMAT, HeaderLine, Line, MessageLine, SessionLine, VERSION};

/// Bytes requested from a worker at a time.
const PAGE_BYTES: usize = 512 * 1024;
/// Pages that wait to be sent.
const PAGES: usize = 2;
/// The instant for decoding: times in a snapshot are remaining times.
const AT: Instant = Instant::from_millis(0);

/// Why an export ends early.
enum Broken {
    /// The client has disconnected.
    Unread,
    /// A thread of the node does not answer.
    Silent(Silence),
}

impl From<Silence> for Broken {
    fn from(silence: Silence) -> Self {
        Self::Silent(silence)
    }
}

/// The pages as a stream.
struct Pages(Receiver<String>);

impl Stream for Pages {
    type Item = Result<String, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|page| page.map(Ok))
    }
}

/// The sessions of this node and the retained messages, one JSON object per line; the last line has the kind `end`.
#[utoipa::path(
    post, path = "/v1/export", tag = "administration", operation_id = "export",
    responses((status = 200, description = "Lines, each of which is such an object", body = Line, content_type = "application/x-ndjson")),
)]
pub(super) async fn answer(State(inspector): State<Inspector>) -> Response {
    let (sender, receiver) = channel(PAGES);
    tokio::spawn(async move {
        // The missing last line shows the reader that the export is incomplete.
        if let Err(Broken::Silent(silence)) = export(&inspector, &sender).await {
            tracing::error!(%silence, "an export ended early");
        }
    });
    let lines = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (lines, Body::from_stream(Pages(receiver))).into_response()
}

async fn export(inspector: &Inspector, out: &Sender<String>) -> Result<(), Broken> {
    let node = inspector
        .nodes()
        .await?
        .into_iter()
        .find(|node| node.is_self);
    let header = HeaderLine {
        format: FORMAT.to_owned(),
        version: VERSION,
        node: node.map(|node| node.name).unwrap_or_default(),
    };
    send(out, &[Line::Header(header)]).await?;
    let mut end = EndLine::default();
    for thread in 0..inspector.threads() {
        let mut place = Some(ExportPlace::default());
        while let Some(from) = place {
            let page = inspector
                .order_one(thread, move |worker, now| {
                    worker.view().export(now, from, PAGE_BYTES)
                })
                .await?;
            place = page.next;
            let mut lines = Vec::new();
            for item in page.items {
                add(item, &mut lines, &mut end);
            }
            send(out, &lines).await?;
        }
    }
    export_retained(inspector, out, &mut end).await?;
    send(out, &[Line::End(end)]).await
}

fn add(item: Exported, lines: &mut Vec<Line>, end: &mut EndLine) {
    match item {
        Exported::Session(bytes) => {
            // The worker has just encoded it.
            let Ok(snapshot) = SessionSnapshot::decode(&bytes, AT) else {
                return;
            };
            let (session, in_flight) = SessionLine::split(snapshot, AT);
            end.sessions += 1;
            end.messages += in_flight.len() as u64;
            lines.push(Line::Session(Box::new(session)));
            lines.extend(in_flight);
        }
        Exported::Queue {
            client_id,
            messages,
        } => {
            let deliveries = decode_queue(&messages, AT).unwrap_or_default();
            end.messages += deliveries.len() as u64;
            lines.extend(deliveries.iter().map(|delivery| {
                let line = MessageLine::new(client_id.clone(), None, delivery, AT);
                Line::Message(Box::new(line))
            }));
        }
    }
}

async fn export_retained(
    inspector: &Inspector,
    out: &Sender<String>,
    end: &mut EndLine,
) -> Result<(), Broken> {
    let mut cursor = RetainedCursor::over_all_topics();
    loop {
        let now = inspector.order_one(0, |_, now| now).await?;
        let (page, has_more, next) = inspector
            .of_hub(move |hub| {
                let mut cursor = cursor.clone();
                let (page, has_more) = hub.export_retained(now, &mut cursor);
                (page, has_more, cursor)
            })
            .await?;
        cursor = next;
        let lines: Vec<Line> = Records::new(&page)
            .flatten()
            .map(|(record, _)| Line::Retained(Box::new(body_of(&record))))
            .collect();
        end.retained += lines.len() as u64;
        send(out, &lines).await?;
        if !has_more {
            return Ok(());
        }
    }
}

async fn send(out: &Sender<String>, lines: &[Line]) -> Result<(), Broken> {
    let mut text = String::new();
    for line in lines {
        text.push_str(&serde_json::to_string(line).expect("lines are plain data"));
        text.push('\n');
    }
    if text.is_empty() {
        return Ok(());
    }
    out.send(text).await.map_err(|_| Broken::Unread)
}
