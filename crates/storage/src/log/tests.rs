//! Properties of the log over a disk that loses power, by seed; and named cases.

use std::path::Path;

use super::segment::{HEADER_LEN, record_len};
use super::*;
use crate::memory::MemoryFiles;

const DIRECTORY: &str = "data/log-0";
const SEGMENT_BYTES: u64 = 4096;

fn config(seed: u64) -> LogConfig {
    LogConfig {
        node: 7,
        seed,
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: 0,
    }
}

/// The log after opening, with all bodies and their numbers.
type Read = (Log<MemoryFiles>, Vec<(u64, Vec<u8>)>, Recovered);

fn open(disk: &MemoryFiles, seed: u64) -> Result<Read> {
    let mut replay = Log::open(disk.clone(), Path::new(DIRECTORY), config(seed))?;
    let mut records = Vec::new();
    while let Some(record) = replay.next_record()? {
        records.push((record.sequence, record.body.to_vec()));
    }
    let (log, recovered) = replay.finish()?;
    assert_eq!(recovered.records, records.len() as u64);
    Ok((log, records, recovered))
}

fn bodies(records: &[(u64, Vec<u8>)]) -> Vec<&[u8]> {
    records.iter().map(|(_, body)| &body[..]).collect()
}

fn file(number: u64) -> PathBuf {
    segment::path(Path::new(DIRECTORY), number)
}

/// What must be recovered: everything that was appended and not deleted, and how much of it is certain.
#[derive(Debug, Default)]
struct Model {
    /// Segment, number and body of each record appended, oldest first.
    written: Vec<(u64, u64, Vec<u8>)>,
    /// Records below this number were synced.
    synced: u64,
    /// No record at or above this number was asked to be deleted.
    may_be_gone_below: u64,
}

impl Model {
    fn check(&self, records: &[(u64, Vec<u8>)], must_hold_below: u64, context: &str) {
        let first = records
            .first()
            .map_or(must_hold_below, |(sequence, _)| *sequence);
        let kept: Vec<(u64, Vec<u8>)> = self
            .written
            .iter()
            .filter(|(_, sequence, _)| *sequence >= first)
            .map(|(_, sequence, body)| (*sequence, body.clone()))
            .collect();
        assert!(
            kept.starts_with(records),
            "{context}: whole, in order, only what was written"
        );
        let lost = self.written.iter().find(|(_, sequence, _)| {
            *sequence >= self.may_be_gone_below
                && *sequence < must_hold_below
                && !records.iter().any(|(read, _)| read == sequence)
        });
        assert_eq!(lost, None, "{context}: what had to be there");
    }
}

/// One run of the log: appends, syncs, generations, deletions, by seed.
fn live(log: &mut Log<MemoryFiles>, model: &mut Model, random: &mut u64) {
    let mut generation = None;
    for _ in 0..mix(random) % 60 {
        match mix(random) % 12 {
            0 => {
                log.sync().expect("the disk works");
                model.synced = log.next_sequence();
            }
            1 => {
                let job = log.begin_sync();
                let up_to = log.next_sequence();
                append(log, model, random);
                if let Some(job) = job {
                    log.finish_sync(job.run()).expect("the disk works");
                    model.synced = up_to;
                }
            }
            2 => generation = Some(log.start_generation().expect("space")),
            3 => {
                if let Some(segment) = generation.take() {
                    let kept = model.written.iter().find(|(of, ..)| *of >= segment);
                    model.may_be_gone_below =
                        kept.map_or(log.next_sequence(), |(_, sequence, _)| *sequence);
                    log.remove_before(segment);
                }
            }
            4 => log.poll_space().expect("the disk works"),
            _ => append(log, model, random),
        }
        assert!(log.synced() >= model.synced);
    }
}

fn append(log: &mut Log<MemoryFiles>, model: &mut Model, random: &mut u64) {
    let len = match mix(random) % 10 {
        0 => 0,
        1 => 3000 + mix(random) % 3000,
        _ => mix(random) % 300,
    };
    let body: Vec<u8> = (0..len).map(|_| mix(random) as u8).collect();
    let (head, tail) = body.split_at(body.len() / 3);
    let appended = log.append(&[head, tail]).expect("space");
    model
        .written
        .push((appended.segment, appended.sequence, body));
}

