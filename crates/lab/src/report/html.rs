//! The HTML page around the figures.

use std::fmt::Write;

use thicket_bench::report::{self, escape, wide};

use super::{Beside, GROWTH, figures, growth_figure, tls};
use crate::compare::spreads;
use crate::environment::NONE;
use crate::pairs::{MARGIN, pairs, told};
use crate::pressure;
use crate::results::{Environment, GENERATOR_WAS_LIMIT, Results, Run};
use crate::scaling::growth;
use crate::simulated;
use crate::summary::{Row, cell, in_words, number, rate_cell, rows, short};

/// Width of a figure that leaves space for another beside it: that of `section.one`.
const SMALL: u32 = 380;
/// A generator that is this far behind its schedule, in ms, although it has time left, was kept from running.
const KEPT_FROM_RUNNING_MS: f64 = 10.0;

/// The figures of systems in pairs.
const PAIRED: [&str; 5] = [
    "delay_mean_ms",
    "publish_traffic_bytes",
    "publish_own_link_messages",
    "publish_broker_cpu_percent",
    "sustainable_msgs_per_s",
];
/// Columns of the tables of delays and losses, of times, and of costs.
const DELAYS: [(&str, &str); 7] = [
    ("delay_mean_ms", "mean ms"),
    ("delay_p50_ms", "p50"),
    ("delay_p90_ms", "p90"),
    ("delay_p99_ms", "p99"),
    ("delay_max_ms", "max"),
    ("lost_messages", "lost"),
    ("duplicated_messages", "twice"),
];
const ACKNOWLEDGEMENTS: [(&str, &str); 5] = [
    ("acknowledgement_mean_ms", "mean ms"),
    ("acknowledgement_p50_ms", "p50"),
    ("acknowledgement_p90_ms", "p90"),
    ("acknowledgement_p99_ms", "p99"),
    ("acknowledgement_max_ms", "max"),
];
const REFUSALS: [(&str, &str); 4] = [
    ("closed_connections", "connections closed"),
    ("refused_connections", "connections refused"),
    ("refused_messages", "publications refused"),
    ("unknown_messages", "publications without an outcome"),
];
const TIMES: [(&str, &str); 6] = [
    ("cluster_formed_s", "cluster formed s"),
    ("converged_max_s", "converged s"),
    ("repaired_max_s", "repaired s"),
    ("relinked_max_s", "linked again s"),
    ("join_s", "joined s"),
    ("longest_silence_s", "longest silence s"),
];
const RECONNECTS: [(&str, &str); 3] = [
    ("sessions_lost", "sessions lost"),
    ("unacknowledged_messages", "never acknowledged"),
    ("reconnect_max_ms", "until reconnected ms, longest"),
];
const COSTS: [(&str, &str); 8] = [
    ("control_traffic_bytes_per_s", "idle bytes/s"),
    ("subscriptions_traffic_bytes", "subscribing bytes"),
    ("publish_traffic_bytes", "publishing bytes"),
    ("publish_traffic_packets", "frames"),
    ("control_broker_cpu_percent", "idle CPU %"),
    ("publish_broker_cpu_percent", "publishing CPU %"),
    ("publish_broker_memory_mib", "memory MiB"),
    ("publish_broker_memory_peak_mib", "peak MiB"),
];

