//! Line plots as SVG, drawn here so that a report is one file that needs nothing else.

use super::table::escape;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const COLOURS: [&str; 6] = [
    "#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#475569",
];

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
    /// From 0 on.
    Linear,
    /// By powers of ten; values of 0 and less are left out.
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

/// An axis: from values to places.
struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    scale: Scale,
}

impl Axis {
    fn linear(highest: f64) -> Self {
        let step = nice_step(highest.max(f64::MIN_POSITIVE));
        let count = (highest / step).ceil().max(1.0) as usize;
        let ticks: Vec<f64> = (0..=count).map(|index| index as f64 * step).collect();
        Self {
            low: 0.0,
            high: count as f64 * step,
            ticks,
            scale: Scale::Linear,
        }
    }

    fn logarithmic(lowest: f64, highest: f64) -> Self {
        let (first, last) = (lowest.log10().floor() as i32, highest.log10().ceil() as i32);
        let last = last.max(first + 1);
        let ticks = (first..=last).map(|power| 10f64.powi(power)).collect();
        Self {
            low: f64::from(first),
            high: f64::from(last),
            ticks,
            scale: Scale::Logarithmic,
        }
    }

    /// 0 at the low end, 1 at the high one.
    fn place(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Logarithmic {
            value.log10()
        } else {
            value
        };
        (value - self.low) / (self.high - self.low)
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides `range` into at most six.
fn nice_step(range: f64) -> f64 {
    let power = 10f64.powf((range / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| range / step <= 6.0)
        .unwrap_or(10.0 * power)
}

/// What an SVG of its own needs of the style of a report.
const FILE_STYLE: &str = "text{font-family:system-ui,sans-serif}.title{font-weight:600;font-size:14px}\
.tick{font-size:11px}.end{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:#e2e8f0}";

impl Plot {
    /// The plot as an SVG file.
    #[must_use]
    pub fn to_svg_file(&self) -> String {
        let head = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox"
        );
        let style = format!("<style>{FILE_STYLE}</style>\n<text x=");
        let element = self.to_svg();
        element
            .replacen("<svg viewBox", &head, 1)
            .replacen("<text x=", &style, 1)
    }

    /// The plot as an SVG element.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let shown = |&&(x, y): &&(f64, f64)| {
            x.is_finite() && y.is_finite() && (self.scale == Scale::Linear || y > 0.0)
        };
        let points = || {
            self.series
                .iter()
                .flat_map(|series| series.points.iter().filter(shown))
        };
        let highest = |pick: fn(&(f64, f64)) -> f64| points().map(pick).fold(0.0, f64::max);
        let x_axis = Axis::linear(highest(|point| point.0));
        let y_axis = match self.scale {
            Scale::Linear => Axis::linear(highest(|point| point.1)),
            Scale::Logarithmic => {
                let lowest = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
                if lowest.is_finite() {
                    Axis::logarithmic(lowest, highest(|point| point.1))
                } else {
                    Axis::linear(1.0)
                }
            }
        };
        let x = |value: f64| LEFT + x_axis.place(value) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - y_axis.place(value) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n<text x=\"{LEFT}\" y=\"16\" class=\"title\">{title}</text>\n",
            title = escape(&self.title)
        );
        for &tick in &y_axis.ticks {
            let at = y(tick);
            svg += &format!(
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"grid\"/>\n",
                WIDTH - RIGHT
            );
            svg += &format!(
                "<text x=\"{}\" y=\"{:.1}\" class=\"tick end\">{}</text>\n",
                LEFT - 6.0,
                at + 4.0,
                tick_label(tick)
            );
        }
        for &tick in &x_axis.ticks {
            let label = tick_label(tick);
            svg += &format!(
                "<text x=\"{:.1}\" y=\"{}\" class=\"tick middle\">{label}</text>\n",
                x(tick),
                HEIGHT - BOTTOM + 16.0
            );
        }
        svg += &format!(
            "<text x=\"{}\" y=\"{}\" class=\"tick middle\">{}</text>\n",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 8.0,
            escape(&self.x_label)
        );
        svg += &format!(
            "<text x=\"{}\" y=\"16\" class=\"tick end\">{}</text>\n",
            WIDTH - RIGHT,
            escape(&self.y_label)
        );
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let path: Vec<String> = series
                .points
                .iter()
                .filter(shown)
                .map(|&(px, py)| format!("{:.1},{:.1}", x(px), y(py)))
                .collect();
            svg += &format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
                path.join(" ")
            );
            for point in &path {
                let (px, py) = point.split_once(',').unwrap_or(("0", "0"));
                svg += &format!("<circle cx=\"{px}\" cy=\"{py}\" r=\"2.5\" fill=\"{colour}\"/>\n");
            }
            let legend = LEFT + 8.0 + index as f64 * 170.0;
            svg += &format!(
                "<text x=\"{legend}\" y=\"{}\" class=\"tick\" fill=\"{colour}\">{}</text>\n",
                TOP - 4.0,
                escape(&series.name)
            );
        }
        svg + "</svg>\n"
    }
}

/// A short label: 1500000 is 1.5M.
fn tick_label(value: f64) -> String {
    let (scaled, unit) = match value {
        _ if value >= 1e6 => (value / 1e6, "M"),
        _ if value >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = format!("{scaled:.3}");
    format!(
        "{}{unit}",
        digits.trim_end_matches('0').trim_end_matches('.')
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for (range, step) in [
            (1.0, 0.2),
            (6.0, 1.0),
            (7.0, 2.0),
            (95.0, 20.0),
            (1200.0, 200.0),
            (0.03, 0.005),
        ] {
            assert!(
                (nice_step(range) - step).abs() < 1e-9,
                "{range}: {}",
                nice_step(range)
            );
        }
    }

    #[test]
    fn labels_are_short() {
        for (value, label) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (1500.0, "1.5k"),
            (2_000_000.0, "2M"),
        ] {
            assert_eq!(tick_label(value), label);
        }
    }

    #[test]
    fn points_lie_inside_the_frame_and_worthless_ones_are_left_out() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let plot = Plot {
                title: "a < b".to_owned(),
                x_label: "x".to_owned(),
                y_label: "y".to_owned(),
                scale,
                series: vec![Series {
                    name: "s".to_owned(),
                    points: vec![(0.0, 0.0), (1.0, 5.0), (2.0, f64::NAN), (3.0, 700.0)],
                }],
            };
            let svg = plot.to_svg();
            assert!(
                svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("inf"),
                "{svg}"
            );
            let line = svg
                .split("points=\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap();
            assert_eq!(
                line.split(' ').count(),
                if scale == Scale::Linear { 3 } else { 2 },
                "{line}"
            );
            for point in line.split(' ') {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!(
                    (LEFT..=WIDTH - RIGHT).contains(&x)
                        && (TOP - 0.1..=HEIGHT - BOTTOM + 0.1).contains(&y),
                    "{point}"
                );
            }
        }
    }

    #[test]
    fn a_file_names_its_format_and_has_its_style() {
        let plot = Plot {
            title: "t".to_owned(),
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            scale: Scale::Linear,
            series: Vec::new(),
        };
        let file = plot.to_svg_file();
        assert!(file.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        assert_eq!(file.matches("<style>").count(), 1);
    }

    #[test]
    fn a_plot_of_nothing_is_still_a_plot() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let plot = Plot {
                title: String::new(),
                x_label: String::new(),
                y_label: String::new(),
                scale,
                series: Vec::new(),
            };
            assert!(plot.to_svg().ends_with("</svg>\n"));
        }
    }
}
