//! Commands that measure brokers: run, compare, report.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::Args;
use thicket_bench::report::Table;
use thicket_lab::compare::{Ratio, compare as ratios, expected_to_differ, is_across, spreads};
use thicket_lab::driver::Brokers;
use thicket_lab::links::Backend;
use thicket_lab::network::check_built;
use thicket_lab::results::{self, Results};
use thicket_lab::run::{Options, run as run_scenario};
use thicket_lab::scenario::{Cell, Scenario, System};
use thicket_lab::simulated::Playable;
use thicket_lab::summary::{SUSTAINABLE, cell, in_words, number, rate_cell, rows, short};
use thicket_lab::testbed::check_machine;
use thicket_lab::{janitor, measures, pairs, pressure, report, requirements, unprivileged};

use super::read_line::read_line;
use super::{read, show};
use crate::files;
use crate::interruption;

/// The commit that was built, if `build.rs` or the environment of the build named it.
const COMMIT: Option<&str> = option_env!("BUILT_FROM_COMMIT");

/// Arguments of `thicket lab run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Scenario; with several, the results of each are in a folder of its name, and the report has the measures of Comparison side by side
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Folder for the results; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// What delays the frames; `simulated`: nothing, the run is in virtual time
    #[arg(long, value_enum, default_value_t = RunBackend::Auto)]
    backend: RunBackend,
    /// Only these systems of the scenario
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Value that replaces the one in the scenario
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeats: Option<u64>,
    /// Print nothing until the end
    #[arg(long, short)]
    quiet: bool,
}

/// Where a scenario runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RunBackend {
    /// netem if the kernel has it, else wire
    Auto,
    /// The kernel delays frames
    Netem,
    /// A process of the lab delays frames
    Wire,
    /// Virtual time: Thicket only, without root
    Simulated,
}

impl RunBackend {
    /// The back end of links; `None` in virtual time.
    fn resolve(self) -> Option<Backend> {
        match self {
            Self::Auto => Some(Backend::choose()),
            Self::Netem => Some(Backend::Netem),
            Self::Wire => Some(Backend::Wire),
            Self::Simulated => None,
        }
    }
}

/// A scenario that can run here.
struct Checked<'a> {
    file: &'a Path,
    text: String,
    scenario: Scenario,
    cells: Vec<Cell>,
}

/// Runs scenarios.
pub fn run(arguments: &Run) -> anyhow::Result<()> {
    let checked = arguments.files.iter().map(|file| check(file, arguments));
    let checked = checked.collect::<anyhow::Result<Vec<_>>>()?;
    files::make_empty_folder(&arguments.out)?;
    let interrupted = interruption::watch()?;
    let [only] = &checked[..] else {
        return run_all(&checked, arguments, &interrupted);
    };
    let results = run_one(only, &arguments.out, arguments, &interrupted)?;
    judge(&results, &arguments.out)
}

