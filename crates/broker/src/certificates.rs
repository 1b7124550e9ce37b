//! How long the certificates of a node are still valid: for the log, the metrics and the check of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thicket_hooks::Destination;
use thicket_transport::tls::Validity;

use crate::config::Config;

/// The log warns when fewer days are left.
pub const SOON_DAYS: i64 = 30;
/// Time between two warnings about the same file.
const REPEAT: Duration = Duration::from_secs(12 * 3600);

/// A file of certificates, and how long they are valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateDays {
    /// The key that names the file.
    pub key: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Whole days left; less than 0: they have expired.
    pub days: i64,
    /// The same in seconds.
    pub seconds: i64,
    /// Days until it is valid; 0: it has been.
    pub days_to_wait: i64,
}

/// The files as the node last read them.
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

    /// Reads the files again, because the node has reloaded them.
    pub(crate) fn read_again(&self) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for path in known.files.keys().cloned().collect::<Vec<_>>() {
            // For a file that cannot be read now the error was logged, and the node still uses its old content.
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
        read.map(|(path, validity)| {
            let seconds = validity.seconds_left(now);
            CertificateDays {
                key: known.files[path],
                path: path.clone(),
                days: seconds.div_euclid(24 * 3600),
                seconds,
                days_to_wait: validity.days_to_wait(now),
            }
        })
        .collect()
    }
}

/// Files of certificates that the node presents or trusts, with the key that names each. A file that several keys name counts for the first.
fn files(config: &Config) -> BTreeMap<PathBuf, &'static str> {
    let mut named: Vec<(&'static str, Option<&PathBuf>)> = Vec::new();
    let listeners = || config.listeners.iter().filter_map(|it| it.tls.as_ref());
    named.extend(listeners().map(|tls| ("tls_certificate", Some(&tls.certificate))));
    if let Some(tls) = &config.link_tls {
        named.push(("link_tls_certificate", Some(&tls.certificate)));
        named.push(("link_tls_ca", Some(&tls.authority)));
    }
    named.extend(listeners().map(|tls| ("tls_client_ca", tls.client_authorities.as_ref())));
    let access = &config.access;
    let of_hook = access.hook.as_ref().and_then(|it| it.authorities.as_ref());
    named.push(("auth_hook_ca", of_hook));
    let provider = access.provider.as_ref();
    named.push(("jwt_ca", provider.and_then(|it| it.authorities.as_ref())));
    named.extend(config.hooks.iter().map(|hook| {
        let authorities = match &hook.config.destination {
            Destination::Http(http) => http.authorities.as_ref(),
            Destination::Kafka(kafka) => {
                let tls = kafka.tls.as_ref();
                tls.and_then(|tls| tls.authorities.as_ref())
            }
        };
        ("hook.ca_file", authorities)
    }));
    let of_bridges = || {
        let bridges = config.bridges.iter();
        bridges.filter_map(|bridge| bridge.address.tls.as_ref())
    };
    named.extend(of_bridges().map(|tls| ("bridge.tls_ca", tls.authorities.as_ref())));
    let shown = of_bridges().map(|tls| tls.identity.as_ref().map(|(certificate, _)| certificate));
    named.extend(shown.map(|certificate| ("bridge.tls_certificate", certificate)));
    let telemetry = config.telemetry.as_ref();
    let of_telemetry = telemetry.and_then(|it| it.exporter.authorities.as_ref());
    named.push(("otlp_ca", of_telemetry));
    let mut files = BTreeMap::new();
    for (key, path) in named {
        if let Some(path) = path {
            files.entry(path.clone()).or_insert(key);
        }
    }
    files
}

/// How long the certificates that a configuration names are still valid.
#[must_use]
pub fn certificate_days(config: &Config) -> Vec<CertificateDays> {
    Certificates::new(config).days()
}

fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Warns repeatedly of certificates that expire soon.
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
        for it in certificates.days() {
            let (key, file, days) = (it.key, it.path.display(), it.days);
            if it.days_to_wait > 0 {
                let days = it.days_to_wait;
                tracing::error!(key, %file, days, "a certificate is not valid yet: check its dates and the clock");
            } else if days < 0 {
                tracing::error!(key, %file, days, "a certificate has expired: replace it, then reload");
            } else if days <= SOON_DAYS {
                tracing::warn!(key, %file, days, "a certificate expires soon: replace it, then reload");
            }
        }
    }
}
