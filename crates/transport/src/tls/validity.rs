//! The validity periods of certificates.

use std::path::Path;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};
use x509_parser::public_key::PublicKey;

use super::{TlsError, certificates};

/// When all certificates of a file are valid: servers send the whole chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Seconds since 1970.
    pub not_before: i64,
    /// Seconds since 1970.
    pub not_after: i64,
}

impl Validity {
    /// The period of the certificates in a PEM file.
    ///
    /// # Errors
    /// It cannot be read, or contains something else.
    pub fn of_file(path: &Path) -> Result<Self, TlsError> {
        let each = certificates(path)?
            .iter()
            .map(of)
            .collect::<Option<Vec<_>>>();
        let all = each.and_then(|each| each.into_iter().reduce(Self::and));
        all.ok_or_else(|| TlsError::Unreadable {
            what: "a certificate",
            path: path.to_owned(),
            problem: "it is no X.509".to_owned(),
        })
    }

    /// Seconds left; less than 0: it has expired. `now`: since 1970.
    #[must_use]
    pub fn seconds_left(&self, now: Duration) -> i64 {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        self.not_after - now
    }

    /// Days until it is valid, a part of one as a whole one; 0: it has been. `now`: since 1970.
    #[must_use]
    pub fn days_to_wait(&self, now: Duration) -> i64 {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        -(now - self.not_before).div_euclid(24 * 3600).min(0)
    }

    fn and(self, other: Self) -> Self {
        Self {
            not_before: self.not_before.max(other.not_before),
            not_after: self.not_after.min(other.not_after),
        }
    }
}

/// When a certificate expires, in seconds since 1970; `None`: it is no X.509.
#[must_use]
pub fn expires_at_s(certificate: &CertificateDer<'_>) -> Option<u64> {
    u64::try_from(of(certificate)?.not_after).ok()
}

fn of(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(Validity {
        not_before: parsed.validity().not_before.timestamp(),
        not_after: parsed.validity().not_after.timestamp(),
    })
}

/// Whether a certificate is older than version 3: it then has no extensions, and its purpose is unknown.
pub(super) fn is_outdated(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, it)| it.version() != X509Version::V3)
}

/// The bits of a certificate's RSA key; `None`: its key is of another kind.
pub(super) fn rsa_bits(certificate: &CertificateDer<'_>) -> Option<usize> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    match parsed.public_key().parsed().ok()? {
        PublicKey::RSA(key) => Some(key.key_size()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(from: i32, to: i32) -> String {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        params.self_signed(&key).expect("a certificate").pem()
    }

    #[test]
    fn a_chain_holds_as_long_as_its_first_certificate_that_ends() {
        let here = tempfile::tempdir().expect("a temporary directory");
        let path = here.path().join("chain.pem");
        let chain = [pem(2020, 2040), pem(2021, 2030), pem(2019, 2050)].concat();
        std::fs::write(&path, chain).expect("the temporary directory is writable");
        let validity = Validity::of_file(&path).expect("certificates");
        // 2021-01-01 and 2030-01-01.
        assert_eq!(
            (validity.not_before, validity.not_after),
            (1_609_459_200, 1_893_456_000)
        );
        let at = |seconds| Duration::from_secs(seconds);
        for left in [86_400, 1, 0, -1] {
            let now = u64::try_from(1_893_456_000 - left).expect("after 1970");
            assert_eq!(validity.seconds_left(at(now)), left);
        }
        assert_eq!(validity.days_to_wait(at(1_609_459_200 - 86_401)), 2);
        assert_eq!(validity.days_to_wait(at(1_609_459_200 - 86_400)), 1);
        assert_eq!(validity.days_to_wait(at(1_609_459_200 - 1)), 1);
        assert_eq!(validity.days_to_wait(at(1_609_459_200)), 0);
        assert_eq!(validity.days_to_wait(at(1_893_456_000)), 0);
    }
}
