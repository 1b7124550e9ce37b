//! A topic of Kafka. An event is a record whose key is the client identifier, so that the events of a client are in one partition, in order.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rskafka::chrono::{DateTime, Utc};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::record::Record;
use rskafka::{BackoffConfig, BackoffError, ConnectionError};
use thicket_transport::tls::rustls::ClientConfig;
use tokio::runtime::{Builder, Runtime};
use tracing::dispatcher::{self, Dispatch};

use crate::receiver::{Batch, Failure, Receiver, Sent};
use crate::{Event, HookError, KafkaDestination, KafkaLogin, KafkaMechanism, Origin, Value};

/// Version of the records; a header of each.
const VERSION: &str = "1";
/// Most bytes of events in a request, unless the topic permits less. The default limit of brokers is 1 MiB.
const REQUEST_BYTES: usize = 512 * 1024;
/// Connections are renewed after this time, so that new partitions are found. Brokers close connections that are idle for 10 minutes.
const CONNECTION_AGE: Duration = Duration::from_secs(5 * 60);

/// Produces records, to one partition at a time, and waits until all in-sync replicas have them.
pub(crate) struct Kafka {
    runtime: Runtime,
    destination: KafkaDestination,
    tls: Option<Arc<ClientConfig>>,
    origin: Origin,
    /// `None`: not connected yet, or a request failed.
    connection: Option<Connection>,
    /// Most bytes of events in a request: less than [`REQUEST_BYTES`] once a broker has refused a request as too large.
    request_bytes: usize,
}

struct Connection {
    client: Client,
    opened: Instant,
    /// Number of the topic's partitions; they are numbered from 0.
    partition_count: u32,
    /// The partitions written to so far.
    partitions: HashMap<i32, PartitionClient>,
}

/// Why a request was not accepted.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    /// The records exceed the topic's limit.
    TooLarge,
    Other(Failure),
}

impl Kafka {
    pub(crate) fn new(destination: KafkaDestination, origin: Origin) -> Result<Self, HookError> {
        let tls = destination.tls.as_ref().map(|tls| tls.load());
        Ok(Self {
            runtime: Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .build()?,
            tls: tls.transpose().map_err(HookError::Agent)?,
            destination,
            origin,
            connection: None,
            request_bytes: REQUEST_BYTES,
        })
    }

    /// Connects unless connected; returns the number of the topic's partitions.
    fn connect(&mut self, deadline: Instant) -> Result<u32, Failure> {
        let current = self.connection.as_ref();
        if let Some(current) = current.filter(|it| it.opened.elapsed() < CONNECTION_AGE) {
            return Ok(current.partition_count);
        }
        self.connection = None;
        let topic = &self.destination.topic;
        let opening = open(&self.destination, self.tls.clone(), &self.origin);
        let (client, partitions) = run::<_, Failure>(&self.runtime, deadline, opening)?;
        let partition_count = match partitions {
            0 => return Err(Failure::Temporary(format!("there is no topic {topic}"))),
            count => u32::try_from(count).unwrap_or(u32::MAX),
        };
        self.connection = Some(Connection {
            client,
            opened: Instant::now(),
            partition_count,
            partitions: HashMap::new(),
        });
        self.request_bytes = REQUEST_BYTES;
        Ok(partition_count)
    }

    /// Moves the events for the partition of the first one to the front, as many as fit into a request. Returns the partition, their number and their
    /// bytes.
    fn gather(&self, events: &mut Vec<Event>, partition_count: u32) -> (i32, usize, usize) {
        let partition_of = |event: &Event| {
            // Events without a client are in order within their node.
            let key = client_id(event).unwrap_or(&self.origin.node);
            partition_of(key.as_bytes(), partition_count)
        };
        let (mut gathered, mut rest) = (Vec::new(), Vec::new());
        let (mut partition, mut bytes, mut is_full) = (0, 0, false);
        for event in events.drain(..) {
            let (own, len) = (partition_of(&event), event.len());
            if gathered.is_empty() {
                partition = own;
            } else if own == partition {
                // Later events of a client must not overtake one that did not fit.
                is_full |= bytes + len > self.request_bytes;
            }
            if own == partition && !is_full {
                bytes += len;
                gathered.push(event);
            } else {
                rest.push(event);
            }
        }
        let count = gathered.len();
        gathered.append(&mut rest);
        *events = gathered;
        (partition, count, bytes)
    }

    fn produce(
        &mut self,
        partition: i32,
        events: &[Event],
        deadline: Instant,
    ) -> Result<(), Problem> {
        let records = events.iter().map(|event| record(event, &self.origin));
        let records: Vec<_> = records.collect();
        let topic = &self.destination.topic;
        let Some(connection) = &mut self.connection else {
            return Err(Problem::Other(Failure::Temporary("not connected".into())));
        };
        let producing = async {
            let Connection {
                client, partitions, ..
            } = connection;
            let partition = match partitions.entry(partition) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(free) => {
                    let handling = UnknownTopicHandling::Error;
                    let opening = client.partition_client(topic, partition, handling);
                    free.insert(opening.await?)
                }
            };
            let offsets = partition.produce(records, Compression::NoCompression);
            offsets.await.map(drop)
        };
        run(&self.runtime, deadline, producing)
    }
}