/// The results as one HTML file, with drawings of arrivals over time, each with its title.
#[must_use]
pub fn to_html(
    results: &Results,
    time_lines: &[(String, String)],
    beside: Option<&Beside>,
) -> String {
    let mut page = String::new();
    if let Some(source) = &results.source {
        let _ = writeln!(page, "<p>Follows {}.</p>", escape(source));
    }
    validity(results, &mut page);
    if let Some((words, is_busy)) = pressure::in_words(&results.runs) {
        let class = if is_busy { "bad" } else { "good" };
        let _ = writeln!(page, "<p class=\"{class}\">{}</p>", escape(&words));
    }
    warnings(&results.runs, &mut page);
    left_out(&results.left_out, &mut page);
    let rows = rows(results);
    let repeats = results.runs.iter().map(|run| run.repeat).max().unwrap_or(0);
    let bars = bars(&rows, repeats);
    let _ = writeln!(
        page,
        "<p>{bars} Where a rate varies, they are points of a line. Delay is from the moment a message \
         was meant to be sent to its arrival, or to the acknowledgement at its publisher. Traffic is Ethernet frames between the routers of sites, each counted once a link.</p>"
    );
    page.push_str("<div class=\"sections\">");
    for (title, figures) in figures(results) {
        // A section of one small figure leaves space beside it.
        let is_small = figures.len() == 1 && figures[0].width() <= SMALL;
        let (class, title) = (if is_small { "one" } else { "wide" }, escape(&title));
        let _ = writeln!(
            page,
            "<section class=\"{class}\"><h2>{title}</h2><div class=\"figures\">"
        );
        for figure in figures {
            page.push_str(&figure.to_svg());
        }
        page.push_str("</div></section>\n");
    }
    page.push_str("</div>\n");
    if let Some(figure) = growth_figure(&growth(results)) {
        let _ = writeln!(
            page,
            "<h2>{GROWTH}</h2><p>The model is Detti's, for clients that attach at \
             random and brokers that spend 3 units on a message received and 1 on one sent; it knows no cores that brokers share.</p>\
             <div class=\"figures\">{}</div>",
            figure.to_svg()
        );
    }
    cost_of_tls(&rows, &mut page);
    limits_of_searches(&rows, &mut page);
    if rows
        .iter()
        .any(|row| row.figures.contains_key("sustainable_msgs_per_s"))
    {
        page.push_str("<p>Delay and loss are those at the highest rate that was sustainable.</p>");
    }
    table("Delay and loss", &rows, &DELAYS, &mut page);
    table(
        "Time until a publisher has PUBACK or PUBCOMP",
        &rows,
        &ACKNOWLEDGEMENTS,
        &mut page,
    );
    table(
        "What brokers refused while messages were published",
        &rows,
        &REFUSALS,
        &mut page,
    );
    table(
        "Clients of the broker that died",
        &rows,
        &RECONNECTS,
        &mut page,
    );
    table("Starts and repairs", &rows, &TIMES, &mut page);
    table(
        "Traffic between sites, CPU and memory of a broker",
        &rows,
        &COSTS,
        &mut page,
    );
    in_pairs(results, &mut page);
    if let Some(beside) = beside {
        other_backend(&results.environment.backend, beside, &mut page);
    }
    if !time_lines.is_empty() {
        page.push_str("<h2>Over time</h2>\n");
    }
    for (title, svg) in time_lines {
        let _ = writeln!(page, "<h3>{}</h3>{}", escape(title), wide(svg));
    }
    fault_list(&results.runs, &mut page);
    environment(&results.environment, &mut page);
    let _ = writeln!(
        page,
        "<h2>Scenario</h2><pre>{}</pre>",
        escape(&results.scenario)
    );
    report::page(&results.title, &page)
}

/// What bars and the lines on them are, from the repeats that are valid.
fn bars(rows: &[Row], repeats: u64) -> String {
    let valid = rows.iter().filter_map(|row| {
        let repeats = row.figures.values().map(|estimate| estimate.repeats);
        repeats.max()
    });
    let valid: Vec<usize> = valid.collect();
    let (least, most) = (valid.iter().min().copied(), valid.iter().max().copied());
    let intervals =
        "the lines on them are 95 % confidence intervals over the repeats (Student's t)";
    match (least.unwrap_or(0), most.unwrap_or(0)) {
        (_, 0) => "There are no bars, as no run is valid.".to_owned(),
        (_, 1) if repeats > 1 => format!(
            "Bars are single runs: of {repeats} repeats one at most is valid, so there is no confidence interval."
        ),
        (_, 1) => {
            "Bars are single runs: without repeats there is no confidence interval.".to_owned()
        }
        (least, most) if least == most => format!("Bars are means of {most} repeats; {intervals}."),
        (1, most) => format!(
            "Bars are means of the valid repeats, up to {most}; {intervals}. Some bars are a single run, as the other repeats are not valid: they have \
             no line."
        ),
        (least, most) => {
            format!("Bars are means of the valid repeats, {least} to {most}; {intervals}.")
        }
    }
}

