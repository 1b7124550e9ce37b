//! A run: warm-up, measured interval, drain.

use std::time::Duration;

use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec};

use super::Generator;
use super::scenario::{Load, Span, Until};
use super::schedule::Schedule;
use crate::BenchError;
use crate::outcome::{BrokerUse, CpuUse, Latency, Outcome, Second};
use crate::process::{self, CpuReading, Memory};

/// Longest sleep: interval of progress reports and checks for ends of phases.
const TICK: Duration = Duration::from_millis(50);
/// A stream of a closed loop without progress for this long has lost its window: it is opened again.
const STALL_NS: u64 = 2_000_000_000;
/// Unsent bytes of all clients at which an open loop pauses; messages that are due stay due.
const MAX_UNSENT: usize = 64 * 1024 * 1024;
/// Messages that an open loop holds back because of the broker's Receive Maximum before it pauses.
const MAX_HELD_BACK: usize = 1_000_000;
/// From this share of one core on the generator is reported as busy.
const BUSY: f64 = 0.9;
/// From this lag of an open loop behind its schedule on it is reported.
const LAG_NS: u64 = 10_000_000;

/// Processes whose CPU and memory are measured.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Their process identifiers.
    pub pids: Vec<u32>,
}

/// The progress of a run, about once a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// The last second.
    pub second: Second,
    /// Messages published and not yet received everywhere.
    pub on_their_way: u64,
}

/// The state of one run.
struct Run {
    load: Load,
    schedule: Option<Schedule>,
    /// Messages that may still be published.
    budget: u64,
    sending: bool,
    /// Messages published so far.
    published: u64,
    held_back: usize,
    worst_lag_ns: u64,
    /// Sum of the lags of the messages of an open loop, and their number.
    lag_ns: u64,
    due: u64,
    start_ns: u64,
    second_start: Mark,
    series: Vec<Second>,
    last_arrival: Mark,
    stalls: u32,
    stalls_looked_at_ns: u64,
}

/// A moment with its counts.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at_ns: u64,
    published: u64,
    delivered: u64,
}

/// Use of CPU up to a moment.
struct Usage {
    own_s: f64,
    brokers: Vec<CpuReading>,
}

