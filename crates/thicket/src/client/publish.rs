//! `thicket pub`.

use std::collections::VecDeque;
use std::io::{BufRead, Read};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, bail};
use thicket_mqtt::{Publish, Qos};
use thicket_session::client::Event;
use thicket_session::topic::TopicName;

use super::arguments::{Connect, qos};
use super::connection::{Connection, Input, Waited};
use super::words;
use crate::counted;

/// Lines read ahead of the broker's acknowledgements.
const LINES_AHEAD: usize = 256;

/// Arguments of `thicket pub`.
#[derive(Debug, clap::Args)]
pub struct Pub {
    #[command(flatten)]
    connect: Connect,
    /// Topic to publish to
    #[arg(short, long)]
    topic: String,
    #[command(flatten)]
    source: Source,
    /// QoS of the messages
    #[arg(short, long, default_value = "0", value_parser = qos)]
    qos: Qos,
    /// Retain the message: later subscribers receive it too
    #[arg(short, long)]
    retain: bool,
    /// Seconds after which the message is no longer delivered (MQTT 5)
    #[arg(long, value_name = "SECONDS")]
    message_expiry_interval: Option<u32>,
}

/// Where the messages come from.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// Message to send
    #[arg(short, long, allow_hyphen_values = true)]
    message: Option<String>,
    /// Send the content of a file as a message
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Send all of standard input as one message
    #[arg(short, long)]
    stdin: bool,
    /// Send each line of standard input as a message
    #[arg(short, long)]
    lines: bool,
    /// Send an empty message; with -r it removes the retained message
    #[arg(short, long)]
    null_message: bool,
}

/// Publishes, and waits until the broker has acknowledged everything.
pub fn run(arguments: &Pub) -> anyhow::Result<()> {
    TopicName::check(&arguments.topic).with_context(|| format!("--topic {}", arguments.topic))?;
    let message = arguments.source.message()?;
    let connection = Connection::open(&arguments.connect, arguments.connect.config()?)?;
    let mut publisher = Publisher {
        arguments,
        connection,
        waiting: VecDeque::new(),
        permits: None,
        refused: 0,
    };
    while !publisher.connection.is_connected() {
        if let Waited::Signal = publisher.serve()? {
            bail!("interrupted while connecting");
        }
    }
    match message {
        Some(message) => {
            publisher.waiting.push_back(message);
            publisher.send_all()?;
        }
        None => publisher.send_lines()?,
    }
    publisher.finish()
}

impl Source {
    /// The one message; `None`: there are many.
    fn message(&self) -> anyhow::Result<Option<Vec<u8>>> {
        if let Some(message) = &self.message {
            return Ok(Some(message.clone().into_bytes()));
        }
        if let Some(path) = &self.file {
            return std::fs::read(path)
                .map(Some)
                .with_context(|| format!("cannot read {}", path.display()));
        }
        if self.stdin {
            let mut all = Vec::new();
            std::io::stdin()
                .lock()
                .read_to_end(&mut all)
                .context("cannot read standard input")?;
            return Ok(Some(all));
        }
        Ok(if self.lines { None } else { Some(Vec::new()) })
    }
}

struct Publisher<'a> {
    arguments: &'a Pub,
    connection: Connection,
    /// Read and not sent yet.
    waiting: VecDeque<Vec<u8>>,
    /// The reader of lines may read another for each.
    permits: Option<SyncSender<()>>,
    refused: usize,
}

impl Publisher<'_> {
    /// Sends lines as they come. The reader goes on only when a line was taken.
    fn send_lines(&mut self) -> anyhow::Result<()> {
        let (permits, permitted) = sync_channel(LINES_AHEAD);
        self.permits = Some(permits.clone());
        for _ in 0..LINES_AHEAD {
            permits.send(())?;
        }
        let sender = self.connection.sender();
        std::thread::Builder::new()
            .name("lines".into())
            .spawn(move || read_lines(&sender, &permitted))?;
        loop {
            match self.serve()? {
                Waited::Line(Some(line)) => {
                    self.waiting.push_back(line);
                    self.send_some()?;
                }
                Waited::Line(None) | Waited::Signal => return self.send_all(),
                Waited::Served | Waited::TimedOut => self.send_some()?,
            }
        }
    }

    fn send_all(&mut self) -> anyhow::Result<()> {
        self.send_some()?;
        while !self.waiting.is_empty() {
            self.serve_and_send()?;
        }
        Ok(())
    }

    fn serve_and_send(&mut self) -> anyhow::Result<()> {
        match self.serve()? {
            Waited::Line(Some(line)) => self.waiting.push_back(line),
            Waited::Line(None) | Waited::Served | Waited::TimedOut => {}
            Waited::Signal => bail!(
                "interrupted; not sent: {}",
                counted(self.waiting.len(), "message")
            ),
        }
        self.send_some()
    }

    /// Sends as many as may be unacknowledged at a time.
    fn send_some(&mut self) -> anyhow::Result<()> {
        while self.connection.is_connected()
            && let Some(message) = self.waiting.front()
        {
            let publish = Publish {
                qos: self.arguments.qos,
                retain: self.arguments.retain,
                message_expiry_interval: self.arguments.message_expiry_interval,
                ..Publish::new(&self.arguments.topic, message)
            };
            let now = self.connection.now();
            match self.connection.client.publish(now, &publish) {
                Ok(_) => {
                    self.waiting.pop_front();
                    if let Some(permits) = &self.permits {
                        // The reader is gone after the last line.
                        let _ = permits.try_send(());
                    }
                }
                Err(error) if error.is_would_block() => return self.connection.flush(),
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot publish to {}", self.arguments.topic));
                }
            }
        }
        self.connection.flush()
    }

    fn serve(&mut self) -> anyhow::Result<Waited> {
        let (refused, waiting) = (&mut self.refused, &mut self.waiting);
        self.connection.wait(None, |event| {
            match event {
                Event::Acknowledged { reason_code, .. } if reason_code.is_error() => {
                    *refused += 1;
                    eprintln!(
                        "thicket: the broker refused a message: {}",
                        words::reason(*reason_code)
                    );
                }
                // Another server does not know the session.
                Event::Discarded {
                    publish: Some(publish),
                    ..
                } => waiting.push_back(publish.payload.to_vec()),
                _ => {}
            }
            Ok(())
        })
    }

    fn finish(mut self) -> anyhow::Result<()> {
        while self.connection.client.inflight() > 0 || !self.waiting.is_empty() {
            self.send_some()?;
            if let Waited::Signal = self.serve()? {
                bail!(
                    "interrupted; not acknowledged: {}",
                    counted(self.connection.client.inflight(), "message")
                );
            }
        }
        self.connection.close()?;
        if self.refused > 0 {
            bail!("refused: {}", counted(self.refused, "message"));
        }
        Ok(())
    }
}

fn read_lines(sender: &SyncSender<Input>, permitted: &Receiver<()>) {
    let mut stdin = std::io::stdin().lock();
    while permitted.recv().is_ok() {
        let mut line = Vec::new();
        let more = matches!(stdin.read_until(b'\n', &mut line), Ok(1..));
        if line.ends_with(b"\n") {
            line.pop();
        }
        if line.ends_with(b"\r") {
            line.pop();
        }
        // The main thread is gone if it does not want the line.
        if sender.send(Input::Line(more.then_some(line))).is_err() || !more {
            return;
        }
    }
}
