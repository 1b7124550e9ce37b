//! A flash crowd: within ten seconds many subscribers at one node change to a topic with ten times the messages. The other nodes have pairs, with as
//! much load as the crowd causes before.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use thicket_client::Client;

use super::clients::{
    Breaks, Heard, Publishing, Sent, break_times, connect, gaps, homes, listen, lock, most_breaks,
    p99_of, take_delays, topic_name, watch,
};
use super::nodes::{apis, connections, moves};
use super::{CrowdLoads, MEANS, RebalanceAct, RebalanceExperiment, RebalanceOutcome, SETTLE};
use crate::BenchError;
use crate::cluster::{READY_WITHIN, jain};
use crate::metrics::Metrics;
use crate::report::{Part, Report, Table};
use crate::target::Running;

/// The crowd changes its topic within this time.
const CHANGES_WITHIN: Duration = Duration::from_secs(10);
/// The factor of the other topic's rate; also the number of topics of the crowd before, so that its messages do not all arrive in one second.
const FACTOR: usize = 10;
/// Limit of a node's load relative to the mean.
const GAMMA: f64 = 1.1;
/// The load of a connection, in messages a second: as for the rebalancer.
const CONNECTION: f64 = 0.1;
/// Loads are checked every second; a load is the difference over several checks.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: usize = 5;
/// When no node is above gamma for this long, the load has settled.
const QUIET: Duration = Duration::from_secs(10);

const AFTER: &str = "crowd/after";

/// The clients, and their records.
#[derive(Default)]
struct Crowd {
    members: Vec<Client>,
    /// Subscribers of the pairs.
    others: Vec<Client>,
    /// By subscriber, the crowd first: the messages of the topic that it changes to, or of its pair's topic.
    heard: Vec<Arc<Mutex<Heard>>>,
    breaks: Vec<Breaks>,
    publishing: Vec<tokio::task::JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    /// Of the topic that they change to, and of the pairs.
    sent: Vec<Arc<Sent>>,
}

pub(super) async fn play(
    experiment: &RebalanceExperiment,
    nodes: &[Running],
) -> Result<RebalanceOutcome, BenchError> {
    let epoch = Instant::now();
    let mut crowd = Crowd::attach(experiment, nodes, epoch).await?;
    tokio::time::sleep(MEANS).await;
    let mut loads = Loads::new(apis(nodes));
    for _ in 0..=LOOKS {
        loads.look().await;
        tokio::time::sleep(LOOK).await;
    }
    let before = loads.highest().unwrap_or(f64::NAN);
    let all: Vec<Arc<Mutex<Heard>>> = crowd.heard.clone();
    let (calm_gap_ms, calm_delays) = (gaps(&all), take_delays(&all));
    crowd.breaks.iter().for_each(|it| lock(it).clear());
    let homes_before = homes(&crowd.others);
    let moved_before = moves(&apis(nodes));

    let began = Instant::now();
    let changing = crowd.change(experiment);
    let (mut over_time, mut last_above, mut settled) = (Vec::new(), began, false);
    while !settled && began.elapsed() < experiment.within {
        tokio::time::sleep(LOOK).await;
        loads.look().await;
        let Some(highest) = loads.highest() else {
            continue;
        };
        over_time.push((began.elapsed().as_secs_f64(), highest));
        if highest > GAMMA {
            last_above = Instant::now();
        }
        settled = began.elapsed() > CHANGES_WITHIN && last_above.elapsed() >= QUIET;
    }
    for change in changing {
        let _ = tokio::time::timeout(READY_WITHIN, change).await;
    }
    let after = loads.highest().unwrap_or(f64::NAN);
    let homes_after = homes(&crowd.others);
    let delays = [calm_delays, take_delays(&all)];
    let moved = moves(&apis(nodes)).saturating_sub(moved_before);
    crowd.end().await;
    let gap_ms = gaps(&all);
    let is_same = |pair: usize| homes_before[pair] == homes_after[pair];
    let stayed = |at: usize| at.checked_sub(experiment.crowd).is_some_and(is_same);
    let mut outcome = RebalanceOutcome {
        act: RebalanceAct::FlashCrowd,
        took_s: settled.then(|| (last_above - began).as_secs_f64()),
        jain: jain(&connections(&apis(nodes))).unwrap_or(0.0),
        internal: None,
        loads: Some(CrowdLoads {
            before,
            peak: over_time.iter().map(|it| it.1).fold(before, f64::max),
            after,
            over_time,
        }),
        moved,
        acknowledged: 0,
        lost: 0,
        twice: 0,
        calm_gap_ms,
        gap_ms,
        break_ms: break_times(&crowd.breaks),
        most_breaks: most_breaks(&crowd.breaks),
        others_delay_ms: delays.map(|delays| p99_of(delays, stayed)),
    };
    crowd.count(&mut outcome);
    crowd.close().await;
    Ok(outcome)
}

