//! The work of `POST /v1/import`.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_core::Stream as _;
use thicket_node::Imported;
use thicket_session::server::{Delivery, encode_queue};
use thicket_session::time::Instant;
use tokio::time::Instant as Clock;

use super::super::answer::{bad_field, failure, silent};
use super::super::messages::Parts;
use super::super::{Inspector, Silence};
use crate::api::overlay::text_of_query;
use crate::api::transfer::{FORMAT, HeaderLine, ImportEntry, Line, MessageBody, VERSION};

/// Longest line, bytes: the largest packet as base64, and its envelope.
const LINE_BYTES: usize = 400 * 1024 * 1024;
/// Bytes of lines that form a batch.
const BATCH_BYTES: usize = 1024 * 1024;
/// Sessions that are claimed in parallel.
const BATCH_SESSIONS: usize = 256;
/// Problems reported in full; the rest is counted.
const PROBLEMS: usize = 20;
/// A claim without an answer in this time is abandoned.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Time between two checks of pending claims.
const LOOK: Duration = Duration::from_millis(2);
/// The instant for encoding: times in a snapshot are remaining times.
const AT: Instant = Instant::from_millis(0);

/// Numbers of imports, unique in a process.
static NEXT_IMPORT: AtomicU64 = AtomicU64::new(1);

/// Why an import ends early.
enum Broken {
    /// A line is not valid.
    Line { number: u64, problem: String },
    /// The body ends, or a line is too long.
    Unreadable(String),
    /// A thread of the node does not answer.
    Silent(Silence),
}

impl From<Silence> for Broken {
    fn from(silence: Silence) -> Self {
        Self::Silent(silence)
    }
}

