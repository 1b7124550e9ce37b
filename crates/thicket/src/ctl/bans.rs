//! `thicket ctl ban`, `unban` and `bans`: clients that may not connect to any node.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use thicket_bench::report::render;
use thicket_broker::api::bans::{BanEntry, BanRequest};
use thicket_broker::parse_seconds;

use super::cluster::query;
use super::report;
use super::view::{nothing, or_sentence};
use crate::api::Api;

/// Who is meant.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = true)]
pub struct Whom {
    /// Clients with this identifier
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// Clients of this user; with `--client`, those with that identifier of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Clients that prove no user name
    #[arg(long, conflicts_with = "user")]
    anonymous: bool,
    /// Clients of listeners with this topic prefix; an empty one: of those without one
    #[arg(long, value_name = "PREFIX")]
    topic_prefix: Option<String>,
    /// Clients from this address
    #[arg(long, value_name = "IP", conflicts_with_all = ["client", "user", "anonymous", "topic_prefix"])]
    address: Option<IpAddr>,
}

/// Arguments of `thicket ctl ban`.
#[derive(Debug, Clone, clap::Args)]
pub struct BanArguments {
    #[command(flatten)]
    whom: Whom,
    /// How long the ban lasts, such as 90s, 15min, 2h or 1d; a bare number is seconds [default: until `unban`]
    #[arg(long = "for", visible_alias = "seconds", value_name = "TIME", value_parser = length)]
    seconds: Option<u64>,
    /// Reason, for other operators
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// At least a second.
fn length(text: &str) -> Result<u64, String> {
    match parse_seconds(text)? {
        0 => Err("expected at least 1s; without it a ban lasts until `unban`".to_owned()),
        seconds => Ok(seconds),
    }
}

/// Bans.
pub fn ban(api: &Api, wanted: &BanArguments, is_json: bool) -> anyhow::Result<()> {
    let whom = wanted.whom.clone();
    let request = BanRequest {
        client_id: whom.client,
        user_name: whom.user,
        anonymous: whom.anonymous,
        topic_prefix: whom.topic_prefix,
        address: whom.address,
        reason: wanted.reason.clone(),
        seconds: wanted.seconds,
    };
    let entry: BanEntry = api.post("/v1/bans", &request)?;
    report(is_json, &entry, &format!("banned {}\n", who(&entry)))
}

/// Lifts a ban.
pub fn unban(api: &Api, whom: &Whom, is_json: bool) -> anyhow::Result<()> {
    let query = query(&[
        ("client_id", whom.client.clone()),
        ("user_name", whom.user.clone()),
        ("anonymous", whom.anonymous.then(|| "true".to_owned())),
        ("topic_prefix", whom.topic_prefix.clone()),
        ("address", whom.address.map(|it| it.to_string())),
    ]);
    let lifted = api.delete(&format!("/v1/bans?{query}"))?;
    let lifted: BanEntry = serde_json::from_str(&lifted)?;
    let words = format!("lifted the ban of {}\n", who(&lifted));
    report(is_json, &lifted, &words)
}

/// Shows all bans.
pub fn bans(api: &Api, is_json: bool) -> anyhow::Result<()> {
    let all: Vec<BanEntry> = api.ask("/v1/bans")?;
    if is_json {
        return crate::print(&format!("{}\n", serde_json::to_string(&all)?));
    }
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let row = |it: &BanEntry| {
        let left = |until: u64| format!("{} s", until.saturating_sub(now_ms).div_ceil(1000));
        vec![
            who(it),
            it.until_ms.map_or_else(nothing, left),
            it.by.clone().unwrap_or_else(nothing),
            it.reason.clone(),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    crate::print(&or_sentence(&rows, "nobody is banned", || {
        render(&["BANNED", "ENDS IN", "BY", "REASON"], &rows)
    }))
}

fn who(entry: &BanEntry) -> String {
    let id = entry.client_id.as_ref().map(|id| format!("client {id}"));
    let name = entry.user_name.as_ref().map(|name| format!("user {name}"));
    let nobody = entry.anonymous.then(|| "no user".to_owned());
    let prefix = entry.topic_prefix.as_ref().map(|prefix| match &**prefix {
        "" => "listeners without a topic prefix".to_owned(),
        prefix => format!("listeners with the topic prefix {prefix}"),
    });
    let address = entry.address.map(|address| format!("address {address}"));
    let parts = [id, name, nobody, prefix, address].into_iter().flatten();
    parts.collect::<Vec<_>>().join(" of ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_ban_has_a_unit_or_is_in_seconds() {
        for (text, expected) in [
            ("3600", Some(3600)),
            ("1h", Some(3600)),
            ("15min", Some(900)),
            ("2d", Some(172_800)),
            ("0", None),
            ("0h", None),
            ("500ms", None),
            ("1y", None),
            ("h", None),
            ("", None),
        ] {
            assert_eq!(length(text).ok(), expected, "{text}");
        }
        let error = length("soon").expect_err("no time");
        assert!(error.contains("such as 90s, 15min, 2h or 1d"), "{error}");
    }
}
