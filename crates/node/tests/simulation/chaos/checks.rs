//! The invariants, each with its name. `Err` says which one is broken, and how.

use std::collections::BTreeMap;

use thicket_mqtt::Qos;
use thicket_overlay::routing::RoutingMode;

use super::{
    ledger::{Arrival, Held, Ledger, Life, Publication, publication_of},
    run::{FORK_MILLIS, Run},
};
use thicket_simulation::World;

pub type Verdict = Result<(), String>;

/// Why something that a check would call broken is permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Excuse {
    /// Nodes were partitioned, or dead: a session had two branches, another member of a group was chosen, retained messages were compared, a will was
    /// published by a node that did not see its client.
    Divergence,
    /// It came at QoS 0, which has no number by which others know it.
    Unnumbered,
    /// It was refused at one place, and its client sent it again.
    Refused,
    /// Several wrote the topic at once, and the last write was sent again.
    Contended,
}

impl Excuse {
    /// What docs/guarantees.md says of it.
    const fn permitted_by(self) -> &'static [&'static str] {
        match self {
            Self::Divergence => &[
                "Not promised across a partition:\n\n- order;",
                "- QoS 2 once, for a message that its publisher had under way when it went from one side to the other",
                "- QoS 2 once, to a client that went from one side to the other, or to a session that moved while more than two nodes",
                "- a QoS 2 publication that was sent to one side, not read there, and sent again to the other side under a packet identifier",
                "- that a will goes out only if its client is gone, and only once",
                "Twice if the node dies just as it publishes the will, and once more for each further node",
                "if they were published on two sides of a partition soon after each other, or by a node that was started or",
                "| at least once a group; QoS 2 may come twice where a member's node died |",
                "- That a retained message comes once, and before what its publisher sent later, if nodes were partitioned or died meanwhile",
            ],
            Self::Unnumbered => &[
                "| best effort; never twice, except for a client that moves with `flood` or while a link stands still |",
                "- QoS 0 once, over trees or `flood`, to a client that moves",
                "- That a message published before its subscriber's SUBACK is delivered once",
            ],
            Self::Refused => &[
                "A refused message that is sent again comes after messages that were not refused.",
            ],
            Self::Contended => {
                &["- The same for a topic to which several clients write retained messages at once"]
            }
        }
    }
}

#[test]
fn each_excuse_stands_in_the_guarantees() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guarantees.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let all = [
        Excuse::Divergence,
        Excuse::Unnumbered,
        Excuse::Refused,
        Excuse::Contended,
    ];
    for excuse in all {
        for words in excuse.permitted_by() {
            assert!(page.contains(words), "{excuse:?}: {words}");
        }
    }
}

/// How often each was needed.
pub type Excuses = BTreeMap<Excuse, u64>;

/// Counts it if it was needed.
fn note(used: &mut Excuses, excuse: Excuse, is_needed: bool) {
    if is_needed {
        *used.entry(excuse).or_default() += 1;
    }
}

/// Within this time all nodes have detected that a node is down.
const HEARD_MILLIS: u64 = 2_000;

/// Writes of one topic by two within this time, and their delivery, may cross.
const CONTENTION_MILLIS: u64 = 2_000;

/// All that can be said of the ledger when everything is quiet.
pub fn check(ledger: &Ledger, routing: RoutingMode, used: &mut Excuses) -> Verdict {
    no_acknowledged_message_is_lost(ledger, used)?;
    nothing_comes_twice_that_must_not(ledger, routing, used)?;
    messages_come_in_order(ledger, routing, used)?;
    each_shared_message_comes_to_a_member(ledger, used)?;
    nothing_comes_that_nobody_asked_for(ledger)
}

fn matches(held: &Held, topic: &str) -> bool {
    held.filter.filter.matches(topic)
}

fn lives(ledger: &Ledger) -> impl Iterator<Item = (&str, &Life)> {
    ledger
        .records
        .iter()
        .flat_map(|record| record.lives.iter().map(|life| (&*record.client_id, life)))
}

