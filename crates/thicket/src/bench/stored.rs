//! `thicket bench stored`.

use thicket_bench::report::{Part, Report, Table, milliseconds};
use thicket_bench::statistics::spread;
use thicket_bench::stored::{Fill, Stored as Result, measure};

use super::output::OutputOptions;
use crate::files;

/// Arguments of `thicket bench stored`.
#[derive(Debug, clap::Args)]
pub struct Stored {
    /// Number of sessions without a connection, each with a subscription
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sessions: u32,
    /// Number of QoS 1 messages in their queues
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    messages: u32,
    /// Payload in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    size: u32,
    /// Number of kills and starts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Further arguments of the node, such as `-- --workers 1`
    #[arg(last = true)]
    node: Vec<String>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Fills a node of this program, kills it and starts it again.
pub fn run(arguments: &Stored) -> anyhow::Result<()> {
    let fill = Fill {
        sessions: arguments.sessions as usize,
        // A session without a message could not tell that it has one.
        messages: arguments.messages.max(arguments.sessions) as usize,
        payload_len: arguments.size as usize,
    };
    let folder = std::env::temp_dir().join(format!("thicket-stored-{}", std::process::id()));
    files::make_folder(&folder)?;
    let extra: Vec<&str> = arguments.node.iter().map(String::as_str).collect();
    let thicket = std::env::current_exe()?;
    arguments.output.say(|| {
        format!(
            "filling a node with {} sessions and {} messages",
            fill.sessions, fill.messages
        )
    });
    let measured = measure(
        &thicket,
        &folder.join("data"),
        fill,
        arguments.repeats,
        &extra,
    );
    // What is left behind does no harm beyond the space it takes.
    let _ = std::fs::remove_dir_all(&folder);
    let measured = measured?;
    arguments.output.finish(&measured, &report(fill, &measured))
}

fn report(fill: Fill, stored: &Result) -> Report {
    let mut report = Report::new(format!(
        "From the start of a node on, in ms, with {} sessions and {} messages of {} B stored ({} MB on disk, {} MB in memory), {} starts after SIGKILL",
        fill.sessions,
        fill.messages,
        fill.payload_len,
        stored.disk_bytes / 1_000_000,
        stored.memory_bytes / 1_000_000,
        stored.starts.len()
    ));
    let mut table = Table::new(["", "median", "min", "max"]);
    let accepted: Vec<f64> = stored
        .starts
        .iter()
        .map(|it| it.open_port_s * 1e6)
        .collect();
    let served: Vec<f64> = stored
        .starts
        .iter()
        .map(|it| it.round_trip_s * 1e6)
        .collect();
    for (what, values) in [
        ("connection accepted", accepted),
        ("a session drawn at random had its first message", served),
    ] {
        if let Some(spread) = spread(&values) {
            let [median, min, max] = [spread.median, spread.min, spread.max].map(milliseconds);
            table.row([what.to_owned(), median, min, max]);
        }
    }
    report.push(Part::Table(table));
    report
}
