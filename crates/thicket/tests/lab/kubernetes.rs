//! Scenarios that run on a Kubernetes cluster.

use std::path::Path;

use thicket_lab::results::Results;

use super::{SCENARIO, lab};

/// What the lab asks of `kubectl`, answered from folders: a pod's results are in that of its namespace.
const KUBECTL: &str = r#"#!/bin/sh
namespace=$2
case "$3" in
get)
    if [ -e "$CLUSTER/$namespace-runs" ]; then echo "load-x "; else echo "load-x 0"; fi
    ;;
exec)
    [ "$4 $5 $6 $7" = "load-x -c keep --" ] || exit 1
    shift 7
    case "$1" in
    tar) exec tar -c -C "$CLUSTER/$namespace" . ;;
    touch) touch "$CLUSTER/$namespace-$(basename "$2")" ;;
    esac
    ;;
*) exit 1 ;;
esac
"#;

#[test]
fn results_of_jobs_are_brought_into_one_folder_once_all_have_ended() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = format!(
        "{}messages = 10\n",
        SCENARIO
            .replace("brokers =", "# brokers =")
            .replace("driver = \"thicket\" }", "driver = \"thicket\" }, { name = \"topic\", driver = \"thicket\", settings = { routing = \"topic\" } }")
    );
    let file = at("scenario.toml");
    std::fs::write(&file, text).unwrap();
    let words = |path: &Path| path.to_str().unwrap().to_owned();
    let (file, exported) = (words(&file), words(&at("exported")));
    let run = |arguments: &[&str]| {
        let path = format!("{}:{}", words(&at("bin")), std::env::var("PATH").unwrap());
        let mut command = lab(arguments);
        command.env("PATH", path).env("CLUSTER", at("cluster"));
        command.output().unwrap()
    };
    let image = ["--image", "thicket=thicket:1"];
    let export = [&["export", &file, "--kubernetes", &exported][..], &image].concat();
    assert!(run(&export).status.success());
    for system in ["mesh", "topic"] {
        let results = words(&at(&format!("cluster/thicket-{system}-n0")));
        let play = ["run", &file, "--backend", "simulated", "--only", system];
        let played = run(&[&play[..], &["--out", &results]].concat());
        assert!(played.status.success(), "{played:?}");
    }
    std::fs::create_dir(at("bin")).unwrap();
    std::fs::write(at("bin/kubectl"), KUBECTL).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(at("bin/kubectl"), executable).unwrap();
    let collect = |out: &str| run(&["collect", &exported, "--out", &words(&at(out))]);
    let runs = at("cluster/thicket-topic-n0-runs");
    std::fs::write(&runs, "").unwrap();
    let refused = collect("early");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        error.contains("thicket-topic-n0: its load still runs"),
        "{error}"
    );
    std::fs::remove_file(&runs).unwrap();
    let collected = collect("all");
    assert!(collected.status.success(), "{collected:?}");
    let results = Results::load(&at("all")).unwrap();
    let systems: Vec<&str> = results.runs.iter().map(|run| run.system.as_str()).collect();
    assert_eq!(systems, ["mesh", "topic"]);
    for run in &results.runs {
        assert_eq!(run.metrics["delivered_messages"], 60.0);
        let samples = std::fs::read_to_string(at("all").join(run.samples.as_ref().unwrap()));
        assert_eq!(samples.unwrap().lines().count(), 61);
        // The job may end now.
        assert!(at(&format!("cluster/thicket-{}-n0-collected", run.system)).exists());
    }
}
