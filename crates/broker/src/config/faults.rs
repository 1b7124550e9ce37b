//! Collects the faults of a configuration, so that all are reported together.

use std::ops::RangeInclusive;

use super::values::in_range;
use super::{ConfigError, ConfigErrors};

/// Collects the faults of a configuration while it is checked.
#[derive(Debug, Default)]
pub(super) struct Faults {
    found: Vec<ConfigError>,
    /// Some keys of the file could not be read.
    is_partial: bool,
    /// The table that is checked now, if there may be several of its kind.
    place: Option<String>,
}

impl Faults {
    /// Starts with the faults that were found in the file.
    pub(super) fn of_file(found: Vec<ConfigError>) -> Self {
        Self {
            is_partial: !found.is_empty(),
            found,
            place: None,
        }
    }

    /// Checks a table; its faults name it.
    pub(super) fn within<T>(
        &mut self,
        kind: &str,
        name: Option<&str>,
        check: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.place = Some(match name {
            Some(name) => format!("[[{kind}]] {name}"),
            None => format!("a [[{kind}]] without a name"),
        });
        let checked = check(self);
        self.place = None;
        checked
    }

    pub(super) fn add(&mut self, fault: impl Into<ConfigError>) {
        let fault = fault.into();
        let is_combination = matches!(fault, ConfigError::Conflict(_) | ConfigError::TooOpen(_));
        // What is missing may be in a key that could not be read.
        if is_combination && self.is_partial {
            return;
        }
        if self.is_partial && self.is_of_a_key_with_a_fault(&fault) {
            return;
        }
        let fault = match self.place.clone() {
            Some(place) => ConfigError::In {
                place,
                fault: Box::new(fault),
            },
            None => fault,
        };
        // Listeners may share a file.
        let text = fault.to_string();
        if self.found.iter().all(|other| other.to_string() != text) {
            self.found.push(fault);
        }
    }

    /// Whether a key is missing only because its value in the file could not be read.
    fn is_of_a_key_with_a_fault(&self, fault: &ConfigError) -> bool {
        let ConfigError::Invalid { key, value, .. } = fault else {
            return false;
        };
        let name = key.rsplit('.').next().unwrap_or(key);
        let is_named = |it: &ConfigError| {
            // The fault shows the line of the file.
            let text = it.to_string();
            text.contains(&format!("{name} =")) || text.contains(&format!("{name}="))
        };
        matches!(&**value, "" | "\"\"" | "[]" | "nothing") && self.found.iter().any(is_named)
    }

    /// The number of faults.
    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    /// The value, if it is valid.
    pub(super) fn keep<T>(&mut self, checked: Result<T, impl Into<ConfigError>>) -> Option<T> {
        checked.map_err(|fault| self.add(fault)).ok()
    }

    /// The value, or a default if it is not valid; the configuration is not used then.
    pub(super) fn or_default<T: Default>(
        &mut self,
        checked: Result<T, impl Into<ConfigError>>,
    ) -> T {
        self.keep(checked).unwrap_or_default()
    }

    /// As `in_range`, with the default instead of an invalid value.
    pub(super) fn in_range<T>(
        &mut self,
        key: &'static str,
        given: Option<T>,
        default: T,
        range: RangeInclusive<T>,
    ) -> T
    where
        T: PartialOrd + std::fmt::Display + Clone,
    {
        let checked = in_range(key, given, default.clone(), range);
        self.keep(checked).unwrap_or(default)
    }

    /// The checked value, if no fault was found.
    pub(super) fn end<T>(self, checked: T) -> Result<T, ConfigErrors> {
        if self.found.is_empty() {
            Ok(checked)
        } else {
            Err(ConfigErrors(self.found))
        }
    }
}
