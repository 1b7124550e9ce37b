//! `thicket ctl clients` and `subscribers`: what any node answers for the cluster.

use thicket_bench::report::render;
use thicket_broker::api::cluster::{
    ClientEntry, ClientPage, SubscriberEntry, SubscriberPage, UnansweredEntry,
};
use thicket_broker::api::overlay::query_of_text;

use super::view::{Width, nothing, or_sentence, render_columns};
use crate::api::Api;

/// Arguments of `thicket ctl clients`.
#[derive(Debug, Clone, clap::Args)]
pub struct Clients {
    /// Only the client with exactly this identifier
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// Only clients of exactly this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only clients from this address
    #[arg(long, value_name = "IP")]
    address: Option<std::net::IpAddr>,
    /// Only clients with this text in identifier, user name or address
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only connected clients; with `false`, only disconnected ones
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    connected: Option<bool>,
    /// Sort by name, or first those with the most undelivered bytes (`waiting`), the longest wait of a message (`oldest`), or the most
    /// messages per second (`rate`)
    #[arg(long, value_name = "ORDER", default_value = "name",
          value_parser = ["name", "waiting", "oldest", "rate"])]
    order: String,
    /// Maximum number of clients [default: 20; all when sorted by name]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: Option<u16>,
}

/// Arguments of `thicket ctl subscribers`.
#[derive(Debug, Clone, clap::Args)]
pub struct Subscribers {
    /// Only subscriptions that match this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only subscriptions with exactly this filter
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Only subscriptions of this client
    #[arg(long, value_name = "ID")]
    client: Option<String>,
}

/// A query string of what is given.
pub fn query(parts: &[(&str, Option<String>)]) -> String {
    let given = parts.iter().filter_map(|(name, value)| {
        let value = value.as_deref()?;
        Some(query_of_text(name, value))
    });
    given.collect::<Vec<_>>().join("&")
}

/// Asks for clients and prints them.
pub fn clients(api: &Api, wanted: &Clients, json: bool, width: Width) -> anyhow::Result<()> {
    let mut all = ClientPage {
        clients: Vec::new(),
        next: None,
        unanswered: Vec::new(),
    };
    let is_paged = wanted.limit.is_none() && wanted.order == "name";
    let limit = wanted.limit.unwrap_or(if is_paged { 1000 } else { 20 });
    loop {
        let query = query(&[
            ("client_id", wanted.client.clone()),
            ("user", wanted.user.clone()),
            ("address", wanted.address.map(|it| it.to_string())),
            ("search", wanted.search.clone()),
            ("connected", wanted.connected.map(|it| it.to_string())),
            ("order", Some(wanted.order.clone())),
            ("limit", Some(limit.to_string())),
            ("after", all.next.take()),
        ]);
        let page: ClientPage = api.ask(&format!("/v1/clients?{query}"))?;
        all.clients.extend(page.clients);
        all.unanswered = page.unanswered;
        all.next = page.next;
        if !is_paged || all.next.is_none() {
            break;
        }
    }
    if json {
        return crate::print(&format!("{}\n", serde_json::to_string(&all)?));
    }
    crate::print(&table(&all.clients, width))?;
    warn(&all.unanswered);
    Ok(())
}

fn table(clients: &[ClientEntry], width: Width) -> String {
    let row = |it: &ClientEntry| {
        let session = &it.session;
        vec![
            session.client_id.clone(),
            session.user_name.clone().unwrap_or_else(nothing),
            it.topic_prefix.clone().unwrap_or_else(nothing),
            it.node.clone(),
            session.peer.clone().unwrap_or_else(|| "away".to_owned()),
            session.subscriptions.to_string(),
            format!("{:.1}", it.messages_per_s),
            session.queued_messages.to_string(),
            (session.queued_bytes + it.unsent_bytes).to_string(),
            it.oldest_queued_ms
                .map_or_else(nothing, |ms| format!("{:.1} s", ms as f64 / 1000.0)),
            session.dropped_messages.to_string(),
        ]
    };
    let rows: Vec<_> = clients.iter().map(row).collect();
    let head = [
        "CLIENT",
        "USER",
        "PREFIX",
        "NODE",
        "ADDRESS",
        "SUBSCRIPTIONS",
        "MESSAGES/S",
        "QUEUED",
        "BYTES WAITING",
        "OLDEST",
        "DROPPED",
    ];
    let details = ["PREFIX", "SUBSCRIPTIONS", "QUEUED", "DROPPED"];
    or_sentence(&rows, "no clients were found", || {
        render_columns(&head, &details, &rows, width)
    })
}

/// Asks for subscriptions and prints them.
pub fn subscribers(api: &Api, wanted: &Subscribers, is_json: bool) -> anyhow::Result<()> {
    let mut all = SubscriberPage {
        subscribers: Vec::new(),
        next: None,
        unanswered: Vec::new(),
    };
    loop {
        let query = query(&[
            ("topic", wanted.topic.clone()),
            ("filter", wanted.filter.clone()),
            ("client_id", wanted.client.clone()),
            ("limit", Some("1000".to_owned())),
            ("after", all.next.take()),
        ]);
        let page: SubscriberPage = api.ask(&format!("/v1/subscribers?{query}"))?;
        all.subscribers.extend(page.subscribers);
        all.unanswered = page.unanswered;
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    if is_json {
        return crate::print(&format!("{}\n", serde_json::to_string(&all)?));
    }
    let row = |it: &SubscriberEntry| {
        vec![
            it.subscription.client_id.clone(),
            it.node.clone(),
            it.subscription.filter.clone(),
            it.subscription.qos.to_string(),
        ]
    };
    let rows: Vec<_> = all.subscribers.iter().map(row).collect();
    let text = or_sentence(&rows, "no subscriptions were found", || {
        render(&["CLIENT", "NODE", "FILTER", "QOS"], &rows)
    });
    crate::print(&text)?;
    warn(&all.unanswered);
    Ok(())
}

/// Whose answers are missing.
fn warn(unanswered: &[UnansweredEntry]) {
    for it in unanswered {
        eprintln!("{} is missing: {}", it.node, it.why);
    }
}
