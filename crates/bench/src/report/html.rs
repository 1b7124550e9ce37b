//! Reports as one HTML file: the page that all commands share, and what is on it.

use std::fmt::Write;

use plotters::style::RGBColor;

use super::chart::PALETTE;
use super::table::escape;
use super::{Part, Report};

/// Of all pages. Figures and tables that are wider than the screen scroll by themselves, and do not shrink: their text would be too small to read.
const STYLE: &str = "*{box-sizing:border-box}\
body{font:15px/1.5 system-ui,sans-serif;max-width:1200px;margin:2em auto;padding:0 1em;background:var(--page);color:var(--text);overflow-wrap:anywhere}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}a{color:inherit}\
.wide,.figures{overflow-x:auto;max-width:100%}.figures{display:flex;flex-wrap:wrap;gap:6px}.figures svg,.wide svg{flex:none;display:block}\
.sections{display:flex;flex-wrap:wrap;gap:0 1em}.sections>section{flex:0 0 100%;min-width:0}.sections>section.one{flex:0 1 380px}section.one h2{min-height:2.5em}\
table{border-collapse:collapse;margin:1em 0;font-size:13px;font-variant-numeric:tabular-nums}\
td,th{padding:3px 9px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap;overflow-wrap:normal}\
td:first-child,th:first-child{text-align:left}.facts td{text-align:left;white-space:normal;overflow-wrap:anywhere}.facts td:first-child{white-space:nowrap}\
.bad,.good,.warning{padding:.5em 1em;border-left:4px solid}.bad{background:var(--bad);border-color:#c00}.good{background:var(--good);border-color:#080}\
.warning{background:var(--warning);border-color:#d97706}\
.key{display:inline-block;margin-right:1.4em}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}\
pre{background:var(--quoted);padding:1em;overflow-x:auto}";
/// What `STYLE` and figures name, by light and by dark.
const LIGHT: &str = "--page:#fff;--text:#222;--line:#ddd;--bad:#fbe3e4;--good:#e6f4ea;--warning:#fef3c7;--quoted:#f6f6f6;--grid:#e4e4e4;";
const DARK: &str = "--page:#16181c;--text:#e2e4e8;--line:#3a3e46;--bad:#4a1d20;--good:#173823;--warning:#453511;--quoted:#20232a;--grid:#343840;";
/// Colours of the palette in the dark, where those of the light have too little contrast with the page.
const LIGHTER: [(usize, &str); 3] = [(0, "#6c8cff"), (5, "#f0762b"), (6, "#a8a8a8")];
/// What drawings have of a fixed colour that depends on the page: what they are on, text and axes, the mesh.
const DRAWN: &str = "svg [fill=\"#FFFFFF\"]{fill:var(--page)}svg [fill=\"#000000\"]{fill:var(--text)}svg [stroke=\"#000000\"]{stroke:var(--text)}\
svg [stroke=\"#E4E4E4\"]{stroke:var(--grid)}";

/// A whole page that loads nothing from elsewhere. `title` is text, `body` is HTML.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         {body}</body>\n</html>\n",
        style()
    )
}

/// The style of a page, with the colours of figures: CSS takes precedence over the attributes that drawings have as files of their own.
fn style() -> String {
    let mut light = LIGHT.to_owned();
    let mut drawn = DRAWN.to_owned();
    for (place, colour) in PALETTE.iter().enumerate() {
        let colour = hex(colour);
        let _ = write!(light, "--curve-{place}:{colour};");
        for attribute in ["fill", "stroke"] {
            let _ = write!(
                drawn,
                "svg [{attribute}=\"{colour}\"]{{{attribute}:var(--curve-{place})}}"
            );
        }
    }
    let mut dark = DARK.to_owned();
    for (place, colour) in LIGHTER {
        let _ = write!(dark, "--curve-{place}:{colour};");
    }
    format!(
        ":root{{color-scheme:light dark;{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{STYLE}{drawn}"
    )
}

/// A colour as drawings have it.
fn hex(&RGBColor(red, green, blue): &RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Names beside the colours of the palette, in its order.
#[must_use]
pub fn legend(names: &[String]) -> String {
    let entry = |(index, name): (usize, &String)| {
        let (place, name) = (index % PALETTE.len(), escape(name));
        format!(
            "<span class=\"key\"><i style=\"background:var(--curve-{place})\"></i>{name}</span>"
        )
    };
    names.iter().enumerate().map(entry).collect()
}

/// What may be wider than the screen: it scrolls by itself.
#[must_use]
pub fn wide(html: &str) -> String {
    format!("<div class=\"wide\">{html}</div>\n")
}

/// The whole report as an HTML document that loads nothing from elsewhere.
#[must_use]
pub fn to_html(report: &Report) -> String {
    let parts: String = report.parts.iter().map(part_to_html).collect();
    page(&report.title, &parts)
}

fn part_to_html(part: &Part) -> String {
    match part {
        Part::Text(sentence) => format!("<p>{}</p>\n", escape(sentence)),
        Part::Warning(sentence) => format!("<p class=\"warning\">{}</p>\n", escape(sentence)),
        Part::Table(table) => wide(&table.to_html()),
        Part::Plot(plot) => wide(&plot.to_svg()),
        Part::Chart(chart) => wide(&chart.to_svg()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Plot, Scale, Series, Table};
    use super::*;

    fn report() -> String {
        let mut report = Report::new("pair & more");
        report.push(Part::Warning("<careful>".to_owned()));
        report.push(Part::Table(Table::new(["a", "b"])));
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
        to_html(&report)
    }

    #[test]
    fn the_file_holds_everything_and_loads_nothing() {
        let html = report();
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

    #[test]
    fn what_is_wider_than_a_screen_scrolls_by_itself() {
        let html = report();
        assert!(html.contains("<meta name=\"viewport\" content=\"width=device-width\">"));
        for element in ["<table", "<svg"] {
            let all = html.matches(element).count();
            let wide = format!("<div class=\"wide\">{element}");
            assert_eq!((all, html.matches(&wide).count()), (1, 1), "{element}");
        }
    }

    #[test]
    fn every_colour_of_a_figure_has_one_in_the_dark() {
        let html = report();
        let (head, svg) = html.split_once("<svg").unwrap();
        let words: Vec<&str> = svg.split('"').collect();
        let mut attributes = words.windows(2).filter_map(|pair| {
            let attribute = ["fill", "stroke"]
                .into_iter()
                .find(|name| pair[0].ends_with(&format!(" {name}=")))?;
            pair[1].starts_with('#').then_some((attribute, pair[1]))
        });
        assert!(attributes.clone().count() > 10);
        let unknown = attributes.find(|(attribute, colour)| {
            !head.contains(&format!(
                "svg [{attribute}=\"{colour}\"]{{{attribute}:var(--"
            ))
        });
        assert_eq!(unknown, None);
    }
}
