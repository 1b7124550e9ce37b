//! Ending a measurement before its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::BenchError;

/// Longest time without looking whether it is set.
const LOOK: Duration = Duration::from_millis(20);

/// Whether a measurement is to end now: any holder of the flag sets it, once.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl From<Arc<AtomicBool>> for Stop {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }
}

impl Stop {
    /// Whether it is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error if it is set.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        if self.is_set() {
            return Err(BenchError::Stopped);
        }
        Ok(())
    }

    /// Waits; an error as soon as it is set.
    pub(crate) fn sleep(&self, time: Duration) -> Result<(), BenchError> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{Arrivals, Generator, Load, Node, Scenario, Span, Watch};
    use crate::relay::Relay;
    use crate::workload::Workload;

    #[test]
    fn a_load_that_is_stopped_ends_with_an_error_and_keeps_its_samples() {
        let relay = Relay::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let node = Node::resolve(&relay.local_addr().unwrap().to_string()).unwrap();
        std::thread::spawn(move || relay.run());
        let flag = Arc::new(AtomicBool::new(false));
        let scenario = Scenario {
            stop: Arc::clone(&flag).into(),
            ..Scenario::new(vec![node], Workload::Pair { pairs: 1 })
        };
        let mut generator = Generator::connect(scenario).unwrap();
        generator.keep_samples(1000);
        let load = Load::Open {
            rate_per_s: 200.0,
            arrivals: Arrivals::Constant,
        };
        // Longer than any test may take: it is stopped at the second report of its progress.
        let mut reports = 0;
        let ended = generator.run(load, Span::seconds(1e6), &Watch::default(), &mut |_| {
            reports += 1;
            flag.store(reports > 1, Ordering::Relaxed);
        });
        assert!(matches!(ended, Err(BenchError::Stopped)), "{ended:?}");
        assert!(!generator.samples().is_empty());
        let stop = Stop::from(flag);
        assert!(stop.is_set() && stop.sleep(Duration::from_secs(3600)).is_err());
    }
}
