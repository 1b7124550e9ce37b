//! Tests of the journal's format.

use super::*;

fn id(value: u16) -> PacketId {
    PacketId::new(value).expect("not zero")
}

fn message(number: u64, name: u64) -> StoredMessage<'static> {
    StoredMessage {
        name,
        id: MessageId {
            node: 7,
            incarnation: 3,
            stream: 1,
            number,
        },
        expires_at: (number == 2).then_some(Instant::from_millis(1_700_000)),
        publication: (number == 1).then_some((u128::MAX - 1, 9, 4)),
        publish: Publish {
            qos: Qos::ExactlyOnce,
            retain: true,
            ..Publish::new("a/b", b"payload")
        },
    }
}

fn append(sequence: u64) -> Append<'static> {
    Append {
        session: 300,
        sequence,
        message: sequence % 2,
        reference: (sequence == 6).then(|| message(sequence, 0).id),
        qos: Qos::AtLeastOnce,
        retain: false,
        packet_id: (sequence == 5).then(|| id(65535)),
        identifiers: if sequence == 6 {
            vec![1, 268_435_455]
        } else {
            Vec::new()
        },
        group: (sequence == 7).then_some("$share/g/a/b"),
    }
}

fn plain(sequence: u64, packet_id: Option<u16>) -> PlainAppend {
    PlainAppend {
        session: 300,
        sequence,
        reference: message(sequence + 100, 0).id,
        qos: Qos::ExactlyOnce,
        retain: true,
        packet_id: packet_id.map(id),
    }
}

fn finished_entry(index: usize) -> JournalEntry<'static> {
    let range = Box::new(finished()[index].clone());
    JournalEntry::Finished { session: 3, range }
}

fn finished() -> [FinishedRange; 2] {
    let range = |number, group: Option<&str>| FinishedRange {
        first: message(number, 0).id,
        count: number,
        group: group.map(Into::into),
    };
    [range(300, None), range(u64::MAX, Some("$share/g/a/b"))]
}

fn session() -> StoredSession {
    StoredSession {
        client_id: "c".into(),
        uid: 5,
        epoch: Epoch::from_bits(6),
        expiry_interval: 60,
        disconnected_at: Some(Instant::from_millis(4_000)),
        will: None,
        will_due: None,
    }
}

fn written() -> (JournalWriter, Vec<JournalEntry<'static>>) {
    let mut writer = JournalWriter::default();
    let mut entries = Vec::new();
    for number in 1..4 {
        let message = message(number, number - 1);
        writer.message(Timeline::OWN, &message);
        entries.push(JournalEntry::Message(Box::new(message)));
        let append = append(number + 4);
        writer.append(&append);
        entries.push(JournalEntry::Append(append));
    }
    let inbound = InboundId::new(id(8), 70_000, 3);
    let mut generations = Generations::of_one(12, 13);
    generations.insert(14, 15);
    writer.assign(1, 2, id(3));
    writer.done(1, id(65535), 3);
    writer.received(1, 9, id(4));
    writer.dropped(1, u64::MAX);
    writer.inbound(2, inbound);
    writer.released(2, id(8));
    writer.session(2, 5, id(6), 7);
    writer.seen(11, &generations);
    writer.noted((5, 6, 7), 8);
    writer.value(Timeline::OWN, 3, &session());
    writer.subscribed(3, b"subscription");
    writer.unsubscribed(3, "a/+");
    writer.passed(3, message(9, 0).id);
    writer.whole(3);
    writer.covered(3);
    writer.accepted(3, 9, &generations);
    writer.handed(3);
    writer.history(3, b"history");
    writer.members(3, &[7, u64::MAX]);
    writer.adopted(3, 1 << 100, Epoch::from_bits(9));
    writer.left(3);
    for range in finished() {
        writer.finished(3, &range);
    }
    writer.forgotten(3);
    writer.touched(3, "a/#");
    writer.ended(3);
    for append in [
        plain(7, Some(65534)),
        plain(8, Some(65535)),
        plain(9, Some(1)),
        plain(10, None),
    ] {
        writer.append_plain(append);
    }
    writer.whole(3);
    writer.append_plain(plain(11, None));
    entries.extend([
        JournalEntry::Assign {
            session: 1,
            sequence: 2,
            packet_id: id(3),
        },
        JournalEntry::Done {
            session: 1,
            packet_id: id(65535),
            count: 3,
        },
        JournalEntry::Received {
            session: 1,
            sequence: 9,
            packet_id: id(4),
        },
        JournalEntry::Dropped {
            session: 1,
            sequence: u64::MAX,
        },
        JournalEntry::Inbound {
            session: 2,
            id: inbound,
        },
        JournalEntry::Released {
            session: 2,
            packet_id: id(8),
        },
        JournalEntry::Session {
            session: 2,
            next_sequence: 5,
            next_packet_id: id(6),
            inbound_generation: 7,
        },
        JournalEntry::Seen {
            uid: 11,
            generations: Box::new(generations),
        },
        JournalEntry::Noted {
            publication: (5, 6, 7),
            checksum: 8,
        },
        JournalEntry::Value {
            session: 3,
            value: session().encode(Timeline::OWN).leak(),
        },
        JournalEntry::Subscribed {
            session: 3,
            value: b"subscription",
        },
        JournalEntry::Unsubscribed {
            session: 3,
            filter: "a/+",
        },
        JournalEntry::Passed {
            session: 3,
            message: message(9, 0).id,
        },
        JournalEntry::Whole { session: 3 },
        JournalEntry::Covered { session: 3 },
        JournalEntry::Accepted {
            session: 3,
            uid: 9,
            generations: Box::new(generations),
        },
        JournalEntry::Handed { session: 3 },
        JournalEntry::History {
            session: 3,
            value: b"history",
        },
        JournalEntry::Members {
            session: 3,
            nodes: vec![7, u64::MAX],
        },
        JournalEntry::Adopted {
            session: 3,
            uid: 1 << 100,
            epoch: Epoch::from_bits(9),
        },
        JournalEntry::Left { session: 3 },
        finished_entry(0),
        finished_entry(1),
        JournalEntry::Forgotten { session: 3 },
        JournalEntry::Touched {
            session: 3,
            filter: "a/#",
        },
        JournalEntry::Ended { session: 3 },
        JournalEntry::Run(AppendRun {
            first: plain(7, Some(65534)),
            count: 3,
        }),
        JournalEntry::Run(AppendRun {
            first: plain(10, None),
            count: 1,
        }),
        JournalEntry::Whole { session: 3 },
        JournalEntry::Run(AppendRun {
            first: plain(11, None),
            count: 1,
        }),
    ]);
    (writer, entries)
}

