//! The document that describes the API for programs (OpenAPI 3.1).
//!
//! Operations and their parameters come from the handlers, schemas from the types of bodies. A route is registered together with its description
//! (`routes!`), so none lacks one. The effects of the layers around all routes are added here, once.

use std::sync::Arc;

use axum::{Extension, Json};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Server};

use crate::api::ErrorEntry;

/// The media type of errors (RFC 9457).
pub(super) const PROBLEM: &str = "application/problem+json";

/// Parts of the description that every operation of a listener has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layers {
    /// Users, roles and tokens; requests for another node.
    OfNode,
    /// The credentials of clients.
    OfClients,
}

/// The finished document: an extension of the requests for it.
#[derive(Debug, Clone)]
pub(super) struct Document(Arc<Value>);

/// Pairs of a status and the case in which it is answered.
type Answers = [(&'static str, &'static str)];

/// From the layers around all operations of a node: whom the API answers, and which node.
const OF_NODE: &Answers = &[
    (
        "403",
        "The request comes from the page of another site or names another host, or the role of the user or the token does not allow this",
    ),
    ("404", "`node` names no node that is up"),
    ("409", "Several nodes have the name in `node`"),
    ("502", "The node that `node` names gives no answer"),
    ("503", "The node cannot answer now"),
];
/// From the layers that require credentials.
const OF_USERS: &Answers = &[
    (
        "401",
        "The API has users, and the request has no valid credentials",
    ),
    ("429", "Too many passwords are waiting to be checked"),
];
/// From the listener for remote clients, which authenticates the client.
const OF_CLIENTS: &Answers = &[
    (
        "401",
        "The listener does not accept a client with these credentials",
    ),
    ("503", "The node cannot answer now"),
];
/// Groups of operations.
const TAGS: &Answers = &[
    ("cluster", "Nodes, links, trees and bridges"),
    ("clients", "Sessions, subscriptions and bans"),
    ("messages", "Publishing, retained messages, topics"),
    ("placement", "Where the sessions of clients should be"),
    ("monitoring", "Health, metrics, memory, packets"),
    (
        "administration",
        "Reload, export and import, audit log, this document",
    ),
    ("page", "The page of the node"),
];
/// Answers to an invalid body.
const OF_BODIES: &Answers = &[
    ("400", "The body is not JSON, or the query is not valid"),
    ("413", "The body is too long"),
    (
        "415",
        "The media type of the body is not `application/json`",
    ),
    (
        "422",
        "A field is missing, unknown, of another type, or its value is not valid; `field` names it",
    ),
];

/// A document without operations.
pub(super) fn empty(description: &str) -> OpenApi {
    let info = InfoBuilder::new()
        .title("Thicket")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(description));
    let components = ComponentsBuilder::new().schema_from::<ErrorEntry>();
    OpenApiBuilder::new()
        .info(info.build())
        // The host that the document was fetched from.
        .servers(Some([Server::new("/")]))
        .components(Some(components.build()))
        .build()
}

/// The OpenAPI document of this API.
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = "administration", operation_id = "describe",
    responses((status = 200, description = "The document", body = Value))
)]
pub(super) async fn answer(Extension(document): Extension<Document>) -> Json<Value> {
    Json(Value::clone(&document.0))
}

impl Document {
    /// Adds the effects of the layers to every operation.
    pub(super) fn new(registered: &OpenApi, layers: Layers) -> Self {
        let mut document = serde_json::to_value(registered).unwrap_or_default();
        let paths = document["paths"].as_object_mut();
        for (path, operations) in paths.into_iter().flatten() {
            let operations = operations.as_object_mut();
            for operation in operations.into_iter().flat_map(Map::values_mut) {
                complete(path, operation, layers);
            }
        }
        let text = document["paths"].to_string();
        let is_used = |name: &str| text.contains(&format!("[\"{name}\"]"));
        let used = TAGS.iter().filter(|(name, _)| is_used(name));
        let tags: Vec<Value> = used
            .map(|(name, description)| json!({ "name": name, "description": description }))
            .collect();
        document["tags"] = json!(tags);
        close_tagged(&mut document["components"]["schemas"]);
        document["components"]["securitySchemes"] = json!({
            "password": { "type": "http", "scheme": "basic" },
            "token": { "type": "http", "scheme": "bearer" },
        });
        document["security"] = json!([{ "password": [] }, { "token": [] }, {}]);
        Self(Arc::new(document))
    }
}

