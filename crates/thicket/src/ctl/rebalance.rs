//! `thicket ctl rebalance`: which clients should be at other nodes, and what that gains.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use thicket_bench::report::render;
use thicket_broker::api::NodeEntry;
use thicket_broker::api::redirection::{RebalancePlan, RebalanceReport, RebalanceRequest};

use crate::api::Api;

/// Arguments of `thicket ctl rebalance`.
#[derive(Debug, Clone, clap::Args)]
pub struct Rebalance {
    /// Only plan: move no client
    #[arg(long)]
    dry_run: bool,
    /// Print the last plan and what the rebalancer is doing; plan nothing
    #[arg(long, conflicts_with = "dry_run")]
    show: bool,
}

/// Moves that a table has.
const SHOWN: usize = 50;

pub fn run(api: &Api, arguments: &Rebalance, json: bool) -> anyhow::Result<()> {
    let report: RebalanceReport = if arguments.show {
        api.ask("/v1/rebalance")?
    } else {
        let dry_run = arguments.dry_run;
        api.post("/v1/rebalance", &RebalanceRequest { dry_run })?
    };
    let text = if json {
        format!("{}\n", serde_json::to_string(&report)?)
    } else {
        let nodes: Vec<NodeEntry> = api.ask("/v1/nodes")?;
        show(&report, &nodes, now_ms())
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

fn show(report: &RebalanceReport, nodes: &[NodeEntry], now_ms: u64) -> String {
    let name = |id: &str| {
        let known = nodes.iter().find(|node| node.id == id);
        known.map_or_else(|| id.to_owned(), |node| node.name.clone())
    };
    let mut text = format!(
        "rebalancer: {}, {}; rebalance = \"{}\"\n",
        name(&report.rebalancer),
        report.state,
        report.mode
    );
    if let Some(desired) = report.desired_nodes {
        text += &format!("nodes that the load needs: {desired}\n");
    }
    if let Some(cheapest) = &report.cheapest_to_empty {
        text += &format!("cheapest to empty: {}\n", name(cheapest));
    }
    match &report.plan {
        None => text += "no plan yet\n",
        Some(plan) => {
            text += &summary(plan, now_ms);
            let row = |step: &thicket_broker::api::redirection::MoveEntry| {
                vec![
                    step.client_id.clone(),
                    name(&step.from),
                    name(&step.to),
                    step.reason.clone(),
                    format!("{:.1}", step.saves_messages_per_s),
                ]
            };
            let rows: Vec<_> = plan.moves.iter().take(SHOWN).map(row).collect();
            if !rows.is_empty() {
                text += &render(&["CLIENT", "FROM", "TO", "REASON", "SAVES MSG/S"], &rows);
            }
            if plan.move_count > SHOWN {
                text += &format!("and {} more\n", plan.move_count - SHOWN);
            }
        }
    }
    text
}

fn summary(plan: &RebalancePlan, now_ms: u64) -> String {
    let done = if plan.carried_out {
        format!("{} ordered so far", plan.ordered)
    } else {
        "nobody is moved".to_owned()
    };
    format!(
        "planned {} s ago ({}): {} of {} clients should move ({} could), {done}\n\
         between nodes: {:.1} -> {:.1} msg/s; Jain of load: {:.3} -> {:.3}; busiest node: {:.2} -> {:.2} of the mean\n",
        now_ms.saturating_sub(plan.at_ms) / 1000,
        plan.trigger,
        plan.move_count,
        plan.clients,
        plan.movable,
        plan.before.internal_messages_per_s,
        plan.after.internal_messages_per_s,
        plan.before.jain,
        plan.after.jain,
        plan.before.peak,
        plan.after.peak,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use thicket_broker::api::redirection::{BalanceEntry, MoveEntry};

    #[test]
    fn a_plan_is_shown_with_what_it_gains() {
        let balance = |internal_messages_per_s, jain| BalanceEntry {
            internal_messages_per_s,
            jain,
            peak: 1.5,
        };
        let report = RebalanceReport {
            rebalancer: "1b".into(),
            mode: "suggest".into(),
            state: "idle".into(),
            plan: Some(RebalancePlan {
                at_ms: 1_000,
                trigger: "asked".into(),
                clients: 10,
                movable: 9,
                before: balance(100.0, 0.75),
                after: balance(20.0, 0.99),
                carried_out: false,
                move_count: 1,
                ordered: 0,
                moves: vec![MoveEntry {
                    client_id: "sensor-7".into(),
                    from: "1b".into(),
                    to: "2c".into(),
                    reason: "topics".into(),
                    saves_messages_per_s: 80.0,
                }],
            }),
            desired_nodes: Some(2),
            cheapest_to_empty: Some("3d".into()),
        };
        let text = show(&report, &[], 4_000);
        for part in [
            "rebalancer: 1b, idle; rebalance = \"suggest\"",
            "nodes that the load needs: 2\ncheapest to empty: 3d\n",
            "planned 3 s ago (asked): 1 of 10 clients should move (9 could), nobody is moved",
            "between nodes: 100.0 -> 20.0 msg/s; Jain of load: 0.750 -> 0.990",
            "sensor-7",
            "80.0",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
