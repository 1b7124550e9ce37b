//! Panels with stacked bars, points or stacked areas, and one legend.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thicket_bench::report::chart::{
    Canvas, Drawn, FONT, PALETTE, TEXT, TITLE, style_mesh, svg, width_of,
};

/// Height of a panel, of the title, and of a line of the legend.
const PANEL: u32 = 290;
const HEAD: u32 = 34;
const LINE: u32 = 20;
/// Least width of a panel, width of its axis with margins, and of a bar.
const LEAST: u32 = 330;
const AXIS: u32 = 100;
const BAR: u32 = 16;
/// Width that fits a page.
const WIDEST: u32 = 1180;
/// Width of a key of the legend with the gap to its name, and of the gap to the next one.
const KEY: u32 = 16;

/// A drawing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drawing {
    pub title: String,
    /// Each has a colour.
    pub systems: Vec<String>,
    /// Each has a shade of the colour, or a mark.
    pub parts: Vec<String>,
    pub x_label: String,
    pub y_label: String,
    pub panels: Vec<Panel>,
}

/// One pair of axes: it has bars, points or areas.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Panel {
    pub title: String,
    /// Its own label, and axis, if it does not have those of all.
    pub y_label: Option<String>,
    pub bars: Bars,
    pub points: Points,
    pub areas: Areas,
}

/// Groups of bars, one for each system.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Bars {
    pub groups: Vec<(String, Vec<Option<Stack>>)>,
}

/// A stacked bar.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stack {
    /// From the axis up.
    pub parts: Vec<f64>,
    /// Of the whole; 0 without one.
    pub half_width_95: f64,
}

/// Points: system, part, x and y.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Points(pub Vec<(usize, usize, f64, f64)>);

/// Series over time by their places among the systems.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Areas {
    /// Whether each is on top of the ones before.
    pub is_stacked: bool,
    pub series: Vec<(usize, Vec<(f64, f64)>)>,
}

/// The colour of a part of a system: paler with each part.
fn shade(system: usize, part: usize) -> RGBAColor {
    let colour = PALETTE[system % PALETTE.len()];
    colour.mix([1.0, 0.45, 0.2][part.min(2)])
}

impl Drawing {
    pub fn to_svg(&self) -> String {
        let width = self.panel_width();
        let columns = (WIDEST / width).clamp(1, self.panels.len().max(1) as u32);
        let rows = (self.panels.len() as u32).div_ceil(columns).max(1);
        let all = (columns * width).max(width_of(&self.title, TITLE) + 2 * KEY);
        let legend = self.legend(all);
        let head = HEAD + LINE * legend.len() as u32;
        svg((all, head + rows * PANEL), |root| {
            let left = Pos::new(HPos::Left, VPos::Top);
            let title = (FONT, TITLE).into_text_style(root).pos(left);
            root.draw(&Text::new(self.title.clone(), (10, 8), title))?;
            for (line, keys) in legend.iter().enumerate() {
                self.draw_keys(root, (HEAD + LINE * line as u32) as i32, keys)?;
            }
            let (_, below) = root.split_vertically(head);
            let areas = below.split_evenly((rows as usize, columns as usize));
            for (panel, area) in self.panels.iter().zip(&areas) {
                self.draw_panel(panel, area, self.highest(panel))?;
            }
            Ok(())
        })
    }

    fn panel_width(&self) -> u32 {
        let groups = self.panels.iter().map(|panel| {
            let labels = panel
                .bars
                .groups
                .iter()
                .map(|(label, _)| width_of(label, TEXT));
            let label = labels.max().unwrap_or(0) + 8;
            let bars = BAR * (self.systems.len() as u32 + 1);
            panel.bars.groups.len() as u32 * bars.max(label)
        });
        let titles = self.panels.iter().map(|it| width_of(&it.title, TEXT) + 20);
        let widest = groups.map(|it| it + AXIS).chain(titles).max();
        widest.unwrap_or(0).clamp(LEAST, WIDEST)
    }

    /// The keys of systems, then those of parts if there are several, in lines that fit.
    fn legend(&self, width: u32) -> Vec<Vec<Key>> {
        let systems = (0..self.systems.len()).map(Key::System);
        let parts = 0..if self.parts.len() > 1 {
            self.parts.len()
        } else {
            0
        };
        let mut lines: Vec<Vec<Key>> = vec![Vec::new()];
        let mut used = 0;
        for key in systems.chain(parts.map(Key::Part)) {
            let own = width_of(self.name(key), TEXT) + 3 * KEY;
            if used + own > width && !lines[lines.len() - 1].is_empty() {
                lines.push(Vec::new());
                used = 0;
            }
            used += own;
            if let Some(last) = lines.last_mut() {
                last.push(key);
            }
        }
        lines
    }

