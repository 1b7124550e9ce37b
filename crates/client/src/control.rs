//! Requests to a control plane over HTTP.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thicket_transport::tls::rustls::crypto::aws_lc_rs;
use thicket_transport::tls::rustls::pki_types::CertificateDer;
use thicket_transport::tls::rustls::pki_types::pem::PemObject as _;
use thicket_transport::tls::{ClientTls, trusted};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};

use crate::placement::{Entry, Problem, Request};
use crate::random::shuffle;

/// Timeout for each control plane; a node answers in milliseconds.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The control planes, and the credentials for them.
#[derive(Debug, Clone)]
pub struct Control {
    /// URLs of listeners for placements, such as `http://node-1:18840`.
    pub urls: Vec<String>,
    /// User name and password.
    pub login: Option<(String, Vec<u8>)>,
}

/// The result of a request for a placement.
#[derive(Debug)]
pub struct Placing {
    /// The answer, or the last problem in words if no control plane answered with success.
    pub answer: Result<String, String>,
    /// Entries that were left out, because a control plane refused them by name. Naming them again would cost another request each.
    pub denied: Vec<Entry>,
}

/// Why a control plane did not answer with success.
struct Refusal {
    words: String,
    /// The field of the request that it refused.
    field: Option<String>,
}

impl Control {
    /// Places a client: asks one URL after the other, in random order. An entry that is refused by name is left out, and the same URL is asked
    /// again, until nothing is refused or left. Blocks.
    #[must_use]
    pub fn ask(&self, request: Request) -> Placing {
        self.ask_with(&ClientTls::default(), request)
    }

    /// [`Control::ask`], with `tls` for `https` servers.
    pub(crate) fn ask_with(&self, tls: &ClientTls, mut request: Request) -> Placing {
        let mut denied = Vec::new();
        let answer = self.try_each(tls, |agent, url| {
            let place = format!("{}/v1/placements", url.trim_end_matches('/'));
            loop {
                let body = serde_json::to_string(&request).map_err(|error| error.to_string())?;
                let post = agent.post(&place);
                let post = post.header("content-type", "application/json");
                match read(self.with_login(post).send(&body)) {
                    Ok(answer) => return answer.ok_or_else(|| "not found".to_owned()),
                    Err(refusal) => {
                        let field = refusal.field.as_deref();
                        // Each time the request has an entry less.
                        match field.and_then(|field| request.leave_out(field)) {
                            Some(entry) => denied.push(entry),
                            None => return Err(refusal.words),
                        }
                    }
                }
            }
        });
        Placing { answer, denied }
    }

    /// The placement that the client has now, `None` if it has none. Blocks.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn find(&self, client_id: &str) -> Result<Option<String>, String> {
        let name = percent_encoded(client_id);
        self.try_each(&ClientTls::default(), |agent, url| {
            let place = format!("{}/v1/placements/{name}", url.trim_end_matches('/'));
            read(self.with_login(agent.get(place)).call()).map_err(|refusal| refusal.words)
        })
    }

    fn try_each<T>(
        &self,
        tls: &ClientTls,
        mut ask_one: impl FnMut(&ureq::Agent, &str) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false);
        // Without `https` no certificate is read.
        if self.urls.iter().any(|url| url.starts_with("https://")) {
            config = config.tls_config(tls_config(tls)?);
        }
        let agent: ureq::Agent = config.build().into();
        let mut urls = self.urls.clone();
        shuffle(&mut urls);
        let mut problem = "no control plane is named".to_owned();
        for url in urls {
            match ask_one(&agent, &url) {
                Ok(answer) => return Ok(answer),
                Err(error) => problem = format!("{url}: {error}"),
            }
        }
        Err(problem)
    }

    fn with_login<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        let Some((user, password)) = &self.login else {
            return request;
        };
        let mut pair = format!("{user}:").into_bytes();
        pair.extend_from_slice(password);
        request.header("authorization", format!("Basic {}", STANDARD.encode(pair)))
    }
}

fn tls_config(tls: &ClientTls) -> Result<TlsConfig, String> {
    let config = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
        .disable_verification(tls.insecure);
    let config = if tls.insecure {
        config
    } else {
        let trusted = trusted(tls.authorities.as_deref()).map_err(|error| error.to_string())?;
        let certificates = trusted
            .iter()
            .map(|it| Certificate::from_der(it).to_owned());
        config.root_certs(RootCerts::Specific(Arc::new(certificates.collect())))
    };
    let config = match &tls.identity {
        None => config,
        Some((certificate, key)) => config.client_cert(Some(identity(certificate, key)?)),
    };
    Ok(config.build())
}

fn identity(certificate: &Path, key: &Path) -> Result<ClientCert, String> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(certificate)?)
        .map(|it| it.map(|it| Certificate::from_der(&it).to_owned()))
        .collect::<Result<_, _>>()
        .map_err(|_| format!("{}: it is not PEM", certificate.display()))?;
    let key = PrivateKey::from_pem(&read(key)?)
        .map_err(|_| format!("{}: there is no key", key.display()))?;
    Ok(ClientCert::new_with_certs(&chain, key))
}

/// The text of a successful answer, `None` for 404.
fn read(
    answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Option<String>, Refusal> {
    let failed = |error: ureq::Error| Refusal {
        words: error.to_string(),
        field: None,
    };
    let mut answer = answer.map_err(failed)?;
    let status = answer.status();
    let text = answer.body_mut().read_to_string().map_err(failed)?;
    if status.is_success() {
        return Ok(Some(text));
    }
    if status == ureq::http::StatusCode::NOT_FOUND {
        return Ok(None);
    }
    // A problem document (RFC 9457) contains the reason.
    let problem: Problem = serde_json::from_str(&text).unwrap_or_default();
    let words = problem.detail.or(problem.title);
    let words = words.unwrap_or_else(|| "no reason given".to_owned());
    Err(Refusal {
        words: format!("{status}: {words}"),
        field: problem.field,
    })
}

/// A client identifier as one segment of a path (RFC 3986).
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_identifier_is_one_segment_of_a_path() {
        assert_eq!(percent_encoded("a~2/b c?é"), "a~2%2Fb%20c%3F%C3%A9");
    }
}
