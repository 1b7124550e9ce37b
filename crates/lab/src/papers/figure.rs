//! A figure in the form of the paper, from the results of a scenario: an SVG, and its numbers as
//! CSV.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thicket_bench::report::Scale;
use thicket_bench::report::chart::{Chart, Curve, Mark, Pane, Point};

use super::draw::{Areas, Drawing, Panel, Stack};
use super::papers;
use crate::error::LabError;
use crate::report::{distinct, key_words, value_words};
use crate::results::{Results, Run};
use crate::summary::{Row, rows};

/// A figure of a paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureSpec {
    /// Its name: that of the paper and its number, `overlays-fig7`.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// How it is drawn.
    pub form: Form,
    /// The parameter on the horizontal axis. All others have a panel for each of their values.
    #[serde(default)]
    pub x: Option<String>,
    /// The unit of the vertical axis.
    pub unit: String,
    /// The unit of the horizontal axis of a scatter plot.
    #[serde(default)]
    pub x_unit: String,
    /// What is drawn; several are stacked, or have a mark each in a scatter plot.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Titles of the drawings over time that it has.
    #[serde(default)]
    pub panes: Vec<String>,
}

/// The forms of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// A bar for each system, in groups; parts are stacked.
    Bars,
    /// A line for each system over a number.
    Lines,
    /// A point for each system and part.
    Scatter,
    /// Brokers stacked over time, one panel for each system.
    OverTime,
    /// Lines over time, one panel for each system.
    LinesOverTime,
}

/// One part of a figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name in the legend.
    pub name: String,
    /// The figure in the results.
    pub figure: String,
    /// The figure on the horizontal axis of a scatter plot.
    #[serde(default)]
    pub over: Option<String>,
    /// A factor for the unit.
    #[serde(default = "one")]
    pub scale: f64,
}

const fn one() -> f64 {
    1.0
}

/// A figure with its numbers.
#[derive(Debug)]
pub struct Made {
    /// The drawing.
    pub svg: String,
    /// The numbers.
    pub csv: String,
}

/// The names of all figures, with what they show and the scenarios that have them.
pub fn figures() -> Result<Vec<(String, String, Vec<String>)>, LabError> {
    let mut all = Vec::new();
    for experiment in papers()?.into_iter().flat_map(|paper| paper.experiments) {
        let files: Vec<String> = experiment.files.iter().map(|it| it.name.clone()).collect();
        let figures = experiment.figures.into_iter();
        all.extend(figures.map(|it| (it.name, it.title, files.clone())));
    }
    Ok(all)
}

/// Writes `NAME.svg` and `NAME.csv` into the folder of results; returns both.
pub fn write(name: &str, folder: &Path) -> Result<[PathBuf; 2], LabError> {
    let results = Results::load(folder)?;
    let made = figure(name, &results, folder)?;
    let paths = ["svg", "csv"].map(|ending| folder.join(format!("{name}.{ending}")));
    for (path, text) in paths.iter().zip([&made.svg, &made.csv]) {
        std::fs::write(path, text).map_err(LabError::io(path.display()))?;
    }
    Ok(paths)
}

/// The figure of a name from results; their time lines are files in `folder`.
pub fn figure(name: &str, results: &Results, folder: &Path) -> Result<Made, LabError> {
    let experiments = papers()?.into_iter().flat_map(|paper| paper.experiments);
    let mut specs = experiments.flat_map(|experiment| experiment.figures);
    let spec = specs.find(|spec| spec.name == name).ok_or_else(|| {
        LabError::Unlike(format!(
            "{name} is no figure of a paper; `thicket lab figure` lists them"
        ))
    })?;
    let made = match spec.form {
        Form::Bars => spec.bars(&rows(results)),
        Form::Scatter => spec.scatter(&rows(results)),
        Form::Lines => spec.lines(&rows(results)),
        Form::OverTime | Form::LinesOverTime => spec.over_time(&results.runs, folder)?,
    };
    made.ok_or_else(|| {
        let wanted: Vec<&str> = spec.parts.iter().map(|part| &*part.figure).collect();
        let wanted = [wanted.join(", "), spec.panes.join(", ")].concat();
        LabError::Unlike(format!("{name}: no valid run has {wanted}"))
    })
}

