//! `thicket token`: a token of the HTTP API, and its line for the file of tokens.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use thicket_access::{Role, parse_time, token_line};
use thicket_session::time::WallClock;

/// Arguments of `thicket token`.
#[derive(Debug, clap::Args)]
pub struct Token {
    /// Name of the token, such as what it is for; shown in the audit log
    name: String,
    /// What the token permits
    #[arg(long)]
    scope: Scope,
    /// When the token expires: a duration such as 12h or 90d, a time such as 2027-01-31T12:00:00Z, or `never`
    #[arg(long, value_name = "TIME", default_value = "90d")]
    expires: String,
    /// Write the token to this new file, readable by its owner only, instead of to standard error
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scope {
    /// Read the metrics (`/metrics`) only, for Prometheus
    Metrics,
    /// Read everything
    Viewer,
    /// Read everything and make changes
    Admin,
}

/// Prints the token on standard error or writes it to a file, this once, and prints `SCOPE NAME EXPIRES HASH` on standard output.
pub fn run(arguments: &Token) -> anyhow::Result<()> {
    let role = match arguments.scope {
        Scope::Metrics => Role::Metrics,
        Scope::Viewer => Role::Viewer,
        Scope::Admin => Role::Admin,
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let expires = expiry(&arguments.expires, now.context("the clock is before 1970")?)
        .with_context(|| format!("--expires {}", arguments.expires))?;
    let (token, hash) = thicket_broker::make_token()?;
    let line = token_line(role, &arguments.name, expires, &hash)
        .map_err(|expected| anyhow!("{:?} cannot be used: {expected}", arguments.name))?;
    match &arguments.token_file {
        Some(path) => write_token(path, &token)
            .with_context(|| format!("cannot write the token to {}", path.display()))?,
        None => eprintln!("{token}"),
    }
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

/// Never into a file that is there: others may be able to read that one.
fn write_token(path: &Path, token: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{token}")
}

/// `now`: since 1970. `None`: never.
fn expiry(text: &str, now: Duration) -> anyhow::Result<Option<WallClock>> {
    if text == "never" {
        return Ok(None);
    }
    let now = WallClock::from_unix_millis(u64::try_from(now.as_millis())?);
    let expires = parse_time(text).or_else(|| {
        let after = u64::try_from(length(text)?.as_millis()).ok()?;
        let millis = now.as_unix_millis().checked_add(after)?;
        Some(WallClock::from_unix_millis(millis))
    });
    let expires = expires.context(
        "expected a duration such as 12h or 90d, a time such as 2027-01-31T12:00:00Z, or `never`",
    )?;
    anyhow::ensure!(expires > now, "expected a time in the future");
    Ok(Some(expires))
}

/// With a unit: nobody means 90 seconds by `90`.
fn length(text: &str) -> Option<Duration> {
    let has_unit = text.ends_with(|char: char| char.is_ascii_alphabetic());
    let seconds = has_unit.then(|| thicket_broker::parse_seconds(text).ok());
    seconds.flatten().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_expires_after_a_time_at_a_time_or_never() {
        let now = Duration::from_secs(1000);
        let of = |text| expiry(text, now).ok();
        let at = |seconds: u64| Some(Some(WallClock::from_unix_millis(seconds * 1000)));
        for (text, expected) in [
            ("never", Some(None)),
            ("90s", at(1090)),
            ("15min", at(1900)),
            ("2h", at(8200)),
            ("1d", at(87_400)),
            ("1w", at(605_800)),
            ("1970-01-01T01:00:00Z", at(3600)),
            ("1970-01-01T00:00:00Z", None),
            ("0d", None),
            ("90", None),
            ("d", None),
            ("1y", None),
            ("99999999999999999999d", None),
            ("", None),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }
}