#[test]
fn entries_are_read_as_they_were_written() {
    let (writer, entries) = written();
    let read: Result<Vec<_>, _> = JournalEntries::new(Timeline::OWN, writer.record())
        .expect("our version")
        .collect();
    assert_eq!(read, Ok(entries));
}

#[test]
fn what_another_node_is_sent_expires_there_after_the_time_that_was_left_when_it_was_sent() {
    let at = Instant::from_millis;
    let [writers_day, readers_day] = [1_700_000_000_000, 1_900_000_000_000];
    let mut writer = JournalWriter::new(JournalFormat::Sent);
    let message = StoredMessage {
        expires_at: Some(at(9_000)),
        ..message(1, 0)
    };
    writer.value(Timeline::new(at(5_000), writers_day), 3, &session());
    writer.message(Timeline::new(at(5_000), writers_day), &message);
    let mut record = writer.record().to_vec();
    // Sent after two seconds, and read at the same time by another clock.
    set_sent_at(&mut record, at(7_000));
    let reader = Timeline::new(at(500_000), readers_day);
    let mut entries = JournalEntries::new(reader, &record).expect("our version");
    let times = entries.times();
    let Some(Ok(JournalEntry::Value { value, .. })) = entries.next() else {
        panic!("the session is the first entry");
    };
    let read = StoredSession::decode(value, times).expect("just written");
    assert_eq!(read.disconnected_at, Some(at(497_000)));
    let expected = StoredMessage {
        expires_at: Some(at(502_000)),
        ..message
    };
    let expected = JournalEntry::Message(Box::new(expected));
    assert_eq!(entries.next(), Some(Ok(expected)));
    for len in 0..9 {
        let cut = JournalEntries::new(reader, &record[..len]);
        assert!(cut.is_err(), "{len} bytes");
    }
}

#[test]
fn what_is_stored_expires_at_the_same_time_of_day() {
    let at = Instant::from_millis;
    let message = StoredMessage {
        expires_at: Some(at(9_000)),
        ..message(1, 0)
    };
    let mut writer = JournalWriter::default();
    writer.message(Timeline::new(at(5_000), 1_700_000_000_000), &message);
    let mut record = writer.record().to_vec();
    set_sent_at(&mut record, at(7_000));
    assert_eq!(record, writer.record(), "what is stored is not sent");
    let reader = Timeline::new(at(200), 1_700_000_001_000);
    let read: Result<Vec<_>, _> = JournalEntries::new(reader, &record)
        .expect("our version")
        .collect();
    let expected = StoredMessage {
        expires_at: Some(at(3_200)),
        ..message
    };
    let expected = JournalEntry::Message(Box::new(expected));
    assert_eq!(read, Ok(vec![expected]));
}

#[test]
fn a_cleared_writer_begins_a_record_that_stands_alone() {
    let (mut writer, _) = written();
    writer.clear();
    assert!(writer.is_empty());
    writer.message(Timeline::OWN, &message(3, 0));
    let read: Result<Vec<_>, _> = JournalEntries::new(Timeline::OWN, writer.record())
        .expect("our version")
        .collect();
    assert_eq!(
        read,
        Ok(vec![JournalEntry::Message(Box::new(message(3, 0)))])
    );
}

