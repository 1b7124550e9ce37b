//! A figure: bars by group and system, or lines over a logarithmic axis, with 95 % confidence intervals, as SVG.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thicket_bench::report::chart::{
    Canvas, Drawn, FONT, PALETTE, TEXT, TITLE, style_mesh, svg, width_of,
};

/// Height without the lines above the bars.
const HEIGHT: u32 = 260;
/// Height of a line above the bars, and its distance from the left.
const LINE: u32 = 20;
const LEFT: i32 = 10;
/// Width of a legend's square with the gap to its name, and of the gap to the next one.
const KEY: i32 = 16;
/// What is said of intervals that go beyond the axis.
const CUT: &str = "Intervals that end at the top go beyond it.";
/// Width without bars, and of each bar.
const MARGINS: u32 = 130;
const BAR: u32 = 26;
/// Width that fits a page.
const WIDEST: u32 = 1150;

/// Bars in groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What the bars are.
    pub quantity: String,
    /// The parameters that all its bars have in common.
    pub title: String,
    /// The parameter of the groups.
    pub x: String,
    /// Unit of the bars.
    pub y: String,
    /// Upper end of the axis, if it is that of others too.
    pub top: Option<f64>,
    /// Whether groups are numbers above 0 on a logarithmic axis, and each system is a line: as for a rate.
    pub is_logarithmic: bool,
    /// Systems; each has a bar in each group.
    pub systems: Vec<String>,
    /// Groups with their bars.
    pub groups: Vec<Group>,
}

/// A value of the parameter on the axis, and the bar of each system for it.
pub type Group = (String, Vec<Option<Bar>>);

/// One bar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// Its height.
    pub mean: f64,
    /// Half of the confidence interval; 0 without one.
    pub half_width_95: f64,
}

