//! Where a recording comes from: a file, or the running cluster.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::anonymous::{Anonymous, Disguise};
use super::live;
use super::recording::{self, Recording};
use crate::api::Credentials;
use crate::files;

/// Where a recording comes from.
#[derive(Debug, clap::Args)]
pub(super) struct Source {
    /// Recorded arrivals, one JSON object per line: `client`, `publish` (list of topics), `subscribe` (list of topics or filters); optional:
    /// `rates` (object of topics with messages per second, or a list in the order of `publish` and then `subscribe`), `leave` (true), `nodes`
    /// (object of topics or filters with nodes), `max_sessions` (number of sessions that the client can have). A line may have `cluster` instead:
    /// an object with `nodes` (list), `sites` (object of nodes with sites), `site_price` (list of `FROM:TO=PRICE`), `message_bytes`.
    #[arg(value_name = "FILE.jsonl", required_unless_present = "from")]
    file: Option<PathBuf>,
    /// Recording to read: a file, or `live` to record the running cluster
    #[arg(long, value_name = "live|FILE", conflicts_with = "file")]
    from: Option<PathBuf>,
    /// HTTP API of a node of the cluster; repeat it for nodes whose API is not reachable at the address that they announce
    #[arg(
        long,
        env = "THICKET_API",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:18830",
        value_parser = crate::api::address
    )]
    api: Vec<String>,
    #[command(flatten)]
    credentials: Credentials,
    /// Replace names of `clients`, or of `all` (topics too, level by level), by hashes that cannot be reversed and differ between recordings. Names of nodes and sites stay
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "clients")]
    anonymous: Option<Anonymous>,
    /// Write the recording to a file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

impl Source {
    /// Reads or records, and saves.
    ///
    /// # Errors
    /// A line cannot be read, a node cannot be asked, or the file cannot be written.
    pub(super) fn recording(&self) -> anyhow::Result<Recording> {
        let named = self.file.as_deref().or(self.from.as_deref());
        let path = named.context("expected FILE.jsonl or --from live")?;
        let mut recording = if self.is_live() {
            live::record(&self.api, &self.credentials)?
        } else {
            recording::read(path)?
        };
        if let Some(what) = self.anonymous {
            Disguise::new(what)?.put_on(&mut recording);
        }
        if let Some(path) = &self.save {
            let text = recording.text()?;
            files::write(path, text)?;
        }
        Ok(recording)
    }

    fn is_live(&self) -> bool {
        self.file.is_none() && self.from.as_deref() == Some(Path::new("live"))
    }
}
