//! Line charts as SVG, written by hand: a few lines, bands and circles need no library.

use std::fmt::Write as _;

/// A drawing of one or more panes side by side, with one legend.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) panes: Vec<Pane>,
}

/// One pair of axes.
#[derive(Debug, Clone)]
pub(super) struct Pane {
    pub(super) title: String,
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) logarithmic: bool,
    pub(super) series: Vec<Series>,
}

/// Points that belong together, in ascending x.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) label: String,
    /// Position in the palette.
    pub(super) colour: usize,
    pub(super) mark: Mark,
    pub(super) points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// A line with a band of one spread to either side; `dashes` 0 is solid.
    Line { dashes: usize },
    /// Circles only.
    Circles,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Half the height of the band.
    pub(super) spread: f64,
}

/// Told apart by most colour-blind readers (Okabe and Ito).
const PALETTE: [&str; 8] = [
    "#d55e00", "#e69f00", "#999933", "#cc79a7", "#56b4e9", "#009e73", "#0072b2", "#222222",
];
const DASHES: [&str; 4] = ["", "7 4", "2 3", "9 3 2 3"];
const PANE_WIDTH: f64 = 420.0;
const PANE_HEIGHT: f64 = 300.0;
const LEFT: f64 = 74.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 56.0;
const LEGEND_WIDTH: f64 = 250.0;

impl Chart {
    /// The whole document.
    pub(super) fn svg(&self) -> String {
        let legend = self.legend();
        let step = LEFT + PANE_WIDTH;
        let width = step * self.panes.len() as f64 + LEGEND_WIDTH + 20.0;
        let legend_height = TOP + 18.0 * legend.len() as f64 + 20.0;
        let height = (TOP + PANE_HEIGHT + BOTTOM).max(legend_height);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text(&mut svg, LEFT, 24.0, "start", 15, &self.title);
        for (index, pane) in self.panes.iter().enumerate() {
            pane.draw(&mut svg, step * index as f64 + LEFT);
        }
        for (index, series) in legend.iter().enumerate() {
            let y = TOP + 10.0 + 18.0 * index as f64;
            let x = step * self.panes.len() as f64 + 20.0;
            draw_key(&mut svg, x, y, series);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// One series for each label.
    fn legend(&self) -> Vec<&Series> {
        let mut legend: Vec<&Series> = Vec::new();
        for series in self.panes.iter().flat_map(|pane| &pane.series) {
            if !series.points.is_empty() && !legend.iter().any(|known| known.label == series.label)
            {
                legend.push(series);
            }
        }
        legend
    }
}

fn draw_key(svg: &mut String, x: f64, y: f64, series: &Series) {
    let colour = series.colour();
    match series.mark {
        Mark::Line { .. } => {
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"{}/>",
                x + 26.0,
                series.dashes()
            );
        }
        Mark::Circles => circle(svg, x + 13.0, y, colour),
    }
    text(svg, x + 34.0, y + 4.0, "start", 12, &series.label);
}

/// Maps values to the drawing.
struct Frame {
    left: f64,
    x: (f64, f64),
    y: (f64, f64),
    logarithmic: bool,
}

impl Frame {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let share = |value: f64, (low, high): (f64, f64)| (value - low) / (high - low);
        let y = if self.logarithmic { log(y) } else { y };
        (
            self.left + PANE_WIDTH * 0.96 * share(x, self.x),
            TOP + PANE_HEIGHT * (1.0 - share(y, self.y).clamp(-0.05, 1.05)),
        )
    }
}

/// Values at or below 0 have no place on a logarithmic axis; they go to its foot.
fn log(value: f64) -> f64 {
    value.max(1e-9).log10()
}

impl Pane {
    fn draw(&self, svg: &mut String, left: f64) {
        let frame = self.frame(left);
        self.draw_axes(svg, &frame);
        // The first line lies on top of its neighbours, and markers on top of all lines.
        for series in self.series.iter().rev().filter(|series| series.is_line()) {
            series.draw(svg, &frame);
        }
        for series in self.series.iter().filter(|series| !series.is_line()) {
            series.draw(svg, &frame);
        }
    }

    fn frame(&self, left: f64) -> Frame {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = range(points().map(|point| point.x), 0.02);
        let y = if self.logarithmic {
            let (low, high) = range(points().map(|point| log(point.y)), 0.0);
            (low.floor(), high.ceil())
        } else {
            let ends = points().flat_map(|point| [point.y - point.spread, point.y + point.spread]);
            range(ends, 0.05)
        };
        Frame {
            left,
            x,
            y,
            logarithmic: self.logarithmic,
        }
    }

