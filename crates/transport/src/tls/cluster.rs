//! What the nodes of a cluster derive from its secret: an authority that signs their certificates, a name that opens a link, and a key that signs
//! their announcements.
//!
//! ```text
//! secret --Argon2id--> master --HKDF-SHA256--> seed of the authority's Ed25519 key
//!                                         |--> name that opens a link
//!                                         '--> key of HMAC-SHA256 for announcements
//! ```
//!
//! All nodes with the secret have the same authority; nobody else can sign for it. Each process generates a key at its start and signs a certificate
//! for it, presents that on its links, and accepts only certificates of the authority. So both ends of a link prove that they have the secret. The
//! session keys of a link are not derived from the secret: whoever learns it later cannot decrypt recorded traffic.
//!
//! TLS 1.3 presents the certificate of the end that accepts before the other end presents its own, and on its signature guesses of the secret can be
//! tested offline. So that end shows it only to those who name the link by what is derived from the secret, as a protocol of ALPN; to anybody else it
//! sends an alert. A ClientHello is not encrypted: whoever listens to links or announcements has something to test guesses on, and a name to repeat.
//! So secrets must be random; for weak ones Argon2id makes each guess cost 19 MiB and some hundredths of a second.
//!
//! Certificates are valid at any time: a node whose clock is wrong can still link, and trust is revoked by changing the secret.

use std::sync::Arc;

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac;
use aws_lc_rs::signature::Ed25519KeyPair;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519, date_time_ymd,
};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::link::LinkKeys;
use super::{AnyName, TlsError, library};

/// Labels the derivation: another one gets another label.
const SALT: &[u8] = b"thicket cluster secret 1";
const AUTHORITY: &[u8] = b"authority of links";
const NAME: &[u8] = b"name of links";
const ANNOUNCEMENTS: &[u8] = b"announcements";
/// The ALPN protocol of links: nothing else uses it.
const PROTOCOL: &[u8] = b"thicket-link";

/// In a ClientHello, PROTOCOL with its length (RFC 7301 3.1).
const OFFERED: &[u8] = b"\x0cthicket-link";
/// The name that a node sends where it dials with certificates, with its length (RFC 6066 3).
const NAMED: &[u8] = b"\0\x07thicket";

/// Whether the first bytes of a connection are the whole ClientHello of somebody who is no node.
#[must_use]
pub fn is_of_client(hello: &[u8]) -> bool {
    let Some((head, body)) = hello.split_first_chunk::<5>() else {
        return false;
    };
    let is_whole = body.len() >= usize::from(u16::from_be_bytes([head[3], head[4]]));
    let has = |part: &[u8]| body.windows(part.len()).any(|window| window == part);
    is_whole && !has(OFFERED) && !has(NAMED)
}

/// The keys derived from one secret.
pub struct ClusterKey {
    issuer: Issuer<'static, KeyPair>,
    authority: CertificateDer<'static>,
    /// Shown a certificate is only who offers this protocol.
    name: [u8; 32],
    announcements: AnnouncementKey,
}

/// Signs announcements, and verifies those of nodes with the same secret.
#[derive(Clone)]
pub struct AnnouncementKey(hmac::Key);

impl ClusterKey {
    /// Derives the keys. Takes some hundredths of a second and 19 MiB: not for a thread that serves.
    ///
    /// # Errors
    /// The cryptography library refused, which no secret causes.
    pub fn derive(secret: &[u8]) -> Result<Self, TlsError> {
        let mut master = [0; 32];
        // The parameters that OWASP recommends; change them only together with the salt.
        let parameters = Params::new(19 * 1024, 2, 1, Some(master.len())).map_err(refused)?;
        Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
            .hash_password_into(secret, SALT, &mut master)
            .map_err(refused)?;
        let seed = Ed25519KeyPair::from_seed_unchecked(&expand(&master, AUTHORITY)?);
        let pkcs8 = seed.map_err(refused)?.to_pkcs8v1().map_err(refused)?;
        let pkcs8 = PrivatePkcs8KeyDer::from(pkcs8.as_ref());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &PKCS_ED25519).map_err(refused)?;
        let mut params = valid_always("thicket cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = params.self_signed(&key).map_err(refused)?.der().clone();
        let announcements = hmac::Key::new(hmac::HMAC_SHA256, &expand(&master, ANNOUNCEMENTS)?);
        Ok(Self {
            issuer: Issuer::new(params, key),
            authority,
            name: expand(&master, NAME)?,
            announcements: AnnouncementKey(announcements),
        })
    }

    /// The key for announcements of nodes with this secret.
    #[must_use]
    pub const fn announcements(&self) -> &AnnouncementKey {
        &self.announcements
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).map_err(library)?;
        Ok(roots)
    }

    /// A certificate of this authority, and its new key.
    fn issue(&self) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), TlsError> {
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(refused)?;
        let mut params = valid_always("thicket node");
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let signed = params.signed_by(&key, &self.issuer).map_err(refused)?;
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok((signed.der().clone(), private))
    }
}

