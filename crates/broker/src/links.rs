//! What links between nodes are protected by, shared by all threads and read again at a reload.
//!
//! With a cluster's secret, or with certificates from files, each link is TLS and both ends prove that they belong to the cluster. What
//! a link was proved by is compared with what holds now whenever that changes: one that would not come about any more ends, and is
//! dialled again.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thicket_overlay::KeyId;
use thicket_transport::tls::rustls;
use thicket_transport::tls::{AnnouncementKey, ClusterKey, LinkKeys, LinkTls, TlsError};

use crate::allowance::Allowance;
use crate::config::{ClusterSecret, ConfigError};
use crate::gate::Seat;
use crate::layers::{Layered, Tls};
use crate::transport::{Stream, Transport};

/// Links that others may begin in a second, be they good or not: a handshake takes 0.2 ms, so a tenth of one core at most.
const HANDSHAKES_PER_S: u32 = 500;

/// The trust between the nodes of a cluster, and where it comes from.
#[derive(Debug)]
pub(crate) struct Links {
    certificates: Option<LinkTls>,
    secret: Option<ClusterSecret>,
    in_use: Mutex<Arc<Trust>>,
    /// Handshakes of those who dial this node where clients come in.
    handshakes: Mutex<Allowance>,
    lines: Mutex<Allowance>,
}

/// What holds at a time.
#[derive(Debug)]
pub(crate) struct Trust {
    keys: LinkKeys,
    /// The first signs this node's announcements, all are believed; none: announcements are not signed.
    pub(crate) announcements: Vec<AnnouncementKey>,
}

/// By which keys the two ends of a link proved themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) own: Option<[u8; 4]>,
    pub(crate) other: [u8; 4],
}

/// What protects links cannot be read again.
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
        })))
    }

    /// What it is called in the log when it is read again.
    pub(crate) const fn name(&self) -> &'static str {
        match (&self.certificates, &self.secret) {
            (Some(_), None) => "certificate of links",
            (None, _) => "cluster secret",
            (Some(_), Some(_)) => "certificate of links and cluster secret",
        }
    }

    /// Whether links come in where clients do: those with certificates have listeners of their own.
    pub(crate) const fn come_in_with_clients(&self) -> bool {
        self.certificates.is_none()
    }

    /// What holds now.
    pub(crate) fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.in_use.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads files again. Takes a while: not for a thread that serves.
    ///
    /// # Errors
    /// A file is no good; what is in use stays.
    pub(crate) fn reload(&self) -> Result<(), ReloadError> {
        let again = |secret: &ClusterSecret| ClusterSecret::from_file(secret.path());
        let secret = self.secret.as_ref().map(again).transpose()?;
        let fresh = Trust::new(self.certificates.as_ref(), secret.as_ref())?;
        *self.in_use.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        Ok(())
    }

    /// Puts TLS over a socket that is being connected to another node.
    pub(crate) fn dial(self: &Arc<Self>, stream: Stream) -> io::Result<Transport> {
        let trust = self.trust();
        let tls = Tls::towards_node(trust.keys.client())?;
        let link = Layered::link(stream, None, tls, (Arc::clone(self), trust));
        Ok(Transport::Layered(Box::new(link)))
    }

    /// The same over one that another node has connected; `early` was read of it already.
    pub(crate) fn accept(
        self: &Arc<Self>,
        stream: Stream,
        seat: Seat,
        early: &[u8],
    ) -> io::Result<Transport> {
        let trust = self.trust();
        let tls = Tls::new(trust.keys.server())?;
        let mut link = Layered::link(stream, Some(seat), tls, (Arc::clone(self), trust));
        link.put_back(early);
        Ok(Transport::Layered(Box::new(link)))
    }

    /// Whether one more may begin a link where clients come in. A handshake costs a hundred times what it costs to ask for one.
    pub(crate) fn may_begin(&self) -> bool {
        let mut handshakes = self
            .handshakes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        handshakes.take().is_some()
    }

    /// Says in the log why a link has come to nothing.
    pub(crate) fn complain(&self, peer: &str, error: Option<&io::Error>, message: &str) {
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

    /// The key this node proves itself by.
    pub(crate) fn own(&self) -> Option<KeyId> {
        self.keys.own().map(KeyId)
    }

    /// By which keys the ends of a link proved themselves that began with this.
    pub(crate) fn proof(&self, shown: &[rustls::pki_types::CertificateDer<'_>]) -> Option<Proof> {
        let (own, other) = (self.keys.own(), self.keys.key_of(shown)?);
        Some(Proof { own, other })
    }

    /// Whether a link with this proof could come about now.
    pub(crate) fn allows(&self, proof: Proof) -> bool {
        proof.own == self.keys.own() && self.keys.accepts(proof.other)
    }
}