impl FigureSpec {
    /// The value on the axis, and the words of the panel: all other parameters.
    fn places(&self, row: &Row) -> (String, String) {
        let is_x = |key: &str| self.x.as_deref() == Some(key);
        let found = row.parameters.iter().find(|(key, _)| is_x(key));
        let others = row.parameters.iter().filter(|(key, _)| !is_x(key));
        let words =
            others.map(|(key, value)| format!("{} = {}", key_words(key), value_words(value)));
        (
            found.map_or(String::new(), |(_, value)| value_words(value)),
            words.collect::<Vec<_>>().join(", "),
        )
    }

    fn x_label(&self) -> String {
        self.x.as_deref().map_or(String::new(), key_words)
    }

    fn has_values(&self, rows: &[Row]) -> bool {
        let all = || rows.iter().map(|row| &row.figures);
        let mut parts = self.parts.iter();
        parts.any(|part| all().any(|figures| figures.contains_key(&part.figure)))
    }

    /// The numbers of bars and lines: a line for each system, place and part.
    fn csv(&self, rows: &[Row]) -> String {
        let mut csv = format!(
            "panel,{},system,part,value,half_width_95,unit\n",
            self.x_label()
        );
        for row in rows {
            let (x, panel) = self.places(row);
            for part in &self.parts {
                let Some(estimate) = row.figures.get(&part.figure) else {
                    continue;
                };
                let half = estimate
                    .half_width_95
                    .map(|it| (it * part.scale).to_string());
                let _ = writeln!(
                    csv,
                    "\"{panel}\",\"{x}\",{},{},{},{},{}",
                    row.system,
                    part.name,
                    estimate.mean * part.scale,
                    half.unwrap_or_default(),
                    self.unit
                );
            }
        }
        csv
    }

    fn bars(&self, rows: &[Row]) -> Option<Made> {
        if !self.has_values(rows) {
            return None;
        }
        let systems = distinct(rows.iter().map(|row| row.system.clone()));
        let mut panels: Vec<Panel> = Vec::new();
        for row in rows {
            let (x, words) = self.places(row);
            let at = panels.iter().position(|panel| panel.title == words);
            let at = at.unwrap_or_else(|| {
                panels.push(Panel::bars(words));
                panels.len() - 1
            });
            let groups = &mut panels[at].bars.groups;
            let group = groups.iter().position(|(label, _)| *label == x);
            let group = group.unwrap_or_else(|| {
                groups.push((x, vec![None; systems.len()]));
                groups.len() - 1
            });
            let part = |part: &Part| {
                let estimate = row.figures.get(&part.figure)?;
                Some(part.scale * estimate.mean)
            };
            let last = self.parts.last().and_then(|part| {
                let half = row.figures.get(&part.figure)?.half_width_95?;
                (self.parts.len() == 1).then_some(half * part.scale)
            });
            let system = systems.iter().position(|it| *it == row.system)?;
            groups[group].1[system] = Some(Stack {
                parts: self
                    .parts
                    .iter()
                    .map(|it| part(it).unwrap_or(0.0))
                    .collect(),
                half_width_95: last.unwrap_or(0.0),
            });
        }
        let drawing = self.drawing(systems, panels);
        Some(Made {
            svg: drawing.to_svg(),
            csv: self.csv(rows),
        })
    }

    fn drawing(&self, systems: Vec<String>, panels: Vec<Panel>) -> Drawing {
        let names = self.parts.iter().map(|part| part.name.clone());
        Drawing {
            title: self.title.clone(),
            systems,
            parts: names.collect(),
            x_label: match self.form {
                Form::Scatter => self.x_unit.clone(),
                _ => self.x_label(),
            },
            y_label: self.unit.clone(),
            panels,
        }
    }

