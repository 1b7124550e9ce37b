//! What an operator sees and does: `$SYS`, kick, trace, memory, limits, the description of the API.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use support::{TIMEOUT, TestClient, alone, http, http_do, start, wait_for_http};
use thicket_broker::{ListenerSettings, Node, Settings};
use thicket_mqtt::{ProtocolVersion, Qos, ReasonCode};
use thicket_session::client::{CleanStart, ClientConfig};

fn metric(node: &Node, line: &str) -> u64 {
    let (status, text) = http(node, "/metrics");
    assert_eq!(status, 200);
    let found = text
        .lines()
        .find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
    let value = found.unwrap_or_else(|| panic!("no {line} in\n{text}"));
    value.parse().expect("a number")
}

#[test]
fn a_client_that_is_kicked_hears_why_and_keeps_its_session() {
    let node = start(alone());
    let address = node.addresses()[0];
    let mut config = ClientConfig::new(ProtocolVersion::V5, "kept/one");
    config.session_expiry_interval = 600;
    let mut client =
        TestClient::try_connect(address, config.clone(), CleanStart::Yes).expect("accepted");
    client.subscribe("t", Qos::AtLeastOnce);
    let body = r#"{"client_id":"kept/one"}"#;
    assert_eq!(
        http_do(&node, "POST", "/v1/kick", "", body),
        (200, body.to_owned())
    );
    assert_eq!(client.ended(), Some(ReasonCode::AdministrativeAction));
    let (status, words) = http_do(&node, "POST", "/v1/kick", "", body);
    assert!(
        status == 404 && words.contains("no such client"),
        "{status} {words}"
    );
    let back = TestClient::try_connect(address, config, CleanStart::No).expect("accepted");
    assert!(back.session_present());
}