/// Shows the certificate of this end to those who know the name of a link.
#[derive(Debug)]
struct ToNodes {
    names: Vec<[u8; 32]>,
    certified: Arc<CertifiedKey>,
}

impl ResolvesServerCert for ToNodes {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_known = |offered: &[u8]| {
            let mut names = self.names.iter();
            names.any(|name| verify_slices_are_equal(name, offered).is_ok())
        };
        let is_node = hello.alpn()?.any(is_known);
        is_node.then(|| Arc::clone(&self.certified))
    }
}

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey")
    }
}

impl AnnouncementKey {
    /// Length of a signature, bytes.
    pub const SIGNATURE: usize = 32;

    /// The signature of a text.
    #[must_use]
    pub fn sign(&self, text: &[u8]) -> [u8; Self::SIGNATURE] {
        let tag = hmac::sign(&self.0, text);
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// Whether the signature is valid; the comparison takes constant time.
    #[must_use]
    pub fn verify(&self, text: &[u8], signature: &[u8]) -> bool {
        hmac::verify(&self.0, text, signature).is_ok()
    }
}

impl std::fmt::Debug for AnnouncementKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AnnouncementKey")
    }
}

impl LinkKeys {
    /// Keys for links under secrets: this process presents a certificate of the first, and accepts those of all. TLS 1.3 only, both ends
    /// authenticate.
    ///
    /// # Errors
    /// There is no secret, or the system has no randomness.
    pub fn of_secrets(keys: &[ClusterKey]) -> Result<Self, TlsError> {
        let first = keys.first().ok_or_else(|| refused("there is no secret"))?;
        let mut roots = RootCertStore::empty();
        for key in keys {
            roots.add(key.authority.clone()).map_err(library)?;
        }
        let (certificate, private) = first.issue()?;
        let provider = Arc::new(provider::default_provider());
        let signer = provider::sign::any_supported_type(&private).map_err(library)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots.clone()),
            Arc::clone(&provider),
        );
        // A stranger need not learn which authorities are accepted here.
        let verifier = verifier.clear_root_hint_subjects().build();
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(library)?
            .with_client_cert_verifier(verifier.map_err(refused)?)
            .with_cert_resolver(Arc::new(ToNodes {
                names: keys.iter().map(|key| key.name).collect(),
                certified: Arc::new(CertifiedKey::new(vec![certificate.clone()], signer)),
            }));
        // Each link authenticates with the current keys: no session is resumed.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        let verifier = AnyName {
            authorities: Some(roots),
            provider: Arc::clone(&provider),
        };
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(library)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(vec![certificate.clone()], private)
            .map_err(library)?;
        client.resumption = Resumption::disabled();
        let names = keys.iter().map(|key| key.name.to_vec());
        client.alpn_protocols = std::iter::once(PROTOCOL.to_vec()).chain(names).collect();
        let each = keys.iter().map(ClusterKey::roots);
        let each = each.collect::<Result<_, _>>()?;
        let (server, client) = (Arc::new(server), Arc::new(client));
        Ok(Self::new(server, client, &[certificate], each))
    }
}

/// From the start of every clock's epoch to the time that means "no end" (RFC 5280 4.1.2.5).
fn valid_always(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params
}

fn expand(master: &[u8], label: &[u8]) -> Result<[u8; 32], TlsError> {
    let mut out = [0; 32];
    let pseudorandom = Salt::new(HKDF_SHA256, SALT).extract(master);
    let labels = [label];
    let material = pseudorandom.expand(&labels, HKDF_SHA256).map_err(refused)?;
    material.fill(&mut out).map_err(refused)?;
    Ok(out)
}

