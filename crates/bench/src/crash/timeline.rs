//! Deliveries over time, around the faults (Comparison Fig. 5).

use super::CrashResult;
use super::ledger::TENTH_S;
use crate::report::{Plot, Scale, Series};

/// Messages a second at each subscriber, with a spike at each fault and one at each reconnect.
#[must_use]
pub fn time_line(title: &str, result: &CrashResult) -> Plot {
    let most = result.tenths_by.iter().flatten().copied().max();
    let top = f64::from(most.unwrap_or(1).max(1)) / TENTH_S;
    let rate = |(index, tenths): (usize, &Vec<u32>)| Series {
        name: format!("subscriber {}", index + 1),
        points: tenths
            .iter()
            .enumerate()
            .map(|(at, &count)| (at as f64 * TENTH_S, f64::from(count) / TENTH_S))
            .collect(),
    };
    let mark = |name: &str, times: &[f64], height: f64| {
        let mut times = times.to_vec();
        times.sort_by(f64::total_cmp);
        let spike = |&at: &f64| [(at, 0.0), (at, height), (at, 0.0)];
        Series {
            name: name.to_owned(),
            points: times.iter().flat_map(spike).collect(),
        }
    };
    let mut series: Vec<Series> = result.tenths_by.iter().enumerate().map(rate).collect();
    for (name, times, height) in [
        ("fault", &result.faults_s, top),
        ("reconnected", &result.reconnected_s, top / 2.0),
    ] {
        if !times.is_empty() {
            series.push(mark(name, times, height));
        }
    }
    Plot {
        title: title.to_owned(),
        x_label: "time in s".to_owned(),
        y_label: "messages/s".to_owned(),
        scale: Scale::Linear,
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_faults_and_reconnects_are_on_one_axis() {
        let result = CrashResult {
            tenths_by: vec![vec![10, 0, 30]],
            faults_s: vec![0.1],
            reconnected_s: vec![0.2],
            ..CrashResult::default()
        };
        let plot = time_line("t", &result);
        let names: Vec<&str> = plot.series.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["subscriber 1", "fault", "reconnected"]);
        assert_eq!(plot.series[0].points[2], (0.2, 300.0));
        assert_eq!(plot.series[1].points[1], (0.1, 300.0));
    }
}