#[test]
fn the_api_refuses_orders_that_make_no_sense_or_come_from_a_page() {
    let node = start(alone());
    let cases = [
        ("no body", "/v1/kick", "", "", 400),
        ("another field", "/v1/kick", "", r#"{"client":"a"}"#, 422),
        (
            "a page",
            "/v1/kick",
            "Origin: http://page.example\r\n",
            r#"{"client_id":"a"}"#,
            403,
        ),
        ("no subject", "/v1/trace", "", "{}", 422),
        (
            "two subjects",
            "/v1/trace",
            "",
            r#"{"client_id":"a","topic":"b"}"#,
            422,
        ),
        ("bad filter", "/v1/trace", "", r##"{"topic":"a/#/b"}"##, 422),
        ("no trace", "/v1/trace/lines", "", "", 404),
    ];
    for (name, path, more, body, expected) in cases {
        assert_eq!(
            http_do(&node, "POST", path, more, body).0,
            expected,
            "{name}"
        );
    }
}

#[test]
fn a_trace_shows_the_packets_of_a_client_or_a_topic_without_payloads() {
    let node = start(alone());
    let address = node.addresses()[0];
    let mut watched = TestClient::connect(address, "watched");
    let mut other = TestClient::connect(address, "other");
    let lines = || {
        let (status, body) = http_do(&node, "POST", "/v1/trace/lines", "", "");
        assert_eq!(status, 200, "{body}");
        let answer: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let line = |line: &serde_json::Value| {
            let part = |name: &str| line[name].as_str().expect("text").to_owned();
            format!(
                "{} {} {}",
                part("client_id"),
                part("direction"),
                part("packet")
            )
        };
        answer["lines"]
            .as_array()
            .expect("lines")
            .iter()
            .map(line)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        http_do(&node, "POST", "/v1/trace", "", r#"{"client_id":"watched"}"#).0,
        200
    );
    watched.subscribe("t/+", Qos::AtLeastOnce);
    other.publish("t/1", b"secret", Qos::AtLeastOnce);
    watched.message();
    watched.publish("elsewhere", b"secret", Qos::AtMostOnce);
    watched.publish("done", b"", Qos::AtLeastOnce);
    let seen = lines();
    let expected = [
        "watched in SUBSCRIBE packet_id=1 filters=[\"t/+\"]",
        "watched out SUBACK packet_id=1 reason_codes=[GrantedQos1]",
        "watched out PUBLISH topic=\"t/1\" qos=1 retain=0 dup=0 packet_id=1 payload_bytes=6",
        "watched in PUBACK packet_id=1 reason_code=0x00",
        "watched in PUBLISH topic=\"elsewhere\" qos=0 retain=0 dup=0 packet_id=0 payload_bytes=6",
    ];
    assert_eq!(seen[..expected.len()], expected);
    assert!(
        seen.iter()
            .all(|line| line.starts_with("watched ") && !line.contains("secret")),
        "{seen:?}"
    );
    assert_eq!(
        http_do(&node, "POST", "/v1/trace", "", r#"{"topic":"t/#"}"#).0,
        200
    );
    other.publish("t/2", b"", Qos::AtMostOnce);
    watched.message();
    let mut seen = lines();
    seen.sort();
    let expected = [
        "other in PUBLISH topic=\"t/2\" qos=0 retain=0 dup=0 packet_id=0 payload_bytes=0",
        "watched out PUBLISH topic=\"t/2\" qos=0 retain=0 dup=0 packet_id=0 payload_bytes=0",
    ];
    assert_eq!(seen, expected);
    assert_eq!(http_do(&node, "DELETE", "/v1/trace", "", "").0, 200);
    assert_eq!(http_do(&node, "POST", "/v1/trace/lines", "", "").0, 404);
}

#[test]
fn system_topics_come_to_whoever_asks_for_them_and_to_nobody_else() {
    let node = start(Settings {
        sys_interval_s: Some(1),
        ..alone()
    });
    let address = node.addresses()[0];
    let mut all = TestClient::connect(address, "all");
    all.subscribe("#", Qos::AtLeastOnce);
    let mut system = TestClient::connect(address, "system");
    system.subscribe("$SYS/broker/clients/+", Qos::AtLeastOnce);
    let (mut connected, mut retained) = (None, false);
    while connected.as_deref() != Some("2") {
        let message = system.message();
        retained |= message.retain;
        assert!(
            message.topic.starts_with("$SYS/broker/clients/"),
            "{}",
            message.topic
        );
        if message.topic.ends_with("/connected") {
            connected = String::from_utf8(message.payload).ok();
        }
    }
    // Who comes later gets the last values at once, marked as retained.
    let mut late = TestClient::connect(address, "late");
    late.subscribe("$SYS/broker/version", Qos::AtMostOnce);
    let mut message = late.message();
    while !message.retain {
        // Told to all just now.
        message = late.message();
    }
    assert!(
        message.retain && message.payload.starts_with(b"thicket version "),
        "{message:?}"
    );
    assert!(!retained || connected.is_some());
    // A wildcard at the start matches none of it, and nobody can publish there.
    let mut publisher = TestClient::connect(address, "p");
    publisher.publish("plain", b"", Qos::AtLeastOnce);
    assert_eq!(all.text().0, "plain");
    publisher.publish("$SYS/broker/version", b"mine", Qos::AtMostOnce);
    late.subscribe("$SYS/broker/version", Qos::AtMostOnce);
    assert!(late.message().payload.starts_with(b"thicket version "));
}

#[test]
fn the_ledger_tells_where_memory_is() {
    let node = start(Settings {
        out_buffer_bytes: Some(64 * 1024),
        ..alone()
    });
    let address = node.addresses()[0];
    let mut config = ClientConfig::new(ProtocolVersion::V5, "away");
    config.session_expiry_interval = 600;
    let mut away = TestClient::try_connect(address, config, CleanStart::Yes).expect("accepted");
    away.subscribe("news/+", Qos::AtLeastOnce);
    away.disconnect();
    let mut publisher = TestClient::connect(address, "p");
    for n in 0..10 {
        publisher.publish(&format!("news/{n}"), &[7; 1000], Qos::AtLeastOnce);
    }
    publisher.send(&thicket_mqtt::Publish {
        retain: true,
        ..thicket_mqtt::Publish::new("kept", &[7; 5000])
    });
    wait_for_http(&node, "/v1/memory", |ledger| {
        let number = |name: &str| ledger["total"][name].as_u64().expect("a number");
        let retained = ledger["retained_bytes"].as_u64().expect("a number");
        number("queued_messages") == 10
            && number("queued_bytes") >= 10_000
            && number("filter_bytes") == 6
            && number("sessions") == 2
            && retained > 5000
            && ledger["resident_bytes"].as_u64() > Some(1_000_000)
    });
    assert!(metric(&node, "thicket_retained_bytes") > 5000);
}

#[test]
fn a_placement_is_asked_for_by_an_object_and_by_known_names_in_the_query() {
    let node = start(alone());
    let good = r#"{"client_id": "c", "subscribe": ["a"]}"#;
    let twice = r#"{"client_id": "c", "subscribe": ["a"], "subscribe": ["b"]}"#;
    let list = r#"["c", [], ["a"], 4, {}]"#;
    for (method, path, body, status, field) in [
        ("POST", "", list, 422, None),
        ("POST", "", twice, 422, Some("subscribe")),
        ("POST", "", r#"{"client_id": "c", "x": 1}"#, 422, Some("x")),
        ("POST", "", "{}", 422, Some("client_id")),
        ("POST", "?usr_name=alice", good, 400, Some("usr_name")),
        ("POST", "?user_name", good, 400, Some("user_name")),
        ("POST", "?user_name=%ff", good, 400, Some("user_name")),
        (
            "POST",
            "?user_name=a&user_name=b",
            good,
            400,
            Some("user_name"),
        ),
        ("GET", "?aftr=c", "", 400, Some("aftr")),
        ("GET", "/c?usr_name=alice", "", 400, Some("usr_name")),
        ("DELETE", "/c?usr_name=alice", "", 400, Some("usr_name")),
    ] {
        let path = format!("/v1/placements{path}");
        let (found, answer) = http_do(&node, method, &path, "", body);
        let problem: serde_json::Value = serde_json::from_str(&answer).expect("a problem");
        assert_eq!(
            (found, problem["field"].as_str()),
            (status, field),
            "{method} {path} {body}: {answer}"
        );
    }
    assert_eq!(http(&node, "/v1/placements"), (200, "[]".to_owned()));
    for path in ["?user_name=a%20b", "?node=self&", "?"] {
        let path = match path {
            "?node=self&" => format!("/v1/placements?node={}&", node_id(&node)),
            path => format!("/v1/placements{path}"),
        };
        let (status, answer) = http_do(&node, "POST", &path, "", good);
        assert_eq!(status, 200, "{path}: {answer}");
    }
}

fn node_id(node: &Node) -> String {
    let (_, body) = http(node, "/v1/recording");
    let page: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    page["node"].as_str().expect("an identity").to_owned()
}

#[test]
fn a_recording_says_which_clients_asked_for_a_placement_and_for_how_many_sessions() {
    let node = start(alone());
    let address = node.addresses()[0];
    let _clients = ["asked", "plain"].map(|client_id| TestClient::connect(address, client_id));
    let asked = r#"{"client_id": "asked", "subscribe": ["a"], "max_sessions": 3}"#;
    let (status, body) = http_do(&node, "POST", "/v1/placements", "", asked);
    assert_eq!(status, 200, "{body}");
    wait_for_http(&node, "/v1/recording", |page| {
        let sessions = page["sessions"].as_array().expect("sessions");
        let placed = |session: &serde_json::Value| {
            let client_id = session["client_id"].as_str().map(str::to_owned);
            let max_sessions = session["max_sessions"].as_u64();
            (client_id, session["placed"].as_bool(), max_sessions)
        };
        let found: Vec<_> = sessions.iter().map(placed).collect();
        found
            == [("asked", true, Some(3)), ("plain", false, None)]
                .map(|(client_id, placed, most)| (Some(client_id.to_owned()), Some(placed), most))
    });
}

#[test]
fn every_path_of_the_document_answers_with_what_it_says() {
    let node = start(alone());
    let _client = TestClient::connect(node.addresses()[0], "c");
    let (status, body) = http(&node, "/v1/openapi.json");
    assert_eq!(status, 200);
    let document: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(document["openapi"], "3.1.0");
    let schemas = &document["components"]["schemas"];
    let placed = http_do(
        &node,
        "POST",
        "/v1/placements",
        "",
        r#"{"client_id": "c", "subscribe": ["a"]}"#,
    );
    assert_eq!(placed.0, 200, "{}", placed.1);
    let message = r#"{"topic": "a/b", "payload": "x", "qos": 1, "retain": true, "user_properties": [["k", "v"]]}"#;
    let banned = r#"{"client_id": "bad", "seconds": 60}"#;
    for (path, body) in [("/v1/publish", message), ("/v1/bans", banned)] {
        let (status, body) = http_do(&node, "POST", path, "", body);
        assert_eq!(status, 200, "{path}: {body}");
    }
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let Some(operation) = methods.get("get") else {
            continue;
        };
        // It never ends.
        if path == "/v1/watch" {
            continue;
        }
        let question = match path.as_str() {
            "/v1/explain" | "/v1/retained/message" => "?topic=a/b",
            _ => "",
        };
        let place = path.replace("{client_id}", "c");
        let (status, body) = http(&node, &format!("{place}{question}"));
        assert_eq!(status, 200, "{path}: {body}");
        assert!(operation["tags"][0].is_string(), "{path}");
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        if !schema.is_null() {
            check(
                schemas,
                schema,
                &serde_json::from_str(&body).expect("JSON"),
                path,
            );
        }
        asked += 1;
    }
    assert!(asked >= 9);
    // Without a body and without parameters; what ends something comes last.
    let mut all: Vec<(&String, &String, &serde_json::Value)> = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let operations = methods.as_object().into_iter().flatten();
        all.extend(operations.map(|(method, operation)| (path, method, operation)));
    }
    all.sort_by_key(|(path, ..)| *path == "/v1/drain");
    for (path, method, operation) in all {
        if path == "/v1/watch" {
            continue;
        }
        let place = path.replace("{client_id}", "c");
        for query in ["", "?node=nobody", "?limit=x"] {
            let (status, body) = http_do(
                &node,
                &method.to_uppercase(),
                &format!("{place}{query}"),
                "",
                "",
            );
            let is_listed = operation["responses"][status.to_string()].is_object();
            assert!(is_listed, "{method} {path}{query}: {status} {body}");
        }
    }
}

#[test]
fn who_sends_too_long_a_body_reads_the_answer() {
    let node = start(alone());
    // More than the node takes of a message, and than the buffers of a connection hold.
    let body = format!(
        "{{\"topic\":\"a\",\"payload\":\"{}\"}}",
        "x".repeat(9_000_000)
    );
    for _ in 0..8 {
        let (status, answer) = http_do(&node, "POST", "/v1/publish", "", &body);
        assert_eq!(status, 413, "{answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("a problem");
        assert_eq!(answer["status"], 413);
    }
    wait_for_http(&node, "/v1/traffic", |_| {
        metric(&node, "thicket_http_connections") == 1
    });
}

/// Whether a value is what a schema says, as far as we use schemas.
fn check(
    schemas: &serde_json::Value,
    schema: &serde_json::Value,
    value: &serde_json::Value,
    at: &str,
) {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next())
    {
        return check(schemas, &schemas[name], value, &format!("{at} {name}"));
    }
    if let Some(variants) = schema["oneOf"].as_array() {
        let is_it = |variant: &&serde_json::Value| (variant["type"] == "null") == value.is_null();
        let variant = variants.iter().find(is_it).expect("one of them");
        return check(schemas, variant, value, at);
    }
    let whole = whole(schemas, schema);
    let schema = &whole;
    if let Some(items) = value.as_array() {
        let is_array = schema["type"] == "array"
            || schema["type"]
                .as_array()
                .is_some_and(|kinds| kinds.contains(&"array".into()));
        assert!(is_array, "{at}");
        return items.iter().enumerate().for_each(|(index, item)| {
            let of_tuple = schema["prefixItems"].get(index);
            check(schemas, of_tuple.unwrap_or(&schema["items"]), item, at);
        });
    }
    if let (Some(fields), Some(properties)) = (value.as_object(), schema["properties"].as_object())
    {
        let strange = fields.keys().find(|name| !properties.contains_key(*name));
        assert_eq!(strange, None, "{at}");
        let required = schema["required"].as_array().into_iter().flatten();
        let mut names = required.filter_map(serde_json::Value::as_str);
        let missing = names.find(|name| !fields.contains_key(*name));
        assert_eq!(missing, None, "{at}");
        return fields.iter().for_each(|(name, value)| {
            check(schemas, &properties[name], value, &format!("{at} {name}"))
        });
    }
    let kind = match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "boolean",
        serde_json::Value::Number(number) if number.is_f64() => "number",
        // A whole number is a number too.
        serde_json::Value::Number(_) if schema["type"] == "number" => "number",
        serde_json::Value::Number(_) => "integer",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => "object",
    };
    let kinds = &schema["type"];
    // A document of another standard, which this one does not describe.
    if at == "/v1/openapi.json" && kinds.is_null() {
        return;
    }
    assert!(
        *kinds == kind
            || kinds
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|one| one == kind)),
        "{at}: {value}"
    );
}

