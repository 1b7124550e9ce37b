//! TLS 1.2 and 1.3 by rustls: certificates and keys from PEM files become configurations that are checked as a whole.

mod any_name;
mod cluster;
mod link;
mod name;
mod validity;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use any_name::AnyName;
pub use cluster::{AnnouncementKey, ClusterKey, is_of_client};
pub use link::{LinkKeys, LinkTls};
pub use name::certificate_name;
pub use rustls;
pub use validity::{Validity, expires_at_s};

/// Where distributions keep the authorities that a host trusts.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Lengths of RSA keys with which the TLS library signs and verifies.
const RSA_BITS: RangeInclusive<usize> = 2048..=8192;

/// Files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It could not be read, or is not PEM.
    #[error("cannot read {} from {}: {problem}", what, path.display())]
    Unreadable {
        /// `a certificate` or `a key`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// It contains no certificate.
    #[error("there is no certificate in {}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A certificate that cannot be trusted to sign others.
    #[error("the certificates in {} cannot be used: {problem}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// The key does not match the certificate, or is of an unknown kind.
    #[error("{} and {} do not go together: {problem}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        problem: String,
    },
    /// No file was given and none was found at the system's usual places.
    #[error("this system has no file of trusted certificates where it is usual: give one")]
    NoSystemRoots,
    /// An error of the TLS library.
    #[error("TLS: {0}")]
    Library(String),
}

/// Whether clients must present certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// They are not asked for one.
    #[default]
    Off,
    /// They may; one that is presented must be valid.
    Optional,
    /// They must.
    Required,
}

/// The TLS files of a listener. They are read again at every [`ServerTls::load`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// PEM: the server's certificate first, then the chain to the authority.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
    /// PEM: authorities whose clients are trusted. Needed unless `client_certificates` is off.
    pub client_authorities: Option<PathBuf>,
    /// Whether clients must present certificates.
    pub client_certificates: ClientCertificates,
}

impl ServerTls {
    /// Whether clients may, or must, present certificates.
    #[must_use]
    pub fn asks_for_certificates(&self) -> bool {
        self.client_certificates != ClientCertificates::Off
    }

    /// Reads the files and builds the configuration.
    ///
    /// # Errors
    /// A file cannot be read or is not valid, or key and certificate do not match.
    pub fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(library)?;
        let builder = match (self.client_certificates, &self.client_authorities) {
            (ClientCertificates::Off, _) | (_, None) => builder.with_no_client_auth(),
            (choice, Some(path)) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(authorities(path)?),
                    provider,
                );
                let verifier = match choice {
                    ClientCertificates::Required => verifier,
                    ClientCertificates::Off | ClientCertificates::Optional => {
                        verifier.allow_unauthenticated()
                    }
                };
                let verifier = verifier.build().map_err(|error| TlsError::Authority {
                    path: path.clone(),
                    problem: error.to_string(),
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (chain, key) = (certificates(&self.certificate)?, private_key(&self.key)?);
        refuse_unusable(&self.certificate, &chain)?;
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| pair(&self.certificate, &self.key, &error))?;
        // Tickets are encrypted, not stored: resumption costs clients no full handshake and the node no memory.
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(library)?;
        config.send_tls13_tickets = 1;
        Ok(Arc::new(config))
    }

    /// All faults that [`ServerTls::load`] would refuse: each invalid file, or that key and certificate do not match.
    #[must_use]
    pub fn faults(&self) -> Vec<TlsError> {
        let Err(first) = self.load() else {
            return Vec::new();
        };
        let asks = self.client_certificates != ClientCertificates::Off;
        let trusted = self.client_authorities.as_deref().filter(|_| asks);
        let own = certificates(&self.certificate)
            .and_then(|chain| refuse_unusable(&self.certificate, &chain));
        let of_files = [
            trusted.and_then(|path| authorities(path).err()),
            own.err(),
            private_key(&self.key).err(),
        ];
        let mut all: Vec<_> = of_files.into_iter().flatten().collect();
        if all.is_empty() {
            all.push(first);
        }
        all
    }
}

