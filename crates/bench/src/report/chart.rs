//! The drawings of all reports, and their common style: colours, font, axes, the legend. It is in this crate because this is the lowest one that the
//! generator, the lab and the command line share.

use std::error::Error;
use std::ops::Range;

use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::Scale;

/// Colours that colour-blind people can distinguish (Okabe and Ito).
pub const PALETTE: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(90, 90, 90),
    RGBColor(153, 153, 51),
];
/// The font of all text.
pub const FONT: &str = "sans-serif";
/// Size of the text of axes and legends.
pub const TEXT: u32 = 14;
/// Size of titles.
pub const TITLE: u32 = 17;
const GRID: RGBColor = RGBColor(228, 228, 228);
/// Lengths of dashes and gaps; the first is a solid line.
const DASHES: [(i32, i32); 4] = [(0, 0), (8, 4), (2, 3), (14, 4)];
/// Size of a pane, and the width of a single one.
const PANE: (u32, u32) = (480, 350);
const LONE_PANE: u32 = 680;
/// Width of a character over the size of its text, of a wide font: a figure does not know which one will be used.
const CHARACTER: f64 = 0.62;
/// Height of a line of the legend, and width of its keys.
const LEGEND_LINE: i32 = 18;
const LEGEND_KEY: i32 = 26;
/// A line with more points is drawn without dots.
const DOTS_AT_MOST: usize = 100;

/// What is drawn on.
pub type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Whether a drawing is complete.
pub type Drawn = Result<(), Box<dyn Error>>;

/// One or more panes side by side, with one legend to their right.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What all panes show.
    pub title: String,
    /// From left to right.
    pub panes: Vec<Pane>,
}

/// One pair of axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Pane {
    /// What it shows.
    pub title: String,
    /// Label of the horizontal axis, with its unit.
    pub x_label: String,
    /// Label of the vertical axis, with its unit.
    pub y_label: String,
    /// Vertical scale.
    pub scale: Scale,
    /// Whether linear axes begin at 0, whatever the least value is.
    pub from_zero: bool,
    /// The first is drawn over the others, and marks over all lines.
    pub curves: Vec<Curve>,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Its name in the legend; curves of one name have one entry.
    pub label: String,
    /// Position in the palette.
    pub colour: usize,
    /// How it is drawn.
    pub mark: Mark,
    /// By rising x.
    pub points: Vec<Point>,
}

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A line with a band of one spread to either side; `dashes` 0 is solid.
    Line {
        /// Which kind of dashes.
        dashes: usize,
    },
    /// Black circles only.
    Circles,
}

/// A value with its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Place on the horizontal axis.
    pub x: f64,
    /// Place on the vertical axis.
    pub y: f64,
    /// Half the height of the band.
    pub spread: f64,
}

/// Width that this text takes at most, in pixels.
#[must_use]
pub fn width_of(text: &str, size: u32) -> u32 {
    (text.chars().count() as f64 * f64::from(size) * CHARACTER).ceil() as u32
}

/// An SVG file with this drawing on white.
pub fn svg(size: (u32, u32), draw: impl FnOnce(&Canvas<'_>) -> Drawn) -> String {
    let mut text = String::new();
    let drawn = {
        let canvas = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let filled = canvas.fill(&WHITE).map_err(Into::into);
        filled
            .and_then(|()| draw(&canvas))
            .and_then(|()| Ok(canvas.present()?))
    };
    match drawn {
        Ok(()) => text,
        Err(error) => format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\"><text y=\"20\">{}</text></svg>\n",
            super::escape(&format!("this figure could not be drawn: {error}"))
        ),
    }
}

/// The mesh of all figures: horizontal lines, few labels with few digits, one text size.
pub fn style_mesh<X, Y>(mesh: &mut MeshStyle<'_, '_, X, Y, SVGBackend<'_>>)
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    mesh.disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .label_style((FONT, TEXT))
        .axis_desc_style((FONT, TEXT));
}