fn seeds() -> u64 {
    std::env::var("THICKET_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(300)
}

#[test]
fn what_was_synced_is_there_after_a_loss_of_power() {
    for seed in 0..seeds() {
        let disk = MemoryFiles::new(1 << 20);
        let mut model = Model::default();
        let mut random = seed;
        for life in 0..4 {
            let context = format!("seed {seed}, life {life}");
            let (mut log, records, _) =
                open(&disk, seed * 100 + life).unwrap_or_else(|error| panic!("{context}: {error}"));
            model.check(&records, model.synced, &context);
            // What was not recovered is lost for good, and its numbers are reused.
            let next = log.next_sequence();
            model.written.retain(|(_, sequence, _)| *sequence < next);
            model.synced = next;
            live(&mut log, &mut model, &mut random);
            drop(log);
            disk.lose_power(mix(&mut random));
        }
    }
}

#[test]
fn what_was_written_is_there_after_a_kill() {
    for seed in 0..seeds() {
        let disk = MemoryFiles::new(1 << 20);
        let mut model = Model::default();
        let mut random = seed;
        for life in 0..4 {
            let context = format!("seed {seed}, life {life}");
            let (mut log, records, recovered) =
                open(&disk, seed * 100 + life).unwrap_or_else(|error| panic!("{context}: {error}"));
            model.check(&records, u64::MAX, &context);
            assert_eq!(recovered.torn, None, "{context}");
            model.synced = log.next_sequence();
            live(&mut log, &mut model, &mut random);
        }
    }
}

#[test]
fn what_was_read_at_a_start_is_there_after_a_loss_of_power() {
    for seed in 0..seeds() {
        let disk = MemoryFiles::new(1 << 20);
        let mut model = Model::default();
        let mut random = seed;
        let mut must_hold = 0;
        for life in 0..6 {
            let context = format!("seed {seed}, life {life}");
            let (mut log, records, _) =
                open(&disk, seed * 100 + life).unwrap_or_else(|error| panic!("{context}: {error}"));
            model.check(&records, must_hold, &context);
            let next = log.next_sequence();
            model.written.retain(|(_, sequence, _)| *sequence < next);
            model.synced = next;
            live(&mut log, &mut model, &mut random);
            drop(log);
            must_hold = u64::MAX;
            if mix(&mut random).is_multiple_of(2) {
                must_hold = model.synced;
                disk.lose_power(mix(&mut random));
            }
        }
    }
}

#[test]
fn room_is_what_can_be_appended_however_full_the_disk() {
    for seed in 0..seeds() {
        let disk = MemoryFiles::new(40_000);
        let mut random = seed;
        let (mut log, ..) = open(&disk, seed).expect("space for the first segment");
        for _ in 0..mix(&mut random) % 30 {
            log.append(&[&vec![1; (mix(&mut random) % 900) as usize]])
                .expect("space");
        }
        disk.set_capacity(0);
        let mut space = log.space();
        while space >= record_bytes(0) {
            let body = (mix(&mut random) % 1500).min(space - record_bytes(0)) & !7;
            log.append(&[&vec![2; body as usize]])
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            space -= record_bytes(body);
        }
    }
}

#[test]
fn a_full_disk_refuses_and_room_comes_back() {
    let disk = MemoryFiles::new(3 * SEGMENT_BYTES);
    let (mut log, ..) = open(&disk, 1).expect("space");
    let mut written = Vec::new();
    let error = loop {
        match log.append(&[&[written.len() as u8; 500]]) {
            Ok(_) => written.push([written.len() as u8; 500]),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StorageError::OutOfSpace { .. }), "{error}");
    assert!(log.is_full());
    assert!(log.space() < record_bytes(500));
    assert!(matches!(
        log.start_generation(),
        Err(StorageError::OutOfSpace { .. })
    ));
    log.append(&[b"small"])
        .expect("a smaller one fits in what is left");
    disk.set_capacity(4 * SEGMENT_BYTES);
    log.poll_space().expect("the disk works");
    assert!(!log.is_full());
    assert_eq!(log.space(), SEGMENT_BYTES - HEADER_LEN);
    let generation = log.start_generation().expect("space");
    log.append(&[b"lives"]).expect("space");
    log.remove_before(generation);
    assert_eq!(log.first_segment(), 1, "not before a sync");
    log.sync().expect("the disk works");
    assert_eq!(log.first_segment(), generation);
    drop(log);
    let (_, records, _) = open(&disk, 2).expect("good");
    assert_eq!(bodies(&records), [b"lives"]);
}

#[test]
fn a_next_segment_that_is_small_for_lack_of_space_grows_when_there_is_some() {
    let large = 4 * MINIMUM_SEGMENT_BYTES;
    let disk = MemoryFiles::new(large + MINIMUM_SEGMENT_BYTES);
    let config = LogConfig {
        segment_bytes: large,
        ..config(1)
    };
    let replay = Log::open(disk.clone(), Path::new(DIRECTORY), config).expect("new");
    let (mut log, _) = replay.finish().expect("space for the first segment");
    log.poll_space().expect("the disk works");
    assert!(log.is_short() && !log.is_full(), "a small one");
    disk.set_capacity(3 * large);
    log.poll_space().expect("the disk works");
    assert!(!log.is_short());
    log.append(&[b"one"]).expect("space");
    assert_eq!(log.space(), large - HEADER_LEN);
}

#[test]
fn only_a_new_generation_may_use_the_reserve() {
    let disk = MemoryFiles::new(3 * SEGMENT_BYTES);
    let with_reserve = LogConfig {
        reserve_bytes: SEGMENT_BYTES,
        ..config(1)
    };
    let replay = Log::open(disk.clone(), Path::new(DIRECTORY), with_reserve).expect("new");
    let (mut log, _) = replay.finish().expect("space");
    while log.append(&[&[0; 1000]]).is_ok() {}
    assert!(log.is_full());
    assert_eq!(
        disk.free_bytes(Path::new(DIRECTORY)).expect("works"),
        SEGMENT_BYTES
    );
    assert_eq!(log.start_generation().expect("the reserve"), 3);
}

#[test]
fn segments_that_were_asked_to_go_are_not_needed_though_they_take_room_until_the_next_sync() {
    let disk = MemoryFiles::new(100 * SEGMENT_BYTES);
    let replay = Log::open(disk, Path::new(DIRECTORY), config(1)).expect("new");
    let (mut log, _) = replay.finish().expect("space");
    while log.current_segment() < 4 {
        log.append(&[&[0; 1000]]).expect("space");
    }
    assert_eq!(log.needed_bytes(), 4 * SEGMENT_BYTES);
    log.remove_before(3);
    assert_eq!(log.needed_bytes(), 2 * SEGMENT_BYTES);
    assert_eq!(log.disk_bytes(), 4 * SEGMENT_BYTES);
    log.sync().expect("works");
    assert_eq!(log.needed_bytes(), 2 * SEGMENT_BYTES);
    assert_eq!(log.disk_bytes(), 2 * SEGMENT_BYTES);
}

#[test]
fn smaller_segments_are_made_where_room_is_scarce() {
    let disk = MemoryFiles::new(5 * MINIMUM_SEGMENT_BYTES);
    let large = LogConfig {
        segment_bytes: 64 << 20,
        ..config(1)
    };
    let replay = Log::open(disk, Path::new(DIRECTORY), large).expect("new");
    let (log, _) = replay.finish().expect("space");
    assert_eq!(log.disk_bytes(), 4 * MINIMUM_SEGMENT_BYTES);
    assert_eq!(log.space(), 4 * MINIMUM_SEGMENT_BYTES - HEADER_LEN);
    assert!(!log.is_full());
}

#[test]
fn a_record_larger_than_a_segment_gets_one_of_its_own() {
    let disk = MemoryFiles::new(1 << 20);
    let (mut log, ..) = open(&disk, 1).expect("space");
    let large = vec![7; 3 * SEGMENT_BYTES as usize];
    for body in [&large[..], b"small", &large[..]] {
        log.append(&[body]).expect("space");
    }
    drop(log);
    let (_, records, _) = open(&disk, 2).expect("good");
    assert_eq!(bodies(&records), [&large[..], b"small", &large[..]]);
}

#[test]
fn after_a_failed_write_or_sync_nothing_is_taken_any_more() {
    for (name, fail) in [
        ("write", MemoryFiles::fail_writes as fn(&MemoryFiles, bool)),
        ("sync", MemoryFiles::fail_syncs),
    ] {
        let disk = MemoryFiles::new(1 << 20);
        let (mut log, ..) = open(&disk, 1).expect("space");
        log.append(&[b"first"]).expect("space");
        log.sync().expect("the disk works");
        fail(&disk, true);
        let failed = log
            .append(&[b"second"])
            .map(|_| ())
            .and_then(|()| log.sync());
        assert!(
            matches!(failed, Err(StorageError::Io { .. })),
            "{name}: {failed:?}"
        );
        fail(&disk, false);
        let refused = log.append(&[b"third"]);
        assert!(
            matches!(refused, Err(StorageError::Failed { .. })),
            "{name}: {refused:?}"
        );
        assert!(
            matches!(log.sync(), Err(StorageError::Failed { .. })),
            "{name}"
        );
        assert_eq!(log.space(), 0, "{name}");
        disk.lose_power(3);
        let (_, records, _) = open(&disk, 2).expect("the rest is good");
        assert_eq!(records[0].1, b"first", "{name}");
    }
}

/// A log of three segments, each of eight records of 500 bytes, all synced after each record if `synced`.
fn three_segments(synced: bool) -> MemoryFiles {
    let disk = MemoryFiles::new(1 << 20);
    let (mut log, ..) = open(&disk, 1).expect("space");
    for number in 0..20 {
        log.append(&[&[number; 500]]).expect("space");
        if synced {
            log.sync().expect("the disk works");
        }
    }
    assert_eq!(log.current_segment(), 3);
    disk
}

/// Where record `index` of a segment starts.
fn record_at(index: u64) -> usize {
    (HEADER_LEN + index * record_len(500)) as usize
}

#[test]
fn damage_is_refused_and_a_torn_tail_cut_off() {
    type Damage = fn(&MemoryFiles);
    fn flip_at(disk: &MemoryFiles, number: u64, at: usize) {
        disk.edit(&file(number), |bytes| bytes[at] ^= 1)
            .expect("it is there");
    }
    let cases: [(&str, bool, Damage, std::result::Result<usize, &str>); 9] = [
        ("nothing", true, |_| {}, Ok(20)),
        (
            "the last record, nothing behind it",
            true,
            |disk| flip_at(disk, 3, record_at(5) + 40),
            Ok(19),
        ),
        (
            "a record before a later one that says it was synced",
            true,
            |disk| flip_at(disk, 3, record_at(3) + 40),
            Err("byte 1"),
        ),
        (
            "the same, never synced",
            false,
            |disk| flip_at(disk, 3, record_at(3) + 40),
            Ok(17),
        ),
        (
            "an earlier segment",
            true,
            |disk| flip_at(disk, 1, record_at(2) + 40),
            Err("000000000001.segment: damaged at byte 1136"),
        ),
        (
            "an earlier segment, never synced",
            false,
            |disk| flip_at(disk, 1, record_at(2) + 40),
            Ok(2),
        ),
        (
            "the header of a segment",
            true,
            |disk| flip_at(disk, 2, 35),
            Err("000000000002.segment: damaged at byte 0"),
        ),
        (
            "the last record of an earlier segment",
            true,
            |disk| flip_at(disk, 1, record_at(6) + 9),
            Err("000000000001.segment: damaged"),
        ),
        (
            "a segment in the middle is gone",
            true,
            |disk| disk.remove(&file(2)).expect("it is there"),
            Err("000000000002.segment: missing"),
        ),
    ];
    for (name, synced, damage, expected) in cases {
        let disk = three_segments(synced);
        damage(&disk);
        match (open(&disk, 2), expected) {
            (Ok((_, records, recovered)), Ok(count)) => {
                assert_eq!(records.len(), count, "{name}");
                assert_eq!(recovered.torn.is_some(), count < 20, "{name}");
                let (_, again, recovered) = open(&disk, 3).expect("cut off once");
                assert_eq!((again, recovered.torn), (records, None), "{name}");
            }
            (Err(error), Err(words)) => {
                let text = error.to_string();
                assert!(
                    text.contains(words) && text.contains("backup"),
                    "{name}: {text}"
                );
            }
            (outcome, expected) => panic!(
                "{name}: {:?}, expected {expected:?}",
                outcome.map(|(_, read, _)| read.len())
            ),
        }
    }
}

#[test]
fn a_record_that_was_cut_off_never_comes_back() {
    // Records 3 to 5 of the last segment are intact, but after a torn one. If they were only skipped, a new record of the same length in place of the
    // torn one would lead to them.
    let disk = three_segments(false);
    disk.edit(&file(3), |bytes| bytes[record_at(2) + 40] ^= 1)
        .expect("it is there");
    let (mut log, records, recovered) = open(&disk, 2).expect("a torn tail");
    let torn = recovered.torn.expect("a torn tail").to_string();
    assert!(
        torn.contains("000000000003.segment") && torn.contains("cut off"),
        "{torn}"
    );
    log.append(&[&[99; 500]]).expect("space");
    drop(log);
    let (_, again, _) = open(&disk, 3).expect("good");
    assert_eq!(again.len(), records.len() + 1);
    assert_eq!(again.last().expect("the new one").1, [99; 500]);
}

#[test]
fn a_log_of_another_node_is_refused_and_left_alone() {
    let disk = three_segments(true);
    let other = LogConfig {
        node: 8,
        ..config(1)
    };
    let error = Log::open(disk.clone(), Path::new(DIRECTORY), other).expect_err("not ours");
    assert!(
        error
            .to_string()
            .contains("belongs to node 0000000000000007"),
        "{error}"
    );
    assert_eq!(open(&disk, 2).expect("left alone").1.len(), 20);
}

#[test]
fn a_segment_in_the_making_is_removed_at_the_next_start() {
    let disk = three_segments(true);
    let unfinished = segment::unfinished_path(Path::new(DIRECTORY), 9);
    disk.create(&unfinished).expect("space");
    assert_eq!(open(&disk, 2).expect("good").1.len(), 20);
    assert!(disk.open(&unfinished).is_err());
}

#[test]
fn another_thread_prepares_and_syncs_while_the_log_goes_on() {
    let disk = MemoryFiles::new(1 << 20);
    let (mut log, ..) = open(&disk, 1).expect("space");
    log.append(&[b"one"]).expect("space");
    let job = log.begin_sync().expect("something to sync");
    assert!(log.begin_sync().is_none(), "one at a time");
    assert!(matches!(log.sync(), Err(StorageError::Busy { .. })));
    log.append(&[b"two"]).expect("space");
    let done = std::thread::spawn(move || job.run())
        .join()
        .expect("no panic");
    log.finish_sync(done).expect("the disk works");
    assert_eq!((log.synced(), log.is_dirty()), (1, true));

    log.start_generation().expect("space");
    assert!(log.wants_segment());
    let job = log.begin_prepare().expect("wanted");
    let late = log.begin_prepare().expect("not begun yet");
    std::thread::spawn(move || job.run())
        .join()
        .expect("no panic")
        .expect("space");
    assert!(!log.wants_segment());
    log.append(&[b"three"]).expect("space");
    log.start_generation().expect("space");
    log.append(&[b"four"]).expect("space");
    log.start_generation().expect("space");
    late.run().expect("prepares the one that is next by now");
    drop(log);
    let (_, records, _) = open(&disk, 2).expect("no hole");
    assert_eq!(bodies(&records), [&b"one"[..], b"two", b"three", b"four"]);
}
