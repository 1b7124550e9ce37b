//! Seeds and names in DNS, on one thread that may block in the resolver.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::config::Dns;
use crate::mailbox::{Letter, Mailbox};
use crate::resolver::resolve;

/// Time before a seed is sent to the hub again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such time.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The thread. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Names {
    _stop: Sender<()>,
}

/// A seed or a name, and when it is due.
#[derive(Debug)]
struct Entry {
    text: String,
    due: Instant,
    repeat: Repeat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// A seed: one node, sent as written, so that a dial resolves its name again. The pause doubles.
    Seed(Duration),
    /// A name each of whose addresses is a node; resolved at this interval.
    Every(Duration),
}

impl Names {
    /// Starts the thread if there is a seed or a name. Our own address is left out.
    pub(super) fn start(
        seeds: &[String],
        dns: Option<&Dns>,
        own: &str,
        hub: Arc<Mailbox>,
    ) -> io::Result<Option<Self>> {
        let now = Instant::now();
        let entry = |text: &String, repeat| Entry {
            text: text.clone(),
            due: now,
            repeat,
        };
        let mut entries: Vec<_> = seeds
            .iter()
            .map(|seed| entry(seed, Repeat::Seed(FIRST_PAUSE)))
            .collect();
        if let Some(dns) = dns {
            entries.extend(
                dns.names
                    .iter()
                    .map(|name| entry(name, Repeat::Every(dns.interval))),
            );
        }
        entries.retain(|entry| entry.text != own);
        if entries.is_empty() {
            return Ok(None);
        }
        let (stop, stopped) = channel();
        let own = own.to_owned();
        std::thread::Builder::new()
            .name("names".into())
            .spawn(move || tell(entries, &own, &hub, &stopped))?;
        Ok(Some(Self { _stop: stop }))
    }
}

/// Sends the entries that are due to the hub, until the other end of `stopped` is dropped.
fn tell(mut entries: Vec<Entry>, own: &str, hub: &Mailbox, stopped: &Receiver<()>) {
    loop {
        let now = Instant::now();
        for entry in entries.iter_mut().filter(|entry| entry.due <= now) {
            for address in entry.found().into_iter().filter(|address| address != own) {
                hub.post(Letter::Discovered { address });
            }
            entry.put_off(now);
        }
        let Some(next) = entries.iter().map(|entry| entry.due).min() else {
            return;
        };
        match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Entry {
    fn found(&self) -> Vec<String> {
        match self.repeat {
            Repeat::Seed(_) => vec![self.text.clone()],
            Repeat::Every(_) => match resolve(&self.text) {
                Ok(addresses) => addresses.iter().map(ToString::to_string).collect(),
                Err(error) => {
                    tracing::warn!(name = self.text, %error, "cannot look up a name of nodes");
                    Vec::new()
                }
            },
        }
    }

    fn put_off(&mut self, now: Instant) {
        match &mut self.repeat {
            Repeat::Seed(pause) => {
                self.due = now + *pause;
                *pause = (*pause * 2).min(LONGEST_PAUSE);
            }
            Repeat::Every(interval) => self.due = now + *interval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_told_as_written_and_ever_more_seldom() {
        let now = Instant::now();
        let mut entry = Entry {
            text: "broker-2:1883".into(),
            due: now,
            repeat: Repeat::Seed(FIRST_PAUSE),
        };
        assert_eq!(entry.found(), ["broker-2:1883"]);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            entry.put_off(now);
            pauses.push((entry.due - now).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn a_name_is_told_as_all_its_addresses() {
        let entry = Entry {
            text: "127.0.0.1:1883".into(),
            due: Instant::now(),
            repeat: Repeat::Every(FIRST_PAUSE),
        };
        assert_eq!(entry.found(), ["127.0.0.1:1883"]);
    }
}
