//! Asks the HTTP API of a node.

use std::io::Read;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::parser::ValueSource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thicket_broker::api::overlay::query_of_text;
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
    /// Which node is to answer, as a part of a query.
    node: Option<String>,
}

/// Who asks, where the API has users.
#[derive(Debug, Default)]
pub struct Credentials {
    /// Value of the Authorization header.
    authorization: Option<String>,
}

/// The arguments that say so: one of them. One of the command line takes precedence over the environment.
#[derive(Debug, clap::Args)]
struct Given {
    /// Name and password of a user of the API
    #[arg(
        long,
        env = "THICKET_API_USER",
        value_name = "NAME:PASSWORD",
        hide_env_values = true,
        allow_hyphen_values = true,
        global = true
    )]
    api_user: Option<String>,
    /// Token for the API
    #[arg(
        long,
        env = "THICKET_API_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true,
        global = true
    )]
    api_token: Option<String>,
    /// File with a token for the API: unlike an argument, it is not visible in the process list
    #[arg(
        long,
        alias = "token-file",
        env = "THICKET_API_TOKEN_FILE",
        value_name = "FILE",
        value_parser = token_in_file,
        global = true
    )]
    api_token_file: Option<TokenInFile>,
}

impl clap::Args for Credentials {
    fn augment_args(command: clap::Command) -> clap::Command {
        Given::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Given::augment_args_for_update(command)
    }
}

impl clap::FromArgMatches for Credentials {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let given = Given::from_arg_matches(matches)?;
        let bearer = |token: String| format!("Bearer {token}");
        let basic = |user: String| format!("Basic {}", STANDARD.encode(user));
        let all = [
            ("api_user", given.api_user.map(basic)),
            ("api_token", given.api_token.map(bearer)),
            (
                "api_token_file",
                given.api_token_file.map(|it| bearer(it.0)),
            ),
        ];
        let is_flag = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        let has_flag = all.iter().any(|(id, _)| is_flag(*id));
        let chosen = all.into_iter().filter(|(id, _)| is_flag(*id) == has_flag);
        let mut chosen = chosen.filter_map(|(_, value)| value);
        let this = Self {
            authorization: chosen.next(),
        };
        match chosen.next() {
            None => Ok(this),
            Some(_) => Err(clap::Error::raw(
                clap::error::ErrorKind::ArgumentConflict,
                "expected one of --api-user, --api-token and --api-token-file, or one of their variables\n",
            )),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The token in a file.
#[derive(Clone)]
struct TokenInFile(String);

impl std::fmt::Debug for TokenInFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenInFile")
    }
}

fn token_in_file(path: &str) -> Result<TokenInFile, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))?;
    let token = text.trim();
    let is_good = !token.is_empty() && token.chars().all(|char| char.is_ascii_graphic());
    if is_good {
        Ok(TokenInFile(token.to_owned()))
    } else {
        Err("expected a token and nothing else in it".to_owned())
    }
}

