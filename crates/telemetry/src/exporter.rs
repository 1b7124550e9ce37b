//! The running exporter: a thread for metrics, one for spans, one for log records.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Stop, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thicket_hooks::AgentError;

use crate::ExporterConfig;
use crate::encode::{Period, logs_request, metrics_request, traces_request};
use crate::headers::Headers;
use crate::metric::Table;
use crate::record::LogRecord;
use crate::sender::{Sender, Sent, Signal};
use crate::shared::{Counts, Items, Requests, Shared, Stream};
use crate::span::Span;

/// Most spans or log records in a request.
const BATCH: usize = 512;
/// How long the first item of a request waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// Attempts to send the same request, with growing pauses; then its items are dropped.
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

/// Counts since the exporter's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Requests with metrics.
    pub metrics: Requests,
    /// Requests with spans.
    pub traces: Requests,
    /// Requests with log records.
    pub logs: Requests,
    /// Outcomes of spans.
    pub spans: Items,
    /// Outcomes of log records.
    pub log_records: Items,
}

impl<T> Stream<T> {
    /// Sends queued items, until the queue is closed and empty.
    fn send(&self, shared: &Shared, mut sender: Sender, encode: Encode<T>) {
        while let Some(items) = self.queue.take(BATCH, LINGER) {
            let request = encode(&shared.config.resource, &items);
            let count = if self.is_sent(shared, &mut sender, &request) {
                &self.exported
            } else {
                &self.dropped
            };
            count.fetch_add(items.len() as u64, Ordering::Relaxed);
        }
    }

    /// Tries until an attempt succeeds or none is left.
    fn is_sent(&self, shared: &Shared, sender: &mut Sender, request: &[u8]) -> bool {
        for attempt in 1..=ATTEMPTS {
            let timeout = match self.queue.deadline() {
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
                Sent::Retry(_) if attempt == ATTEMPTS || self.queue.deadline().is_some() => {
                    return false;
                }
                Sent::Retry(pause) => self.queue.pause(pause),
            }
        }
        false
    }
}

/// Encodes the resource and items as the body of a request.
type Encode<T> = fn(&[(String, String)], &[T]) -> Vec<u8>;

/// Sends metrics, spans and log records to a receiver, from threads of its own: no caller waits for the receiver.
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
    /// Closing their queues stops them.
    streams: Vec<Worker>,
}

/// A thread that can be joined with a timeout.
#[derive(Debug)]
struct Worker {
    thread: JoinHandle<()>,
    /// Closed when the thread ends.
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

    /// Waits for the thread with a timeout; a thread that is still busy then ends by itself, or with the process.
    fn join(self) {
        if self.ended.recv_timeout(STOP_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let thread = self.thread.thread().name();
            tracing::warn!(
                thread,
                "the OTLP receiver did not answer the last request in time"
            );
        } else {
            // A panic was logged already.
            let _ = self.thread.join();
        }
    }
}

impl Exporter {
    /// Starts an exporter. Spans and log records are sent from now on, metrics once [`Exporter::start_metrics`] names their source.
    ///
    /// # Errors
    /// Certificates are not valid, or the system has no thread left.
    pub fn start(config: ExporterConfig) -> Result<Self, ExporterError> {
        let shared = Arc::new(Shared {
            agent: thicket_hooks::agent(&config.endpoint, config.authorities.as_deref())?,
            headers: Mutex::new(config.headers.clone()),
            spans: Stream::new(config.queue_spans),
            log_records: Stream::new(config.queue_log_records.unwrap_or(0)),
            metrics: Counts::default(),
            traces: Counts::default(),
            logs: Counts::default(),
            config,
        });
        let sender = Sender::new(Arc::clone(&shared), Signal::Traces, seed()?);
        let of_spans = Arc::clone(&shared);
        let mut streams = vec![Worker::spawn("otlp-traces", move || {
            of_spans.spans.send(&of_spans, sender, traces_request);
        })?];
        if shared.config.queue_log_records.is_some() {
            let sender = Sender::new(Arc::clone(&shared), Signal::Logs, seed()?);
            let of_logs = Arc::clone(&shared);
            streams.push(Worker::spawn("otlp-logs", move || {
                of_logs.log_records.send(&of_logs, sender, logs_request);
            })?);
        }
        Ok(Self {
            shared,
            started: SystemTime::now(),
            running: Mutex::new(Running {
                metrics: None,
                streams,
            }),
        })
    }

    /// Sends what `collect` returns, once an interval. `None`: the node does not answer now.
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

    /// Queues a span. If the queue is full, the span is dropped and counted.
    pub fn submit(&self, span: Span) {
        self.shared.spans.submit(span);
    }

    /// Queues a line of the log. If the queue is full, the line is dropped and counted. Logs nothing itself.
    pub fn submit_log(&self, record: LogRecord) {
        self.shared.log_records.submit(record);
    }

    /// Whether log records are sent.
    #[must_use]
    pub fn takes_logs(&self) -> bool {
        self.shared.config.queue_log_records.is_some()
    }

    /// Counts a span that was dropped before it was queued, because its owner had no capacity.
    pub fn note_dropped(&self) {
        self.shared.spans.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Uses these headers for requests from now on.
    pub fn set_headers(&self, headers: Headers) {
        let current = self.shared.headers.lock();
        *current.unwrap_or_else(PoisonError::into_inner) = headers;
    }

    /// A handle for reading its statistics.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    /// Sends the metrics a last time, unless the receiver fails, and stops. Waits for that, at most a second.
    pub fn stop_metrics(&self) {
        let metrics = self.running().metrics.take();
        if let Some((stop, worker)) = metrics {
            drop(stop);
            worker.join();
        }
    }

    /// Refuses further spans and log records and sends the queued ones, with one attempt for each request. Returns after at most a second for each of
    /// metrics, spans and log records. A second call does nothing.
    pub fn close(&self) {
        self.stop_metrics();
        self.shared.spans.queue.close(STOP_TIMEOUT);
        self.shared.log_records.queue.close(STOP_TIMEOUT);
        let streams = std::mem::take(&mut self.running().streams);
        for worker in streams {
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
    /// The counts since its start.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let Self(shared) = self;
        Statistics {
            metrics: shared.metrics.read(),
            traces: shared.traces.read(),
            logs: shared.logs.read(),
            spans: shared.spans.read(),
            log_records: shared.log_records.read(),
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread that sends metrics.
struct Metrics<C> {
    sender: Sender,
    shared: Arc<Shared>,
    start_unix_nanos: u64,
    collect: C,
}

impl<C: FnMut() -> Option<Table>> Metrics<C> {
    /// Runs until it is stopped. A failed request is not repeated: the next one has newer values, which include those of the failed one.
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
