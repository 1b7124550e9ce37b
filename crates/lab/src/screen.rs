//! A running network shown in a terminal.

use thicket_bench::report::Table;

use crate::hand::Status;
use crate::summary::number;

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
    for (a, b, shape, carried) in &now.links {
        let same = |link: &&(String, String, _, _)| (&link.0, &link.1) == (a, b);
        let earlier = before.links.iter().find(same).map(|link| link.3);
        let since = carried.since(&earlier.unwrap_or(*carried));
        let each = |count: u64, size: f64| number(count as f64 * size / seconds.max(0.001));
        let state = if shape.loss_percent >= 100.0 {
            "cut".to_owned()
        } else {
            format!("{}", shape.loss_percent)
        };
        links.row([
            format!("{a} - {b}"),
            shape.delay.round_trip(),
            shape.bandwidth_mbit.map_or("-".to_owned(), number),
            state,
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
        let status = |bytes_ab, loss_percent| Status {
            sites: vec![("s1".to_owned(), 1), ("s2".to_owned(), 0)],
            links: vec![(
                "s1".to_owned(),
                "s2".to_owned(),
                LinkShape {
                    delay: Delay::Constant { ms: 2.5 },
                    bandwidth_mbit: None,
                    queue_packets: 100,
                    loss_percent,
                },
                Carried {
                    bytes_ab,
                    ..Carried::default()
                },
            )],
        };
        let page = screen(&status(1000, 0.0), &status(251_000, 100.0), 2.0);
        let line = page.lines().last().unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words,
            ["s1", "-", "s2", "5.00", "-", "cut", "1000", "0", "0"]
        );
        assert!(page.contains("s2    down"));
    }
}
