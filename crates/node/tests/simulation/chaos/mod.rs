//! Random runs: a cluster, clients, a network that does its worst, and what must hold nevertheless.
//!
//! `SEED=n` plays one seed of each plan and says what the nodes logged; `THICKET_SEEDS=n` plays that many of each. With `--nocapture` each plan
//! prints how often the checks permitted what they would else call broken (`checks::Excuse`).

mod acts;
mod checks;
mod faults;
mod ledger;
mod plan;
mod points;
mod reached;
mod rest;
mod run;
mod setup;
mod tokens;
mod told;

use std::panic::{AssertUnwindSafe, catch_unwind};

use thicket_mqtt::ProtocolVersion;
use thicket_overlay::routing::RoutingMode;

use self::{checks::Excuses, plan::Plan, run::Run};

const V311: ProtocolVersion = ProtocolVersion::V311;
const V5: ProtocolVersion = ProtocolVersion::V5;

/// Seeds of each plan, unless `THICKET_SEEDS` says otherwise.
const SEEDS: u64 = 100;

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs that fail, by plan and seed; `docs/design/limits.md` says how.
const KNOWN_TO_FAIL: &[(&str, u64)] = &[(
    "two_nodes_that_restart_while_they_are_partitioned_lose_nothing",
    79,
)];

/// How many runs of a plan may fail before no more are played.
const ENOUGH_FAILED: usize = 20;

/// Plays a plan with seeds that failed once, and with many others. Tells all that failed, not only the first.
fn play(name: &str, plan: Plan, once_failed: &[(RoutingMode, &[u64])]) {
    let runs: Vec<(RoutingMode, u64)> = if let Some(seed) = number_from("SEED") {
        vec![(mode_of(plan, seed), seed)]
    } else {
        let first = number_from("THICKET_FIRST_SEED").unwrap_or(0);
        let count = number_from("THICKET_SEEDS").unwrap_or(SEEDS);
        // Every plan has about the same time.
        let count = (count * Plan::ALONE.actions as u64 / plan.actions as u64).max(1);
        // There are many kinds of faults: of each a quarter is played.
        let share = if plan.faults.is_empty() && !plan.is_cramped {
            1
        } else {
            4
        };
        let count = count.div_ceil(share);
        let again = once_failed
            .iter()
            .flat_map(|(mode, seeds)| seeds.iter().map(|seed| (*mode, *seed)));
        let others = (first..first + count).map(|seed| (mode_of(plan, seed), seed));
        let is_played = |(_, seed): &(RoutingMode, u64)| !KNOWN_TO_FAIL.contains(&(name, *seed));
        again.chain(others).filter(is_played).collect()
    };
    play_runs(name, plan, runs);
}

fn play_runs(name: &str, plan: Plan, runs: Vec<(RoutingMode, u64)>) {
    let is_verbose = number_from("SEED").is_some();
    let (count, mut excuses) = (runs.len(), Excuses::new());
    let failed: Vec<String> = runs
        .into_iter()
        .filter_map(|(mode, seed)| play_one(name, plan, mode, seed, is_verbose, &mut excuses).err())
        .take(ENOUGH_FAILED)
        .collect();
    println!("{name}: {count} runs, permitted: {excuses:?}");
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// What `ROUTING` says; otherwise every way to route has its turn.
fn mode_of(plan: Plan, seed: u64) -> RoutingMode {
    let given = std::env::var("ROUTING")
        .ok()
        .and_then(|name| name.parse().ok());
    let in_turn = if plan.nodes > 1 || plan.kills {
        seed % 4
    } else {
        0
    };
    given.unwrap_or(RoutingMode::ALL[in_turn as usize])
}

/// Plays one seed of a plan. An error says what was broken and how to see it again.
fn play_one(
    name: &str,
    plan: Plan,
    routing: RoutingMode,
    seed: u64,
    is_verbose: bool,
    excuses: &mut Excuses,
) -> Result<(), String> {
    let mut run = Run::new(plan, routing, seed);
    run.log = is_verbose.then(Vec::new);
    let verdict = catch_unwind(AssertUnwindSafe(|| run.play()));
    for (excuse, count) in &run.excuses {
        *excuses.entry(*excuse).or_default() += count;
    }
    let broken = match verdict {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(broken)) => broken,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
            format!("nothing panics: {}", text.unwrap_or_default())
        }
    };
    for line in run.log.iter().flatten() {
        println!("{line}");
    }
    if is_verbose {
        for node in &run.world.nodes {
            for (at, event) in &node.events {
                let (level, message) = (event.level, event.message);
                println!(
                    "{at:>8} node {} {level:?} {message} {:?}",
                    node.index, event.fields
                );
            }
        }
    }
    Err(format!(
        "{broken}\nat {} ms; replay with: ROUTING={} SEED={seed} cargo test -p thicket-node --test simulation {name}",
        run.world.net.now,
        routing.name()
    ))
}

