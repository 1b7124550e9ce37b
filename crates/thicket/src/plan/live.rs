//! A recording of the running cluster.
//!
//! Sessions and their filters are asked of each node, the rates of topics of one, since every node knows them. Who publishes is known of placed
//! clients; what others publish to a topic at a node counts as one client, `publishers of TOPIC at NODE`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use thicket_broker::api::overlay::query_of_text;
use thicket_broker::api::recording::{RecordedSession, RecordingPage};
use thicket_broker::api::{NodeEntry, TopicEntry, TrafficEntry};
use thicket_placement::Arrival;

use super::recording::{ClusterLine, Recording};
use crate::api::{Api, Credentials};

/// What a recorded line is called in messages, before its client.
pub(super) const PLACE: &str = "live: ";

/// What one node says.
struct Part {
    /// Prices between sites, as the node is configured.
    site_price: Vec<String>,
    sessions: Vec<RecordedSession>,
    /// Messages with clients since its start, and their bytes.
    messages: u64,
    bytes: u64,
}

/// Asks the nodes at `addresses`, and the others where these say they are.
pub(super) fn record(addresses: &[String], credentials: &Credentials) -> anyhow::Result<Recording> {
    let api = |address: &String| Api::new(address).with_credentials(credentials);
    let first = addresses.first().context("expected the API of a node")?;
    let nodes: Vec<NodeEntry> = api(first).ask("/v1/nodes")?;
    let nodes: Vec<NodeEntry> = nodes.into_iter().filter(|node| node.reachable).collect();
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    // They must be the same on all nodes.
    let mut site_price = None;
    for address in addresses {
        let (id, part) = part(&api(address))?;
        site_price.get_or_insert_with(|| part.site_price.clone());
        parts.insert(id, part);
    }
    for node in &nodes {
        if parts.contains_key(&node.id) {
            continue;
        }
        let asked = ask_node(node, &api).with_context(|| {
            let name = &node.name;
            format!("cannot record the sessions of node {name}: name its API by another --api")
        })?;
        parts.insert(node.id.clone(), asked);
    }
    let topics: Vec<TopicEntry> = api(first).ask("/v1/topics")?;
    let mut recording = assemble(&nodes, &parts, &topics);
    recording.cluster.site_price = site_price.unwrap_or_default();
    Ok(recording)
}

fn ask_node(node: &NodeEntry, api: &impl Fn(&String) -> Api) -> anyhow::Result<Part> {
    let state = node.state.as_ref();
    let address = state.and_then(|state| state.http_address.as_ref());
    let address = address.context("it does not say where its API is")?;
    let (id, part) = part(&api(address))?;
    anyhow::ensure!(id == node.id, "another node answers at {address}");
    Ok(part)
}

/// All pages of a node.
fn part(api: &Api) -> anyhow::Result<(String, Part)> {
    let TrafficEntry { total, .. } = api.ask("/v1/traffic")?;
    let mut part = Part {
        site_price: Vec::new(),
        sessions: Vec::new(),
        messages: total.external_in_messages + total.external_out_messages,
        bytes: total.external_in_bytes + total.external_out_bytes,
    };
    let mut path = "/v1/recording".to_owned();
    loop {
        let page: RecordingPage = api.ask(&path)?;
        part.site_price = page.site_price;
        part.sessions.extend(page.sessions);
        let Some(next) = page.next else {
            return Ok((page.node, part));
        };
        path = format!("/v1/recording?{}", query_of_text("after", &next));
    }
}