impl Receiver for Kafka {
    /// Sends the first event, and others of its partition.
    fn send(&mut self, batch: &mut Batch, timeout: Duration) -> Sent {
        let deadline = Instant::now() + timeout;
        let partition_count = match self.connect(deadline) {
            Ok(count) => count,
            Err(failure) => {
                return Sent {
                    count: batch.events.len(),
                    outcome: Err(failure),
                };
            }
        };
        loop {
            let (partition, count, bytes) = self.gather(&mut batch.events, partition_count);
            let outcome = match self.produce(partition, &batch.events[..count], deadline) {
                Ok(()) => Ok(()),
                Err(Problem::TooLarge) if count > 1 => {
                    self.request_bytes = bytes / 2;
                    continue;
                }
                Err(Problem::TooLarge) => {
                    let topic = &self.destination.topic;
                    Err(Failure::Refused(format!("too large for the topic {topic}")))
                }
                Err(Problem::Other(failure)) => {
                    // Whatever is wrong with the connection, the next attempt starts with a new one.
                    self.connection = None;
                    Err(failure)
                }
            };
            return Sent { count, outcome };
        }
    }
}

/// Returns a client and the number of the topic's partitions; 0: there is no such topic.
async fn open(
    destination: &KafkaDestination,
    tls: Option<Arc<ClientConfig>>,
    origin: &Origin,
) -> Result<(Client, usize), Error> {
    // Delivery retries failures itself, so the client tries once.
    let once = BackoffConfig {
        deadline: Some(Duration::ZERO),
        ..BackoffConfig::default()
    };
    let mut builder = ClientBuilder::new(destination.brokers.clone())
        .client_id(format!("thicket-{}", origin.node))
        .backoff_config(once);
    if let Some(tls) = tls {
        builder = builder.tls_config(tls);
    }
    if let Some(login) = &destination.login {
        builder = builder.sasl_config(sasl(login));
    }
    let client = builder.build().await?;
    let topics = client.list_topics().await?;
    let topic = topics.iter().find(|it| it.name == destination.topic);
    let partitions = topic.map_or(0, |topic| topic.partitions.len());
    Ok((client, partitions))
}

fn sasl(login: &KafkaLogin) -> SaslConfig {
    let credentials = Credentials::new(login.user.clone(), login.password.clone());
    match login.mechanism {
        KafkaMechanism::Plain => SaslConfig::Plain(credentials),
        KafkaMechanism::ScramSha256 => SaslConfig::ScramSha256(credentials),
        KafkaMechanism::ScramSha512 => SaslConfig::ScramSha512(credentials),
    }
}

