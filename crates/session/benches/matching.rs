//! Time and memory of matching, printed: `cargo bench -p thicket-session --bench matching [-- FILTERS]`.
//!
//! The mix is 90 % exact filters, 6 % with `+` at level 2, 2 % with `+` at level 3 and 2 % ending in `#`; topics have four
//! levels. Nothing is asserted about times.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use thicket_session::retained::{RetainedCursor, RetainedTree};
use thicket_session::topic::{MatchCache, SubscriptionTree, TopicFilter};

const TOPICS: usize = 200_000;
const HOT_TOPICS: usize = 64;

/// A small generator of numbers (SplitMix64): the same run everywhere.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn topic(&mut self, [sites, rooms, devices]: Space) -> String {
        let (site, room) = (self.below(sites), self.below(rooms));
        format!("site{site}/room{room}/dev{}/temp", self.below(devices))
    }
}

/// How many sites, rooms a site and devices a room there are: few make many filters match a topic, many make many
/// filters.
type Space = [u64; 3];

fn filter(numbers: &mut Numbers, space: Space) -> String {
    let topic = numbers.topic(space);
    let levels: Vec<&str> = topic.split('/').collect();
    match numbers.below(100) {
        0..90 => topic,
        90..96 => format!("{}/+/{}/{}", levels[0], levels[2], levels[3]),
        96..98 => format!("{}/{}/+/{}", levels[0], levels[1], levels[3]),
        _ => format!("{}/{}/#", levels[0], levels[1]),
    }
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|line| line.split(' ').nth(1)?.parse::<usize>().ok());
    resident.unwrap_or(0) * 4096
}

fn nanos_each(start: Instant, count: usize) -> f64 {
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn bench_tree(count: u64, space: Space) {
    let mut numbers = Numbers(1);
    let filters: Vec<TopicFilter> = (0..count)
        .map(|_| TopicFilter::new(&filter(&mut numbers, space)).expect("a valid filter"))
        .collect();
    let topics: Vec<String> = (0..TOPICS).map(|_| numbers.topic(space)).collect();

    let before = resident_bytes();
    let start = Instant::now();
    let mut tree = SubscriptionTree::<u32>::new(0x5eed);
    for filter in &filters {
        *tree.entry(filter) += 1;
    }
    let insert = nanos_each(start, filters.len());
    let memory = resident_bytes().saturating_sub(before) >> 20;
    println!(
        "{count} filters ({} distinct): {insert:.0} ns an insert, {memory} MiB besides the texts",
        tree.len()
    );

    let (mut hits, mut subscriptions) = (0_u64, 0_u64);
    let start = Instant::now();
    for topic in &topics {
        tree.for_each_match(topic, |count| {
            hits += 1;
            subscriptions += u64::from(*count);
        });
    }
    let each = |sum: u64| sum as f64 / TOPICS as f64;
    println!(
        "  cold topics: {:.0} ns a match, {:.1} filters and {:.1} subscriptions each",
        nanos_each(start, TOPICS),
        each(hits),
        each(subscriptions)
    );

    let start = Instant::now();
    for topic in topics[..HOT_TOPICS].iter().cycle().take(TOPICS) {
        tree.for_each_match(topic, |value| hits += u64::from(*value));
    }
    println!(
        "  {HOT_TOPICS} hot topics: {:.0} ns a match",
        nanos_each(start, TOPICS)
    );
    bench_cache(&tree, &topics[..HOT_TOPICS]);

    let start = Instant::now();
    let removed = filters
        .iter()
        .filter(|filter| tree.remove(filter).is_some())
        .count();
    println!(
        "  {:.0} ns a removal of {removed}",
        nanos_each(start, removed)
    );
    black_box(hits);
}

fn bench_cache(tree: &SubscriptionTree<u32>, topics: &[String]) {
    let mut cache = MatchCache::<u64>::new(0x5eed, 4096, 1 << 20);
    for topic in topics {
        let mut sum = 0;
        tree.for_each_match(topic, |value| sum += u64::from(*value));
        cache.insert(topic, tree.generation(), sum, 8);
    }
    let rounds = TOPICS * 10;
    let mut sum = 0;
    let start = Instant::now();
    for topic in topics.iter().cycle().take(rounds) {
        sum += cache
            .get(black_box(topic), tree.generation())
            .copied()
            .unwrap_or_default();
    }
    println!(
        "  the same from the cache: {:.1} ns a hit",
        nanos_each(start, rounds)
    );
    black_box(sum);
}

fn bench_retained(count: u64) {
    let mut numbers = Numbers(2);
    let topics: Vec<String> = (0..count)
        .map(|_| numbers.topic([1000, 50, count / 100]))
        .collect();
    let start = Instant::now();
    let mut tree = RetainedTree::new();
    for topic in &topics {
        tree.insert(topic, 0_u32, 4);
    }
    println!(
        "{count} retained ({} distinct): {:.0} ns an insert",
        tree.len(),
        nanos_each(start, topics.len())
    );
    for text in [
        "site1/room2/#",
        "+/room1/dev1/temp",
        "site7/+/+/temp",
        "+/+/+/none",
        "#",
    ] {
        let mut cursor = RetainedCursor::new(&TopicFilter::new(text).expect("a valid filter"));
        let mut found = 0;
        let start = Instant::now();
        cursor.resume(&tree, usize::MAX, |_, _| found += 1);
        println!(
            "  {text}: {found} topics in {:.1} us",
            nanos_each(start, 1) / 1000.0
        );
    }
}

fn main() {
    let counts: Vec<u64> = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let counts = if counts.is_empty() {
        vec![100_000, 1_000_000]
    } else {
        counts
    };
    for count in &counts {
        // Nearly every filter is another one; about 14 subscriptions match at a million.
        bench_tree(*count, [1000, 50, (count / 10_000).max(1)]);
        bench_tree(*count, [200, 25, (count / 12_500).max(1)]);
    }
    bench_retained(counts[0]);
}
