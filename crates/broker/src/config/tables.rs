//! The tables of the file as people write them: listeners, tenants, bridges with their rules, and hooks. They have no flags.

use std::path::PathBuf;

use serde::Deserialize;

use super::choices::{
    BridgeDirection, BridgeVersion, ClientCertificateChoice, HookKind, KafkaSasl, TransportChoice,
};
use super::units;

/// A table `[[listener]]`; `None` means the key is absent and the node's value applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerSettings {
    /// HOST:PORT, or the path of a Unix socket; any form of `listen` is accepted.
    pub address: Option<String>,
    /// The transport under MQTT.
    pub transport: Option<TransportChoice>,
    /// PEM: the certificate chain.
    pub tls_certificate: Option<PathBuf>,
    /// PEM: the key of the certificate.
    pub tls_key: Option<PathBuf>,
    /// PEM: authorities whose clients are trusted.
    pub tls_client_ca: Option<PathBuf>,
    /// Whether clients must present certificates.
    pub tls_client_certificate: Option<ClientCertificateChoice>,
    /// Path of the WebSocket.
    pub websocket_path: Option<String>,
    /// Longest frame accepted, bytes.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub websocket_frame_bytes: Option<u64>,
    /// Connections start with a PROXY header.
    pub proxy_protocol: Option<bool>,
    /// Put before every topic and filter of its clients.
    pub topic_prefix: Option<String>,
    /// Whether clients without a user name are let in.
    pub allow_anonymous: Option<bool>,
    /// Its own file of users.
    pub users: Option<PathBuf>,
    /// Whether the name in a client's verified certificate is its user name.
    pub certificate_users: Option<bool>,
    /// Connections at a time.
    pub connections: Option<u32>,
    /// New connections a second.
    pub connections_per_s: Option<u32>,
    /// Messages that all its clients together may publish in a second.
    pub messages_per_s: Option<u32>,
    /// The same for bytes of topics and payloads.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub bytes_per_s: Option<u32>,
    /// Messages that one of its clients may publish in a second.
    pub client_messages_per_s: Option<u32>,
    /// The same for bytes of topics and payloads.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub client_bytes_per_s: Option<u32>,
    /// Largest packet accepted, bytes.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub maximum_packet_size: Option<u32>,
    /// HOST:PORT where clients reach it, if that differs from where it listens.
    pub advertise: Option<String>,
}

impl ListenerSettings {
    /// The keys of a table, to suggest one for a misspelt key.
    pub(super) const KEYS: [&str; 21] = [
        "address",
        "transport",
        "tls_certificate",
        "tls_key",
        "tls_client_ca",
        "tls_client_certificate",
        "websocket_path",
        "websocket_frame_bytes",
        "proxy_protocol",
        "topic_prefix",
        "allow_anonymous",
        "users",
        "certificate_users",
        "connections",
        "connections_per_s",
        "messages_per_s",
        "bytes_per_s",
        "client_messages_per_s",
        "client_bytes_per_s",
        "maximum_packet_size",
        "advertise",
    ];
}

/// A table `[[tenant]]`; `None` means the key is absent, and a bound that is absent is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantSettings {
    /// As that of its listeners.
    pub topic_prefix: Option<String>,
    /// Sessions at a node.
    pub sessions: Option<u32>,
    /// Bytes queued for them at a node.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub queue_bytes: Option<u64>,
    /// Retained messages in its topics.
    pub retained_messages: Option<u64>,
    /// Their bytes.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub retained_bytes: Option<u64>,
}

impl TenantSettings {
    /// The keys of a table, to suggest one for a misspelt key.
    pub(super) const KEYS: [&str; 5] = [
        "topic_prefix",
        "sessions",
        "queue_bytes",
        "retained_messages",
        "retained_bytes",
    ];
}

/// A table `[[bridge]]`; `None` means the key is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BridgeSettings {
    /// Name of this bridge, unique within a node.
    pub name: Option<String>,
    /// HOST:PORT of the other broker, with tls://, ws:// or wss:// before it for more than TCP.
    pub address: Option<String>,
    /// PEM: authorities whose certificate the other broker must show; by default those the system trusts.
    pub tls_ca: Option<PathBuf>,
    /// PEM: certificate to show to the other broker.
    pub tls_certificate: Option<PathBuf>,
    /// PEM: its key.
    pub tls_key: Option<PathBuf>,
    /// Protocol version of the connection to the other broker.
    pub version: Option<BridgeVersion>,
    /// Marks messages that have crossed; bridges that replace each other have the same.
    pub id: Option<String>,
    /// Client identifier at the other broker.
    pub client_id: Option<String>,
    /// User name at the other broker.
    pub user: Option<String>,
    /// File with the password there.
    pub password_file: Option<PathBuf>,
    /// User name at this node.
    pub local_user: Option<String>,
    /// File with the password here.
    pub local_password_file: Option<PathBuf>,
    /// Keep Alive on both sides, seconds.
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub keep_alive_s: Option<u16>,
    /// How long both brokers keep the session without the bridge (5.0), seconds.
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub session_expiry_s: Option<u32>,
    /// The longest wait between two attempts to connect, seconds.
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub reconnect_maximum_s: Option<u64>,
    /// Messages under way in each direction.
    pub queue_messages: Option<usize>,
    /// Their bytes.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub queue_bytes: Option<usize>,
    /// How long sent messages are remembered so that their echoes are recognised, seconds.
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub memory_s: Option<u64>,
    /// How often the same message may be sent in that time if it may have come round a ring.
    pub ring_repeats: Option<u32>,
    /// The rules for what crosses.
    pub rule: Vec<BridgeRuleSettings>,
}