/// The authorities a client trusts, and the certificate it presents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// PEM: authorities whose servers are trusted; `None`: those the system trusts.
    pub authorities: Option<PathBuf>,
    /// PEM: certificate and key to present.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Accept any certificate of the server.
    pub insecure: bool,
}

impl ClientTls {
    /// Reads the files and builds the configuration.
    ///
    /// # Errors
    /// A file cannot be read or is not valid, or key and certificate do not match.
    pub fn load(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(library)?;
        let builder = if self.insecure {
            let verifier = AnyName {
                authorities: None,
                provider,
            };
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
        } else {
            builder.with_root_certificates(match &self.authorities {
                Some(path) => authorities(path)?,
                None => system_authorities()?,
            })
        };
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                refuse_unusable(certificate, &chain)?;
                builder
                    .with_client_auth_cert(chain, private_key(key)?)
                    .map_err(|error| pair(certificate, key, &error))?
            }
        };
        Ok(Arc::new(config))
    }
}

fn library(error: rustls::Error) -> TlsError {
    TlsError::Library(error.to_string())
}

fn pair(certificate: &Path, key: &Path, error: &rustls::Error) -> TlsError {
    TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        problem: error.to_string(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error: rustls::pki_types::pem::Error| TlsError::Unreadable {
        what: "a certificate",
        path: path.to_owned(),
        problem: in_words(&error),
    };
    let all: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(unreadable)?
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    if all.is_empty() {
        return Err(TlsError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(all)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::Unreadable {
        what: "a key",
        path: path.to_owned(),
        problem: if is_encrypted(path) {
            "it is encrypted, and nobody is there to give the password: write it without one, readable by the node only (`openssl pkey -in KEY -out PLAIN_KEY`)".to_owned()
        } else {
            in_words(&error)
        },
    })
}

/// Whether the headers of a PEM file mark it as encrypted (RFC 7468 11, RFC 1421 4.6.1.1).
fn is_encrypted(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----")
        || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// The TLS library would refuse these too, in words that do not say why.
fn refuse_unusable(path: &Path, all: &[CertificateDer<'_>]) -> Result<(), TlsError> {
    let refuse = |problem: String| {
        Err(TlsError::Unreadable {
            what: "a certificate",
            path: path.to_owned(),
            problem,
        })
    };
    for bits in all.iter().filter_map(validity::rsa_bits) {
        if bits < *RSA_BITS.start() {
            return refuse(format!(
                "its RSA key of {bits} bits is too short: make one of {} bits or more, or one of ECDSA",
                RSA_BITS.start()
            ));
        }
        if bits > *RSA_BITS.end() {
            return refuse(format!(
                "its RSA key of {bits} bits is too long: make one of {} bits or less",
                RSA_BITS.end()
            ));
        }
    }
    if !all.iter().any(validity::is_outdated) {
        return Ok(());
    }
    refuse("it is X.509 of version 1, which says neither names nor purposes: make one of version 3 (with `openssl x509 -req`, add `-extfile` with a subjectAltName)".to_owned())
}

/// Never includes bytes of the file: it may be a key.
fn in_words(error: &rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => error.to_string(),
        Error::NoItemsFound => "there is none".to_owned(),
        _ => "it is not PEM".to_owned(),
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let all = certificates(path)?;
    refuse_unusable(path, &all)?;
    for certificate in all {
        store
            .add(certificate)
            .map_err(|error| TlsError::Authority {
                path: path.to_owned(),
                problem: error.to_string(),
            })?;
    }
    Ok(store)
}

fn system_authorities() -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    // A system's file may contain some in obsolete formats.
    store.add_parsable_certificates(certificates(system_file()?)?);
    Ok(store)
}

fn system_file() -> Result<&'static Path, TlsError> {
    let mut files = SYSTEM_ROOTS.iter().map(Path::new);
    files
        .find(|path| path.exists())
        .ok_or(TlsError::NoSystemRoots)
}

/// The certificates of the authorities in a PEM file, or of those that the system trusts.
///
/// # Errors
/// The file cannot be read or is not valid, or the system has none.
pub fn trusted(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    match file {
        // Checked as a whole, so that an unusable one is refused here.
        Some(path) => authorities(path).and_then(|_| certificates(path)),
        None => certificates(system_file()?),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn file(directory: &TempDir, name: &str, content: &str) -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, content).expect("the temporary directory is writable");
        path
    }

    fn pair_of(directory: &TempDir, name: &str) -> (PathBuf, PathBuf) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
            .expect("a certificate");
        let certificate = file(directory, &format!("{name}.crt"), &made.cert.pem());
        (
            certificate,
            file(
                directory,
                &format!("{name}.key"),
                &made.signing_key.serialize_pem(),
            ),
        )
    }

    fn server(certificate: &Path, key: &Path) -> ServerTls {
        ServerTls {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            client_authorities: None,
            client_certificates: ClientCertificates::Off,
        }
    }

    #[test]
    fn files_that_are_no_good_are_refused_in_words() {
        let here = tempfile::tempdir().expect("a temporary directory");
        let (certificate, key) = pair_of(&here, "one");
        let (_, other_key) = pair_of(&here, "two");
        let text = file(&here, "text", "hello");
        let torn = file(&here, "torn", "-----BEGIN CERTIFICATE-----\nAAAA\n");
        let nowhere = PathBuf::from("/nowhere/at/all");
        assert!(server(&certificate, &key).load().is_ok());
        let cases = [
            (
                "no file",
                server(&nowhere, &key),
                "cannot read a certificate from /nowhere",
            ),
            (
                "no key file",
                server(&certificate, &nowhere),
                "cannot read a key from /nowhere",
            ),
            (
                "no certificate",
                server(&text, &key),
                "there is no certificate in",
            ),
            (
                "no key",
                server(&certificate, &certificate),
                "cannot read a key from",
            ),
            ("torn", server(&torn, &key), "not PEM"),
            (
                "another's key",
                server(&certificate, &other_key),
                "do not go together",
            ),
        ];
        for (name, tls, expected) in cases {
            let error = tls.load().expect_err(name).to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }

    #[test]
    fn a_short_rsa_key_is_refused_by_its_length_wherever_it_is_used() {
        // Made by OpenSSL: 1024 bits.
        let here = tempfile::tempdir().expect("a temporary directory");
        let certificate = file(&here, "crt", include_str!("short/rsa-1024.crt"));
        let key = file(&here, "key", include_str!("short/rsa-1024.key"));
        let (good, good_key) = pair_of(&here, "good");
        let trusting = ServerTls {
            client_authorities: Some(certificate.clone()),
            client_certificates: ClientCertificates::Required,
            ..server(&good, &good_key)
        };
        let presenting = ClientTls {
            authorities: Some(good.clone()),
            identity: Some((certificate.clone(), key.clone())),
            insecure: false,
        };
        let believing = ClientTls {
            authorities: Some(certificate.clone()),
            ..ClientTls::default()
        };
        for (name, error) in [
            ("server", server(&certificate, &key).load().err()),
            ("faults", server(&certificate, &key).faults().pop()),
            ("authority of clients", trusting.load().err()),
            ("client", presenting.load().err()),
            ("authority of a server", believing.load().err()),
        ] {
            let error = error.expect(name).to_string();
            let path = certificate.display().to_string();
            assert!(error.contains(&path), "{name}: {error}");
            assert!(
                error.contains("RSA key of 1024 bits is too short"),
                "{name}: {error}"
            );
        }
    }

    #[test]
    fn clients_believe_an_authority_or_everybody() {
        let here = tempfile::tempdir().expect("a temporary directory");
        let (certificate, key) = pair_of(&here, "client");
        for tls in [
            ClientTls {
                authorities: Some(certificate.clone()),
                ..ClientTls::default()
            },
            ClientTls {
                insecure: true,
                identity: Some((certificate, key)),
                ..ClientTls::default()
            },
        ] {
            assert!(tls.load().is_ok(), "{tls:?}");
        }
    }
}
