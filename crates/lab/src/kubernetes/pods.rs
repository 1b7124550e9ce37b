//! Brokers as pods, the load as a job.

use serde_json::{Value, json};

use super::place::{PORT, Place, plain};
use crate::driver::{Peer, fill};
use crate::error::LabError;
use crate::scenario::Layers;
use crate::topology::Topology;

/// The folder of a broker's files.
const FOLDER: &str = "/lab";
/// Name of the job, of the label of its pod, and of the container that puts the load on the brokers.
pub const LOAD: &str = "load";
/// Name of the container that keeps the results.
pub const KEEP: &str = "keep";
/// Its image.
const KEEPER: &str = "busybox:1.36";
/// The folder of results in the load's pod.
pub const RESULTS: &str = "/results/run";
/// The file that says that they are collected.
pub const COLLECTED: &str = "/results/collected";
/// Waits for that file, a day at most.
const KEEP_UNTIL_COLLECTED: &str =
    "for second in $(seq 86400); do [ -e /results/collected ] && exit 0; sleep 1; done; exit 1";

/// Namespace, service and pods of the brokers.
pub fn brokers(place: &Place<'_>) -> Result<Vec<Value>, LabError> {
    let mut items = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": place.name } }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "brokers", "namespace": place.name },
            "spec": {
                "clusterIP": "None",
                // Brokers look each other up before they are ready.
                "publishNotReadyAddresses": true,
                "selector": { "app": "broker" },
                "ports": [{ "name": "mqtt", "port": PORT }]
            }
        }),
    ];
    let peers: Vec<Peer> = (0..place.brokers())
        .map(|site| Peer {
            site: place.topology.sites[site].clone(),
            index: site + 1,
            address: format!("{}.brokers", place.pod(site)),
        })
        .collect();
    for site in 0..peers.len() {
        items.extend(broker(place, &peers, site)?);
    }
    Ok(items)
}

fn broker(place: &Place<'_>, peers: &[Peer], site: usize) -> Result<Vec<Value>, LabError> {
    let driver = &place.driver;
    let Some(container) = &driver.kubernetes else {
        return Err(LabError::Machine("there is no container".to_owned()));
    };
    let (name, folder, program) = (place.pod(site), FOLDER.as_ref(), container.program.as_ref());
    let places = driver.places(place.system, program, program, &peers[site], peers, folder);
    let children = children(&place.topology, site, peers);
    let files = driver.texts(&places, &children, peers, Layers::default());
    let start = if container.start.is_empty() {
        &driver.start
    } else {
        &container.start
    };
    let words = start.iter().chain(&place.system.args);
    let command: Vec<String> = words.map(|word| fill(word, &places)).collect();
    let env: Vec<Value> = driver
        .env
        .iter()
        .map(|(key, value)| json!({ "name": key, "value": fill(value, &places) }))
        .collect();
    let limits = &place.scenario.brokers;
    let mut resources = serde_json::Map::new();
    if let Some(cpus) = limits.cpus {
        let milli = format!("{:.0}m", 1000.0 * cpus.value());
        resources.insert("cpu".to_owned(), milli.into());
    }
    if let Some(mib) = limits.memory_mib {
        resources.insert("memory".to_owned(), format!("{mib}Mi").into());
    }
    let ready = match &container.ready {
        Some(page) => {
            json!({ "httpGet": { "path": page.path, "port": page.port }, "periodSeconds": 1 })
        }
        None => json!({ "tcpSocket": { "port": PORT }, "periodSeconds": 1 }),
    };
    let mut mounts = vec![json!({ "name": "folder", "mountPath": FOLDER })];
    let mut volumes = vec![json!({ "name": "folder", "emptyDir": {} })];
    let mut items = Vec::new();
    if !files.is_empty() {
        let mut data = serde_json::Map::new();
        for (number, (path, text, _)) in files.iter().enumerate() {
            // Keys of a ConfigMap may use only few characters.
            data.insert(format!("file-{number}"), text.clone().into());
            mounts.push(json!({
                "name": "files", "mountPath": format!("{FOLDER}/{path}"), "subPath": format!("file-{number}")
            }));
        }
        let modes: Vec<Value> = (files.iter().enumerate())
            .map(|(number, (_, _, mode))| {
                json!({ "key": format!("file-{number}"), "path": format!("file-{number}"), "mode": mode.unwrap_or(0o644) })
            })
            .collect();
        volumes.push(json!({ "name": "files", "configMap": { "name": name, "items": modes } }));
        items.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": place.name }, "data": data
        }));
    }
    items.push(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": place.name,
            "labels": { "app": "broker", "site": plain(&place.topology.sites[site]) }
        },
        "spec": {
            "hostname": name, "subdomain": "brokers", "restartPolicy": "Always",
            "containers": [{
                "name": "broker", "image": place.image, "command": command, "env": env, "workingDir": FOLDER,
                "ports": [{ "containerPort": PORT }],
                "resources": { "limits": resources },
                "readinessProbe": ready,
                "volumeMounts": mounts
            }],
            "volumes": volumes
        }
    }));
    Ok(items)
}

fn children(topology: &Topology, site: usize, peers: &[Peer]) -> Vec<Peer> {
    let links = topology.children(0, site).into_iter();
    links
        .filter_map(|link| peers.get(topology.other_end(link, site)).cloned())
        .collect()
}

/// The scenario and the job that runs it once. A second container keeps the results until [`super::collect`] has them, and ends the job then.
pub fn load(place: &Place<'_>) -> Vec<Value> {
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "scenario", "namespace": place.name },
        "data": { "scenario.toml": place.text }
    });
    let results = json!({ "name": "results", "mountPath": "/results" });
    let pod = json!({
        "metadata": { "labels": { "app": LOAD } },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": LOAD, "image": place.load_image,
                    "command": ["thicket", "lab", "run", "/scenario/scenario.toml", "--out", RESULTS],
                    "volumeMounts": [{ "name": "scenario", "mountPath": "/scenario" }, results]
                },
                { "name": KEEP, "image": KEEPER, "command": ["sh", "-c", KEEP_UNTIL_COLLECTED], "volumeMounts": [results] }
            ],
            "volumes": [
                { "name": "scenario", "configMap": { "name": "scenario" } },
                { "name": "results", "emptyDir": {} }
            ]
        }
    });
    // A second attempt would be another experiment: the brokers are not those of the first any more.
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": LOAD, "namespace": place.name, "labels": { "app": LOAD } },
        "spec": { "backoffLimit": 0, "template": pod }
    });
    vec![config, job]
}
