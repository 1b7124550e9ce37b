//! The document that describes the API to machines (OpenAPI 3.1). Fields of answers come from the types themselves; a test asks every
//! path and looks whether all paths there are stand here.

use serde_json::{Map, Value, json};

use crate::api::{
    BridgeLane, Described, Field, MembershipEntry, MemoryEntry, NodeEntry, RememberedEntry,
    SessionEntry, SubscriptionEntry, TopicEntry, TrafficCounts,
};

/// A path, its method, and what it is for.
struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    body: Option<&'static str>,
    answer: Answer,
}

#[derive(Clone, Copy)]
enum Answer {
    Text,
    One(&'static str),
    Many(&'static str),
    Any,
}

const fn get(path: &'static str, summary: &'static str, answer: Answer) -> Operation {
    Operation {
        method: "get",
        path,
        summary,
        body: None,
        answer,
    }
}

const OPERATIONS: &[Operation] = &[
    get(
        "/v1/nodes",
        "The nodes of the cluster, as this one sees them",
        Answer::Many("Node"),
    ),
    get(
        "/v1/membership",
        "How many nodes belong to the cluster, and whether this side of it serves",
        Answer::One("Membership"),
    ),
    get(
        "/v1/sessions",
        "The sessions on this node; `?search=` those with this in client identifier, user or address, `?limit=` so many",
        Answer::Many("Session"),
    ),
    get(
        "/v1/clients",
        "The sessions of all nodes, a page: `?client_id=`, `?user=`, `?address=`, `?search=`, `?connected=`, `?node=`, `?order=` name, waiting, oldest or rate, `?limit=` 1 to 1000, `?after=` what `next` says",
        Answer::Any,
    ),
    get(
        "/v1/subscribers",
        "The subscriptions of all nodes, a page: `?topic=` those that match it, `?filter=`, `?client_id=`, `?node=`, `?limit=`, `?after=`",
        Answer::Any,
    ),
    get(
        "/v1/retained",
        "Retained messages, a page: `?filter=`, `?payload=true` with all of each (role `admin`), `?limit=` 1 to 1000, `?after=` what `next` says",
        Answer::One("RetainedPage"),
    ),
    get(
        "/v1/retained/message",
        "The retained message of a topic, `?topic=` (role `admin`); 404 if there is none",
        Answer::One("Message"),
    ),
    Operation {
        method: "delete",
        path: "/v1/retained/message",
        summary: "Removes the retained message of a topic, `?topic=`, at all nodes; 404 if there is none",
        body: None,
        answer: Answer::One("Published"),
    },
    Operation {
        method: "post",
        path: "/v1/publish",
        summary: "Publishes a message, and answers when all who must have it have it; 503 without quorum, 507 if a queue is full, 504 if some have not acknowledged it yet",
        body: Some("Message"),
        answer: Answer::One("Published"),
    },
    get(
        "/v1/bans",
        "Who may not connect to any node",
        Answer::Many("Ban"),
    ),
    Operation {
        method: "post",
        path: "/v1/bans",
        summary: "Bans clients by one of identifier, user and address, or by identifier and user, at all nodes: CONNECT is refused with 0x8A, those that are connected are disconnected (0x98)",
        body: Some("BanRequest"),
        answer: Answer::One("Ban"),
    },
    Operation {
        method: "delete",
        path: "/v1/bans",
        summary: "Lifts a ban: one of `?client_id=`, `?user_name=`, `?address=`, or the first two; 404 if there is none",
        body: None,
        answer: Answer::One("Ban"),
    },
    get(
        "/v1/subscriptions",
        "The subscriptions of those sessions",
        Answer::Many("Subscription"),
    ),
    Operation {
        method: "post",
        path: "/v1/placements",
        summary: "Where the sessions of a client should be, by its topics; asking again keeps what stays and renews it",
        body: Some("PlacementRequest"),
        answer: Answer::One("Placement"),
    },
    get(
        "/v1/placements",
        "Clients that are placed, by client, a page; `?after=` the last one is the next page",
        Answer::Many("Placement"),
    ),
    get(
        "/v1/placements/{client_id}",
        "Where a client is placed; 404 if it is not",
        Answer::One("Placement"),
    ),
    Operation {
        method: "delete",
        path: "/v1/placements/{client_id}",
        summary: "Places a client no more; 204, or 404 if it was not placed",
        body: None,
        answer: Answer::Text,
    },
    get(
        "/v1/rebalance",
        "Which clients should be at other nodes, as the rebalancer planned last, and what it does",
        Answer::Any,
    ),
    Operation {
        method: "post",
        path: "/v1/rebalance",
        summary: "Plans anew, and has the clients moved unless it is a dry run",
        body: Some("RebalanceRequest"),
        answer: Answer::Any,
    },
    get(
        "/v1/recording",
        "Sessions of this node with their filters, a page, for `thicket plan`; `?after=` what `next` says is the next page, `?limit=` so many, at most 1000",
        Answer::One("RecordingPage"),
    ),
    get(
        "/v1/topics",
        "The topics that clients of each node publish to most, with their rates",
        Answer::Many("Topic"),
    ),
    get(
        "/v1/traffic",
        "What this node carried since its start",
        Answer::One("Traffic"),
    ),
    get(
        "/v1/bridges",
        "The bridges of this node to brokers of another kind",
        Answer::Many("Bridge"),
    ),
    get(
        "/v1/memory",
        "Where the memory of this node is",
        Answer::One("MemoryLedger"),
    ),
    get(
        "/v1/overlay",
        "The view of this node: nodes, links, trees",
        Answer::Any,
    ),
    get(
        "/v1/explain",
        "Where a publication on the topic in `?topic=` goes from each node, and why; or why the client in `?client_id=` is where it is",
        Answer::Any,
    ),
    get(
        "/v1/health/live",
        "200 as long as every thread answers",
        Answer::Text,
    ),
    get(
        "/v1/health/ready",
        "200 when clients are served well here, else 503 with the reason",
        Answer::Text,
    ),
    get(
        "/v1/watch",
        "What this node sees of the cluster, about once a second, as server-sent events; 503 if as many watch as may",
        Answer::Text,
    ),
    get(
        "/v1/whoami",
        "The role of who asks: `viewer`, `admin`, or null where the API has no users",
        Answer::Any,
    ),
    get(
        "/v1/audit",
        "What was changed over the API of this node, the oldest first; `?after=` only what has a higher number, `?limit=` so many",
        Answer::Many("Audit"),
    ),
    get("/v1/openapi.json", "This document", Answer::Any),
    get(
        "/metrics",
        "Metrics in the text format of Prometheus",
        Answer::Text,
    ),
    Operation {
        method: "delete",
        path: "/v1/sessions/{client_id}",
        summary: "Ends a session at whichever node it is, and the connection of its client (0x98), with the further sessions of a placed client; 404 if there is none, 409 if it is on its way to another node",
        body: None,
        answer: Answer::One("Kick"),
    },
    Operation {
        method: "post",
        path: "/v1/kick",
        summary: "Ends the connection of a client (0x98) and those of the further sessions it was placed with, with `end_session` the sessions too; 404 if it is connected to no node, or has no session on any",
        body: Some("Kick"),
        answer: Answer::One("Kick"),
    },
    Operation {
        method: "post",
        path: "/v1/drain",
        summary: "Lets nobody in any more and hands sessions to the nodes with their backups; what is left: ask again until it is nothing",
        body: None,
        answer: Answer::One("Drain"),
    },
    Operation {
        method: "post",
        path: "/v1/forget",
        summary: "Removes a node that is out from the cluster; 404 if there is none of that name or identity, 409 if it is up",
        body: Some("Forget"),
        answer: Answer::One("Forgotten"),
    },
    Operation {
        method: "post",
        path: "/v1/reload",
        summary: "Reads users, rights and certificates again; 422 if something could not be read and stays as it was",
        body: None,
        answer: Answer::One("Reload"),
    },
    Operation {
        method: "post",
        path: "/v1/export",
        summary: "Sessions of this node and retained messages, an object of JSON a line; the last has the kind `end`",
        body: None,
        answer: Answer::Text,
    },
    Operation {
        method: "post",
        path: "/v1/import",
        summary: "Takes the lines of an export; what is there already stays, unless `?replace=true`",
        body: None,
        answer: Answer::One("Import"),
    },
    Operation {
        method: "post",
        path: "/v1/trace",
        summary: "Begins to watch the packets of a client, or the PUBLISH packets of a topic filter; ends what was watched before",
        body: Some("TraceRequest"),
        answer: Answer::One("TraceLines"),
    },
    Operation {
        method: "post",
        path: "/v1/trace/lines",
        summary: "What was seen since the last time; a trace nobody asks for ends after ten seconds",
        body: None,
        answer: Answer::One("TraceLines"),
    },
    Operation {
        method: "delete",
        path: "/v1/trace",
        summary: "Ends the watch",
        body: None,
        answer: Answer::One("TraceLines"),
    },
];

/// Those that placements are described by.
const PLACEMENT_SCHEMAS: [&str; 5] = [
    "PlacementRequest",
    "Placement",
    "PlacedSession",
    "Problem",
    "Error",
];

/// The whole document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = operation.describe();
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Thicket",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The HTTP API of one node. Names are those of the MQTT specification, units stand in the names.",
        },
        "paths": paths,
        "components": { "schemas": schemas() },
    })
}

