//! The number of placements.

use thicket_node::Remembered;
use thicket_telemetry::Kind::Gauge;

use super::page::Page;

/// What the hub calls the table of placements.
const TABLE: &str = "placements of clients";

/// `tables`: sizes of the tables of the hub; reading them costs the same with any number of clients.
pub(super) fn append(page: &mut Page, tables: &[Remembered]) {
    if let Some(placements) = tables.iter().find(|table| table.what == TABLE) {
        page.single(
            "thicket_placements",
            Gauge,
            "Clients of the cluster that are placed, by request or because their topics were learned",
            placements.entries,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thicket_telemetry::prometheus;

    #[test]
    fn placements_are_counted_and_other_tables_are_not() {
        let table = |what, entries| Remembered::new(what, entries, 100);
        let mut page = Page::default();
        append(&mut page, &[table("other", 7), table(TABLE, 3)]);
        let text = prometheus::text(&page.0);
        assert!(text.contains("\nthicket_placements 3\n"), "{text}");
        assert!(!text.contains('7'), "{text}");
    }
}
