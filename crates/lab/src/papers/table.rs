//! The table of the scenarios that follow papers, for the documentation.

use std::fmt::Write as _;
use std::path::Path;

use super::{Departure, Difference, papers, read};
use crate::error::LabError;

/// The lines before and after the table in a page.
pub const BEGIN: &str = "<!-- written by `thicket lab papers --write`: begin -->\n";
/// Likewise.
pub const END: &str = "<!-- written by `thicket lab papers --write`: end -->\n";

/// A line for each scenario: what it follows, in what it departs and why, and how it was run.
pub fn table(folder: &Path) -> Result<String, LabError> {
    let mut table =
        String::from("| file | follows | departs from it in | ran |\n| --- | --- | --- | --- |\n");
    for paper in papers()? {
        for experiment in &paper.experiments {
            for file in &experiment.files {
                let (_, cells) = read(folder, &file.name)?;
                let differences = paper.differences(experiment, &cells);
                let _ = writeln!(
                    table,
                    "| `{}` | {} {} | {} | {} |",
                    file.name,
                    paper.key,
                    experiment.follows,
                    in_words(&file.departs, &differences),
                    file.ran
                );
            }
        }
    }
    Ok(table)
}

/// Departures by reason, with what the scenario and the paper have.
fn in_words(departs: &[Departure], differences: &[Difference]) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for departure in departs {
        let key = departure.key.as_deref();
        let found = differences.iter().find(|it| Some(it.key.as_str()) == key);
        let values =
            found.map(|it| format!("`{}`: {}, paper ({}): {}", it.key, it.here, it.at, it.there));
        match reasons.iter_mut().find(|(why, _)| *why == departure.why) {
            Some((_, all)) => all.extend(values),
            None => reasons.push((&departure.why, values.into_iter().collect())),
        }
    }
    let words = reasons.iter().map(|(why, values)| match &values[..] {
        [] => (*why).to_owned(),
        values => format!("{why} ({})", values.join("; ")),
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The page with this table instead of the one that it has; `None` without the two lines around it.
#[must_use]
pub fn in_page(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reason_has_all_its_parameters() {
        let departure = |key: Option<&str>, why: &str| Departure {
            key: key.map(str::to_owned),
            why: why.to_owned(),
        };
        let difference = |key: &str| Difference {
            key: key.to_owned(),
            here: "1".to_owned(),
            there: "4".to_owned(),
            at: "5.2".to_owned(),
        };
        let departs = [
            departure(Some("a"), "the machine has two cores"),
            departure(None, "one broker of two"),
            departure(Some("b"), "the machine has two cores"),
        ];
        assert_eq!(
            in_words(&departs, &[difference("b"), difference("a")]),
            "the machine has two cores (`a`: 1, paper (5.2): 4; `b`: 1, paper (5.2): 4); one broker of two"
        );
    }

    #[test]
    fn a_page_keeps_what_is_around_its_table() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        let new = in_page(&page, "new\n").unwrap();
        assert_eq!(new, format!("before\n{BEGIN}new\n{END}after\n"));
        assert_eq!(in_page("no table", "new"), None);
    }
}
