//! The three passes, and the order of their moves.

use std::collections::BTreeMap;

use super::board::Board;
use super::{Balance, COLD, Move, MoveReason, RebalanceClient, Situation, WORTH_RATE, WORTH_SHARE};

/// Clients are gathered this often at most.
const ROUNDS: usize = 12;
/// Another round is worthwhile if the last one saved this part of the traffic before it.
const ANOTHER_ROUND: f64 = 0.01;
/// Less is rounding.
const LEAST_GAIN: f64 = 1e-9;
/// This many clients are tried to change places with.
const SWAPS: usize = 8;
/// Clients change places whose loads differ by no more than this part.
const ALIKE: f64 = 0.25;
/// Clients leave a node with more than its share in this many batches at most.
const BATCHES: usize = 8;
/// Levelling ends where the load of a node is this multiple of its share.
const LEVEL: f64 = 1.02;

/// Where each client should be, and why, if that is elsewhere.
pub(super) fn wanted(situation: &Situation, start: &Board<'_>) -> Vec<Option<(usize, MoveReason)>> {
    let mut board = start.clone();
    let mut wanted = vec![None; situation.clients.len()];
    drain(situation, &mut board, &mut wanted);
    level(situation, &mut board, &mut wanted);
    gather(situation, &mut board, &mut wanted);
    wanted
}

type Wanted = [Option<(usize, MoveReason)>];

fn drain(situation: &Situation, board: &mut Board<'_>, wanted: &mut Wanted) {
    let mut leaving: Vec<usize> = movable(situation)
        .filter(|index| situation.nodes[situation.clients[*index].node].is_draining)
        .collect();
    leaving.sort_by(|a, b| {
        let load = |index: &usize| situation.clients[*index].load();
        load(b).total_cmp(&load(a)).then(a.cmp(b))
    });
    for index in leaving {
        let client = &situation.clients[index];
        board.remove(client, client.node);
        let open = (0..board.nodes.len()).filter(|node| board.share(*node) > 0.0);
        // It must leave: if no node has capacity for it, to that with the lowest load.
        let best = open
            .clone()
            .filter(|node| board.has_capacity(*node, client.load()));
        let best = best.min_by(|a, b| board.cost(client, *a).total_cmp(&board.cost(client, *b)));
        let idlest = open.min_by(|a, b| {
            let full = |node: &usize| board.fullness(*node).unwrap_or(f64::MAX);
            full(a).total_cmp(&full(b))
        });
        let to = best.or(idlest).unwrap_or(client.node);
        board.add(client, to);
        if to != client.node {
            wanted[index] = Some((to, MoveReason::Drain));
        }
    }
}

fn level(situation: &Situation, board: &mut Board<'_>, wanted: &mut Wanted) {
    let open: Vec<usize> = (0..board.nodes.len())
        .filter(|node| board.share(*node) > 0.0)
        .collect();
    let full = |board: &Board<'_>, node: usize| board.fullness(node).unwrap_or(1.0);
    let is_hot = open.iter().any(|node| full(board, *node) > board.gamma());
    let is_cold = open.iter().any(|node| full(board, *node) < COLD);
    if !is_hot && !is_cold {
        return;
    }
    let cold: Vec<usize> = open
        .iter()
        .copied()
        .filter(|node| full(board, *node) < 1.0)
        .collect();
    let mut hottest = open;
    hottest.sort_by(|a, b| full(board, *b).total_cmp(&full(board, *a)).then(a.cmp(b)));
    for from in hottest {
        for round in 1..=BATCHES {
            let excess = board.loads[from] - board.share(from);
            if full(board, from) <= LEVEL || cold.contains(&from) {
                break;
            }
            // The first to leave may break up what belongs together: their partners are the cheapest of the next batch.
            let batch = if round == BATCHES {
                excess
            } else {
                excess / 4.0
            };
            level_some(situation, board, wanted, (from, &cold), batch);
        }
    }
}

/// Moves clients with about this much load from a node to those below their shares.
fn level_some(
    situation: &Situation,
    board: &mut Board<'_>,
    wanted: &mut Wanted,
    (from, cold): (usize, &[usize]),
    batch: f64,
) {
    let mut leaving: Vec<(f64, usize)> = movable(situation)
        .filter(|index| situation.clients[*index].node == from && wanted[*index].is_none())
        .filter_map(|index| {
            let client = &situation.clients[index];
            let (_, loss) = coldest_choice(board, cold, client, from)?;
            Some((loss / client.load(), index))
        })
        .collect();
    leaving.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut moved = 0.0;
    for (_, index) in leaving {
        if moved >= batch {
            return;
        }
        let client = &situation.clients[index];
        // Its target is looked up again: those before it have changed the loads.
        let Some((to, _)) = coldest_choice(board, cold, client, from) else {
            continue;
        };
        board.shift(client, from, to);
        moved += client.load();
        wanted[index] = Some((to, MoveReason::Load));
    }
}