fn assemble(
    nodes: &[NodeEntry],
    parts: &BTreeMap<String, Part>,
    topics: &[TopicEntry],
) -> Recording {
    let names = names(nodes);
    let sum = |of: fn(&Part) -> u64| parts.values().map(of).sum::<u64>();
    let (messages, bytes) = (sum(|part| part.messages), sum(|part| part.bytes));
    let site = |node: &NodeEntry| Some((names.get(&node.id)?.clone(), node.site.clone()?));
    let by_name: BTreeSet<String> = names.values().cloned().collect();
    let cluster = ClusterLine {
        nodes: by_name.into_iter().collect(),
        sites: nodes.iter().filter_map(site).collect(),
        message_bytes: (messages > 0).then(|| bytes as f64 / messages as f64),
        ..ClusterLine::default()
    };
    let mut clients = Clients::default();
    for (id, part) in parts {
        let Some(node) = names.get(id) else { continue };
        for session in &part.sessions {
            clients.add(node, session);
        }
    }
    for topic in topics {
        if let Some(node) = names.get(&topic.node) {
            clients.measure(node, topic);
        }
    }
    let arrivals = clients.arrivals.into_values();
    let named = |arrival: Arrival| (format!("{PLACE}{}", arrival.client), arrival);
    Recording {
        cluster,
        arrivals: arrivals.map(named).collect(),
    }
}

/// Names by identity; where two nodes have one name, the identity is part of it.
fn names(nodes: &[NodeEntry]) -> BTreeMap<String, String> {
    let is_alone = |name: &str| nodes.iter().filter(|node| node.name == name).count() == 1;
    let name = |node: &NodeEntry| {
        if is_alone(&node.name) {
            node.name.clone()
        } else {
            format!("{} {}", node.name, node.id)
        }
    };
    let named = nodes.iter().map(|node| (node.id.clone(), name(node)));
    named.collect()
}

#[derive(Default)]
struct Clients {
    /// By name.
    arrivals: BTreeMap<String, Arrival>,
    /// Who publishes to a topic at a node, as far as placements say.
    publishers: BTreeMap<(String, String), Vec<String>>,
    /// Groups of shared subscriptions that have their subscriber.
    groups: BTreeSet<String>,
}

impl Clients {
    fn add(&mut self, node: &str, session: &RecordedSession) {
        let RecordedSession {
            client_id,
            user_name,
            session: number,
            placed,
            max_sessions,
            publish,
            subscribe,
        } = session;
        let name = match user_name {
            Some(user) => format!("{user}/{client_id}"),
            None => client_id.clone(),
        };
        let is_new = !self.arrivals.contains_key(&name);
        let arrival = self.arrivals.entry(name.clone()).or_default();
        arrival.client.clone_from(&name);
        // Nodes of before do not say how many sessions a client asked for, or who is placed: there only a placement has several sessions, or says what its
        // client publishes.
        let is_placed = *placed || *number > 1 || !publish.is_empty();
        if is_placed {
            arrival.max_sessions = max_sessions.map(usize::from);
        } else if is_new {
            arrival.max_sessions = Some(1);
        }
        // What a placement publishes by a filter is known by the rates of its topics.
        let topics = publish.iter().filter(|topic| !topic.contains(['+', '#']));
        for topic in topics {
            if !arrival.publish.contains(topic) {
                arrival.publish.push(topic.clone());
                // Nothing, unless the node tells of it.
                arrival.rates.insert(topic.clone(), 0.0);
                arrival.nodes.insert(topic.clone(), node.to_owned());
                let at = (topic.clone(), node.to_owned());
                self.publishers.entry(at).or_default().push(name.clone());
            }
        }
        for filter in subscribe {
            let Some(filter) = flowing(filter, &mut self.groups) else {
                continue;
            };
            if !arrival.subscribe.contains(&filter) {
                let at = arrival.nodes.entry(filter.clone());
                at.or_insert_with(|| node.to_owned());
                arrival.subscribe.push(filter);
            }
        }
    }

    /// A topic has this rate at a node.
    fn measure(&mut self, node: &str, topic: &TopicEntry) {
        let name = &topic.topic;
        let at = (name.clone(), node.to_owned());
        if let Some(publishers) = self.publishers.get(&at) {
            let rate = topic.messages_per_s / publishers.len() as f64;
            for publisher in publishers {
                if let Some(arrival) = self.arrivals.get_mut(publisher) {
                    arrival.rates.insert(name.clone(), rate);
                }
            }
            return;
        }
        let client = format!("publishers of {name} at {node}");
        let arrival = Arrival {
            client: client.clone(),
            publish: vec![name.clone()],
            rates: BTreeMap::from([(name.clone(), topic.messages_per_s)]),
            nodes: BTreeMap::from([(name.clone(), node.to_owned())]),
            max_sessions: Some(1),
            ..Arrival::default()
        };
        self.arrivals.insert(client, arrival);
    }
}

