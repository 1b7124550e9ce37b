//! The name in a certificate: its common name, or its first host name.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// SEQUENCE, SET and the kinds of text a name may be (X.690, RFC 5280 4.1.2.4).
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The name of a certificate's owner: the common name of its subject, or, without one, its first DNS name. `None` if it has neither, or one that is
/// empty, not text, or has control characters.
///
/// The certificate must have been verified before: here its name is only read.
#[must_use]
pub fn certificate_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let name = common_name(parsed.subject());
    let name = name.or_else(|| parsed.valid_dns_names().next().map(str::to_owned));
    // It is used in logs and rules.
    name.filter(|name| !name.is_empty() && !name.chars().any(char::is_control))
}

/// The first common name in a subject (`RDNSequence`, without its outer tag).
fn common_name(subject: &[u8]) -> Option<String> {
    let mut sets = Values(subject);
    while let Some((SET, set)) = sets.next() {
        let mut attributes = Values(set);
        while let Some((SEQUENCE, attribute)) = attributes.next() {
            let mut parts = Values(attribute);
            let (Some((OBJECT_IDENTIFIER, kind)), Some((tag, value))) =
                (parts.next(), parts.next())
            else {
                return None;
            };
            if kind == COMMON_NAME {
                let is_text = matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING);
                return is_text
                    .then(|| String::from_utf8(value.to_vec()).ok())
                    .flatten();
            }
        }
    }
    None
}

/// Tags and contents of consecutive DER values; ends early at invalid DER.
struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81 => rest
                .split_first()
                .map(|(len, rest)| (usize::from(*len), rest))?,
            0x82 => rest
                .split_first_chunk()
                .map(|(len, rest)| (usize::from(u16::from_be_bytes(*len)), rest))?,
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }
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
    fn what_is_not_der_has_no_name() {
        for bytes in [
            &[][..],
            &[SET],
            &[SET, 5, 0],
            &[SET, 0x83, 0, 0, 1, 0],
            &[SET, 2, SEQUENCE, 9],
        ] {
            assert_eq!(common_name(bytes), None, "{bytes:?}");
        }
    }
}
