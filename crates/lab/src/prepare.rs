//! `thicket lab prepare`: prepares a broker that no package installs, once, in a folder of the user's cache.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command;
use crate::driver::{Driver, Prepare, Template, write_file};
use crate::error::LabError;
use crate::scenario::System;

/// The folder of a driver's prepared broker.
#[must_use]
pub fn folder(driver: &str) -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(home).unwrap_or_else(std::env::temp_dir);
    // A driver may be the path of a file.
    let name = Path::new(driver).file_stem().unwrap_or_default();
    cache.join("thicket-lab").join(name)
}

/// Whether a driver's broker was prepared from the files that the driver has now.
pub(crate) fn is_done(driver: &str, prepare: &Prepare) -> bool {
    let folder = folder(driver);
    let is_there = |file: &Template| {
        let text = std::fs::read_to_string(folder.join(&file.path));
        text.is_ok_and(|text| text == file.text)
    };
    folder.join(&prepare.makes).is_file() && prepare.files.iter().all(is_there)
}

/// Prepares a driver's broker; `say` is called with each command. Returns the folder; a driver that needs no preparation is refused.
pub fn prepare(driver: &str, say: &dyn Fn(&str)) -> Result<PathBuf, LabError> {
    let refuse = |reason: String| LabError::Driver {
        driver: driver.to_owned(),
        reason,
    };
    let system = System::of_driver(driver);
    let Some(prepare) = Driver::load(&system)?.prepare else {
        return Err(refuse("there is nothing to prepare".to_owned()));
    };
    for (program, install) in &prepare.needs {
        if command::find(program).is_none() {
            return Err(refuse(format!("{program} is missing: {install}")));
        }
    }
    let folder = folder(driver);
    std::fs::create_dir_all(&folder).map_err(LabError::io(folder.display()))?;
    for file in &prepare.files {
        write_file(&folder.join(&file.path), &file.text, file.mode)?;
    }
    for words in &prepare.commands {
        let Some((program, arguments)) = words.split_first() else {
            continue;
        };
        say(&words.join(" "));
        let status = Command::new(program)
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .status()
            .map_err(LabError::io(program))?;
        if !status.success() {
            return Err(refuse(format!("`{}`: {status}", words.join(" "))));
        }
    }
    if !folder.join(&prepare.makes).is_file() {
        return Err(refuse(format!(
            "the commands did not make {}",
            prepare.makes
        )));
    }
    Ok(folder)
}