/// Imports the lines of an export.
#[utoipa::path(
    post, path = "/v1/import", tag = "administration", operation_id = "import",
    params(("replace" = Option<bool>, Query, description = "Whether sessions and retained messages replace those that are there; otherwise these stay.")),
    request_body(content = Line, description = "Lines, each of which is such an object", content_type = "application/x-ndjson"),
    responses(
        (status = 200, description = "All lines were read", body = ImportEntry),
        (status = 400, description = "A line or the query is not valid; the lines before it were imported"),
    ),
)]
pub(super) async fn answer(
    State(inspector): State<Inspector>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Response {
    let query = query.unwrap_or_default();
    let is_known = |pair: &str| {
        let name = pair.split('=').next().unwrap_or(pair);
        ["", "node", "replace"].contains(&name)
    };
    let replace = match text_of_query(&query, "replace").as_deref() {
        _ if !query.split('&').all(is_known) => None,
        None | Some("false") => Some(false),
        Some("true") => Some(true),
        Some(_) => None,
    };
    let Some(replace) = replace else {
        let words = "expected no query, `replace=false` or `replace=true`";
        return bad_field("replace", words);
    };
    let mut import = Import::new(inspector, replace);
    let words = match import.run(body).await {
        Ok(()) => return Json(import.entry).into_response(),
        Err(Broken::Silent(silence)) => return silent(silence),
        Err(Broken::Line { number, problem }) => format!("line {number}: {problem}"),
        Err(Broken::Unreadable(problem)) => problem,
    };
    let done = &import.entry;
    let words = format!(
        "{words}; before that {} sessions, {} messages and {} retained messages were imported",
        done.sessions, done.messages, done.retained
    );
    failure(StatusCode::BAD_REQUEST, &words)
}

/// An import under way.
struct Import {
    inspector: Inspector,
    replace: bool,
    entry: ImportEntry,
    /// Lines read.
    number: u64,
    has_header: bool,
    has_ended: bool,
    batch: Vec<(u64, Line)>,
    batch_bytes: usize,
    batch_sessions: usize,
    /// The sessions of this batch and the last one of the batch before, and whether messages may be added to them.
    sessions: HashMap<String, bool>,
}

impl Import {
    fn new(inspector: Inspector, replace: bool) -> Self {
        Self {
            inspector,
            replace,
            entry: ImportEntry::default(),
            number: 0,
            has_header: false,
            has_ended: false,
            batch: Vec::new(),
            batch_bytes: 0,
            batch_sessions: 0,
            sessions: HashMap::new(),
        }
    }

    async fn run(&mut self, body: Body) -> Result<(), Broken> {
        let mut stream = body.into_data_stream();
        let mut rest: Vec<u8> = Vec::new();
        loop {
            let next = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await;
            let Some(chunk) = next else { break };
            let chunk: Bytes = chunk.map_err(|error| Broken::Unreadable(error.to_string()))?;
            let mut chunk = &chunk[..];
            while let Some(end) = chunk.iter().position(|&byte| byte == b'\n') {
                rest.extend_from_slice(&chunk[..end]);
                chunk = &chunk[end + 1..];
                self.take(&rest).await?;
                rest.clear();
            }
            rest.extend_from_slice(chunk);
            if rest.len() > LINE_BYTES {
                let problem = format!("a line is longer than {LINE_BYTES} bytes");
                return Err(Broken::Unreadable(problem));
            }
        }
        if !rest.is_empty() {
            self.take(&rest).await?;
        }
        self.work().await?;
        if self.has_ended {
            Ok(())
        } else {
            let problem = "the last line is missing, so the export was cut off".to_owned();
            Err(Broken::Unreadable(problem))
        }
    }

    fn line_error(&self, problem: impl ToString) -> Broken {
        Broken::Line {
            number: self.number,
            problem: problem.to_string(),
        }
    }

    async fn take(&mut self, text: &[u8]) -> Result<(), Broken> {
        self.number += 1;
        if text.trim_ascii().is_empty() {
            return Ok(());
        }
        let line: Line = serde_json::from_slice(text).map_err(|error| self.line_error(error))?;
        match (&line, self.has_header, self.has_ended) {
            (Line::Header(header), false, _) => {
                check_header(header).map_err(|problem| self.line_error(problem))?;
                self.has_header = true;
                return Ok(());
            }
            (_, false, _) => return Err(self.line_error("expected the first line of an export")),
            (Line::Header(_), true, _) => {
                return Err(self.line_error("another first line: one export at a time"));
            }
            (_, true, true) => return Err(self.line_error("a line after the last one")),
            (Line::End(_), true, false) => {
                self.has_ended = true;
                return Ok(());
            }
            _ => {}
        }
        let is_full = self.batch_bytes >= BATCH_BYTES || self.batch_sessions >= BATCH_SESSIONS;
        if is_full && !belongs_to_session(&line) {
            self.work().await?;
        }
        self.batch_bytes += text.len();
        self.batch_sessions += usize::from(matches!(line, Line::Session(_)));
        self.batch.push((self.number, line));
        Ok(())
    }

    /// Carries out the lines of the batch.
    async fn work(&mut self) -> Result<(), Broken> {
        let batch = std::mem::take(&mut self.batch);
        (self.batch_bytes, self.batch_sessions) = (0, 0);
        let last = batch.iter().rev().find_map(|(_, line)| match line {
            Line::Session(session) => Some(session.client_id.clone()),
            _ => None,
        });
        let mut queued: Vec<(u64, Line)> = Vec::new();
        let mut retained = Vec::new();
        let mut sessions = Vec::new();
        for (number, line) in batch {
            match line {
                Line::Session(session) => sessions.push((number, session, Vec::new())),
                Line::Retained(body) => retained.push((number, body)),
                line if belongs_to_session(&line) => match sessions.last_mut() {
                    Some((_, _, in_flight)) => in_flight.push(line),
                    None => {
                        let problem = "in flight, but not behind its session";
                        return Err(self.line_error(problem));
                    }
                },
                line => queued.push((number, line)),
            }
        }
        self.import_sessions(sessions).await?;
        self.import_messages(queued).await?;
        self.import_retained(retained).await?;
        if let Some(last) = last {
            // Messages of the next batch may belong to it.
            self.sessions.retain(|client_id, _| *client_id == last);
        }
        Ok(())
    }

    fn note_problem(&mut self, number: u64, problem: impl std::fmt::Display) {
        if self.entry.problems.len() < PROBLEMS {
            self.entry
                .problems
                .push(format!("line {number}: {problem}"));
        }
    }

    async fn import_sessions(
        &mut self,
        sessions: Vec<(u64, Box<crate::api::transfer::SessionLine>, Vec<Line>)>,
    ) -> Result<(), Broken> {
        let names: Arc<[String]> = sessions
            .iter()
            .map(|(_, session, _)| session.client_id.clone())
            .collect();
        let asked = Arc::clone(&names);
        let homes = self
            .inspector
            .ask_all(move |worker, _| {
                let has = |name: &String| worker.view().has_session(name);
                asked.iter().map(has).collect::<Vec<bool>>()
            })
            .await?;
        let mut open = HashMap::new();
        for (index, (number, session, in_flight)) in sessions.into_iter().enumerate() {
            let client_id = session.client_id.clone();
            let messages = in_flight.len() as u64;
            let snapshot = match session.join(&in_flight, AT) {
                Ok(snapshot) => snapshot.encode(AT),
                Err(error) => {
                    self.end_session(number, &client_id, messages, Err(error.to_string()));
                    continue;
                }
            };
            let import = NEXT_IMPORT.fetch_add(1, Ordering::Relaxed);
            // A session that exists stays on its worker; others are distributed.
            let home = homes.iter().position(|here| here[index]);
            let thread = home.unwrap_or(import as usize % homes.len());
            let replace = self.replace;
            self.inspector
                .order_one(thread, move |worker, now| {
                    worker.operate(now).begin_import(import, &snapshot, replace);
                })
                .await?;
            open.insert(import, (thread, number, client_id, messages));
        }
        self.await_sessions(open).await
    }

    async fn await_sessions(
        &mut self,
        mut open: HashMap<u64, (usize, u64, String, u64)>,
    ) -> Result<(), Broken> {
        let deadline = Clock::now() + TIMEOUT;
        while !open.is_empty() {
            let numbers: Vec<_> = open
                .iter()
                .map(|(it, (thread, ..))| (*it, *thread))
                .collect();
            for thread in 0..self.inspector.threads() {
                let here = numbers.iter().filter(|(_, it)| *it == thread);
                let here: Vec<u64> = here.map(|(import, _)| *import).collect();
                if here.is_empty() {
                    continue;
                }
                let done = self
                    .inspector
                    .order_one(thread, move |worker, now| {
                        let mut worker = worker.operate(now);
                        let look = |import| Some((import, worker.take_import(import)?));
                        here.into_iter().filter_map(look).collect::<Vec<_>>()
                    })
                    .await?;
                for (import, outcome) in done {
                    if let Some((_, number, client_id, messages)) = open.remove(&import) {
                        self.end_session(number, &client_id, messages, Ok(outcome));
                    }
                }
            }
            if Clock::now() > deadline {
                break;
            }
            if !open.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        }
        for (_, (_, number, client_id, messages)) in open {
            self.end_session(number, &client_id, messages, Ok(Imported::Unavailable));
        }
        Ok(())
    }

    fn end_session(
        &mut self,
        number: u64,
        client_id: &str,
        in_flight: u64,
        outcome: Result<Imported, String>,
    ) {
        let problem = match outcome {
            Ok(Imported::Done) => None,
            Ok(Imported::Exists) => {
                self.entry.sessions_existing += 1;
                Some(None)
            }
            Ok(Imported::DiskFull) => Some(Some("the disk is full".to_owned())),
            Ok(Imported::Unavailable) => Some(Some(
                "the client identifier cannot be claimed now".to_owned(),
            )),
            Ok(Imported::Unreadable) => Some(Some("it is no session".to_owned())),
            Err(problem) => Some(Some(problem)),
        };
        self.sessions
            .insert(client_id.to_owned(), problem.is_none());
        match problem {
            None => {
                self.entry.sessions += 1;
                self.entry.messages += in_flight;
            }
            Some(problem) => {
                self.entry.messages_skipped += in_flight;
                if let Some(problem) = problem {
                    self.entry.sessions_failed += 1;
                    self.note_problem(number, format!("session {client_id:?}: {problem}"));
                }
            }
        }
    }

    /// Messages of queues, grouped by session: client identifier, encoded messages, their number.
    fn encode_queues(&mut self, lines: Vec<(u64, Line)>) -> Vec<(String, Vec<u8>, u64)> {
        let mut runs: Vec<(String, Vec<Delivery>)> = Vec::new();
        for (number, line) in lines {
            let Line::Message(line) = line else { continue };
            let problem = match self.sessions.get(&line.client_id) {
                Some(true) => match line.delivery(AT) {
                    Ok(delivery) => {
                        match runs
                            .last_mut()
                            .filter(|(whose, _)| *whose == line.client_id)
                        {
                            Some((_, run)) => run.push(delivery),
                            None => runs.push((line.client_id, vec![delivery])),
                        }
                        continue;
                    }
                    Err(error) => Some(error.to_string()),
                },
                Some(false) => None,
                None => Some("a message, but not behind its session".to_owned()),
            };
            self.entry.messages_skipped += 1;
            if let Some(problem) = problem {
                self.note_problem(number, problem);
            }
        }
        let encode = |(whose, run): (String, Vec<Delivery>)| {
            let count = run.len() as u64;
            (whose, encode_queue(&run, AT), count)
        };
        runs.into_iter().map(encode).collect()
    }

    async fn import_messages(&mut self, lines: Vec<(u64, Line)>) -> Result<(), Broken> {
        let encoded = self.encode_queues(lines);
        for (client_id, messages, count) in encoded {
            let messages: Arc<[u8]> = messages.into();
            let answers = self
                .inspector
                .ask_all(move |worker, now| {
                    worker.operate(now).import_messages(&client_id, &messages)
                })
                .await?;
            match answers.into_iter().flatten().next() {
                Some(done) => {
                    self.entry.messages += done.taken;
                    self.entry.messages_dropped += done.dropped;
                }
                // Its session has ended meanwhile.
                None => self.entry.messages_skipped += count,
            }
        }
        Ok(())
    }

    async fn import_retained(
        &mut self,
        bodies: Vec<(u64, Box<MessageBody>)>,
    ) -> Result<(), Broken> {
        let topics: Vec<String> = bodies.iter().map(|(_, body)| body.topic.clone()).collect();
        let existing = self
            .inspector
            .of_hub(move |hub| {
                let has = |topic: &String| hub.has_retained(topic);
                topics.iter().map(has).collect::<Vec<bool>>()
            })
            .await?;
        for ((number, body), exists) in bodies.into_iter().zip(existing) {
            if exists && !self.replace {
                self.entry.retained_existing += 1;
                continue;
            }
            let parts = match Parts::of(*body) {
                Ok(parts) => parts,
                Err(error) => {
                    self.note_problem(number, error);
                    continue;
                }
            };
            let done = self
                .inspector
                .order_one(0, move |worker, now| {
                    worker.operate(now).import_retained(&parts.publish())
                })
                .await?;
            if done {
                self.entry.retained += 1;
            } else {
                self.note_problem(number, "the topic is reserved, too deep, or has no payload");
            }
        }
        Ok(())
    }
}

fn check_header(header: &HeaderLine) -> Result<(), String> {
    if header.format != FORMAT {
        return Err(format!(
            "format: expected {FORMAT}, found {}",
            header.format
        ));
    }
    if header.version != VERSION {
        let found = header.version;
        return Err(format!("version: this node reads {VERSION}, found {found}"));
    }
    Ok(())
}

/// Whether a line belongs to a session but not to its queue.
fn belongs_to_session(line: &Line) -> bool {
    match line {
        Line::Pubrel(_) => true,
        Line::Message(line) => line.packet_id.is_some(),
        Line::Header(_) | Line::Session(_) | Line::Retained(_) | Line::End(_) => false,
    }
}