/// The systems of each repeat in pairs.
fn in_pairs(results: &Results, page: &mut String) {
    let all = pairs(results, None, MARGIN);
    let shown = all
        .iter()
        .filter(|pair| PAIRED.contains(&pair.figure.as_str()));
    let mut shown = shown.peekable();
    let Some(first) = shown.peek() else {
        return;
    };
    let _ = writeln!(
        page,
        "<h2>Systems in pairs</h2><p>Figures of each system over those of {} in the same repeats, which have the same links, seeds and places of clients: \
         95 % bootstrap intervals over pairs. Equivalent means that the interval is within {:.0} %. <code>thicket lab pairs</code> has all figures.</p>\
         <div class=\"wide\"><table><tr><th>system</th><th>parameters</th><th>figure</th><th>ratio</th><th>95 % interval</th></tr>",
        escape(&first.with),
        100.0 * MARGIN
    );
    for pair in shown {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.3}</td><td>{}</td></tr>",
            escape(&pair.system),
            escape(&in_words(None, &pair.parameters)),
            pair.figure,
            pair.ratio.ratio,
            told(pair)
        );
    }
    page.push_str("</table></div>\n");
}

fn cost_of_tls(rows: &[Row], page: &mut String) {
    let costs = tls::costs(rows);
    if costs.is_empty() {
        return;
    }
    page.push_str(
        "<h2>What TLS costs (Comparison M6)</h2><div class=\"wide\"><table><tr><th></th><th>messages/s without</th><th>with TLS</th>\
         <th>lowered by</th></tr>\n",
    );
    for cost in costs {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&cost.name),
            cost.plain(),
            cost.with_tls(),
            cost.lowering()
        );
    }
    page.push_str("</table></div>\n");
}

/// What limited the highest sustainable rates: both sides' CPU at the lowest rate that was not sustainable.
fn limits_of_searches(rows: &[Row], page: &mut String) {
    let has_limit = |row: &&Row| row.figures.contains_key(GENERATOR_WAS_LIMIT);
    let limited: Vec<&Row> = rows.iter().filter(has_limit).collect();
    if limited.is_empty() {
        return;
    }
    page.push_str(
        "<h2>What limited the highest rate</h2><p>CPU at the lowest rate that was not sustainable. The load generator has a core for each of its threads (one, if the workload does not say more): if it \
         used 0.9 of these and was 20 ms behind its schedule, it is the limit, and the broker's rate is at least what was found; if it was 10 ms behind with time to spare, other work of the machine \
         kept it from running.</p><div class=\"wide\"><table><tr><th></th>\
         <th>messages/s</th><th>generator, cores</th><th>behind, ms</th><th>brokers, cores</th><th>limit</th></tr>\n",
    );
    for row in limited {
        let figure = |name: &str| row.figures.get(name).map_or("-".to_owned(), cell);
        let behind = row.figures.get("limit_generator_behind_ms");
        let limit = match behind {
            _ if row.is_lower_bound() => "load generator",
            Some(behind) if behind.mean >= KEPT_FROM_RUNNING_MS => "other work of the machine",
            _ => "broker",
        };
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{limit}</td></tr>",
            escape(&row.name(|_| true)),
            rate_cell(row).unwrap_or_default(),
            figure("limit_generator_cpu_cores"),
            figure("limit_generator_behind_ms"),
            figure("limit_broker_cpu_cores"),
        );
    }
    page.push_str("</table></div>\n");
}

fn validity(results: &Results, page: &mut String) {
    if let Some(reason) = &results.ended_early {
        let _ = writeln!(
            page,
            "<p class=\"bad\">Ended early: {}.</p>",
            escape(reason)
        );
        let complete = results.runs.iter().filter(|run| run.valid);
        let complete: Vec<String> = complete.map(name).collect();
        let _ = writeln!(
            page,
            "<details><summary>{} valid and complete runs</summary><p>complete: {}</p></details>",
            complete.len(),
            if complete.is_empty() {
                "none".to_owned()
            } else {
                escape(&complete.join("; "))
            }
        );
    }
    let invalid: Vec<&Run> = results.runs.iter().filter(|run| !run.valid).collect();
    if invalid.is_empty() {
        let _ = writeln!(
            page,
            "<p class=\"good\">All {} runs are valid: {}.</p>",
            results.runs.len(),
            if results.environment.backend == crate::simulated::NAME {
                "they were simulated in virtual time, where each link has exactly the delay of the scenario"
            } else {
                "all round trips were as configured before the run, and links were on time"
            }
        );
        return;
    }
    let _ = writeln!(
        page,
        "<div class=\"bad\">{} of {} runs are not valid and are left out of all figures:<ul>",
        invalid.len(),
        results.runs.len()
    );
    for run in invalid {
        let _ = writeln!(
            page,
            "<li>{}: {}</li>",
            escape(&name(run)),
            escape(&run.invalid.join("; "))
        );
    }
    page.push_str("</ul></div>\n");
}

