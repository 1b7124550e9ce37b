//! TLS between equals: both ends show a certificate of one authority, and which of its certificates it is does not matter.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;

use super::{
    AnyName, ClientCertificates, ServerTls, TlsError, authorities, certificates, library, pair,
    private_key,
};

/// What the TLS of links is made of. The files are read again at every [`LinkTls::load`].
///
/// Whoever has a certificate of the authority is one of us, by whatever name and address: nodes move, and are dialled by
/// addresses. So the authority is to sign nobody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTls {
    /// PEM: this end's certificate first, then those between it and the authority.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
    /// PEM: the authority.
    pub authority: PathBuf,
}

impl LinkTls {
    /// For the end that is connected to.
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
    /// A file cannot be read or is no good, or key and certificate do not go together.
    pub fn load(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
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
        // Links are few and stand long; each proves itself with the certificates of its day.
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, Connection, ServerConnection};

    use super::*;

    /// An authority, and files of a certificate it has signed.
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

    /// What came of a handshake: the first error of either end.
    fn meet(here: &LinkTls, there: &LinkTls) -> Result<(), String> {
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let client = ClientConnection::new(here.load().expect("good files"), name);
        let server = ServerConnection::new(there.server().load().expect("good files"));
        let mut ends = [
            Connection::from(client.expect("a connection")),
            Connection::from(server.expect("a connection")),
        ];
        for _ in 0..8 {
            for (from, to) in [(0, 1), (1, 0)] {
                let mut bytes = Vec::new();
                while ends[from].wants_write() {
                    ends[from].write_tls(&mut bytes).expect("into memory");
                }
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    ends[to].read_tls(&mut rest).expect("from memory");
                    ends[to]
                        .process_new_packets()
                        .map_err(|error| error.to_string())?;
                }
            }
        }
        assert!(!ends.iter().any(|end| end.is_handshaking()));
        Ok(())
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
        // Believes us, but shows what another has signed.
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
}