#[test]
fn a_node_alone_keeps_every_promise() {
    play(
        "a_node_alone_keeps_every_promise",
        Plan::ALONE,
        &[(RoutingMode::Mesh, &[200_672, 200_919])],
    );
}

#[test]
fn a_node_that_is_killed_keeps_what_it_acknowledged() {
    play(
        "a_node_that_is_killed_keeps_what_it_acknowledged",
        Plan::KILLED,
        &[(RoutingMode::Mesh, &[300_304]), (RoutingMode::Tree, &[494])],
    );
}

#[test]
fn nodes_that_die_one_at_a_time_lose_nothing() {
    play(
        "nodes_that_die_one_at_a_time_lose_nothing",
        Plan::DYING,
        &[
            (RoutingMode::Mesh, &[20_484]),
            (RoutingMode::Topic, &[701, 10_097]),
            (RoutingMode::Tree, &[1_286]),
            (RoutingMode::Flood, &[1_057, 21_471, 501_123]),
        ],
    );
}

#[test]
fn nodes_of_which_two_die_at_once_lose_nothing_with_two_backups() {
    play(
        "nodes_of_which_two_die_at_once_lose_nothing_with_two_backups",
        Plan::DYING_IN_TWOS,
        &[
            (RoutingMode::Mesh, &[364]),
            (RoutingMode::Topic, &[5]),
            (RoutingMode::Tree, &[198]),
        ],
    );
}

#[test]
fn nodes_of_which_three_die_at_once_lose_nothing_with_three_backups() {
    play(
        "nodes_of_which_three_die_at_once_lose_nothing_with_three_backups",
        Plan::DYING_IN_THREES,
        &[
            (RoutingMode::Tree, &[200_534]),
            (RoutingMode::Mesh, &[1054, 401_504, 702_088]),
            (RoutingMode::Topic, &[881]),
            (RoutingMode::Flood, &[19, 300_843, 301_259]),
        ],
    );
}

#[test]
fn nodes_that_die_one_at_a_time_and_have_different_numbers_of_backups_lose_nothing() {
    play(
        "nodes_that_die_one_at_a_time_and_have_different_numbers_of_backups_lose_nothing",
        Plan::DYING_MIXED,
        &[(RoutingMode::Mesh, &[200_888])],
    );
}

#[test]
fn nodes_that_are_killed_at_named_points_keep_what_they_acknowledged() {
    play(
        "nodes_that_are_killed_at_named_points_keep_what_they_acknowledged",
        Plan::KILLED_AT_POINTS,
        &[],
    );
}

#[test]
fn nodes_that_die_at_named_points_lose_nothing() {
    play(
        "nodes_that_die_at_named_points_lose_nothing",
        Plan::DYING_AT_POINTS,
        &[],
    );
}

#[test]
fn nodes_of_which_a_second_dies_at_a_named_point_lose_nothing_with_two_backups() {
    play(
        "nodes_of_which_a_second_dies_at_a_named_point_lose_nothing_with_two_backups",
        Plan::DYING_AT_POINTS_IN_TWOS,
        &[(RoutingMode::Mesh, &[76])],
    );
}

#[test]
fn nodes_that_all_lose_their_power_at_once_keep_what_they_acknowledged() {
    play(
        "nodes_that_all_lose_their_power_at_once_keep_what_they_acknowledged",
        Plan::POWER_LOSS,
        &[],
    );
}

#[test]
fn nodes_that_boot_one_after_the_other_lose_nothing() {
    play(
        "nodes_that_boot_one_after_the_other_lose_nothing",
        Plan::BOOTED_APART,
        &[],
    );
}

