//! Deliveries and connections over time, around the faults (Comparison Fig. 5).

use super::CrashResult;
use super::ledger::TENTH_S;
use crate::report::chart::{Chart, Pane};
use crate::report::{Plot, Scale, Series};

/// Two panes: messages a second at each subscriber, with a spike at each fault and one at each reconnect; and the number of connected clients.
#[must_use]
pub fn time_line(title: &str, result: &CrashResult) -> Chart {
    Chart::side_by_side(title.to_owned(), vec![rates(result), connections(result)])
}

fn rates(result: &CrashResult) -> Pane {
    let most = result.tenths_by.iter().flatten().copied().max();
    let top = f64::from(most.unwrap_or(1).max(1)) / TENTH_S;
    // The last tenth ends with the last delivery, so its rate is none.
    let whole = result.tenths_by.iter().map(Vec::len).max();
    let whole = whole.unwrap_or(0).saturating_sub(1);
    let rate = |(index, tenths): (usize, &Vec<u32>)| Series {
        name: format!("subscriber {}", index + 1),
        points: (tenths.iter().chain(std::iter::repeat(&0)).take(whole))
            .enumerate()
            .map(|(at, &count)| (at as f64 * TENTH_S, f64::from(count) / TENTH_S))
            .collect(),
    };
    let mut series: Vec<Series> = result.tenths_by.iter().enumerate().map(rate).collect();
    series.extend(spikes("fault", &result.faults_s, top));
    series.extend(spikes("reconnected", &result.reconnected_s, top / 2.0));
    over_time("What came to subscribers", "messages/s", series)
}

/// The number of connected clients, which changes at once, up to the end of the deliveries.
fn connections(result: &CrashResult) -> Pane {
    let mut points = Vec::new();
    let mut before = 0.0;
    for &(at_s, count) in &result.connections {
        points.push((at_s, before));
        before = f64::from(count);
        points.push((at_s, before));
    }
    let most = result.connections.iter().map(|(_, count)| *count).max();
    let top = f64::from(most.unwrap_or(0));
    let mut series = vec![Series {
        name: "connected clients".to_owned(),
        points,
    }];
    series.extend(spikes("fault", &result.faults_s, top));
    over_time("Connections", "clients", series)
}

/// A line that rises from 0 at each of the times; `None` without any.
fn spikes(name: &str, times: &[f64], height: f64) -> Option<Series> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let spike = |&at: &f64| [(at, 0.0), (at, height), (at, 0.0)];
    let points: Vec<(f64, f64)> = times.iter().flat_map(spike).collect();
    (!points.is_empty()).then(|| Series {
        name: name.to_owned(),
        points,
    })
}

fn over_time(title: &str, y_label: &str, series: Vec<Series>) -> Pane {
    let plot = Plot {
        title: title.to_owned(),
        x_label: "time in s".to_owned(),
        y_label: y_label.to_owned(),
        scale: Scale::Linear,
        series,
    };
    plot.titled_pane()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_connections_are_side_by_side_with_the_faults_in_both() {
        let result = CrashResult {
            tenths_by: vec![vec![10, 0, 30, 4], vec![10]],
            connections: vec![(0.0, 1), (0.05, 2), (0.1, 1), (0.2, 2)],
            faults_s: vec![0.1],
            reconnected_s: vec![0.2],
            ..CrashResult::default()
        };
        let chart = time_line("t", &result);
        let names = |pane: usize| -> Vec<&str> {
            let curves = chart.panes[pane].curves.iter();
            curves.map(|it| it.label.as_str()).collect()
        };
        assert_eq!(
            names(0),
            ["subscriber 1", "subscriber 2", "fault", "reconnected"]
        );
        assert_eq!(names(1), ["connected clients", "fault"]);
        let at = |pane: usize, curve: usize, point: usize| {
            let point = chart.panes[pane].curves[curve].points[point];
            (point.x, point.y)
        };
        assert_eq!(at(0, 0, 2), (0.2, 300.0));
        assert_eq!(at(0, 2, 1), (0.1, 300.0));
        // Without the last tenth, which is not whole, and with what a subscriber did not get until then.
        let points = |curve: usize| chart.panes[0].curves[curve].points.len();
        assert_eq!([points(0), points(1)], [3, 3]);
        assert_eq!(at(0, 1, 2), (0.2, 0.0));
        // Two clients until the fault, one of them until it has reconnected.
        assert_eq!([at(1, 0, 3), at(1, 0, 4)], [(0.05, 2.0), (0.1, 2.0)]);
        assert_eq!([at(1, 0, 5), at(1, 0, 6)], [(0.1, 1.0), (0.2, 1.0)]);
        let colours: Vec<usize> = chart.panes[1].curves.iter().map(|it| it.colour).collect();
        assert_eq!(colours, [4, 2]);
        let svg = chart.to_svg();
        for words in ["messages/s", "clients", "connected clients", "fault"] {
            assert!(svg.contains(&format!("\n{words}\n")), "{words}");
        }
    }
}
