//! Frames in transit over links: read, keep until due, write.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use thicket_bench::namespace::inside;
use thicket_bench::random::Random;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::control::{Device, Report, WireLink};
use super::punctuality::Punctuality;
use super::shaper::Shaper;
use crate::topology::LinkShape;

/// Largest frame with an MTU of 1500.
const FRAME: usize = 1600;
/// Buffers kept for reuse.
const POOL: usize = 4096;
/// Frames in transit at most, over all links; further ones are lost.
const MAX_FRAMES: usize = 200_000;
/// The time for reading and writing a frame and two wake-ups each way, measured on idle links: a frame is due earlier by this.
const HEAD_START_NS: u64 = 80_000;
/// Longest sleep: a process that is kept from running notices it, though nothing was due.
const LONGEST_SLEEP_NS: u64 = 5_000_000;

/// A frame in transit: when it is due, its number, the port it leaves by.
type Due = Reverse<(u64, u64, usize)>;

/// The content of a frame in transit.
struct Frame {
    bytes: Vec<u8>,
    /// How long it may have waited before it was read.
    unread_ns: u64,
}

/// All links of the process. Port `2 k` is the first end of link `k`, `2 k + 1` the second.
pub(super) struct Wire {
    ports: Vec<SyncDevice>,
    /// By the port where a frame arrives.
    shapers: Vec<Shaper>,
    queue: BinaryHeap<Due>,
    /// Frames by number.
    frames: std::collections::HashMap<u64, Frame>,
    pool: Vec<Vec<u8>>,
    next_number: u64,
    timer: OwnedFd,
    epoch: Instant,
    random: Random,
    punctuality: Punctuality,
}

impl Wire {
    pub fn open(
        links: &[WireLink],
        seed: u64,
        registry: &Registry,
        timer_token: Token,
    ) -> io::Result<Self> {
        let mut ports = Vec::new();
        let mut shapers = Vec::new();
        for link in links {
            for end in &link.ends {
                let port = inside(&end.namespace, || open_tap(end))??;
                registry.register(
                    &mut SourceFd(&port.as_raw_fd()),
                    Token(ports.len()),
                    Interest::READABLE,
                )?;
                ports.push(port);
                shapers.push(Shaper::new(&link.shape));
            }
        }
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        registry.register(
            &mut SourceFd(&timer.as_fd().as_raw_fd()),
            timer_token,
            Interest::READABLE,
        )?;
        let mut wire = Self {
            ports,
            shapers,
            queue: BinaryHeap::new(),
            frames: std::collections::HashMap::new(),
            pool: Vec::new(),
            next_number: 0,
            timer,
            epoch: Instant::now(),
            random: Random::new(seed),
            punctuality: Punctuality::new(),
        };
        wire.write_due()?;
        Ok(wire)
    }

    pub fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Notes that the process runs.
    pub fn wake(&mut self) {
        self.punctuality.woke(self.now_ns());
    }

    /// Reads all frames that wait at a port.
    pub fn on_readable(&mut self, port: usize) {
        loop {
            let mut frame = self.pool.pop().unwrap_or_else(|| vec![0; FRAME]);
            frame.resize(FRAME, 0);
            let Ok(len) = self.ports[port].recv(&mut frame) else {
                self.recycle(frame);
                return;
            };
            frame.truncate(len);
            let now_ns = self.now_ns();
            let unread_ns = self.punctuality.overslept_ns(now_ns);
            let due_ns = self.shapers[port].admit(now_ns, len, &mut self.random);
            match due_ns {
                Some(due_ns) if self.frames.len() < MAX_FRAMES => {
                    let due_ns = due_ns.saturating_sub(HEAD_START_NS).max(now_ns);
                    self.queue
                        .push(Reverse((due_ns, self.next_number, port ^ 1)));
                    let bytes = frame;
                    self.frames
                        .insert(self.next_number, Frame { bytes, unread_ns });
                    self.next_number += 1;
                }
                _ => self.recycle(frame),
            }
        }
    }

    /// Writes what is due and sets the timer for what is due next, or for the end of the longest sleep.
    pub fn write_due(&mut self) -> io::Result<()> {
        loop {
            let now_ns = self.now_ns();
            let next = self.queue.peek().copied();
            let Some(Reverse((due_ns, number, port))) =
                next.filter(|&Reverse((due_ns, ..))| due_ns <= now_ns)
            else {
                let due_ns = next.map_or(u64::MAX, |Reverse((due_ns, ..))| due_ns);
                return self.wake_by(due_ns.min(now_ns + LONGEST_SLEEP_NS), now_ns);
            };
            self.queue.pop();
            let Some(frame) = self.frames.remove(&number) else {
                continue;
            };
            // A device whose queue is full loses the frame, as a network card would.
            let _ = self.ports[port].send(&frame.bytes);
            self.punctuality.wrote(now_ns - due_ns + frame.unread_ns);
            self.recycle(frame.bytes);
        }
    }

    /// Gives a link other settings, for what each of its ends sends.
    pub fn set(&mut self, link: usize, ways: &[LinkShape; 2]) -> Result<(), String> {
        match self.shapers.get_mut(2 * link..2 * link + 2) {
            Some(shapers) => {
                for (shaper, shape) in shapers.iter_mut().zip(ways) {
                    shaper.change(shape);
                }
                Ok(())
            }
            None => Err(format!("there is no link {link}")),
        }
    }

    /// The punctuality since the last report.
    pub fn report(&mut self, cpu_s: f64) -> Report {
        let dropped = self.shapers.iter().map(|shaper| shaper.dropped).sum();
        for shaper in &mut self.shapers {
            shaper.dropped = 0;
        }
        self.punctuality.report(dropped, cpu_s)
    }

    /// Sets the timer, unless the process wakes earlier than that anyway.
    fn wake_by(&mut self, at_ns: u64, now_ns: u64) -> io::Result<()> {
        if !self.punctuality.sleeps_until(at_ns, now_ns) {
            return Ok(());
        }
        let wait_ns = (at_ns - now_ns).max(1);
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let once = Itimerspec {
            it_interval: zero,
            it_value: Timespec {
                tv_sec: (wait_ns / 1_000_000_000) as _,
                tv_nsec: (wait_ns % 1_000_000_000) as _,
            },
        };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    fn recycle(&mut self, frame: Vec<u8>) {
        if self.pool.len() < POOL {
            self.pool.push(frame);
        }
    }
}

fn open_tap(device: &Device) -> io::Result<SyncDevice> {
    let tap = DeviceBuilder::new()
        .name(&device.name)
        .layer(Layer::L2)
        .build_sync()?;
    tap.set_nonblocking(true)?;
    Ok(tap)
}
