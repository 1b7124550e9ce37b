//! `thicket lab prepare`: prepares a broker that no package installs, once, in a folder of the user's cache.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::command;
use crate::driver::{Driver, prepared_folder, write_file};
use crate::error::LabError;
use crate::scenario::System;

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
    let folder = prepared_folder(driver);
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