    fn scatter(&self, rows: &[Row]) -> Option<Made> {
        let systems = distinct(rows.iter().map(|row| row.system.clone()));
        let mut csv = format!("panel,system,part,{},{}\n", self.x_unit, self.unit);
        let mut panels: Vec<Panel> = Vec::new();
        for row in rows {
            let (_, words) = self.places(row);
            let at = panels.iter().position(|panel| panel.title == words);
            let at = at.unwrap_or_else(|| {
                panels.push(Panel::bars(words.clone()));
                panels.len() - 1
            });
            let system = systems.iter().position(|it| *it == row.system)?;
            for (number, part) in self.parts.iter().enumerate() {
                let over = part.over.as_ref().and_then(|over| row.figures.get(over));
                let (Some(x), Some(y)) = (over, row.figures.get(&part.figure)) else {
                    continue;
                };
                panels[at].points.0.push((system, number, x.mean, y.mean));
                let _ = writeln!(
                    csv,
                    "\"{words}\",{},{},{},{}",
                    row.system, part.name, x.mean, y.mean
                );
            }
        }
        let has_points = panels.iter().any(|panel| !panel.points.0.is_empty());
        has_points.then(|| Made {
            svg: self.drawing(systems, panels).to_svg(),
            csv,
        })
    }

    fn lines(&self, rows: &[Row]) -> Option<Made> {
        if !self.has_values(rows) {
            return None;
        }
        let mut panes: Vec<Pane> = Vec::new();
        for row in rows {
            let (x, words) = self.places(row);
            let Ok(x) = x.parse::<f64>() else { continue };
            let at = panes.iter().position(|pane| pane.title == words);
            let at = at.unwrap_or_else(|| {
                panes.push(Pane {
                    title: words,
                    x_label: self.x_label(),
                    y_label: self.unit.clone(),
                    scale: Scale::Linear,
                    from_zero: true,
                    curves: Vec::new(),
                });
                panes.len() - 1
            });
            for part in &self.parts {
                let Some(estimate) = row.figures.get(&part.figure) else {
                    continue;
                };
                let label = match self.parts.len() {
                    1 => row.system.clone(),
                    _ => format!("{}, {}", row.system, part.name),
                };
                let point = Point {
                    x,
                    y: estimate.mean * part.scale,
                    spread: estimate.half_width_95.unwrap_or(0.0) * part.scale,
                };
                let curves = &mut panes[at].curves;
                match curves.iter_mut().find(|curve| curve.label == label) {
                    Some(curve) => curve.points.push(point),
                    None => curves.push(Curve {
                        label,
                        colour: 0,
                        mark: Mark::Line { dashes: 0 },
                        points: vec![point],
                    }),
                }
            }
        }
        Some(Made {
            svg: Chart::side_by_side(self.title.clone(), panes).to_svg(),
            csv: self.csv(rows),
        })
    }

    /// Of each system the first valid run that has what it draws.
    fn over_time(&self, runs: &[Run], folder: &Path) -> Result<Option<Made>, LabError> {
        let mut csv = String::from("system,panel,series,seconds,value\n");
        let (mut series, mut panels, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        for run in runs.iter().filter(|run| run.valid) {
            let name = (&run.system, &run.parameters);
            let Some(file) = run
                .time_line_data
                .as_ref()
                .filter(|_| !seen.contains(&name))
            else {
                continue;
            };
            seen.push(name);
            let path = folder.join(file);
            let text = std::fs::read_to_string(&path).map_err(LabError::io(path.display()))?;
            for pane in &self.panes {
                let words = crate::summary::in_words(Some(&run.system), &run.parameters);
                let (unit, found) = curves_of(&text, pane);
                for (label, points) in &found {
                    for (x, y) in points {
                        let _ = writeln!(csv, "\"{words}\",\"{pane}\",\"{label}\",{x},{y}");
                    }
                }
                let found: Vec<_> = found.into_iter().filter(|(it, _)| it != "event").collect();
                if !found.is_empty() {
                    series.extend(found.iter().map(|(label, _)| label.clone()));
                    panels.push((format!("{words}: {pane}"), unit, found));
                }
            }
        }
        if panels.is_empty() {
            return Ok(None);
        }
        let names = distinct(series.into_iter());
        let is_stacked = self.form == Form::OverTime;
        let panels = panels.into_iter().map(|(title, unit, curves)| {
            let placed = curves.into_iter().map(|(label, points)| {
                let place = names.iter().position(|name| *name == label);
                (place.unwrap_or(0), points)
            });
            Panel {
                title,
                y_label: Some(unit),
                areas: Areas {
                    is_stacked,
                    series: placed.collect(),
                },
                ..Panel::default()
            }
        });
        let panels = panels.collect();
        let drawing = Drawing {
            title: self.title.clone(),
            systems: names,
            parts: Vec::new(),
            x_label: "seconds".to_owned(),
            y_label: self.unit.clone(),
            panels,
        };
        Ok(Some(Made {
            svg: drawing.to_svg(),
            csv,
        }))
    }
}

/// A name with its points.
type Line = (String, Vec<(f64, f64)>);

/// The unit of a pane in the file of a time line, and its curves.
fn curves_of(tsv: &str, pane: &str) -> (String, Vec<Line>) {
    let mut unit = String::new();
    let mut curves: Vec<Line> = Vec::new();
    for line in tsv.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [of, y_label, label, x, y, ..] = fields[..] else {
            continue;
        };
        let (Ok(x), Ok(y), true) = (x.parse(), y.parse(), of.starts_with(pane)) else {
            continue;
        };
        unit = y_label.to_owned();
        match curves.iter_mut().find(|(known, _)| known == label) {
            Some((_, points)) => points.push((x, y)),
            None => curves.push((label.to_owned(), vec![(x, y)])),
        }
    }
    (unit, curves)
}