/// The session of its publisher had two branches: the one that was kept may hold a packet identifier that the client released on the other one, and
/// treats a new message under it as a duplicate.
fn is_from_forked(ledger: &Ledger, publication: &Publication) -> bool {
    let life = life_of(ledger, publication);
    publication.qos == Qos::ExactlyOnce
        && life.is_some_and(|life| life.forks > 0)
        && (!ledger.is_split || ledger.forgets_interests || is_taken_by_both(ledger, publication))
}

/// The session of its publisher.
fn life_of<'a>(ledger: &'a Ledger, publication: &Publication) -> Option<&'a Life> {
    let lives = &ledger.records[publication.publisher].lives;
    lives.get(publication.life.checked_sub(1)?)
}

/// It was sent again to the other one of two sessions that its publisher had for a while.
fn is_taken_by_both(ledger: &Ledger, publication: &Publication) -> bool {
    let life = life_of(ledger, publication);
    publication.is_sent_again && life.is_some_and(|life| life.forked_at >= publication.submitted_at)
}

/// A node died, or others were about to detect it.
fn has_died(ledger: &Ledger, from: u64, to: u64) -> bool {
    (ledger.kills.iter()).any(|at| at + HEARD_MILLIS >= from && *at <= to)
}

/// Nodes were linked again, and compared their retained messages.
fn is_compared(ledger: &Ledger, from: u64, to: u64) -> bool {
    !ledger.is_calm(from, to) || has_died(ledger, from, to)
}

/// Another publisher wrote what is retained on the topic at about the same time: while the message was on its way.
fn is_contended(ledger: &Ledger, publication: &Publication, came_at: u64) -> bool {
    let is_rival = |other: &&Publication| {
        let from = publication.submitted_at.saturating_sub(CONTENTION_MILLIS);
        let until = other.acknowledged_at.unwrap_or(u64::MAX);
        other.retain
            && other.publisher != publication.publisher
            && other.topic == publication.topic
            && until >= from
            && other.submitted_at <= came_at
    };
    publication.retain && ledger.publications.iter().any(|it| is_rival(&it))
}

/// QoS 1 and 2: what was acknowledged to its publisher comes to every session that subscribed before and stayed.
fn no_acknowledged_message_is_lost(ledger: &Ledger, used: &mut Excuses) -> Verdict {
    for (client_id, life) in lives(ledger).filter(|(_, life)| life.ended_at.is_none()) {
        let mut records = ledger.records.iter();
        let is_persistent = records.any(|it| it.is_persistent && it.client_id == client_id);
        let mut got = vec![false; ledger.publications.len()];
        for arrival in &life.arrivals {
            got[arrival.publication] = true;
        }
        for (number, publication) in ledger.publications.iter().enumerate() {
            let Some(acknowledged_at) = publication.acknowledged_at else {
                continue;
            };
            // While nodes are partitioned, the other one does not hear what a session asks for.
            let partitioned_since =
                ledger.partitioned_since(publication.submitted_at, acknowledged_at);
            let heard_by = publication
                .submitted_at
                .min(partitioned_since.unwrap_or(u64::MAX));
            let wanted = life.held.iter().any(|held| {
                held.filter.share_name.is_none()
                    && held.qos > Qos::AtMostOnce
                    && held.since.is_some_and(|since| since < heard_by)
                    && held.until.is_none()
                    && matches(held, &publication.topic)
            });
            let is_calm = ledger.is_calm(publication.submitted_at, acknowledged_at);
            let is_forgotten = ledger.forgets_interests
                && partitioned_since.is_some_and(|since| has_died(ledger, since, acknowledged_at));
            let is_promised = (is_persistent && !is_forgotten)
                || (life.forked_at < publication.submitted_at && is_calm);
            if publication.qos == Qos::AtMostOnce || !is_promised || !wanted || got[number] {
                continue;
            }
            let is_excused = is_from_forked(ledger, publication);
            note(used, Excuse::Divergence, is_excused);
            if !is_excused {
                return Err(format!(
                    "no acknowledged message is lost: p{number} {publication:?} did not come to {client_id}, who holds {:?}",
                    life.held
                ));
            }
        }
    }
    Ok(())
}

/// Plain deliveries of a session, replays of retained messages aside.
fn live(life: &Life) -> impl Iterator<Item = &Arrival> {
    life.arrivals.iter().filter(|arrival| !arrival.is_replay)
}