#[test]
fn nodes_that_boot_one_after_the_other_lose_nothing_with_a_majority() {
    play(
        "nodes_that_boot_one_after_the_other_lose_nothing_with_a_majority",
        Plan::BOOTED_APART_MAJORITY,
        &[],
    );
}

#[test]
fn nodes_that_boot_one_after_the_other_lose_nothing_with_two_backups() {
    play(
        "nodes_that_boot_one_after_the_other_lose_nothing_with_two_backups",
        Plan::BOOTED_APART_WITH_TWO_BACKUPS,
        &[],
    );
}

#[test]
fn nodes_that_restart_while_they_are_partitioned_lose_nothing() {
    play(
        "nodes_that_restart_while_they_are_partitioned_lose_nothing",
        Plan::RESTARTED_PARTITIONED,
        &[],
    );
}

#[test]
fn two_nodes_that_restart_while_they_are_partitioned_lose_nothing() {
    play(
        "two_nodes_that_restart_while_they_are_partitioned_lose_nothing",
        Plan::SPLIT_AND_RESTARTED,
        &[],
    );
}

#[test]
fn nodes_whose_links_stay_keep_every_promise() {
    play(
        "nodes_whose_links_stay_keep_every_promise",
        Plan::LINKED,
        &[
            (RoutingMode::Mesh, &[0, 1, 3]),
            (RoutingMode::Topic, &[129]),
        ],
    );
}

#[test]
fn nodes_whose_links_break_keep_every_promise() {
    play(
        "nodes_whose_links_break_keep_every_promise",
        Plan::LINK_LOSS,
        &[
            (
                RoutingMode::Mesh,
                &[0, 7, 13, 25, 47, 73, 97, 157, 196, 1050],
            ),
            (RoutingMode::Topic, &[5, 197]),
            (RoutingMode::Flood, &[991]),
        ],
    );
}

#[test]
fn with_a_majority_nothing_acknowledged_is_lost_in_a_partition() {
    play(
        "with_a_majority_nothing_acknowledged_is_lost_in_a_partition",
        Plan::MAJORITY,
        &[
            (RoutingMode::Mesh, &[63, 128, 156, 6_184, 40_210, 40_248]),
            (
                RoutingMode::Topic,
                &[32, 158, 296, 3_089, 5_633, 10_221, 40_264, 301_017],
            ),
            (RoutingMode::Tree, &[12, 146, 386, 40_152]),
            (
                RoutingMode::Flood,
                &[4, 32, 53, 228, 263, 10_039, 40_033, 40_173],
            ),
        ],
    );
}

#[test]
fn nodes_that_fall_into_two_sides_lose_nothing() {
    play(
        "nodes_that_fall_into_two_sides_lose_nothing",
        Plan::TWO_WAY_PARTITION,
        &[
            (RoutingMode::Flood, &[10_083]),
            (RoutingMode::Tree, &[300_850]),
        ],
    );
}

#[test]
fn two_partitioned_nodes_lose_nothing() {
    play(
        "two_partitioned_nodes_lose_nothing",
        Plan::SPLIT,
        &[
            (RoutingMode::Mesh, &[636, 501_124]),
            (RoutingMode::Topic, &[253]),
            (RoutingMode::Flood, &[700_179]),
        ],
    );
}

#[test]
fn partitioned_nodes_keep_what_they_promised_before_and_after() {
    play(
        "partitioned_nodes_keep_what_they_promised_before_and_after",
        Plan::PARTIAL_PARTITION,
        &[
            (RoutingMode::Mesh, &[52]),
            (
                RoutingMode::Topic,
                &[48, 138, 139, 334, 453, 956, 200_093, 121, 245],
            ),
            (RoutingMode::Tree, &[1, 50, 98, 636, 201_474, 501_522]),
            (RoutingMode::Flood, &[95, 117, 203, 283, 764, 201_031]),
        ],
    );
}

#[test]
fn nodes_that_stand_still_for_a_while_lose_nothing() {
    play(
        "nodes_that_stand_still_for_a_while_lose_nothing",
        Plan::PAUSED,
        &[(RoutingMode::Tree, &[9138])],
    );
}

