//! Clients of a rebalancing: publishers, and the records of subscribers and of connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thicket_client::{Client, Message, Options, Placement, Qos};

use crate::BenchError;
use crate::cluster::READY_WITHIN;
use crate::target::Running;

/// Most messages of one publisher, beyond which its subscriber could not identify them.
const NUMBERS: usize = 1 << 20;

/// The records of one subscriber.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) seen: Vec<bool>,
    pub(super) twice: u64,
    pub(super) last: Option<Instant>,
    pub(super) longest: Duration,
    /// From the publisher to here, in milliseconds.
    pub(super) delays: Vec<f64>,
}

/// Times without a connection of one client.
pub(super) type Breaks = Arc<Mutex<Vec<Duration>>>;

/// A publisher and the outcomes of its messages.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Numbers that were acknowledged.
    pub(super) acknowledged: Mutex<Vec<u32>>,
}

/// Longest waits of all subscribers since the last call, in milliseconds.
pub(super) fn gaps(heard: &[Arc<Mutex<Heard>>]) -> [f64; 3] {
    let longest = |one: &Arc<Mutex<Heard>>| std::mem::take(&mut lock(one).longest);
    percentiles(heard.iter().map(longest).map(millis).collect())
}

/// How long the messages to each subscriber took since the last call, in milliseconds.
pub(super) fn take_delays(heard: &[Arc<Mutex<Heard>>]) -> Vec<Vec<f64>> {
    let take = |one: &Arc<Mutex<Heard>>| std::mem::take(&mut lock(one).delays);
    heard.iter().map(take).collect()
}

/// The delays of the selected subscribers.
pub(super) fn p99_of(delays: Vec<Vec<f64>>, is_meant: impl Fn(usize) -> bool) -> f64 {
    let those = delays
        .into_iter()
        .enumerate()
        .filter(|(at, _)| is_meant(*at));
    percentiles(those.flat_map(|(_, delays)| delays).collect())[1]
}

/// p50, p99 and maximum; 0 if there are none.
fn percentiles(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    let at = |part: f64| all.get(((all.len() as f64 * part) as usize).min(all.len().max(1) - 1));
    [0.5, 0.99, 1.0].map(|part| at(part).copied().unwrap_or(0.0))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// From now on records how long a client is without a connection, each time.
pub(super) fn watch(client: &Client) -> Breaks {
    let breaks = Breaks::default();
    let (client, noted) = (client.clone(), Arc::clone(&breaks));
    tokio::spawn(async move {
        while client
            .wait_for(|it| it.sessions.is_empty())
            .await
            .ended
            .is_none()
        {
            let began = Instant::now();
            let is_back = client.wait_for(|it| !it.sessions.is_empty()).await;
            if is_back.ended.is_none() {
                lock(&noted).push(began.elapsed());
            }
        }
    });
    breaks
}

pub(super) fn break_times(breaks: &[Breaks]) -> [f64; 3] {
    let all = breaks.iter().flat_map(|breaks| lock(breaks).clone());
    percentiles(all.map(millis).collect())
}

pub(super) fn most_breaks(breaks: &[Breaks]) -> u64 {
    let most = breaks.iter().map(|breaks| lock(breaks).len()).max();
    most.unwrap_or(0) as u64
}

/// Where each client is connected.
pub(super) fn homes(clients: &[Client]) -> Vec<Option<String>> {
    let home = |client: &Client| client.status().sessions.into_values().next();
    clients.iter().map(home).collect()
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) async fn connect(
    qos: Qos,
    node: &Running,
    client_id: &str,
    filter: Option<String>,
) -> Result<Client, BenchError> {
    let mut options = Options::new(format!("mqtt://{}", node.address));
    options.client_id = client_id.to_owned();
    options.session_expiry = Duration::from_secs(600);
    options.placement = Placement::Off;
    options.subscribe = filter.map(|it| (it, qos.into())).into_iter().collect();
    options.connect_timeout = READY_WITHIN;
    let connected = Client::connect(options).await;
    connected.map_err(|error| BenchError::Setting(format!("{client_id}: {error}")))
}

pub(super) fn topic_name(pair: usize) -> String {
    format!("rebalance/{pair}")
}

/// A message: its number, and when it was sent.
fn payload(number: u32, epoch: Instant) -> Vec<u8> {
    let micros = u64::try_from(epoch.elapsed().as_micros()).unwrap_or(u64::MAX);
    let mut payload = number.to_le_bytes().to_vec();
    payload.extend(micros.to_le_bytes());
    payload
}

fn read_payload(payload: &[u8]) -> Option<(usize, Duration)> {
    let (number, micros) = payload.split_first_chunk()?;
    let micros = u64::from_le_bytes(micros.try_into().ok()?);
    let number = u32::from_le_bytes(*number) as usize;
    (number < NUMBERS).then_some((number, Duration::from_micros(micros)))
}

/// Records the messages of one topic.
pub(super) async fn listen(
    subscriber: Client,
    heard: Arc<Mutex<Heard>>,
    topic: String,
    epoch: Instant,
) {
    while let Some(message) = subscriber.next().await {
        if message.topic != topic {
            continue;
        }
        let Some((number, sent)) = read_payload(&message.payload) else {
            continue;
        };
        let mut heard = lock(&heard);
        let now = Instant::now();
        heard
            .delays
            .push(millis((now - epoch).saturating_sub(sent)));
        if let Some(last) = heard.last.replace(now) {
            heard.longest = heard.longest.max(now - last);
        }
        if heard.seen.len() <= number {
            heard.seen.resize(number + 1, false);
        }
        if std::mem::replace(&mut heard.seen[number], true) {
            heard.twice += 1;
        }
    }
}

/// The work of one publisher.
pub(super) struct Publishing {
    pub(super) topic: String,
    /// The part of a period that it waits before its first message, so that publishers are not synchronous.
    pub(super) phase: f64,
    pub(super) epoch: Instant,
    pub(super) period: Duration,
    pub(super) qos: Qos,
    pub(super) sent: Arc<Sent>,
    pub(super) is_over: Arc<AtomicBool>,
}

impl Publishing {
    pub(super) async fn run(self, publisher: Client) {
        tokio::time::sleep(self.period.mul_f64(self.phase)).await;
        let mut ticks = tokio::time::interval(self.period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for number in 0..NUMBERS as u32 {
            ticks.tick().await;
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let message = Message::new(&*self.topic, payload(number, self.epoch)).qos(self.qos);
            if publisher.publish(message).await.is_ok() {
                lock(&self.sent.acknowledged).push(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_read_as_it_was_written() {
        let epoch = Instant::now();
        let (number, sent) = read_payload(&payload(7, epoch)).unwrap();
        assert_eq!(number, 7);
        assert!(sent <= epoch.elapsed());
        assert_eq!(read_payload(&[0; 11]), None);
        assert_eq!(read_payload(&[0xFF; 12]), None);
    }

    #[test]
    fn the_longest_waits_are_taken_once() {
        let heard: Vec<Arc<Mutex<Heard>>> = (1..=100)
            .map(|millis| {
                let longest = Duration::from_millis(millis);
                Arc::new(Mutex::new(Heard {
                    longest,
                    ..Heard::default()
                }))
            })
            .collect();
        assert_eq!(gaps(&heard), [51.0, 100.0, 100.0]);
        assert_eq!(gaps(&heard), [0.0; 3]);
    }
}