/// Why an arrival may be one of several of its publication.
fn may_come_twice(
    ledger: &Ledger,
    routing: RoutingMode,
    life: &Life,
    arrival: &Arrival,
) -> Option<Excuse> {
    let publication = &ledger.publications[arrival.publication];
    // Of several that write a topic at once the last word is said again to whom another one came last.
    if is_contended(ledger, publication, arrival.at) {
        return Some(Excuse::Contended);
    }
    if publication.qos == Qos::AtMostOnce {
        // When nodes are linked again, what is retained is told again, to where a client may have moved meanwhile.
        let is_told_again =
            publication.retain && is_compared(ledger, publication.submitted_at, arrival.at);
        return is_told_again.then_some(Excuse::Divergence);
    }
    // Parted nodes may each have had the publisher's session, and taken the message.
    let until = publication.acknowledged_at.unwrap_or(u64::MAX);
    let stays = ledger.is_still && life.forks == 0 && !publication.is_sent_again;
    let is_taken_once = !is_taken_by_both(ledger, publication)
        && (stays || ledger.is_calm(publication.submitted_at, until));
    // Of more than two nodes that are partially partitioned, some may have a session that has moved meanwhile, and do not know what came to its
    // client since.
    let since = publication.submitted_at.saturating_sub(FORK_MILLIS);
    let is_merged = life.forks > 0 && !ledger.is_split && !ledger.is_calm(since, arrival.at);
    // Across the death of a node or a partition: at least once a group (rule 16).
    let is_chosen_again = (life.held.iter()).any(|held| held.filter.share_name.is_some())
        && (has_died(ledger, publication.submitted_at, until)
            || !ledger.is_calm(publication.submitted_at, arrival.at));
    if !is_taken_once || is_merged || is_chosen_again {
        return Some(Excuse::Divergence);
    }
    // What was refused at one place came to others, and its client publishes it anew when it hears so.
    if ledger.is_cramped && publication.is_sent_again {
        return Some(Excuse::Refused);
    }
    // Over trees, or while a link stands still, a client that moved may get a copy beside the one at QoS 0 where it was before; and what a node
    // sent at QoS 0 before it died, nobody else knows of.
    let has_gone = !ledger.kills.is_empty() || ledger.is_split;
    let is_moved = routing != RoutingMode::Mesh || ledger.has_partitions || has_gone;
    // Before its SUBSCRIBE is acknowledged, a node may send at QoS 0 what it sends another node for its backup at a higher one.
    let is_early = !(life.held.iter()).any(|held| {
        let since = held.since.unwrap_or(u64::MAX);
        since < publication.submitted_at && matches(held, &publication.topic)
    });
    (arrival.qos == Qos::AtMostOnce && (is_moved || is_early)).then_some(Excuse::Unnumbered)
}

/// QoS 2 to QoS 2 exactly once; what was published with QoS 0 never twice.
fn nothing_comes_twice_that_must_not(
    ledger: &Ledger,
    routing: RoutingMode,
    used: &mut Excuses,
) -> Verdict {
    for (client_id, life) in lives(ledger) {
        let mut arrivals: BTreeMap<(usize, usize, Option<usize>), Vec<Option<Excuse>>> =
            BTreeMap::new();
        for arrival in live(life) {
            let publication = &ledger.publications[arrival.publication];
            let once = match publication.qos {
                Qos::AtMostOnce => true,
                Qos::AtLeastOnce => false,
                Qos::ExactlyOnce => arrival.qos != Qos::AtLeastOnce,
            };
            if once {
                // Without a number nobody can tell that a client has it from where it was, if the message comes later than the session: its
                // way over a tree is longer than the session's, or a link stood still, be it too short for anyone to notice.
                let may_be_late = ledger.has_partitions || routing != RoutingMode::Mesh;
                let is_unknown = publication.qos == Qos::AtMostOnce && may_be_late;
                let connection = is_unknown.then_some(arrival.connection);
                arrivals
                    .entry((arrival.publication, arrival.forks, connection))
                    .or_default()
                    .push(may_come_twice(ledger, routing, life, arrival));
            }
        }
        for ((number, ..), excuses) in arrivals.iter().filter(|(_, it)| it.len() > 1) {
            let unexcused = excuses.iter().filter(|excuse| excuse.is_none()).count();
            if unexcused > 1 {
                return Err(format!(
                    "nothing comes twice that must not: p{number} {:?} came {unexcused} times to {client_id}: {:?}",
                    ledger.publications[*number],
                    life.arrivals
                        .iter()
                        .filter(|arrival| arrival.publication == *number)
                        .collect::<Vec<_>>()
                ));
            }
            if let Some(excuse) = excuses.iter().flatten().next() {
                note(used, *excuse, true);
            }
        }
    }
    Ok(())
}