#[test]
fn two_nodes_of_which_one_stands_still_for_a_while_lose_nothing() {
    play(
        "two_nodes_of_which_one_stands_still_for_a_while_lose_nothing",
        Plan::PAUSED_PAIR,
        &[(RoutingMode::Topic, &[2037, 7205])],
    );
}

#[test]
fn nodes_that_stand_still_lose_nothing_with_two_backups() {
    play(
        "nodes_that_stand_still_lose_nothing_with_two_backups",
        Plan::PAUSED_WITH_TWO_BACKUPS,
        &[
            (RoutingMode::Tree, &[200_390]),
            (RoutingMode::Flood, &[200_447]),
        ],
    );
}

#[test]
fn with_a_majority_nodes_that_stand_still_lose_nothing() {
    play(
        "with_a_majority_nodes_that_stand_still_lose_nothing",
        Plan::PAUSED_MAJORITY,
        &[
            (RoutingMode::Tree, &[9138]),
            (RoutingMode::Topic, &[9217, 200_185]),
        ],
    );
}

#[test]
fn clients_that_move_while_nodes_stand_still_lose_nothing() {
    play(
        "clients_that_move_while_nodes_stand_still_lose_nothing",
        Plan::PAUSED_ROAMING,
        &[
            (RoutingMode::Mesh, &[9232]),
            (RoutingMode::Tree, &[474, 200_110]),
            (RoutingMode::Flood, &[11]),
            (RoutingMode::Topic, &[45, 285]),
        ],
    );
}

#[test]
fn with_a_majority_clients_that_move_while_nodes_stand_still_lose_nothing() {
    play(
        "with_a_majority_clients_that_move_while_nodes_stand_still_lose_nothing",
        Plan::PAUSED_MAJORITY_ROAMING,
        &[
            (RoutingMode::Mesh, &[9140]),
            (RoutingMode::Tree, &[54, 218]),
            (RoutingMode::Topic, &[65, 181]),
            (RoutingMode::Flood, &[2091]),
        ],
    );
}

#[test]
fn clients_that_move_while_links_carry_one_direction_lose_nothing() {
    play(
        "clients_that_move_while_links_carry_one_direction_lose_nothing",
        Plan::ONE_WAY_ROAMING,
        &[],
    );
}

#[test]
fn clients_that_move_while_packets_vanish_lose_nothing() {
    play(
        "clients_that_move_while_packets_vanish_lose_nothing",
        Plan::UNNOTICED_FAILURE_ROAMING,
        &[],
    );
}

#[test]
fn one_way_links_lose_nothing() {
    play(
        "one_way_links_lose_nothing",
        Plan::ONE_WAY,
        &[
            (RoutingMode::Mesh, &[8]),
            (RoutingMode::Topic, &[7025]),
            (RoutingMode::Flood, &[7]),
        ],
    );
}

#[test]
fn nodes_whose_packets_vanish_lose_nothing() {
    play(
        "nodes_whose_packets_vanish_lose_nothing",
        Plan::UNNOTICED_FAILURE,
        &[
            (RoutingMode::Mesh, &[4, 20]),
            (RoutingMode::Topic, &[7049]),
            (RoutingMode::Tree, &[14]),
            (RoutingMode::Flood, &[51, 7051, 15]),
        ],
    );
}

#[test]
fn nodes_that_are_suspended_with_their_clocks_lose_nothing() {
    play(
        "nodes_that_are_suspended_with_their_clocks_lose_nothing",
        Plan::FROZEN,
        &[(RoutingMode::Mesh, &[4, 8]), (RoutingMode::Flood, &[83])],
    );
}

#[test]
fn nodes_whose_disks_stall_or_fail_lose_nothing() {
    play(
        "nodes_whose_disks_stall_or_fail_lose_nothing",
        Plan::STALLED,
        &[
            (RoutingMode::Flood, &[200_051, 200_083]),
            (RoutingMode::Mesh, &[8]),
        ],
    );
}

#[test]
fn a_cluster_with_one_slow_node_loses_nothing() {
    play(
        "a_cluster_with_one_slow_node_loses_nothing",
        Plan::SLOW,
        &[(RoutingMode::Flood, &[7])],
    );
}