#[test]
fn a_record_cut_anywhere_gives_only_whole_entries_and_never_panics() {
    let (writer, entries) = written();
    let record = writer.record();
    for len in 1..record.len() {
        let read = JournalEntries::new(Timeline::OWN, &record[..len]).expect("our version");
        let whole: Vec<_> = read.map_while(Result::ok).collect();
        assert!(entries.starts_with(&whole), "{len} bytes");
    }
}

#[test]
fn another_version_an_empty_record_and_an_unknown_tag_are_refused() {
    assert_eq!(
        JournalEntries::new(Timeline::OWN, &[9]).map(|_| ()),
        Err(JournalError::Version(9))
    );
    assert_eq!(
        JournalEntries::new(Timeline::OWN, &[]).map(|_| ()),
        Err(JournalError::Malformed("version"))
    );
    let mut unknown = JournalEntries::new(Timeline::OWN, &[JournalFormat::Stored as u8, 99])
        .expect("our version");
    assert_eq!(unknown.next(), Some(Err(JournalError::Malformed("tag"))));
    assert_eq!(unknown.next(), None);
}

#[test]
fn a_count_that_is_merely_claimed_sets_no_memory_aside() {
    let mut record = vec![
        JournalFormat::Stored as u8,
        tag::APPEND,
        1,
        1,
        flag::IDENTIFIERS,
    ];
    record.extend_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF, 0x7F]);
    let mut entries = JournalEntries::new(Timeline::OWN, &record).expect("our version");
    assert!(matches!(entries.next(), Some(Err(_))));
}

#[test]
fn a_run_ends_where_anything_is_not_the_next_or_another_entry_stands() {
    let after = plain(7, Some(5)).next();
    let other = |change: fn(&mut PlainAppend)| {
        let mut other = after;
        change(&mut other);
        other
    };
    let others = [
        other(|append| append.session = 1),
        other(|append| append.sequence += 1),
        other(|append| append.reference.number += 1),
        other(|append| append.reference.stream = 0),
        other(|append| append.qos = Qos::AtLeastOnce),
        other(|append| append.retain = false),
        other(|append| append.packet_id = None),
        other(|append| append.packet_id = Some(id(9))),
    ];
    for second in others {
        let mut writer = JournalWriter::default();
        writer.append_plain(plain(7, Some(5)));
        writer.append_plain(second);
        let read: Vec<_> = JournalEntries::new(Timeline::OWN, writer.record())
            .expect("our version")
            .collect();
        let single = |first| Ok(JournalEntry::Run(AppendRun { first, count: 1 }));
        assert_eq!(read, [single(plain(7, Some(5))), single(second)]);
    }
    let mut writer = JournalWriter::default();
    let mut append = plain(1, None);
    for _ in 0..=MAXIMUM_RUN {
        writer.append_plain(append);
        append = append.next();
    }
    let counts: Vec<_> = JournalEntries::new(Timeline::OWN, writer.record())
        .expect("our version")
        .map(|entry| match entry {
            Ok(JournalEntry::Run(run)) => run.count,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counts, [MAXIMUM_RUN, 1]);
}

#[test]
fn a_run_of_nothing_of_too_many_or_past_all_numbers_is_refused() {
    let mut writer = JournalWriter::default();
    writer.append_plain(plain(7, None));
    let of_count = |record: &[u8], count: u16| {
        let (head, _) = record.split_at(record.len() - 2);
        [head, &count.to_le_bytes()].concat()
    };
    let empty = of_count(writer.record(), 0);
    let long = of_count(writer.record(), MAXIMUM_RUN + 1);
    writer.clear();
    writer.append_plain(PlainAppend {
        sequence: u64::MAX - 3,
        ..plain(7, None)
    });
    let endless = of_count(writer.record(), 4);
    for record in [empty, long, endless] {
        let mut entries = JournalEntries::new(Timeline::OWN, &record).expect("our version");
        assert_eq!(entries.next(), Some(Err(JournalError::Malformed("count"))));
        assert_eq!(entries.next(), None);
    }
}

#[test]
fn a_sequence_that_none_can_follow_is_refused() {
    let mut writer = JournalWriter::default();
    writer.append(&append(u64::MAX));
    let mut entries = JournalEntries::new(Timeline::OWN, writer.record()).expect("our version");
    let refused = Err(JournalError::Malformed("sequence"));
    assert_eq!(entries.next(), Some(refused.clone()));
    writer.clear();
    writer.received(1, u64::MAX, id(1));
    let mut entries = JournalEntries::new(Timeline::OWN, writer.record()).expect("our version");
    assert_eq!(entries.next(), Some(refused));
}

#[test]
fn entries_are_cheap_to_move() {
    let size = size_of::<JournalEntry<'_>>();
    assert!(size <= 128, "{size} bytes");
}
