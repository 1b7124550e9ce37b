//! Health, brokers and metrics over HTTP, on a thread of its own.

use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use thicket_placement::State;

use crate::DispatchError;
use crate::board::{Board, BrokerCounts, Counts, state_name};

/// A broker: `GET /v1/brokers`.
#[derive(Debug, Serialize)]
struct BrokerEntry {
    name: String,
    state: &'static str,
    /// Why no clients are sent there.
    reason: String,
    /// None: unknown.
    cpu: Option<f64>,
    messages_per_s: Option<f64>,
    connections: Option<f64>,
    redirected: u64,
    relayed: u64,
    relaying: u64,
    sources: Vec<SourceEntry>,
}

#[derive(Debug, Serialize)]
struct SourceEntry {
    source: String,
    /// None: it gives its figures.
    problem: Option<String>,
}

/// Listens; the thread ends with the process.
pub(crate) fn start(address: SocketAddr, board: &Arc<Board>) -> Result<SocketAddr, DispatchError> {
    let what = format!("cannot listen on {address} (--http)");
    let listener = TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(DispatchError::system(what))?;
    let local = listener
        .local_addr()
        .map_err(DispatchError::system("--http"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(DispatchError::system("cannot start the HTTP API"))?;
    let routes = Router::new()
        .route("/v1/health/live", get(|| async { "live\n" }))
        .route("/v1/health/ready", get(ready))
        .route("/v1/brokers", get(brokers))
        .route("/metrics", get(metrics))
        .with_state(Arc::clone(board));
    let serve = move || {
        let result = runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, routes).await
        });
        if let Err(error) = result {
            tracing::error!(%error, "the HTTP API ended");
        }
    };
    std::thread::Builder::new()
        .name("http".into())
        .spawn(serve)
        .map_err(DispatchError::system("cannot start the HTTP API"))?;
    Ok(local)
}

async fn ready(Shared(board): Shared<Arc<Board>>) -> impl IntoResponse {
    let serving = board
        .entries()
        .iter()
        .any(|entry| entry.state() == State::Serving);
    match serving {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "no broker takes clients\n"),
    }
}

async fn brokers(Shared(board): Shared<Arc<Board>>) -> impl IntoResponse {
    let entries = board.entries();
    let all: Vec<BrokerEntry> = entries
        .iter()
        .map(|entry| {
            let load = entry.load();
            let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            BrokerEntry {
                name: entry.broker.name.clone(),
                state: state_name(entry.state()),
                reason: entry.reason(),
                cpu: load.cpu,
                messages_per_s: load.messages_per_s,
                connections: load.connections,
                redirected: now(&entry.counts.redirected),
                relayed: now(&entry.counts.relayed),
                relaying: now(&entry.counts.relaying),
                sources: entry
                    .problems()
                    .into_iter()
                    .map(|(source, problem)| SourceEntry {
                        source: source.to_string(),
                        problem,
                    })
                    .collect(),
            }
        })
        .collect();
    Json(all)
}

async fn metrics(Shared(board): Shared<Arc<Board>>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, render(&board))
}

/// Name, kind and help of a metric, and where its count is.
type Family<T> = (
    &'static str,
    &'static str,
    &'static str,
    fn(&T) -> &AtomicU64,
);