impl Figure {
    /// The figure as an SVG element, or as several with parts of its groups if it is too wide for a page.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let parts = match self.is_logarithmic {
            true => 1,
            false => self.width().div_ceil(WIDEST) as usize,
        };
        let groups = self.groups.len().div_ceil(parts).max(1);
        // All parts have the same axis.
        let top = self.top.unwrap_or_else(|| self.highest());
        let draw = |groups: &[Group]| {
            let part = Self {
                groups: groups.to_vec(),
                ..self.clone()
            };
            let above = part.lines_above(top);
            let height = HEIGHT + LINE * above.len() as u32;
            svg((part.width(), height), |root| part.draw(root, top, &above))
        };
        if self.groups.is_empty() {
            return draw(&[]);
        }
        self.groups.chunks(groups).map(draw).collect()
    }

    /// Its width in pixels: bars, labels of groups and the title fit.
    #[must_use]
    pub fn width(&self) -> u32 {
        let bars = (self.systems.len() as u32 + 1) * BAR;
        let labels = self.groups.iter().map(|(label, _)| width_of(label, TEXT));
        let label = labels.max().unwrap_or(0) + BAR / 2;
        let groups = MARGINS + self.groups.len() as u32 * bars.max(label);
        groups.max(width_of(&self.title, TEXT) + 16).max(300)
    }

    /// The lines above the bars: quantity with unit, common parameters, legend, what is cut off.
    fn lines_above(&self, top: f64) -> Vec<Line> {
        let width = self.width().saturating_sub(16);
        let quantity = format!("{}, {}", self.quantity, self.y);
        let mut lines: Vec<Line> = wrapped(&quantity, TITLE, width)
            .into_iter()
            .map(Line::Title)
            .collect();
        lines.extend((!self.title.is_empty()).then(|| Line::Text(self.title.clone())));
        let mut row = Vec::new();
        let mut used = 0;
        for (system, name) in self.systems.iter().enumerate() {
            let own = width_of(name, TEXT) + 2 * KEY as u32;
            if used + own > width && !row.is_empty() {
                lines.push(Line::Legend(std::mem::take(&mut row)));
                used = 0;
            }
            row.push(system);
            used += own;
        }
        lines.push(Line::Legend(row));
        let mut bars = self.bars();
        if bars.any(|bar| bar.mean + bar.half_width_95 > top) {
            lines.push(Line::Text(CUT.to_owned()));
        }
        lines
    }

    fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.groups
            .iter()
            .flat_map(|(_, bars)| bars.iter().flatten())
    }

    /// An axis for its own bars: an interval that is wider than its mean does not make the others small.
    pub(super) fn highest(&self) -> f64 {
        let tops = self
            .bars()
            .map(|bar| bar.mean + bar.half_width_95.min(bar.mean));
        let top = tops.fold(0.0, f64::max);
        if top > 0.0 { top * 1.05 } else { 1.0 }
    }

    /// The place of each group on the axis, which has the length of their number.
    fn places(&self) -> Vec<f64> {
        let even = (0..self.groups.len()).map(|group| group as f64 + 0.5);
        let logarithm = |(label, _): &Group| label.parse().ok().map(f64::ln);
        let numbers: Option<Vec<f64>> = self.groups.iter().map(logarithm).collect();
        let Some(numbers) = numbers.filter(|_| self.is_logarithmic) else {
            return even.collect();
        };
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let each = (numbers.len() as f64 - 1.0) / (most - least).max(f64::MIN_POSITIVE);
        let place = |number: &f64| 0.5 + each * (number - least);
        numbers.iter().map(place).collect()
    }

    fn draw(&self, root: &Canvas<'_>, top: f64, above: &[Line]) -> Drawn {
        let left = Pos::new(HPos::Left, VPos::Top);
        for (number, line) in above.iter().enumerate() {
            let y = 6 + (LINE * number as u32) as i32;
            let write = |text: &str, x: i32, size: u32| {
                let style = (FONT, size).into_text_style(root).pos(left);
                root.draw(&Text::new(text.to_owned(), (x, y), style))
            };
            match line {
                Line::Title(text) => write(text, LEFT, TITLE)?,
                Line::Text(text) => write(text, LEFT, TEXT)?,
                Line::Legend(systems) => {
                    let mut x = LEFT;
                    for &system in systems {
                        let colour = PALETTE[system % PALETTE.len()].filled();
                        let square = [(x, y + 1), (x + 10, y + 11)];
                        root.draw(&Rectangle::new(square, colour))?;
                        let name = &self.systems[system];
                        write(name, x + KEY, TEXT)?;
                        x += width_of(name, TEXT) as i32 + 2 * KEY;
                    }
                }
            }
        }
        let (_, below) = root.split_vertically(LINE * above.len() as u32);
        let mut chart = ChartBuilder::on(&below)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(68)
            .build_cartesian_2d(0.0..self.groups.len() as f64, 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        style_mesh(&mut mesh);
        mesh.disable_x_axis().y_desc(&self.y).draw()?;
        let places = self.places();
        if self.is_logarithmic {
            for system in 0..self.systems.len() {
                let own = (self.groups.iter().zip(&places))
                    .filter_map(|((_, bars), &x)| Some((x, bars[system]?)));
                let own: Vec<(f64, Bar)> = own.collect();
                let colour = PALETTE[system % PALETTE.len()];
                let points = own.iter().map(|(x, bar)| (*x, bar.mean));
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
                chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
                let with_interval = own.iter().filter(|(_, bar)| bar.half_width_95 > 0.0);
                chart.draw_series(with_interval.map(|(x, bar)| error_bar(bar, *x, top)))?;
            }
        }
        let slot = 1.0 / (self.systems.len() as f64 + 1.0);
        for (group, (_, bars)) in self.groups.iter().enumerate() {
            for (system, bar) in bars.iter().enumerate().filter(|_| !self.is_logarithmic) {
                let Some(bar) = bar else { continue };
                let left = group as f64 + slot * (system as f64 + 0.5);
                let colour = PALETTE[system % PALETTE.len()];
                let corners = [(left, 0.0), (left + slot * 0.9, bar.mean)];
                chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                if bar.half_width_95 > 0.0 {
                    chart.draw_series([error_bar(bar, left + slot * 0.45, top)])?;
                }
            }
        }
        let centred = Pos::new(HPos::Center, VPos::Top);
        for (group, (label, _)) in self.groups.iter().enumerate() {
            let (x, y) = chart.plotting_area().map_coordinate(&(places[group], 0.0));
            let style = (FONT, TEXT).into_text_style(root).pos(centred);
            root.draw(&Text::new(label.clone(), (x, y + 6), style))?;
        }
        let middle = self.groups.len() as f64 / 2.0;
        let (x, y) = chart.plotting_area().map_coordinate(&(middle, 0.0));
        let style = (FONT, TEXT).into_text_style(root).pos(centred);
        root.draw(&Text::new(self.x.clone(), (x, y + 22), style))?;
        Ok(())
    }
}

/// A line above the bars.
#[derive(Debug, Clone, PartialEq)]
enum Line {
    Title(String),
    Text(String),
    /// Systems by number, each with its colour.
    Legend(Vec<usize>),
}