#[test]
fn nodes_that_are_short_of_memory_lose_nothing_that_they_acknowledged() {
    play(
        "nodes_that_are_short_of_memory_lose_nothing_that_they_acknowledged",
        Plan::SHORT_OF_MEMORY,
        &[],
    );
}

#[test]
fn clients_whose_rights_end_lose_nothing() {
    play(
        "clients_whose_rights_end_lose_nothing",
        Plan::RIGHTS_END,
        &[(RoutingMode::Flood, &[1027])],
    );
}

#[test]
fn clients_whose_tokens_expire_are_not_served_and_lose_nothing() {
    play(
        "clients_whose_tokens_expire_are_not_served_and_lose_nothing",
        Plan::TOKENS_EXPIRE,
        &[],
    );
}

#[test]
fn clients_that_move_and_whose_tokens_expire_are_not_served_and_lose_nothing() {
    play(
        "clients_that_move_and_whose_tokens_expire_are_not_served_and_lose_nothing",
        Plan::TOKENS_EXPIRE_AND_MOVING,
        &[],
    );
}

#[test]
fn clients_that_roam_and_whose_tokens_expire_are_not_served_and_lose_nothing() {
    play(
        "clients_that_roam_and_whose_tokens_expire_are_not_served_and_lose_nothing",
        Plan::TOKENS_EXPIRE_ROAMING,
        &[],
    );
}

#[test]
fn clients_that_only_publish_lose_nothing_when_nodes_die() {
    play(
        "clients_that_only_publish_lose_nothing_when_nodes_die",
        Plan::PUBLISHING_AND_DYING,
        &[],
    );
}

#[test]
fn with_a_majority_clients_that_only_publish_lose_nothing() {
    play(
        "with_a_majority_clients_that_only_publish_lose_nothing",
        Plan::PUBLISHING_MAJORITY,
        &[],
    );
}

#[test]
fn clients_that_only_publish_lose_nothing_when_nodes_stand_still() {
    play(
        "clients_that_only_publish_lose_nothing_when_nodes_stand_still",
        Plan::PUBLISHING_AND_PAUSED,
        &[],
    );
}

#[test]
fn nodes_whose_queues_are_full_lose_nothing_that_they_acknowledged() {
    play(
        "nodes_whose_queues_are_full_lose_nothing_that_they_acknowledged",
        Plan::FULL_QUEUES,
        &[
            (RoutingMode::Mesh, &[156]),
            (RoutingMode::Topic, &[85]),
            (RoutingMode::Tree, &[14, 118, 10, 34, 70, 200_002]),
            (RoutingMode::Flood, &[243, 3]),
        ],
    );
}

#[test]
fn clients_that_are_sent_to_other_nodes_lose_nothing() {
    play(
        "clients_that_are_sent_to_other_nodes_lose_nothing",
        Plan::REDIRECTED,
        &[],
    );
}

#[test]
fn clients_that_are_sent_to_other_nodes_while_nodes_die_lose_nothing() {
    play(
        "clients_that_are_sent_to_other_nodes_while_nodes_die_lose_nothing",
        Plan::REDIRECTED_AND_DYING,
        &[(RoutingMode::Tree, &[86])],
    );
}

#[test]
fn clients_that_the_rebalancer_has_moved_lose_nothing() {
    play(
        "clients_that_the_rebalancer_has_moved_lose_nothing",
        Plan::MOVING,
        &[],
    );
}

#[test]
fn clients_that_the_rebalancer_has_moved_while_nodes_die_lose_nothing() {
    play(
        "clients_that_the_rebalancer_has_moved_while_nodes_die_lose_nothing",
        Plan::MOVING_AND_DYING,
        &[],
    );
}

#[test]
fn clients_that_are_placed_anew_while_nodes_die_lose_nothing() {
    play(
        "clients_that_are_placed_anew_while_nodes_die_lose_nothing",
        Plan::PLACED_AND_DYING,
        &[(RoutingMode::Topic, &[697])],
    );
}

#[test]
fn clients_that_the_rebalancer_moves_in_a_partition_lose_nothing() {
    play(
        "clients_that_the_rebalancer_moves_in_a_partition_lose_nothing",
        Plan::MOVING_AND_PARTITIONED,
        &[
            (RoutingMode::Mesh, &[201_020]),
            (RoutingMode::Flood, &[295]),
            (RoutingMode::Topic, &[165]),
        ],
    );
}

