//! Which networks run by hand, and which of them a command is for.

use crate::error::LabError;
use crate::janitor::{self, socket};

/// Process numbers of the networks that run by hand.
#[must_use]
pub fn all_running() -> Vec<u32> {
    let labs = janitor::found().into_iter();
    labs.filter(|&(lab, alive)| alive && socket(lab).exists())
        .map(|(lab, _)| lab)
        .collect()
}

/// Process number of the network that runs by hand: `lab`, or the only one. An error if there is none, or more than one to choose from.
pub fn running(lab: Option<u32>) -> Result<u32, LabError> {
    one_of(lab, &all_running())
}

/// `chosen` if it is one of `running`, else the only one of them.
pub(crate) fn one_of(chosen: Option<u32>, running: &[u32]) -> Result<u32, LabError> {
    let named = || {
        let named: Vec<String> = running.iter().map(u32::to_string).collect();
        named.join(", ")
    };
    match (chosen, running) {
        (Some(lab), running) if running.contains(&lab) => Ok(lab),
        (_, []) => Err(LabError::Misuse(
            "no network runs by hand: start one with `thicket lab up FILE`".to_owned(),
        )),
        (Some(lab), _) => Err(LabError::Misuse(format!(
            "--lab {lab}: no network runs by hand with that number, only {}",
            named()
        ))),
        (None, [lab]) => Ok(*lab),
        (None, several) => Err(LabError::Misuse(format!(
            "{} networks run by hand, choose one with --lab: {}",
            several.len(),
            named()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_for_the_only_network_or_the_chosen_one() {
        assert_eq!(one_of(None, &[7]).unwrap(), 7);
        assert_eq!(one_of(Some(8), &[7, 8]).unwrap(), 8);
        for (chosen, running, expected) in [
            (None, &[][..], "no network runs by hand: start one"),
            (Some(7), &[], "no network runs by hand: start one"),
            (
                None,
                &[7, 8],
                "2 networks run by hand, choose one with --lab: 7, 8",
            ),
            (
                Some(9),
                &[7, 8],
                "--lab 9: no network runs by hand with that number, only 7, 8",
            ),
        ] {
            let error = one_of(chosen, running).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