/// A run in words.
fn name(run: &Run) -> String {
    let words = in_words(Some(&run.system), &run.parameters);
    format!("{words}, repeat {}", run.repeat)
}

/// The warnings of runs, each once.
fn warnings(runs: &[Run], page: &mut String) {
    let mut all: Vec<(&String, usize)> = Vec::new();
    for warning in runs.iter().flat_map(|run| &run.warnings) {
        match all.iter_mut().find(|(known, _)| *known == warning) {
            Some((_, count)) => *count += 1,
            None => all.push((warning, 1)),
        }
    }
    if all.is_empty() {
        return;
    }
    page.push_str("<h2>Warnings</h2><ul>");
    for (warning, count) in all {
        let _ = write!(page, "<li>{} (runs: {count})</li>", escape(warning));
    }
    page.push_str("</ul>\n");
}

/// The ratios of another back end to this one, over all systems and cells, and in each.
fn other_backend(backend: &str, beside: &Beside, page: &mut String) {
    let other = &beside.backend;
    let _ = write!(
        page,
        "<h2>Beside the back end {other}</h2><p>Figures of {other} over those of {backend}.</p><div class=\"wide\"><table>\
         <tr><th>figure</th><th>compared</th><th>least</th><th>median</th><th>most</th></tr>",
    );
    for spread in spreads(&beside.ratios) {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td></tr>",
            spread.figure, spread.count, spread.least, spread.median, spread.most
        );
    }
    let _ = write!(
        page,
        "</table></div><div class=\"wide\"><table><tr><th>system</th><th>parameters</th><th>figure</th><th>{backend}</th>\
         <th>{other}</th><th>ratio</th></tr>"
    );
    for ratio in &beside.ratios {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.2}</td></tr>",
            escape(&ratio.system),
            escape(&in_words(None, &ratio.parameters)),
            ratio.figure,
            number(ratio.a),
            number(ratio.b),
            ratio.ratio
        );
    }
    page.push_str("</table></div>\n");
}

/// The questions that the tools of this result do not answer.
fn left_out(questions: &[String], page: &mut String) {
    if questions.is_empty() {
        return;
    }
    page.push_str("<h2>Not answered here</h2><ul>");
    for question in questions {
        let _ = write!(page, "<li>{}</li>", escape(question));
    }
    page.push_str("</ul>\n");
}

