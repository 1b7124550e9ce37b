//! The process behind the links: it carries frames with delay, rate and loss where the kernel has no `netem`, and forwards multicast.
//!
//! A link is a pair of TAP devices, one in each router's namespace. A frame read at one end is written at the other when it is due. One thread does
//! all of it: a round is one wake-up of epoll. After a wake-up the next one waits for `MODERATION`, so that frames in quick succession cost one
//! wake-up; sparse frames are not delayed by that. It wakes at least every 5 ms: a process that was kept from running for longer counts the frames that
//! it then reads as late, as they may have waited since.
//!
//! It is a separate process, a hidden command of `thicket lab`, so that it can run before all others (SCHED_FIFO) and its CPU time is counted
//! separately.

mod control;
mod multicast;
mod punctuality;
mod shaper;
mod wire;

pub use control::{Answer, Command, Device, Forwarding, Interface, Plan, Report, Router, WireLink};
pub use shaper::Shaper;

use std::io::{self, BufRead, Write};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use mio::{Events, Poll, Token, Waker};
use rustix::mm::MlockAllFlags;
use rustix::time::ClockId;

use crate::priority::Priority;
use multicast::Multicast;
use wire::Wire;

/// Shortest time between two wake-ups.
const MODERATION: Duration = Duration::from_micros(50);
/// Priority if it may run before other processes.
const PRIORITY: u8 = 50;
/// Commands have arrived.
const COMMANDS: Token = Token(usize::MAX);
/// A frame is due.
const TIMER: Token = Token(usize::MAX - 1);

/// Runs until standard input ends. The first line is the [`Plan`], each further line a [`Command`]; every line has an [`Answer`].
pub fn run() -> io::Result<()> {
    let mut lines = io::BufReader::new(io::stdin()).lines();
    let Some(first) = lines.next().transpose()? else {
        return Ok(());
    };
    let plan: Plan = serde_json::from_str(&first)?;
    let mut poll = Poll::new()?;
    let mut fabric = match Fabric::open(&plan, &poll) {
        Ok(fabric) => fabric,
        Err(error) => return answer(&Answer::Failed(error.to_string())),
    };
    be_punctual();
    let priority = Priority::raise(PRIORITY);
    answer(&Answer::Ready {
        realtime: priority.is_granted(),
    })?;
    let waker = Arc::new(Waker::new(poll.registry(), COMMANDS)?);
    let (sender, commands) = channel();
    let reader = Arc::clone(&waker);
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
            let _ = reader.wake();
        }
        drop(sender);
        let _ = reader.wake();
    });
    let served = fabric.serve(&mut poll, &commands);
    // Kept until here: dropping the waker discards its last wake-up, and the end would not be noticed.
    drop(waker);
    served
}

struct Fabric {
    wire: Wire,
    multicast: Multicast,
    /// Tokens from here on are those of multicast sockets.
    first_socket: usize,
    cpu_before_s: f64,
}

impl Fabric {
    fn open(plan: &Plan, poll: &Poll) -> io::Result<Self> {
        let first_socket = 2 * plan.links.len();
        Ok(Self {
            wire: Wire::open(&plan.links, plan.seed, poll.registry(), TIMER)?,
            multicast: Multicast::open(plan, poll.registry(), first_socket)?,
            first_socket,
            cpu_before_s: cpu_s(),
        })
    }

    fn serve(&mut self, poll: &mut Poll, commands: &Receiver<String>) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut last_wake_ns = 0;
        loop {
            match poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            let since = Duration::from_nanos(self.wire.now_ns().saturating_sub(last_wake_ns));
            if since < MODERATION {
                std::thread::sleep(MODERATION - since);
            }
            last_wake_ns = self.wire.now_ns();
            self.wire.wake();
            for event in &events {
                match event.token() {
                    COMMANDS => {
                        if !self.obey_all(commands)? {
                            return Ok(());
                        }
                    }
                    TIMER => {}
                    Token(token) if token >= self.first_socket => {
                        self.multicast.on_readable(token);
                    }
                    Token(port) => self.wire.on_readable(port),
                }
            }
            self.wire.write_due()?;
        }
    }

    /// Performs all commands that have arrived; false when there can be no more.
    fn obey_all(&mut self, commands: &Receiver<String>) -> io::Result<bool> {
        use std::sync::mpsc::TryRecvError;
        loop {
            match commands.try_recv() {
                Ok(line) => answer(&self.obey(&line))?,
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    fn obey(&mut self, line: &str) -> Answer {
        match serde_json::from_str(line) {
            Ok(Command::Set(changes)) => {
                for (link, ways) in changes {
                    if let Err(reason) = self.wire.set(link, &ways) {
                        return Answer::Failed(reason);
                    }
                }
                Answer::Done
            }
            Ok(Command::Report) => {
                let now_s = cpu_s();
                let cpu_s = now_s - std::mem::replace(&mut self.cpu_before_s, now_s);
                Answer::Report(self.wire.report(cpu_s))
            }
            Err(error) => Answer::Failed(error.to_string()),
        }
    }
}

fn answer(answer: &Answer) -> io::Result<()> {
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, answer)?;
    output.write_all(b"\n")?;
    output.flush()
}

/// Reduces delays of wake-ups: no page faults, no rounding. What is not permitted is skipped.
fn be_punctual() {
    let _ = rustix::mm::mlockall(MlockAllFlags::CURRENT);
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Reads one answer of the process, for the lab.
pub(crate) fn read_answer(reader: &mut impl BufRead) -> io::Result<Answer> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::Error::other("it has ended"));
    }
    Ok(serde_json::from_str(&line)?)
}
