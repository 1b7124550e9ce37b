//! Clients that ask in their CONNECT where their sessions should be.

use thicket_access::Reach;
use thicket_mqtt::{Connect, ProtocolVersion};

use super::Worker;
use crate::{ConnectionId, PlacementAsked, PlacementError, PlacementRequest};

/// The user property whose presence asks: sessions that the client may have.
const MAX_SESSIONS: &str = "thicket-max-sessions";
/// One topic that the client publishes to.
const PUBLISH: &str = "thicket-publish";
/// One filter.
const SUBSCRIBE: &str = "thicket-subscribe";
/// JSON: messages a second by topic or filter.
const RATES: &str = "thicket-rates";

impl Worker {
    /// What a CONNECT asks for, with the names that the cluster knows. `name`: of its session.
    pub(super) fn placement_asked(
        &self,
        id: ConnectionId,
        connect: &Connect<'_>,
        name: &str,
    ) -> Option<Result<PlacementRequest, PlacementError>> {
        let of = |wanted: &'static str| {
            let properties = connect.user_properties.iter();
            properties
                .filter(move |(name, _)| *name == wanted)
                .map(|(_, value)| *value)
        };
        let max_sessions = of(MAX_SESSIONS).next()?;
        let all = |wanted| of(wanted).map(str::to_owned).collect::<Vec<_>>();
        let rates = of(RATES).next().unwrap_or("{}");
        let is_asking = connect.version == ProtocolVersion::V5;
        is_asking.then(|| {
            let asked = PlacementAsked {
                client_id: connect.client_id.to_owned(),
                publish: all(PUBLISH),
                subscribe: all(SUBSCRIBE),
                max_sessions: max_sessions
                    .parse()
                    .map_err(|_| bad(MAX_SESSIONS, "must be 1 to 16"))?,
                rates: serde_json::from_str(rates)
                    .map_err(|error| bad(RATES, &error.to_string()))?,
            };
            let request = asked.check()?;
            self.check_rights(id, &request)?;
            Ok(self.with_prefix(id, request, name))
        })
    }

    /// Topics that its client may not use are refused by name.
    fn check_rights(
        &self,
        id: ConnectionId,
        request: &PlacementRequest,
    ) -> Result<(), PlacementError> {
        let grant = self
            .connection(id)
            .and_then(|it| it.admission.grant.as_deref());
        let Some(rights) = grant.and_then(|grant| grant.rights.as_deref()) else {
            return Ok(());
        };
        let prefix = self.prefix(id);
        let refused = |list: &str, at: usize, topic: &str| {
            bad(
                &format!("{list}[{at}]"),
                &format!("the client may not use {topic:?}"),
            )
        };
        for (at, topic) in request.publish.iter().enumerate() {
            if !rights.may_publish(&format!("{prefix}{topic}")) {
                return Err(refused("publish", at, topic));
            }
        }
        for (at, filter) in request.subscribe.iter().enumerate() {
            if rights.may_subscribe(&format!("{prefix}{filter}")) == Reach::Nothing {
                return Err(refused("subscribe", at, filter));
            }
        }
        Ok(())
    }

    fn with_prefix(
        &self,
        id: ConnectionId,
        request: PlacementRequest,
        name: &str,
    ) -> PlacementRequest {
        let prefix = self.prefix(id);
        let named = |topic: String| format!("{prefix}{topic}");
        PlacementRequest {
            client_id: name.to_owned(),
            publish: request.publish.into_iter().map(named).collect(),
            subscribe: request.subscribe.into_iter().map(named).collect(),
            max_sessions: request.max_sessions,
            rates: request
                .rates
                .into_iter()
                .map(|(topic, rate)| (named(topic), rate))
                .collect(),
        }
    }
}

fn bad(field: &str, problem: &str) -> PlacementError {
    PlacementError::BadField {
        field: field.to_owned(),
        problem: problem.to_owned(),
    }
}