/// For a client of a node with more than its share: the node below its share where it costs least, and what it costs more there.
fn coldest_choice(
    board: &mut Board<'_>,
    cold: &[usize],
    client: &RebalanceClient,
    from: usize,
) -> Option<(usize, f64)> {
    let load = client.load();
    // Both are nearer to their shares afterwards.
    if board.loads[from] - load < board.share(from) * (2.0 - LEVEL) {
        return None;
    }
    let colder = |board: &Board<'_>, node: usize| {
        node != from && board.loads[node] + load <= board.share(node) * LEVEL
    };
    if !cold.iter().any(|node| colder(board, *node)) {
        return None;
    }
    board.remove(client, from);
    let here = board.cost(client, from);
    let best = cold
        .iter()
        .filter(|node| colder(board, **node))
        .map(|node| (*node, board.cost(client, *node) - here))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    board.add(client, from);
    best
}

fn gather(situation: &Situation, board: &mut Board<'_>, wanted: &mut Wanted) {
    let start = (board.cost, board.internal());
    let mut at: Vec<usize> = situation
        .clients
        .iter()
        .zip(wanted.iter())
        .map(|(client, wanted)| wanted.map_or(client.node, |it| it.0))
        .collect();
    for _ in 0..ROUNDS {
        let before = board.cost;
        let mut wishes = Wishes::new();
        for index in movable(situation) {
            gather_one(situation, board, &mut at, &mut wishes, index);
        }
        if before - board.cost <= ANOTHER_ROUND * before {
            break;
        }
    }
    send_back(situation, board, wanted, &mut at);
    // Between sites most of the cost may be what no move saves.
    let is_worth =
        |before: f64, after: f64| before - after >= (WORTH_SHARE * before).max(WORTH_RATE);
    if !is_worth(start.0, board.cost) && !is_worth(start.1, board.internal()) {
        return;
    }
    for (index, node) in at.into_iter().enumerate() {
        let client = &situation.clients[index];
        wanted[index] = match wanted[index] {
            Some((_, reason @ MoveReason::Drain)) => Some((node, reason)),
            // It may have returned.
            _ if node == client.node => None,
            Some((_, reason)) => Some((node, reason)),
            None => Some((node, MoveReason::Topics)),
        };
    }
}

/// Undoes moves that save too little by themselves.
fn send_back(situation: &Situation, board: &mut Board<'_>, wanted: &Wanted, at: &mut [usize]) {
    for index in movable(situation) {
        let client = &situation.clients[index];
        let (now, origin) = (at[index], client.node);
        if wanted[index].is_some() || now == origin || !board.has_capacity(origin, client.load()) {
            continue;
        }
        board.remove(client, now);
        let saves = board.cost_with(client, origin) - board.cost_with(client, now);
        board.add(client, now);
        if saves < WORTH_RATE {
            board.shift(client, now, origin);
            at[index] = origin;
        }
    }
}

/// Clients that would move from one node to another if there were capacity.
type Wishes = BTreeMap<(usize, usize), Vec<usize>>;

fn gather_one(
    situation: &Situation,
    board: &mut Board<'_>,
    at: &mut [usize],
    wishes: &mut Wishes,
    index: usize,
) {
    let client = &situation.clients[index];
    if client.subscribes.is_empty() && client.publishes.is_empty() {
        return;
    }
    let (from, load) = (at[index], client.load());
    let stays_warm = board.loads[from] - load >= COLD * board.share(from);
    board.remove(client, from);
    let stay = board.cost(client, from) - LEAST_GAIN;
    // Topics move no client to another site: a message crosses the link between two nodes once for all clients there.
    let is_open = |node: &usize| {
        *node != from && board.share(*node) > 0.0 && board.is_near(client.node, *node)
    };
    let open = (0..board.nodes.len()).filter(is_open);
    let mut better: Vec<(f64, usize)> = open
        .map(|node| (board.cost(client, node), node))
        .filter(|(cost, _)| *cost < stay)
        .collect();
    board.add(client, from);
    better.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let Some((_, best)) = better.first().copied() else {
        return;
    };
    if (!stays_warm || !board.has_capacity(best, load))
        && swap(situation, board, at, wishes, index, best)
    {
        return;
    }
    let roomy = better
        .into_iter()
        .find(|(_, node)| board.has_capacity(*node, load));
    if let Some((_, to)) = roomy.filter(|_| stays_warm) {
        board.shift(client, from, to);
        at[index] = to;
    }
    if at[index] != best {
        wishes.entry((at[index], best)).or_default().push(index);
    }
}

