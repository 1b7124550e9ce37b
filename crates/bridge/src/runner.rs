//! Runs a bridge: a thread for the state machine, and for each connection one thread that reads and one that writes.
//!
//! The thread of the state machine never waits for a socket. Received bytes wait in a bounded channel, so a slow state machine makes the readers
//! wait. A writer has one buffer at a time; the rest stays in the state machine, which limits it.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::stream::{Connection, Dial};
use crate::{Bridge, BridgeConfig, Order, Report, Side, Statistics};

/// One read of a socket.
const READ_BYTES: usize = 64 << 10;
/// Most inputs that wait.
const WAITING: usize = 16;
/// How long a closing connection may take to write the rest.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// A running bridge. Dropping it stops it, as [`Running::stop`] does.
#[derive(Debug)]
pub struct Running {
    monitor: Monitor,
    inputs: SyncSender<Input>,
    thread: Option<JoinHandle<()>>,
}

/// Access to the statistics of a bridge, running or ended.
#[derive(Debug, Clone)]
pub struct Monitor {
    name: Arc<str>,
    place: Arc<str>,
    statistics: Arc<Mutex<Statistics>>,
}

/// Starts a bridge that connects by `local` and `remote`; `name` is for the log, `seed` should be unpredictable.
///
/// # Errors
/// The system has no thread left.
pub fn start(
    name: impl Into<String>,
    config: BridgeConfig,
    local: Arc<dyn Dial>,
    remote: Arc<dyn Dial>,
    seed: u64,
) -> io::Result<Running> {
    let name = name.into();
    let (sender, inputs) = sync_channel(WAITING);
    let statistics = Arc::new(Mutex::new(Statistics::default()));
    let monitor = Monitor {
        name: (&*name).into(),
        place: remote.place().into(),
        statistics: Arc::clone(&statistics),
    };
    let start = Instant::now();
    let runner = Runner {
        name,
        bridge: Bridge::new(config, thicket_session::Instant::default(), seed),
        slots: [local, remote].map(Slot::new),
        inputs,
        sender: sender.clone(),
        start,
        statistics,
        stop_at: None,
    };
    let thread = std::thread::Builder::new()
        .name("bridge".into())
        .spawn(move || runner.run())?;
    Ok(Running {
        monitor,
        inputs: sender,
        thread: Some(thread),
    })
}

