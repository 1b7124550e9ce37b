//! A figure: bars by group and system, with 95 % confidence intervals, as SVG.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thicket_bench::report::chart::{
    Canvas, Drawn, FONT, PALETTE, TEXT, TITLE, style_mesh, svg, width_of,
};

const HEIGHT: u32 = 300;
/// Width without bars, and of each bar.
const MARGINS: u32 = 130;
const BAR: u32 = 26;
/// Width that fits a page.
const WIDEST: u32 = 1150;

/// Bars in groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The parameters that all its bars have in common.
    pub title: String,
    /// The parameter of the groups.
    pub x: String,
    /// Unit of the bars.
    pub y: String,
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
        let parts = self.width().div_ceil(WIDEST) as usize;
        let groups = self.groups.len().div_ceil(parts).max(1);
        // All parts have the same axis.
        let top = self.top();
        let draw = |groups: &[Group]| {
            let part = Self {
                groups: groups.to_vec(),
                ..self.clone()
            };
            svg((part.width(), HEIGHT), |root| part.draw(root, top))
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
        groups.max(width_of(&self.title, TITLE) + 16).max(300)
    }

    fn top(&self) -> f64 {
        let bars = self
            .groups
            .iter()
            .flat_map(|(_, bars)| bars.iter().flatten());
        let top = bars
            .map(|bar| bar.mean + bar.half_width_95)
            .fold(0.0, f64::max);
        if top > 0.0 { top * 1.05 } else { 1.0 }
    }

    fn draw(&self, root: &Canvas<'_>, top: f64) -> Drawn {
        let mut chart = ChartBuilder::on(root)
            .caption(&self.title, (FONT, TITLE))
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(68)
            .build_cartesian_2d(0.0..self.groups.len() as f64, 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        style_mesh(&mut mesh);
        mesh.disable_x_axis().y_desc(&self.y).draw()?;
        let slot = 1.0 / (self.systems.len() as f64 + 1.0);
        for (group, (_, bars)) in self.groups.iter().enumerate() {
            for (system, bar) in bars.iter().enumerate() {
                let Some(bar) = bar else { continue };
                let left = group as f64 + slot * (system as f64 + 0.5);
                let colour = PALETTE[system % PALETTE.len()];
                let corners = [(left, 0.0), (left + slot * 0.9, bar.mean)];
                chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                if bar.half_width_95 > 0.0 {
                    chart.draw_series([error_bar(bar, left + slot * 0.45)])?;
                }
            }
        }
        let centred = Pos::new(HPos::Center, VPos::Top);
        for (group, (label, _)) in self.groups.iter().enumerate() {
            let (x, y) = chart
                .plotting_area()
                .map_coordinate(&(group as f64 + 0.5, 0.0));
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

fn error_bar(
    bar: &Bar,
    x: f64,
) -> ErrorBar<f64, f64, plotters::element::ErrorBarOrientV<f64, f64>> {
    // An interval below 0 is cut off at the axis.
    let low = (bar.mean - bar.half_width_95).max(0.0);
    ErrorBar::new_vertical(
        x,
        low,
        bar.mean,
        bar.mean + bar.half_width_95,
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
        assert_eq!(bars.collect::<Vec<_>>(), [2, 1]);
        for text in ["RTT = 5", "qos", "ms"] {
            assert!(svg.contains(text), "{text}");
        }
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
        assert!(titled.width() >= 70 * TITLE / 2, "{}", titled.width());
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
    fn the_axis_reaches_above_the_highest_interval() {
        assert!((figure().top() - 9.45).abs() < 1e-9);
    }
}
