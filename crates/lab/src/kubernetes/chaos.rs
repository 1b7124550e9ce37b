//! Links and faults as resources of Chaos Mesh.

use serde_json::{Map, Value, json};

use super::place::{Place, plain};
use crate::delay::Delay;
use crate::error::LabError;
use crate::scenario::{Action, Fault};
use crate::topology::{Cut, LinkShape};

/// The duration of a fault that is never repaired: longer than any run.
const FOR_EVER_S: f64 = 86_400.0;

/// The link between every pair of brokers: the sum of the delays on the path, its narrowest rate, the combined loss of its links.
pub fn links(place: &Place<'_>) -> Result<Vec<Value>, LabError> {
    let count = place.brokers();
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    pairs
        .filter_map(|(a, b)| {
            let path = place.topology.path(a, b)?;
            let shapes: Vec<&LinkShape> = path
                .iter()
                .map(|&link| &place.topology.links[link].shape)
                .collect();
            let (a, b) = (&place.topology.sites[a], &place.topology.sites[b]);
            let name = format!("link-{}-{}", plain(a), plain(b));
            let spec = match netem(&shapes) {
                Ok(spec) => spec,
                Err(reason) => {
                    return Some(Err(LabError::Misuse(format!(
                        "between {a} and {b}: {reason}"
                    ))));
                }
            };
            Some(Ok(json!({
                "apiVersion": "chaos-mesh.org/v1alpha1", "kind": "NetworkChaos",
                "metadata": { "name": name, "namespace": place.name },
                "spec": between(place, &[a], &[b], spec, "both")
            })))
        })
        .collect()
}

/// One action with all its parts: of two resources on the same pods, Chaos Mesh keeps only the later one.
fn netem(shapes: &[&LinkShape]) -> Result<Map<String, Value>, String> {
    let delay_ms: f64 = shapes.iter().map(|shape| shape.delay.mean_ms()).sum();
    let jitter_ms = jitter_ms(shapes)?;
    let passes: f64 = shapes
        .iter()
        .map(|shape| 1.0 - shape.loss_percent / 100.0)
        .product();
    let rate = shapes.iter().filter_map(|shape| shape.bandwidth_mbit);
    let mut spec = Map::new();
    spec.insert("action".to_owned(), "netem".into());
    let latency = format!("{:.0}us", 1000.0 * delay_ms);
    spec.insert(
        "delay".to_owned(),
        json!({ "latency": latency, "jitter": format!("{:.0}us", 1000.0 * jitter_ms), "correlation": "0" }),
    );
    let loss = (10_000.0 * (1.0 - passes)).round() / 100.0;
    if loss > 0.0 {
        spec.insert(
            "loss".to_owned(),
            json!({ "loss": format!("{loss}"), "correlation": "0" }),
        );
    }
    if let Some(mbit) = rate.reduce(f64::min) {
        let rate = format!("{:.0}kbit", 1000.0 * mbit);
        spec.insert("rate".to_owned(), json!({ "rate": rate }));
    }
    Ok(spec)
}

/// How far the delay of a path is from its mean at most: a jitter of Chaos Mesh is uniform around the latency, and so is that of one link here.
fn jitter_ms(shapes: &[&LinkShape]) -> Result<f64, String> {
    let varied = shapes.iter().map(|shape| shape.delay);
    let varied: Vec<Delay> = varied.filter(|delay| !delay.is_constant()).collect();
    match varied[..] {
        [] => Ok(0.0),
        [Delay::Uniform { min_ms, max_ms }] => Ok((max_ms - min_ms) / 2.0),
        [delay] => Err(format!(
            "a delay that is {} has no counterpart in Chaos Mesh, whose jitter is uniform",
            delay.describe().unwrap_or_default()
        )),
        _ => Err(
            "delays of several links on the path vary, and their sum has no counterpart in Chaos Mesh, whose jitter is uniform"
                .to_owned(),
        ),
    }
}

/// A specification between the brokers of some sites and those of others: `direction` is `both`, or `to` for what the first ones send.
fn between(
    place: &Place<'_>,
    a: &[&String],
    b: &[&String],
    spec: Map<String, Value>,
    direction: &str,
) -> Value {
    let of = |sites: &[&String]| {
        let names: Vec<String> = sites.iter().map(|site| plain(site)).collect();
        json!({
            "namespaces": [place.name],
            "labelSelectors": { "app": "broker" },
            "expressionSelectors": [{ "key": "site", "operator": "In", "values": names }]
        })
    };
    let mut whole = spec;
    whole.insert("mode".to_owned(), "all".into());
    whole.insert("selector".to_owned(), of(a));
    whole.insert("direction".to_owned(), direction.into());
    whole.insert(
        "target".to_owned(),
        json!({ "mode": "all", "selector": of(b) }),
    );
    whole.into()
}

