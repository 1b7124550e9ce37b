//! `thicket bench placement`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde::Serialize;
use thicket_bench::Confine;
use thicket_bench::placement::{
    Attach, Bound, Growth, Load, PairedRatio, PlacementExperiment, PlacementOutcome, growth_report,
    paired_ratios, placement_report, play, play_growth, play_time_line, time_line_report,
};
use thicket_bench::report::{Part, Report};

use super::options::seconds;
use super::output::OutputOptions;
use super::quota::Quota;
use crate::files;

/// Arguments of `thicket bench placement`.
#[derive(Debug, clap::Args)]
pub struct Placement {
    /// Reproduce a figure of the paper: 2 or 22 (highest rate below a mean latency, by number of nodes), or 23 (CPU, memory and traffic over time)
    #[arg(long, value_name = "N", value_parser = ["2", "22", "23"])]
    figure: Option<String>,
    /// Number of nodes of the cluster (M) [default: 4; with --figure 2 and 22: 1,2,3,4]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: Vec<u16>,
    /// How clients are attached to nodes, one run each
    #[arg(long, value_name = "HOW,HOW", value_delimiter = ',', default_values_t = [How::Random, How::Placed])]
    attach: Vec<How>,
    /// Number of sessions that a client may have (Nses), one run each with --attach placed [default: 1,4; with --figure 4]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=16))]
    max_sessions: Vec<u16>,
    /// With --attach learned: how many CONNECTs of a client are refused at most on nodes without its topics; one run each
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "12", value_parser = clap::value_parser!(u8).range(0..=64))]
    refusals: Vec<u8>,
    /// Workload [default: social; with --figure 2: pairs]
    #[arg(long)]
    pattern: Option<Pattern>,
    /// Number of topics, each with a publisher (Ntop)
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    topics: u32,
    /// Number of subscribers (Nsub) of the social workload
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    subscribers: u32,
    /// Topics of each subscriber (Nsus)
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    wanted: u32,
    /// Exponent of the Zipf distribution of subscriptions over topics (alpha)
    #[arg(long, value_name = "X", default_value_t = 1.13)]
    zipf: f64,
    /// Messages per second of each topic
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    rate: f64,
    /// Measured interval in seconds: of each run, of each rate tried, or of each part of --figure 23
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Clients that connect at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
    /// Seed of subscriptions and first nodes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of runs for each value of --attach, each with the next seed; from two on, ratios of CPU to the first value have 95 % confidence intervals
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    seeds: u16,
    /// Run the nodes of all values of --attach side by side and load them in turn, N times in --seconds each, so that other load of the machine affects all alike
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "figure", value_parser = clap::value_parser!(u16).range(1..=1000))]
    slices: u16,
    /// CPU quota of a node in cores, set by a control group (needs root)
    #[arg(long, value_name = "N")]
    cpus: Option<f64>,
    /// With --figure 2 and 22: what limits the rate
    #[arg(long, default_value_t = By::Latency)]
    by: By,
    /// With --by latency: the mean latency that a rate must stay below, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2.0)]
    below_mean_ms: f64,
    /// With --figure 2 and 22: first rate tried, in publications per second of all publishers together; with --by cpu, per node
    #[arg(long, value_name = "N", default_value_t = 1000.0)]
    from: f64,
    /// With --by latency: the search ends when its bounds are this close
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    precision: f64,
    /// With --figure: write its plots as SVG files, NAME-1.svg and so on
    #[arg(long, value_name = "NAME", requires = "figure")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
}

/// How clients come to their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum How {
    /// Each at a random node
    Random,
    /// Pairs only: both at the same node
    Local,
    /// Clients request their placement in CONNECT
    Placed,
    /// At random, then moved by the rebalancer
    Redirect,
    /// MQTT 3.1.1 clients at random that connect again twice: nodes learn their topics
    Learned,
}

impl std::fmt::Display for How {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value();
        formatter.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// What bounds the rate of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// The mean latency: the highest rate is searched for
    Latency,
    /// One core of the busiest node: the rate is computed from its CPU use at the first rate
    Cpu,
}

impl std::fmt::Display for By {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value();
        formatter.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Who publishes to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Subscribers choose topics by a Zipf distribution
    Social,
    /// Each topic has one subscriber
    Pairs,
}

impl Placement {
    fn load(&self) -> Load {
        let pairs_by_default = self.figure.as_deref() == Some("2");
        let default = if pairs_by_default {
            Pattern::Pairs
        } else {
            Pattern::Social
        };
        let topics = self.topics as usize;
        match self.pattern.unwrap_or(default) {
            Pattern::Pairs => Load::Pairs { topics },
            Pattern::Social => Load::Social {
                topics,
                subscribers: self.subscribers as usize,
                wanted: self.wanted as usize,
                exponent: self.zipf,
            },
        }
    }

    fn ways(&self) -> Vec<Attach> {
        let sessions = match &*self.max_sessions {
            [] if self.figure.is_some() => &[4][..],
            [] => &[1, 4][..],
            some => some,
        };
        let of = |how: &How| match how {
            How::Random => vec![Attach::Random],
            How::Local => vec![Attach::Local],
            How::Redirect => vec![Attach::Redirect],
            How::Learned => (self.refusals.iter())
                .map(|refusals| Attach::Learned {
                    refusals: *refusals,
                })
                .collect(),
            How::Placed => (sessions.iter())
                .map(|max| Attach::Placed {
                    max_sessions: (*max).into(),
                })
                .collect(),
        };
        self.attach.iter().flat_map(of).collect()
    }

