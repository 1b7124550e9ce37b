use super::*;
use crate::Random;

fn load(cpu: f64, messages_per_s: f64, connections: f64) -> Load {
    Load {
        cpu: Some(cpu),
        messages_per_s: Some(messages_per_s),
        connections: Some(connections),
    }
}

fn serving(loads: &[Load]) -> Vec<Candidate> {
    (0..)
        .zip(loads)
        .map(|(key, &load)| Candidate {
            key,
            state: State::Serving,
            load,
        })
        .collect()
}

/// A choice with nothing decided before.
fn first_choice(policy: Policy, candidates: &[Candidate], seed: u64) -> Option<u64> {
    let mut balancer = LoadBalancer::new(policy, seed);
    balancer.update(0, candidates.to_vec());
    balancer.choose(0)
}

#[test]
fn a_policy_is_read_by_its_name() {
    for policy in [
        Policy::Cpu,
        Policy::Messages,
        Policy::Connections,
        Policy::Combined,
    ] {
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    let error = "load".parse::<Policy>().unwrap_err().to_string();
    assert!(
        error.contains("policy") && error.contains("load"),
        "{error}"
    );
}

#[test]
fn of_two_brokers_the_one_with_less_of_what_counts_is_chosen() {
    let candidates = serving(&[load(0.2, 9_000.0, 4.0), load(0.4, 3_000.0, 8.0)]);
    for (policy, expected) in [
        (Policy::Cpu, 0),
        (Policy::Messages, 1),
        (Policy::Connections, 0),
        (Policy::Combined, 1),
    ] {
        for seed in 0..20 {
            assert_eq!(
                first_choice(policy, &candidates, seed),
                Some(expected),
                "{policy:?}, seed {seed}"
            );
        }
    }
}

#[test]
fn nobody_is_sent_to_a_broker_that_does_not_serve() {
    for state in [State::Draining, State::Full, State::Down] {
        let mut candidates = serving(&[load(0.9, 9e9, 9e3), Load::default(), Load::default()]);
        candidates[1].state = state;
        candidates[2].state = state;
        for seed in 0..20 {
            assert_eq!(
                first_choice(Policy::Combined, &candidates, seed),
                Some(0),
                "{state:?}"
            );
        }
        candidates[0].state = state;
        assert_eq!(
            first_choice(Policy::Combined, &candidates, 1),
            None,
            "{state:?}"
        );
    }
    assert_eq!(first_choice(Policy::Combined, &[], 1), None);
}

#[test]
fn a_broker_without_cpu_to_spare_gets_nobody_unless_all_are_so() {
    let candidates = serving(&[load(0.97, 10.0, 1.0), load(0.5, 9_000.0, 50.0)]);
    assert_eq!(
        first_choice(Policy::Messages, &candidates, 1),
        Some(1),
        "messages alone would choose the other"
    );
    let busy = serving(&[load(0.97, 10.0, 1.0), load(0.99, 9_000.0, 50.0)]);
    assert_eq!(first_choice(Policy::Messages, &busy, 1), Some(0));
}

#[test]
fn an_unknown_figure_counts_as_the_mean_and_not_as_zero() {
    let candidates = serving(&[
        load(0.1, 1_000.0, 1.0),
        Load::default(),
        load(0.9, 9_000.0, 9.0),
    ]);
    let mut counts = [0; 3];
    for seed in 0..3_000 {
        let chosen = first_choice(Policy::Combined, &candidates, seed).unwrap();
        counts[chosen as usize] += 1;
    }
    // Of the three pairs the least loaded wins two, the unknown one, the third none.
    assert!(counts[0] > 1_800 && counts[0] < 2_200, "{counts:?}");
    assert!(counts[1] > 800 && counts[1] < 1_200, "{counts:?}");
    assert_eq!(counts[2], 0);
}

#[test]
fn figures_that_are_no_numbers_are_unknown() {
    for worthless in [f64::NAN, f64::INFINITY, -1.0] {
        let strange = Load {
            messages_per_s: Some(worthless),
            ..Load::default()
        };
        let candidates = serving(&[strange, load(0.1, 1.0, 1.0), load(0.1, 3.0, 1.0)]);
        for seed in 0..20 {
            let chosen = first_choice(Policy::Messages, &candidates, seed).unwrap();
            assert_ne!(chosen, 2, "the mean is 2, and 3 is more ({worthless})");
        }
    }
}

#[test]
fn without_any_figures_clients_spread_by_the_decisions_alone() {
    let mut balancer = LoadBalancer::new(Policy::Combined, 3);
    balancer.update(0, serving(&[Load::default(); 4]));
    let mut counts = [0_i32; 4];
    for _ in 0..400 {
        counts[balancer.choose(0).unwrap() as usize] += 1;
    }
    assert!(
        counts.iter().all(|&count| (95..=105).contains(&count)),
        "{counts:?}"
    );
}

#[test]
fn decisions_count_at_once_so_a_crowd_does_not_fall_on_the_emptiest() {
    // A thousand clients within one reading, according to which broker 0 is idle.
    let mut balancer = LoadBalancer::new(Policy::Combined, 11);
    balancer.update(
        0,
        serving(&[
            load(0.0, 0.0, 0.0),
            load(0.3, 3_000.0, 300.0),
            load(0.3, 3_000.0, 300.0),
        ]),
    );
    let mut counts = [0.0, 300.0, 300.0];
    for _ in 0..1_000 {
        counts[balancer.choose(500).unwrap() as usize] += 1.0;
    }
    assert!(crate::jain(&counts) > 0.98, "{counts:?}");
}

#[test]
fn a_decision_counts_less_as_readings_come_to_show_it() {
    let mut balancer = LoadBalancer::new(Policy::Connections, 1);
    let equal = serving(&[load(0.1, 1.0, 10.0), load(0.1, 1.0, 10.4)]);
    balancer.update(0, equal.clone());
    assert_eq!(balancer.choose(0), Some(0));
    assert_eq!(balancer.choose(0), Some(1), "the first counts in full");
    let mut later = LoadBalancer::new(Policy::Connections, 1);
    later.update(0, equal);
    later.sent(0, 0);
    assert_eq!(later.choose(5_900), Some(0), "it counts next to nothing");
}

#[test]
fn several_deciders_with_the_same_readings_do_not_herd() {
    // Four deciders see the same stale readings of five brokers and send a client each, fifty times.
    let loads: Vec<Load> = (1..=5)
        .map(|n| load(0.1 * f64::from(n), 0.0, 100.0))
        .collect();
    let mut counts = [0.0_f64; 5];
    for seed in 0..4 {
        let mut balancer = LoadBalancer::new(Policy::Cpu, seed);
        balancer.update(0, serving(&loads));
        for _ in 0..50 {
            counts[balancer.choose(0).unwrap() as usize] += 1.0;
        }
    }
    assert!(
        counts[0] < 120.0,
        "the emptiest of five got {} of 200 clients",
        counts[0]
    );
}

#[test]
fn a_client_moves_only_where_it_is_better_by_the_margin_after_the_move() {
    for (name, here, there, expected) in [
        (
            "equal",
            load(0.3, 5_000.0, 50.0),
            load(0.3, 5_000.0, 50.0),
            None,
        ),
        (
            "a little better",
            load(0.3, 5_400.0, 50.0),
            load(0.3, 4_800.0, 50.0),
            None,
        ),
        (
            "far better",
            load(0.6, 9_000.0, 90.0),
            load(0.1, 1_000.0, 10.0),
            Some(1),
        ),
        (
            "one client is all there is",
            load(0.6, 9_000.0, 1.0),
            load(0.0, 0.0, 0.0),
            None,
        ),
    ] {
        let mut balancer = LoadBalancer::new(Policy::Combined, 1);
        balancer.update(0, serving(&[here, there]));
        assert_eq!(
            balancer.choose_instead_of(0, 0, 0.2, |_| true),
            expected,
            "{name}"
        );
    }
}

#[test]
fn from_a_broker_that_does_not_serve_a_client_moves_to_any_that_does() {
    let mut candidates = serving(&[load(0.0, 0.0, 1.0), load(0.9, 9_000.0, 90.0)]);
    candidates[0].state = State::Draining;
    let mut balancer = LoadBalancer::new(Policy::Combined, 1);
    balancer.update(0, candidates);
    assert_eq!(balancer.choose_instead_of(0, 0, 0.2, |_| true), Some(1));
    assert!(!balancer.serves(0) && balancer.serves(1) && !balancer.serves(2));
}

/// Table II of the paper: nine publishers of 2000 messages a second and one of 10,000, in any order.
#[test]
fn with_exact_rates_the_publishers_of_the_paper_end_as_even_as_they_can() {
    let mut total = 0.0;
    for place in 0..10 {
        let mut rates = [0.0_f64; 2];
        let mut clients = [0.0_f64; 2];
        let mut balancer = LoadBalancer::new(Policy::Combined, place);
        for arrival in 0..10 {
            let now = arrival * 5_000;
            let loads: Vec<Load> = (0..2)
                .map(|one| load(rates[one] / 40_000.0, rates[one], clients[one]))
                .collect();
            balancer.update(now, serving(&loads));
            let to = balancer.choose(now).unwrap() as usize;
            rates[to] += if arrival == place { 10_000.0 } else { 2_000.0 };
            clients[to] += 1.0;
        }
        total += (rates[0] - rates[1]).abs();
    }
    assert!(
        total / 10.0 <= 2_400.0,
        "the mean difference is {}",
        total / 10.0
    );
}

#[test]
fn readings_with_noise_leave_the_outcome_of_the_paper_near_its_bound() {
    let mut random = Random::new(5, 1);
    let mut noisy = |value: f64, share: f64| value * (1.0 + share * (2.0 * random.unit() - 1.0));
    let mut of_policy = |policy: Policy| {
        let mut total = 0.0;
        for run in 0..200 {
            let place = run % 10;
            let mut rates = [0.0_f64; 2];
            let mut clients = [0.0_f64; 2];
            let mut balancer = LoadBalancer::new(policy, run);
            for arrival in 0..10 {
                let now = arrival * 5_000;
                // CPU of a small share is read with an error of a third, messages with one of a twentieth.
                let loads: Vec<Load> = (0..2)
                    .map(|one| {
                        let cpu = noisy(rates[one] / 40_000.0, 0.35);
                        load(cpu, noisy(rates[one], 0.05), clients[one])
                    })
                    .collect();
                balancer.update(now, serving(&loads));
                let to = balancer.choose(now).unwrap() as usize;
                rates[to] += if arrival == place { 10_000.0 } else { 2_000.0 };
                clients[to] += 1.0;
            }
            total += (rates[0] - rates[1]).abs();
        }
        total / 200.0
    };
    let (cpu, combined) = (of_policy(Policy::Cpu), of_policy(Policy::Combined));
    assert!(combined < cpu, "combined {combined}, cpu {cpu}");
    assert!(combined <= 2_700.0, "combined {combined}");
}

#[test]
fn what_a_broker_has_too_much_of_makes_both_even() {
    let mut balancer = LoadBalancer::new(Policy::Messages, 1);
    balancer.update(
        0,
        serving(&[load(0.3, 16_000.0, 8.0), load(0.3, 12_000.0, 2.0)]),
    );
    let excess = balancer.excess(0, 0, 0.2, |_| true).expect("a seventh");
    assert_eq!(excess.to, 1);
    assert!((excess.share - 0.125).abs() < 1e-9, "{excess:?}");
    assert_eq!(balancer.excess(0, 1, 0.2, |_| true), None, "it has less");
    assert_eq!(
        balancer.excess(0, 0, 0.3, |_| true),
        None,
        "too little to move for"
    );
    assert_eq!(balancer.excess(0, 0, 0.2, |_| false), None, "nowhere to go");
    assert_eq!(
        balancer
            .ranked(0)
            .iter()
            .map(|(key, _)| *key)
            .collect::<Vec<_>>(),
        [1, 0]
    );
}
