//! Threads with periodic duties: one watches memory, the other measures load and publishes `$SYS/` topics.

mod system;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::certificates;
use crate::gate::NodeGate;
use crate::http::Inspector;
use crate::load::{Given, Meter};
use crate::log;
use crate::memory::{Freed, limit_bytes, resident_bytes};
use crate::readiness::Reminder;
use system::System;

/// Time between two checks of memory: short compared with the time in which clients fill the reserve above the limit.
const LOOK: Duration = Duration::from_millis(100);
/// The same near the limit: a client on the same machine fills hundreds of megabytes a second.
const CLOSE_LOOK: Duration = Duration::from_millis(10);
const CLOSE: (u64, u64) = (3, 4);
/// Memory is no longer short when usage falls below this part of the limit.
const RELIEF: (u64, u64) = (19, 20);

/// Time between two measurements of the load (Dispatcher III).
const MEASURE: Duration = Duration::from_secs(1);
/// If a thread does not report its counters within this time, the measurement is skipped.
const BRIEFLY: Duration = Duration::from_millis(500);

/// The reserve above the limit, for clients that return to their sessions: one part in so many.
const RESERVE: u64 = 4;

/// The duties and what they need.
pub(crate) struct Duties {
    pub(crate) inspector: Inspector,
    pub(crate) gate: Arc<NodeGate>,
    /// As configured.
    pub(crate) memory_bytes: Option<u64>,
    /// Zero: off.
    pub(crate) system_interval: Duration,
}

/// The running threads. Dropping it stops them.
#[derive(Debug)]
pub(crate) struct Housekeeper {
    stops: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Housekeeper {
    pub(crate) fn start(duties: Duties) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let limit = limit_bytes(duties.memory_bytes);
        let duties = Arc::new(duties);
        let mut housekeeper = Self {
            stops: Vec::new(),
            threads: Vec::new(),
        };
        // On a thread of its own: the other duties wait for the node's threads, and clients fill memory meanwhile.
        let watcher = Arc::clone(&duties);
        housekeeper.spawn("memory", move |stopped| {
            let mut pause = LOOK;
            let mut freed = Freed::default();
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = watcher.watch_memory(limit, &mut freed);
            }
        })?;
        housekeeper.spawn("housekeeper", move |stopped| {
            let mut system = System::new(Instant::now());
            let mut due = Instant::now();
            let mut meter = Meter::new();
            let mut measure_at = Instant::now();
            let mut certificates = certificates::Watch::default();
            let mut reminder = Reminder::new(Instant::now());
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                duties.inspector.end_abandoned_trace(Instant::now());
                log::sum_up();
                if measure_at <= Instant::now() {
                    measure_at = Instant::now() + MEASURE;
                    runtime.block_on(duties.measure(&mut meter, limit));
                    certificates.look(Instant::now(), &duties.inspector.certificates);
                    if let Ok(state) = runtime.block_on(duties.inspector.readiness()) {
                        reminder.note(Instant::now(), state);
                    }
                }
                if !duties.system_interval.is_zero() && due <= Instant::now() {
                    due = Instant::now() + duties.system_interval;
                    // If the node does not answer, it has other problems, and the API reports them.
                    let _ = runtime.block_on(system.publish(&duties.inspector));
                }
            }
        })?;
        Ok(housekeeper)
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(Receiver<()>) + Send + 'static,
    ) -> io::Result<()> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new().name(name.into());
        self.threads.push(thread.spawn(move || work(stopped))?);
        self.stops.push(stop);
        Ok(())
    }
}

impl Duties {
    /// Measures the load and sends it to the hub.
    async fn measure(&self, meter: &mut Meter, limit: Option<u64>) {
        let asked = tokio::time::timeout(BRIEFLY, self.inspector.carried()).await;
        let Ok(Ok(carried)) = asked else {
            return;
        };
        let given = Given {
            memory_limit: limit,
            is_full: self.gate.is_full(),
        };
        if let Some(measured) = meter.look(Instant::now(), &carried, given) {
            self.inspector.tell_hub(move |hub, now| {
                let (cpu, memory) = measured.free;
                let mut hub = hub.operate(now);
                hub.set_resources(cpu, memory);
                hub.set_load(measured.load);
            });
        }
    }

    /// Checks memory. Returns the time until the next check.
    fn watch_memory(&self, limit: Option<u64>, freed: &mut Freed) -> Duration {
        let (Some(limit), Some(resident)) = (limit, resident_bytes()) else {
            return LOOK;
        };
        freed.add(self.gate.given_up.swap(0, Ordering::Relaxed));
        let in_use = freed.in_use(resident);
        self.compare_memory(limit, in_use);
        if in_use > limit / CLOSE.1 * CLOSE.0 {
            CLOSE_LOOK
        } else {
            LOOK
        }
    }

    fn compare_memory(&self, limit: u64, in_use: u64) {
        let is_out = in_use > limit + limit / RESERVE;
        self.gate.is_out_of_memory.store(is_out, Ordering::Relaxed);
        let was_short = self.gate.is_short_of_memory.load(Ordering::Relaxed);
        let is_short = if was_short {
            in_use > limit / RELIEF.1 * RELIEF.0
        } else {
            in_use > limit
        };
        if is_short {
            let gate = Arc::clone(&self.gate);
            self.inspector.order_all(move |worker, now| {
                let bytes = worker.operate(now).give_up_buffers();
                gate.given_up.fetch_add(bytes, Ordering::Relaxed);
            });
        }
        if is_short == was_short {
            return;
        }
        self.gate
            .is_short_of_memory
            .store(is_short, Ordering::Relaxed);
        self.inspector
            .order_all(move |worker, now| worker.operate(now).set_short_of_memory(is_short));
        if is_short {
            tracing::warn!(
                in_use,
                limit,
                "memory limit reached: new sessions are refused, QoS 0 is dropped early, and the largest connections are closed"
            );
        } else {
            tracing::info!(in_use, limit, "memory suffices again");
        }
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.stops.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
