//! The metrics of a Thicket node: a page over HTTP, in the text format of Prometheus.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout of one answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Most bytes of an answer that are read.
const LONGEST: u64 = 64 << 20;
/// Nodes that a node reaches, including itself.
pub(crate) const REACHABLE: &str = "thicket_nodes{state=\"reachable\"}";

/// The answer of the HTTP API at an address, head and body.
pub(crate) fn page(api: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&api, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer)?;
    Ok(answer)
}

/// A page of metrics.
#[derive(Debug)]
pub(crate) struct Metrics(String);

impl Metrics {
    /// Fetches it from the HTTP API at an address.
    pub fn fetch(api: SocketAddr) -> io::Result<Self> {
        page(api, "/metrics").map(Self)
    }

    /// The sum of the samples whose name, or name and labels, start like this; `None`: there are none.
    pub fn sum(&self, name: &str) -> Option<u64> {
        let samples = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let is_whole = rest.starts_with([' ', '{']) || name.contains('{');
            let value: f64 = rest.rsplit(' ').next()?.parse().ok()?;
            is_whole.then_some(value as u64)
        });
        samples.fold(None, |sum, value| Some(sum.unwrap_or(0) + value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_the_sum_of_its_samples_and_not_of_those_that_begin_alike() {
        let page = Metrics(
            "# HELP a x\na 3\na{b=\"c d\"} 4\nab 5\na_total 6\nz 0\nthicket_nodes{state=\"reachable\"} 2\n\
             thicket_nodes{state=\"unreachable\"} 1\n"
                .to_owned(),
        );
        let cases = [
            ("a", Some(7)),
            ("b", None),
            ("z", Some(0)),
            (REACHABLE, Some(2)),
        ];
        for (name, sum) in cases {
            assert_eq!(page.sum(name), sum, "{name}");
        }
    }
}
