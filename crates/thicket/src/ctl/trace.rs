//! `thicket ctl trace`: packets as they come and go, until enough have been seen.

use std::io::Write;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thicket_broker::api::{TraceLines, TraceRequest};

use crate::api::Api;

/// Time between two questions.
const PAUSE: Duration = Duration::from_millis(200);

/// Arguments of `thicket ctl trace`.
#[derive(Debug, Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("subject").required(true))]
pub struct Trace {
    /// All packets of this client
    #[arg(group = "subject")]
    client_id: Option<String>,
    /// All PUBLISH packets whose topic matches this filter, a listener's prefix included
    #[arg(short, long, value_name = "FILTER", group = "subject")]
    topic: Option<String>,
    /// End after this time, such as 90s or 5min; a bare number is seconds
    #[arg(short = 'W', long, value_name = "TIME", default_value = "60s", value_parser = thicket_broker::parse_seconds::<u64>)]
    seconds: u64,
    /// End after so many packets
    #[arg(short = 'C', long, default_value_t = 1000)]
    count: u64,
}

/// Prints a line a packet.
pub fn run(api: &Api, arguments: &Trace) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let request = TraceRequest {
        client_id: arguments.client_id.clone(),
        topic: arguments.topic.clone(),
    };
    let TraceLines { .. } = api.post("/v1/trace", &request)?;
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut left = arguments.count;
    while left > 0 && Instant::now() < end && signals.pending().next().is_none() {
        std::thread::sleep(PAUSE);
        let TraceLines { lines, lost } = api.post("/v1/trace/lines", &())?;
        let mut out = std::io::stdout().lock();
        for line in lines
            .into_iter()
            .take(usize::try_from(left).unwrap_or(usize::MAX))
        {
            left -= 1;
            writeln!(
                out,
                "{} {:3} {}",
                line.client_id, line.direction, line.packet
            )?;
        }
        out.flush()?;
        if lost > 0 {
            eprintln!("thicket: {lost} packets were too many to show");
        }
    }
    api.delete("/v1/trace")
}
