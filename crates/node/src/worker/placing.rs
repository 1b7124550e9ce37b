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
    if connect.version != ProtocolVersion::V5 {
        return None;
    }
    let asked = asked_by(client_id, &connect.user_properties)?;
    Some(asked.and_then(|asked| {
        let connection = cx.connections.get(id);
        let connection = connection.ok_or(PlacementError::Unsure)?;
        let client = PlacementClient {
            topic_prefix: prefix(cx, id),
            grant: connection.admission.grant.as_deref(),
            address: connection.peer.ip(),
            session_scope: cx.config.limits.session_scope,
        };
        client.request(asked.check()?)
    }))
}

/// What user properties ask for; `None`: for no placement.
fn asked_by(
    client_id: &str,
    user_properties: &[(&str, &str)],
) -> Option<Result<PlacementAsked, PlacementError>> {
    let of = |wanted: &'static str| {
        let properties = user_properties.iter();
        properties
            .filter(move |(name, _)| *name == wanted)
            .map(|(_, value)| *value)
    };
    let max_sessions = of(MAX_SESSIONS).next()?;
    let all = |wanted| of(wanted).map(str::to_owned).collect::<Vec<_>>();
    let rates = of(RATES).next().unwrap_or("{}");
    let asked = || {
        if let Some(name) = [MAX_SESSIONS, RATES]
            .into_iter()
            .find(|it| of(it).count() > 1)
        {
            return Err(bad_field(name, "must not be there twice"));
        }
        Ok(PlacementAsked {
            client_id: client_id.to_owned(),
            publish: all(PUBLISH),
            subscribe: all(SUBSCRIBE),
            max_sessions: max_sessions
                .parse()
                .map_err(|_| bad_field(MAX_SESSIONS, "must be 1 to 16"))?,
            rates: serde_json::from_str(rates)
                .map_err(|error| bad_field(RATES, &error.to_string()))?,
        })
    };
    Some(asked())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_properties_ask_for_a_placement_and_each_number_is_there_once() {
        let most = (MAX_SESSIONS, "2");
        let rates = (RATES, r#"{"a": 1.5}"#);
        let (one, other) = ((SUBSCRIBE, "a"), (SUBSCRIBE, "b/+"));
        assert!(asked_by("c", &[one, rates]).is_none());
        let asked = asked_by("c", &[one, most, other, rates, (PUBLISH, "p")]);
        let asked = asked.expect("it asks").expect("it is valid");
        assert_eq!((asked.max_sessions, asked.rates["a"]), (2, 1.5));
        assert_eq!(
            (asked.subscribe, asked.publish.len()),
            (vec!["a".to_owned(), "b/+".into()], 1)
        );
        for (properties, field) in [
            (vec![(MAX_SESSIONS, "many")], MAX_SESSIONS),
            (vec![most, most], MAX_SESSIONS),
            (vec![most, (RATES, "{")], RATES),
            (vec![most, rates, rates], RATES),
        ] {
            let refused = asked_by("c", &properties).expect("it asks").unwrap_err();
            let PlacementError::BadField { field: found, .. } = refused else {
                panic!("{refused}");
            };
            assert_eq!(found, field, "{properties:?}");
        }
    }
}