impl Crowd {
    /// The crowd at the first node, pairs at the others, so that all have the same load at any time.
    async fn attach(
        experiment: &RebalanceExperiment,
        nodes: &[Running],
        epoch: Instant,
    ) -> Result<Self, BenchError> {
        let rate = experiment.rate_per_s;
        let slow = rate / FACTOR as f64;
        let one = CONNECTION + slow;
        let pair = 2.0 * (CONNECTION + rate);
        let crowd = experiment.crowd;
        let pairs = (crowd as f64 * one / pair).ceil() as usize * (nodes.len() - 1);
        let mut all = Self {
            heard: (0..crowd + pairs).map(|_| Arc::default()).collect(),
            sent: (0..=pairs).map(|_| Arc::default()).collect(),
            ..Self::default()
        };
        for topic in (0..FACTOR).map(before) {
            all.publish(experiment, &nodes[0], &topic, slow, None, epoch)
                .await?;
        }
        let mut paired = Vec::new();
        for number in 0..crowd {
            let name = format!("crowd-{number}");
            let client = connect(experiment.qos, &nodes[0], &name, Some(before(number))).await?;
            let heard = Arc::clone(&all.heard[number]);
            tokio::spawn(listen(client.clone(), heard, AFTER.to_owned(), epoch));
            all.members.push(client);
            while paired.len() * crowd < pairs * (number + 1) {
                let pair = paired.len();
                let node = &nodes[1 + pair % (nodes.len() - 1)];
                let topic = topic_name(pair);
                let name = format!("sub-{pair}");
                let client = connect(experiment.qos, node, &name, Some(topic.clone())).await?;
                let heard = Arc::clone(&all.heard[crowd + pair]);
                tokio::spawn(listen(client.clone(), heard, topic.clone(), epoch));
                paired.push(client);
                all.publish(experiment, node, &topic, rate, Some(1 + pair), epoch)
                    .await?;
            }
        }
        all.others.extend(paired);
        all.breaks = all.members.iter().chain(&all.others).map(watch).collect();
        all.publish(experiment, &nodes[1], AFTER, rate, Some(0), epoch)
            .await?;
        Ok(all)
    }

    async fn publish(
        &mut self,
        experiment: &RebalanceExperiment,
        node: &Running,
        topic: &str,
        rate: f64,
        sent: Option<usize>,
        epoch: Instant,
    ) -> Result<(), BenchError> {
        let number = self.publishing.len();
        let client = connect(experiment.qos, node, &format!("pub-{number}"), None).await?;
        let publishing = Publishing {
            topic: topic.to_owned(),
            phase: (number as f64 * 0.618).fract(),
            epoch,
            period: Duration::from_secs_f64(1.0 / rate),
            qos: experiment.qos,
            sent: sent.map_or_else(Arc::default, |at| Arc::clone(&self.sent[at])),
            is_over: Arc::clone(&self.is_over),
        };
        self.publishing.push(tokio::spawn(publishing.run(client)));
        Ok(())
    }

    /// Each changes its topic at its own time.
    fn change(&self, experiment: &RebalanceExperiment) -> Vec<tokio::task::JoinHandle<()>> {
        let step = CHANGES_WITHIN / self.members.len().max(1) as u32;
        let change = |(number, client): (usize, &Client)| {
            let (client, qos) = (client.clone(), experiment.qos);
            tokio::spawn(async move {
                tokio::time::sleep(step * number as u32).await;
                if client.subscribe(AFTER, qos).await.is_ok() {
                    let _ = client.unsubscribe(&before(number)).await;
                }
            })
        };
        self.members.iter().enumerate().map(change).collect()
    }

