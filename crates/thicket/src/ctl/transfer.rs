//! `thicket ctl export` and `thicket ctl import`.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use thicket_bench::report::render;
use thicket_broker::api::transfer::{EndLine, ImportEntry, Line};

use super::report;
use crate::api::Api;

/// Arguments of `thicket ctl export`.
#[derive(Debug, Clone, clap::Args)]
pub struct Export {
    /// File to write; `-`: standard output. The file appears when the export is complete
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
}

/// Arguments of `thicket ctl import`.
#[derive(Debug, Clone, clap::Args)]
pub struct Import {
    /// File written by `export`; `-`: standard input
    file: PathBuf,
    /// Replace sessions and retained messages that exist already, instead of skipping them
    #[arg(long)]
    replace: bool,
}

/// Writes the lines as they come.
pub fn export(api: &Api, arguments: &Export, is_json: bool) -> anyhow::Result<()> {
    let lines = BufReader::new(api.download("/v1/export")?);
    if arguments.output == Path::new("-") {
        return say(&copy(lines, &mut std::io::stdout().lock())?, false);
    }
    let mut partial = arguments.output.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let in_words = || format!("cannot write {}", partial.display());
    let mut file = BufWriter::new(File::create(&partial).with_context(in_words)?);
    let copied = copy(lines, &mut file);
    if copied.is_err() {
        // The error that follows says what went wrong.
        let _ = std::fs::remove_file(&partial);
    }
    let end = copied?;
    let file = file
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error);
    file.and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(&partial, &arguments.output))
        .with_context(in_words)?;
    say(&end, is_json)
}

/// What an export has.
fn say(end: &EndLine, is_json: bool) -> anyhow::Result<()> {
    if is_json {
        return report(true, end, "");
    }
    // On standard output may be the export itself.
    eprintln!(
        "exported {} with {}, and {}",
        crate::counted(end.sessions, "session"),
        crate::counted(end.messages, "message"),
        crate::counted(end.retained, "retained message")
    );
    Ok(())
}

/// Copies line by line; an error unless the last one is the end of an export.
fn copy(mut lines: impl BufRead, out: &mut impl Write) -> anyhow::Result<EndLine> {
    let (mut line, mut last) = (Vec::new(), Vec::new());
    while lines.read_until(b'\n', &mut line)? > 0 {
        out.write_all(&line)?;
        std::mem::swap(&mut line, &mut last);
        line.clear();
    }
    out.flush()?;
    match serde_json::from_slice(&last) {
        Ok(Line::End(end)) => Ok(end),
        _ => {
            bail!("the export ended early: the node stopped, or one of its threads does not answer")
        }
    }
}

/// Sends the lines and says what came of them.
pub fn import(api: &Api, arguments: &Import, json: bool) -> anyhow::Result<()> {
    let mut lines: Box<dyn Read> = if arguments.file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        let in_words = || format!("cannot read {}", arguments.file.display());
        Box::new(File::open(&arguments.file).with_context(in_words)?)
    };
    let path = if arguments.replace {
        "/v1/import?replace=true"
    } else {
        "/v1/import"
    };
    let entry: ImportEntry = api.upload(path, &mut lines)?;
    let text = if json {
        format!("{}\n", serde_json::to_string(&entry)?)
    } else {
        table(&entry)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    for problem in &entry.problems {
        eprintln!("thicket: {problem}");
    }
    if entry.sessions_failed > 0 || !entry.problems.is_empty() {
        bail!("not everything was imported");
    }
    Ok(())
}

fn table(entry: &ImportEntry) -> String {
    let row = |name: &str, numbers: [u64; 3]| {
        let mut cells = vec![name.to_owned()];
        cells.extend(numbers.map(|number| number.to_string()));
        cells
    };
    render(
        &["", "IMPORTED", "THERE ALREADY", "LEFT OUT"],
        &[
            row(
                "sessions",
                [
                    entry.sessions,
                    entry.sessions_existing,
                    entry.sessions_failed,
                ],
            ),
            row(
                "messages",
                [
                    entry.messages,
                    0,
                    entry.messages_dropped + entry.messages_skipped,
                ],
            ),
            row("retained", [entry.retained, entry.retained_existing, 0]),
        ],
    )
}