    fn check(&self) -> anyhow::Result<()> {
        for (name, value) in [
            ("--rate", self.rate),
            ("--below-mean-ms", self.below_mean_ms),
            ("--from", self.from),
            ("--precision", self.precision),
            ("--cpus", self.cpus.unwrap_or(1.0)),
        ] {
            ensure!(
                value.is_finite() && value > 0.0,
                "{name} {value}: expected more than 0"
            );
        }
        ensure!(
            self.zipf.is_finite() && self.zipf >= 0.0,
            "--zipf {}: expected 0 or more",
            self.zipf
        );
        let ways = self.ways();
        let twice = |(index, way): &(usize, &Attach)| ways[..*index].contains(way);
        if let Some((_, way)) = ways.iter().enumerate().find(twice) {
            bail!(
                "--attach, --max-sessions, --refusals: {} is there twice",
                way.name()
            );
        }
        if let Load::Social { wanted, topics, .. } = self.load() {
            ensure!(
                wanted <= topics,
                "--wanted {wanted}: there are {topics} topics"
            );
            ensure!(
                !self.attach.contains(&How::Local),
                "--attach local: expected --pattern pairs, as the topics of one subscriber are at many nodes"
            );
        }
        Ok(())
    }

    fn one_number_of_nodes(&self) -> anyhow::Result<usize> {
        match *self.nodes {
            [] => Ok(4),
            [one] => Ok(one.into()),
            _ => bail!("--nodes: expected one number without --figure 2 or 22"),
        }
    }
}

/// The result as JSON.
#[derive(Debug, Serialize)]
struct Played {
    runs: Vec<PlacementOutcome>,
    ratios: Vec<PairedRatio>,
}

/// Plays the experiment.
pub fn run(arguments: &Placement) -> anyhow::Result<()> {
    arguments.check()?;
    let _ = thicket_bench::process::raise_open_files();
    let quota = arguments.cpus.map(Quota::new).transpose()?;
    let limit = |pid| quota.as_ref().map_or(Ok(()), |quota| quota.limit(pid));
    let confine: Option<&Confine<'_>> = quota.is_some().then_some(&limit);
    let mut experiment = PlacementExperiment {
        thicket: std::env::current_exe().context("where this program lies")?,
        nodes: 1,
        load: arguments.load(),
        rate_per_s: arguments.rate,
        payload_len: 8,
        hold: seconds("--seconds", arguments.seconds)?,
        attach: arguments.ways(),
        in_flight: arguments.in_flight as usize,
        seed: arguments.seed,
        slices: arguments.slices.into(),
    };
    match arguments.figure.as_deref() {
        None => {
            experiment.nodes = arguments.one_number_of_nodes()?;
            let runs = play(&experiment, arguments.seeds.into(), confine, &mut |line| {
                arguments.output.say(|| line);
            })?;
            let report = placement_report(&experiment, &runs);
            let ratios = paired_ratios(&experiment.attach, &runs);
            arguments.output.finish(&Played { runs, ratios }, &report)
        }
        Some("23") => {
            experiment.nodes = arguments.one_number_of_nodes()?;
            let line = play_time_line(&experiment, confine, &mut |line| {
                arguments.output.say(|| line);
            })?;
            let report = time_line_report(&experiment, &line);
            plot(arguments, &report)?;
            arguments.output.finish(&line, &report)
        }
        Some(figure) => {
            let growth = growth(arguments, figure)?;
            let points = play_growth(&experiment, &growth, confine, &mut |line| {
                arguments.output.say(|| line);
            })?;
            let report = growth_report(&experiment, &growth, &points);
            plot(arguments, &report)?;
            arguments.output.finish(&points, &report)
        }
    }
}

/// With what the text of the paper says of its measurements.
fn growth(arguments: &Placement, figure: &str) -> anyhow::Result<Growth> {
    let mut nodes: Vec<usize> = match &*arguments.nodes {
        [] => vec![1, 2, 3, 4],
        some => some.iter().map(|count| (*count).into()).collect(),
    };
    nodes.sort_unstable();
    nodes.dedup();
    ensure!(
        nodes.first() == Some(&1),
        "--nodes: expected 1 among them, whose rate is that of linear growth"
    );
    let said: &[(&str, f64)] = if figure == "2" {
        &[("paper, random", 0.5)]
    } else {
        &[("paper, random", 0.67), ("paper, greedy", 0.95)]
    };
    let paper = said.iter().map(|(name, at_four)| {
        let name = (*name).to_owned();
        (name, vec![(1.0, 1.0), (4.0, *at_four)])
    });
    Ok(Growth {
        nodes,
        bound: match arguments.by {
            By::Cpu => Bound::Cpu,
            By::Latency => Bound::Latency {
                below_ms: arguments.below_mean_ms,
            },
        },
        from_per_s: arguments.from,
        precision: arguments.precision,
        paper: paper.collect(),
    })
}

fn plot(arguments: &Placement, report: &Report) -> anyhow::Result<()> {
    let Some(name) = &arguments.plot else {
        return Ok(());
    };
    let plots = report.parts.iter().filter_map(|part| match part {
        Part::Plot(plot) => Some(plot.to_svg()),
        Part::Chart(chart) => Some(chart.to_svg()),
        Part::Text(_) | Part::Warning(_) | Part::Table(_) => None,
    });
    for (index, svg) in plots.enumerate() {
        let path = format!("{}-{}.svg", name.display(), index + 1);
        files::write(Path::new(&path), svg)?;
    }
    Ok(())
}
