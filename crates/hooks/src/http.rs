//! A receiver of events over HTTP: a batch is the body of a signed request.

use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::receiver::{Batch, Failure, Receiver, Sent};
use crate::{AgentError, HttpDestination, Origin, SIGNATURE_HEADER, TIMESTAMP_HEADER, agent, sign};

/// Version of the body of a request.
const VERSION: u32 = 1;

/// Posts batches.
pub(crate) struct Http {
    agent: ureq::Agent,
    destination: HttpDestination,
    origin: Origin,
}

impl Http {
    pub(crate) fn new(destination: HttpDestination, origin: Origin) -> Result<Self, AgentError> {
        Ok(Self {
            agent: agent(&destination.url, destination.authorities.as_deref())?,
            destination,
            origin,
        })
    }

    fn body(&self, batch: &Batch) -> String {
        let Origin { node, hook, run } = &self.origin;
        let events = batch.events.iter().map(|event| event.to_json(run));
        json!({
            "version": VERSION,
            "node": node,
            "hook": hook,
            "run": run,
            "sequence": batch.sequence,
            "events": events.collect::<Vec<_>>(),
        })
        .to_string()
    }

    fn post(&self, body: &str, timeout: Duration) -> Result<(), Failure> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let timestamp = since.unwrap_or_default().as_secs().to_string();
        let mut request = self
            .agent
            .post(&self.destination.url)
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", "application/json")
            .header(TIMESTAMP_HEADER, &timestamp);
        if let Some(secret) = &self.destination.secret {
            request = request.header(SIGNATURE_HEADER, sign(secret, &timestamp, body.as_bytes()));
        }
        let answer = request
            .send(body)
            .map_err(|error| Failure::Temporary(error.to_string()))?;
        let status = answer.status().as_u16();
        match status {
            200..300 => Ok(()),
            // The receiver asks to wait, or it is too early: a later attempt may succeed.
            408 | 425 | 429 | 500.. => Err(Failure::Temporary(format!("status {status}"))),
            _ => Err(Failure::Refused(format!("status {status}"))),
        }
    }
}

impl Receiver for Http {
    /// Sends the whole batch; it has the same body at every attempt.
    fn send(&mut self, batch: &mut Batch, timeout: Duration) -> Sent {
        Sent {
            count: batch.events.len(),
            outcome: self.post(&self.body(batch), timeout),
        }
    }
}
