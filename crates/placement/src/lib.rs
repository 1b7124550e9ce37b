//! Traffic model, placement strategies and simulator of an MQTT cluster.
//!
//! Implements sections III, IV and V.A-B of Detti, "Sub-linear Scalability of MQTT Clusters in Topic-based
//! Publish-subscribe Applications". The planner of the command line and the control plane run the same code.
//!
//! - [`TrafficModel`] predicts the traffic of a cluster whose clients attach at random (Eq. 1-7, 13-15).
//! - [`Cluster`] is the state: who publishes and subscribes where, and the traffic that follows.
//! - A [`Strategy`] chooses brokers for clients as they arrive; [`Placer`] carries its decisions out.
//! - [`simulate`] runs a [`Workload`] through a strategy; [`Replay`] does the same for recorded arrivals by name.
//! - An [`Advisor`] starts from the nodes of recorded clients, and finds the moves that adding or removing a node needs.
//! - [`ControlPlane`] places clients by name, and its placements are reservations.
//! - [`SitePrices`] gives the cost of messages between sites.
//! - [`LoadBalancer`] chooses a broker for a client that connects, by the present loads of brokers.
//! - [`plan_moves`] finds which connected clients should be at another node, and what that gains.
//! - [`heaviest`] chooses the connections that yield when places run out.
//! - [`Figure`] holds the paper's figures as data; [`SizeQuestion`] asks how many brokers a load needs.
//!
//! Left to others: files, threads, clocks, and asking for placements over a network.
//!
//! Invariants: same inputs and seed, same outputs, on any machine (own generator, software `pow`, `exp` and `log`, no
//! table whose order escapes is randomly seeded); a client's topic has exactly one broker; a client has no more sessions
//! than allowed; internal traffic kept by increments equals a recount up to rounding.
//!
//! ```
//! use thicket_placement::{
//!     ClientId, Cluster, Interest, Limits, MatchingOptions, Placer, Role, StrategyKind,
//! };
//!
//! # fn main() -> Result<(), thicket_placement::ParameterError> {
//! let mut cluster = Cluster::new(2)?;
//! let tennis = cluster.add_topic(1.0)?;
//! let limits = Limits::new(4, 1.1)?;
//! let strategy = StrategyKind::Thicket.build(limits, MatchingOptions::default(), 1);
//! let mut placer = Placer::new(cluster, strategy);
//! placer.arrive(ClientId(0), &[Interest { topic: tennis, role: Role::Publisher { rate: 1.0 } }])?;
//! placer.arrive(ClientId(1), &[Interest { topic: tennis, role: Role::Subscriber }])?;
//! assert_eq!(placer.cluster().traffic().internal(), 0.0);
//! # Ok(())
//! # }
//! ```

mod backups;
mod cluster;
mod control;
mod distance;
mod error;
mod ids;
mod model;
mod placer;
mod random;
mod rebalance;
mod redirect;
mod replay;

mod simulator;
mod sites;
mod strategy;
mod yielding;

pub use backups::{
    BACKUP_SLACK, Failover, GAMMA_PERCENT, LEAST_LOAD, SESSION_LOAD, above_share, better_backup,
};
pub use cluster::{BrokerTraffic, Cluster, Dimension, Publisher, Traffic};
pub use control::{
    Asked, BetterNode, ControlPlane, PlacedSession, Placement, Wanted, session_client_id,
};
pub use distance::Distances;
pub use error::ParameterError;
pub use ids::{BrokerId, ClientId, TopicId};
pub use model::{
    Natural, Prediction, Scenario, TrafficModel, Tree, broker_probability, decision_space, jain,
    overhead, zipf,
};
pub use placer::{Assignment, Placed, Placer};
pub use random::Random;
pub use rebalance::{
    Attached, Balance, COLD, CONNECTION_LOAD, Move, MoveReason, Placeable, PlacementPlan, Plan,
    PlannedSession, RebalanceClient, RebalanceLimits, RebalanceNode, Situation, Sizing,
    SizingReading, WORTH_RATE, WORTH_SHARE, plan_moves, plan_placements, replan,
};
pub use redirect::{Candidate, Excess, Load, LoadBalancer, Policy, State};
pub use replay::{Advisor, Arrival, Change, Outcome, Relocation, Replay, Step};

pub use simulator::{
    Application, ArrivalOrder, Axis, CpuWeights, Criterion, FIGURE_ORDER, Figure, Measures, Panel,
    Rates, Run, Setting, Size, SizeQuestion, Statistic, Sweep, Workload, WorkloadOptions,
    final_traffic, simulate,
};
pub use sites::{SitePrices, check_site};
pub use strategy::{
    ActiveBy, Decision, IdleCluster, Interest, LeastLoaded, Limits, LoadMoment, Matching,
    MatchingOptions, MissingPublisher, Optimum, PublisherIndicator, RandomAttach, Request, Role,
    RoundRobin, Strategy, StrategyKind, Subset, TestedLoad, Thicket, ThicketOptions, Ties,
};
pub use yielding::{Held, JUST_CONNECTED, LOOKED_AT, Source, heaviest};
