//! What a setting may be where it is one of a few words.

use clap::ValueEnum;
use serde::Deserialize;

/// A way to find other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiscoverChoice {
    /// Announcements by UDP multicast
    Multicast,
    /// Every address of the names in `dns_name`
    Dns,
    /// Seeds only
    Off,
}

/// What becomes of a message when the queue of a session is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFullChoice {
    /// The session does not get it, all others do; it is counted
    Drop,
    /// Nobody gets it, and its publisher gets 0x97 (before MQTT 5.0 no acknowledgement and a closed connection)
    Refuse,
}

/// Whose a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionScopeChoice {
    /// The user's: another user with the same client identifier has a session of its own
    User,
    /// Anyone's who connects with the client identifier
    Client,
}

impl From<SessionScopeChoice> for thicket_node::SessionScope {
    fn from(choice: SessionScopeChoice) -> Self {
        match choice {
            SessionScopeChoice::User => Self::User,
            SessionScopeChoice::Client => Self::Client,
        }
    }
}

impl From<OnFullChoice> for thicket_node::OnFull {
    fn from(choice: OnFullChoice) -> Self {
        match choice {
            OnFullChoice::Drop => Self::Drop,
            OnFullChoice::Refuse => Self::Refuse,
        }
    }
}

/// Whether clients are sent to other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectChoice {
    /// Clients are served by the node that they connect to
    Off,
    /// To nodes with less load
    Load,
    /// Placed clients to the nodes where their topics are, the others by load
    Topics,
}

/// Whether connected clients are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RebalanceChoice {
    /// They are not moved
    Off,
    /// Moves are planned and reported; an operator starts them
    Suggest,
    /// They are moved
    On,
}

impl From<RebalanceChoice> for thicket_node::RebalanceMode {
    fn from(choice: RebalanceChoice) -> Self {
        match choice {
            RebalanceChoice::Off => Self::Off,
            RebalanceChoice::Suggest => Self::Suggest,
            RebalanceChoice::On => Self::On,
        }
    }
}

/// What of a node's load counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectPolicyChoice {
    /// CPU of its process
    Cpu,
    /// Messages from and to clients
    Messages,
    /// Connected clients
    Connections,
    /// All three, messages weighted most
    Combined,
}

impl From<RedirectPolicyChoice> for thicket_placement::Policy {
    fn from(choice: RedirectPolicyChoice) -> Self {
        match choice {
            RedirectPolicyChoice::Cpu => Self::Cpu,
            RedirectPolicyChoice::Messages => Self::Messages,
            RedirectPolicyChoice::Connections => Self::Connections,
            RedirectPolicyChoice::Combined => Self::Combined,
        }
    }
}

/// Whether the process of a node gives up rights that it does not need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxChoice {
    /// As far as the kernel can: it writes only below its directories and executes nothing
    #[default]
    Auto,
    /// It may do what its user may
    Off,
}

/// Lowest level of lines in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Errors of the node
    Error,
    /// Also errors of clients and other nodes
    Warn,
    /// Also normal events, such as connects and disconnects
    Info,
    /// Also single packets and other details
    Debug,
    /// Everything
    Trace,
}

/// How lines of the log look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text
    Text,
    /// One JSON object per line
    Json,
}

/// What a side of the cluster does that does not see all of it (rule 19 between nodes). The same on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionChoice {
    /// Every side serves
    Serve,
    /// A side serves if it reaches more than half of all nodes that ever joined and were not removed by `thicket ctl forget`
    Majority,
    /// As `majority`, of nodes that store nothing: each start may add a member
    MajorityWithoutData,
}

impl From<PartitionChoice> for thicket_node::Partition {
    fn from(choice: PartitionChoice) -> Self {
        match choice {
            PartitionChoice::Serve => Self::Serve,
            PartitionChoice::Majority | PartitionChoice::MajorityWithoutData => Self::Majority,
        }
    }
}

/// What answers to clients wait for (rule 8 between nodes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Acknowledgement {
    /// The backups of the client's session have it too
    #[default]
    Replicated,
    /// This node and the nodes with matching subscriptions have it
    Local,
}

/// What bytes travel on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportChoice {
    /// Plain TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// WebSocket over TCP.
    Ws,
    /// WebSocket over TLS.
    Wss,
    /// A Unix socket.
    Unix,
    /// TLS between nodes: no clients.
    Link,
}

/// Whether clients show certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificateChoice {
    /// The node does not ask for one
    Off,
    /// The node asks for one, and accepts clients without
    Optional,
    /// A client without one is refused
    Required,
}

/// What becomes of a client when the hook does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Refuse it with 0x88 (server unavailable): it may try again
    #[default]
    Unavailable,
    /// Refuse it with 0x87 (not authorized)
    Deny,
    /// Accept it under the user name that it gives, with the rights of the ACL
    Allow,
}

impl OnFailure {
    /// Its name in the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}

/// How tokens are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
pub enum AlgorithmChoice {
    /// HMAC with SHA-256 and a shared secret.
    #[value(name = "HS256")]
    #[serde(rename = "HS256")]
    Hs256,
    /// RSA with SHA-256.
    #[value(name = "RS256")]
    #[serde(rename = "RS256")]
    Rs256,
    /// ECDSA with P-256 and SHA-256.
    #[value(name = "ES256")]
    #[serde(rename = "ES256")]
    Es256,
    /// Ed25519.
    #[value(name = "EdDSA")]
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// Protocol version of the connection to the other broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum BridgeVersion {
    /// MQTT 3.1.1.
    #[serde(rename = "3.1.1")]
    V311,
    /// MQTT 5.0.
    #[default]
    #[serde(rename = "5.0")]
    V5,
}

/// The direction in which a rule carries messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BridgeDirection {
    /// To this node.
    In,
    /// From this node.
    Out,
    /// Both ways.
    Both,
}

/// A kind of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookKind {
    /// Clients that connect or are refused.
    Connect,
    /// Clients that disconnect.
    Disconnect,
    /// Subscriptions.
    Subscribe,
    /// Subscriptions that end.
    Unsubscribe,
    /// Messages on topics that match `filters`.
    Publish,
    /// Sessions that begin, end, move or fail over.
    Session,
    /// Nodes and partitions.
    Cluster,
}

/// A SASL mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum KafkaSasl {
    /// The password in clear text; only over TLS.
    #[serde(rename = "plain")]
    Plain,
    /// SCRAM-SHA-256.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// SCRAM-SHA-512.
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}
