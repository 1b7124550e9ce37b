//! Types of publishers, and their order of arrival.

use serde::Serialize;

use crate::BenchError;
use crate::random::Random;

/// Most publishers.
const MOST: usize = 100_000;
/// Largest payload.
const LONGEST: usize = 16 * 1024 * 1024;

/// Publishers with the same settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PublisherType {
    /// How many.
    pub count: usize,
    /// Messages a second of each.
    pub rate_per_s: f64,
    /// Payload of each message in bytes.
    pub payload_len: usize,
}

/// The order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalOrder {
    /// As the types are given.
    Given,
    /// Drawn by the seed.
    Random,
}

/// Where a publisher connects first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attach {
    /// At the brokers in turn, as DNS round robin answers; at the next one if one does not answer.
    RoundRobin,
    /// At a dispatcher; at the next one if it does not answer.
    Dispatch,
    /// At the first node, which may redirect it.
    Redirect,
}

/// How a Server Reference is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Redirect {
    /// The client follows it, at most once in an attempt.
    Follow,
    /// It is treated as a refusal.
    Ignore,
}

/// Parses `COUNT@RATE:BYTES,...`, such as `9@2000:600,1@10000:600`.
pub fn parse_types(text: &str) -> Result<Vec<PublisherType>, BenchError> {
    let one = |word: &str| {
        let (count, rest) = word.split_once('@')?;
        let (rate, len) = rest.split_once(':')?;
        let publishers = PublisherType {
            count: count.parse().ok().filter(|&count: &usize| count > 0)?,
            rate_per_s: rate
                .parse()
                .ok()
                .filter(|&rate: &f64| rate > 0.0 && rate.is_finite())?,
            payload_len: len.parse().ok().filter(|&len| len <= LONGEST)?,
        };
        Some(publishers)
    };
    let types: Result<Vec<_>, _> = text
        .split(',')
        .map(|word| {
            one(word).ok_or_else(|| {
                BenchError::Setting(format!(
                    "--publishers {word}: expected COUNT@RATE:BYTES, such as 9@2000:600"
                ))
            })
        })
        .collect();
    let types = types?;
    let all = types
        .iter()
        .try_fold(0_usize, |sum, one| sum.checked_add(one.count));
    if all.is_none_or(|all| all > MOST) {
        return Err(BenchError::Setting(format!(
            "--publishers {text}: more than {MOST} publishers"
        )));
    }
    Ok(types)
}

/// Every publisher, as a type with a count of one, in the order of arrival.
#[must_use]
pub fn in_order(types: &[PublisherType], order: ArrivalOrder, seed: u64) -> Vec<PublisherType> {
    let mut all: Vec<PublisherType> = types
        .iter()
        .flat_map(|&one| std::iter::repeat_n(PublisherType { count: 1, ..one }, one.count))
        .collect();
    if order == ArrivalOrder::Random {
        let mut random = Random::new(seed ^ 0x6f_72_64_65_72);
        for last in (1..all.len()).rev() {
            all.swap(last, random.below(last + 1));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_ii_of_the_paper_is_read() {
        let types = parse_types("9@2000:600,1@10000:600").unwrap();
        let counts: Vec<_> = types
            .iter()
            .map(|one| (one.count, one.rate_per_s, one.payload_len))
            .collect();
        assert_eq!(counts, [(9, 2000.0, 600), (1, 10_000.0, 600)]);
    }

    #[test]
    fn what_is_no_type_is_refused_by_its_text() {
        for text in [
            "",
            "9",
            "9@1",
            "0@1:1",
            "9@0:1",
            "9@x:1",
            "9@1:-1",
            "9@inf:1",
            "1@1:99999999",
        ] {
            let error = parse_types(text).unwrap_err().to_string();
            assert!(
                error.contains(&format!("--publishers {text}: expected")),
                "{error}"
            );
        }
        assert!(parse_types("100001@1:1").is_err());
    }

    #[test]
    fn a_seed_gives_an_order_with_everybody_in_it() {
        let types = parse_types("9@2000:600,1@10000:600").unwrap();
        let given = in_order(&types, ArrivalOrder::Given, 1);
        assert_eq!((given.len(), given[9].rate_per_s), (10, 10_000.0));
        let place = |seed| {
            let order = in_order(&types, ArrivalOrder::Random, seed);
            assert_eq!(order.len(), 10);
            order
                .iter()
                .position(|one| one.rate_per_s > 2000.0)
                .unwrap()
        };
        assert_eq!(place(3), place(3));
        let mut places: Vec<usize> = (0..200).map(place).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 10, "every place is drawn");
    }
}