/// What must come in order: one publisher's session, one topic, one QoS (and one connection for QoS 0, which is never sent again).
fn sequence_of(publication: &Publication) -> (usize, usize, usize, &str, Qos) {
    let connection = match publication.qos {
        Qos::AtMostOnce => publication.connection,
        Qos::AtLeastOnce | Qos::ExactlyOnce => 0,
    };
    let Publication {
        publisher,
        life,
        topic,
        qos,
        ..
    } = publication;
    (*publisher, *life, connection, topic, *qos)
}

/// Why a message may come before or after others of its sequence.
fn may_come_in_any_order(
    ledger: &Ledger,
    routing: RoutingMode,
    life: &Life,
    arrival: &Arrival,
) -> Option<Excuse> {
    let publication = &ledger.publications[arrival.publication];
    // When nodes are linked again, copies of retained messages come before what is sent again.
    let is_disturbed = !ledger.is_calm(publication.submitted_at, arrival.at);
    let is_copy = publication.retain
        && (is_disturbed || has_died(ledger, publication.submitted_at, arrival.at));
    // What was published where the subscriber was out of sight may come only when its publisher sends it again, or when those who kept it
    // see the subscriber's node: between partitioned nodes no order is promised.
    let is_partitioned = life.forks > 0 || ledger.has_partitions || ledger.is_still;
    let is_late = is_disturbed && (publication.is_sent_again || is_partitioned);
    // What is lowered to QoS 0 on its way between nodes is not sent again when a link breaks, what is retained is; and over trees what has no
    // number does not wait for what has one.
    let is_lowered = publication.qos > arrival.qos || routing != RoutingMode::Mesh;
    if is_copy || is_late {
        Some(Excuse::Divergence)
    } else if arrival.qos == Qos::AtMostOnce && is_lowered {
        Some(Excuse::Unnumbered)
    } else if ledger.is_cramped && publication.is_sent_again {
        // What was refused comes when its client sends it again, after what was not refused.
        Some(Excuse::Refused)
    } else {
        // Of several that write a topic at once the last word is said again, behind what its publisher sent after it and is not retained.
        is_contended(ledger, publication, arrival.at).then_some(Excuse::Contended)
    }
}

/// First arrivals of one publisher's messages to one topic with one QoS come as they were published.
fn messages_come_in_order(ledger: &Ledger, routing: RoutingMode, used: &mut Excuses) -> Verdict {
    for (client_id, life) in lives(ledger) {
        let mut held = life.held.iter();
        if held.any(|held| held.filter.share_name.is_some()) {
            continue;
        }
        // Of those that are not excused; and of all.
        let mut last: [BTreeMap<_, usize>; 2] = [BTreeMap::new(), BTreeMap::new()];
        let mut seen = vec![false; ledger.publications.len()];
        for arrival in live(life) {
            if std::mem::replace(&mut seen[arrival.publication], true) {
                continue;
            }
            let publication = &ledger.publications[arrival.publication];
            // What was under way when the client subscribed may come only when its publisher sends it again.
            let was_held = life.held.iter().any(|held| {
                held.until.is_none()
                    && held
                        .since
                        .is_some_and(|since| since < publication.submitted_at)
                    && matches(held, &publication.topic)
            });
            if !was_held {
                continue;
            }
            let key = (sequence_of(publication), arrival.qos, arrival.forks);
            let [unexcused, all] = &mut last;
            let before = all.insert(key, arrival.publication);
            let is_late = before.is_some_and(|before| before > arrival.publication);
            if let Some(excuse) = may_come_in_any_order(ledger, routing, life, arrival) {
                note(used, excuse, is_late);
                continue;
            }
            let before = unexcused.insert(key, arrival.publication);
            if let Some(before) = before.filter(|before| *before > arrival.publication) {
                return Err(format!(
                    "messages come in order: p{} {publication:?} came to {client_id} after p{before} {:?}",
                    arrival.publication, ledger.publications[before]
                ));
            }
        }
    }
    Ok(())
}