/// The time line as a workflow that begins when it is applied; `None` without faults.
pub fn faults(place: &Place<'_>) -> Result<Option<Value>, LabError> {
    let mut templates = Vec::new();
    let mut lines = Vec::new();
    let line = place.scenario.time_line(place.scenario.seed);
    for (number, fault) in line.iter().enumerate() {
        let what = fault_templates(place, &line, fault, number)?;
        if what.is_empty() {
            continue;
        }
        let at_ms = 1000.0 * fault.at_s.value();
        templates.push(json!({
            "name": format!("wait-{number}"), "templateType": "Suspend", "deadline": format!("{at_ms:.0}ms")
        }));
        templates.extend(what);
        templates.push(json!({
            "name": format!("line-{number}"), "templateType": "Serial",
            "children": [format!("wait-{number}"), format!("fault-{number}")]
        }));
        lines.push(format!("line-{number}"));
    }
    if lines.is_empty() {
        return Ok(None);
    }
    templates.push(json!({ "name": "all", "templateType": "Parallel", "children": lines }));
    Ok(Some(json!({
        "apiVersion": "chaos-mesh.org/v1alpha1", "kind": "Workflow",
        "metadata": { "name": "faults", "namespace": place.name },
        "spec": { "entry": "all", "templates": templates }
    })))
}

/// The fault as the template `fault-NUMBER`, with those that it consists of; none if it ends an earlier one, or no brokers use the links it cuts.
fn fault_templates(
    place: &Place<'_>,
    line: &[Fault],
    fault: &Fault,
    number: usize,
) -> Result<Vec<Value>, LabError> {
    let refuse = || {
        LabError::Misuse(format!(
            "fault at {} s: {} has no counterpart in Chaos Mesh",
            fault.at_s.value(),
            fault.describe()
        ))
    };
    if fault.when_cpu_percent.is_some() {
        return Err(refuse());
    }
    let (kind, key, specs) = match fault.action {
        Action::Heal | Action::Restart => return Ok(Vec::new()),
        Action::Cut | Action::Partition => {
            let direction = if fault.one_way { "to" } else { "both" };
            let partition = |(sites, others): &(Vec<&String>, Vec<&String>)| {
                let mut spec = Map::new();
                spec.insert("action".to_owned(), "partition".into());
                between(place, sites, others, spec, direction)
            };
            let cuts = fault.cuts(&place.topology);
            let specs = separated(place, &cuts).iter().map(partition).collect();
            ("NetworkChaos", "networkChaos", specs)
        }
        Action::Kill | Action::PowerOff => {
            let site = plain(fault.site.as_deref().unwrap_or_default());
            let spec = json!({
                "action": "pod-failure", "mode": "all",
                "selector": { "namespaces": [place.name], "labelSelectors": { "app": "broker", "site": site } }
            });
            ("PodChaos", "podChaos", vec![spec])
        }
        Action::Pause
        | Action::Resume
        | Action::Join
        | Action::Drain
        | Action::Slow
        | Action::StallDisk
        | Action::FreeDisk
        | Action::ClockJump => {
            return Err(refuse());
        }
    };
    let lasts_ms = 1000.0 * (end_s(line, fault) - fault.at_s.value());
    let template = |name: String, spec: &Value| {
        let mut template = json!({
            "name": name, "templateType": kind, "deadline": format!("{lasts_ms:.0}ms")
        });
        template[key] = spec.clone();
        template
    };
    let name = format!("fault-{number}");
    if let [spec] = &specs[..] {
        return Ok(vec![template(name, spec)]);
    }
    let parts = specs.iter().enumerate();
    let mut all: Vec<Value> = parts
        .map(|(part, spec)| template(format!("{name}-{part}"), spec))
        .collect();
    if !all.is_empty() {
        let children: Vec<Value> = all.iter().map(|part| part["name"].clone()).collect();
        all.push(json!({ "name": name, "templateType": "Parallel", "children": children }));
    }
    Ok(all)
}

/// The brokers that cannot reach each other when links are cut, each pair once; of links that are cut one way, senders first. Sites that lose the same
/// others are together.
fn separated<'a>(place: &'a Place<'_>, cuts: &[Cut]) -> Vec<(Vec<&'a String>, Vec<&'a String>)> {
    let sites = &place.topology.sites;
    let is_one_way = cuts.iter().any(|cut| cut.only.is_some());
    let mut groups: Vec<(Vec<&String>, Vec<&String>)> = Vec::new();
    for a in 0..place.brokers() {
        let others = if is_one_way { 0 } else { a + 1 }..place.brokers();
        let lost = others.filter(|&b| place.topology.is_cut(a, b, cuts));
        let lost: Vec<&String> = lost.map(|b| &sites[b]).collect();
        if lost.is_empty() {
            continue;
        }
        match groups.iter_mut().find(|(_, others)| *others == lost) {
            Some((same, _)) => same.push(&sites[a]),
            None => groups.push((vec![&sites[a]], lost)),
        }
    }
    groups
}

/// When a later entry of the time line repairs the fault.
fn end_s(line: &[Fault], fault: &Fault) -> f64 {
    let repairs = |other: &&Fault| {
        other.at_s > fault.at_s
            && match fault.action {
                Action::Cut | Action::Partition => {
                    other.action == Action::Heal
                        && (other.link.is_none() || other.link == fault.link)
                }
                _ => other.action == Action::Restart && other.site == fault.site,
            }
    };
    let ends = line.iter().filter(repairs);
    ends.map(|other| other.at_s.value())
        .reduce(f64::min)
        .unwrap_or(fault.at_s.value() + FOR_EVER_S)
}
