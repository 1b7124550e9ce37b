//! `thicket sub`.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use thicket_mqtt::{PacketId, Publish, Qos, ReasonCode, SubscribeFilter, SubscriptionOptions};
use thicket_session::client::{AcknowledgementMode, Event};
use thicket_session::topic::SubscriptionFilter;

use super::arguments::{Connect, qos};
use super::connection::{Connection, Waited};
use super::words;
use crate::counted;

/// Arguments of `thicket sub`.
#[derive(Debug, clap::Args)]
pub struct Sub {
    #[command(flatten)]
    connect: Connect,
    /// Filter to subscribe to, such as `site/+/temp` or `$share/group/site/#`; may be repeated
    #[arg(short, long = "topic", value_name = "FILTER", required = true)]
    topics: Vec<String>,
    /// Highest QoS to receive
    #[arg(short, long, default_value = "0", value_parser = qos)]
    qos: Qos,
    /// Print the topic before the message
    #[arg(short, long)]
    verbose: bool,
    /// Exit after this many messages
    #[arg(short = 'C', long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Exit after this many seconds; with -C, it is an error if fewer messages came
    #[arg(short = 'W', long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print no newline after a message
    #[arg(short = 'N', long)]
    no_line_end: bool,
    /// Do not print retained messages
    #[arg(short = 'R', long)]
    no_retained: bool,
}

/// Prints messages until there are enough.
pub fn run(arguments: &Sub) -> anyhow::Result<()> {
    for filter in &arguments.topics {
        SubscriptionFilter::parse(filter).with_context(|| format!("--topic {filter}"))?;
    }
    let mut config = arguments.connect.config()?;
    config.acknowledgement = AcknowledgementMode::Manual;
    let connection = Connection::open(&arguments.connect, config)?;
    let until = arguments
        .timeout
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut subscriber = Subscriber {
        arguments,
        connection,
        printed: 0,
        to_acknowledge: Vec::new(),
    };
    let mut is_subscribed = false;
    loop {
        // A kept session may bring messages together with the answer to our CONNECT.
        let waited = subscriber.serve(until)?;
        // At another server the session may be a new one.
        is_subscribed &= subscriber.connection.is_connected();
        if !is_subscribed && subscriber.connection.is_connected() {
            subscriber.subscribe()?;
            is_subscribed = true;
        }
        if arguments
            .count
            .is_some_and(|count| subscriber.printed >= count)
        {
            return subscriber.connection.close();
        }
        match waited {
            Waited::Signal => return subscriber.connection.close(),
            Waited::Served | Waited::Line(_) => {}
            Waited::TimedOut if until.is_some_and(|until| Instant::now() >= until) => {
                return subscriber.time_out();
            }
            // A deadline of the session.
            Waited::TimedOut => {}
        }
    }
}

struct Subscriber<'a> {
    arguments: &'a Sub,
    connection: Connection,
    printed: u64,
    /// Printed: acknowledging before would lose them with us.
    to_acknowledge: Vec<PacketId>,
}

impl Subscriber<'_> {
    fn subscribe(&mut self) -> anyhow::Result<()> {
        let options = SubscriptionOptions {
            qos: self.arguments.qos,
            ..SubscriptionOptions::default()
        };
        let filters: Vec<_> = self
            .arguments
            .topics
            .iter()
            .map(|filter| SubscribeFilter { filter, options })
            .collect();
        let now = self.connection.now();
        self.connection.client.subscribe(now, &filters, None)?;
        Ok(())
    }

    fn serve(&mut self, until: Option<Instant>) -> anyhow::Result<Waited> {
        let Self {
            arguments,
            connection,
            printed,
            to_acknowledge,
        } = self;
        let mut out = std::io::stdout().lock();
        let waited = connection.wait(until, |event| {
            match event {
                Event::Subscribed { reason_codes, .. } => check(arguments, reason_codes)?,
                // One too many is neither printed nor acknowledged: a kept session gets it again.
                Event::Message(publish) if arguments.count.is_none_or(|count| *printed < count) => {
                    if !(arguments.no_retained && publish.retain) {
                        print(&mut out, arguments, publish)?;
                        *printed += 1;
                    }
                    to_acknowledge.extend(publish.packet_id);
                }
                _ => {}
            }
            Ok(())
        })?;
        out.flush()?;
        let now = connection.now();
        for packet_id in to_acknowledge.drain(..) {
            connection
                .client
                .acknowledge(now, packet_id, ReasonCode::Success)?;
        }
        Ok(waited)
    }

    fn time_out(self) -> anyhow::Result<()> {
        let (printed, wanted) = (self.printed, self.arguments.count);
        self.connection.close()?;
        match wanted {
            Some(wanted) => bail!("{printed} of {} came in time", counted(wanted, "message")),
            None => Ok(()),
        }
    }
}

/// Says which filters were refused; none left is a failure.
fn check(arguments: &Sub, reason_codes: &[ReasonCode]) -> anyhow::Result<()> {
    for (filter, code) in arguments.topics.iter().zip(reason_codes) {
        if code.is_error() {
            eprintln!(
                "thicket: the broker refused the filter {filter}: {}",
                words::reason(*code)
            );
        }
    }
    if reason_codes.iter().all(|code| code.is_error()) {
        bail!("no subscription was accepted");
    }
    Ok(())
}

fn print(out: &mut impl Write, arguments: &Sub, publish: &Publish<'_>) -> anyhow::Result<()> {
    if arguments.verbose {
        write!(out, "{} ", publish.topic)?;
    }
    out.write_all(publish.payload)?;
    if !arguments.no_line_end {
        writeln!(out)?;
    }
    Ok(())
}