impl Panel {
    fn bars(title: String) -> Self {
        Self {
            title,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thicket_bench::statistics::estimate;

    use super::*;

    fn spec(form: &str, parts: &str) -> FigureSpec {
        let text = format!(
            "name = \"n\"\ntitle = \"Traffic\"\nform = \"{form}\"\nx = \"workload.topics\"\nunit = \"kB/s\"\nx_unit = \"MiB\"\nparts = [{parts}]"
        );
        toml::from_str(&text).unwrap()
    }

    fn row(system: &str, topics: &str, values: &[(&str, f64)]) -> Row {
        let figures = values.iter();
        Row {
            system: system.to_owned(),
            parameters: [
                ("workload.placement", "locality-0"),
                ("workload.topics", topics),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
            figures: figures
                .map(|(name, value)| ((*name).to_owned(), estimate(&[*value, *value]).unwrap()))
                .collect::<BTreeMap<_, _>>(),
            invalid: 0,
        }
    }

    #[test]
    fn stacked_bars_have_all_parts_and_their_numbers() {
        let parts = "{ name = \"signalling\", figure = \"s\", scale = 0.001 }, { name = \"data\", figure = \"d\", scale = 0.001 }";
        let rows = [
            row("flood", "3", &[("s", 1000.0), ("d", 5000.0)]),
            row("topic", "3", &[("s", 2000.0), ("d", 500.0)]),
            row("topic", "60", &[("s", 9000.0), ("d", 700.0)]),
        ];
        let made = spec("bars", parts).bars(&rows).unwrap();
        assert!(
            made.csv
                .contains("\"placement of clients = 0 % local\",\"60\",topic,signalling,9,0,kB/s")
        );
        assert_eq!(made.csv.lines().count(), 1 + 6);
        for words in ["Traffic", "signalling", "data", "flood", "topic", "kB/s"] {
            assert!(made.svg.contains(&format!("\n{words}\n")), "{words}");
        }
        assert!(
            spec("bars", parts)
                .bars(&[row("flood", "3", &[])])
                .is_none()
        );
    }

    #[test]
    fn a_scatter_plot_has_a_point_for_each_system_and_part() {
        let parts = "{ name = \"control\", figure = \"c\", over = \"m\" }, { name = \"publish\", figure = \"p\", over = \"m\" }";
        let rows = [
            row("a", "3", &[("c", 1.0), ("p", 5.0), ("m", 30.0)]),
            row("b", "3", &[("c", 2.0), ("p", 6.0), ("m", 60.0)]),
        ];
        let made = spec("scatter", parts).scatter(&rows).unwrap();
        assert!(made.csv.contains("b,publish,60,6"), "{}", made.csv);
        assert_eq!(made.csv.lines().count(), 1 + 4);
        assert!(made.svg.contains("\nMiB\n"));
    }

    #[test]
    fn curves_are_read_from_the_file_of_a_time_line() {
        let tsv = "pane\ty label\tcurve\tx\ty\tspread\nCPU of each broker over time\t%\ts1\t1\t20\t0\n\
                   CPU of each broker over time\t%\ts1\t2\t30\t0\nother\tms\ts1\t2\t9\t0\n";
        let line = ("s1".to_owned(), vec![(1.0, 20.0), (2.0, 30.0)]);
        assert_eq!(
            curves_of(tsv, "CPU of each broker"),
            ("%".to_owned(), vec![line])
        );
    }
}