/// What messages flow by for a filter; `None`: none do. A group of a shared subscription gets each message once, so its first member stands for all.
fn flowing(filter: &str, groups: &mut BTreeSet<String>) -> Option<String> {
    if filter.starts_with("$SYS/") {
        return None;
    }
    let Some(shared) = filter.strip_prefix("$share/") else {
        return Some(filter.to_owned());
    };
    let (_, bare) = shared.split_once('/')?;
    groups.insert(filter.to_owned()).then(|| bare.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(client_id: &str, publish: &[&str], subscribe: &[&str]) -> RecordedSession {
        let names = |all: &[&str]| all.iter().map(ToString::to_string).collect();
        RecordedSession {
            client_id: client_id.into(),
            user_name: None,
            session: 1,
            placed: false,
            max_sessions: None,
            publish: names(publish),
            subscribe: names(subscribe),
        }
    }

    fn topic(name: &str, rate: f64) -> TopicEntry {
        TopicEntry {
            topic: name.into(),
            node: String::new(),
            messages_per_s: rate,
        }
    }

    #[test]
    fn sessions_of_a_client_become_one_with_its_topics_where_they_are() {
        let mut clients = Clients::default();
        clients.add("n1", &session("c", &["p"], &["a"]));
        clients.add("n2", &session("c", &[], &["b", "a"]));
        let arrival = &clients.arrivals["c"];
        assert_eq!(arrival.subscribe, ["a", "b"]);
        assert_eq!((&*arrival.nodes["a"], &*arrival.nodes["b"]), ("n1", "n2"));
        assert_eq!(arrival.rates["p"], 0.0);
    }

    #[test]
    fn a_client_has_the_sessions_that_it_asked_for_and_one_if_no_placement_is_known() {
        let mut clients = Clients::default();
        clients.add("n1", &session("plain", &[], &["a"]));
        clients.add("n1", &session("placed", &[], &["a"]));
        let second = RecordedSession {
            session: 2,
            ..session("placed", &[], &["b"])
        };
        clients.add("n2", &second);
        clients.add("n2", &session("publishes", &["p"], &[]));
        let asked = RecordedSession {
            placed: true,
            ..session("asked", &[], &["a", "b"])
        };
        clients.add("n2", &asked);
        let three = RecordedSession {
            placed: true,
            max_sessions: Some(3),
            ..session("three", &[], &["a"])
        };
        clients.add("n1", &three);
        let most = |name: &str| clients.arrivals[name].max_sessions;
        assert_eq!(
            ["plain", "placed", "publishes", "asked", "three"].map(most),
            [Some(1), None, None, None, Some(3)]
        );
    }

    #[test]
    fn a_rate_belongs_to_placed_publishers_or_to_those_nobody_knows() {
        let mut clients = Clients::default();
        clients.add("n1", &session("c", &["p"], &[]));
        clients.add("n1", &session("d", &["p"], &[]));
        clients.measure("n1", &topic("p", 8.0));
        clients.measure("n2", &topic("p", 2.0));
        assert_eq!(clients.arrivals["c"].rates["p"], 4.0);
        assert_eq!(clients.arrivals["d"].rates["p"], 4.0);
        assert_eq!(clients.arrivals["publishers of p at n2"].rates["p"], 2.0);
        assert_eq!(clients.arrivals.len(), 3);
    }

    #[test]
    fn a_shared_group_counts_once_and_system_topics_do_not() {
        let mut clients = Clients::default();
        for client in ["c", "d"] {
            let filters = ["$share/g/a/+", "$SYS/#", "b"];
            clients.add("n1", &session(client, &[], &filters));
        }
        assert_eq!(clients.arrivals["c"].subscribe, ["a/+", "b"]);
        assert_eq!(clients.arrivals["d"].subscribe, ["b"]);
    }
}
