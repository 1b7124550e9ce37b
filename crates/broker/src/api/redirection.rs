//! The loads that nodes report, and the reasons why clients are where they are.

use serde::{Deserialize, Serialize};
use thicket_node::{ClientExplanation, NodeState, Rates};
use utoipa::ToSchema;

pub use thicket_node::{BalanceEntry, ClientMove, MoveEntry, RebalancePlan, RebalanceReport};

/// What is asked by `POST /v1/rebalance`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebalanceRequest {
    /// Make the plan, but move nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a node has to do, and where clients reach it: a part of `GET /v1/nodes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = NodeState)]
pub struct NodeStateEntry {
    /// The addresses where clients reach it, one for each listener.
    pub addresses: Vec<ClientAddressEntry>,
    /// HOST:PORT of its HTTP API.
    #[schema(required)]
    pub http_address: Option<String>,
    /// CPU that the process uses, as a part of what it may use: 1 is all of it. A mean of 5 s; none: not measured yet.
    #[schema(required)]
    pub cpu_ratio: Option<f64>,
    /// Resident bytes of the process; none: not measured.
    #[schema(required)]
    pub memory_bytes: Option<u64>,
    /// With more bytes than this it accepts no new sessions; none: no limit.
    #[schema(required)]
    pub memory_limit_bytes: Option<u64>,
    /// How many clients are connected.
    pub connections: u64,
    /// What clients and the node send each other.
    pub external: RatesEntry,
    /// What other nodes and the node send each other.
    pub internal: RatesEntry,
    /// It is being drained, and accepts no clients.
    pub draining: bool,
    /// It accepts no clients: it is out of memory, or at its limit of connections.
    pub full: bool,
}

/// Where clients reach a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ClientAddress)]
pub struct ClientAddressEntry {
    /// How clients connect there: `tcp`, `tls`, `ws` or `wss`.
    pub transport: String,
    /// What the listener puts before every topic of its clients; empty: nothing.
    pub topic_prefix: String,
    /// HOST:PORT that clients connect to.
    pub address: String,
}

/// Messages and bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Rates)]
pub struct RatesEntry {
    /// Messages that the node receives in a second.
    pub in_messages_per_s: u64,
    /// Their bytes.
    pub in_bytes_per_s: u64,
    /// Messages that the node sends in a second.
    pub out_messages_per_s: u64,
    /// Their bytes.
    pub out_bytes_per_s: u64,
}

impl RatesEntry {
    const fn new(rates: Rates) -> Self {
        Self {
            in_messages_per_s: rates.in_messages,
            in_bytes_per_s: rates.in_bytes,
            out_messages_per_s: rates.out_messages,
            out_bytes_per_s: rates.out_bytes,
        }
    }
}

pub(super) fn state_entry(state: Option<NodeState>) -> Option<NodeStateEntry> {
    let NodeState {
        load,
        addresses,
        http_address,
    } = state?;
    let address = |address: thicket_node::ClientAddress| ClientAddressEntry {
        transport: address.likeness.transport.name().to_owned(),
        topic_prefix: address.likeness.topic_prefix.to_string(),
        address: address.address.to_string(),
    };
    Some(NodeStateEntry {
        addresses: addresses.into_iter().map(address).collect(),
        http_address: http_address.map(|address| address.to_string()),
        cpu_ratio: load.cpu_permille.map(|cpu| f64::from(cpu) / 1000.0),
        memory_bytes: load.memory_bytes,
        memory_limit_bytes: load.memory_limit_bytes,
        connections: load.connections,
        external: RatesEntry::new(load.external),
        internal: RatesEntry::new(load.internal),
        draining: load.is_draining,
        full: load.is_full,
    })
}

/// Why a client is where it is: `GET /v1/explain?client_id=C`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ClientExplanation)]
pub struct ClientExplanationEntry {
    /// The client that was asked for.
    pub client_id: String,
    /// Whether its session is on the node that answers.
    pub is_here: bool,
    /// The client that was placed, of which this is a session; none: it was not placed.
    #[serde(default)]
    #[schema(required)]
    pub placed_client_id: Option<String>,
    /// The number of this session; 1: the client's own.
    #[serde(default)]
    #[schema(required)]
    pub placed_session: Option<u16>,
    /// All sessions of that client, the client's own first; empty: it was not placed.
    #[serde(default)]
    pub placed_sessions: Vec<PlacedAtEntry>,
    /// What is known of a client that did not ask where to connect; none: nothing.
    #[serde(default)]
    #[schema(required)]
    pub learned: Option<LearnedEntry>,
    /// What redirection goes by (`redirect`); none: clients are served where they come.
    #[schema(required)]
    pub policy: Option<String>,
    /// What the node that answers last decided about it; none: nothing.
    #[schema(required)]
    pub decision: Option<DecisionEntry>,
    /// When it was last sent from one node to another, by whichever, and what it did; none: not within the last hour.
    #[schema(required)]
    pub moved: Option<ClientMove>,
    /// The nodes that accept clients, the one with the least load first.
    pub nodes: Vec<RankedNodeEntry>,
}