    fn name(&self, key: Key) -> &str {
        match key {
            Key::System(at) => &self.systems[at],
            Key::Part(at) => &self.parts[at],
        }
    }

    fn draw_keys(&self, root: &Canvas<'_>, y: i32, keys: &[Key]) -> Drawn {
        let left = Pos::new(HPos::Left, VPos::Top);
        let mut x = 10;
        for &key in keys {
            match key {
                Key::System(system) => {
                    let square = [(x, y + 1), (x + 11, y + 12)];
                    root.draw(&Rectangle::new(square, shade(system, 0).filled()))?;
                }
                Key::Part(part) if self.has_points() => {
                    root.draw(&mark(part, (x + 6, y + 7), BLACK.to_rgba()))?;
                }
                Key::Part(part) => {
                    let grey = RGBColor(60, 60, 60).mix([1.0, 0.45, 0.2][part.min(2)]);
                    let square = [(x, y + 1), (x + 11, y + 12)];
                    root.draw(&Rectangle::new(square, grey.filled()))?;
                }
            }
            let style = (FONT, TEXT).into_text_style(root).pos(left);
            let name = self.name(key).to_owned();
            let width = width_of(&name, TEXT);
            root.draw(&Text::new(name, (x + KEY as i32, y), style))?;
            x += (width + 3 * KEY) as i32;
        }
        Ok(())
    }

    fn has_points(&self) -> bool {
        self.panels.iter().any(|panel| !panel.points.0.is_empty())
    }

    /// The end of the vertical axis: panels without a label of their own have one axis.
    fn highest(&self, only: &Panel) -> f64 {
        let of = |panel: &Panel| {
            let stacks = panel
                .bars
                .groups
                .iter()
                .flat_map(|(_, bars)| bars.iter().flatten());
            let bars = stacks.map(|it| {
                let whole: f64 = it.parts.iter().sum();
                whole + it.half_width_95.min(whole)
            });
            let points = panel.points.0.iter().map(|(_, _, _, y)| *y);
            bars.chain(points)
                .chain(panel.areas.highest())
                .fold(0.0, f64::max)
        };
        let top = match only.y_label {
            Some(_) => of(only),
            None => self.panels.iter().map(of).fold(0.0, f64::max),
        };
        if top > 0.0 { top * 1.05 } else { 1.0 }
    }

    fn right_end(&self, panel: &Panel) -> f64 {
        let points = self
            .panels
            .iter()
            .flat_map(|it| it.points.0.iter().map(|it| it.2));
        let times = panel
            .areas
            .series
            .iter()
            .flat_map(|(_, all)| all.iter().map(|it| it.0));
        let end = match panel.bars.groups.len() {
            0 => points.chain(times).fold(0.0, f64::max) * 1.05,
            groups => groups as f64,
        };
        if end > 0.0 { end } else { 1.0 }
    }

    fn draw_panel(&self, panel: &Panel, area: &Canvas<'_>, top: f64) -> Drawn {
        let has_bars = !panel.bars.groups.is_empty();
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.title, (FONT, TEXT))
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..self.right_end(panel), 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        style_mesh(&mut mesh);
        if has_bars {
            mesh.disable_x_axis();
        } else {
            mesh.x_desc(&self.x_label);
        }
        let y_label = panel.y_label.as_ref().unwrap_or(&self.y_label);
        mesh.y_desc(y_label).draw()?;
        let slot = 1.0 / (self.systems.len() as f64 + 1.0);
        for (group, (_, bars)) in panel.bars.groups.iter().enumerate() {
            for (system, stack) in bars.iter().enumerate() {
                let Some(stack) = stack else { continue };
                let left = group as f64 + slot * (system as f64 + 0.5);
                let mut below = 0.0;
                for (part, height) in stack.parts.iter().enumerate() {
                    let corners = [(left, below), (left + slot * 0.9, below + height)];
                    chart.draw_series([Rectangle::new(corners, shade(system, part).filled())])?;
                    below += height;
                }
                if stack.half_width_95 > 0.0 {
                    let low = (below - stack.half_width_95).max(0.0);
                    let high = (below + stack.half_width_95).min(top);
                    let style = BLACK.stroke_width(1);
                    let bar =
                        ErrorBar::new_vertical(left + slot * 0.45, low, below, high, style, 5);
                    chart.draw_series([bar])?;
                }
            }
        }
        for &(system, part, x, y) in &panel.points.0 {
            let at = chart.backend_coord(&(x, y));
            let (left, upper) = area.get_base_pixel();
            area.draw(&mark(part, (at.0 - left, at.1 - upper), shade(system, 0)))?;
        }
        for (system, lower, upper) in panel.areas.bands() {
            let colour = PALETTE[system % PALETTE.len()];
            if panel.areas.is_stacked {
                let edge = lower.iter().rev().copied();
                let band: Vec<(f64, f64)> = upper.iter().copied().chain(edge).collect();
                chart.draw_series([Polygon::new(band, colour.mix(0.75).filled())])?;
            }
            chart.draw_series(LineSeries::new(upper, colour.stroke_width(2)))?;
        }
        if has_bars {
            let centred = Pos::new(HPos::Center, VPos::Top);
            let write = |text: &str, x: f64, below: i32| {
                let (x, y) = chart.backend_coord(&(x, 0.0));
                let (left, upper) = area.get_base_pixel();
                let style = (FONT, TEXT).into_text_style(area).pos(centred);
                area.draw(&Text::new(
                    text.to_owned(),
                    (x - left, y - upper + below),
                    style,
                ))
            };
            for (group, (label, _)) in panel.bars.groups.iter().enumerate() {
                write(label, group as f64 + 0.5, 6)?;
            }
            write(&self.x_label, panel.bars.groups.len() as f64 / 2.0, 22)?;
        }
        Ok(())
    }
}