/// Runs one after the other, each into a folder of its name.
fn run_all(
    checked: &[Checked<'_>],
    arguments: &Run,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let names = checked.iter().map(|it| name_of(it.file));
    let names = names.collect::<anyhow::Result<Vec<String>>>()?;
    if let Some(name) = names
        .iter()
        .find(|name| names.iter().filter(|it| it == name).count() > 1)
    {
        anyhow::bail!("two scenarios are named {name}: their results would mix");
    }
    let mut all = Vec::new();
    for (one, name) in checked.iter().zip(names) {
        show(&format!("{}\n", one.scenario.title))?;
        let folder = arguments.out.join(&name);
        files::make_folder(&folder)?;
        let results = run_one(one, &folder, arguments, interrupted)?;
        let is_over = results.ended_early.is_some();
        all.push((name, results));
        if is_over {
            break;
        }
    }
    report::write_joint(&all, &arguments.out)?;
    show(&side_by_side(&all).to_text())?;
    show(&format!(
        "side by side: {}/report.html\n",
        arguments.out.display()
    ))?;
    let judged = all
        .iter()
        .map(|(name, results)| judge(results, &arguments.out.join(name)));
    judged.collect()
}

fn name_of(file: &Path) -> anyhow::Result<String> {
    let name = file.file_stem().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{} is no name of a scenario", file.display()))?;
    Ok(name.to_owned())
}

/// Reads a scenario, and refuses it if it cannot run here.
fn check<'a>(file: &'a Path, arguments: &Run) -> anyhow::Result<Checked<'a>> {
    let (text, mut scenario, cells) = read(file)?;
    let is_wanted =
        |system: &System| arguments.only.is_empty() || arguments.only.contains(&system.name);
    for name in &arguments.only {
        anyhow::ensure!(
            arguments.files.len() > 1 || scenario.systems.iter().any(|system| system.name == *name),
            "--only {name}: the scenario has no such system"
        );
    }
    scenario.systems.retain(is_wanted);
    anyhow::ensure!(
        !scenario.systems.is_empty(),
        "--only: {} has none of these systems",
        file.display()
    );
    if let Some(repeats) = arguments.repeats {
        scenario.repeats = repeats;
    }
    let checked = Checked {
        file,
        text,
        scenario,
        cells,
    };
    if arguments.backend == RunBackend::Simulated {
        checked.playable()?;
        return Ok(checked);
    }
    let Checked {
        text,
        scenario,
        cells,
        ..
    } = &checked;
    let drivers = requirements::check(file, text, scenario, cells, &read_line)?;
    let program = std::env::current_exe()?;
    let mut needs_network = false;
    for (system, driver) in checked.scenario.systems.iter().zip(&drivers) {
        // Missing programs are reported before the first of several files starts.
        driver.find(system, &program)?;
        needs_network |= driver.brokers != Brokers::External;
    }
    if needs_network {
        requirements::check_cores(file, text, scenario, cells)?;
        for cell in &checked.cells {
            let names = cell.scenario.network.names();
            check_built(names.map_err(anyhow::Error::msg)?.len()).map_err(anyhow::Error::msg)?;
        }
        unprivileged::enter_if_needed(&program)?;
        check_machine()?;
        janitor::clean_dead()?;
        if arguments.backend == RunBackend::Netem {
            Backend::Netem.check()?;
        }
    }
    Ok(checked)
}

impl Checked<'_> {
    fn playable(&self) -> anyhow::Result<Playable<'_>> {
        Ok(Playable::check(
            self.file,
            &self.text,
            &self.scenario,
            &self.cells,
        )?)
    }
}

