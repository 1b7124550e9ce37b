//! Clients that may have several sessions, and split their topics over them: all placed again at once.

use crate::cluster::Cluster;
use crate::error::ParameterError;
use crate::ids::{BrokerId, ClientId};
use crate::placer::Placer;
use crate::strategy::{Interest, Limits, MatchingOptions, StrategyKind};

/// One client with its topics, and where each of them is.
pub type Attached = (ClientId, Vec<(Interest, BrokerId)>);

/// Where all of it should be: the strategy of `thicket` fills an empty cluster, publishers first, and its brokers get the names under which most
/// stays where it is. Changing one placement to a better one client by client ends far from there: each stays where the others still are.
///
/// `empty` has the topics and no clients. The result has the clients in their order.
///
/// # Errors
/// A rate is negative or not finite.
pub fn replan(
    empty: Cluster,
    limits: Limits,
    clients: &[Attached],
) -> Result<Vec<Attached>, ParameterError> {
    let max_sessions = limits.max_sessions();
    let clients: Vec<(Attached, usize)> = clients
        .iter()
        .map(|client| (client.clone(), max_sessions))
        .collect();
    fill(empty, limits, &[], &clients)
}

/// The same beside clients that stay where they are, and with sessions for each client. Names are given only if none stays: otherwise brokers have
/// theirs.
pub(super) fn fill(
    empty: Cluster,
    limits: Limits,
    staying: &[Attached],
    clients: &[(Attached, usize)],
) -> Result<Vec<Attached>, ParameterError> {
    let brokers = empty.broker_count();
    let strategy = StrategyKind::Thicket.build(limits, MatchingOptions::default(), 0);
    let mut placer = Placer::new(empty, strategy);
    for (client, at) in staying {
        placer.restore(*client, at)?;
    }
    let publishes = |(client, _): &&(Attached, usize)| {
        let mut roles = client.1.iter().map(|(interest, _)| interest.role);
        roles.any(|role| role.publish_rate().is_some())
    };
    let (first, then): (Vec<_>, Vec<_>) = clients.iter().partition(publishes);
    for ((client, at), max_sessions) in first.into_iter().chain(then) {
        let interests: Vec<Interest> = at.iter().map(|it| it.0).collect();
        placer.allow_sessions(*max_sessions);
        placer.arrive(*client, &interests)?;
    }
    let new_broker = |client: ClientId, interest: &Interest| {
        let mut all = placer.assignments(client).iter();
        let found = all.find(|it| it.topic == interest.topic);
        found.map_or(BrokerId(0), |it| it.broker)
    };
    let mut stays = vec![0u64; brokers * brokers];
    for ((client, at), _) in clients {
        for (interest, old) in at {
            stays[new_broker(*client, interest).index() * brokers + old.index()] += 1;
        }
    }
    let names = if staying.is_empty() {
        names_that_keep_most(&stays, brokers)
    } else {
        (0..brokers).map(|at| BrokerId(at as u16)).collect()
    };
    let renamed = clients.iter().map(|((client, at), _)| {
        let at = at
            .iter()
            .map(|(interest, _)| (*interest, names[new_broker(*client, interest).index()]));
        (*client, at.collect())
    });
    Ok(renamed.collect())
}

/// A name for each new broker: the pairs with most in common first.
fn names_that_keep_most(stays: &[u64], brokers: usize) -> Vec<BrokerId> {
    let mut pairs: Vec<usize> = (0..stays.len()).collect();
    pairs.sort_by_key(|pair| (std::cmp::Reverse(stays[*pair]), *pair));
    let (mut names, mut taken) = (vec![None; brokers], vec![false; brokers]);
    for (new, old) in pairs
        .into_iter()
        .map(|pair| (pair / brokers, pair % brokers))
    {
        if names[new].is_none() && !taken[old] {
            names[new] = Some(BrokerId(old as u16));
            taken[old] = true;
        }
    }
    names
        .into_iter()
        .map(|name| name.unwrap_or(BrokerId(0)))
        .collect()
}
