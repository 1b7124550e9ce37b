//! A scenario for a Kubernetes cluster with Chaos Mesh: brokers as pods, the load as a job, links and faults as Chaos Mesh resources.
//!
//! The job runs the same scenario with the driver `external`, so results have the same form. Each system and each network of a sweep is a
//! folder with a namespace of its own; [`collect`] brings their results into one.

mod chaos;
pub mod collect;
mod place;
mod pods;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::place::{PORT, Place, plain};
use crate::driver::{Brokers, Driver};
use crate::error::LabError;
use crate::scenario::{Cell, Layers, Measure, Scenario, System};
use crate::topology::Topology;

/// Name of the file that describes the export.
pub const INDEX: &str = "lab.json";
/// One folder of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its folder, and name of the namespace.
    pub name: String,
    /// The system.
    pub system: String,
    /// The parameters that vary between parts, with their values here.
    pub parameters: Vec<(String, String)>,
}

/// The contents of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Text of the scenario.
    pub scenario: String,
    /// Its folders.
    pub parts: Vec<Part>,
}

/// Writes manifests into a folder. `images` has the images of drivers by name, and that of the load as `thicket`.
pub fn export(
    text: &str,
    scenario: &Scenario,
    cells: &[Cell],
    images: &BTreeMap<String, String>,
    folder: &Path,
) -> Result<Index, LabError> {
    let needs_own_brokers = match scenario.measure {
        Measure::Crash { .. } => Some("measure.kind crash: describe the death as a fault"),
        Measure::Arrivals { .. } => Some("measure.kind arrivals"),
        Measure::Placement => Some("measure.kind placement"),
        Measure::Load
        | Measure::Throughput { .. }
        | Measure::Connections { .. }
        | Measure::MostConnections { .. } => None,
    };
    let layers = cells.iter().map(|cell| cell.scenario.workload.layers());
    let has_layers = layers.fold(Layers::default(), Layers::or) != Layers::default();
    let needs_listeners = has_layers.then_some("workload.tls or websocket");
    if let Some(what) = needs_own_brokers.or(needs_listeners) {
        return Err(LabError::Misuse(format!(
            "{what} needs brokers that the lab itself starts"
        )));
    }
    let is_left_behind = |key: &&String| key.starts_with("fault.") || key.starts_with("system.");
    let swept = scenario.sweeps.iter();
    let mut swept = swept.flat_map(|sweep| std::iter::once(&sweep.key).chain(sweep.with.keys()));
    if let Some(key) = swept.find(is_left_behind) {
        return Err(LabError::Misuse(format!(
            "sweep of {key}: an export varies the network, the brokers' limits and the load only"
        )));
    }
    let Some(load_image) = images.get("thicket") else {
        return Err(LabError::Misuse(
            "--image thicket=IMAGE is missing: the load runs in it".to_owned(),
        ));
    };
    let (mut parts, mut files) = (Vec::new(), Vec::new());
    for (number, cells) in networks(cells).into_iter().enumerate() {
        for system in &scenario.systems {
            let driver = Driver::load(system)?;
            let refuse = |reason: &str| LabError::Driver {
                driver: system.driver.clone(),
                reason: reason.to_owned(),
            };
            let container = driver
                .kubernetes
                .as_ref()
                .ok_or_else(|| refuse("it has no [kubernetes], so it cannot be exported"))?;
            let image = images.get(&system.driver).or(container.image.as_ref());
            let image = image
                .ok_or_else(|| refuse("give its image: --image DRIVER=IMAGE"))?
                .clone();
            let own = &cells[0].scenario;
            let names = own.network.names().map_err(LabError::Machine)?;
            let place = Place {
                name: format!("thicket-{}-n{number}", plain(&system.name)),
                scenario: own,
                text: external(text, own, system, &names)?,
                topology: Topology::new(&own.network, &names, own.seed)
                    .map_err(LabError::Machine)?,
                system,
                image,
                driver,
                load_image,
            };
            files.extend(manifests(&place)?);
            parts.push(Part {
                name: place.name,
                system: system.name.clone(),
                parameters: (cells[0].parameters.iter())
                    .filter(|(key, _)| is_of_part(key))
                    .cloned()
                    .collect(),
            });
        }
    }
    // What is refused leaves nothing behind: nothing is written before all of it could be made.
    for (path, value) in &files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(LabError::io(parent.display()))?;
        }
        write(&path, value)?;
    }
    let index = Index {
        scenario: text.to_owned(),
        parts,
    };
    let json = serde_json::to_value(&index).unwrap_or_default();
    write(&folder.join(INDEX), &json)?;
    Ok(index)
}