fn complete(path: &str, operation: &mut Value, layers: Layers) {
    let asks_nobody = path.starts_with("/v1/health/");
    let common: &[&Answers] = match layers {
        Layers::OfNode if asks_nobody => &[OF_NODE],
        Layers::OfNode => &[OF_NODE, OF_USERS],
        Layers::OfClients if path == "/v1/openapi.json" => &[],
        Layers::OfClients => &[OF_CLIENTS],
    };
    let takes_json = operation["requestBody"]["content"]["application/json"].is_object();
    let of_body = if takes_json { OF_BODIES } else { &[] };
    if let Some(responses) = operation["responses"].as_object_mut() {
        for (status, meaning) in of_body.iter().chain(common.iter().copied().flatten()) {
            let described = || json!({ "description": meaning });
            responses.entry(*status).or_insert_with(described);
        }
        for (status, response) in responses {
            if **status >= *"400" && response.get("content").is_none() {
                response["content"] = json!({ PROBLEM: { "schema": { "$ref": problem() } } });
            }
        }
    }
    let Layers::OfNode = layers else { return };
    if asks_nobody {
        operation["security"] = json!([]);
    }
    if operation["parameters"].is_null() {
        operation["parameters"] = json!([]);
    }
    let parameters = operation["parameters"].as_array_mut();
    if let Some(parameters) = parameters.filter(|all| all.iter().all(|it| it["name"] != "node")) {
        parameters.push(json!({
            "name": "node", "in": "query", "required": false, "schema": { "type": "string" },
            "description": "Name or identity of the node that is to answer; without it the node that is asked.",
        }));
    }
}

/// A tagged variant is described as `allOf` its type and the tag. If the type forbids other fields, nothing satisfies both: such a variant becomes
/// one object with the fields of both.
fn close_tagged(schemas: &mut Value) {
    let named = schemas.clone();
    let mut replaced = Vec::new();
    let all = schemas
        .as_object_mut()
        .into_iter()
        .flat_map(Map::values_mut);
    let variants = all.filter_map(|it| it.get_mut("oneOf")?.as_array_mut());
    for variant in variants.flatten() {
        let Some([reference, tag]) = variant["allOf"].as_array().map(Vec::as_slice) else {
            continue;
        };
        let reference = reference["$ref"].as_str();
        let name = reference.and_then(|it| it.rsplit('/').next());
        let name = name.unwrap_or_default().to_owned();
        let mut merged = named.get(&name).cloned().unwrap_or_default();
        if merged.get("additionalProperties") != Some(&Value::Bool(false)) {
            continue;
        }
        for key in ["properties", "required"] {
            match (&mut merged[key], tag[key].clone()) {
                (Value::Object(all), Value::Object(more)) => all.extend(more),
                (Value::Array(all), Value::Array(more)) => all.extend(more),
                _ => {}
            }
        }
        replaced.push(name);
        *variant = merged;
    }
    let text = schemas.to_string();
    if let Some(schemas) = schemas.as_object_mut() {
        // Except those that are referred to elsewhere.
        let is_used = |name: &str| text.contains(&format!("/{name}\""));
        schemas.retain(|name, _| !replaced.contains(name) || is_used(name));
    }
}

fn problem() -> String {
    format!("#/components/schemas/{}", ErrorEntry::name())
}

#[cfg(test)]
mod tests {
    use super::super::{clients, described};
    use super::*;

    fn of_node() -> Value {
        let Document(document) = Document::new(described().get_openapi(), Layers::OfNode);
        Value::clone(&document)
    }

    fn of_clients() -> Value {
        let described = clients::described();
        let Document(document) = Document::new(described.get_openapi(), Layers::OfClients);
        Value::clone(&document)
    }

    #[test]
    fn no_route_is_registered_without_a_description() {
        let sources = [
            ("audit.rs", include_str!("audit.rs")),
            ("bans.rs", include_str!("bans.rs")),
            ("clients.rs", include_str!("clients.rs")),
            ("cluster.rs", include_str!("cluster.rs")),
            ("messages.rs", include_str!("messages.rs")),
            ("mod.rs", include_str!("mod.rs")),
            ("operate.rs", include_str!("operate.rs")),
            ("page.rs", include_str!("page.rs")),
            ("placement.rs", include_str!("placement.rs")),
            ("rebalance.rs", include_str!("rebalance.rs")),
            ("recording.rs", include_str!("recording.rs")),
            ("transfer.rs", include_str!("transfer.rs")),
        ];
        for (name, source) in sources {
            assert!(
                !source.contains(".route("),
                "{name}: use `.routes(routes!(..))`"
            );
        }
    }