/// What the listener for clients elsewhere answers.
pub(super) fn placements() -> Value {
    let mut document = document();
    // The list of all clients is for whoever runs the node.
    if let Some(operations) = document["paths"]["/v1/placements"].as_object_mut() {
        operations.remove("get");
    }
    if let Some(paths) = document["paths"].as_object_mut() {
        paths.retain(|path, _| path.starts_with("/v1/placements") || path == "/v1/openapi.json");
    }
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.retain(|name, _| PLACEMENT_SCHEMAS.contains(&&**name));
    }
    document["info"]["description"] = "Where the sessions of a client should be, for clients of an MQTT listener, with their credentials there.".into();
    document["components"]["securitySchemes"] = json!({
        "password": { "type": "http", "scheme": "basic" },
        "token": { "type": "http", "scheme": "bearer" },
    });
    document["security"] = json!([{ "password": [] }, { "token": [] }, {}]);
    document
}

impl Operation {
    fn describe(&self) -> Value {
        let content = match self.answer {
            Answer::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
            Answer::One(name) => json!({ "application/json": { "schema": reference(name) } }),
            Answer::Many(name) => {
                json!({ "application/json": { "schema": { "type": "array", "items": reference(name) } } })
            }
            Answer::Any => json!({ "application/json": { "schema": { "type": "object" } } }),
        };
        let error = if self.path.starts_with("/v1/placements") {
            json!({ "application/problem+json": { "schema": reference("Problem") } })
        } else {
            json!({ "application/json": { "schema": reference("Error") } })
        };
        let mut described = json!({
            "summary": self.summary,
            "responses": {
                "200": { "description": "It is so", "content": content },
                "default": { "description": "It is not, and why", "content": error },
            },
        });
        if let Some((_, name)) = self.path.split_once('{') {
            described["parameters"] = json!([{
                "name": name.trim_end_matches('}'), "in": "path", "required": true, "schema": { "type": "string" },
            }]);
        }
        if let Some(name) = self.body {
            described["requestBody"] = json!({
                "required": true,
                "content": { "application/json": { "schema": reference(name) } },
            });
        }
        described
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn schemas() -> Value {
    let mut all = schemas_of_the_node();
    if let (Value::Object(all), Value::Object(more)) = (&mut all, schemas_of_messages()) {
        all.extend(more);
    }
    all
}

fn schemas_of_messages() -> Value {
    let text = json!({ "type": "string" });
    let perhaps_text = json!({ "type": ["string", "null"] });
    let number = json!({ "type": "integer", "minimum": 0 });
    let many = |name| json!({ "type": "array", "items": reference(name) });
    json!({
        "RetainedPage": object(json!({ "messages": many("Retained"), "next": { "type": ["string", "null"] } })),
        "Retained": object(json!({
            "topic": text, "qos": number, "payload_bytes": number, "expiry_left_ms": { "type": ["integer", "null"], "minimum": 0 },
            "message": { "oneOf": [reference("Message"), { "type": "null" }] },
        })),
        "Message": {
            "type": "object",
            "properties": {
                "topic": text, "qos": { "type": "integer", "minimum": 0, "maximum": 2, "default": 0 },
                "retain": { "type": "boolean", "default": false }, "payload": text, "payload_base64": text,
                "expiry_left_ms": number, "payload_format_indicator": { "enum": [0, 1] }, "content_type": text,
                "response_topic": text, "correlation_data_base64": text,
                "user_properties": { "type": "array", "items": { "type": "array", "items": text, "minItems": 2, "maxItems": 2 } },
            },
            "required": ["topic"],
            "additionalProperties": false,
        },
        "Ban": object(json!({
            "client_id": perhaps_text, "user_name": perhaps_text, "address": perhaps_text, "reason": text, "by": perhaps_text,
            "since_ms": number, "until_ms": { "type": ["integer", "null"], "minimum": 0 },
        })),
        "BanRequest": {
            "type": "object",
            "properties": {
                "client_id": text, "user_name": text, "address": text, "reason": text,
                "seconds": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
            },
            "additionalProperties": false,
        },
        "Published": object(json!({ "topic": text, "has_recipients": { "type": "boolean" } })),
    })
}

fn schemas_of_the_node() -> Value {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer", "minimum": 0 });
    let perhaps_text = json!({ "type": ["string", "null"] });
    let perhaps_number = json!({ "type": ["integer", "null"], "minimum": 0 });
    let many = |name| json!({ "type": "array", "items": reference(name) });
    let traffic = json!({ "total": reference("TrafficCounts"), "hub": reference("TrafficCounts"), "workers": many("TrafficCounts") });
    let ledger = json!({
        "resident_bytes": perhaps_number, "limit_bytes": perhaps_number, "retained_messages": number, "retained_bytes": number,
        "link_bytes": number, "hinted_messages": number, "hinted_bytes": number, "hinted_dropped_messages": number, "remembered": many("Remembered"), "total": reference("Memory"), "workers": many("Memory"),
    });
    let texts = json!({ "type": "array", "items": text });
    let flag = json!({ "type": "boolean" });
    let bridge = json!({
        "name": text, "address": text, "local_connected": flag, "remote_connected": flag, "local_connects": number,
        "remote_connects": number, "outward": reference("BridgeLane"), "inward": reference("BridgeLane"),
    });
    let import = json!({
        "sessions": number, "sessions_existing": number, "sessions_failed": number, "messages": number, "messages_dropped": number,
        "messages_skipped": number, "retained": number, "retained_existing": number,
        "problems": { "type": "array", "items": text },
    });
    let line = json!({ "client_id": text, "direction": { "enum": ["in", "out"] }, "packet": text });
    let audit = json!({
        "number": number, "time_ms": number, "user": perhaps_text, "peer": text, "method": text, "path": text,
        "subject": perhaps_text, "status": number, "times": number, "last_time_ms": number,
    });
    json!({
        "Audit": object(audit),
        "Node": of_fields(NodeEntry::FIELDS),
        "Membership": of_fields(MembershipEntry::FIELDS),
        "Forget": object(json!({ "node": text })),
        "Forgotten": object(json!({ "id": text, "name": text })),
        "Session": of_fields(SessionEntry::FIELDS),
        "Subscription": of_fields(SubscriptionEntry::FIELDS),
        "Topic": of_fields(TopicEntry::FIELDS),
        "RebalanceRequest": {
            "type": "object",
            "properties": { "dry_run": { "type": "boolean", "default": false } },
            "additionalProperties": false,
        },
        "PlacementRequest": {
            "type": "object",
            "properties": {
                "client_id": text, "publish": texts, "subscribe": texts,
                "max_sessions": { "type": "integer", "minimum": 1, "maximum": 16, "default": 4 },
                "rates": { "type": "object", "additionalProperties": { "type": "number", "minimum": 0 } },
            },
            "required": ["client_id"],
            "additionalProperties": false,
        },
        "Placement": object(json!({ "client_id": text, "sessions": many("PlacedSession"), "expires_in_s": number })),
        "PlacedSession": object(json!({
            "node": text, "address": perhaps_text, "tls": perhaps_text, "ws": perhaps_text, "wss": perhaps_text,
            "client_id": text, "publish": texts, "subscribe": texts,
        })),
        "RecordingPage": object(json!({ "node": text, "sessions": many("RecordedSession"), "next": perhaps_text })),
        "RecordedSession": object(json!({
            "client_id": text, "user_name": perhaps_text, "session": number, "publish": texts, "subscribe": texts,
        })),
        "TrafficCounts": of_fields(TrafficCounts::FIELDS),
        "Traffic": object(traffic),
        "Bridge": object(bridge),
        "BridgeLane": of_fields(BridgeLane::FIELDS),
        "Memory": of_fields(MemoryEntry::FIELDS),
        "Remembered": of_fields(RememberedEntry::FIELDS),
        "MemoryLedger": object(ledger),
        "Kick": { "type": "object", "properties": { "client_id": text, "user_name": perhaps_text, "end_session": flag }, "required": ["client_id"] },
        "Drain": object(json!({ "connections": number, "sessions": number })),
        "TraceRequest": { "type": "object", "properties": { "client_id": perhaps_text, "topic": perhaps_text } },
        "TraceLine": object(line),
        "TraceLines": object(json!({ "lines": many("TraceLine"), "lost": number })),
        "Import": object(import),
        "Reload": object(json!({ "problems": { "type": "array", "items": text } })),
        "Problem": object(json!({ "title": text, "status": number, "detail": text, "field": perhaps_text })),
        "Error": object(json!({ "error": text })),
    })
}

/// An object all of whose properties are there.
fn object(properties: Value) -> Value {
    let required: Vec<_> = properties
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .cloned()
        .collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

fn of_fields(fields: &[Field]) -> Value {
    let properties: Map<_, _> = fields
        .iter()
        .map(|field| (field.name.to_owned(), of_field(field)))
        .collect();
    object(Value::Object(properties))
}

fn of_field(field: &Field) -> Value {
    let (kind, is_optional) = match field
        .kind
        .strip_prefix("Option<")
        .and_then(|kind| kind.strip_suffix('>'))
    {
        Some(kind) => (kind, true),
        None => (field.kind, false),
    };
    let name = match kind {
        "bool" => "boolean",
        "String" => "string",
        "NodeStateEntry" => "object",
        "f64" => "number",
        "Vec<String>" => {
            let text = json!({ "type": "string" });
            return json!({ "type": "array", "items": text, "description": field.meaning.trim() });
        }
        _ => "integer",
    };
    let kind = if is_optional {
        json!([name, "null"])
    } else {
        json!(name)
    };
    json!({ "type": kind, "description": field.meaning.trim() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_there_is_stands_in_the_document_and_no_other() {
        let sources = [
            include_str!("mod.rs"),
            include_str!("audit.rs"),
            include_str!("bans.rs"),
            include_str!("cluster.rs"),
            include_str!("messages.rs"),
            include_str!("operate.rs"),
            include_str!("placement.rs"),
            include_str!("rebalance.rs"),
            include_str!("recording.rs"),
            include_str!("transfer.rs"),
        ];
        let mut routes: Vec<(String, String)> = Vec::new();
        for source in sources {
            for part in source.split(".route(\"").skip(1) {
                let (path, rest) = part.split_once('"').expect("a path ends");
                let handlers = rest.split_once('\n').map_or(rest, |(line, _)| line);
                for method in ["get", "post", "put", "delete"] {
                    if handlers.contains(&format!(" {method}("))
                        || handlers.contains(&format!(").{method}("))
                    {
                        routes.push((path.to_owned(), method.to_owned()));
                    }
                }
            }
        }
        let mut described: Vec<(String, String)> = OPERATIONS
            .iter()
            .map(|it| (it.path.to_owned(), it.method.to_owned()))
            .collect();
        routes.sort();
        described.sort();
        assert_eq!(routes, described);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let text = document.to_string();
        let schemas = document["components"]["schemas"]
            .as_object()
            .expect("schemas");
        let names = text
            .split("#/components/schemas/")
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        let mut count = 0;
        for name in names {
            assert!(schemas.contains_key(name), "{name}");
            count += 1;
        }
        assert!(count > OPERATIONS.len());
    }

    #[test]
    fn clients_elsewhere_are_told_of_the_routes_they_have_and_no_other() {
        let document = placements();
        let source = include_str!("clients.rs");
        let paths = document["paths"].as_object().expect("paths");
        let routes = source.split(".route(\"").skip(1);
        let routes: Vec<_> = routes.filter_map(|part| part.split('"').next()).collect();
        let mut described: Vec<_> = paths.keys().map(String::as_str).collect();
        described.sort_unstable_by_key(|path| routes.iter().position(|route| route == path));
        assert_eq!(routes, described);
        assert!(paths["/v1/placements"].get("get").is_none());
        assert!(paths["/v1/placements"].get("post").is_some());
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object();
        for name in text.split("#/components/schemas/").skip(1) {
            let name = name.split('"').next().expect("a name");
            assert!(schemas.is_some_and(|all| all.contains_key(name)), "{name}");
        }
    }

    #[test]
    fn types_and_meanings_come_from_the_fields() {
        let session = &document()["components"]["schemas"]["Session"];
        let expected =
            json!({ "type": ["string", "null"], "description": "Address of the client." });
        assert_eq!(session["properties"]["peer"], expected);
        assert_eq!(session["properties"]["connected"]["type"], "boolean");
        assert!(
            session["required"]
                .as_array()
                .is_some_and(|all| all.len() == 14)
        );
    }
}
