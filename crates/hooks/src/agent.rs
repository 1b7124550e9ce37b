//! The HTTP client of hooks.

use std::path::Path;
use std::sync::Arc;

use thicket_transport::tls::{TlsError, rustls, trusted};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// The certificates to trust cannot be used.
pub type AgentError = TlsError;

/// An HTTP client that follows no redirection and uses no proxy. It trusts the authorities in a PEM file, or those of the system. Without `https` no
/// certificate is read.
///
/// # Errors
/// The file cannot be read or is not valid.
pub fn agent(url: &str, authorities: Option<&Path>) -> Result<ureq::Agent, AgentError> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None);
    let config = if url.starts_with("https://") {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trusted = trusted(authorities)?;
        let certificates = trusted
            .iter()
            .map(|it| Certificate::from_der(it).to_owned());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::Specific(Arc::new(certificates.collect())))
            .unversioned_rustls_crypto_provider(provider)
            .build();
        config.tls_config(tls)
    } else {
        config
    };
    Ok(config.build().into())
}