/// A schema with what its parts (`allOf`) have.
fn whole(schemas: &serde_json::Value, schema: &serde_json::Value) -> serde_json::Value {
    let Some(parts) = schema["allOf"].as_array() else {
        return schema.clone();
    };
    let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
    for part in parts {
        let name = part["$ref"].as_str().and_then(|it| it.rsplit('/').next());
        let part = whole(schemas, name.map_or(part, |name| &schemas[name]));
        properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
        required.extend(part["required"].as_array().cloned().unwrap_or_default());
    }
    serde_json::json!({"type": "object", "properties": properties, "required": required})
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    match stream.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

#[test]
fn connections_that_claim_much_and_send_no_whole_connect_are_bounded_together() {
    let node = start(Settings {
        half_open_bytes: Some(100_000),
        workers: Some(1),
        ..alone()
    });
    let address = node.addresses()[0];
    // A CONNECT of almost a megabyte, of which forty kilobytes come.
    let claim = [
        &[0x10, 0xc0, 0x84, 0x3d, 0, 4][..],
        b"MQTT\x05\x02\0\0\0\xff\xff",
        &[b'a'; 40_000],
    ]
    .concat();
    let mut streams: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("the node listens");
            stream.write_all(&claim).expect("the node reads");
            stream
        })
        .collect();
    let mut client = TestClient::connect(address, "c");
    client.publish("t", b"", Qos::AtLeastOnce);
    support::wait_for_http(&node, "/v1/traffic", |traffic| {
        traffic["total"]["half_open_refused"].as_u64() == Some(6)
    });
    let held = http(&node, "/v1/memory").1;
    let ledger: serde_json::Value = serde_json::from_str(&held).expect("JSON");
    assert!(
        ledger["total"]["half_open_bytes"].as_u64() <= Some(100_000),
        "{held}"
    );
    assert_eq!(
        metric(
            &node,
            "thicket_refused_connections_total{reason=\"half_open\"}"
        ),
        6
    );
    assert!(streams.iter_mut().skip(2).all(is_closed));
    drop(streams);
    wait_for_http(&node, "/v1/memory", |ledger| {
        ledger["total"]["half_open_bytes"] == 0
    });
}