/// Members of the groups of the run never leave them: each message comes to at least one.
fn each_shared_message_comes_to_a_member(ledger: &Ledger, used: &mut Excuses) -> Verdict {
    let mut groups: BTreeMap<String, Vec<(&Life, &Held)>> = BTreeMap::new();
    for (_, life) in lives(ledger).filter(|(_, life)| life.ended_at.is_none()) {
        for held in &life.held {
            if held.filter.share_name.is_some() && held.until.is_none() {
                groups
                    .entry(held.filter.to_string())
                    .or_default()
                    .push((life, held));
            }
        }
    }
    for (group, members) in groups {
        let since = members.iter().filter_map(|(_, held)| held.since).min();
        let was_member = |life: &Life| {
            let of_group = |held: &Held| held.filter.to_string() == group;
            life.held.iter().any(of_group)
        };
        let mut since = since;
        let mut got = vec![false; ledger.publications.len()];
        for (_, life) in lives(ledger).filter(|(_, life)| was_member(life)) {
            // What a session held that was given up after a partition is gone with it, and what one held that has ended.
            let changed = life.began_at.max(life.forked_at);
            since = since.max(Some(life.ended_at.unwrap_or(changed)));
            for arrival in &life.arrivals {
                got[arrival.publication] |= life.ended_at.is_none();
            }
        }
        for (number, publication) in ledger.publications.iter().enumerate() {
            let wanted = publication.qos > Qos::AtMostOnce
                && members
                    .iter()
                    .any(|(_, held)| matches(held, &publication.topic))
                && since.is_some_and(|since| since < publication.submitted_at);
            let calm = publication
                .acknowledged_at
                .is_some_and(|at| ledger.is_calm(publication.submitted_at, at));
            if !wanted || !calm || got[number] {
                continue;
            }
            let is_excused = is_from_forked(ledger, publication);
            note(used, Excuse::Divergence, is_excused);
            if !is_excused {
                return Err(format!(
                    "each shared message comes to a member: p{number} {publication:?} came to nobody of {group}"
                ));
            }
        }
    }
    Ok(())
}

/// No message of a topic without a filter that matches, however short it was held.
fn nothing_comes_that_nobody_asked_for(ledger: &Ledger) -> Verdict {
    for record in &ledger.records {
        let held: Vec<&Held> = record.lives.iter().flat_map(|life| &life.held).collect();
        for arrival in record.lives.iter().flat_map(|life| &life.arrivals) {
            let publication = &ledger.publications[arrival.publication];
            if !held.iter().any(|held| matches(held, &publication.topic)) {
                return Err(format!(
                    "nothing comes that nobody asked for: p{} {publication:?} came to {}",
                    arrival.publication, record.client_id
                ));
            }
        }
    }
    Ok(())
}

/// Once quiet: every session on one node, and its client connected there and nowhere else.
pub fn one_connection_a_client_identifier(world: &World, clients: usize) -> Verdict {
    let mut homes: BTreeMap<String, Vec<(usize, bool)>> = BTreeMap::new();
    for (node, session) in world.sessions() {
        homes
            .entry(session.client_id)
            .or_default()
            .push((node, session.connected));
    }
    match homes
        .iter()
        .find(|(_, homes)| homes.len() != 1 || !homes[0].1)
    {
        Some((client_id, homes)) => Err(format!(
            "one connection a client identifier: {client_id} has (node, connected) {homes:?}"
        )),
        None if homes.len() != clients => Err(format!(
            "one connection a client identifier: {} sessions of {clients} clients",
            homes.len()
        )),
        None => Ok(()),
    }
}

