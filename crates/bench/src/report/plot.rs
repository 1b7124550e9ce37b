//! Lines over one pair of axes.

use super::chart::{Chart, Curve, Mark, Pane, Point};

/// A plot with one line a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// Label of the horizontal axis, with its unit.
    pub x_label: String,
    /// Label of the vertical axis, with its unit.
    pub y_label: String,
    /// Vertical scale.
    pub scale: Scale,
    /// Lines.
    pub series: Vec<Series>,
}

/// Vertical scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Proportional to the value.
    Linear,
    /// By powers of ten; values of 0 and less are omitted.
    Logarithmic,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points, by rising x.
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// The plot as SVG, which is a file of its own and an element of HTML.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let chart = Chart {
            title: self.title.clone(),
            panes: vec![self.pane()],
        };
        chart.to_svg()
    }

    /// Its axes and lines, one of several panes.
    #[must_use]
    pub fn titled_pane(&self) -> Pane {
        Pane {
            title: self.title.clone(),
            ..self.pane()
        }
    }

    /// Its axes and lines.
    #[must_use]
    pub fn pane(&self) -> Pane {
        let curve = |(colour, series): (usize, &Series)| Curve {
            label: series.name.clone(),
            colour,
            mark: Mark::Line { dashes: 0 },
            points: (series.points.iter())
                .map(|&(x, y)| Point { x, y, spread: 0.0 })
                .collect(),
        };
        Pane {
            title: String::new(),
            x_label: self.x_label.clone(),
            y_label: self.y_label.clone(),
            scale: self.scale,
            from_zero: true,
            curves: self.series.iter().enumerate().map(curve).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_drawn_under_its_name_without_worthless_points() {
        for (scale, dots) in [(Scale::Linear, 6), (Scale::Logarithmic, 4)] {
            let series = |name: &str| Series {
                name: name.to_owned(),
                points: vec![(0.0, 0.0), (1.0, 5.0), (2.0, f64::NAN), (3.0, 700.0)],
            };
            let plot = Plot {
                title: "t".to_owned(),
                x_label: "seconds".to_owned(),
                y_label: "messages/s".to_owned(),
                scale,
                series: vec![series("published"), series("delivered")],
            };
            let svg = plot.to_svg();
            assert_eq!(svg.matches("<circle").count(), dots);
            for words in ["t", "seconds", "messages/s", "published", "delivered"] {
                assert!(svg.contains(&format!("\n{words}\n")), "{words}");
            }
        }
    }
}
