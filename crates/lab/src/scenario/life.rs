//! Which brokers live when a fault occurs: a dead one is not killed, and one that lives is not started again.

use super::fault::{Action, Fault};

/// What is known of a site's broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has not started: its site is one of `network.later`.
    Later,
    Alive,
    Dead,
    /// It depends on draws, on CPU, or on what its program does.
    Open,
}

impl State {
    const fn words(self) -> &'static str {
        match self {
            Self::Later => "has not started",
            Self::Alive => "is alive",
            Self::Dead => "is dead",
            Self::Open => "is dead or alive",
        }
    }
}

/// The state that a broker must have for this, and the one that it has then; `None` if any will do.
const fn change(action: Action) -> Option<(State, State)> {
    match action {
        Action::Kill | Action::PowerOff => Some((State::Alive, State::Dead)),
        Action::Pause | Action::Resume => Some((State::Alive, State::Alive)),
        Action::Restart => Some((State::Dead, State::Alive)),
        Action::Join => Some((State::Later, State::Alive)),
        // Some programs end when they have handed over what they had.
        Action::Drain => Some((State::Alive, State::Open)),
        Action::Cut
        | Action::Heal
        | Action::Partition
        | Action::Slow
        | Action::StallDisk
        | Action::FreeDisk
        | Action::ClockJump => None,
    }
}

/// An error if a fault, or the repair of one, is not possible in the state that its broker has then. Nothing is said of brokers whose faults are drawn.
pub(super) fn check(faults: &[Fault], names: &[String], later: &[String]) -> Result<(), String> {
    let recurs = |site: &String| {
        let mut all = faults.iter().filter(|fault| fault.every_s.is_some());
        all.any(|fault| {
            fault.site.as_ref() == Some(site)
                || fault.is_drawn() && (fault.sites.is_empty() || fault.sites.contains(site))
        })
    };
    for site in names.iter().filter(|site| !recurs(site)) {
        let mut state = if later.contains(site) {
            State::Later
        } else {
            State::Alive
        };
        for (key, fault) in line_of(faults, site) {
            let Some((wanted, then)) = change(fault.action) else {
                continue;
            };
            if fault.when_cpu_percent.is_some() {
                state = State::Open;
            }
            if state != State::Open && state != wanted {
                return Err(format!(
                    "{key}: the broker of {site} {} at {} s, it cannot {}",
                    state.words(),
                    fault.at_s.value(),
                    match fault.action {
                        Action::Restart | Action::Join => "be started then",
                        Action::Pause => "be paused then",
                        Action::Resume => "be resumed then",
                        Action::Drain => "be drained then",
                        _ => "be killed then",
                    }
                ));
            }
            if state != State::Open {
                state = then;
            }
        }
    }
    Ok(())
}

/// The faults of a site and their repairs, sorted by time, each with its key.
fn line_of(faults: &[Fault], site: &str) -> Vec<(String, Fault)> {
    let own = faults.iter().enumerate();
    let own = own.filter(|(_, fault)| fault.site.as_deref() == Some(site));
    let mut line: Vec<(String, Fault)> = own
        .flat_map(|(number, fault)| {
            let keys = ["do", "for_s"].map(|key| format!("fault.{number}.{key}"));
            keys.into_iter().zip(fault.with_repair())
        })
        .collect();
    line.sort_by(|(_, a), (_, b)| a.at_s.value().total_cmp(&b.at_s.value()));
    line
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    #[test]
    fn a_fault_that_its_broker_cannot_have_is_refused_by_line_and_key() {
        let head = "title = \"t\"\nnetwork = { sites = 3, later = [\"s3\"] }\n\
                    workload = { pattern = \"pair\", publishers = 2, rate_per_s = 10, seconds = 60 }\n\
                    [[system]]\nname = \"x\"\ndriver = \"thicket\"\n";
        let check = |faults: &[&str]| {
            let faults = faults.iter().map(|keys| format!("[[fault]]\n{keys}\n"));
            Scenario::parse(&format!("{head}{}", faults.collect::<String>())).map(drop)
        };
        let kill = |at_s| format!("at_s = {at_s}\nsite = \"s2\"\ndo = \"kill\"");
        let restart = |at_s| format!("at_s = {at_s}\nsite = \"s2\"\ndo = \"restart\"");
        let for_s = |at_s, for_s| format!("{}\nfor_s = {for_s}", kill(at_s));
        for (faults, expected) in [
            (
                [restart(5), kill(9)],
                "line 10, fault.0.do: the broker of s2 is alive at 5 s, it cannot be started then",
            ),
            (
                [kill(9), kill(5)],
                "line 10, fault.0.do: the broker of s2 is dead at 9 s, it cannot be killed then",
            ),
            (
                [for_s(5, 10), restart(6)],
                "line 11, fault.0.for_s: the broker of s2 is alive at 15 s, it cannot be started then",
            ),
            (
                [kill(2), restart(1)],
                "line 14, fault.1.do: the broker of s2 is alive at 1 s, it cannot be started then",
            ),
        ] {
            let found = check(&[&faults[0], &faults[1]]);
            assert_eq!(found, Err(expected.to_owned()));
        }
        let join = "at_s = 2\nsite = \"s3\"\ndo = \"join\"";
        let early = check(&["at_s = 1\nsite = \"s3\"\ndo = \"kill\"", join]);
        assert!(early.unwrap_err().contains("s3 has not started at 1 s"));
        let twice = check(&[join, join]).unwrap_err();
        assert!(twice.contains("fault.1.do: the broker of s3 is alive at 2 s"));
        // In the order of the times, a restart after its kill, and what depends on CPU or on draws.
        check(&[&restart(9), &kill(5), &for_s(10, 5), &kill(16)]).unwrap();
        check(&[&format!("{}\nwhen_cpu_percent = 50", kill(1)), &kill(5)]).unwrap();
        check(&["every_s = 5\nfor_s = 2\ndo = \"kill\"", &restart(3)]).unwrap();
    }
}