/// A text in lines that are not wider than this, broken between words.
fn wrapped(text: &str, size: u32, width: u32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width_of(line, size) + width_of(word, size) + size / 2 <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn error_bar(
    bar: &Bar,
    x: f64,
    top: f64,
) -> ErrorBar<f64, f64, plotters::element::ErrorBarOrientV<f64, f64>> {
    // What is below 0 or above the axis is cut off.
    let low = (bar.mean - bar.half_width_95).max(0.0);
    ErrorBar::new_vertical(
        x,
        low,
        bar.mean,
        (bar.mean + bar.half_width_95).min(top),
        BLACK.stroke_width(1),
        6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let bar = |mean, half_width_95| {
            Some(Bar {
                mean,
                half_width_95,
            })
        };
        Figure {
            quantity: "Delay, mean".to_owned(),
            top: None,
            is_logarithmic: false,
            title: "RTT = 5".to_owned(),
            x: "qos".to_owned(),
            y: "ms".to_owned(),
            systems: vec!["a".to_owned(), "b".to_owned()],
            groups: vec![
                ("0".to_owned(), vec![bar(3.0, 0.5), bar(6.0, 0.0)]),
                ("1".to_owned(), vec![bar(4.0, 5.0), None]),
            ],
        }
    }

    #[test]
    fn every_bar_and_every_interval_is_drawn() {
        let svg = figure().to_svg();
        let bars = PALETTE[..2].iter().map(|RGBColor(red, green, blue)| {
            svg.matches(&format!("#{red:02X}{green:02X}{blue:02X}"))
                .count()
        });
        // And a square in the legend.
        assert_eq!(bars.collect::<Vec<_>>(), [3, 2]);
        for text in ["Delay, mean, ms", "RTT = 5", "qos", "ms", CUT] {
            assert!(svg.contains(text), "{text}");
        }
        // The words under the axis are inside.
        let (before, _) = svg.split_once(">\nqos\n<").unwrap();
        let (_, y) = before.rsplit_once(" y=\"").unwrap();
        let y: u32 = y.split('"').next().unwrap().parse().unwrap();
        assert!(y < HEIGHT + LINE * figure().lines_above(8.4).len() as u32);
    }

    #[test]
    fn a_figure_is_as_wide_as_its_labels() {
        let mut long = figure();
        let narrow = long.width();
        long.groups[0].0 = "locality-50-overlays".to_owned();
        assert!(long.width() >= 2 * 20 * TEXT / 2 && long.width() > narrow);
        let mut titled = figure();
        titled.title =
            "rate_per_s = 1000, payload_bytes = 102400, placement = locality-50-border".to_owned();
        assert!(titled.width() >= 70 * TEXT / 2, "{}", titled.width());
    }

    #[test]
    fn a_figure_that_is_too_wide_is_drawn_in_parts() {
        let mut wide = figure();
        let group = wide.groups[0].clone();
        wide.groups = vec![group; 20];
        assert_eq!(wide.to_svg().matches("<svg").count(), 2);
        assert_eq!(figure().to_svg().matches("<svg").count(), 1);
    }

    #[test]
    fn a_figure_of_nothing_is_drawn_empty() {
        let empty = Figure {
            groups: Vec::new(),
            ..figure()
        };
        assert!(empty.to_svg().contains("</svg>"));
    }

    #[test]
    fn the_axis_reaches_above_the_highest_interval_unless_that_is_wider_than_its_mean() {
        assert!((figure().highest() - 8.4).abs() < 1e-9);
        let mut narrow = figure();
        narrow.groups[1].1[0] = narrow.groups[0].1[0];
        assert!((narrow.highest() - 6.3).abs() < 1e-9);
        assert!(!narrow.to_svg().contains(CUT));
    }

    #[test]
    fn a_rate_has_a_line_for_each_system_over_a_logarithmic_axis() {
        let mut rates = figure();
        let bars = rates.groups[0].1.clone();
        rates.groups = ["10", "100", "10000"]
            .map(|rate| (rate.to_owned(), bars.clone()))
            .to_vec();
        rates.is_logarithmic = true;
        let places = rates.places();
        assert!((places[0] - 0.5).abs() < 1e-9 && (places[2] - 2.5).abs() < 1e-9);
        assert!((places[1] - 0.5 - 2.0 / 3.0).abs() < 1e-9, "{places:?}");
        let svg = rates.to_svg();
        // The axis has one of its own, too.
        assert!(svg.matches("<polyline").count() >= 2, "{svg}");
        assert_eq!(svg.matches("<rect").count(), 1 + 2, "background, legend");
    }

    #[test]
    fn long_quantities_and_legends_take_several_lines() {
        let mut long = figure();
        long.quantity = "From the last sign of a lost broker to trees without it".to_owned();
        long.systems = vec!["thicket-topic-capacity".to_owned(); 3];
        let lines = long.lines_above(9.0);
        let titles = lines.iter().filter(|line| matches!(line, Line::Title(_)));
        let legends = lines.iter().filter(|line| matches!(line, Line::Legend(_)));
        assert!(titles.count() > 1 && legends.count() > 1, "{lines:?}");
    }
}
