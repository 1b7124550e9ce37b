//! `thicket passwd`: a line for the file of users, or for that of the HTTP API.

use std::io::{IsTerminal, Write};

use anyhow::{Context, ensure};
use clap::ValueEnum;

/// Arguments of `thicket passwd`.
#[derive(Debug, clap::Args)]
pub struct Passwd {
    /// Name of the user; the password is read from standard input
    name: String,
    /// Hash for SCRAM (enhanced authentication), where the client never sends its password
    #[arg(long, conflicts_with = "role")]
    scram: bool,
    /// Print a line for a user of the HTTP API with this role
    #[arg(long)]
    role: Option<Role>,
    /// Generate a token instead of asking for a password, and print it once, on standard error. For tokens that expire see `thicket token`
    #[arg(long, requires = "role")]
    token: bool,
}

/// What a user of the HTTP API may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// May read everything
    Viewer,
    /// May also make changes
    Admin,
    /// May read the metrics only
    Metrics,
}

/// Prints `name:HASH`, or `role name:HASH`.
pub fn run(arguments: &Passwd) -> anyhow::Result<()> {
    let name = &arguments.name;
    let good = !name.is_empty()
        && !name.starts_with('#')
        && name.trim() == name
        && !name.contains([':', '\n']);
    ensure!(
        good,
        "{name:?} cannot be a name: expected no colon, no `#` at the start and no blanks at its ends"
    );
    let hash = if arguments.token {
        let (token, hash) = thicket_broker::make_token()?;
        eprintln!("{token}");
        hash
    } else if arguments.scram {
        thicket_broker::hash_for_scram(read_password()?.as_bytes())?
    } else {
        thicket_broker::hash_password(read_password()?.as_bytes())?
    };
    let role = match arguments.role {
        None => "",
        Some(Role::Viewer) => "viewer ",
        Some(Role::Admin) => "admin ",
        Some(Role::Metrics) => "metrics ",
    };
    writeln!(std::io::stdout(), "{role}{name}:{hash}")?;
    Ok(())
}

fn read_password() -> anyhow::Result<String> {
    if std::io::stdin().is_terminal() {
        eprint!("Password (visible while you type): ");
        std::io::stderr().flush()?;
    }
    let mut password = String::new();
    std::io::stdin()
        .read_line(&mut password)
        .context("cannot read a password from standard input")?;
    password.truncate(password.trim_end_matches(['\r', '\n']).len());
    ensure!(!password.is_empty(), "the password is empty");
    Ok(password)
}
