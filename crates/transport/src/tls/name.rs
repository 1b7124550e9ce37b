//! The name in a certificate: its common name, or its first host name.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The name of a certificate's owner: the common name of its subject, or, without one, its first DNS name. `None` if it has neither, or one that is
/// empty, not text, or has control characters.
///
/// The certificate must have been verified before: here its name is only read.
#[must_use]
pub fn certificate_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let common_name = parsed.subject().iter_common_name().next();
    let name = common_name.and_then(|name| Some(name.as_str().ok()?.to_owned()));
    let name = name.or_else(|| first_host(certificate));
    // It is used in logs and rules.
    name.filter(|name| !name.is_empty() && !name.chars().any(char::is_control))
}

fn first_host(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    parsed.valid_dns_names().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn name(common_name: Option<&str>, hosts: &[&str]) -> Option<String> {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).expect("good names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Makers of things");
        if let Some(common_name) = common_name {
            params
                .distinguished_name
                .push(DnType::CommonName, common_name);
        }
        let key = KeyPair::generate().expect("randomness");
        certificate_name(params.self_signed(&key).expect("a certificate").der())
    }

    #[test]
    fn the_common_name_comes_first_then_the_first_host() {
        let long = "n".repeat(200);
        let cases = [
            ("common name", name(Some("sensor-7"), &[]), Some("sensor-7")),
            (
                "both",
                name(Some("sensor-7"), &["a.example"]),
                Some("sensor-7"),
            ),
            (
                "host only",
                name(None, &["a.example", "b.example"]),
                Some("a.example"),
            ),
            (
                "other than ASCII",
                name(Some("fühler"), &[]),
                Some("fühler"),
            ),
            ("a long one", name(Some(&long), &[]), Some(long.as_str())),
            ("nothing", name(None, &[]), None),
            ("a line end", name(Some("a\nb"), &[]), None),
        ];
        for (case, found, expected) in cases {
            assert_eq!(found.as_deref(), expected, "{case}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_name() {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["a.example".into()]).expect("a good name");
        let whole = params.self_signed(&key).expect("a certificate");
        assert!(certificate_name(whole.der()).is_some());
        for len in 0..whole.der().len() {
            let cut = CertificateDer::from(&whole.der()[..len]);
            assert_eq!(certificate_name(&cut), None, "{len} bytes");
        }
    }
}
