//! `/v1/clients` and `/v1/subscribers`: the sessions of all nodes. Each node selects and sorts its own; this one merges them.

use std::net::IpAddr;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{OriginalUri, Query, State};
use axum::http::Method;
use axum::response::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thicket_node::{ClientOrder, ClientQuery, ClientReport, SubscriberQuery};
use thicket_session::topic::{SubscriptionFilter, TopicName};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{Answer, bad_field, bad_query, silent};
use super::relay::OnBehalf;
use super::{ApiState, Inspector};
use crate::api::cluster::{
    ClientEntry, ClientPage, SubscriberEntry, SubscriberPage, UnansweredEntry,
};
use crate::api::{SessionEntry, SubscriptionEntry};

/// Entries of a page by default.
const PAGE: usize = 100;
/// Most entries of a page.
const LONGEST: usize = 1000;

/// What may be asked of `/v1/clients`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ClientFilter {
    /// The session with this client identifier.
    client_id: Option<String>,
    /// Sessions of this user.
    user: Option<String>,
    /// Sessions of clients that are connected from this address.
    #[param(value_type = Option<String>)]
    address: Option<IpAddr>,
    /// Sessions that have this in client identifier, user name or address.
    search: Option<String>,
    /// Whether the client is connected.
    connected: Option<bool>,
    /// Sessions on this node only, by name or identity.
    node: Option<String>,
    /// What comes first.
    #[serde(default)]
    #[param(inline)]
    order: Order,
    /// `next` of the page before; with `order=name` only.
    after: Option<String>,
    /// Sessions on a page; 100 if it is not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// What comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    /// By name, in pages.
    #[default]
    Name,
    /// Most bytes that the client has not taken.
    Waiting,
    /// The message that has waited longest.
    Oldest,
    /// Most messages a second.
    Rate,
}

/// What may be asked of `/v1/subscribers`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct SubscriberFilter {
    /// Subscriptions of the session with this client identifier.
    client_id: Option<String>,
    /// Subscriptions with exactly this filter.
    filter: Option<String>,
    /// Subscriptions that match this topic name.
    topic: Option<String>,
    /// Subscriptions on this node only, by name or identity.
    node: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// Subscriptions on a page, which ends with a session; 100 if it is not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(clients))
        .routes(routes!(subscribers))
}

/// A page of the sessions of all nodes.
#[utoipa::path(
    get, path = "/v1/clients", tag = "clients", params(ClientFilter),
    responses(
        (status = 200, description = "A page", body = ClientPage),
        (status = 400, description = "A parameter is not valid"),
    ),
)]
async fn clients(
    State(inspector): State<Inspector>,
    OriginalUri(uri): OriginalUri,
    asks: OnBehalf,
    filter: Result<Query<ClientFilter>, QueryRejection>,
) -> Answer<ClientPage> {
    let Query(filter) = filter.map_err(|rejection| bad_query(&rejection))?;
    let limit = limit_of(filter.limit).map_err(|words| bad_field("limit", &words))?;
    let order = filter.order;
    if order != Order::Name && filter.after.is_some() {
        let words = "`after` goes with `order=name` only: other orders have one page";
        return Err(bad_field("after", words));
    }
    let is_single = filter.node.is_some();
    let query = ClientQuery {
        client_id: filter.client_id,
        user_name: filter.user,
        address: filter.address,
        search: filter.search,
        connected: filter.connected,
        order: match order {
            Order::Name => ClientOrder::Name,
            Order::Waiting => ClientOrder::Waiting,
            Order::Oldest => ClientOrder::Oldest,
            Order::Rate => ClientOrder::Rate,
        },
        after: filter.after,
        // One more shows whether there is another page.
        limit: limit + 1,
    };
    let found = inspector.ask_all(move |worker, now| worker.operate(now).clients(&query));
    let found = found.await.map_err(silent)?.concat().into_iter();
    let mut clients: Vec<_> = found.map(|it| inspector.client(it)).collect();
    let (pages, mut unanswered) = if is_single {
        (Vec::new(), Vec::new())
    } else {
        inspector.pages::<ClientPage>(&asks, &path_of(&uri)).await?
    };
    let mut has_more = clients.len() > limit;
    for page in pages {
        has_more |= page.next.is_some();
        clients.extend(page.clients);
        unanswered.extend(page.unanswered);
    }
    sort(&mut clients, order);
    has_more |= clients.len() > limit;
    clients.truncate(limit);
    let last = clients.last().map(|last| last.session_name.clone());
    Ok(Json(ClientPage {
        next: last.filter(|_| has_more && order == Order::Name),
        clients,
        unanswered,
    }))
}

fn sort(clients: &mut [ClientEntry], order: Order) {
    clients.sort_by(|a, b| {
        let by_name = (&a.session_name, &a.node_id).cmp(&(&b.session_name, &b.node_id));
        let waiting = |it: &ClientEntry| it.session.queued_bytes + it.unsent_bytes;
        let by_order = match order {
            Order::Name => std::cmp::Ordering::Equal,
            Order::Waiting => waiting(b).cmp(&waiting(a)),
            Order::Oldest => b.oldest_queued_ms.cmp(&a.oldest_queued_ms),
            Order::Rate => b.messages_per_s.total_cmp(&a.messages_per_s),
        };
        by_order.then(by_name)
    });
}