impl Generator {
    /// Runs `load` for `span`. `progress` is called about once a second.
    pub fn run(
        &mut self,
        load: Load,
        span: Span,
        watch: &Watch,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Outcome, BenchError> {
        self.is_running = true;
        let mut run = self.begin(load, span)?;
        let warm = run.start_ns + span.warm_up.as_nanos() as u64;
        self.step_until(&mut run, progress, |_, now| now.at_ns >= warm)?;
        self.receiving.measuring = true;
        // The lag of the warm-up is not counted.
        (run.worst_lag_ns, run.lag_ns, run.due) = (0, 0, 0);
        let before = Usage::read(watch)?;
        let from = self.mark(&run);
        let measured = match span.until {
            Until::Elapsed(length) => {
                let end = from.at_ns + length.as_nanos() as u64;
                self.step_until(&mut run, progress, |_, now| now.at_ns >= end)?;
                (self.mark(&run), Usage::read(watch)?)
            }
            Until::Published(_) => {
                self.step_until(&mut run, progress, |run, _| run.budget == 0)?;
                self.drain(&mut run, span.drain, progress)?;
                (
                    Mark {
                        at_ns: run.last_arrival.at_ns,
                        ..self.mark(&run)
                    },
                    Usage::read(watch)?,
                )
            }
        };
        self.receiving.measuring = false;
        let memory = read_memory(watch);
        self.drain(&mut run, span.drain, progress)?;
        Ok(self.outcome(&run, from, measured.0, (&before, &measured.1), memory))
    }

    fn begin(&mut self, load: Load, span: Span) -> Result<Run, BenchError> {
        for stream in &mut self.streams {
            stream.restart();
            stream.queued = false;
        }
        self.queued.clear();
        self.receiving.restart(&self.streams);
        self.acknowledging.restart();
        let start_ns = self.now_ns();
        let schedule = match load {
            Load::Closed { window } | Load::Volleys { window } => {
                if window == 0 {
                    return Err(BenchError::Setting(
                        "a window of 0 lets nothing out".to_owned(),
                    ));
                }
                self.queue_all();
                None
            }
            Load::Open {
                rate_per_s,
                arrivals,
            } => {
                if !(rate_per_s > 0.0 && rate_per_s.is_finite()) {
                    return Err(BenchError::Setting(format!(
                        "a rate of {rate_per_s} messages a second cannot be kept"
                    )));
                }
                if self.streams.is_empty() {
                    None
                } else {
                    Some(Schedule::new(
                        arrivals,
                        rate_per_s,
                        self.streams.len() as u32,
                        start_ns,
                        self.scenario.seed,
                    ))
                }
            }
        };
        let budget = match span.until {
            Until::Elapsed(_) => u64::MAX,
            Until::Published(count) => count,
        };
        let start = Mark {
            at_ns: start_ns,
            published: 0,
            delivered: 0,
        };
        Ok(Run {
            load,
            schedule,
            budget,
            sending: true,
            published: 0,
            held_back: 0,
            worst_lag_ns: 0,
            lag_ns: 0,
            due: 0,
            start_ns,
            second_start: start,
            series: Vec::new(),
            last_arrival: start,
            stalls: 0,
            stalls_looked_at_ns: start_ns,
        })
    }

    fn queue_all(&mut self) {
        self.queued.clear();
        for (stream, index) in self.streams.iter_mut().zip(0..) {
            stream.queued = stream.closes();
            if stream.queued {
                self.queued.push(index);
            }
        }
    }

    fn mark(&self, run: &Run) -> Mark {
        Mark {
            at_ns: self.now_ns(),
            published: run.published,
            delivered: self.receiving.counts.delivered,
        }
    }

    /// Runs rounds until `done` returns true.
    fn step_until(
        &mut self,
        run: &mut Run,
        progress: &mut dyn FnMut(&Progress),
        done: impl Fn(&Run, Mark) -> bool,
    ) -> Result<(), BenchError> {
        loop {
            let now = self.mark(run);
            self.tick(run, now, progress);
            if done(run, now) {
                return Ok(());
            }
            self.round(run)?;
        }
    }

    /// Stops sending and waits for messages under way, as long as some still arrive.
    fn drain(
        &mut self,
        run: &mut Run,
        patience: Duration,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(), BenchError> {
        run.sending = false;
        run.last_arrival.at_ns = run
            .last_arrival
            .at_ns
            .max(self.now_ns().saturating_sub(TICK.as_nanos() as u64));
        let patience = patience.as_nanos() as u64;
        while self.on_their_way() > 0 {
            let now = self.mark(run);
            self.tick(run, now, progress);
            if now.at_ns.saturating_sub(run.last_arrival.at_ns) > patience {
                break;
            }
            self.round(run)?;
        }
        Ok(())
    }

    fn on_their_way(&self) -> u64 {
        self.streams
            .iter()
            .map(|stream| stream.on_their_way() + stream.held_back.len() as u64)
            .sum()
    }

    fn round(&mut self, run: &mut Run) -> Result<(), BenchError> {
        self.scenario.stop.check()?;
        if let Some(schedule) = &run.schedule
            && run.sending
        {
            self.set_timer(schedule.next_due_ns())?;
        }
        self.wait(Some(TICK))?;
        self.ping()?;
        if !self.away.is_empty() {
            self.send_connects()?;
        }
        self.note_events();
        let accepted = self.read_all()?;
        if !self.away.is_empty() {
            self.reconnect(&accepted)?;
        }
        match run.load {
            Load::Closed { window } => self.refill(run, window)?,
            Load::Volleys { window } => {
                if self.on_their_way() == 0 {
                    self.queue_all();
                    self.refill(run, window)?;
                }
            }
            Load::Open { .. } => self.send_due(run),
        }
        self.write_dirty()
    }

    /// Arms the timer for a moment of the run's clock; a past one fires at once.
    fn set_timer(&self, due_ns: u64) -> Result<(), BenchError> {
        // A relative time of zero would disarm the timer.
        let wait = due_ns
            .saturating_sub(self.now_ns())
            .clamp(1, TICK.as_nanos() as u64);
        let value = Timespec {
            tv_sec: (wait / 1_000_000_000) as _,
            tv_nsec: (wait % 1_000_000_000) as _,
        };
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: value,
        };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)
            .map(drop)
            .map_err(|error| BenchError::system("timer")(error.into()))
    }