/// A key of the legend.
#[derive(Debug, Clone, Copy)]
enum Key {
    System(usize),
    Part(usize),
}

/// The mark of a part: a circle, a square, a diamond.
fn mark(part: usize, (x, y): (i32, i32), colour: RGBAColor) -> Polygon<(i32, i32)> {
    let corners: Vec<(i32, i32)> = match part {
        0 => (0..12)
            .map(|step| {
                let angle = std::f64::consts::TAU * f64::from(step) / 12.0;
                let round = |value: f64| (5.0 * value).round() as i32;
                (x + round(angle.cos()), y + round(angle.sin()))
            })
            .collect(),
        1 => vec![
            (x - 4, y - 4),
            (x + 4, y - 4),
            (x + 4, y + 4),
            (x - 4, y + 4),
        ],
        _ => vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)],
    };
    Polygon::new(corners, colour.filled())
}

/// The lower and the upper edge of a series, with its place among the systems.
type Band = (usize, Vec<(f64, f64)>, Vec<(f64, f64)>);

impl Areas {
    /// Each series between its edges. Stacked ones have the times of the longest; a series that has
    /// none there counts as 0.
    fn bands(&self) -> Vec<Band> {
        let longest = self.series.iter().max_by_key(|(_, points)| points.len());
        let Some((_, longest)) = longest else {
            return Vec::new();
        };
        let mut below: Vec<(f64, f64)> = longest.iter().map(|(x, _)| (*x, 0.0)).collect();
        let band = |(system, points): &(usize, Vec<(f64, f64)>)| {
            if !self.is_stacked {
                return (*system, Vec::new(), points.clone());
            }
            let lower = below.clone();
            for (x, y) in &mut below {
                *y += nearest(points, *x);
            }
            (*system, lower, below.clone())
        };
        self.series.iter().map(band).collect()
    }

    fn highest(&self) -> Option<f64> {
        let bands = self.bands();
        let tops = bands
            .iter()
            .flat_map(|(_, _, upper)| upper.iter().map(|it| it.1));
        tops.reduce(f64::max)
    }
}

/// The value at the time nearest to this one, 0 if that is more than a second away.
fn nearest(points: &[(f64, f64)], x: f64) -> f64 {
    let near = points
        .iter()
        .min_by(|a, b| (a.0 - x).abs().total_cmp(&(b.0 - x).abs()));
    near.filter(|it| (it.0 - x).abs() <= 1.0)
        .map_or(0.0, |it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacked_series_are_on_top_of_each_other_where_they_exist() {
        let areas = Areas {
            is_stacked: true,
            series: vec![
                (0, vec![(1.0, 10.0), (2.0, 20.0), (5.0, 30.0)]),
                (1, vec![(5.0, 4.0)]),
            ],
        };
        let bands = areas.bands();
        assert_eq!(bands[1].1, [(1.0, 10.0), (2.0, 20.0), (5.0, 30.0)]);
        assert_eq!(bands[1].2, [(1.0, 10.0), (2.0, 20.0), (5.0, 34.0)]);
        assert_eq!(areas.highest(), Some(34.0));
    }

    #[test]
    fn a_legend_takes_as_many_lines_as_it_needs() {
        let drawing = Drawing {
            title: "t".to_owned(),
            systems: (0..9)
                .map(|it| format!("a-rather-long-name-{it}"))
                .collect(),
            parts: vec!["x".to_owned(), "y".to_owned()],
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            panels: vec![Panel::default()],
        };
        assert!(drawing.legend(400).len() > 3);
        assert_eq!(drawing.legend(5000).len(), 1);
        assert!(drawing.to_svg().contains("</svg>"));
    }
}
