//! Asking a control plane by HTTP.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::placement::Request;
use crate::random::shuffle;

/// For one of the control planes; a node answers in milliseconds.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Where to ask, and as whom.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    pub(crate) urls: Vec<String>,
    pub(crate) login: Option<(String, Vec<u8>)>,
}

impl Control {
    /// Asks one after the other, in an order drawn by lot. It blocks.
    pub(crate) fn ask(&self, request: &Request) -> Result<String, String> {
        let body = serde_json::to_string(request).map_err(|error| error.to_string())?;
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build()
            .into();
        let mut urls = self.urls.clone();
        shuffle(&mut urls);
        let mut problem = "no control plane is named".to_owned();
        for url in urls {
            match self.ask_one(&agent, &url, &body) {
                Ok(answer) => return Ok(answer),
                Err(error) => problem = format!("{url}: {error}"),
            }
        }
        Err(problem)
    }

    fn ask_one(&self, agent: &ureq::Agent, url: &str, body: &str) -> Result<String, String> {
        let place = format!("{}/v1/placements", url.trim_end_matches('/'));
        let mut request = agent.post(place).header("content-type", "application/json");
        if let Some((user, password)) = &self.login {
            let mut pair = format!("{user}:").into_bytes();
            pair.extend_from_slice(password);
            request = request.header("authorization", format!("Basic {}", STANDARD.encode(pair)));
        }
        let mut answer = request.send(body).map_err(|error| error.to_string())?;
        let status = answer.status();
        let text = answer
            .body_mut()
            .read_to_string()
            .map_err(|error| error.to_string())?;
        if status.is_success() {
            return Ok(text);
        }
        // A problem document (RFC 9457) says it in words.
        let problem: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let words = problem["detail"]
            .as_str()
            .or_else(|| problem["title"].as_str());
        Err(format!("{status}: {}", words.unwrap_or("no reason given")))
    }
}
