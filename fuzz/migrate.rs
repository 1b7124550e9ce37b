//! Files of Mosquitto. The modules that read them are private to the command line, which is too
//! large to be built with a sanitizer for them: they are compiled here from their sources.
#![allow(dead_code)]

use std::collections::BTreeMap;

use thicket_broker::api::transfer::{Line, SessionScope};

#[path = "../crates/thicket/src/migrate/database.rs"]
mod database;
#[path = "../crates/thicket/src/migrate/draft.rs"]
mod draft;
#[path = "../crates/thicket/src/migrate/options.rs"]
mod options;
#[path = "../crates/thicket/src/migrate/sessions.rs"]
mod sessions;

/// As in the command line.
type Prefixes = BTreeMap<u16, String>;

/// Converts text as a `mosquitto.conf`. One that includes files is left out: they are other files
/// than the fuzzer's.
///
/// # Panics
/// If the result is not a configuration that a node can at least parse.
pub fn migrate_configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if text.contains("include_dir") {
        return;
    }
    let mut draft = draft::Draft::default();
    options::take_all(&mut draft, text);
    let finished = draft.finish();
    assert!(
        finished.text.parse::<toml::Table>().is_ok(),
        "{}",
        finished.text
    );
}

/// Converts bytes as a `mosquitto.db`.
///
/// # Panics
/// If a line cannot be read by `ctl import`.
pub fn migrate_database(bytes: &[u8]) {
    let Ok(database) = database::Database::parse(bytes) else {
        return;
    };
    let names = sessions::Names {
        scope: SessionScope::User,
        prefixes: Prefixes::from([(1883, "tenant/".to_owned())]),
    };
    let mut written = Vec::new();
    let mut conversion = sessions::Conversion::new(&database, &names, 1_700_000_000);
    conversion.write(&mut written).expect("a vector");
    for line in written.split(|&byte| byte == b'\n') {
        if !line.is_empty() {
            serde_json::from_slice::<Line>(line).expect("a line of an export");
        }
    }
}
