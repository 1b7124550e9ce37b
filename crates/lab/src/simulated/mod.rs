//! The back end in virtual time: the machines of Thicket in [`thicket_simulation`], without root, namespaces or clocks.
//!
//! It measures delay of idle links, bytes by phase and link, loss, duplicates, order, repair and convergence. Questions about CPU and memory stay
//! open, and the results list them. The same scenario and seed give the same figures on any machine.

mod death;
mod faults;
mod load;
mod network;
mod playable;
mod tally;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thicket_simulation::World;

pub use playable::Playable;

use crate::cluster::{Repair, repaired_max_s};
use crate::environment::environment;
use crate::error::LabError;
use crate::links::Backend;
use crate::results::{self, Results, Run};
use crate::run::{Options, UNFINISHED};
use crate::runs::{self, Files};
use crate::scenario::{Cell, Measure, System};
use faults::TimeLine;
use load::{Load, millis};
use network::{SimulatedLab, TIMEOUT_MS};

/// The name in results.
pub const NAME: &str = "simulated";
/// Time between two writes of the results so far.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// A warning for the reader of every run.
const GRAIN: &str = "virtual time has a grain of 1 ms; traffic counts 66 bytes of headers a segment and an acknowledgement for every two";

/// The figures in the line about a run, if they exist.
const SHOWN: [(&str, &str); 4] = [
    ("cluster_formed_s", "s to form"),
    ("delay_mean_ms", "ms"),
    ("lost_messages", "lost"),
    ("relinked_max_s", "s to link again"),
];

/// The result of a run, with its samples as CSV.
struct Played {
    run: Run,
    samples: Option<String>,
    acknowledgements: Option<String>,
}

impl Playable<'_> {
    /// Plays all of it in virtual time. `options.backend` is not used.
    pub fn run(&self, options: &Options<'_>) -> Result<Results, LabError> {
        let mut facts = environment(self.scenario, Some(Backend::Wire), options.commit);
        facts.backend = NAME.to_owned();
        facts.limits = "none: virtual time".to_owned();
        facts.congestion_control = "none: virtual time".to_owned();
        facts.oversubscribed = false;
        let results = |runs: &[Run], ended_early: Option<&str>| {
            let ended_early = ended_early.map(str::to_owned);
            let (facts, runs) = (facts.clone(), runs.to_vec());
            let mut results = Results::of(self.scenario, self.text, facts, runs, ended_early);
            results.left_out.clone_from(&self.left_out);
            results
        };
        let (mut runs, mut ended_early) = (Vec::new(), None);
        let mut saved = Instant::now();
        'all: for repeat in 1..=self.scenario.repeats {
            for (number, cell) in self.cells.iter().enumerate() {
                for system in &self.scenario.systems {
                    let mut in_cell = cell.scenario.systems.iter();
                    let in_cell = in_cell.find(|own| own.name == system.name);
                    let system = in_cell.unwrap_or(system);
                    let started = Instant::now();
                    let mut played = play((number, cell), system, repeat, options.interrupted);
                    played.run.valid = played.run.invalid.is_empty();
                    let is_over = options.interrupted.load(Ordering::Relaxed);
                    if is_over {
                        played.run.cut_short();
                    }
                    let files = Files {
                        samples: played.samples.as_deref(),
                        acknowledgements: played.acknowledgements.as_deref(),
                        ..Files::default()
                    };
                    played.run.keep(options.folder, number, files)?;
                    runs.push(played.run);
                    let total = runs::total(self.scenario, self.cells);
                    if is_over {
                        ended_early = Some(runs::interrupted(&runs, total));
                        break 'all;
                    }
                    let line = runs
                        .last()
                        .map_or(String::new(), |run: &Run| run.line(&SHOWN));
                    let took = started.elapsed().as_secs_f64();
                    (options.say)(&format!(
                        "[{}/{total}] {line} (computed in {took:.1} s)",
                        runs.len()
                    ));
                    // Runs may take milliseconds, and the file grows with each.
                    if saved.elapsed() > SAVE_EVERY {
                        results(&runs, Some(UNFINISHED)).save(options.folder)?;
                        saved = Instant::now();
                    }
                }
            }
        }
        let results = results(&runs, ended_early.as_deref());
        results.save(options.folder)?;
        Ok(results)
    }
}