    /// Closed loop: refills the windows of streams with progress.
    fn refill(&mut self, run: &mut Run, window: u32) -> Result<(), BenchError> {
        let mut queued = std::mem::take(&mut self.queued);
        let now_ns = self.now_ns();
        for index in queued.drain(..) {
            let stream = &mut self.streams[index as usize];
            stream.queued = false;
            let free = u64::from(window).saturating_sub(stream.on_their_way());
            // The broker may permit fewer unacknowledged messages than the window has.
            let allowed = u64::from(stream.limit().saturating_sub(stream.unacknowledged()));
            let count = free.min(allowed).min(run.budget);
            if !run.sending || count == 0 || !self.clients[index as usize].is_ready() {
                continue;
            }
            run.budget -= count;
            run.published += count;
            self.outgoing.clear();
            for _ in 0..count {
                stream.write_next(now_ns, &mut self.outgoing);
            }
            let socket = &mut self.clients[index as usize].socket;
            if let Err(source) = socket.send(&self.outgoing) {
                let error = self.broken(index as usize, source);
                self.on_lost(index as usize, error)?;
            }
        }
        queued.append(&mut self.queued);
        self.queued = queued;
        Ok(())
    }

    /// Open loop: sends messages that are due.
    fn send_due(&mut self, run: &mut Run) {
        self.release_held_back(run);
        let Some(schedule) = &mut run.schedule else {
            return;
        };
        let now_ns = self.epoch.elapsed().as_nanos() as u64;
        let mut unsent = 0;
        while run.sending && run.budget > 0 && schedule.next_due_ns() <= now_ns {
            if unsent > MAX_UNSENT || run.held_back > MAX_HELD_BACK {
                break;
            }
            let (due_ns, index) = schedule.pop();
            run.budget -= 1;
            run.worst_lag_ns = run.worst_lag_ns.max(now_ns - due_ns);
            run.lag_ns += now_ns - due_ns;
            run.due += 1;
            let stream = &mut self.streams[index as usize];
            let is_ready = self.clients[index as usize].is_ready();
            if !is_ready || stream.unacknowledged() >= stream.limit() {
                stream.held_back.push_back(due_ns);
                run.held_back += 1;
                continue;
            }
            run.published += 1;
            let client = &mut self.clients[index as usize];
            stream.write_next(due_ns, client.socket.output());
            unsent += client.socket.unsent();
            if !client.dirty {
                client.dirty = true;
                self.dirty.push(index);
            }
        }
    }

    /// Sends held-back messages of acknowledged streams.
    fn release_held_back(&mut self, run: &mut Run) {
        let mut queued = std::mem::take(&mut self.queued);
        for index in queued.drain(..) {
            let stream = &mut self.streams[index as usize];
            stream.queued = false;
            while self.clients[index as usize].is_ready()
                && stream.unacknowledged() < stream.limit()
                && let Some(due_ns) = stream.held_back.pop_front()
            {
                run.held_back -= 1;
                run.published += 1;
                let client = &mut self.clients[index as usize];
                stream.write_next(due_ns, client.socket.output());
                if !client.dirty {
                    client.dirty = true;
                    self.dirty.push(index);
                }
            }
        }
        self.queued = queued;
    }

    /// Checks the time: seconds of the series, arrivals, stalls.
    fn tick(&mut self, run: &mut Run, now: Mark, progress: &mut dyn FnMut(&Progress)) {
        if now.delivered != run.last_arrival.delivered {
            run.last_arrival = now;
        }
        let elapsed_ns = now.at_ns - run.second_start.at_ns;
        if elapsed_ns < 1_000_000_000 {
            return;
        }
        let second = second_between(run.start_ns, run.second_start, now);
        run.series.push(second);
        run.second_start = now;
        progress(&Progress {
            second,
            on_their_way: self.on_their_way(),
        });
        if now.at_ns - run.stalls_looked_at_ns > STALL_NS {
            run.stalls_looked_at_ns = now.at_ns;
            self.reopen_stuck(run);
        }
    }

    /// Closed loop: reopens the windows of streams whose messages were lost; otherwise those would stay silent.
    fn reopen_stuck(&mut self, run: &mut Run) {
        if !run.sending || run.budget == 0 || matches!(run.load, Load::Open { .. }) {
            return;
        }
        for (stream, index) in self.streams.iter_mut().zip(0..) {
            // One that has no connection is served when it has the next.
            if self.clients[index as usize].is_ready() && stream.is_stuck() {
                run.stalls += 1;
                stream.give_up();
                if !stream.queued {
                    stream.queued = true;
                    self.queued.push(index);
                }
            }
        }
    }

