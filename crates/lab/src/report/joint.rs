//! `report.html` of several scenarios that ran one after the other: Comparison's measures side by side, and links to the rest.

use std::fmt::Write;
use std::path::Path;

use thicket_bench::report::{self, escape};

use crate::error::LabError;
use crate::measures::table;
use crate::results::Results;

/// Writes `report.html` into the folder that contains the folders of all results, each with its own report.
pub fn write_joint(all: &[(String, Results)], folder: &Path) -> Result<(), LabError> {
    let path = folder.join("report.html");
    std::fs::write(&path, to_html(all)).map_err(LabError::io(path.display()))
}

fn to_html(all: &[(String, Results)]) -> String {
    let mut page = String::new();
    let results: Vec<Results> = all.iter().map(|(_, results)| results.clone()).collect();
    let (systems, lines) = table(&results);
    page.push_str("<h2>The measures of Comparison</h2><div class=\"wide\"><table><tr><th></th>");
    for system in &systems {
        let _ = write!(page, "<th>{}</th>", escape(system));
    }
    page.push_str("</tr>\n");
    for line in &lines {
        let _ = write!(page, "<tr><td>{}</td>", line.name);
        for system in &systems {
            let _ = write!(page, "<td>{}</td>", escape(line.of(system)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str(
        "</table></div><p>Means of the valid repeats, with 95 % confidence intervals (Student's t) where there are two or more.</p>\
         <h2>Scenarios</h2><div class=\"wide\"><table><tr><th></th><th>follows</th><th>runs</th><th>not valid</th></tr>\n",
    );
    for (name, results) in all {
        let invalid = results.runs.iter().filter(|run| !run.valid).count();
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{name}/report.html\">{}</a></td><td>{}</td><td>{}</td><td>{invalid}</td></tr>",
            escape(&results.title),
            escape(results.source.as_deref().unwrap_or_default()),
            results.runs.len(),
            name = escape(name)
        );
    }
    page.push_str("</table></div>\n");
    report::page("Brokers side by side", &page)
}
