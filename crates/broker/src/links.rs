//! The protection of links between nodes, shared by all threads and read again at a reload.
//!
//! With a cluster secret, or with certificates from files, each link is TLS and both ends prove that they belong to the cluster. Whenever the keys
//! change, existing links are checked against them: a link that would not be accepted now is closed and dialled again.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thicket_overlay::KeyId;
use thicket_transport::tls::rustls;
use thicket_transport::tls::{AnnouncementKey, ClusterKey, LinkKeys, LinkTls, TlsError};

use crate::allowance::Allowance;
use crate::config::{ClusterSecret, ConfigError};
use crate::readiness::LastRefusal;

/// Links that others may begin in a second, valid or not: a handshake takes 0.2 ms, so at most a tenth of one core.
const HANDSHAKES_PER_S: u32 = 500;

/// The keys and certificates between the nodes of a cluster, and where they come from.
#[derive(Debug)]
pub(crate) struct Links {
    certificates: Option<LinkTls>,
    secret: Option<ClusterSecret>,
    in_use: Mutex<Arc<Trust>>,
    /// Limits handshakes of links at listeners for clients.
    handshakes: Mutex<Allowance>,
    lines: Mutex<Allowance>,
    last_refusal: LastRefusal,
}

/// The keys and certificates at one time.
#[derive(Debug)]
pub(crate) struct Trust {
    pub(crate) keys: LinkKeys,
    /// The first signs this node's announcements, all are accepted; empty: announcements are not signed.
    pub(crate) announcements: Vec<AnnouncementKey>,
}

/// The keys by which the two ends of a link authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) own: Option<[u8; 4]>,
    pub(crate) other: [u8; 4],
}

/// The files cannot be read again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    #[error(transparent)]
    Secret(#[from] ConfigError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Links {
    /// `None`: neither secret nor certificates, so links are plain.
    pub(crate) fn new(
        certificates: Option<LinkTls>,
        secret: Option<ClusterSecret>,
        last_refusal: LastRefusal,
    ) -> Result<Option<Arc<Self>>, TlsError> {
        if certificates.is_none() && secret.is_none() {
            return Ok(None);
        }
        let trust = Trust::new(certificates.as_ref(), secret.as_ref())?;
        Ok(Some(Arc::new(Self {
            certificates,
            secret,
            in_use: Mutex::new(Arc::new(trust)),
            handshakes: Mutex::new(Allowance::new(HANDSHAKES_PER_S, Duration::from_secs(1))),
            lines: Mutex::new(Allowance::of_lines()),
            last_refusal,
        })))
    }

    /// Its name in the log for reloads.
    pub(crate) const fn name(&self) -> &'static str {
        match (&self.certificates, &self.secret) {
            (Some(_), None) => "certificate of links",
            (None, _) => "cluster secret",
            (Some(_), Some(_)) => "certificate of links and cluster secret",
        }
    }

    /// What to look at when the two ends of a link do not trust each other.
    pub(crate) const fn question(&self) -> &'static str {
        match self.certificates {
            Some(_) => "do both nodes have certificates of the authority in `link_tls_ca`?",
            None => "is `cluster_secret_file` the same on both nodes?",
        }
    }

    /// Whether links are accepted at listeners for clients: those with certificates have their own listeners.
    pub(crate) const fn come_in_with_clients(&self) -> bool {
        self.certificates.is_none()
    }

    /// The current keys and certificates.
    pub(crate) fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.in_use.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again. It is slow: not for a worker's thread.
    ///
    /// # Errors
    /// A file is not valid; the keys in use stay.
    pub(crate) fn reload(&self) -> Result<(), ReloadError> {
        let again = |secret: &ClusterSecret| ClusterSecret::from_file(secret.path());
        let secret = self.secret.as_ref().map(again).transpose()?;
        let fresh = Trust::new(self.certificates.as_ref(), secret.as_ref())?;
        *self.in_use.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        Ok(())
    }

    /// Whether one more link may begin at a listener for clients. A handshake costs a hundred times what it costs to request one.
    pub(crate) fn may_begin(&self) -> bool {
        let mut handshakes = self
            .handshakes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        handshakes.take().is_some()
    }

    /// Logs why a link has failed, and keeps it for `/v1/health/ready`.
    pub(crate) fn complain(&self, peer: &str, error: Option<&io::Error>, message: &str) {
        let cause = error.map(|error| format!(": {error}")).unwrap_or_default();
        self.last_refusal.set(&format!("{message} ({peer}){cause}"));
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left_out) = lines.take() {
            let left_out = (left_out > 0).then_some(left_out);
            let error = error.map(tracing::field::display);
            tracing::warn!(peer, error, left_out, "{message}");
        }
    }
}

impl Trust {
    fn new(
        certificates: Option<&LinkTls>,
        secret: Option<&ClusterSecret>,
    ) -> Result<Self, TlsError> {
        let secrets = secret.map(ClusterSecret::secrets).unwrap_or_default();
        let keys: Vec<ClusterKey> = secrets
            .iter()
            .map(|secret| ClusterKey::derive(secret))
            .collect::<Result<_, _>>()?;
        let announcements = keys.iter().map(|key| key.announcements().clone());
        Ok(Self {
            announcements: announcements.collect(),
            keys: match certificates {
                Some(files) => LinkKeys::of_files(files)?,
                None => LinkKeys::of_secrets(&keys)?,
            },
        })
    }

    /// The key by which this node authenticates.
    pub(crate) fn own(&self) -> Option<KeyId> {
        self.keys.own().map(KeyId)
    }

    /// The keys by which the ends of a link authenticated that began with this.
    pub(crate) fn proof(&self, shown: &[rustls::pki_types::CertificateDer<'_>]) -> Option<Proof> {
        let (own, other) = (self.keys.own(), self.keys.key_of(shown)?);
        Some(Proof { own, other })
    }

    /// Whether a link with this proof would be accepted now.
    pub(crate) fn allows(&self, proof: Proof) -> bool {
        proof.own == self.keys.own() && self.keys.accepts(proof.other)
    }
}