    #[test]
    fn every_operation_says_what_it_is_for_what_it_takes_and_what_it_answers() {
        let mut ids = Vec::new();
        for (document, most) in [(of_node(), 50), (of_clients(), 10)] {
            ids.clear();
            let paths = document["paths"].as_object().expect("paths");
            for (path, operations) in paths {
                for (method, operation) in operations.as_object().expect("operations") {
                    let at = format!("{method} {path}");
                    assert!(operation["summary"].is_string(), "{at}: a summary");
                    ids.push(operation["operationId"].to_string());
                    let parameters = operation["parameters"].as_array();
                    for parameter in parameters.into_iter().flatten() {
                        let name = &parameter["name"];
                        assert!(parameter["description"].is_string(), "{at}: {name}");
                        assert!(parameter["schema"].is_object(), "{at}: {name}");
                    }
                    for name in path
                        .split('{')
                        .skip(1)
                        .filter_map(|it| it.split('}').next())
                    {
                        let mut all = parameters.into_iter().flatten();
                        assert!(
                            all.any(|it| it["name"] == name && it["in"] == "path"),
                            "{at}"
                        );
                    }
                    let responses = operation["responses"].as_object().expect("responses");
                    assert!(
                        responses.keys().any(|status| status.starts_with('2')),
                        "{at}"
                    );
                    let tags = operation["tags"].as_array().expect("tags");
                    assert_eq!(tags.len(), 1, "{at}");
                    let mut named = document["tags"].as_array().into_iter().flatten();
                    assert!(named.any(|it| it["name"] == tags[0]), "{at}: {tags:?}");
                }
            }
            assert!(ids.len() < most);
            ids.sort();
            let count = ids.len();
            ids.dedup();
            assert_eq!(ids.len(), count, "operations have names of their own");
        }
    }

    /// The statuses of an operation.
    fn statuses(document: &Value, method: &str, path: &str) -> Vec<String> {
        let responses = document["paths"][path][method]["responses"].as_object();
        let mut all: Vec<_> = responses.into_iter().flat_map(Map::keys).cloned().collect();
        all.sort();
        all
    }

    #[test]
    fn an_operation_lists_the_statuses_that_it_can_answer() {
        let of_node = of_node();
        let common = ["403", "404", "409", "502", "503"];
        let of_users = ["401", "429"];
        let of_body = ["400", "413", "415", "422"];
        for (method, path, others) in [
            ("get", "/v1/health/ready", vec![&["200"][..]]),
            ("get", "/v1/nodes", vec![&["200"], &of_users]),
            ("get", "/v1/sessions", vec![&["200", "400"], &of_users]),
            ("post", "/v1/drain", vec![&["200", "400"], &of_users]),
            ("post", "/v1/kick", vec![&["200"], &of_users, &of_body]),
            (
                "post",
                "/v1/publish",
                vec![&["200", "504", "507"], &of_users, &of_body],
            ),
            (
                "delete",
                "/v1/placements/{client_id}",
                vec![&["204", "400"], &of_users],
            ),
            ("post", "/v1/import", vec![&["200", "400"], &of_users]),
            ("post", "/v1/reload", vec![&["200", "422"], &of_users]),
        ] {
            let mut expected: Vec<_> = common.iter().chain(others.into_iter().flatten()).collect();
            expected.sort();
            assert_eq!(
                statuses(&of_node, method, path).iter().collect::<Vec<_>>(),
                expected,
                "{method} {path}"
            );
        }
        let of_clients = of_clients();
        assert_eq!(statuses(&of_clients, "get", "/v1/openapi.json"), ["200"]);
        let one = "/v1/placements/{client_id}";
        assert_eq!(
            statuses(&of_clients, "get", one),
            ["200", "400", "401", "404", "422", "503"]
        );
        for document in [of_node, of_clients] {
            assert_eq!(document["servers"], json!([{ "url": "/" }]));
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_schema_is_used() {
        for document in [of_node(), of_clients()] {
            let text = document.to_string();
            let schemas = document["components"]["schemas"].as_object();
            let schemas = schemas.expect("schemas");
            let names = text.split("#/components/schemas/").skip(1);
            let names: Vec<_> = names.filter_map(|rest| rest.split('"').next()).collect();
            for name in &names {
                assert!(schemas.contains_key(*name), "{name}");
            }
            for name in schemas.keys() {
                assert!(names.contains(&&**name), "{name}");
            }
        }
    }

    #[test]
    fn types_and_meanings_come_from_the_fields() {
        let session = &of_node()["components"]["schemas"]["Session"];
        let expected =
            json!({ "type": ["string", "null"], "description": "Address of the client." });
        assert_eq!(session["properties"]["peer"], expected);
        assert_eq!(session["properties"]["connected"]["type"], "boolean");
        assert_eq!(session["required"].as_array().map(Vec::len), Some(14));
    }

    #[test]
    fn clients_elsewhere_are_told_of_their_routes_only() {
        let document = of_clients();
        let paths = document["paths"].as_object().expect("paths");
        let paths: Vec<_> = paths.iter().collect();
        let operations = |value: &Value| -> Vec<String> {
            let all = value.as_object().into_iter().flat_map(Map::keys);
            all.cloned().collect()
        };
        let told: Vec<_> = paths
            .iter()
            .map(|(path, it)| (path.as_str(), operations(it)))
            .collect();
        let expected = [
            ("/v1/openapi.json", vec!["get".to_owned()]),
            ("/v1/placements", vec!["post".to_owned()]),
            (
                "/v1/placements/{client_id}",
                vec!["delete".to_owned(), "get".to_owned()],
            ),
        ];
        assert_eq!(told, expected);
    }
}
