//! The running exporter: a thread for metrics, a thread for spans.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Stop, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thicket_hooks::{AgentError, Queue};

use crate::ExporterConfig;
use crate::encode::{Period, metrics_request, traces_request};
use crate::headers::Headers;
use crate::metric::Table;
use crate::sender::{Sender, Sent, Signal};
use crate::span::Span;

/// Spans in a request at most.
const BATCH: usize = 512;
/// How long the first span of a request waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// Attempts to send the same spans, the last ones seldom; then they are dropped.
const ATTEMPTS: u32 = 5;
/// How long the node waits for each of the threads when it stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the last request with metrics may take.
const LAST_METRICS: Duration = Duration::from_millis(750);

/// An exporter cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The certificates to trust cannot be used.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The system refused a thread or random bytes.
    #[error("cannot start a thread or read random bytes: {0}")]
    System(#[from] io::Error),
}

/// What an exporter has done since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Requests with metrics.
    pub metrics: Requests,
    /// Requests with spans.
    pub traces: Requests,
    /// Spans that the receiver has accepted.
    pub spans_exported: u64,
    /// Spans that are lost: the queue was full, or the receiver refused them or failed too often.
    pub spans_dropped: u64,
    /// Spans that wait.
    pub spans_queued: u64,
}

/// What became of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    /// Accepted by the receiver.
    pub accepted: u64,
    /// Refused, or not answered in time.
    pub failed: u64,
    /// Data points or spans that the receiver rejected in requests that it accepted.
    pub rejected: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

impl Counts {
    fn read(&self) -> Requests {
        Requests {
            accepted: self.accepted.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
        }
    }
}

