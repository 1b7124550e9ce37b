//! `thicket passwd`: a line for the file of users.

use std::io::{IsTerminal, Write};

use anyhow::{Context, ensure};

/// Arguments of `thicket passwd`.
#[derive(Debug, clap::Args)]
pub struct Passwd {
    /// Name of the user; the password is read from standard input
    name: String,
}

/// Prints `name:$argon2id$...`.
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
    if std::io::stdin().is_terminal() {
        eprint!("Password (it will be seen): ");
        std::io::stderr().flush()?;
    }
    let mut password = String::new();
    std::io::stdin()
        .read_line(&mut password)
        .context("cannot read a password from standard input")?;
    let password = password.trim_end_matches(['\r', '\n']);
    ensure!(!password.is_empty(), "the password is empty");
    let hash = thicket_broker::hash_password(password.as_bytes())?;
    writeln!(std::io::stdout(), "{name}:{hash}")?;
    Ok(())
}