/// A will comes for every connection that ended otherwise than by DISCONNECT, and for no other.
pub fn wills_are_published_as_promised(ledger: &Ledger, used: &mut Excuses) -> Verdict {
    for (client, record) in ledger.records.iter().enumerate() {
        let came = ledger.wills.get(&client).copied().unwrap_or(0);
        // Whoever holds the will of a client whose node is out of sight takes the client for gone: too early (rule 17), once a partition,
        // and once more for each node that has it held then and loses sight of the client's node in its turn.
        let early = (ledger.disturbed.len() - 1) * ledger.others;
        // A node that dies while it publishes the will of a client of another dead node leaves it to the next one.
        let is_soon =
            |at: &&u64| (ledger.kills.iter()).any(|it| it < *at && it + HEARD_MILLIS >= **at);
        let again = ledger.kills.iter().filter(is_soon).count();
        let expected = record.dropped + record.uncertain;
        note(used, Excuse::Divergence, came > expected);
        if came > expected + early + again {
            return Err(format!(
                "wills are published as promised: {came} of {}, who lost {} connections and perhaps {} more",
                record.client_id, record.dropped, record.uncertain
            ));
        }
        // At the end everybody is connected: that connection is not lost.
        let is_stored = record.is_persistent && ledger.hears_stored_wills;
        let has_will = record.has_will && (ledger.hears_all_wills || is_stored);
        if has_will && came + 1 < record.dropped {
            return Err(format!(
                "wills are published as promised: {came} of {}, who lost {} connections",
                record.client_id,
                record.dropped - 1
            ));
        }
    }
    Ok(())
}

/// All nodes have the same retained messages, and each is one that no later one was acknowledged after. Clocks of nodes differ by
/// up to `skew` ms: the last writer is known only so far when nodes were partitioned.
pub fn retained_messages_converge(
    ledger: &Ledger,
    retained: &[Vec<String>],
    skew: u64,
    used: &mut Excuses,
) -> Verdict {
    for (node, at_node) in retained.iter().enumerate() {
        if *at_node != retained[0] {
            return Err(format!(
                "retained messages converge: node 0 has {:?}, node {node} has {at_node:?}",
                retained[0]
            ));
        }
    }
    let kept: Vec<usize> = retained[0]
        .iter()
        .filter_map(|said| publication_of(said.split('\'').nth(1)?.as_bytes()))
        .collect();
    for (number, publication) in ledger.publications.iter().enumerate() {
        let Some(acknowledged_at) = publication.acknowledged_at else {
            continue;
        };
        if !publication.retain || !ledger.is_calm(publication.submitted_at, acknowledged_at) {
            continue;
        }
        let of_topic = kept
            .iter()
            .find(|kept| ledger.publications[**kept].topic == publication.topic);
        let kept = of_topic.map(|kept| &ledger.publications[*kept]);
        // A message sent again after its connection broke counts from then.
        let is_overtaken = kept.is_some_and(|kept| {
            let acknowledged_at = kept.acknowledged_at;
            acknowledged_at.is_none_or(|at| at >= publication.submitted_at)
        });
        let is_skewed = kept.is_some_and(|kept| {
            // A message that was written while nodes were partitioned has the time of its node's clock, which may be behind if the node was started meanwhile; so has one
            // that was left behind at a node on its way, and sent again at another one.
            let at_the_latest = kept.acknowledged_at.unwrap_or(u64::MAX);
            let is_disturbed = !ledger.is_calm(kept.submitted_at, at_the_latest);
            (is_disturbed || kept.is_sent_again)
                && at_the_latest.saturating_add(skew) >= publication.submitted_at
        });
        if is_overtaken {
            continue;
        }
        let is_excused = is_skewed || is_from_forked(ledger, publication);
        note(used, Excuse::Divergence, is_excused);
        if !is_excused {
            return Err(format!(
                "retained messages converge: p{number} {publication:?} was the last word, but {of_topic:?} is kept"
            ));
        }
    }
    Ok(())
}

/// Nothing grows beyond what is configured.
pub fn check_bounds(run: &Run) -> Verdict {
    let messages = run.ledger.publications.len() as u64 + 100;
    for node in 0..run.world.nodes.len() {
        for traffic in run.world.traffic(node) {
            if traffic.unacknowledged_messages > messages {
                return Err(format!(
                    "memory within bounds: {} unacknowledged messages",
                    traffic.unacknowledged_messages
                ));
            }
        }
    }
    Ok(())
}