/// The manifests of a part, by path below the folder of the export.
fn manifests(place: &Place<'_>) -> Result<Vec<(PathBuf, Value)>, LabError> {
    let folder = Path::new(&place.name);
    let mut files = vec![
        (folder.join("0-brokers.json"), list(pods::brokers(place)?)),
        (folder.join("1-links.json"), list(chaos::links(place)?)),
        (folder.join("2-load.json"), list(pods::load(place))),
    ];
    if let Some(workflow) = chaos::faults(place)? {
        files.push((folder.join("3-faults.json"), list(vec![workflow])));
    }
    Ok(files)
}

/// Cells by network: cells that differ only in load are one part, whose load runs all of them.
fn networks(cells: &[Cell]) -> Vec<Vec<&Cell>> {
    let mut groups: Vec<Vec<&Cell>> = Vec::new();
    for cell in cells {
        let same = |group: &&mut Vec<&Cell>| {
            let other = &group[0].scenario;
            other.network == cell.scenario.network && other.brokers == cell.scenario.brokers
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups
}

/// The scenario as the load pod runs it: brokers are external, links and faults are those of Chaos Mesh.
fn external(
    text: &str,
    own: &Scenario,
    system: &System,
    names: &[String],
) -> Result<String, LabError> {
    let bad = |error: String| LabError::Machine(format!("the scenario: {error}"));
    let mut table: toml::Table = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
    table.remove("fault");
    let network = toml::Table::try_from(&own.network).map_err(|error| bad(error.to_string()))?;
    table.insert("network".to_owned(), network.into());
    let sites = match Driver::load(system)?.brokers {
        Brokers::FirstSite => vec![&names[0]; names.len()],
        Brokers::EverySite | Brokers::Separate | Brokers::External => names.iter().collect(),
    };
    let address = |site: &&String| format!("broker-{}.brokers:{PORT}", plain(site)).into();
    let mut external = toml::Table::new();
    external.insert("name".to_owned(), system.name.clone().into());
    external.insert("driver".to_owned(), "external".into());
    let addresses: Vec<toml::Value> = sites.iter().map(address).collect();
    external.insert("addresses".to_owned(), addresses.into());
    table.insert(
        "system".to_owned(),
        vec![toml::Value::Table(external)].into(),
    );
    // Sweeps over the network become separate parts.
    if let Some(toml::Value::Array(sweeps)) = table.get_mut("sweep") {
        let is_load = |sweep: &toml::Value| {
            let key = sweep.get("key").and_then(toml::Value::as_str);
            !key.is_some_and(is_of_part)
        };
        sweeps.retain(is_load);
    }
    let text = toml::to_string(&table).map_err(|error| bad(error.to_string()))?;
    Scenario::parse(&text).map_err(bad)?;
    Ok(text)
}

/// Whether a swept key changes the network, and so makes another part.
fn is_of_part(key: &str) -> bool {
    key.starts_with("network.") || key.starts_with("brokers.")
}

fn list(items: Vec<Value>) -> Value {
    serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

fn write(path: &Path, value: &Value) -> Result<(), LabError> {
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    std::fs::write(path, text).map_err(LabError::io(path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = r#"
title = "t"
[network]
sites = 3
shape = "line"
link = { rtt_ms = 10, bandwidth_mbit = 10, loss_percent = 1 }
[brokers]
cpus = 1
memory_mib = 512
[[system]]
name = "Topic"
driver = "thicket"
settings = { routing = "topic" }
[[system]]
name = "tree"
driver = "mosquitto-tree"
[workload]
pattern = "fan-out"
rate_per_s = 10
messages = 50
[[sweep]]
key = "network.link.rtt_ms"
values = [10, 50]
[[sweep]]
key = "workload.qos"
values = [0, 1]
[[fault]]
at_s = 2
do = "cut"
link = ["s1", "s2"]
[[fault]]
at_s = 5
do = "heal"
"#;

    fn exported(text: &str) -> Result<(tempfile::TempDir, Index), LabError> {
        let folder = tempfile::tempdir().unwrap();
        let (scenario, cells) = Scenario::parse(text).unwrap();
        let images = BTreeMap::from([("thicket".to_owned(), "thicket:1".to_owned())]);
        match export(text, &scenario, &cells, &images, folder.path()) {
            Ok(index) => Ok((folder, index)),
            Err(error) => {
                let mut left = std::fs::read_dir(folder.path()).unwrap();
                assert!(left.next().is_none(), "something is left of: {error}");
                Err(error)
            }
        }
    }

    fn read(folder: &Path, name: &str) -> Value {
        serde_json::from_str(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap()
    }

    #[test]
    fn every_system_and_network_is_a_part_whose_load_runs_the_rest() {
        let (folder, index) = exported(TEXT).unwrap();
        let names: Vec<&str> = index.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "thicket-topic-n0",
                "thicket-tree-n0",
                "thicket-topic-n1",
                "thicket-tree-n1"
            ]
        );
        let load = read(folder.path(), "thicket-topic-n1/2-load.json");
        let text = load["items"][0]["data"]["scenario.toml"].as_str().unwrap();
        let (scenario, cells) = Scenario::parse(text).unwrap();
        assert_eq!(cells.len(), 2);
        assert_eq!(scenario.systems[0].addresses[2], "broker-s3.brokers:1883");
        let brokers = read(folder.path(), "thicket-topic-n0/0-brokers.json").to_string();
        assert!(brokers.contains("broker-s1.brokers:1883") && brokers.contains("\"512Mi\""));
        let probe = |part: &str| {
            let brokers = read(folder.path(), &format!("{part}/0-brokers.json"));
            let items = brokers["items"].as_array().unwrap();
            let pod = items.iter().find(|item| item["kind"] == "Pod").unwrap();
            pod["spec"]["containers"][0]["readinessProbe"].clone()
        };
        let ready = json!({ "path": "/ready", "port": 18831 });
        assert_eq!(probe("thicket-topic-n0")["httpGet"], ready);
        assert_eq!(probe("thicket-tree-n0")["tcpSocket"]["port"], 1883);
    }

    #[test]
    fn the_load_is_a_job_that_runs_once_and_ends_when_its_results_are_collected() {
        let (folder, _) = exported(TEXT).unwrap();
        let load = read(folder.path(), "thicket-topic-n0/2-load.json");
        let job = &load["items"][1];
        assert_eq!(job["kind"], "Job");
        assert_eq!(job["apiVersion"], "batch/v1");
        assert_eq!(job["spec"]["backoffLimit"], 0);
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
        let containers = pod["containers"].as_array().unwrap();
        let names: Vec<_> = containers.iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["load", "keep"]);
        let keep = containers[1]["command"][2].as_str().unwrap();
        assert!(keep.contains(&format!("[ -e {} ] && exit 0", pods::COLLECTED)));
    }

    #[test]
    fn a_pair_without_a_link_has_the_delay_and_loss_of_its_way() {
        let (folder, _) = exported(TEXT).unwrap();
        let links = read(folder.path(), "thicket-topic-n0/1-links.json");
        let items = links["items"].as_array().unwrap();
        assert_eq!(items.len(), 3);
        let spec = &items[1]["spec"];
        assert_eq!(spec["delay"]["latency"], "10000us");
        assert_eq!(spec["loss"]["loss"], "1.99");
        assert_eq!(spec["rate"]["rate"], "10000kbit");
    }

    #[test]
    fn a_uniform_delay_is_a_jitter_and_other_laws_are_refused() {
        let with = |delay: &str| {
            let text = TEXT.replace("rtt_ms = 10,", &format!("delay = {{ {delay} }},"));
            text.replace(
                "key = \"network.link.rtt_ms\"\nvalues = [10, 50]",
                "key = \"network.link.queue_packets\"\nvalues = [100]",
            )
            .replace("shape = \"line\"", "shape = \"full-mesh\"")
        };
        let (folder, _) = exported(&with("law = \"uniform\", min_ms = 5, max_ms = 15")).unwrap();
        let links = read(folder.path(), "thicket-topic-n0/1-links.json");
        let delay = &links["items"][0]["spec"]["delay"];
        assert_eq!(delay["latency"], "10000us");
        assert_eq!(delay["jitter"], "5000us");
        let uniform = with("law = \"uniform\", min_ms = 5, max_ms = 15");
        for (text, expected) in [
            (
                with("law = \"pareto\", min_ms = 5, shape = 2.5"),
                "between s1 and s2: a delay that is Pareto from 5 ms, shape 2.5 has no counterpart",
            ),
            (
                uniform.replace("full-mesh", "line"),
                "between s1 and s3: delays of several links",
            ),
        ] {
            let error = exported(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_cut_lasts_until_it_is_healed() {
        let (folder, _) = exported(TEXT).unwrap();
        let faults = read(folder.path(), "thicket-topic-n0/3-faults.json").to_string();
        assert!(faults.contains("\"deadline\":\"2000ms\""), "{faults}");
        assert!(faults.contains("\"deadline\":\"3000ms\""), "{faults}");
        assert!(faults.contains("\"action\":\"partition\""), "{faults}");
    }

    #[test]
    fn a_cut_separates_all_brokers_whose_path_has_the_link() {
        let sites = |selector: &Value| selector["expressionSelectors"][0]["values"].clone();
        let separated = |text: &str| -> Vec<(Value, Value)> {
            let (folder, _) = exported(text).unwrap();
            let faults = read(folder.path(), "thicket-topic-n0/3-faults.json");
            let templates = faults["items"][0]["spec"]["templates"].as_array().unwrap();
            let chaos = templates.iter().map(|template| &template["networkChaos"]);
            chaos
                .filter(|chaos| !chaos.is_null())
                .map(|chaos| {
                    (
                        sites(&chaos["selector"]),
                        sites(&chaos["target"]["selector"]),
                    )
                })
                .collect()
        };
        // A line: s1 reaches s3 over s2.
        assert_eq!(separated(TEXT), [(json!(["s1"]), json!(["s2", "s3"]))]);
        let mesh = TEXT.replace("shape = \"line\"", "shape = \"full-mesh\"");
        assert_eq!(separated(&mesh), [(json!(["s1"]), json!(["s2"]))]);
        // What s2 sends to s1, and what s3 sends over it.
        let one_way = TEXT.replace(
            "do = \"cut\"\nlink = [\"s1\", \"s2\"]",
            "do = \"cut\"\nlink = [\"s2\", \"s1\"]\none_way = true",
        );
        assert_eq!(separated(&one_way), [(json!(["s2", "s3"]), json!(["s1"]))]);
        // s1 and s3 are on one side, but their path leads through the other one.
        let partition = TEXT.replace(
            "do = \"cut\"\nlink = [\"s1\", \"s2\"]",
            "do = \"partition\"\nsites = [\"s1\", \"s3\"]",
        );
        assert_eq!(
            separated(&partition),
            [
                (json!(["s1"]), json!(["s2", "s3"])),
                (json!(["s2"]), json!(["s3"]))
            ]
        );
        let (folder, _) = exported(&partition).unwrap();
        let faults = read(folder.path(), "thicket-topic-n0/3-faults.json");
        let templates = faults["items"][0]["spec"]["templates"].as_array().unwrap();
        let both = templates.iter().find(|it| it["name"] == "fault-0").unwrap();
        assert_eq!(both["children"], json!(["fault-0-0", "fault-0-1"]));
    }

    #[test]
    fn a_sweep_over_systems_or_faults_cannot_be_exported() {
        let text = format!("{TEXT}[[sweep]]\nkey = \"fault.0.at_s\"\nvalues = [1, 2]\n");
        let error = exported(&text).unwrap_err().to_string();
        assert!(error.contains("sweep of fault.0.at_s"), "{error}");
    }

    #[test]
    fn what_has_no_counterpart_is_refused_by_name() {
        let pause = TEXT.replace(
            "do = \"cut\"\nlink = [\"s1\", \"s2\"]",
            "do = \"pause\"\nsite = \"s1\"",
        );
        let error = exported(&pause).unwrap_err().to_string();
        assert!(error.contains("pause"), "{error}");
        let error = exported(&TEXT.replace("mosquitto-tree", "vernemq")).unwrap_err();
        assert!(error.to_string().contains("kubernetes"), "{error}");
    }
}
