//! Mutual TLS between nodes: both ends present a certificate of one authority; any of its certificates is accepted.

use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::{
    AnyName, ClientCertificates, ServerTls, TlsError, authorities, certificates, library, pair,
    private_key,
};

/// The TLS files of links. They are read again at every [`LinkTls::load`].
///
/// A certificate of the authority makes its holder a member, whatever name and address it has: nodes move, and are dialled by addresses. So the
/// authority must not sign for anybody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTls {
    /// PEM: this end's certificate first, then the chain to the authority.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
    /// PEM: the authority.
    pub authority: PathBuf,
}

impl LinkTls {
    /// For the end that accepts the connection.
    #[must_use]
    pub fn server(&self) -> ServerTls {
        ServerTls {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            client_authorities: Some(self.authority.clone()),
            client_certificates: ClientCertificates::Required,
        }
    }

    /// For the end that connects.
    ///
    /// # Errors
    /// A file cannot be read or is not valid, or key and certificate do not match.
    pub fn load(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = Arc::new(provider::default_provider());
        let verifier = AnyName {
            authorities: Some(authorities(&self.authority)?),
            provider: Arc::clone(&provider),
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(library)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(certificates(&self.certificate)?, private_key(&self.key)?)
            .map_err(|error| pair(&self.certificate, &self.key, &error))?;
        // Links are few and long-lived; each authenticates with the current certificates.
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// The keys of links: both sides' TLS, and the authorities whose certificates are accepted, each with a name.
///
/// The name of a key is the start of the SHA-256 of an authority's public key. It identifies the key by which a link authenticated, and reveals
/// nothing else of it.
#[derive(Debug)]
pub struct LinkKeys {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    own: Option<[u8; 4]>,
    each: Vec<([u8; 4], RootCertStore)>,
}

impl LinkKeys {
    /// `each`: the authorities, one in each store; `shown`: the certificate of this end, signed by one of them.
    pub(super) fn new(
        server: Arc<ServerConfig>,
        client: Arc<ClientConfig>,
        shown: &[CertificateDer<'_>],
        each: Vec<RootCertStore>,
    ) -> Self {
        let named = each.into_iter().filter_map(|roots| {
            let anchor = roots.roots.first()?;
            let hash = digest(&SHA256, &anchor.subject_public_key_info);
            let name = hash.as_ref().first_chunk().copied()?;
            Some((name, roots))
        });
        let mut keys = Self {
            server,
            client,
            own: None,
            each: named.collect(),
        };
        keys.own = keys.key_of(shown);
        keys
    }

    /// Reads the certificates of links from files.
    ///
    /// # Errors
    /// A file cannot be read or is not valid, or they do not match.
    pub fn of_files(files: &LinkTls) -> Result<Self, TlsError> {
        let each = authorities(&files.authority)?.roots.into_iter();
        let each = each.map(|anchor| RootCertStore::from_iter([anchor]));
        let shown = certificates(&files.certificate)?;
        let (server, client) = (files.server().load()?, files.load()?);
        Ok(Self::new(server, client, &shown, each.collect()))
    }

    /// For the end that accepts the connection.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// For the end that connects.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// The key by which this end authenticates; `None`: its authority is not accepted here.
    #[must_use]
    pub const fn own(&self) -> Option<[u8; 4]> {
        self.own
    }

    /// The keys by which others may authenticate.
    pub fn accepted(&self) -> impl Iterator<Item = [u8; 4]> {
        self.each.iter().map(|(name, _)| *name)
    }

    /// Whether others may authenticate by this key.
    #[must_use]
    pub fn accepts(&self, key: [u8; 4]) -> bool {
        self.accepted().any(|name| name == key)
    }

    /// The key whose authority has signed the certificate chain that the other end has presented.
    #[must_use]
    pub fn key_of(&self, shown: &[CertificateDer<'_>]) -> Option<[u8; 4]> {
        let (end, between) = shown.split_first()?;
        let end = ParsedCertificate::try_from(end).ok()?;
        let algorithms = provider::default_provider().signature_verification_algorithms;
        let has_signed = |roots: &RootCertStore| {
            let now = UnixTime::now();
            verify_server_cert_signed_by_trust_anchor(&end, roots, between, now, algorithms.all)
                .is_ok()
        };
        let signer = self.each.iter().find(|(_, roots)| has_signed(roots));
        signer.map(|(name, _)| *name)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, Connection, ServerConnection};

    use super::*;

    /// An authority, and the files of a certificate it has signed.
    fn node_of(
        directory: &Path,
        name: &str,
        authority: &Issuer<'_, KeyPair>,
        authority_pem: &str,
    ) -> LinkTls {
        let file = |what: &str, content: &str| {
            let path = directory.join(format!("{name}.{what}"));
            std::fs::write(&path, content).expect("the temporary directory is writable");
            path
        };
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![format!("{name}.example")]).expect("a name");
        let signed = params.signed_by(&key, authority).expect("signed");
        LinkTls {
            certificate: file("crt", &signed.pem()),
            key: file("key", &key.serialize_pem()),
            authority: file("ca", authority_pem),
        }
    }

    fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        (Issuer::new(params, key), pem)
    }

    /// Both ends of a link, the one that dials first.
    pub(in super::super) fn ends(dialler: &LinkKeys, acceptor: &LinkKeys) -> [Connection; 2] {
        let name = ServerName::try_from("thicket").expect("a name");
        let client = ClientConnection::new(dialler.client(), name);
        let server = ServerConnection::new(acceptor.server());
        [
            client.expect("a connection").into(),
            server.expect("a connection").into(),
        ]
    }

    /// The result of a handshake: the first error of either end.
    pub(in super::super) fn run(ends: &mut [Connection; 2]) -> Result<(), String> {
        run_with(ends, |_| {})
    }

    /// The same with a man in the middle.
    pub(in super::super) fn run_with(
        ends: &mut [Connection; 2],
        mut tap: impl FnMut(&mut Vec<u8>),
    ) -> Result<(), String> {
        for _ in 0..8 {
            for (from, to) in [(0, 1), (1, 0)] {
                let mut bytes = Vec::new();
                while ends[from].wants_write() {
                    ends[from].write_tls(&mut bytes).expect("into memory");
                }
                tap(&mut bytes);
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    ends[to].read_tls(&mut rest).expect("from memory");
                    ends[to]
                        .process_new_packets()
                        .map_err(|error| error.to_string())?;
                }
            }
        }
        if ends.iter().any(|end| end.is_handshaking()) {
            return Err("it has come to no end".to_owned());
        }
        Ok(())
    }

    fn meet(here: &LinkTls, there: &LinkTls) -> Result<(), String> {
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let client = ClientConnection::new(here.load().expect("good files"), name);
        let server = ServerConnection::new(there.server().load().expect("good files"));
        run(&mut [
            client.expect("a connection").into(),
            server.expect("a connection").into(),
        ])
    }

    #[test]
    fn nodes_of_one_authority_meet_whatever_their_names_and_others_do_not() {
        let (ours, our_pem) = authority("ours");
        let (theirs, their_pem) = authority("theirs");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let node_of = |name, authority, pem| node_of(directory.path(), name, authority, pem);
        let here = node_of("here", &ours, &our_pem);
        let there = node_of("there", &ours, &our_pem);
        let stranger = node_of("stranger", &theirs, &their_pem);
        // Trusts us, but presents a certificate that another authority has signed.
        let spy = node_of("spy", &theirs, &our_pem);
        assert_eq!(meet(&here, &there), Ok(()));
        for (name, client, server) in [
            ("a stranger is dialled", &here, &stranger),
            ("a stranger dials", &stranger, &here),
            ("a spy is dialled", &here, &spy),
            ("a spy dials", &spy, &here),
        ] {
            assert!(meet(client, server).is_err(), "{name}");
        }
    }

    #[test]
    fn a_link_with_certificates_tells_which_authority_has_signed() {
        let (old, old_pem) = authority("ours");
        let (new, new_pem) = authority("ours");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let both = format!("{old_pem}{new_pem}");
        let keys_of = |name, authority, pem: &str| {
            let files = node_of(directory.path(), name, authority, pem);
            LinkKeys::of_files(&files)
        };
        let here = keys_of("here", &old, &both).expect("good files");
        let there = keys_of("there", &new, &both).expect("good files");
        let mut pair = ends(&here, &there);
        assert_eq!(run(&mut pair), Ok(()));
        let shown = pair[0].peer_certificates().expect("one");
        assert_eq!(here.key_of(shown), there.own());
        assert_ne!(here.own(), there.own());
        let stray = keys_of("stray", &old, &new_pem).expect("good files");
        assert_eq!(stray.own(), None);
    }
}