/// What is known of a client that did not ask where to connect, with `redirect = "topics"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Learned)]
pub struct LearnedEntry {
    /// The identity of the node where it is, or where it should come back.
    pub node: String,
    /// Topics that the client publishes to.
    pub publish: Vec<String>,
    /// Topics of the messages that the client receives.
    pub subscribe: Vec<String>,
    /// CONNECTs that were refused since it was served last.
    pub refused: u8,
}

/// Where a session of a placed client should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlacedAt)]
pub struct PlacedAtEntry {
    /// The client identifier of the session.
    pub client_id: String,
    /// The identity of the node where it should be.
    pub node: String,
}

/// A decision about a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Decision)]
pub struct DecisionEntry {
    /// When it was made, Unix time in milliseconds.
    pub at_ms: u64,
    /// Whether it was sent to another node, or refused so that it comes there; otherwise it was served.
    pub redirected: bool,
    /// Why: `load`, `topics`, `drained`, `moved`, `rebalanced`; `refused`; or `balanced`, `placed`, `came_redirected`, `does_not_follow`, `version`, `refused_enough`, `no_address`, `budget`, `unsure`.
    pub reason: String,
    /// The identity of the node that it was sent to; none: it was served, or refused.
    #[schema(required)]
    pub to: Option<String>,
}

/// A node that accepts clients, and how suitable it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = RankedNode)]
pub struct RankedNodeEntry {
    /// The identity of the node.
    pub id: String,
    /// Its load as a multiple of the mean.
    pub score: f64,
    /// The site that it is configured with.
    #[serde(default)]
    #[schema(required)]
    pub site: Option<String>,
    /// Round trip between the node that answers and this one, as they have measured it; 0 below one millisecond. None: they have no link.
    #[serde(default)]
    #[schema(required)]
    pub round_trip_ms: Option<f64>,
    /// The price of a GB (10^9 bytes) from the node that answers to this one; 0: it costs nothing.
    #[serde(default)]
    pub price_per_gb: f64,
    /// What a message from the node that answers to this one counts as, in messages between nodes of one site; 0: it is that node.
    #[serde(default)]
    pub message_cost: f64,
}

impl From<ClientExplanation> for ClientExplanationEntry {
    fn from(explanation: ClientExplanation) -> Self {
        let decision = |decision: thicket_node::RedirectionDecision| DecisionEntry {
            at_ms: decision.at_ms,
            redirected: decision.reason.is_redirected(),
            reason: decision.reason.name().to_owned(),
            to: decision.to,
        };
        let node = |node: thicket_node::RankedNode| RankedNodeEntry {
            id: node.id,
            score: node.score,
            site: node.site,
            round_trip_ms: node.round_trip.map(|it| it.as_secs_f64() * 1000.0),
            price_per_gb: node.price_per_gb,
            message_cost: node.message_cost,
        };
        let placed = explanation.placed_as.as_ref();
        Self {
            placed_session: placed.map(|placed| placed.number),
            placed_client_id: placed.map(|placed| placed.client_id.clone()),
            placed_sessions: placed
                .into_iter()
                .flat_map(|placed| &placed.sessions)
                .map(|(client_id, node)| PlacedAtEntry {
                    client_id: client_id.clone(),
                    node: node.clone(),
                })
                .collect(),
            learned: explanation.learned.map(|learned| LearnedEntry {
                node: learned.node,
                publish: learned.publish,
                subscribe: learned.subscribe,
                refused: learned.refused,
            }),
            client_id: explanation.client_id,
            is_here: explanation.is_here,
            policy: explanation.policy.map(str::to_owned),
            decision: explanation.decision.map(decision),
            moved: explanation.moved,
            nodes: explanation.nodes.into_iter().map(node).collect(),
        }
    }
}