    fn outcome(
        &self,
        run: &Run,
        from: Mark,
        to: Mark,
        usage: (&Usage, &Usage),
        memory: Memory,
    ) -> Outcome {
        let seconds = (to.at_ns.saturating_sub(from.at_ns)) as f64 / 1e9;
        let (published, delivered) = (to.published - from.published, to.delivered - from.delivered);
        let per_s = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        let own = CpuUse::new(usage.1.own_s - usage.0.own_s, seconds, delivered);
        let broker = (!usage.1.brokers.is_empty()).then(|| {
            let cpu_s = usage
                .1
                .brokers
                .iter()
                .zip(&usage.0.brokers)
                .map(|(after, before)| after.since(before))
                .sum();
            BrokerUse {
                cpu: CpuUse::new(cpu_s, seconds, delivered),
                memory,
            }
        });
        let mut outcome = Outcome {
            nodes: self
                .scenario
                .nodes
                .iter()
                .map(|node| node.name.clone())
                .collect(),
            workload: self.scenario.workload.describe(),
            load: run.load,
            qos: self.scenario.qos as u8,
            protocol_level: self.scenario.version as u8,
            payload_len: self.scenario.payload_len,
            seconds,
            published,
            delivered,
            published_per_s: per_s(published),
            delivered_per_s: per_s(delivered),
            counts: self.receiving.settle(&self.streams),
            latency: Latency::of(self.latency()),
            acknowledgement: Latency::of(self.acknowledgement()),
            own,
            broker,
            series: run.series.clone(),
            behind_schedule_ms: run.worst_lag_ns as f64 / 1e6,
            behind_schedule_mean_ms: run.lag_ns as f64 / 1e6 / run.due.max(1) as f64,
            warnings: Vec::new(),
        };
        outcome.warnings = self.warnings(run, &outcome);
        outcome
    }

    fn warnings(&self, run: &Run, outcome: &Outcome) -> Vec<String> {
        let mut warnings = Vec::new();
        if outcome.own.cores > BUSY {
            let busy = format!(
                "the generator was busy for {:.0} % of the time",
                outcome.own.cores * 100.0
            );
            match &outcome.broker {
                None => warnings.push(format!(
                    "{busy}: it, and not the broker, may have been the limit (--pid tells)"
                )),
                Some(broker) if broker.cpu.cores < BUSY => warnings.push(format!(
                    "{busy}, the broker was not: the generator was the bottleneck"
                )),
                Some(_) => {}
            }
        }
        if run.worst_lag_ns > LAG_NS {
            let lag = run.worst_lag_ns as f64 / 1e6;
            warnings.push(format!("the generator was up to {lag:.1} ms behind its schedule; latencies count from the schedule"));
        }
        if run.stalls > 0 {
            warnings.push(format!("{} times a publisher's window stood still, its messages lost or very late, and was opened again", run.stalls));
        }
        if let Load::Closed { window } | Load::Volleys { window } = run.load {
            let silent = self
                .streams
                .iter()
                .filter(|stream| !stream.closes())
                .count();
            if silent > 0 {
                warnings.push(format!("{silent} of {} topics have no subscriber: their publishers stay silent in a closed loop at QoS 0", self.streams.len()));
            }
            let limit = self
                .streams
                .iter()
                .map(super::streams::Stream::limit)
                .min()
                .unwrap_or(u32::MAX);
            if limit < window {
                warnings.push(format!("the broker takes {limit} unacknowledged messages (Receive Maximum): the window of {window} was not filled"));
            }
        }
        warnings
    }
}

impl Usage {
    fn read(watch: &Watch) -> Result<Self, BenchError> {
        let brokers: Result<Vec<_>, _> = watch
            .pids
            .iter()
            .map(|&pid| process::cpu(pid).map_err(BenchError::system(format!("process {pid}"))))
            .collect();
        Ok(Self {
            brokers: brokers?,
            own_s: process::own_cpu_s(),
        })
    }
}

/// Memory of all watched processes; one that cannot be read counts as zero.
fn read_memory(watch: &Watch) -> Memory {
    let readings = watch
        .pids
        .iter()
        .filter_map(|&pid| process::memory(pid).ok());
    readings.fold(Memory::default(), |sum, one| Memory {
        rss_kib: sum.rss_kib + one.rss_kib,
        pss_kib: sum.pss_kib + one.pss_kib,
    })
}

fn second_between(start_ns: u64, from: Mark, to: Mark) -> Second {
    let seconds = (to.at_ns - from.at_ns) as f64 / 1e9;
    Second {
        at_s: (to.at_ns - start_ns) as f64 / 1e9,
        published_per_s: (to.published - from.published) as f64 / seconds,
        delivered_per_s: (to.delivered - from.delivered) as f64 / seconds,
    }
}