fn refused(error: impl std::fmt::Display) -> TlsError {
    TlsError::Library(error.to_string())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::UnixTime;

    use super::super::link::tests::{ends, run};
    use super::*;

    fn keys(secrets: &[&str]) -> LinkKeys {
        let keys: Vec<_> = secrets
            .iter()
            .map(|secret| ClusterKey::derive(secret.as_bytes()).expect("derived"))
            .collect();
        LinkKeys::of_secrets(&keys).expect("a system with randomness")
    }

    #[test]
    fn the_hello_of_a_client_differs_from_that_of_a_node() {
        let hello = |config: Arc<ClientConfig>, name: &'static str| {
            let name = rustls::pki_types::ServerName::try_from(name).expect("a name");
            let mut connection = rustls::ClientConnection::new(config, name).expect("a client");
            let mut bytes = Vec::new();
            connection.write_tls(&mut bytes).expect("to memory");
            bytes
        };
        let of_client = Arc::new(
            ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth(),
        );
        let of_node = hello(keys(&["ours"]).client(), "thicket");
        assert!(!is_of_client(&of_node));
        // With certificates a node offers no protocol.
        assert!(!is_of_client(&hello(Arc::clone(&of_client), "thicket")));
        let mut of_client = hello(of_client, "broker.example");
        assert!(is_of_client(&of_client));
        of_client.pop();
        assert!(!is_of_client(&of_client), "the rest may name the protocol");
        assert!(!is_of_client(b"\x16"));
    }

    #[test]
    fn nodes_with_one_secret_meet_and_others_do_not() {
        let (ours, again, theirs) = (keys(&["ours"]), keys(&["ours"]), keys(&["theirs"]));
        assert_eq!(
            ours.own(),
            again.own(),
            "the same secret, the same authority"
        );
        assert_ne!(ours.own(), theirs.own());
        for (name, dialler, acceptor, is_good) in [
            ("the same secret", &ours, &again, true),
            ("a stranger is dialled", &ours, &theirs, false),
            ("a stranger dials", &theirs, &ours, false),
        ] {
            let mut pair = ends(dialler, acceptor);
            assert_eq!(run(&mut pair).is_ok(), is_good, "{name}");
            if is_good {
                for (end, keys) in pair.iter().zip([dialler, acceptor]) {
                    let shown = end.peer_certificates().expect("both show one");
                    assert_eq!(keys.key_of(shown), ours.own(), "{name}");
                }
            }
        }
    }

    #[test]
    fn who_does_not_know_the_name_of_links_is_shown_no_certificate() {
        let (ours, theirs) = (keys(&["ours"]), keys(&["theirs"]));
        let offers = |protocols: Vec<Vec<u8>>| {
            let mut client = ClientConfig::clone(&ours.client());
            client.alpn_protocols = protocols;
            let none = Vec::new();
            LinkKeys::new(ours.server(), Arc::new(client), &[], none)
        };
        let named = ours.client().alpn_protocols.clone();
        for (what, protocols, is_good) in [
            ("a node", named.clone(), true),
            ("the protocol alone", named[..1].to_vec(), false),
            ("no protocol", Vec::new(), false),
            (
                "another name",
                theirs.client().alpn_protocols.clone(),
                false,
            ),
        ] {
            let mut pair = ends(&offers(protocols), &ours);
            assert_eq!(run(&mut pair).is_ok(), is_good, "{what}");
            let mut told = Vec::new();
            pair[1].write_tls(&mut told).expect("to memory");
            // At most an alert of two bytes, in records of five more.
            assert!(told.len() < 64, "{what}: {} bytes", told.len());
        }
    }

    #[test]
    fn a_secret_is_changed_node_by_node() {
        let steps = [
            keys(&["old"]),
            keys(&["old", "new"]),
            keys(&["new", "old"]),
            keys(&["new"]),
        ];
        for (one, here) in steps.iter().enumerate() {
            for (other, there) in steps.iter().enumerate() {
                let is_good = run(&mut ends(here, there)).is_ok();
                assert_eq!(is_good, one.abs_diff(other) < 2, "{one} and {other}");
            }
        }
        let shown = steps.each_ref().map(|keys| keys.own().expect("its own"));
        let (old, new) = (shown[0], shown[3]);
        assert_eq!(shown, [old, old, new, new]);
        assert!(steps[1].accepts(old) && steps[1].accepts(new) && !steps[3].accepts(old));
    }

    #[test]
    fn a_byte_changed_anywhere_on_the_way_ends_the_link() {
        let ours = keys(&["ours"]);
        for at in [0, 20, 100, 700, 1500, 2200] {
            let mut pair = ends(&ours, &keys(&["ours"]));
            let mut seen = 0;
            let result = super::super::link::tests::run_with(&mut pair, |bytes| {
                if let Some(byte) = bytes.get_mut(usize::wrapping_sub(at, seen)) {
                    *byte ^= 1;
                }
                seen += bytes.len();
            });
            assert!(result.is_err() || seen <= at, "byte {at} of {seen}");
        }
    }

    #[test]
    fn certificates_are_good_whatever_the_clock_says() {
        let key = ClusterKey::derive(b"ours").expect("derived");
        let (certificate, _) = key.issue().expect("signed");
        let parsed = rustls::server::ParsedCertificate::try_from(&certificate).expect("parses");
        for seconds in [0, 1_800_000_000, 200_000_000_000] {
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
            let verified = rustls::client::verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &key.roots().expect("one"),
                &[],
                now,
                provider::default_provider()
                    .signature_verification_algorithms
                    .all,
            );
            assert_eq!(verified, Ok(()), "{seconds}");
        }
    }

    #[test]
    fn an_announcement_is_good_for_one_secret_and_one_text() {
        let [ours, theirs] = ["ours", "theirs"]
            .map(|secret| ClusterKey::derive(secret.as_bytes()).expect("derived"));
        let signature = ours.announcements().sign(b"here I am");
        assert!(ours.announcements().verify(b"here I am", &signature));
        assert!(!ours.announcements().verify(b"there I am", &signature));
        assert!(!theirs.announcements().verify(b"here I am", &signature));
        assert!(!ours.announcements().verify(b"here I am", &signature[..31]));
    }

    /// The number was computed independently, with Python's cryptography.
    #[test]
    fn what_is_derived_stays_the_same_from_release_to_release() {
        let key = keys(&["the secret of this cluster"]).own();
        assert_eq!(key.map(u32::from_be_bytes), Some(0x7886_5b14));
    }
}