impl BridgeSettings {
    /// The keys of a table, to suggest one for a misspelt key.
    pub(super) const KEYS: [&str; 20] = [
        "name",
        "address",
        "tls_ca",
        "tls_certificate",
        "tls_key",
        "version",
        "id",
        "client_id",
        "user",
        "password_file",
        "local_user",
        "local_password_file",
        "keep_alive_s",
        "session_expiry_s",
        "reconnect_maximum_s",
        "queue_messages",
        "queue_bytes",
        "memory_s",
        "ring_repeats",
        "rule",
    ];
}

/// A table `[[bridge.rule]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BridgeRuleSettings {
    /// Filter after the prefixes.
    pub topic: Option<String>,
    /// The direction, seen from this node.
    pub direction: Option<BridgeDirection>,
    /// Prefix of the topic here.
    pub local_prefix: Option<String>,
    /// Prefix of the topic there.
    pub remote_prefix: Option<String>,
    /// The highest QoS of a message that crosses.
    pub qos: Option<u8>,
    /// Whether RETAIN is kept.
    pub retain: Option<bool>,
}

impl BridgeRuleSettings {
    /// The keys of a table, to suggest one for a misspelt key.
    pub(super) const KEYS: [&str; 6] = [
        "topic",
        "direction",
        "local_prefix",
        "remote_prefix",
        "qos",
        "retain",
    ];
}

/// A table `[[hook]]`; `None` means the key is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HookSettings {
    /// Name of this hook, unique within a node.
    pub name: Option<String>,
    /// Where events are posted.
    pub url: Option<String>,
    /// The kinds of events.
    pub events: Vec<HookKind>,
    /// Filters of topics whose messages become events of the kind `publish`.
    pub filters: Vec<String>,
    /// File with the key of the signature.
    pub secret_file: Option<PathBuf>,
    /// PEM file of the authorities that the receiver's certificate is checked against.
    pub ca_file: Option<PathBuf>,
    /// HOST:PORT of Kafka brokers, instead of a URL.
    pub kafka_brokers: Vec<String>,
    /// The topic that receives the records.
    pub kafka_topic: Option<String>,
    /// Whether connections to Kafka are encrypted.
    pub kafka_tls: Option<bool>,
    /// How the node authenticates to Kafka.
    pub kafka_sasl: Option<KafkaSasl>,
    /// The node's user name there.
    pub kafka_user: Option<String>,
    /// File with the node's password there.
    pub kafka_password_file: Option<PathBuf>,
    /// Most events in a request.
    pub batch: Option<usize>,
    /// Most events that wait.
    pub queue_events: Option<usize>,
    /// Their bytes.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub queue_bytes: Option<usize>,
    /// How long a request may take, milliseconds.
    #[serde(deserialize_with = "units::millis_of_file")]
    pub timeout_ms: Option<u64>,
    /// How often a batch is sent before it is a dead letter.
    pub attempts: Option<u32>,
    /// The longest wait between two attempts, seconds.
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub retry_maximum_s: Option<u64>,
    /// File for events that could not be delivered.
    pub dead_letters: Option<PathBuf>,
    /// Bytes of that file before it is rotated.
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub dead_letter_bytes: Option<u64>,
}

impl HookSettings {
    /// The keys of a table, to suggest one for a misspelt key.
    pub(super) const KEYS: [&str; 20] = [
        "name",
        "url",
        "events",
        "filters",
        "secret_file",
        "ca_file",
        "kafka_brokers",
        "kafka_topic",
        "kafka_tls",
        "kafka_sasl",
        "kafka_user",
        "kafka_password_file",
        "batch",
        "queue_events",
        "queue_bytes",
        "timeout_ms",
        "attempts",
        "retry_maximum_s",
        "dead_letters",
        "dead_letter_bytes",
    ];
}
