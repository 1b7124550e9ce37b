//! Measures what the files of a node cost: `cargo run --release -p thicket-storage --example cost -- DIRECTORY`.
//!
//! Prints wall time, CPU time of the whole process (the engine's thread included) and resident memory. The directory must be new; it
//! stays, to be looked at.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use thicket_storage::{
    DataDirectory, Durability, Keyspace, Log, LogConfig, OsFiles, Result, Store, StoreConfig,
    StoreOp,
};

const MESSAGES: u64 = 1_000_000;
const MESSAGE_BYTES: usize = 150;
const MESSAGES_A_RECORD: u64 = 50;
const SESSIONS: u64 = 100_000;
const SESSION_BYTES: usize = 300;

fn main() -> Result<()> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let Some(path) = path else {
        eprintln!("usage: measure DIRECTORY");
        std::process::exit(2);
    };
    let directory = DataDirectory::open(&path)?;
    println!("at the start: {}", memory());
    measure_log(&directory.log_path(0))?;
    measure_store(&directory.store_path())
}

fn measure_log(path: &Path) -> Result<()> {
    let config = LogConfig::new(1, 0x5eed);
    let (mut log, _) = Log::open(OsFiles, path, config)?.finish()?;
    let message = [7; MESSAGE_BYTES];
    let parts = [&message[..]; MESSAGES_A_RECORD as usize];
    let records = MESSAGES / MESSAGES_A_RECORD;
    let append = Timer::start();
    for _ in 0..records {
        log.append(&parts)?;
        if log.wants_segment() {
            log.poll_space()?;
        }
    }
    append.print(
        "append 20,000 records of 50 messages of 150 bytes",
        records,
        "record",
    );
    let sync = Timer::start();
    log.sync()?;
    sync.print("sync all of it", 1, "sync");
    let commit = Timer::start();
    for _ in 0..200 {
        log.append(&parts)?;
        log.sync()?;
    }
    commit.print("200 records, each synced", 200, "record");
    println!("  {} MiB on disk, {}", log.disk_bytes() >> 20, memory());
    drop(log);

    let open = Timer::start();
    let mut replay = Log::open(OsFiles, path, config)?;
    let mut sum = 0_u64;
    while let Some(record) = replay.next_record()? {
        sum += u64::from(record.body[0]) + record.body.len() as u64;
    }
    let (log, recovered) = replay.finish()?;
    open.print("replay, warm", MESSAGES, "message");
    println!(
        "  {} records, {} bytes, sum {sum}, {}",
        recovered.records,
        recovered.bytes,
        memory()
    );
    drop(log);
    Ok(())
}

fn measure_store(path: &Path) -> Result<()> {
    let config = StoreConfig::new(1);
    let open = Timer::start();
    let store = Store::open(path, config)?;
    open.print("make a store", 1, "store");
    println!("  {}", memory());
    write_sessions(&store, 100, "write 100,000 sessions, 100 a batch")?;
    println!("  {} MiB on disk, {}", store.disk_bytes()? >> 20, memory());
    drop(store);
    read_sessions(path, config, "open and read 100,000 sessions")?;

    let store = Store::open(path, config)?;
    for _ in 0..4 {
        write_sessions(&store, 1, "change each session, one a batch")?;
    }
    println!("  {} MiB on disk, {}", store.disk_bytes()? >> 20, memory());
    drop(store);
    read_sessions(path, config, "open and read after 400,000 changes")?;

    let store = Store::open(path, config)?;
    let synced = Timer::start();
    for number in 0..200 {
        let (key, value) = session(number);
        store.commit(&[put(&key, &value)], Durability::Synced)?;
    }
    synced.print("200 changes, each synced", 200, "change");
    Ok(())
}

fn session(number: u64) -> (Vec<u8>, Vec<u8>) {
    // Something that no page and no table makes smaller.
    let mut state = number;
    let value = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    (
        format!("client-{number:08}").into_bytes(),
        value.take(SESSION_BYTES).collect(),
    )
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> StoreOp<'a> {
    StoreOp::Put {
        keyspace: Keyspace::Sessions,
        key,
        value,
    }
}

fn write_sessions(store: &Store, a_batch: u64, what: &str) -> Result<()> {
    let timer = Timer::start();
    let mut longest = Duration::ZERO;
    for start in (0..SESSIONS).step_by(a_batch as usize) {
        let sessions: Vec<_> = (start..start + a_batch).map(session).collect();
        let ops: Vec<_> = sessions
            .iter()
            .map(|(key, value)| put(key, value))
            .collect();
        let commit = Instant::now();
        store.commit(&ops, Durability::Written)?;
        longest = longest.max(commit.elapsed());
    }
    timer.print(what, SESSIONS, "session");
    println!("  longest commit {longest:.1?}");
    Ok(())
}

fn read_sessions(path: &Path, config: StoreConfig, what: &str) -> Result<()> {
    let timer = Timer::start();
    let store = Store::open(path, config)?;
    println!("  opened after {:.0?}", timer.wall.elapsed());
    let mut sum = 0;
    let mut count = 0_u64;
    for entry in store.iterate(Keyspace::Sessions) {
        let entry = entry?;
        sum += entry.key().len() + entry.value().len();
        count += 1;
    }
    timer.print(what, count, "session");
    println!("  {count} sessions, {sum} bytes, {}", memory());
    Ok(())
}

/// Wall and CPU time since some moment.
struct Timer {
    wall: Instant,
    cpu: Duration,
}

impl Timer {
    fn start() -> Self {
        Self {
            wall: Instant::now(),
            cpu: cpu(),
        }
    }

    fn print(&self, what: &str, count: u64, unit: &str) {
        let (wall, cpu) = (self.wall.elapsed(), cpu() - self.cpu);
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        println!(
            "{what}: {wall:.0?} wall, {cpu:.0?} CPU; {:.2} us wall, {:.2} us CPU a {unit}",
            each(wall),
            each(cpu)
        );
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let fact = |name: &str| {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default();
        line.split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    format!(
        "resident {}, of it private {}, {} threads",
        fact("VmRSS:"),
        fact("RssAnon:"),
        fact("Threads:")
    )
}
