//! How long the certificates of a node still hold: in the log, in the metrics and when the configuration is checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thicket_transport::tls::Validity;

use crate::config::Config;

/// From here on the log warns.
pub const SOON_DAYS: i64 = 30;
/// Time between two warnings about the same.
const REPEAT: Duration = Duration::from_secs(12 * 3600);

/// A file of certificates, and how long they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateDays {
    /// The key that names the file.
    pub key: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Days left; less than 0: they have expired.
    pub days: i64,
}

/// The files as they were when the node read them last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Certificates(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    files: BTreeMap<PathBuf, &'static str>,
    read: BTreeMap<PathBuf, Validity>,
}

impl Certificates {
    pub(crate) fn new(config: &Config) -> Self {
        let files = files(config);
        let certificates = Self(Arc::new(Mutex::new(Known {
            files,
            read: BTreeMap::new(),
        })));
        certificates.read_again();
        certificates
    }

    /// The node uses the files as they are now.
    pub(crate) fn read_again(&self) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for path in known.files.keys().cloned().collect::<Vec<_>>() {
            // One that cannot be read now has been complained of, and the node goes on with what it had.
            if let Ok(validity) = Validity::of_file(&path) {
                known.read.insert(path, validity);
            }
        }
    }

    /// By file.
    pub(crate) fn days(&self) -> Vec<CertificateDays> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = since_1970();
        let read = known.read.iter();
        read.map(|(path, validity)| CertificateDays {
            key: known.files[path],
            path: path.clone(),
            days: validity.days_left(now),
        })
        .collect()
    }
}

/// Files of certificates that the node shows or believes, with the key that names each.
fn files(config: &Config) -> BTreeMap<PathBuf, &'static str> {
    let mut files = BTreeMap::new();
    for tls in config.listeners.iter().filter_map(|it| it.tls.as_ref()) {
        files.insert(tls.certificate.clone(), "tls_certificate");
    }
    if let Some(tls) = &config.link_tls {
        files.insert(tls.certificate.clone(), "link_tls_certificate");
        files.insert(tls.authority.clone(), "link_tls_ca");
    }
    files
}

/// How long the certificates that a configuration names still hold.
#[must_use]
pub fn certificate_days(config: &Config) -> Vec<CertificateDays> {
    Certificates::new(config).days()
}

fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Warns of certificates that end soon, again and again.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    due: Option<Instant>,
}

impl Watch {
    pub(crate) fn look(&mut self, now: Instant, certificates: &Certificates) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        self.due = Some(now + REPEAT);
        for CertificateDays { key, path, days } in certificates.days() {
            let file = path.display();
            if days < 0 {
                tracing::error!(key, %file, days, "a certificate has expired: replace it, then reload");
            } else if days <= SOON_DAYS {
                tracing::warn!(key, %file, days, "a certificate expires soon: replace it, then reload");
            }
        }
    }
}