/// A number at an axis, with few digits: 1500 is 1.5k.
fn number(value: &f64) -> String {
    let (value, size) = (*value, value.abs());
    let (digits, unit) = match size {
        // Rounding errors around 0.
        _ if size < 1e-12 => return "0".to_owned(),
        _ if !(1e-3..1e9).contains(&size) => {
            let text = format!("{value:.2e}");
            let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
            (digits.to_owned(), format!("e{power}"))
        }
        _ if size >= 1e6 => (format!("{:.3}", value / 1e6), "M".to_owned()),
        _ if size >= 1e3 => (format!("{:.3}", value / 1e3), "k".to_owned()),
        _ => (format!("{value:.6}"), String::new()),
    };
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{unit}")
}

impl Chart {
    /// Panes with one legend: curves of one name have one colour, in the order of their first appearance.
    #[must_use]
    pub fn side_by_side(title: String, mut panes: Vec<Pane>) -> Self {
        let mut names: Vec<String> = Vec::new();
        for curve in panes.iter_mut().flat_map(|pane| &mut pane.curves) {
            let known = names.iter().position(|name| *name == curve.label);
            curve.colour = known.unwrap_or(names.len());
            if known.is_none() {
                names.push(curve.label.clone());
            }
        }
        Self { title, panes }
    }

    /// The whole chart as SVG, which is a file of its own and an element of HTML.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let legend = self.legend();
        let longest = legend
            .iter()
            .map(|curve| width_of(&curve.label, TEXT))
            .max();
        let legend_width = LEGEND_KEY as u32 + longest.unwrap_or(0) + 16;
        let legend_height = LEGEND_LINE as u32 * (legend.len() as u32 + 3);
        let panes_width = match self.panes.len() as u32 {
            1 => LONE_PANE,
            count => PANE.0 * count,
        }
        .max(width_of(&self.title, TITLE));
        let size = (panes_width + legend_width, PANE.1.max(legend_height));
        svg(size, |canvas| {
            let (panes, side) = canvas.split_horizontally(panes_width);
            let panes = panes.titled(&self.title, (FONT, TITLE))?;
            for (pane, area) in self
                .panes
                .iter()
                .zip(panes.split_evenly((1, self.panes.len())))
            {
                pane.draw(&area)?;
            }
            for (place, curve) in (2..).zip(&legend) {
                curve.draw_key(&side, place * LEGEND_LINE)?;
            }
            Ok(())
        })
    }

    /// Its points: pane, label of its vertical axis, curve, x, y and spread, separated by tabs.
    #[must_use]
    pub fn to_tsv(&self) -> String {
        let mut text = String::from("pane\ty label\tcurve\tx\ty\tspread\n");
        for pane in &self.panes {
            for curve in &pane.curves {
                for Point { x, y, spread } in &curve.points {
                    let names = [&*pane.title, &*pane.y_label, &*curve.label].join("\t");
                    text.push_str(&format!("{names}\t{x}\t{y}\t{spread}\n"));
                }
            }
        }
        text
    }

    /// One curve for each label.
    fn legend(&self) -> Vec<&Curve> {
        let mut legend: Vec<&Curve> = Vec::new();
        for curve in self.panes.iter().flat_map(|pane| &pane.curves) {
            if !curve.points.is_empty() && !legend.iter().any(|known| known.label == curve.label) {
                legend.push(curve);
            }
        }
        legend
    }
}