/// What the threads of an exporter share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: ExporterConfig,
    pub(crate) agent: ureq::Agent,
    pub(crate) metrics: Counts,
    pub(crate) traces: Counts,
    headers: Mutex<Headers>,
    queue: Queue<Span>,
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl Shared {
    pub(crate) fn headers(&self) -> Headers {
        let headers = self.headers.lock();
        headers.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sends metrics and spans to a receiver, from threads of its own: nobody who hands something in waits for the receiver.
#[derive(Debug)]
pub struct Exporter {
    shared: Arc<Shared>,
    started: SystemTime,
    running: Mutex<Running>,
}

/// The threads; `None`: not started, or ended.
#[derive(Debug, Default)]
struct Running {
    /// Closing its sender stops the thread.
    metrics: Option<(Stop<()>, Worker)>,
    /// Closing the queue stops it.
    traces: Option<Worker>,
}

/// A thread that can be joined with a timeout.
#[derive(Debug)]
struct Worker {
    thread: JoinHandle<()>,
    /// The thread closes the other end last.
    ended: Receiver<()>,
}

impl Worker {
    fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (end, ended) = channel();
        let thread = std::thread::Builder::new().name(name.into());
        let thread = thread.spawn(move || {
            work();
            drop::<Stop<()>>(end);
        })?;
        Ok(Self { thread, ended })
    }

    /// A thread that is still busy after that time ends by itself, or with the process.
    fn join(self) {
        if self.ended.recv_timeout(STOP_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let thread = self.thread.thread().name();
            tracing::warn!(
                thread,
                "the OTLP receiver did not answer the last request in time"
            );
        } else {
            // A thread that panicked has said so.
            let _ = self.thread.join();
        }
    }
}

impl Exporter {
    /// Starts an exporter. Spans are sent from now on, metrics when [`Exporter::start_metrics`] says where they come from.
    ///
    /// # Errors
    /// Certificates are no good, or the system has no thread left.
    pub fn start(config: ExporterConfig) -> Result<Self, ExporterError> {
        let shared = Arc::new(Shared {
            agent: thicket_hooks::agent(&config.endpoint, config.authorities.as_deref())?,
            headers: Mutex::new(config.headers.clone()),
            queue: Queue::new(config.queue_spans),
            config,
            metrics: Counts::default(),
            traces: Counts::default(),
            exported: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        let sender = Sender::new(Arc::clone(&shared), Signal::Traces, seed()?);
        let spans = Arc::clone(&shared);
        let traces = Worker::spawn("otlp-traces", move || send_spans(&spans, sender))?;
        Ok(Self {
            shared,
            started: SystemTime::now(),
            running: Mutex::new(Running {
                metrics: None,
                traces: Some(traces),
            }),
        })
    }

    /// Sends what `collect` answers, once an interval. `None`: the node does not answer now.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start_metrics(
        &self,
        collect: impl FnMut() -> Option<Table> + Send + 'static,
    ) -> io::Result<()> {
        let (stop, stopped) = channel();
        let metrics = Metrics {
            sender: Sender::new(Arc::clone(&self.shared), Signal::Metrics, seed()?),
            shared: Arc::clone(&self.shared),
            start_unix_nanos: unix_nanos(self.started),
            collect,
        };
        let worker = Worker::spawn("otlp-metrics", move || metrics.run(&stopped))?;
        self.running().metrics = Some((stop, worker));
        Ok(())
    }

    /// Hands in a span. One that finds the queue full is dropped and counted.
    pub fn submit(&self, span: Span) {
        if self.shared.queue.push(span).is_some() {
            self.note_dropped();
        }
    }

    /// Counts a span that was not handed in, as there was no place for it.
    pub fn note_dropped(&self) {
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests from now on have these headers.
    pub fn set_headers(&self, headers: Headers) {
        let current = self.shared.headers.lock();
        *current.unwrap_or_else(PoisonError::into_inner) = headers;
    }

    /// A handle for reading its statistics.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    /// Sends the metrics a last time, unless the receiver fails, and then no more. Waits for that, a second at most.
    pub fn stop_metrics(&self) {
        let metrics = self.running().metrics.take();
        if let Some((stop, worker)) = metrics {
            drop(stop);
            worker.join();
        }
    }

    /// Refuses further spans and sends those queued, one attempt a request. Returns after a second for the metrics and one for the spans at
    /// most. A second call does nothing.
    pub fn close(&self) {
        self.stop_metrics();
        self.shared.queue.close(STOP_TIMEOUT);
        let traces = self.running().traces.take();
        if let Some(worker) = traces {
            worker.join();
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the statistics of an exporter. Does not keep it running.
#[derive(Debug, Clone)]
pub struct Monitor(Arc<Shared>);

impl Monitor {
    /// Since its start.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let Self(shared) = self;
        Statistics {
            metrics: shared.metrics.read(),
            traces: shared.traces.read(),
            spans_exported: shared.exported.load(Ordering::Relaxed),
            spans_dropped: shared.dropped.load(Ordering::Relaxed),
            spans_queued: shared.queue.size().0 as u64,
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread of metrics.
struct Metrics<C> {
    sender: Sender,
    shared: Arc<Shared>,
    start_unix_nanos: u64,
    collect: C,
}

impl<C: FnMut() -> Option<Table>> Metrics<C> {
    /// Until it is stopped. A request that fails is not repeated as it was: the next attempt has the values of its own time, which say all
    /// that the failed one would have said.
    fn run(mut self, stopped: &Receiver<()>) {
        let interval = self.shared.config.interval;
        let mut pause = interval;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let began = Instant::now();
            pause = match self.export(self.shared.config.timeout) {
                Some(Sent::Retry(pause)) => pause,
                Some(Sent::Accepted | Sent::Refused) | None => {
                    interval.saturating_sub(began.elapsed())
                }
            };
        }
        if !self.sender.is_failing() {
            self.export(LAST_METRICS);
        }
    }

    /// `None`: there was nothing to send.
    fn export(&mut self, timeout: Duration) -> Option<Sent> {
        let began = Instant::now();
        let table = (self.collect)()?;
        let period = Period {
            start_unix_nanos: self.start_unix_nanos,
            end_unix_nanos: unix_nanos(SystemTime::now()).max(self.start_unix_nanos),
        };
        let request = metrics_request(&self.shared.config.resource, &table, period);
        let (bytes, took_us) = (request.len(), began.elapsed().as_micros() as u64);
        let sent = self.sender.send(&request, timeout);
        tracing::debug!(bytes, took_us, ?sent, "a request with metrics was sent");
        Some(sent)
    }
}

/// The thread of spans, until the queue is closed and empty.
fn send_spans(shared: &Shared, mut sender: Sender) {
    while let Some(spans) = shared.queue.take(BATCH, LINGER) {
        let request = traces_request(&shared.config.resource, &spans);
        let count = if is_sent(shared, &mut sender, &request) {
            &shared.exported
        } else {
            &shared.dropped
        };
        count.fetch_add(spans.len() as u64, Ordering::Relaxed);
    }
}

/// Attempts until one succeeds or there are no more.
fn is_sent(shared: &Shared, sender: &mut Sender, request: &[u8]) -> bool {
    for attempt in 1..=ATTEMPTS {
        let timeout = match shared.queue.deadline() {
            None => shared.config.timeout,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                left.min(shared.config.timeout)
            }
        };
        if timeout.is_zero() {
            return false;
        }
        match sender.send(request, timeout) {
            Sent::Accepted => return true,
            Sent::Refused => return false,
            Sent::Retry(_) if attempt == ATTEMPTS || shared.queue.deadline().is_some() => {
                return false;
            }
            Sent::Retry(pause) => shared.queue.pause(pause),
        }
    }
    false
}

fn seed() -> io::Result<u64> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    Ok(u64::from_ne_bytes(seed))
}

/// Nanoseconds since the Unix epoch; 0 before it.
#[must_use]
pub fn unix_nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