/// Runs a scenario, with results and report in the folder.
fn run_one(
    one: &Checked<'_>,
    folder: &Path,
    arguments: &Run,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<Results> {
    let say = |line: &str| {
        if !arguments.quiet {
            // Nobody reads it once the terminal is closed.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    };
    let program = std::env::current_exe()?;
    let backend = arguments.backend.resolve();
    let options = Options {
        program: &program,
        commit: COMMIT,
        backend: backend.unwrap_or(Backend::Wire),
        folder,
        interrupted,
        say: &say,
    };
    let results = match backend {
        Some(_) => run_scenario(&one.text, &one.scenario, &one.cells, &options)?,
        None => one.playable()?.run(&options)?,
    };
    report::write(&results, folder, None)?;
    show(&table(&results).to_text())?;
    if let Some((words, _)) = pressure::in_words(&results.runs) {
        show(&format!("{words}\n"))?;
    }
    for question in &results.left_out {
        show(&format!("not answered: {question}\n"))?;
    }
    let out = folder.display();
    show(&format!(
        "results: {out}/results.json, {out}/runs.csv, {out}/samples, {out}/report.html\n"
    ))?;
    Ok(results)
}

/// An error unless the results are whole and valid.
fn judge(results: &Results, folder: &Path) -> anyhow::Result<()> {
    if let Some(reason) = &results.ended_early {
        anyhow::bail!("ended early ({reason}); what was measured is kept");
    }
    anyhow::ensure!(
        results.valid,
        "not all runs are valid: see {}/report.html",
        folder.display()
    );
    Ok(())
}

/// Comparison's measures, a column a system.
fn side_by_side(all: &[(String, Results)]) -> Table {
    let results: Vec<Results> = all.iter().map(|(_, results)| results.clone()).collect();
    let (systems, lines) = measures::table(&results);
    let mut table = Table::new(
        ["MEASURE"]
            .into_iter()
            .chain(systems.iter().map(String::as_str)),
    );
    for line in &lines {
        let figures = systems.iter().map(|system| line.of(system).to_owned());
        table.row([line.name.to_owned()].into_iter().chain(figures));
    }
    table
}

fn table(results: &Results) -> Table {
    const SHOWN: [(&str, &str); 25] = [
        (SUSTAINABLE, "MSGS/S"),
        ("limit_generator_cpu_cores", "GENERATOR CORES"),
        ("limit_broker_cpu_cores", "BROKER CORES"),
        ("connects_per_s", "CONNECTS/S"),
        ("difference_msgs_per_s", "MSGS/S APART"),
        ("difference_cpu_percent", "CPU % APART"),
        ("memory_bytes_per_connection", "BYTES EACH"),
        ("internal_msgs_per_s", "NODE TO NODE/S"),
        ("client_sessions", "SESSIONS"),
        ("broker_cpu_us_per_message", "CPU US"),
        ("delay_mean_ms", "DELAY MS"),
        ("delay_p99_ms", "P99"),
        ("acknowledgement_mean_ms", "ACK MS"),
        ("acknowledgement_p99_ms", "ACK P99"),
        ("lost_messages", "LOST"),
        ("closed_connections", "CLOSED"),
        ("refused_messages", "REFUSED"),
        ("reconnect_max_ms", "RECONNECT MS"),
        ("join_s", "JOIN S"),
        ("converged_max_s", "CONVERGED S"),
        ("repaired_max_s", "REPAIRED S"),
        ("publish_traffic_bytes", "BYTES"),
        ("publish_broker_cpu_percent", "CPU %"),
        ("publish_broker_memory_mib", "MEMORY MIB"),
        ("broker_start_s", "START S"),
    ];
    let all = rows(results);
    let is_there = |name: &str| all.iter().any(|row| row.figures.contains_key(name));
    let shown: Vec<(&str, &str)> = SHOWN
        .into_iter()
        .filter(|(name, _)| is_there(name))
        .collect();
    let mut table = Table::new(
        ["SYSTEM", "PARAMETERS"]
            .into_iter()
            .chain(shown.iter().map(|(_, head)| *head)),
    );
    for row in all {
        let words: Vec<String> = row
            .parameters
            .iter()
            .map(|(key, value)| format!("{}={value}", short(key)))
            .collect();
        let figure = |name: &str| match name {
            SUSTAINABLE => rate_cell(&row),
            _ => row.figures.get(name).map(cell),
        };
        let figures = shown
            .iter()
            .map(|(name, _)| figure(name).unwrap_or_else(|| "-".to_owned()));
        table.row(
            [row.system.clone(), words.join(" ")]
                .into_iter()
                .chain(figures),
        );
    }
    table
}

/// Arguments of `thicket lab pairs`.
#[derive(Debug, Args)]
pub struct Pairs {
    /// Folder of results with several systems
    folder: PathBuf,
    /// The system that the others are compared with; default: the first
    #[arg(long, value_name = "NAME")]
    with: Option<String>,
    /// Systems are equivalent if the interval of their ratio is within so many percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * pairs::MARGIN)]
    margin: f64,
    /// Print CSV instead of a table
    #[arg(long)]
    csv: bool,
}

/// Compares the systems of a result in pairs.
pub fn pairs(arguments: &Pairs) -> anyhow::Result<()> {
    let results = Results::load(&arguments.folder)?;
    if let Some(with) = &arguments.with {
        let is_there = results.runs.iter().any(|run| run.system == *with);
        anyhow::ensure!(is_there, "--with {with}: the results have no such system");
    }
    anyhow::ensure!(
        arguments.margin > 0.0,
        "--margin {}: expected more than 0 %",
        arguments.margin
    );
    let all = pairs::pairs(
        &results,
        arguments.with.as_deref(),
        arguments.margin / 100.0,
    );
    anyhow::ensure!(
        !all.is_empty(),
        "no two systems have valid runs in the same repeat"
    );
    if arguments.csv {
        return show(&pairs::csv(&all));
    }
    let mut table = Table::new([
        "SYSTEM",
        "OVER",
        "PARAMETERS",
        "FIGURE",
        "RATIO",
        "95 % INTERVAL",
        "PAIRS",
    ]);
    for pair in &all {
        table.row([
            pair.system.clone(),
            pair.with.clone(),
            in_words(None, &pair.parameters),
            pair.figure.clone(),
            format!("{:.3}", pair.ratio.ratio),
            pairs::told(pair),
            pair.ratio.pairs.to_string(),
        ]);
    }
    show(&table.to_text())
}

/// Arguments of `thicket lab compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// Folder of results
    a: PathBuf,
    /// Folder of other results of the same scenario
    b: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// For two runs of the same scenario: fail if more figures differ than 95 % confidence allows
    #[arg(long)]
    same: bool,
}

/// Compares two results.
pub fn compare(arguments: &Compare) -> anyhow::Result<()> {
    let (a, b) = (Results::load(&arguments.a)?, Results::load(&arguments.b)?);
    let ratios = ratios(&a, &b)?;
    if arguments.json {
        show(&format!("{}\n", serde_json::to_string_pretty(&ratios)?))?;
        return Ok(());
    }
    let mut table = Table::new([
        "SYSTEM",
        "PARAMETERS",
        "FIGURE",
        "A",
        "B",
        "B/A",
        "95 %",
        "",
    ]);
    for ratio in &ratios {
        let words: Vec<String> = ratio
            .parameters
            .iter()
            .map(|(key, value)| format!("{}={value}", short(key)))
            .collect();
        let interval = ratio
            .interval_95
            .map_or("one repeat".to_owned(), |(low, high)| {
                format!("{low:.2} to {high:.2}")
            });
        let verdict = match ratio.differs() {
            Some(true) => "differs",
            Some(false) => "no difference",
            None => "",
        };
        table.row([
            ratio.system.clone(),
            words.join(" "),
            ratio.figure.clone(),
            number(ratio.a),
            number(ratio.b),
            format!("{:.2}", ratio.ratio),
            interval,
            verdict.to_owned(),
        ]);
    }
    show(&table.to_text())?;
    if is_across(&a, &b) {
        show(&format!("\n{}\n", spread_table(&ratios).to_text()))?;
    }
    if arguments.same {
        agree(&ratios)?;
    }
    Ok(())
}

/// How far two back ends differ, figure by figure.
fn spread_table(ratios: &[Ratio]) -> Table {
    let mut table = Table::new(["FIGURE", "COMPARED", "B/A LEAST", "MEDIAN", "MOST"]);
    for spread in spreads(ratios) {
        table.row([
            spread.figure,
            spread.count.to_string(),
            format!("{:.2}", spread.least),
            format!("{:.2}", spread.median),
            format!("{:.2}", spread.most),
        ]);
    }
    table
}

/// An error if so many figures differ that it is no chance.
fn agree(ratios: &[Ratio]) -> anyhow::Result<()> {
    let verdicts: Vec<bool> = ratios.iter().filter_map(Ratio::differs).collect();
    anyhow::ensure!(!verdicts.is_empty(), "--same needs two repeats at least");
    let differ = verdicts.iter().filter(|differs| **differs).count();
    let most = expected_to_differ(verdicts.len());
    anyhow::ensure!(
        differ <= most,
        "{differ} of {} figures differ, {most} at most would by chance",
        verdicts.len()
    );
    show(&format!(
        "the two agree: {differ} of {} figures differ, {most} at most would by chance\n",
        verdicts.len()
    ))?;
    Ok(())
}

/// Arguments of `thicket lab report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Folder of results, or of such folders
    folder: PathBuf,
    /// Results of the same scenario on another back end, shown beside these
    #[arg(long, value_name = "DIR")]
    beside: Option<PathBuf>,
}

/// Makes the report anew from the results.
pub fn report(arguments: &Report) -> anyhow::Result<()> {
    if !arguments.folder.join(results::FILE).exists() {
        return joint_report(&arguments.folder);
    }
    let results = Results::load(&arguments.folder)?;
    let beside = match &arguments.beside {
        None => None,
        Some(other) => {
            let other = Results::load(other)?;
            anyhow::ensure!(
                is_across(&results, &other),
                "--beside: one of the two has to be of the back end simulated"
            );
            Some(report::Beside {
                ratios: ratios(&results, &other)?,
                backend: other.environment.backend,
            })
        }
    };
    report::write(&results, &arguments.folder, beside.as_ref())?;
    show(&format!(
        "{}\n",
        arguments.folder.join("report.html").display()
    ))?;
    Ok(())
}

/// Makes the report of several scenarios anew from the folders below.
fn joint_report(folder: &Path) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let folders = entries.map(|entry| Ok(entry?.path()));
    let mut folders = folders.collect::<std::io::Result<Vec<PathBuf>>>()?;
    folders.retain(|folder| folder.join(results::FILE).exists());
    folders.sort();
    anyhow::ensure!(
        !folders.is_empty(),
        "{}: there are no results in it",
        folder.display()
    );
    let load = |folder: &PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        Ok((name.into_owned(), Results::load(folder)?))
    };
    let all = folders
        .iter()
        .map(load)
        .collect::<anyhow::Result<Vec<_>>>()?;
    report::write_joint(&all, folder)?;
    show(&side_by_side(&all).to_text())?;
    show(&format!("{}\n", folder.join("report.html").display()))?;
    Ok(())
}
