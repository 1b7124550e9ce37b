//! `/v1/watch`: the state of the cluster as this node sees it, once a second, as server-sent events.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{MissedTickBehavior, interval};

use super::answer::failure;
use super::guard::Lease;
use super::inspect::Inspector;
use super::silence::Silence;
use crate::api::overlay::OverlayEntry;
use crate::api::watch::{
    BucketEntry, CertificateEntry, DeliveriesEntry, DiskEntry, LinkRateEntry, WatchEntry,
};
use crate::api::{NodeEntry, TrafficCounts};

/// Time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// What requires a scan of all sessions is done only once in so many events.
const COSTLY: u64 = 5;
/// Topics in an event, those with most traffic.
const TOPICS: usize = 15;

/// The cluster as this node sees it, about once a second, as server-sent events.
#[utoipa::path(
    get, path = "/v1/watch", tag = "monitoring",
    responses(
        (status = 200, description = "Events; the data of each is such an object", body = WatchEntry, content_type = "text/event-stream"),
        (status = 503, description = "The limit of watchers is reached, or the node cannot answer now"),
    ),
)]
pub(super) async fn watch(
    State(inspector): State<Inspector>,
    lease: Option<Extension<Lease>>,
) -> Response {
    let Some(seat) = inspector.watchers.seat() else {
        let words = "as many watch as may; try again later";
        return failure(StatusCode::SERVICE_UNAVAILABLE, words);
    };
    let (sender, receiver) = mpsc::channel(1);
    let lease = lease.map(|Extension(lease)| lease);
    tokio::spawn(tell(inspector, sender, lease));
    Sse::new(Watch {
        receiver,
        _seat: seat,
    })
    .into_response()
}

/// Sends events until the client disconnects or must authenticate again.
async fn tell(inspector: Inspector, sender: mpsc::Sender<Event>, lease: Option<Lease>) {
    let mut looker = Looker::new(inspector);
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = sender.closed() => return,
        }
        if lease.as_ref().is_some_and(|lease| !lease.holds()) {
            return;
        }
        let event = match looker.look().await {
            Ok(entry) => Event::default().json_data(entry),
            // The page shows that the node does not answer when no more events arrive.
            Err(_) => continue,
        };
        let Ok(event) = event else { return };
        if sender.send(event).await.is_err() {
            return;
        }
    }
}

/// The events as a stream.
struct Watch {
    receiver: mpsc::Receiver<Event>,
    _seat: OwnedSemaphorePermit,
}

impl Stream for Watch {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context).map(|event| event.map(Ok))
    }
}

/// Keeps the previous values for rates.
struct Looker {
    inspector: Inspector,
    looks: u64,
    traffic: TrafficCounts,
    /// Bytes carried by the links so far, by node.
    carried: HashMap<String, u64>,
}

impl Looker {
    fn new(inspector: Inspector) -> Self {
        Self {
            inspector,
            looks: 0,
            traffic: TrafficCounts::default(),
            carried: HashMap::new(),
        }
    }

    async fn look(&mut self) -> Result<WatchEntry, Silence> {
        let inspector = self.inspector.clone();
        if self.looks.is_multiple_of(COSTLY) {
            self.traffic = inspector.traffic().await?.total;
        }
        self.looks += 1;
        let (nodes, overlay) = (inspector.nodes().await?, inspector.overlay().await?);
        let not_ready = inspector.readiness().await?.err();
        let mut topics = inspector.topics().await?;
        topics.truncate(TOPICS);
        let own = nodes.iter().find(|node| node.is_self);
        Ok(WatchEntry {
            name: own.map(|own| own.name.clone()).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ready: not_ready.is_none(),
            draining: own
                .and_then(|own| own.state.as_ref())
                .is_some_and(|it| it.draining),
            not_ready: not_ready.map(|why| why.to_string()),
            membership: inspector.membership().await?,
            disagreements: disagreements(&nodes),
            link_traffic: self.link_rates(&overlay),
            routing: overlay.routing,
            links: overlay.links,
            tree: overlay.tree,
            nodes,
            topics,
            traffic: self.traffic,
            disk: disk(&inspector),
            certificates: certificates(&inspector),
            deliveries: deliveries(&inspector),
            websockets: inspector.websockets.to_vec(),
        })
    }

    fn link_rates(&mut self, overlay: &OverlayEntry) -> Vec<LinkRateEntry> {
        let mut rates = Vec::new();
        let mut carried = HashMap::new();
        for link in &overlay.traffic {
            let bytes = link.data_out_bytes
                + link.data_in_bytes
                + link.control_out_bytes
                + link.control_in_bytes;
            let before = self.carried.get(&link.node).copied().unwrap_or(bytes);
            rates.push(LinkRateEntry {
                node: link.node.clone(),
                bytes_per_s: bytes.saturating_sub(before) / PERIOD.as_secs(),
            });
            carried.insert(link.node.clone(), bytes);
        }
        self.carried = carried;
        rates
    }
}

/// Settings of other nodes that differ from this one's, though they must be the same on all.
fn disagreements(nodes: &[NodeEntry]) -> Vec<String> {
    let mut lines = NodeEntry::disagreements_of(nodes);
    lines.iter_mut().for_each(|line| line.push('.'));
    lines
}

fn disk(inspector: &Inspector) -> Option<DiskEntry> {
    let disk = inspector.disk.as_ref()?;
    let (free_bytes, size_bytes) = disk.space()?;
    let (log_bytes, _) = disk.logs();
    Some(DiskEntry {
        full: disk.is_full(),
        free_bytes,
        size_bytes,
        log_bytes,
    })
}

fn deliveries(inspector: &Inspector) -> DeliveriesEntry {
    let found = inspector.counters.deliveries.read();
    let buckets = found.bounds.into_iter().zip(found.within);
    let bucket = |(within_s, count)| BucketEntry { within_s, count };
    DeliveriesEntry {
        buckets: buckets.map(bucket).collect(),
        beyond: found.count.saturating_sub(found.within.iter().sum()),
    }
}

fn certificates(inspector: &Inspector) -> Vec<CertificateEntry> {
    let all = inspector.certificates.days().into_iter();
    all.map(|it| CertificateEntry {
        file: it.path.display().to_string(),
        days: it.days,
    })
    .collect()
}
