//! `thicket ctl publish` and `retained`: messages without an MQTT client.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thicket_bench::report::render;
use thicket_broker::api::messages::{PublishedEntry, RetainedEntry, RetainedPage};
use thicket_broker::api::overlay::query_of_text;
use thicket_broker::api::transfer::MessageBody;

use super::cluster::query;
use super::report;
use super::view::{nothing, or_sentence};
use crate::api::Api;

/// Longest body of a request; a payload that is not UTF-8 takes a third more there.
const MOST_BYTES: usize = 2 * 1024 * 1024;

/// Arguments of `thicket ctl publish`.
#[derive(Debug, Clone, clap::Args)]
pub struct Publish {
    /// Topic name
    topic: String,
    /// Payload [default: empty]
    #[arg(conflicts_with = "file", allow_negative_numbers = true)]
    payload: Option<String>,
    /// Read the payload from a file; `-`: from standard input
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Quality of service
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// Retain the message; an empty payload removes the retained message of the topic
    #[arg(long, short)]
    retain: bool,
    /// Time after which the message expires, such as 90s or 1h; a bare number is seconds
    #[arg(long, value_name = "TIME", value_parser = thicket_broker::parse_seconds::<u32>)]
    expiry: Option<u32>,
    /// Content type
    #[arg(long, value_name = "TEXT")]
    content_type: Option<String>,
    /// User property; may be repeated
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
}

/// Arguments of `thicket ctl retained`.
#[derive(Debug, Clone, clap::Args)]
pub struct Retained {
    /// Only topics that match this filter
    filter: Option<String>,
    /// Print the payload of the retained message on this topic; with --json, the whole message
    #[arg(long, value_name = "TOPIC", conflicts_with = "filter")]
    read: Option<String>,
    /// Remove the retained message on this topic, on all nodes
    #[arg(long, value_name = "TOPIC", conflicts_with_all = ["filter", "read"])]
    delete: Option<String>,
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Publishes a message.
pub fn publish(api: &Api, wanted: &Publish, is_json: bool) -> anyhow::Result<()> {
    let payload = match &wanted.file {
        None => wanted.payload.clone().unwrap_or_default().into_bytes(),
        Some(path) if path.as_os_str() == "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes)?;
            bytes
        }
        Some(path) => {
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
        }
    };
    anyhow::ensure!(
        payload.len() <= MOST_BYTES,
        "the payload has {} bytes: expected at most 2 MB ({MOST_BYTES} bytes); publish a longer one with `thicket pub`",
        payload.len()
    );
    let mut body = MessageBody {
        topic: wanted.topic.clone(),
        qos: wanted.qos,
        retain: wanted.retain,
        expiry_left_ms: wanted.expiry.map(|seconds| u64::from(seconds) * 1000),
        content_type: wanted.content_type.clone(),
        user_properties: wanted.properties.clone(),
        ..MessageBody::default()
    };
    match String::from_utf8(payload) {
        Ok(text) => body.payload = Some(text),
        Err(error) => body.payload_base64 = Some(STANDARD.encode(error.into_bytes())),
    }
    let published: PublishedEntry = api.post("/v1/publish", &body)?;
    let words = if published.has_recipients {
        "published\n"
    } else {
        "published: nobody subscribes to the topic\n"
    };
    report(is_json, &published, words)
}

/// Shows retained messages, or removes one.
pub fn retained(api: &Api, wanted: &Retained, is_json: bool) -> anyhow::Result<()> {
    if let Some(topic) = &wanted.delete {
        let removed: PublishedEntry = serde_json::from_str(&api.delete(&path_of(topic))?)?;
        let words = format!("removed the retained message of {topic}\n");
        return report(is_json, &removed, &words);
    }
    if let Some(topic) = &wanted.read {
        return read(api, topic, is_json);
    }
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let query = query(&[
            ("filter", wanted.filter.clone()),
            ("limit", Some("1000".to_owned())),
            ("after", after),
        ]);
        let page: RetainedPage = api.ask(&format!("/v1/retained?{query}"))?;
        all.extend(page.messages);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if is_json {
        return crate::print(&format!("{}\n", serde_json::to_string(&all)?));
    }
    let row = |it: &RetainedEntry| {
        let expiry = it.expiry_left_ms.map(|left| format!("{} s", left / 1000));
        vec![
            it.topic.clone(),
            it.qos.to_string(),
            it.payload_bytes.to_string(),
            expiry.unwrap_or_else(nothing),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    crate::print(&or_sentence(
        &rows,
        "no retained messages were found",
        || render(&["TOPIC", "QOS", "BYTES", "EXPIRES IN"], &rows),
    ))
}

fn path_of(topic: &str) -> String {
    format!("/v1/retained/message?{}", query_of_text("topic", topic))
}

fn read(api: &Api, topic: &str, is_json: bool) -> anyhow::Result<()> {
    let body: MessageBody = api.ask(&path_of(topic))?;
    if is_json {
        return crate::print(&format!("{}\n", serde_json::to_string(&body)?));
    }
    let mut payload = body.payload()?;
    // A prompt follows on a terminal; elsewhere the bytes are those of the message.
    if std::io::stdout().is_terminal() && !payload.ends_with(b"\n") {
        payload.push(b'\n');
    }
    std::io::stdout().write_all(&payload)?;
    Ok(())
}