impl Monitor {
    /// The configured name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the other broker.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The counts so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        *self
            .statistics
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// A handle for monitoring.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Disconnects from both brokers and ends; the sessions stay. Takes a few seconds at most.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Fails if the thread has ended already.
            let _ = self.inputs.send(Input::Stop);
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// An input for the thread of the state machine. A number identifies the connection attempt.
enum Input {
    Opened(Side, u64, Box<dyn Write + Send>, Box<dyn Fn() + Send>),
    Bytes(Side, u64, Vec<u8>),
    /// The writer has written its buffer.
    Written(Side, u64),
    /// The connection broke, or could not be made.
    Closed(Side, u64, io::Result<()>),
    Stop,
}

/// The connection to one side.
struct Slot {
    dial: Arc<dyn Dial>,
    attempt: u64,
    wire: Option<Wire>,
    /// Failed attempts in a row.
    failures: u32,
}

/// A connected transport.
struct Wire {
    close: Box<dyn Fn() + Send>,
    writer: SyncSender<Vec<u8>>,
    is_writing: bool,
    /// Close when everything is written, or at this time.
    close_at: Option<Instant>,
}

impl Slot {
    const fn new(dial: Arc<dyn Dial>) -> Self {
        Self {
            dial,
            attempt: 0,
            wire: None,
            failures: 0,
        }
    }
}

struct Runner {
    name: String,
    bridge: Bridge,
    /// By side.
    slots: [Slot; 2],
    inputs: Receiver<Input>,
    sender: SyncSender<Input>,
    start: Instant,
    statistics: Arc<Mutex<Statistics>>,
    stop_at: Option<Instant>,
}

impl Runner {
    fn run(mut self) {
        while !self.is_over() {
            self.follow_orders();
            for side in Side::ALL {
                self.write(side);
            }
            *self
                .statistics
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = self.bridge.statistics();
            match self.next_input() {
                Ok(Some(input)) => self.take(input),
                Ok(None) => self.bridge.handle_timeout(self.now()),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
        for slot in &mut self.slots {
            if let Some(wire) = slot.wire.take() {
                (wire.close)();
            }
        }
    }

    fn is_over(&self) -> bool {
        let has_time = self.stop_at.is_none_or(|at| Instant::now() < at);
        !has_time || (self.bridge.is_stopped() && self.slots.iter().all(|slot| slot.wire.is_none()))
    }

    fn now(&self) -> thicket_session::Instant {
        let millis = self.start.elapsed().as_millis();
        thicket_session::Instant::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// The next input, or `None` when a deadline comes first.
    fn next_input(&self) -> Result<Option<Input>, RecvTimeoutError> {
        let machine = self
            .bridge
            .poll_timeout()
            .map(|at| self.start + Duration::from_millis(at.as_millis()));
        let wires = self.slots.iter().filter_map(|slot| slot.wire.as_ref());
        let deadlines = wires.filter_map(|wire| wire.close_at).chain(self.stop_at);
        let Some(next) = deadlines.chain(machine).min() else {
            return match self.inputs.recv() {
                Ok(input) => Ok(Some(input)),
                Err(_) => Err(RecvTimeoutError::Disconnected),
            };
        };
        match self
            .inputs
            .recv_timeout(next.saturating_duration_since(Instant::now()))
        {
            Ok(input) => Ok(Some(input)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, input: Input) {
        let now = self.now();
        match input {
            Input::Opened(side, attempt, writer, close) => {
                if self.slots[side.index()].attempt != attempt {
                    return close();
                }
                self.open(side, writer, close);
                self.bridge.handle_opened(now, side);
            }
            Input::Bytes(side, attempt, bytes) => {
                if self.is_current(side, attempt) {
                    self.bridge.handle_bytes(now, side, &bytes);
                }
            }
            Input::Written(side, attempt) => {
                if self.is_current(side, attempt)
                    && let Some(wire) = &mut self.slots[side.index()].wire
                {
                    wire.is_writing = false;
                }
            }
            Input::Closed(side, attempt, result) => {
                if self.slots[side.index()].attempt == attempt {
                    self.on_closed(side, result);
                }
            }
            Input::Stop => {
                self.stop_at = Some(Instant::now() + 2 * CLOSE_PATIENCE);
                self.bridge.stop();
                for side in Side::ALL {
                    let slot = &mut self.slots[side.index()];
                    if slot.wire.is_none() {
                        // The dialling thread is not waited for; a late result is ignored.
                        slot.attempt += 1;
                        self.bridge.handle_closed(now, side);
                    }
                }
            }
        }
    }

    fn is_current(&self, side: Side, attempt: u64) -> bool {
        let slot = &self.slots[side.index()];
        slot.attempt == attempt && slot.wire.is_some()
    }

    fn follow_orders(&mut self) {
        while let Some(order) = self.bridge.poll_order() {
            match order {
                Order::Open(side) => self.dial(side),
                Order::Close(side) => {
                    if let Some(wire) = &mut self.slots[side.index()].wire {
                        wire.close_at = Some(Instant::now() + CLOSE_PATIENCE);
                    }
                }
                Order::Report(side, report) => self.log(side, &report),
            }
        }
    }

    /// Starts a thread that connects and then reads.
    fn dial(&mut self, side: Side) {
        let slot = &mut self.slots[side.index()];
        slot.attempt += 1;
        let (attempt, dial, sender) = (slot.attempt, Arc::clone(&slot.dial), self.sender.clone());
        let read = move || {
            let result = dial.dial().and_then(|connection| {
                let Connection {
                    reader,
                    writer,
                    close,
                } = connection;
                // The state machine may have ended by now, here and below.
                let opened = Input::Opened(side, attempt, writer, close);
                sender.send(opened).map_err(|_| ErrorKind::BrokenPipe)?;
                read_all(reader, side, attempt, &sender)
            });
            let _ = sender.send(Input::Closed(side, attempt, result));
        };
        let name = format!("bridge-{}-in", side.name());
        if let Err(error) = std::thread::Builder::new().name(name).spawn(read) {
            self.on_closed(side, Err(error));
        }
    }

    /// Starts the thread that writes.
    fn open(&mut self, side: Side, mut writer: Box<dyn Write + Send>, close: Box<dyn Fn() + Send>) {
        let (sender, buffers) = sync_channel::<Vec<u8>>(1);
        let (attempt, inputs) = (self.slots[side.index()].attempt, self.sender.clone());
        let write = move || {
            for bytes in buffers {
                let input = match writer.write_all(&bytes) {
                    Ok(()) => Input::Written(side, attempt),
                    Err(error) => Input::Closed(side, attempt, Err(error)),
                };
                if inputs.send(input).is_err() {
                    return;
                }
            }
        };
        let name = format!("bridge-{}-out", side.name());
        if let Err(error) = std::thread::Builder::new().name(name).spawn(write) {
            tracing::error!(bridge = self.name, %error, "no thread for a bridge");
            // The reader will report that it is closed.
            return close();
        }
        self.slots[side.index()].wire = Some(Wire {
            close,
            writer: sender,
            is_writing: false,
            close_at: None,
        });
    }

    /// Gives the writer pending bytes; closes a connection that is to end when none are left.
    fn write(&mut self, side: Side) {
        let now = self.now();
        let Some(wire) = &mut self.slots[side.index()].wire else {
            return;
        };
        let output = self.bridge.output(side);
        if !wire.is_writing && !output.is_empty() {
            let bytes = output.to_vec();
            let count = bytes.len();
            // The channel has capacity: the writer is idle. A writer that has ended has reported why.
            wire.is_writing = wire.writer.try_send(bytes).is_ok();
            self.bridge.consume(now, side, count);
        }
        let is_late = wire.close_at.is_some_and(|at| Instant::now() >= at);
        if is_late || (wire.close_at.is_some() && !wire.is_writing) {
            self.on_closed(side, Ok(()));
        }
    }

    /// The connection is closed or must be.
    fn on_closed(&mut self, side: Side, result: io::Result<()>) {
        let slot = &mut self.slots[side.index()];
        // From now on, results of its threads are outdated.
        slot.attempt += 1;
        let wire = slot.wire.take();
        if let Some(wire) = &wire {
            (wire.close)();
        }
        let (bridge, side_name, place) = (&*self.name, side.name(), slot.dial.place());
        match (&wire, result) {
            (Some(wire), _) if wire.close_at.is_some() => {}
            (Some(_), result) => {
                let error = result.err().map(tracing::field::display);
                tracing::warn!(
                    bridge,
                    side = side_name,
                    place,
                    error,
                    "a bridge lost its broker"
                );
            }
            (None, Err(error)) if slot.failures == 0 => {
                tracing::warn!(bridge, side = side_name, place, %error, "a bridge cannot reach its broker");
            }
            (None, result) => {
                let error = result.err().map(tracing::field::display);
                tracing::debug!(
                    bridge,
                    side = side_name,
                    place,
                    error,
                    "a bridge cannot reach its broker still"
                );
            }
        }
        slot.failures = if wire.is_some() { 0 } else { slot.failures + 1 };
        self.bridge.handle_closed(self.now(), side);
    }

    fn log(&self, side: Side, report: &Report) {
        let (bridge, side) = (&*self.name, side.name());
        match report {
            Report::Connected { session_present } => {
                tracing::info!(bridge, side, session_present, "a bridge is connected");
            }
            Report::Disconnected { why } => {
                tracing::warn!(bridge, side, why, "a bridge was disconnected");
            }
            Report::SubscriptionRefused {
                filter,
                reason_code,
            } => {
                tracing::warn!(
                    bridge,
                    side,
                    filter,
                    ?reason_code,
                    "a bridge may not subscribe"
                );
            }
            Report::Unsayable { error } => {
                tracing::error!(bridge, side, %error, "the bridge cannot encode a configured packet");
            }
            Report::AskedAgain => {
                tracing::info!(
                    bridge,
                    side,
                    "a bridge has capacity again and asks for what it could not take"
                );
            }
        }
    }
}

/// Reads until the end.
fn read_all(
    mut reader: Box<dyn Read + Send>,
    side: Side,
    attempt: u64,
    sender: &SyncSender<Input>,
) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                let input = Input::Bytes(side, attempt, buffer[..count].to_vec());
                if sender.send(input).is_err() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