    fn draw_axes(&self, svg: &mut String, frame: &Frame) {
        let (left, bottom) = (frame.left, TOP + PANE_HEIGHT);
        let right = left + PANE_WIDTH * 0.96;
        text(svg, left, TOP - 12.0, "start", 13, &self.title);
        for tick in ticks(frame.x, 8.0) {
            let (x, _) = frame.at(tick, 1.0);
            line(svg, (x, bottom), (x, bottom + 4.0), "#222222");
            text(svg, x, bottom + 18.0, "middle", 11, &number(tick));
        }
        for tick in ticks(frame.y, 6.0) {
            let shown = if self.logarithmic {
                10_f64.powf(tick)
            } else {
                tick
            };
            let (_, y) = frame.at(frame.x.0, shown);
            line(svg, (left, y), (right, y), "#e4e4e4");
            let label = if self.logarithmic {
                format!("1e{tick:.0}")
            } else {
                number(tick)
            };
            text(svg, left - 6.0, y + 4.0, "end", 11, &label);
        }
        line(svg, (left, bottom), (right, bottom), "#222222");
        line(svg, (left, TOP), (left, bottom), "#222222");
        text(
            svg,
            (left + right) / 2.0,
            bottom + 40.0,
            "middle",
            12,
            &self.x_label,
        );
        let (x, y) = (left - 58.0, TOP + PANE_HEIGHT / 2.0);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 {x:.1} {y:.1})\">{}</text>",
            escape(&self.y_label)
        );
    }
}

impl Series {
    fn is_line(&self) -> bool {
        matches!(self.mark, Mark::Line { .. })
    }

    fn colour(&self) -> &'static str {
        match self.mark {
            Mark::Line { .. } => PALETTE[self.colour % PALETTE.len()],
            Mark::Circles => "#222222",
        }
    }

    fn dashes(&self) -> String {
        match self.mark {
            Mark::Line { dashes } if dashes % DASHES.len() > 0 => {
                format!(" stroke-dasharray=\"{}\"", DASHES[dashes % DASHES.len()])
            }
            Mark::Line { .. } | Mark::Circles => String::new(),
        }
    }

    fn draw(&self, svg: &mut String, frame: &Frame) {
        let colour = self.colour();
        match self.mark {
            Mark::Circles => {
                for point in &self.points {
                    let (x, y) = frame.at(point.x, point.y);
                    circle(svg, x, y, colour);
                }
            }
            Mark::Line { .. } => {
                let upper = self.points.iter().map(|p| frame.at(p.x, p.y + p.spread));
                let lower = self
                    .points
                    .iter()
                    .rev()
                    .map(|p| frame.at(p.x, p.y - p.spread));
                let _ = writeln!(
                    svg,
                    "<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.18\"/>",
                    path(upper.chain(lower))
                );
                let _ = writeln!(
                    svg,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{}/>",
                    path(self.points.iter().map(|p| frame.at(p.x, p.y))),
                    self.dashes()
                );
            }
        }
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    points.join(" ")
}

/// Least and greatest value, with `margin` of their distance added to either side; never empty.
fn range(values: impl Iterator<Item = f64>, margin: f64) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if !(low.is_finite() && high.is_finite()) {
        return (0.0, 1.0);
    }
    let distance = if high > low {
        high - low
    } else {
        low.abs().max(1.0)
    };
    let room = distance * if high > low { margin } else { 0.5 };
    (low - room, high + room)
}

/// Round numbers inside the range, about `wanted` of them.
fn ticks((low, high): (f64, f64), wanted: f64) -> Vec<f64> {
    let rough = (high - low) / wanted;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * decade)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * decade);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

/// A tick without the noise of binary fractions.
fn number(value: f64) -> String {
    let rounded = format!("{value:.6}");
    let trimmed = rounded.trim_end_matches('0').trim_end_matches('.');
    if trimmed == "-0" { "0" } else { trimmed }.to_owned()
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, size: u32, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{}</text>",
        escape(words)
    );
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn circle(svg: &mut String, x: f64, y: f64, colour: &str) {
    let _ = writeln!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
    );
}

fn escape(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside_the_range() {
        assert_eq!(ticks((0.4, 20.4), 8.0), [5.0, 10.0, 15.0, 20.0]);
        assert_eq!(
            ticks((0.0, 1.0), 5.0),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        assert_eq!(number(0.6000000000000001), "0.6");
        assert_eq!(number(2000.0), "2000");
    }

    #[test]
    fn a_chart_has_a_band_a_line_and_markers_for_each_series() {
        let points = vec![
            Point {
                x: 1.0,
                y: 2.0,
                spread: 0.1,
            },
            Point {
                x: 2.0,
                y: 4.0,
                spread: 0.0,
            },
        ];
        let series = |label: &str, mark| Series {
            label: label.to_owned(),
            colour: 0,
            mark,
            points: points.clone(),
        };
        let pane = |logarithmic| Pane {
            title: "a < b".to_owned(),
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            logarithmic,
            series: vec![
                series("line", Mark::Line { dashes: 1 }),
                series("model", Mark::Circles),
            ],
        };
        let svg = Chart {
            title: "title".to_owned(),
            panes: vec![pane(false), pane(true)],
        }
        .svg();
        assert_eq!(svg.matches("<polygon").count(), 2);
        assert_eq!(svg.matches("<polyline").count(), 2);
        // Two points in each pane and one in the legend.
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(svg.contains("a &lt; b"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