/// A table of the columns that have a figure in some row; nothing if there is none.
fn table(title: &str, rows: &[Row], columns: &[(&str, &str)], page: &mut String) {
    let has_figures = |name: &str| rows.iter().any(|row| row.figures.contains_key(name));
    let columns = columns.iter().filter(|(name, _)| has_figures(name));
    let columns: Vec<&(&str, &str)> = columns.collect();
    if columns.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<h2>{title}</h2><div class=\"wide\"><table><tr><th>system</th>"
    );
    let keys = rows.first().map_or(&[][..], |row| &row.parameters);
    for (key, _) in keys {
        let _ = write!(page, "<th>{}</th>", escape(short(key)));
    }
    for (_, heading) in &columns {
        let _ = write!(page, "<th>{heading}</th>");
    }
    page.push_str("</tr>\n");
    for row in rows {
        let _ = write!(page, "<tr><td>{}</td>", escape(&row.system));
        for (_, value) in &row.parameters {
            let _ = write!(page, "<td>{}</td>", escape(value));
        }
        for (name, _) in &columns {
            let text = row.figures.get(*name).map_or("-".to_owned(), cell);
            let _ = write!(page, "<td>{text}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn fault_list(runs: &[Run], page: &mut String) {
    let Some(run) = runs.iter().find(|run| !run.faults.is_empty()) else {
        return;
    };
    page.push_str("<h2>Faults</h2><ul>");
    for (at_s, what) in &run.faults {
        let _ = write!(
            page,
            "<li>{at_s:.2} s after the first message: {}</li>",
            escape(what)
        );
    }
    page.push_str("</ul>\n");
}

fn environment(facts: &Environment, page: &mut String) {
    page.push_str("<h2>Machine and means</h2><table class=\"facts\">");
    let links = match (facts.backend.as_str(), facts.links_first) {
        (simulated::NAME, _) => "simulated, in virtual time".to_owned(),
        (NONE, _) => "none of the lab: the brokers run elsewhere".to_owned(),
        (backend, true) => format!("{backend}; its process runs before other processes"),
        (backend, false) => format!("{backend}; its process runs like other processes"),
    };
    let cores = if facts.oversubscribed {
        format!("{}; brokers may use more than that together", facts.cores)
    } else {
        facts.cores.to_string()
    };
    let build = if facts.optimised {
        "optimised"
    } else {
        "without optimisation"
    };
    let commit = facts.commit.as_deref().unwrap_or("unknown");
    let mut lines = vec![
        ("kernel", facts.kernel.clone()),
        ("processor", facts.cpu.clone()),
        ("cores", cores),
        ("memory", format!("{} MiB", facts.memory_mib)),
        ("links", links),
        ("limits", facts.limits.clone()),
        ("congestion control", facts.congestion_control.clone()),
        ("lab", format!("{}, commit {commit}, {build}", facts.lab)),
    ];
    for (system, version) in &facts.brokers {
        lines.push((system, version.clone()));
    }
    for (name, value) in lines {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td></tr>",
            escape(name),
            escape(&value)
        );
    }
    page.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thicket_bench::statistics::estimate;

    use super::*;

    #[test]
    fn bars_say_how_many_repeats_they_are_means_of() {
        let row = |values: &[f64]| Row {
            system: "a".to_owned(),
            parameters: Vec::new(),
            figures: BTreeMap::from([("x".to_owned(), estimate(values).unwrap())]),
            invalid: 0,
        };
        let (one, two) = (row(&[1.0]), row(&[1.0, 2.0]));
        let none = Row {
            figures: BTreeMap::new(),
            ..row(&[1.0])
        };
        assert!(bars(&[none], 2).contains("no run is valid"));
        let text = bars(std::slice::from_ref(&one), 2);
        assert!(text.starts_with("Bars are single runs: of 2 repeats one at most"));
        assert!(bars(std::slice::from_ref(&one), 1).contains("without repeats"));
        assert!(bars(std::slice::from_ref(&two), 2).starts_with("Bars are means of 2 repeats;"));
        let text = bars(&[one, two], 2);
        assert!(
            text.contains("up to 2") && text.contains("a single run"),
            "{text}"
        );
    }

    #[test]
    fn a_report_of_a_death_says_how_long_clients_waited() {
        let figures = [("reconnect_max_ms", 20.0), ("delay_mean_ms", 3.0)];
        let row = Row {
            system: "a".to_owned(),
            parameters: Vec::new(),
            figures: (figures.into_iter())
                .filter_map(|(name, value)| Some((name.to_owned(), estimate(&[value])?)))
                .collect(),
            invalid: 0,
        };
        let mut page = String::new();
        table("Clients", &[row], &RECONNECTS, &mut page);
        assert!(page.contains("until reconnected ms, longest"), "{page}");
        assert!(page.contains(">20"), "{page}");
        assert!(!page.contains("sessions lost"), "{page}");
    }

    #[test]
    fn a_report_says_what_limited_a_rate() {
        let limit = |is_generator: f64, behind_ms: f64| {
            let figures = [
                ("sustainable_msgs_per_s", 5000.0),
                (GENERATOR_WAS_LIMIT, is_generator),
                ("limit_generator_behind_ms", behind_ms),
            ];
            let figures = figures.map(|(name, value)| (name.to_owned(), estimate(&[value])));
            let figures: BTreeMap<_, _> = (figures.into_iter())
                .filter_map(|(name, value)| Some((name, value?)))
                .collect();
            let row = Row {
                system: "a".to_owned(),
                parameters: Vec::new(),
                figures,
                invalid: 0,
            };
            let mut page = String::new();
            limits_of_searches(&[row], &mut page);
            page
        };
        assert!(limit(0.0, 2.0).contains("<td>broker</td>"));
        assert!(limit(0.0, 40.0).contains("<td>other work of the machine</td>"));
        let generator = limit(1.0, 40.0);
        assert!(generator.contains("<td>load generator</td>"), "{generator}");
        assert!(generator.contains("at least 5000"), "{generator}");
    }
}
