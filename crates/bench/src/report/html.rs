//! A report as one HTML file.

use super::table::escape;
use super::{Part, Report};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:860px;margin:2em auto;padding:0 1em;color:#1e293b}\
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}\
th,td{padding:.25em .8em;text-align:right;border-bottom:1px solid #e2e8f0}\
th:first-child,td:first-child{text-align:left}\
.warning{background:#fef3c7;padding:.5em .8em;border-radius:4px}\
svg{max-width:100%;height:auto;margin:1em 0}";

/// The whole report as an HTML document that loads nothing from elsewhere.
#[must_use]
pub fn to_html(report: &Report) -> String {
    let title = escape(&report.title);
    let parts: String = report.parts.iter().map(part_to_html).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{parts}</body>\n</html>\n"
    )
}

fn part_to_html(part: &Part) -> String {
    match part {
        Part::Text(sentence) => format!("<p>{}</p>\n", escape(sentence)),
        Part::Warning(sentence) => format!("<p class=\"warning\">{}</p>\n", escape(sentence)),
        Part::Table(table) => table.to_html(),
        Part::Plot(plot) => plot.to_svg(),
        Part::Chart(chart) => chart.to_svg(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Plot, Scale, Series};
    use super::*;

    #[test]
    fn the_file_holds_everything_and_loads_nothing() {
        let mut report = Report::new("pair & more");
        report.push(Part::Warning("<careful>".to_owned()));
        report.push(Part::Plot(Plot {
            title: "t".to_owned(),
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            scale: Scale::Linear,
            series: vec![Series {
                name: "s".to_owned(),
                points: vec![(0.0, 1.0), (1.0, 2.0)],
            }],
        }));
        let html = to_html(&report);
        assert!(
            html.contains("<h1>pair &amp; more</h1>")
                && html.contains("&lt;careful&gt;")
                && html.contains("<polyline")
        );
        // The format's namespace is not loaded.
        let html = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for outside in ["http", "src=", "href=", "@import", "<script"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