/// A page of the subscriptions of all nodes.
#[utoipa::path(
    get, path = "/v1/subscribers", tag = "clients", params(SubscriberFilter),
    responses(
        (status = 200, description = "A page", body = SubscriberPage),
        (status = 400, description = "A parameter is not valid"),
    ),
)]
async fn subscribers(
    State(inspector): State<Inspector>,
    OriginalUri(uri): OriginalUri,
    asks: OnBehalf,
    filter: Result<Query<SubscriberFilter>, QueryRejection>,
) -> Answer<SubscriberPage> {
    let Query(filter) = filter.map_err(|rejection| bad_query(&rejection))?;
    let limit = limit_of(filter.limit).map_err(|words| bad_field("limit", &words))?;
    if let Some(Err(error)) = filter.topic.as_deref().map(TopicName::new) {
        return Err(bad_field("topic", &format!("`topic`: {error}")));
    }
    if let Some(Err(error)) = filter.filter.as_deref().map(SubscriptionFilter::parse) {
        return Err(bad_field("filter", &format!("`filter`: {error}")));
    }
    let is_single = filter.node.is_some();
    let query = SubscriberQuery {
        client_id: filter.client_id,
        filter: filter.filter,
        topic: filter.topic,
        after: filter.after,
        limit: limit + 1,
    };
    let found = inspector.ask_all(move |worker, _| worker.view().subscribers(&query));
    let found = found.await.map_err(silent)?.concat().into_iter();
    let own = &inspector.own;
    let mut all: Vec<_> = found
        .map(|(session_name, it)| SubscriberEntry {
            node: own.name.clone(),
            node_id: own.id.clone(),
            session_name,
            subscription: SubscriptionEntry::from(it),
        })
        .collect();
    let (pages, mut unanswered) = if is_single {
        (Vec::new(), Vec::new())
    } else {
        let path = path_of(&uri);
        inspector.pages::<SubscriberPage>(&asks, &path).await?
    };
    let mut has_more = false;
    for page in pages {
        has_more |= page.next.is_some();
        all.extend(page.subscribers);
        unanswered.extend(page.unanswered);
    }
    all.sort_by(|a, b| {
        let key = |it: &SubscriberEntry| (it.session_name.clone(), it.subscription.filter.clone());
        key(a).cmp(&key(b))
    });
    let count = whole_sessions(&all, limit);
    has_more |= count < all.len();
    all.truncate(count);
    let last = all.last().map(|last| last.session_name.clone());
    Ok(Json(SubscriberPage {
        next: last.filter(|_| has_more),
        subscribers: all,
        unanswered,
    }))
}

/// Number of entries up to the end of the session in which the limit is reached: a page ends with a session.
fn whole_sessions(all: &[SubscriberEntry], limit: usize) -> usize {
    let Some(last) = all.get(limit.saturating_sub(1)) else {
        return all.len();
    };
    let rest = all[limit..].iter();
    let same = rest.take_while(|it| it.session_name == last.session_name);
    limit + same.count()
}

impl Inspector {
    fn client(&self, report: ClientReport) -> ClientEntry {
        let prefix = report.name.split_once('\u{1f}');
        let prefix = prefix.map(|(prefix, _)| prefix.to_owned());
        ClientEntry {
            node: self.own.name.clone(),
            node_id: self.own.id.clone(),
            session: SessionEntry::from(report.session),
            session_name: report.name,
            topic_prefix: prefix.filter(|prefix| !prefix.is_empty()),
            unsent_bytes: report.unsent_bytes,
            oldest_queued_ms: report.oldest_queued_ms,
            messages_per_s: report.millis_per_s as f64 / 1000.0,
        }
    }

    /// The answers of the other nodes to the same request; empty if the request comes from one of them.
    async fn pages<T: DeserializeOwned>(
        &self,
        asks: &OnBehalf,
        path: &str,
    ) -> Result<(Vec<T>, Vec<UnansweredEntry>), Response> {
        let (mut pages, mut unanswered) = (Vec::new(), Vec::new());
        if asks.is_node() {
            return Ok((pages, unanswered));
        }
        let asked = self.ask_others(asks, &Method::GET, path, None);
        for answered in asked.await.map_err(silent)? {
            match answered.read() {
                Ok(page) => pages.push(page),
                Err(why) => unanswered.push(answered.unanswered(why)),
            }
        }
        Ok((pages, unanswered))
    }
}

fn path_of(uri: &axum::http::Uri) -> String {
    let path = uri.path_and_query().map(|it| it.as_str());
    path.unwrap_or("/").to_owned()
}

pub(super) fn limit_of(limit: Option<usize>) -> Result<usize, String> {
    let limit = limit.unwrap_or(PAGE);
    let is_good = (1..=LONGEST).contains(&limit);
    let words = || format!("`limit` must be 1 to {LONGEST}");
    is_good.then_some(limit).ok_or_else(words)
}
