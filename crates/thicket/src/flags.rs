//! Flags of a node with invalid values: taken out of the command line one after the other, so that all faults are found at once.

use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Removes the flag that an error is about from the command line, and says what is wrong with its value. `None`: it is another error, or the value
/// is not in the command line.
pub fn take_fault(error: &clap::Error, words: &mut Vec<OsString>) -> Option<String> {
    if !matches!(
        error.kind(),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation
    ) {
        return None;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg)?.split_whitespace().next()?;
    let value = text(ContextKind::InvalidValue)?;
    let expected = match (error.get(ContextKind::ValidValue), error.source()) {
        (Some(ContextValue::Strings(valid)), _) => {
            format!("expected one of {}", valid.join(", "))
        }
        (_, Some(cause)) if cause.is::<std::num::ParseIntError>() => {
            "expected a whole number that is not too large".to_owned()
        }
        (_, Some(cause)) => cause.to_string(),
        _ => "not a valid value".to_owned(),
    };
    let joined = format!("{flag}={value}");
    if let Some(at) = words.iter().position(|word| *word == *joined) {
        words.remove(at);
    } else {
        let mut pairs = words.windows(2);
        let at = pairs.position(|pair| pair[0] == *flag && pair[1] == *value)?;
        words.drain(at..at + 2);
    }
    Some(format!("{flag} {value}: {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        settings: thicket_broker::Settings,
    }

    #[test]
    fn each_flag_with_an_invalid_value_is_taken_out_and_the_others_stay() {
        let line = "broker --queue-bytes 64MX --name a --sync=sometimes --workers two";
        let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut faults = Vec::new();
        while let Err(error) = Line::command().try_get_matches_from(&words) {
            faults.push(take_fault(&error, &mut words).expect("a fault of a value"));
        }
        faults.sort();
        assert_eq!(
            faults,
            [
                "--queue-bytes 64MX: expected a size such as 65536, 64kB, 64MB, 64MiB or 1GiB",
                "--sync sometimes: expected one of commit, interval, none",
                "--workers two: expected a whole number that is not too large",
            ]
        );
        assert_eq!(words, ["broker", "--name", "a"]);
        let unknown = Line::command().try_get_matches_from(["broker", "--nothing"]);
        let error = unknown.expect_err("no such flag");
        assert_eq!(take_fault(&error, &mut words), None);
    }
}
