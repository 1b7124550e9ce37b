//! The configuration of a bridge.

use std::time::Duration;

use thicket_mqtt::ProtocolVersion;

use crate::Rule;

/// The configuration of a bridge. [`BridgeConfig::new`] has the defaults.
#[derive(Debug, Clone)]
pub struct BridgeConfig {
    /// The value of the user property `thicket-bridge` on messages that have crossed. Unique, except for bridges that replace each other.
    pub id: String,
    /// Rules; the first that matches a topic applies.
    pub rules: Vec<Rule>,
    /// The session with the node, always 5.0.
    pub local: SideConfig,
    /// The session with the other broker.
    pub remote: SideConfig,
    /// Limits of the queue of each direction.
    pub bounds: Bounds,
    /// How long sent messages are remembered so that their echoes are recognised; 0: not at all.
    pub memory: Duration,
    /// How many messages are remembered in each direction.
    pub memory_messages: usize,
    /// How often the same message may be sent within that time if it may have come round a ring: see [`super`].
    pub ring_repeats: u32,
    /// The longest wait between two attempts to connect; the first is [`FIRST_RETRY`].
    pub longest_retry: Duration,
}

/// The first wait between two attempts to connect; it doubles with each further one.
pub const FIRST_RETRY: Duration = Duration::from_millis(250);

/// The session of a bridge with one of its brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideConfig {
    /// Protocol version.
    pub version: ProtocolVersion,
    /// Client identifier: the same at every start, so that the session is resumed.
    pub client_id: String,
    /// User name.
    pub user_name: Option<String>,
    /// Password.
    pub password: Option<Vec<u8>>,
    /// Keep Alive in seconds, 0: off.
    pub keep_alive: u16,
    /// How long the broker keeps the session without the bridge, in seconds (5.0).
    pub session_expiry_interval: u32,
}

/// Limits of a queue: messages that wait, and those sent and not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Messages, at least 1.
    pub messages: usize,
    /// Their bytes, including the bridge's own data about each.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            messages: 10_000,
            bytes: 16 << 20,
        }
    }
}

impl BridgeConfig {
    /// A bridge that marks messages with `id`, to a broker of this version.
    #[must_use]
    pub fn new(id: impl Into<String>, version: ProtocolVersion, rules: Vec<Rule>) -> Self {
        let id = id.into();
        let client_id = format!("thicket-bridge/{id}");
        Self {
            rules,
            local: SideConfig::new(ProtocolVersion::V5, &client_id),
            remote: SideConfig::new(version, &client_id),
            bounds: Bounds::default(),
            memory: Duration::from_secs(30),
            memory_messages: 10_000,
            ring_repeats: 20,
            longest_retry: Duration::from_secs(30),
            id,
        }
    }
}

impl SideConfig {
    /// A session without a login that lasts a week without the bridge.
    #[must_use]
    pub fn new(version: ProtocolVersion, client_id: impl Into<String>) -> Self {
        Self {
            version,
            client_id: client_id.into(),
            user_name: None,
            password: None,
            keep_alive: 60,
            session_expiry_interval: 7 * 24 * 3600,
        }
    }
}
