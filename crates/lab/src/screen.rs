//! A running network shown in a terminal.

use thicket_bench::report::Table;

use crate::hand::Status;
use crate::links::Ways;
use crate::summary::number;

/// What a link between two sites loses: a share in percent, or that it is cut, if only one way, then with the site that receives nothing.
#[must_use]
pub fn loss([a, b]: [&str; 2], ways: &Ways) -> String {
    match ways.map(|way| way.loss_percent >= 100.0) {
        [true, true] => "cut".to_owned(),
        [true, false] => format!("cut to {b}"),
        [false, true] => format!("cut to {a}"),
        [false, false] => ways[0].loss_percent.to_string(),
    }
}

/// The page: brokers, and links with their current traffic, from two readings `seconds` apart.
#[must_use]
pub fn screen(before: &Status, now: &Status, seconds: f64) -> String {
    let mut sites = Table::new(["SITE", "BROKER"]);
    for (name, processes) in &now.sites {
        let state = match processes {
            0 => "down".to_owned(),
            1 => "runs".to_owned(),
            more => format!("runs, {more} processes"),
        };
        sites.row([name.clone(), state]);
    }
    let mut links = Table::new([
        "LINK", "RTT MS", "MBIT/S", "LOSS %", "KBIT/S", "BACK", "FRAMES/S",
    ]);
    for (a, b, ways, carried) in &now.links {
        let same = |link: &&(String, String, _, _)| (&link.0, &link.1) == (a, b);
        let earlier = before.links.iter().find(same).map(|link| link.3);
        let since = carried.since(&earlier.unwrap_or(*carried));
        let each = |count: u64, size: f64| number(count as f64 * size / seconds.max(0.001));
        let [shape, _] = ways;
        links.row([
            format!("{a} - {b}"),
            shape.delay.round_trip(),
            shape.bandwidth_mbit.map_or("-".to_owned(), number),
            loss([a, b], ways),
            each(since.bytes_ab, 0.008),
            each(since.bytes_ba, 0.008),
            each(since.packets_ab + since.packets_ba, 1.0),
        ]);
    }
    format!("{}\n{}", sites.to_text(), links.to_text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay::Delay;
    use crate::testbed::Carried;
    use crate::topology::LinkShape;

    #[test]
    fn a_page_shows_what_links_carry_now_and_which_are_cut() {
        let status = |bytes_ab, losses: [f64; 2]| Status {
            sites: vec![("s1".to_owned(), 1), ("s2".to_owned(), 0)],
            links: vec![(
                "s1".to_owned(),
                "s2".to_owned(),
                losses.map(|loss_percent| LinkShape {
                    delay: Delay::Constant { ms: 2.5 },
                    bandwidth_mbit: None,
                    queue_packets: 100,
                    loss_percent,
                }),
                Carried {
                    bytes_ab,
                    ..Carried::default()
                },
            )],
        };
        let before = status(1000, [0.0; 2]);
        let page = screen(&before, &status(251_000, [100.0; 2]), 2.0);
        let line = page.lines().last().unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words,
            ["s1", "-", "s2", "5.00", "-", "cut", "1000", "0", "0"]
        );
        assert!(page.contains("s2    down"));
        let page = screen(&before, &status(1000, [0.0, 100.0]), 2.0);
        assert!(page.contains("cut to s1"), "{page}");
    }
}
