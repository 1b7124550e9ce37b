//! Asks the HTTP API of a node.

use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use thicket_broker::api::{ErrorEntry, ReloadEntry};

/// Longer than a node gives its threads to answer.
const TIMEOUT: Duration = Duration::from_secs(8);

/// The API of one node.
#[derive(Debug)]
pub struct Api {
    /// HOST:PORT.
    address: String,
    agent: ureq::Agent,
    /// Value of the Authorization header.
    authorization: Option<String>,
}

/// Who asks, where the API has users.
#[derive(Debug, Default, clap::Args)]
pub struct Credentials {
    /// Name and password of a user of the API
    #[arg(
        long,
        env = "THICKET_API_USER",
        value_name = "NAME:PASSWORD",
        hide_env_values = true,
        global = true
    )]
    api_user: Option<String>,
    /// Token of a user of the API
    #[arg(
        long,
        env = "THICKET_API_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        global = true,
        conflicts_with = "api_user"
    )]
    api_token: Option<String>,
}

impl Api {
    /// At HOST:PORT. Nothing is sent yet.
    pub fn new(address: impl Into<String>) -> Self {
        // The API is on loopback: a proxy from the environment would look for it on its own.
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Self {
            address: address.into(),
            agent: config.into(),
            authorization: None,
        }
    }

    /// As this user.
    pub fn with_credentials(mut self, credentials: &Credentials) -> Self {
        let basic = credentials
            .api_user
            .as_ref()
            .map(|user| format!("Basic {}", STANDARD.encode(user)));
        let bearer = credentials
            .api_token
            .as_ref()
            .map(|token| format!("Bearer {token}"));
        self.authorization = basic.or(bearer);
        self
    }

    /// Has the node do something.
    pub fn post(&self, path: &str) -> anyhow::Result<()> {
        let url = format!("http://{}{path}", self.address);
        let mut request = self.agent.post(&url);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let response = request.send_empty().map_err(|error| self.in_words(error))?;
        let (status, body) = self.read(response)?;
        if (200..300).contains(&status) {
            return Ok(());
        }
        let words = match serde_json::from_str::<ReloadEntry>(&body) {
            Ok(entry) => entry.problems.join("\n  "),
            Err(_) => error_words(body),
        };
        bail!("the node at {} answers {status}: {words}", self.address)
    }

    /// The body of an answer, as it came.
    pub fn text(&self, path: &str) -> anyhow::Result<String> {
        let (status, body) = self.fetch(path)?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let words = error_words(body);
        bail!("the node at {} answers {status}: {words}", self.address)
    }

    /// An answer.
    pub fn ask<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let text = self.text(path)?;
        serde_json::from_str(&text).with_context(|| {
            format!(
                "{} does not answer like a node of this version",
                self.address
            )
        })
    }

    fn fetch(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let url = format!("http://{}{path}", self.address);
        let mut request = self.agent.get(&url);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let response = request.call().map_err(|error| self.in_words(error))?;
        self.read(response)
    }

    fn read(
        &self,
        mut response: ureq::http::Response<ureq::Body>,
    ) -> anyhow::Result<(u16, String)> {
        let body = response
            .body_mut()
            .read_to_string()
            .map_err(|error| self.in_words(error))?;
        Ok((response.status().as_u16(), body))
    }

    fn in_words(&self, error: ureq::Error) -> anyhow::Error {
        let address = &self.address;
        match error {
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                anyhow::anyhow!(
                    "nobody listens on {address}: is the node running, and is that its `--http` address?"
                )
            }
            ureq::Error::Timeout(_) => anyhow::anyhow!(
                "no answer from {address} within {} seconds",
                TIMEOUT.as_secs()
            ),
            error => anyhow::Error::new(error).context(format!("cannot ask {address}")),
        }
    }
}

fn error_words(body: String) -> String {
    serde_json::from_str::<ErrorEntry>(&body).map_or(body, |entry| entry.error)
}