/// Encodes the text format of Prometheus.
fn render(board: &Board) -> String {
    let mut page = String::new();
    let whole: [Family<Counts>; 7] = [
        ("connections", "gauge", "Connections of clients", |counts| {
            &counts.connections
        }),
        (
            "accepted_total",
            "counter",
            "Connections accepted",
            |counts| &counts.accepted,
        ),
        (
            "refused_total",
            "counter",
            "Connections over the limit",
            |counts| &counts.refused,
        ),
        (
            "failed_total",
            "counter",
            "Connections that came to nothing",
            |counts| &counts.failed,
        ),
        (
            "unfollowed_total",
            "counter",
            "Clients that did not follow, and were relayed",
            |counts| &counts.unfollowed,
        ),
        (
            "without_broker_total",
            "counter",
            "Clients for whom there was no broker",
            |counts| &counts.without_broker,
        ),
        (
            "relayed_bytes_total",
            "counter",
            "Bytes relayed, both ways",
            |counts| &counts.bytes,
        ),
    ];
    for (name, kind, help, of) in whole {
        family(&mut page, name, kind, help);
        let value = of(&board.counts).load(Ordering::Relaxed);
        let _ = writeln!(page, "thicket_dispatch_{name} {value}");
    }
    let entries = board.entries();
    let each: [Family<BrokerCounts>; 4] = [
        (
            "redirected_total",
            "counter",
            "Clients redirected to a broker",
            |counts| &counts.redirected,
        ),
        (
            "relayed_total",
            "counter",
            "Clients relayed to a broker",
            |counts| &counts.relayed,
        ),
        (
            "relaying",
            "gauge",
            "Clients relayed to a broker now",
            |counts| &counts.relaying,
        ),
        (
            "relay_failures_total",
            "counter",
            "Connections to a broker that could not be made",
            |counts| &counts.failed,
        ),
    ];
    for (name, kind, help, of) in each {
        family(&mut page, name, kind, help);
        for entry in &entries {
            let value = of(&entry.counts).load(Ordering::Relaxed);
            let broker = &entry.broker.name;
            let _ = writeln!(
                page,
                "thicket_dispatch_{name}{{broker=\"{broker}\"}} {value}"
            );
        }
    }
    family(
        &mut page,
        "broker_serving",
        "gauge",
        "Whether a broker takes clients",
    );
    for entry in &entries {
        let serving = u8::from(entry.state() == State::Serving);
        let _ = writeln!(
            page,
            "thicket_dispatch_broker_serving{{broker=\"{}\"}} {serving}",
            entry.broker.name
        );
    }
    family(
        &mut page,
        "broker_load",
        "gauge",
        "Load of a broker, where it is known",
    );
    for entry in &entries {
        let load = entry.load();
        for (figure, value) in [
            ("cpu", load.cpu),
            ("messages_per_s", load.messages_per_s),
            ("connections", load.connections),
        ] {
            if let Some(value) = value {
                let broker = &entry.broker.name;
                let _ = writeln!(
                    page,
                    "thicket_dispatch_broker_load{{broker=\"{broker}\",figure=\"{figure}\"}} {value}"
                );
            }
        }
    }
    family(
        &mut page,
        "source_up",
        "gauge",
        "Whether the load of a broker can be read from this source",
    );
    for entry in &entries {
        for (source, problem) in entry.problems() {
            let source = source
                .to_string()
                .replace('\\', "\\\\")
                .replace('"', "\\\"");
            let broker = &entry.broker.name;
            let up = u8::from(problem.is_none());
            let _ = writeln!(
                page,
                "thicket_dispatch_source_up{{broker=\"{broker}\",source=\"{source}\"}} {up}"
            );
        }
    }
    page
}

fn family(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(page, "# HELP thicket_dispatch_{name} {help}.");
    let _ = writeln!(page, "# TYPE thicket_dispatch_{name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Broker;

    #[test]
    fn metrics_have_each_family_once_and_a_line_for_each_broker() {
        let board = Board::default();
        board.set(vec![
            Broker::parse("a:1,sys").unwrap(),
            Broker::parse("b:1").unwrap(),
        ]);
        board.entries()[0].set_problem(0, "gone".into());
        board.entries()[1].set_state(State::Serving, "");
        let page = render(&board);
        let mut families: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("# TYPE"))
            .collect();
        let all = families.len();
        families.dedup();
        assert_eq!((families.len(), all), (14, 14));
        for line in [
            "thicket_dispatch_redirected_total{broker=\"a:1\"} 0",
            "thicket_dispatch_broker_serving{broker=\"b:1\"} 1",
            "thicket_dispatch_source_up{broker=\"a:1\",source=\"sys\"} 0",
        ] {
            assert!(page.lines().any(|other| other == line), "{line}\n{page}");
        }
        assert!(!page.contains("broker_load{"), "nothing is known");
    }
}