/// HOST:PORT of what people write: an address, or the start of a URL.
pub fn address(text: &str) -> Result<String, String> {
    if text.starts_with("https://") {
        return Err("the HTTP API speaks no TLS: expected HOST:PORT or http://HOST:PORT".into());
    }
    let bare = text.strip_prefix("http://").unwrap_or(text);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    let has_port = bare
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if has_port && !bare.contains('/') {
        Ok(bare.to_owned())
    } else {
        Err("expected HOST:PORT or http://HOST:PORT".into())
    }
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
            node: None,
        }
    }

    /// As this user.
    pub fn with_credentials(mut self, credentials: &Credentials) -> Self {
        self.authorization.clone_from(&credentials.authorization);
        self
    }

    /// Has the node hand everything on to this one.
    pub fn with_node(mut self, node: Option<&str>) -> Self {
        self.node = node.map(|node| query_of_text("node", node));
        self
    }

    fn url(&self, path: &str) -> String {
        let mut url = format!("http://{}{path}", self.address);
        if let Some(node) = &self.node {
            url.push(if path.contains('?') { '&' } else { '?' });
            url.push_str(node);
        }
        url
    }

    /// The body of an answer, as it came.
    pub fn text(&self, path: &str) -> anyhow::Result<String> {
        let (status, body) = self.fetch(path)?;
        self.checked(status, body)
    }

    fn checked(&self, status: u16, body: String) -> anyhow::Result<String> {
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let words = match serde_json::from_str::<ReloadEntry>(&body) {
            Ok(entry) => entry.problems.join("\n  "),
            Err(_) => serde_json::from_str::<ErrorEntry>(&body).map_or(body, |entry| entry.error),
        };
        let hint = match (status, &self.authorization) {
            (401, None) => "; give `--api-token-file`, `--api-token` or `--api-user`",
            _ => "",
        };
        bail!(
            "the node at {} answers {status}: {words}{hint}",
            self.address
        )
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

    /// Has the node do something; its answer.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let url = self.url(path);
        let body = serde_json::to_string(body)?;
        let request = self.agent.post(&url);
        let sent = self
            .as_user(request)
            .header("content-type", "application/json")
            .send(body);
        let (status, body) = self.read(sent)?;
        let text = self.checked(status, body)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// An answer of any length, to be read as it comes.
    pub fn download(&self, path: &str) -> anyhow::Result<impl Read + use<>> {
        let url = self.url(path);
        let request = self.as_user(self.agent.post(&url));
        let request = request.config().timeout_global(None).build();
        let mut response = request.send_empty().map_err(|error| self.in_words(error))?;
        let status = response.status().as_u16();
        if status != 200 {
            let body = response.body_mut().read_to_string().unwrap_or_default();
            self.checked(status, body)?;
        }
        Ok(response.into_body().into_reader())
    }

    /// Sends a body of any length, as it comes; the answer.
    pub fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &mut impl Read,
    ) -> anyhow::Result<T> {
        let url = self.url(path);
        let request = self.as_user(self.agent.post(&url));
        let request = request.config().timeout_global(None).build();
        let sent = request
            .header("content-type", "application/x-ndjson")
            .send(ureq::SendBody::from_reader(body));
        let (status, body) = self.read(sent)?;
        let text = self.checked(status, body)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Ends something; the body of the answer.
    pub fn delete(&self, path: &str) -> anyhow::Result<String> {
        let url = self.url(path);
        let (status, body) = self.read(self.as_user(self.agent.delete(&url)).call())?;
        self.checked(status, body)
    }

    fn as_user<T>(&self, request: ureq::RequestBuilder<T>) -> ureq::RequestBuilder<T> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    fn fetch(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let url = self.url(path);
        self.read(self.as_user(self.agent.get(&url)).call())
    }

    fn read(
        &self,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<(u16, String)> {
        let mut response = response.map_err(|error| self.in_words(error))?;
        let body = response
            .body_mut()
            .read_to_string()
            .map_err(|error| self.in_words(error))?;
        Ok((response.status().as_u16(), body))
    }

    fn no_http(&self) -> anyhow::Error {
        anyhow::anyhow!(
            "{} does not answer with HTTP: is it the port of an MQTT listener? Use the `--http` address of the node, by default 127.0.0.1:18830",
            self.address
        )
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
            ureq::Error::Protocol(_) | ureq::Error::Http(_) => self.no_http(),
            ureq::Error::Io(error) if is_end(&error) => self.no_http(),
            error => anyhow::Error::new(error).context(format!("cannot ask {address}")),
        }
    }
}

/// The connection ended before the answer did.
fn is_end(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_credentials_a_refusal_names_the_flags_for_them() {
        let refused = |api: &Api, status| {
            let answer = api.checked(status, "expected a user".into());
            answer.expect_err("a refusal").to_string()
        };
        let nobody = Api::new("127.0.0.1:18830");
        assert_eq!(
            refused(&nobody, 401),
            "the node at 127.0.0.1:18830 answers 401: expected a user; give `--api-token-file`, `--api-token` or `--api-user`"
        );
        assert!(!refused(&nobody, 404).contains("--api"));
        let somebody = nobody.with_credentials(&Credentials {
            authorization: Some("Bearer expired".into()),
        });
        assert!(!refused(&somebody, 401).contains("--api"));
    }

    #[test]
    fn one_kind_of_credentials_is_given() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            credentials: Credentials,
        }
        let parse = |words: &[&str]| {
            let words = std::iter::once(&"ctl").chain(words);
            <Line as clap::Parser>::try_parse_from(words).map(|it| it.credentials.authorization)
        };
        let chosen = |words: &[&str]| parse(words).expect("good");
        assert_eq!(chosen(&[]), None);
        let basic = Some("Basic YTpi".to_owned());
        assert_eq!(chosen(&["--api-user", "a:b"]), basic);
        let bearer = Some("Bearer x".to_owned());
        assert_eq!(chosen(&["--api-token", "x"]), bearer);
        assert!(parse(&["--api-token", "x", "--api-user", "a:b"]).is_err());
    }

    #[test]
    fn an_address_may_be_the_start_of_a_url() {
        for (text, expected) in [
            ("127.0.0.1:18830", "127.0.0.1:18830"),
            ("http://node-1:18830", "node-1:18830"),
            ("http://[::1]:18830/", "[::1]:18830"),
        ] {
            assert_eq!(address(text).as_deref(), Ok(expected));
        }
        for text in [
            "https://node-1:18830",
            "node-1",
            "http://node-1:18830/v1",
            ":1",
            "",
        ] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
