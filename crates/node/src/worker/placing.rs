//! Clients that ask in their CONNECT where their sessions should be.

use thicket_mqtt::{Connect, ProtocolVersion};

use super::{context::Context, listeners::prefix};
use crate::{
    ConnectionId, PlacementAsked, PlacementClient, PlacementError, PlacementRequest,
    placing::bad_field,
};

/// The user property whose presence asks: sessions that the client may have.
const MAX_SESSIONS: &str = "thicket-max-sessions";
/// One topic that the client publishes to.
const PUBLISH: &str = "thicket-publish";
/// One filter.
const SUBSCRIBE: &str = "thicket-subscribe";
/// JSON: messages a second by topic or filter.
const RATES: &str = "thicket-rates";

/// What a CONNECT asks for, with names as they are in the cluster. `client_id`: its own, or the one that it is assigned.
pub(super) fn placement_asked(
    cx: &Context,
    id: ConnectionId,
    client_id: &str,
    connect: &Connect<'_>,
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
            client_id: client_id.to_owned(),
            publish: all(PUBLISH),
            subscribe: all(SUBSCRIBE),
            max_sessions: max_sessions
                .parse()
                .map_err(|_| bad_field(MAX_SESSIONS, "must be 1 to 16"))?,
            rates: serde_json::from_str(rates)
                .map_err(|error| bad_field(RATES, &error.to_string()))?,
        };
        let grant = cx
            .connections
            .get(id)
            .and_then(|it| it.admission.grant.as_deref());
        let client = PlacementClient {
            topic_prefix: prefix(cx, id),
            grant,
            session_scope: cx.config.limits.session_scope,
        };
        client.request(asked.check()?)
    })
}