/// Runs at most until the deadline. The client's log lines are suppressed: they would repeat what is reported anyway.
fn run<T, P: From<Failure> + From<Error>>(
    runtime: &Runtime,
    deadline: Instant,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, P> {
    let timed = async { tokio::time::timeout_at(deadline.into(), work).await };
    let done = dispatcher::with_default(&Dispatch::none(), || runtime.block_on(timed));
    match done {
        Ok(result) => Ok(result?),
        Err(_) => Err(Failure::Temporary("no answer in time".into()).into()),
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl From<Error> for Problem {
    /// An error about the records stays the same at another attempt; others may not.
    fn from(error: Error) -> Self {
        let (protocol_error, reason) = cause(&error);
        match protocol_error {
            Some(ProtocolError::MessageTooLarge | ProtocolError::RecordListTooLarge) => {
                Self::TooLarge
            }
            Some(
                ProtocolError::InvalidRecord
                | ProtocolError::InvalidTimestamp
                | ProtocolError::PolicyViolation
                | ProtocolError::UnsupportedForMessageFormat,
            ) => Self::Other(Failure::Refused(reason)),
            _ => Self::Other(Failure::Temporary(reason)),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Temporary(cause(&error).1)
    }
}

/// The broker's answer, if any, and the reason in words; without the wrappers for attempts that the client did not make.
fn cause(error: &Error) -> (Option<ProtocolError>, String) {
    match error {
        Error::RetryFailed(BackoffError::DeadlineExceded { source, .. })
        | Error::Connection(ConnectionError::RetryFailed(BackoffError::DeadlineExceded {
            source,
            ..
        })) => {
            let inner = source.downcast_ref::<Error>();
            inner.map_or_else(|| (None, source.to_string()), cause)
        }
        Error::ServerError {
            protocol_error,
            error_message,
            ..
        } => {
            let message = error_message.iter().map(|message| format!(": {message}"));
            let reason = format!("{protocol_error}{}", message.collect::<String>());
            (Some(*protocol_error), reason)
        }
        other => (None, other.to_string()),
    }
}

/// An event as HTTP receivers get it; what they get once for a request is in the record's headers.
fn record(event: &Event, origin: &Origin) -> Record {
    let Origin { node, hook, run } = origin;
    let headers = [("version", VERSION), ("node", node), ("hook", hook)];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    let time_ms = i64::try_from(event.time_ms).ok();
    Record {
        key: client_id(event).map(|it| it.as_bytes().to_vec()),
        value: Some(event.to_json(run).to_string().into_bytes()),
        headers: BTreeMap::from(headers),
        timestamp: time_ms
            .and_then(DateTime::from_timestamp_millis)
            .unwrap_or(DateTime::<Utc>::UNIX_EPOCH),
    }
}

fn client_id(event: &Event) -> Option<&str> {
    event.fields.iter().find_map(|(key, value)| match value {
        Value::Text(text) if *key == "client_id" => Some(text.as_str()),
        _ => None,
    })
}

/// The partition that Kafka's own producers choose for a key.
fn partition_of(key: &[u8], partition_count: u32) -> i32 {
    let hash = murmur2::murmur2(key, murmur2::KAFKA_SEED) & 0x7fff_ffff;
    // Less than 2^31.
    (hash % partition_count) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, client: &str, payload: usize) -> Event {
        let payload = Value::Text("x".repeat(payload));
        Event {
            number,
            time_ms: 1_764_000_000_000,
            name: "message.published",
            fields: vec![
                ("client_id", Value::Text(client.into())),
                ("payload", payload),
            ],
        }
    }

    fn kafka() -> Kafka {
        let destination = KafkaDestination {
            brokers: vec!["127.0.0.1:1".into()],
            topic: "events".into(),
            tls: None,
            login: None,
        };
        let origin = Origin {
            node: "n1".into(),
            hook: "test".into(),
            run: "r".into(),
        };
        Kafka::new(destination, origin).expect("a runtime")
    }

    fn numbers(events: &[Event]) -> Vec<u64> {
        events.iter().map(|it| it.number).collect()
    }

    #[test]
    fn partitions_are_those_that_kafkas_own_producers_choose() {
        // From the tests of Kafka's `Utils.murmur2`, less the sign.
        for (key, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
        ] {
            let expected = (hash & 0x7fff_ffff) % 1000;
            assert_eq!(partition_of(key.as_bytes(), 1000), expected, "{key}");
        }
    }

    #[test]
    fn a_request_has_events_of_one_partition_in_their_order() {
        let (one, other) = ("21", "foobar");
        assert_ne!(
            partition_of(one.as_bytes(), 4),
            partition_of(other.as_bytes(), 4)
        );
        let clients = [one, other, one, other, one];
        let events = clients.iter().zip(1..);
        let mut events: Vec<_> = events.map(|(client, it)| event(it, client, 1)).collect();
        let (partition, count, _) = kafka().gather(&mut events, 4);
        assert_eq!((partition, count), (partition_of(one.as_bytes(), 4), 3));
        assert_eq!(numbers(&events), [1, 3, 5, 2, 4]);
    }

    #[test]
    fn a_request_is_bounded_and_no_event_overtakes_one_of_its_client() {
        let mut events = vec![
            event(1, "a", 300_000),
            event(2, "a", 300_000),
            event(3, "a", 1),
        ];
        let (_, count, _) = kafka().gather(&mut events, 4);
        assert_eq!((count, numbers(&events)), (1, vec![1, 2, 3]));
        // An event larger than any request is sent alone.
        let mut events = vec![event(1, "a", 2_000_000), event(2, "a", 1)];
        assert_eq!(kafka().gather(&mut events, 4).1, 1);
    }

    #[test]
    fn a_broker_that_is_not_there_is_a_temporary_failure_that_names_it() {
        let mut batch = Batch {
            sequence: 1,
            events: vec![event(1, "a", 1), event(2, "b", 1)],
        };
        let sent = kafka().send(&mut batch, Duration::from_secs(5));
        let Err(Failure::Temporary(reason)) = sent.outcome else {
            panic!("{:?}", sent.outcome);
        };
        assert!(reason.contains("127.0.0.1:1"), "{reason}");
        assert_eq!(sent.count, 2);
    }

    #[test]
    fn a_record_has_the_client_as_its_key_and_the_event_as_its_value() {
        let made = record(&event(7, "lamp", 1), &kafka().origin);
        assert_eq!(made.key.as_deref(), Some(b"lamp".as_slice()));
        let value: serde_json::Value =
            serde_json::from_slice(&made.value.expect("a value")).expect("JSON");
        assert_eq!(value, event(7, "lamp", 1).to_json("r"));
        assert_eq!(made.headers["node"], b"n1");
        assert_eq!(made.timestamp.timestamp_millis(), 1_764_000_000_000);
        let of_node = Event {
            fields: Vec::new(),
            ..event(8, "", 1)
        };
        assert_eq!(record(&of_node, &kafka().origin).key, None);
    }
}