impl Pane {
    fn draw(&self, area: &Canvas<'_>) -> Drawn {
        let x = span(self.shown().map(|point| point.x), self.from_zero, 0.02);
        match self.scale {
            Scale::Linear => {
                let ends = self
                    .shown()
                    .flat_map(|point| [point.y - point.spread, point.y + point.spread]);
                let y = span(ends, self.from_zero, 0.05);
                self.draw_on(area, x, y.clone(), y.clone(), self.labels_of(&y))
            }
            Scale::Logarithmic => {
                let powers = span(self.shown().map(|point| point.y.log10()), false, 0.0);
                let (low, high) = (powers.start.floor(), powers.end.ceil());
                // Slightly more than whole powers, so that rounding excludes none of them.
                let y = 0.999 * 10f64.powf(low)..1.001 * 10f64.powf(high);
                self.draw_on(area, x, y.clone().log_scale(), y, (high - low) as usize + 1)
            }
        }
    }

    /// At most so many labels of a linear axis: what is counted has no labels between whole numbers.
    fn labels_of(&self, y: &Range<f64>) -> usize {
        let is_count = self
            .shown()
            .all(|point| point.y.fract() == 0.0 && point.spread == 0.0);
        let whole = (y.end - y.start).floor().clamp(1.0, 8.0) as usize + 1;
        if is_count { whole.min(8) } else { 8 }
    }

    /// Points that can be drawn: on a logarithmic axis only those above 0.
    fn shown(&self) -> impl Iterator<Item = &Point> {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        points.filter(|point| self.is_shown(point))
    }

    fn is_shown(&self, point: &Point) -> bool {
        let has_place = self.scale == Scale::Linear || point.y > 0.0;
        point.x.is_finite() && point.y.is_finite() && has_place
    }

    /// `y` is the vertical axis, of the range `ends` and with at most this many labels.
    fn draw_on<Y>(
        &self,
        area: &Canvas<'_>,
        x: Range<f64>,
        y: Y,
        ends: Range<f64>,
        labels: usize,
    ) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, TEXT + 1))
            .margin(8)
            .margin_right(16)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        let mut mesh = chart.configure_mesh();
        style_mesh(&mut mesh);
        mesh.y_labels(labels.min(8))
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .draw()?;
        let is_line = |curve: &&Curve| curve.mark != Mark::Circles;
        let lines = self.curves.iter().rev().filter(is_line);
        let marks = self.curves.iter().filter(|curve| !is_line(curve));
        for curve in lines.chain(marks) {
            let shown = curve.points.iter().filter(|point| self.is_shown(point));
            let shown: Vec<Point> = shown.copied().collect();
            let points: Vec<(f64, f64)> = shown.iter().map(|point| (point.x, point.y)).collect();
            if shown.iter().any(|point| point.spread > 0.0) {
                let edge = |point: &Point, y: f64| (point.x, y.clamp(ends.start, ends.end));
                let upper = shown.iter().map(|it| edge(it, it.y + it.spread));
                let lower = shown.iter().rev().map(|it| edge(it, it.y - it.spread));
                let band: Vec<_> = upper.chain(lower).collect();
                let style = curve.colour().mix(0.18).filled();
                chart.draw_series([Polygon::new(band, style)])?;
            }
            let dots = match curve.mark {
                Mark::Circles => &points[..],
                Mark::Line { .. } if points.len() <= DOTS_AT_MOST => &points[..],
                Mark::Line { .. } => &[],
            };
            chart.draw_series(dots.iter().map(|at| curve.dot(*at)))?;
            let style = curve.colour().stroke_width(2);
            match curve.dashes() {
                None => {}
                Some((0, _)) => drop(chart.draw_series(LineSeries::new(points, style))?),
                Some((dash, blank)) => {
                    chart.draw_series(DashedLineSeries::new(points, dash, blank, style))?;
                }
            }
        }
        Ok(())
    }
}

impl Curve {
    fn colour(&self) -> RGBColor {
        match self.mark {
            Mark::Line { .. } => PALETTE[self.colour % PALETTE.len()],
            Mark::Circles => BLACK,
        }
    }

    fn dot<C>(&self, at: C) -> Circle<C, i32> {
        match self.mark {
            Mark::Line { .. } => Circle::new(at, 2, self.colour().filled()),
            Mark::Circles => Circle::new(at, 4, self.colour().stroke_width(1)),
        }
    }

