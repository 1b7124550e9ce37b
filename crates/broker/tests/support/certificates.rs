//! Certificates made for one test: an authority, a server, clients.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use thicket_transport::tls::ClientTls;
use thicket_transport::tls::rustls::ClientConfig;

/// An authority and the directory its certificates lie in.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let directory = super::directory();
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("randomness");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).expect("writable");
        Self { issuer, directory }
    }

    /// Its own certificate.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Certificate and key for `common_name`, valid for the hosts of the tests.
    pub fn issue(&self, common_name: &str) -> (PathBuf, PathBuf) {
        let hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(hosts).expect("good names");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = |kind: &str| self.directory.path().join(format!("{common_name}.{kind}"));
        std::fs::write(path("crt"), certificate.pem()).expect("writable");
        std::fs::write(path("key"), key.serialize_pem()).expect("writable");
        (path("crt"), path("key"))
    }

    /// A client that believes this authority and shows `identity`.
    pub fn client(&self, identity: Option<(PathBuf, PathBuf)>) -> Arc<ClientConfig> {
        let tls = ClientTls {
            authorities: Some(self.file()),
            identity,
            insecure: false,
        };
        tls.load().expect("good files")
    }
}