/// Where there is no capacity a client changes places with one that would move here, if that saves something for both together.
fn swap(
    situation: &Situation,
    board: &mut Board<'_>,
    at: &mut [usize],
    wishes: &mut Wishes,
    index: usize,
    to: usize,
) -> bool {
    let from = at[index];
    let client = &situation.clients[index];
    let Some(others) = wishes.get_mut(&(to, from)) else {
        return false;
    };
    for place in (0..others.len()).rev().take(SWAPS) {
        let other = &situation.clients[others[place]];
        if at[others[place]] != to || (other.load() - client.load()).abs() > ALIKE * client.load() {
            continue;
        }
        let saves = board.shift(client, from, to) + board.shift(other, to, from);
        let fits = |node| board.has_capacity(node, 0.0);
        if saves > LEAST_GAIN && fits(from) && fits(to) {
            at[others[place]] = from;
            at[index] = to;
            others.swap_remove(place);
            return true;
        }
        board.shift(other, from, to);
        board.shift(client, to, from);
    }
    false
}

fn movable(situation: &Situation) -> impl Iterator<Item = usize> + '_ {
    let clients = situation.clients.iter().enumerate();
    clients
        .filter(|(_, client)| client.may_move)
        .map(|(index, _)| index)
}

/// Orders the moves so that none brings a node above gamma on the way, those that save most first. Where no node has capacity two clients that change
/// places move one right after the other. What is over capacity even so is left out.
pub(super) fn in_order(
    situation: &Situation,
    mut board: Board<'_>,
    wanted: &Wanted,
    most: usize,
) -> (Vec<Move>, Balance) {
    let mut waiting = by_gain(situation, &mut board, wanted);
    let mut moves = Vec::new();
    loop {
        let before = moves.len();
        waiting.retain(|step| {
            let load = situation.clients[step.client].load();
            let fits = step.reason == MoveReason::Drain || board.has_capacity(step.to, load);
            let goes = fits && moves.len() < most;
            if goes {
                moves.push(carry_out(situation, &mut board, *step));
            }
            !goes
        });
        if moves.len() == before && moves.len() + 2 <= most {
            exchange(situation, &mut board, &mut waiting, &mut moves);
        }
        if moves.len() == before || waiting.is_empty() {
            let after = board.balance();
            return (moves, after);
        }
    }
}

/// All wanted moves, those that must be first and then those that save most.
fn by_gain(situation: &Situation, board: &mut Board<'_>, wanted: &Wanted) -> Vec<Move> {
    let mut waiting: Vec<(f64, Move)> = Vec::new();
    for (index, wish) in wanted.iter().enumerate() {
        let Some((to, reason)) = *wish else { continue };
        let client = &situation.clients[index];
        let from = client.node;
        board.remove(client, from);
        let gain = board.cost(client, from) - board.cost(client, to);
        board.add(client, from);
        let is_urgent = reason != MoveReason::Topics;
        let urgency = if is_urgent { f64::MAX / 2.0 } else { 0.0 };
        let step = Move {
            client: index,
            from,
            to,
            reason,
            saves: 0.0,
        };
        waiting.push((gain + urgency, step));
    }
    waiting.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.client.cmp(&b.1.client)));
    waiting.into_iter().map(|it| it.1).collect()
}

fn carry_out(situation: &Situation, board: &mut Board<'_>, step: Move) -> Move {
    let saves = board.shift(&situation.clients[step.client], step.from, step.to);
    Move { saves, ..step }
}

/// The first two that fit if they move together.
fn exchange(
    situation: &Situation,
    board: &mut Board<'_>,
    waiting: &mut Vec<Move>,
    moves: &mut Vec<Move>,
) {
    let mut places: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for place in 0..waiting.len() {
        let step = waiting[place];
        let Some(opposite) = places.get(&(step.to, step.from)).copied() else {
            places.entry((step.from, step.to)).or_insert(place);
            continue;
        };
        let other = waiting[opposite];
        let load = |step: Move| situation.clients[step.client].load();
        let more = load(step) - load(other);
        if board.has_capacity(step.to, more) && board.has_capacity(other.to, -more) {
            moves.push(carry_out(situation, board, other));
            moves.push(carry_out(situation, board, step));
            waiting.remove(place);
            waiting.remove(opposite);
            return;
        }
    }
}