/// Three branches and more of one session: see `worker/state/divergence`. Each of these lost a message or gave one twice.
#[test]
fn branches_of_branches_lose_nothing_in_runs_that_once_failed() {
    use RoutingMode::{Flood, Mesh, Topic, Tree};
    let name = "branches_of_branches_lose_nothing_in_runs_that_once_failed";
    let two_backups = [
        (Tree, 200_002),
        (Flood, 200_005),
        (Mesh, 200_006),
        (Mesh, 200_009),
        (Topic, 210_005),
        (Mesh, 210_008),
    ];
    play_runs(name, Plan::OVERLAPPING.chained(), two_backups.to_vec());
    let majority = [
        (Topic, 200_001),
        (Tree, 200_000),
        (Flood, 200_009),
        (Tree, 200_015),
        (Topic, 210_002),
    ];
    play_runs(
        name,
        Plan::OVERLAPPING_MAJORITY.chained(),
        majority.to_vec(),
    );
    let paused = [(Mesh, 300_003)];
    play_runs(
        name,
        Plan::PAUSED_AND_PARTITIONED.chained(),
        paused.to_vec(),
    );
}

/// A node that stood still closes its links in the round in which other connections are accepted.
#[test]
fn a_node_that_stood_still_is_linked_again_in_a_run_that_once_failed() {
    play_runs(
        "a_node_that_stood_still_is_linked_again_in_a_run_that_once_failed",
        Plan::OVERLAPPING.chained(),
        vec![(RoutingMode::Tree, 200_006)],
    );
}

#[test]
fn faults_that_overlap_lose_nothing_with_two_backups() {
    play(
        "faults_that_overlap_lose_nothing_with_two_backups",
        Plan::OVERLAPPING,
        &[
            (RoutingMode::Tree, &[230, 100_122]),
            (RoutingMode::Topic, &[57, 93]),
            (RoutingMode::Mesh, &[204]),
            (RoutingMode::Flood, &[243, 100_231]),
        ],
    );
}

#[test]
#[ignore = "more than is promised: docs/design/limits.md"]
fn faults_that_follow_before_sessions_are_covered_lose_nothing() {
    play(
        "faults_that_follow_before_sessions_are_covered_lose_nothing",
        Plan::OVERLAPPING.chained(),
        &[],
    );
}

#[test]
fn a_node_that_stands_still_while_another_one_is_partitioned_loses_nothing() {
    play(
        "a_node_that_stands_still_while_another_one_is_partitioned_loses_nothing",
        Plan::PAUSED_AND_PARTITIONED,
        &[],
    );
}

#[test]
fn with_a_majority_faults_that_overlap_lose_nothing() {
    play(
        "with_a_majority_faults_that_overlap_lose_nothing",
        Plan::OVERLAPPING_MAJORITY,
        &[
            (RoutingMode::Mesh, &[220, 240]),
            (RoutingMode::Flood, &[319, 100_259]),
        ],
    );
}

#[test]
fn nodes_that_are_drained_while_others_stand_still_lose_nothing() {
    play(
        "nodes_that_are_drained_while_others_stand_still_lose_nothing",
        Plan::DRAINED,
        &[
            (RoutingMode::Mesh, &[88, 228]),
            (RoutingMode::Flood, &[7]),
            (RoutingMode::Topic, &[169, 181, 297]),
        ],
    );
}

#[test]
fn with_a_majority_nodes_that_are_drained_while_others_stand_still_lose_nothing() {
    play(
        "with_a_majority_nodes_that_are_drained_while_others_stand_still_lose_nothing",
        Plan::DRAINED_MAJORITY,
        &[
            (RoutingMode::Topic, &[229]),
            (RoutingMode::Flood, &[7]),
            (RoutingMode::Tree, &[138]),
        ],
    );
}

#[test]
fn nodes_that_are_drained_while_others_die_lose_nothing_with_two_backups() {
    play(
        "nodes_that_are_drained_while_others_die_lose_nothing_with_two_backups",
        Plan::DRAINED_AND_DYING,
        &[(RoutingMode::Flood, &[79, 255])],
    );
}
