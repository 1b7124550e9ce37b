//! The destinations of a hook.

use std::fmt;
use std::path::PathBuf;

use thicket_transport::tls::ClientTls;

/// The destination of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// An HTTP receiver.
    Http(HttpDestination),
    /// A topic of Kafka; [`crate::HAS_KAFKA`]: whether this program supports it.
    Kafka(KafkaDestination),
}

/// An HTTP receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpDestination {
    /// `http://` or `https://`.
    pub url: String,
    /// Key of the signature; `None`: requests are not signed.
    pub secret: Option<Vec<u8>>,
    /// PEM file of the authorities that the certificate of an `https` receiver is checked against; `None`: those the system trusts.
    pub authorities: Option<PathBuf>,
}

impl HttpDestination {
    /// A receiver whose requests are not signed.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            secret: None,
            authorities: None,
        }
    }
}

/// A topic of Kafka.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaDestination {
    /// `HOST:PORT` of brokers from which the others are discovered; at least one.
    pub brokers: Vec<String>,
    /// The topic that receives the records. It is not created.
    pub topic: String,
    /// `None`: connections are not encrypted.
    pub tls: Option<ClientTls>,
    /// `None`: the node does not authenticate.
    pub login: Option<KafkaLogin>,
}

/// How a node authenticates to Kafka.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaLogin {
    /// The SASL mechanism.
    pub mechanism: KafkaMechanism,
    /// Name of the user.
    pub user: String,
    /// Never printed.
    pub password: String,
}

/// A SASL mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KafkaMechanism {
    /// The password is sent in clear text.
    Plain,
    /// SCRAM-SHA-256.
    ScramSha256,
    /// SCRAM-SHA-512.
    ScramSha512,
}

impl fmt::Debug for KafkaLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaLogin")
            .field("mechanism", &self.mechanism)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