    /// `None` without a line.
    fn dashes(&self) -> Option<(i32, i32)> {
        match self.mark {
            Mark::Line { dashes } => Some(DASHES[dashes % DASHES.len()]),
            Mark::Circles => None,
        }
    }

    fn draw_key(&self, side: &Canvas<'_>, y: i32) -> Drawn {
        let style = self.colour().stroke_width(2);
        let line = vec![(0, y), (LEGEND_KEY, y)];
        match self.dashes() {
            None => side.draw(&self.dot((LEGEND_KEY / 2, y)))?,
            Some((0, _)) => side.draw(&PathElement::new(line, style))?,
            Some((dash, blank)) => {
                side.draw(&DashedPathElement::new(line, dash, blank, style))?;
            }
        }
        let at = (LEGEND_KEY + 8, y - TEXT as i32 / 2);
        side.draw(&Text::new(self.label.as_str(), at, (FONT, TEXT)))?;
        Ok(())
    }
}

/// From the least to the greatest value, or from 0, with a share of it added; never empty.
fn span(values: impl Iterator<Item = f64>, from_zero: bool, margin: f64) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if !(low.is_finite() && high.is_finite()) {
        return 0.0..1.0;
    }
    if from_zero {
        return 0.0..if high > 0.0 {
            high * (1.0 + margin)
        } else {
            1.0
        };
    }
    // Values that differ only by rounding count as one: there is no space for ticks between them.
    let differ = high - low > 1e-9 * high.abs().max(low.abs());
    let more = if differ {
        (high - low) * margin
    } else {
        low.abs().max(1.0) / 2.0
    };
    low - more..high + more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)], scale: Scale) -> Chart {
        let curve = |label: &str, colour, mark| Curve {
            label: label.to_owned(),
            colour,
            mark,
            points: (points.iter())
                .map(|&(x, y)| Point {
                    x,
                    y,
                    spread: y / 4.0,
                })
                .collect(),
        };
        let pane = Pane {
            title: "a < b".to_owned(),
            x_label: "brokers".to_owned(),
            y_label: "ms".to_owned(),
            scale,
            from_zero: false,
            curves: vec![
                curve("solid", 0, Mark::Line { dashes: 0 }),
                curve("dashed", 1, Mark::Line { dashes: 1 }),
                curve("theory", 2, Mark::Circles),
            ],
        };
        Chart {
            title: "title".to_owned(),
            panes: vec![pane.clone(), pane],
        }
    }

    /// How often a shape has this colour.
    fn count(svg: &str, shape: &str, colour: RGBColor) -> usize {
        let RGBColor(red, green, blue) = colour;
        let colour = format!("\"#{red:02X}{green:02X}{blue:02X}\"");
        let lines = svg.lines();
        lines
            .filter(|line| line.contains(shape) && line.contains(&colour))
            .count()
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (-2.8e-17, "0"),
            (0.6000000000000001, "0.6"),
            (-0.25, "-0.25"),
            (1500.0, "1.5k"),
            (2_000_000.0, "2M"),
            (1e9, "1e9"),
            (0.0001, "1e-4"),
        ] {
            assert_eq!(number(&value), text);
        }
    }

    #[test]
    fn every_curve_is_drawn_in_each_pane_and_named_once() {
        let svg = chart(&[(1.0, 2.0), (2.0, 4.0), (3.0, 3.0)], Scale::Linear).to_svg();
        // A line and its key in the legend.
        assert_eq!(count(&svg, "<polyline", PALETTE[0]), 3);
        assert_eq!(count(&svg, "<polygon", PALETTE[0]), 2);
        assert_eq!(count(&svg, "<circle", PALETTE[0]), 6);
        assert!(count(&svg, "<polyline", PALETTE[1]) > 10, "dashes");
        assert_eq!(
            count(&svg, "<circle", BLACK),
            7,
            "three points twice, one key"
        );
        for (words, times) in [
            ("title", 1),
            ("solid", 1),
            ("dashed", 1),
            ("theory", 1),
            ("a &lt; b", 2),
            ("brokers", 2),
            ("ms", 2),
        ] {
            assert_eq!(
                svg.matches(&format!("\n{words}\n")).count(),
                times,
                "{words}"
            );
        }
    }

    #[test]
    fn a_logarithmic_axis_has_whole_powers_and_leaves_out_what_has_no_place() {
        let svg = chart(&[(1.0, 0.0), (2.0, 30.0), (3.0, 0.02)], Scale::Logarithmic).to_svg();
        for label in ["0.01", "0.1", "1", "10", "100"] {
            assert!(svg.contains(&format!("\n{label}\n")), "{label}");
        }
        assert_eq!(count(&svg, "<circle", BLACK), 5);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn the_legend_is_beside_the_panes() {
        let svg = chart(&[(1.0, 2.0), (2.0, 4.0)], Scale::Linear).to_svg();
        let at = svg.find("\nsolid\n").unwrap();
        let element = svg[..at].rfind("<text x=\"").unwrap() + "<text x=\"".len();
        let x: u32 = svg[element..].split('"').next().unwrap().parse().unwrap();
        assert!(x > 2 * PANE.0, "{x}");
    }

    #[test]
    fn what_is_counted_has_labels_at_whole_numbers_only() {
        let labels = |top: f64| {
            let curve = Curve {
                label: "clients".to_owned(),
                colour: 0,
                mark: Mark::Line { dashes: 0 },
                points: [0.0, top]
                    .map(|y| Point {
                        x: y,
                        y,
                        spread: 0.0,
                    })
                    .to_vec(),
            };
            let pane = Pane {
                from_zero: true,
                curves: vec![curve],
                ..chart(&[], Scale::Linear).panes[0].clone()
            };
            let y = span([0.0, top].into_iter(), true, 0.05);
            let mesh = plotters::coord::types::RangedCoordf64::from(y.clone());
            mesh.key_points(pane.labels_of(&y))
        };
        for (top, expected) in [(1.0, &[0.0, 1.0][..]), (3.0, &[0.0, 1.0, 2.0, 3.0])] {
            assert_eq!(labels(top), expected);
        }
        assert!(labels(9.0).iter().all(|label| label.fract() == 0.0));
        assert!(labels(2.5).contains(&0.5));
    }

    #[test]
    fn a_chart_is_as_wide_as_its_title_and_its_legend() {
        let width = |chart: &Chart| {
            let svg = chart.to_svg();
            let word = svg.split('"').nth(1).unwrap();
            word.parse::<u32>().unwrap()
        };
        let usual = chart(&[(1.0, 2.0)], Scale::Linear);
        let mut long = usual.clone();
        long.title = "w".repeat(150);
        assert!(width(&long) >= 150 * TITLE / 2 && width(&long) > width(&usual));
        let mut named = usual.clone();
        named.panes[0].curves[0].label = "w".repeat(40);
        assert!(width(&named) >= 2 * PANE.0 + 40 * 8, "{}", width(&named));
    }

    #[test]
    fn charts_of_few_values_and_of_extreme_ones_are_drawn() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            for points in [
                &[][..],
                &[(0.0, 0.0)],
                &[(f64::NAN, 1.0)],
                &[(5.0, 5.0)],
                &[(1.0, 1.0), (2.0, 1.0 + f64::EPSILON)],
                &[(1e12, 1e-100), (2e12, 1e100)],
            ] {
                let svg = chart(points, scale).to_svg();
                assert!(svg.starts_with("<svg") && svg.contains("</svg>"));
                assert!(!svg.contains("could not be drawn"), "{points:?}");
            }
        }
    }
}
