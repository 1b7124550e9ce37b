use std::collections::BTreeMap;

use thicket_session::time::WallClock;

use super::*;

const OWN: Origin = Origin {
    node: NodeId(1),
    incarnation: Incarnation(1),
    stream: StreamId(0),
};

fn at(millis: u64) -> Now {
    Now {
        instant: Instant::from_millis(millis),
        wall: WallClock::from_unix_millis(1_000_000 + millis),
    }
}

/// A write at a time; `expiry`: the milliseconds that are left.
fn write<'a>(topic: &'a str, payload: &'a [u8], millis: u64, expiry: Option<u64>) -> Record<'a> {
    let millis = 1_000_000 + millis;
    Record {
        retain: true,
        time: Some(HybridTime { millis, counter: 0 }),
        topic,
        payload,
        expiry_left_ms: expiry,
        ..Record::default()
    }
}

fn retained(limits: RetainedLimits) -> RetainedMessages {
    RetainedMessages::new(limits, Vec::new(), true)
}

fn observe(retained: &mut RetainedMessages, millis: u64, record: &Record<'_>) -> WriteOrder {
    retained.observe(at(millis), OWN, record)
}

/// Ann has published it.
fn of_ann(record: Record<'_>) -> Record<'_> {
    Record {
        publisher: Some("user ann"),
        ..record
    }
}

/// What is on disk after the operations of this round.
fn store(retained: &mut RetainedMessages, disk: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    for operation in retained.store.take_operations() {
        match operation.value {
            Some(value) => disk.insert(operation.key, value),
            None => disk.remove(&operation.key),
        };
    }
}

#[test]
fn a_message_that_finds_no_capacity_leaves_the_digest_as_it_was() {
    let limits = RetainedLimits {
        messages: 1,
        ..RetainedLimits::default()
    };
    let mut full = retained(limits);
    observe(&mut full, 1, &write("gone", b"", 1, None));
    observe(&mut full, 2, &write("kept", b"x", 2, None));
    let before = full.digest;
    let new = write("gone", b"y", 3, None);
    assert_eq!(observe(&mut full, 3, &new), WriteOrder::Newer);
    assert_eq!(full.digest, before);
    // As it is at a node that was never sent the message.
    observe(&mut full, 4, &write("kept", b"", 4, None));
    let mut other = retained(limits);
    observe(&mut other, 4, &write("kept", b"", 4, None));
    observe(&mut other, 1, &write("gone", b"", 1, None));
    assert_eq!(full.digest, other.digest);
}

#[test]
fn a_write_that_crosses_what_is_sent_again_is_sent_again_too() {
    let mut all = retained(RetainedLimits::default());
    let other = Origin {
        stream: StreamId(1),
        ..OWN
    };
    all.observe(at(0), OWN, &write("t", b"1", 1, None));
    // Two wrote it at once.
    all.observe(at(10), other, &write("t", b"2", 10, None));
    assert_eq!(all.contended.pop_due(at(59).instant), None);
    assert_eq!(all.contended.pop_due(at(60).instant).as_deref(), Some("t"));
    // The writer goes on: a subscriber may get this before what was sent again.
    all.observe(at(64), other, &write("t", b"3", 64, None));
    assert_eq!(all.contended.pop_due(at(114).instant).as_deref(), Some("t"));
    // Not what it writes long after that.
    all.observe(at(130), other, &write("t", b"4", 130, None));
    assert_eq!(all.contended.next(), None);
    all.contended.forget_sent(at(130).instant);
    assert!(all.contended.sent.is_empty());
}

#[test]
fn what_was_written_before_a_start_makes_no_topic_contended() {
    let (mut all, mut disk) = (retained(RetainedLimits::default()), BTreeMap::new());
    observe(&mut all, 0, &write("t", b"1", 1, None));
    store(&mut all, &mut disk);
    let mut started = retained(RetainedLimits::default());
    for value in disk.values() {
        let stored = StoredRetained::decode(value).expect("as it was written");
        started.recover(at(10), &stored);
    }
    let other = Origin {
        stream: StreamId(1),
        ..OWN
    };
    started.observe(at(20), other, &write("t", b"2", 20, None));
    assert_eq!(started.contended.next(), None);
    started.observe(at(30), OWN, &write("t", b"3", 30, None));
    assert!(started.contended.next().is_some());
}

#[test]
fn a_topic_that_was_removed_a_moment_ago_is_contended_whatever_the_clocks_say() {
    for (written_at, elapsed, is_contended) in [
        (0, 500, true),
        (0, 2_000, false),
        (3_600_000, 500, true),
        (3_600_000, 2_000, false),
    ] {
        let mut all = retained(RetainedLimits::default());
        observe(&mut all, 0, &write("t", b"", written_at, None));
        observe(&mut all, elapsed, &write("t", b"new", written_at + 1, None));
        let found = all.contended.next().is_some();
        assert_eq!(found, is_contended, "{written_at} {elapsed}");
    }
}

#[test]
fn a_write_counts_as_later_than_all_that_was_seen_however_far_ahead_that_is() {
    const YEARS: u64 = 400_000_000_000;
    let mut all = retained(RetainedLimits::default());
    observe(&mut all, 0, &write("t", b"ahead", YEARS, None));
    let seen = HybridTime {
        millis: 1_000_000 + YEARS,
        counter: 0,
    };
    assert!(all.tick(1_000_001, "t") > seen);
    assert!(all.tick(1_000_002, "other") > seen);
    // What cannot be a time advances no clock, and is replaced nevertheless.
    let absurd = HybridTime {
        millis: u64::MAX - 1,
        counter: 0,
    };
    let record = Record {
        time: Some(absurd),
        ..write("absurd", b"x", 0, None)
    };
    observe(&mut all, 0, &record);
    assert!(all.tick(1_000_003, "absurd") > absurd);
    assert!(all.tick(1_000_004, "other") < absurd);
}

#[test]
fn what_expires_leaves_its_time_only_and_takes_bounded_work_a_round() {
    const MESSAGES: usize = 2 * EXPIRED_A_ROUND + 1;
    let mut all = retained(RetainedLimits {
        user_messages: MESSAGES as u64,
        ..RetainedLimits::default()
    });
    let mut disk = BTreeMap::new();
    for number in 0..MESSAGES {
        let topic = format!("t/{number}");
        // First to expire late or never: what counts is the last write.
        let before = [None, Some(500), Some(90_000)][number % 3];
        for (millis, expiry) in [(1, before), (2, Some(500))] {
            observe(
                &mut all,
                millis,
                &of_ann(write(&topic, b"x", millis, expiry)),
            );
        }
    }
    store(&mut all, &mut disk);
    assert_eq!((all.len(), disk.len()), (MESSAGES, MESSAGES));
    let one_more = of_ann(write("more", b"x", 3, None));
    assert!(!all.may_retain(&one_more));
    let digest = all.digest;
    all.expire(at(501));
    assert_eq!(all.len(), MESSAGES);
    for left in [EXPIRED_A_ROUND + 1, 1, 0] {
        all.expire(at(502));
        assert_eq!(all.len(), left);
    }
    store(&mut all, &mut disk);
    assert!(all.may_retain(&one_more) && all.by_expiry.is_empty());
    // What is left has the digest of a node that has not removed them yet, and keeps what was written before from coming back.
    assert_eq!((all.digest, all.bytes()), (digest, 0));
    for (millis, expected) in [(1, WriteOrder::Older), (2, WriteOrder::Known)] {
        let again = write("t/0", b"x", millis, None);
        assert_eq!(observe(&mut all, 600, &again), expected);
    }
    assert_eq!(disk.len(), MESSAGES);
    let mut started = retained(RetainedLimits::default());
    for value in disk.values() {
        let stored = StoredRetained::decode(value).expect("as it was written");
        started.recover(at(700), &stored);
    }
    assert_eq!((started.len(), started.digest), (0, digest));
}

#[test]
fn a_publisher_is_charged_wherever_its_messages_come_from() {
    let limits = RetainedLimits {
        user_messages: 2,
        ..RetainedLimits::default()
    };
    let mut disk = BTreeMap::new();
    let mut here = retained(limits);
    let elsewhere = Origin {
        node: NodeId(2),
        ..OWN
    };
    let record = of_ann(write("a", b"x", 1, None));
    here.observe(at(1), elsewhere, &record);
    observe(&mut here, 2, &of_ann(write("b", b"x", 2, None)));
    store(&mut here, &mut disk);
    let mut started = retained(limits);
    for value in disk.values() {
        let stored = StoredRetained::decode(value).expect("as it was written");
        started.recover(at(10), &stored);
    }
    for mut all in [here, started] {
        let more = |topic| write(topic, b"x", 20, None);
        assert!(!all.may_retain(&of_ann(more("c"))));
        assert!(all.may_retain(&of_ann(more("a"))), "in its place");
        assert!(all.may_retain(&more("c")), "no client has published it");
        // Somebody else replaces one of them.
        let of_bob = Record {
            publisher: Some("user bob"),
            ..more("a")
        };
        all.observe(at(20), elsewhere, &of_bob);
        assert!(all.may_retain(&of_ann(more("c"))));
    }
}

#[test]
fn what_expired_while_the_node_was_down_is_as_if_it_had_been_removed_then() {
    let mut disk = BTreeMap::new();
    let mut before = retained(RetainedLimits::default());
    observe(&mut before, 1, &write("a", b"x", 1, Some(10)));
    store(&mut before, &mut disk);
    let mut after = retained(RetainedLimits::default());
    let value = disk.remove(&b"a"[..]).expect("it is stored");
    let stored = StoredRetained::decode(&value).expect("as it was written");
    after.recover(at(50), &stored);
    assert_eq!((after.len(), after.digest), (0, before.digest));
    store(&mut after, &mut disk);
    let stored = StoredRetained::decode(&disk[&b"a"[..]]).expect("as it was written");
    assert!(stored.record.payload.is_empty() && stored.expires_at_ms.is_none());
}

#[test]
fn removals_take_no_more_than_their_bytes_in_memory_and_on_disk_also_after_a_start() {
    let topics: Vec<_> = (0..40)
        .map(|number| format!("{number:02}{}", "x".repeat(60_000)))
        .collect();
    let is_within = |retained: &RetainedMessages| {
        let remembered = retained.removed_topics();
        assert!(
            remembered.bytes <= Some(LEAST_TOMBSTONE_BYTES),
            "{remembered:?}"
        );
        remembered.entries as usize
    };
    // With the default bounds there is space for all of them.
    let mut many = retained(RetainedLimits::default());
    let mut few = retained(RetainedLimits {
        bytes: 1000,
        ..RetainedLimits::default()
    });
    let (mut disk, mut disk_of_few) = (BTreeMap::new(), BTreeMap::new());
    for (millis, topic) in (0..).zip(&topics) {
        let removal = write(topic, b"", millis, None);
        observe(&mut many, millis, &removal);
        observe(&mut few, millis, &removal);
    }
    store(&mut many, &mut disk);
    store(&mut few, &mut disk_of_few);
    assert_eq!(disk.len(), 40);
    assert_eq!((disk_of_few.len(), is_within(&few)), (17, 17));
    // The last ones are remembered.
    assert!(few.removed.get(&topics[39]).is_some());
    // An old removal is not kept on disk either.
    observe(&mut few, 99, &write("old", b"", 0, None));
    observe(&mut few, 99, &write(&topics[0], b"", 1, None));
    store(&mut few, &mut disk_of_few);
    assert!(!disk_of_few.contains_key(topics[0].as_bytes()));
    // A node that finds more on its disk than it may have removes the rest.
    let mut started = retained(few.limits);
    for value in disk.clone().into_values() {
        let stored = StoredRetained::decode(&value).expect("as it was written");
        started.recover(at(100), &stored);
    }
    store(&mut started, &mut disk);
    assert_eq!((disk.len(), is_within(&started)), (17, 17));
    assert!(started.removed.get(&topics[39]).is_some());
}
