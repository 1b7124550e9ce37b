//! Brings the results of an export's jobs into one folder.

use std::path::Path;
use std::process::{Command, Stdio};

use super::pods::{COLLECTED, KEEP, RESULTS};
use super::{INDEX, Index};
use crate::command;
use crate::error::LabError;
use crate::results::Results;

/// Collects with `kubectl`; returns the results. A load that has not ended is an error.
pub fn collect(exported: &Path, out: &Path, say: &dyn Fn(&str)) -> Result<Results, LabError> {
    let path = exported.join(INDEX);
    let text = std::fs::read_to_string(&path).map_err(LabError::io(path.display()))?;
    let index: Index = serde_json::from_str(&text)
        .map_err(|error| LabError::Unlike(format!("{}: {error}", path.display())))?;
    if command::find("kubectl").is_none() {
        return Err(LabError::Machine("kubectl is missing".to_owned()));
    }
    let mut all: Option<Results> = None;
    for part in &index.parts {
        let pod = ended_pod(&part.name)?;
        let folder = out.join("parts").join(&part.name);
        std::fs::create_dir_all(&folder).map_err(LabError::io(folder.display()))?;
        copy(&part.name, &pod, &folder)?;
        let results = Results::load(&folder)?;
        let inside = ["-n", &part.name, "exec", &pod, "-c", KEEP, "--"];
        command::run("kubectl", &[&inside[..], &["touch", COLLECTED]].concat())?;
        say(&format!("{}: collected", part.name));
        let mut moved = move_samples(&part.name, results, &folder, out)?;
        for run in &mut moved.runs {
            run.parameters.splice(0..0, part.parameters.clone());
        }
        all = Some(match all {
            None => Results {
                scenario: index.scenario.clone(),
                ..moved
            },
            Some(known) => join(known, moved),
        });
    }
    let all = all.ok_or_else(|| LabError::Unlike("nothing was exported".to_owned()))?;
    all.save(out)?;
    Ok(all)
}

/// The pod of a namespace's job, whose load has ended.
fn ended_pod(namespace: &str) -> Result<String, LabError> {
    const EACH: &str = "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[?(@.name==\"load\")].state.terminated.exitCode}{\"\\n\"}{end}";
    let select = ["get", "pod", "-l", "job-name=load", "-o", EACH];
    let pods = command::run("kubectl", &[&["-n", namespace][..], &select].concat())?;
    let wait = |why: &str| LabError::NotReady(format!("{namespace}: its load {why}"));
    let line = pods.lines().next().unwrap_or_default();
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (Some(pod), Some(_exit_code)) => Ok(pod.to_owned()),
        (Some(_), None) => Err(wait("still runs")),
        (None, _) => Err(wait("was not started")),
    }
}

/// Copies the folder of results from the pod, as an archive.
fn copy(namespace: &str, pod: &str, folder: &Path) -> Result<(), LabError> {
    let mut source = Command::new("kubectl")
        .args(["-n", namespace, "exec", pod, "-c", KEEP, "--"])
        .args(["tar", "-c", "-C", RESULTS, "."])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(LabError::io("kubectl"))?;
    let archive = source.stdout.take().map_or(Stdio::null(), Stdio::from);
    let unpacked = Command::new("tar")
        .args(["-x", "-C"])
        .arg(folder)
        .stdin(archive)
        .status()
        .map_err(LabError::io("tar"))?;
    let sent = source.wait().map_err(LabError::io("kubectl"))?;
    if unpacked.success() && sent.success() {
        return Ok(());
    }
    Err(LabError::NotReady(format!(
        "{namespace}: its results could not be copied"
    )))
}

/// Moves samples to the common folder, under names that no other part has.
fn move_samples(
    part: &str,
    mut results: Results,
    folder: &Path,
    out: &Path,
) -> Result<Results, LabError> {
    let samples = out.join("samples");
    std::fs::create_dir_all(&samples).map_err(LabError::io(samples.display()))?;
    for run in &mut results.runs {
        let files = [
            &mut run.samples,
            &mut run.acknowledgements,
            &mut run.time_line,
            &mut run.time_line_data,
        ];
        for file in files.into_iter().flatten() {
            let from = folder.join(&*file);
            let name = file.trim_start_matches("samples/").to_owned();
            *file = format!("samples/{part}-{name}");
            std::fs::rename(&from, out.join(&*file)).map_err(LabError::io(from.display()))?;
        }
    }
    Ok(results)
}

/// Joins runs of two parts into one experiment.
fn join(mut known: Results, other: Results) -> Results {
    known.valid &= other.valid;
    known.ended_early = known.ended_early.or(other.ended_early);
    known.environment.brokers.extend(other.environment.brokers);
    known.runs.extend(other.runs);
    known
}