/// One run. An error in it makes it invalid.
fn play(
    (number, cell): (usize, &Cell),
    system: &System,
    repeat: u64,
    interrupted: &Arc<AtomicBool>,
) -> Played {
    let mut played = Played {
        run: Run {
            warnings: vec![GRAIN.to_owned()],
            ..Run::begin(cell, system, repeat)
        },
        samples: None,
        acknowledgements: None,
    };
    if let Err(reason) = phases((number, cell), system, interrupted, &mut played) {
        played.run.invalid.push(reason);
    }
    let own = results::phases_metrics(&played.run.phases);
    played.run.metrics.extend(own);
    results::split_traffic(&mut played.run.metrics);
    played
}

fn phases(
    (number, cell): (usize, &Cell),
    system: &System,
    interrupted: &Arc<AtomicBool>,
    played: &mut Played,
) -> Result<(), String> {
    let (scenario, run) = (&cell.scenario, &mut played.run);
    let mut lab = SimulatedLab::new(scenario, system, run.repeat, interrupted)?;
    let formed = lab.world.run_until(TIMEOUT_MS, World::is_whole);
    formed.ok_or_else(|| format!("the nodes did not find each other in {TIMEOUT_MS} ms"))?;
    // The clock begins with the first start.
    let formed = lab.world.net.now - 1;
    let formed_bytes = lab.own_bytes();
    let nodes = lab.world.nodes.len() as f64;
    let mut put = |name: &str, value: f64| run.metrics.insert(name.to_owned(), value);
    put("cluster_formed_s", formed as f64 / 1e3);
    put("cluster_formed_bytes_per_node", formed_bytes as f64 / nodes);
    let times = &scenario.phases;
    lab.world.run_for(millis(times.settle_s.value()));
    lab.mark();
    let before = lab.own_bytes();
    lab.world.run_for(millis(times.control_s.value()));
    if times.control_s.value() > 0.0 {
        let own = (lab.own_bytes() - before) as f64;
        let each = own / nodes / times.control_s.value();
        put("control_own_bytes_per_node_per_s", each);
    }
    run.phases.push(lab.phase("control"));
    if let Some(converged_s) = lab.converged_max_s() {
        run.metrics
            .insert("converged_max_s".to_owned(), converged_s);
    }
    let repairs_before = lab.repairs();
    if let Measure::Crash { .. } = scenario.measure {
        let metrics = death::play(&mut lab, scenario)?;
        run.metrics.extend(metrics);
        note_repairs(run, &lab, &repairs_before);
        run.phases.push(lab.phase("publish"));
        return Ok(());
    }
    let asked_at = lab.world.net.now;
    let mut load = Load::connect(&mut lab, scenario, (number, run.repeat))?;
    let settled_after = load.now() - asked_at;
    let subscribed_s = settled_after as f64 / 1e3;
    run.metrics
        .insert("clients_in_service_s".to_owned(), subscribed_s);
    run.phases.push(load.settle(times.settle_s.value()));
    match scenario.measure {
        Measure::Load => {
            let mut line =
                TimeLine::new(&scenario.time_line(scenario.seed + run.repeat), load.now());
            let (phase, metrics) = load.publish(scenario, &mut line);
            run.phases.push(phase);
            run.metrics.extend(metrics);
            run.warnings.extend(line.missed(load.now()));
            for (name, all) in [
                ("join_s", &line.joined_s),
                ("relinked_max_s", &line.relinked_s),
            ] {
                if let Some(longest) = all.iter().copied().reduce(f64::max) {
                    run.metrics.insert(name.to_owned(), longest);
                }
            }
            let samples = &load.tally.samples;
            if !scenario.faults.is_empty()
                && let Some(silence_s) = results::longest_silence_s(samples)
            {
                run.metrics
                    .insert("longest_silence_s".to_owned(), silence_s);
            }
            played.samples = Some(results::samples_csv(samples));
            let acknowledged = &load.tally.acknowledged;
            played.acknowledgements =
                (!acknowledged.is_empty()).then(|| results::acknowledgements_csv(acknowledged));
            run.faults = line.done;
        }
        Measure::Connections { count, hold_s } => {
            run.metrics.insert("connections".to_owned(), count as f64);
            load.advance(load.now() + millis(hold_s.value()));
        }
        Measure::Throughput { .. }
        | Measure::MostConnections { .. }
        | Measure::Arrivals { .. }
        | Measure::Placement
        | Measure::Crash { .. } => {}
    }
    run.invalid.append(&mut load.problems);
    run.warnings.append(&mut load.warnings);
    note_repairs(run, &lab, &repairs_before);
    Ok(())
}

fn note_repairs(run: &mut Run, lab: &SimulatedLab, before: &[Option<Repair>]) {
    if let Some(repaired_s) = repaired_max_s(before, &lab.repairs()) {
        run.metrics.insert("repaired_max_s".to_owned(), repaired_s);
    }
}