#[test]
fn when_memory_is_short_nobody_new_is_let_in_and_those_there_go_on() {
    // The process has long taken a megabyte.
    let node = start(Settings {
        memory_bytes: Some(1_000_000),
        ..alone()
    });
    let address = node.addresses()[0];
    support::wait_for_http(&node, "/v1/traffic", |_| {
        metric(&node, "thicket_memory_is_short") == 1
    });
    assert!(is_closed(
        &mut TcpStream::connect(address).expect("the node listens")
    ));
    assert!(
        metric(
            &node,
            "thicket_refused_connections_total{reason=\"memory\"}"
        ) >= 1
    );
}

#[test]
fn connections_that_come_too_fast_wait_and_are_served() {
    let node = start(Settings {
        listen: None,
        listener: Some(vec![ListenerSettings {
            address: Some("127.0.0.1:0".to_owned()),
            connections_per_s: Some(20),
            ..ListenerSettings::default()
        }]),
        ..alone()
    });
    let clients: Vec<_> = (0..40)
        .map(|n| TestClient::connect(node.addresses()[0], &format!("c{n}")))
        .collect();
    assert_eq!(clients.len(), 40);
    let name = |name: &str| format!("thicket_listener_{name}{{listener=\"127.0.0.1:0\"}}");
    assert_eq!(metric(&node, &name("connections")), 40);
    assert!(metric(&node, &name("delayed_total")) > 0);
}