    /// Stops publishing and waits until all messages have arrived.
    async fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for task in std::mem::take(&mut self.publishing) {
            let _ = tokio::time::timeout(READY_WITHIN, task).await;
        }
        tokio::time::sleep(SETTLE).await;
    }

    /// Counts missing and duplicate messages; of the crowd from the first message on.
    fn count(&self, outcome: &mut RebalanceOutcome) {
        for (at, heard) in self.heard.iter().enumerate() {
            let heard = lock(heard);
            let pair = at.checked_sub(self.members.len());
            let sent = lock(&self.sent[pair.map_or(0, |pair| pair + 1)].acknowledged);
            let first = heard.seen.iter().position(|came| *came);
            let from = if pair.is_some() { Some(0) } else { first };
            let due = sent
                .iter()
                .filter(|number| from.is_some_and(|from| **number as usize >= from));
            for number in due {
                outcome.acknowledged += 1;
                let came = heard.seen.get(*number as usize).copied().unwrap_or(false);
                outcome.lost += u64::from(!came);
            }
            outcome.twice += heard.twice;
        }
    }

    async fn close(self) {
        for client in self.members.iter().chain(&self.others) {
            let _ = tokio::time::timeout(Duration::from_millis(100), client.close()).await;
        }
    }
}

/// The topic of a member of the crowd before the change.
fn before(number: usize) -> String {
    format!("crowd/before/{}", number % FACTOR)
}

/// The nodes' counters, by check.
struct Loads {
    apis: Vec<SocketAddr>,
    /// Messages of clients since the start, and connections, of each node.
    looks: VecDeque<(Instant, Vec<(u64, u64)>)>,
}

impl Loads {
    const fn new(apis: Vec<SocketAddr>) -> Self {
        let looks = VecDeque::new();
        Self { apis, looks }
    }

    /// On another thread, so that clients do not wait meanwhile.
    async fn look(&mut self) {
        let apis = self.apis.clone();
        let read = move || {
            let of = |api: &SocketAddr| {
                let page = Metrics::fetch(*api).ok()?;
                let messages = page.sum("thicket_messages_total{traffic=\"external\"")?;
                Some((messages, page.sum("thicket_connections")?))
            };
            apis.iter().map(of).collect::<Option<Vec<_>>>()
        };
        if let Ok(Some(look)) = tokio::task::spawn_blocking(read).await {
            self.looks.push_back((Instant::now(), look));
        }
        while self.looks.len() > LOOKS + 1 {
            self.looks.pop_front();
        }
    }

    /// The highest load of a node, relative to the mean.
    fn highest(&self) -> Option<f64> {
        let ((began, first), (ended, last)) = (self.looks.front()?, self.looks.back()?);
        let passed = (*ended - *began).as_secs_f64();
        if passed == 0.0 {
            return None;
        }
        let pairs = first.iter().zip(last);
        let loads = pairs.map(|((before, _), (messages, connections))| {
            let messages = messages.saturating_sub(*before) as f64;
            messages / passed + CONNECTION * *connections as f64
        });
        let loads: Vec<f64> = loads.collect();
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        let highest = loads.iter().copied().fold(0.0, f64::max);
        (mean > 0.0).then(|| highest / mean)
    }
}

/// The table of this act.
pub(super) fn add_table(report: &mut Report, outcomes: &[RebalanceOutcome]) {
    let mut found = outcomes
        .iter()
        .filter_map(|outcome| outcome.loads.as_ref())
        .peekable();
    if found.peek().is_none() {
        return;
    }
    let mut table = Table::new([
        "load of the busiest node over the mean: before",
        "highest",
        "at the end",
    ]);
    for loads in found {
        let all = [loads.before, loads.peak, loads.after];
        table.row(all.map(|load| format!("{load:.2}")));
    }
    report.push(Part::Table(table));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_what_came_between_the_looks_and_a_tenth_of_each_connection() {
        let mut loads = Loads::new(Vec::new());
        let now = Instant::now();
        loads.looks.push_back((now, vec![(100, 0), (0, 0)]));
        assert_eq!(loads.highest(), None);
        let then = now + Duration::from_secs(2);
        loads.looks.push_back((then, vec![(120, 0), (40, 100)]));
        // 10 and 20 + 10 messages a second.
        assert_eq!(loads.highest(), Some(1.5));
    }
}
