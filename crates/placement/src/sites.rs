//! Sites of nodes, and the prices of what is sent from one to another.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::ParameterError;

/// Bytes of the name of a site.
const LONGEST_NAME: usize = 64;
/// Stands for any site in a price.
const ANY: &str = "*";

/// Prices of a GB (10^9 bytes) by the site that sends it and the one that receives it, in any currency.
///
/// A price is written `FROM:TO=PRICE`. It is for one direction; `*` stands for any site. Of several that apply, the one that names both sites counts,
/// else the one that names the sender, then the receiver, then the one that names neither. A pair of sites without a price costs nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SitePrices {
    /// By sender, then receiver.
    prices: BTreeMap<(String, String), f64>,
}

impl SitePrices {
    /// What a message to or from the site with the highest price counts as, in messages between nodes of one site.
    pub const SITE_COST: f64 = 10.0;

    /// Reads prices as they are written.
    ///
    /// # Errors
    /// One of them is malformed, names one site twice, is negative, or is given twice; the first such one is in the error.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, ParameterError> {
        let mut all = Self::default();
        for text in texts {
            all.add(text)?;
        }
        Ok(all)
    }

    fn add(&mut self, text: &str) -> Result<(), ParameterError> {
        let wrong = |rule: &str| ParameterError::new("site-price", rule, format!("{text:?}"));
        let malformed = || wrong("must be FROM:TO=PRICE");
        let (sites, price) = text.split_once('=').ok_or_else(malformed)?;
        let (from, to) = sites.split_once(':').ok_or_else(malformed)?;
        let (from, to) = (from.trim(), to.trim());
        for site in [from, to].into_iter().filter(|site| *site != ANY) {
            check_site(site).map_err(|rule| wrong(&format!("must name sites of {rule}, or *")))?;
        }
        if from == to && from != ANY {
            return Err(wrong("must be between two sites"));
        }
        let price = price.trim().parse().ok();
        let price = price.filter(|price: &f64| price.is_finite() && *price >= 0.0);
        let price = price.ok_or_else(|| wrong("must have a price of at least 0"))?;
        let before = self.prices.insert((from.to_owned(), to.to_owned()), price);
        if before.is_some() {
            return Err(wrong("must be given once for each two sites"));
        }
        Ok(())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prices.is_empty()
    }

    /// Each as it is written, in a fixed order.
    pub fn texts(&self) -> impl Iterator<Item = String> + '_ {
        let text = |((from, to), price): (&(String, String), &f64)| format!("{from}:{to}={price}");
        self.prices.iter().map(text)
    }

    /// Price of a GB from a node at one site to a node at another one. A node without a site is a site of its own: two of them are two sites.
    #[must_use]
    pub fn price(&self, from: Option<&str>, to: Option<&str>) -> f64 {
        if from.is_some() && from == to {
            return 0.0;
        }
        let of = |from: &str, to: &str| self.prices.get(&(from.to_owned(), to.to_owned()));
        let both = from.zip(to).and_then(|(from, to)| of(from, to));
        let found = both
            .or_else(|| of(from?, ANY))
            .or_else(|| of(ANY, to?))
            .or_else(|| of(ANY, ANY));
        found.copied().unwrap_or(0.0)
    }

    /// What a message costs, in messages between nodes of one site: `highest` ([`Self::SITE_COST`] by default) where the price is the highest of all,
    /// and in proportion to the price elsewhere. `None`: it has no price.
    #[must_use]
    pub fn cost(&self, from: Option<&str>, to: Option<&str>, highest: f64) -> Option<f64> {
        let price = self.price(from, to);
        let dearest = self.prices.values().copied().fold(0.0, f64::max);
        (price > 0.0).then(|| 1.0 + (highest - 1.0) * price / dearest)
    }
}

impl fmt::Display for SitePrices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.texts().collect::<Vec<_>>().join(","))
    }
}

/// Checks the name of a site.
///
/// # Errors
/// It is none: what is expected, such as `1 to 64 bytes`.
pub fn check_site(name: &str) -> Result<(), String> {
    let is_allowed =
        |letter: char| !letter.is_control() && !letter.is_whitespace() && !":=,*".contains(letter);
    let is_good = !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(is_allowed);
    is_good.then_some(()).ok_or_else(|| {
        format!("1 to {LONGEST_NAME} bytes without white space and without any of : = , *")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_that_names_most_sites_counts() {
        let texts = ["*:*=0.01", "milan:*=0.02", "*:rome=0.03", "milan:rome=0.04"];
        let prices = SitePrices::parse(texts).unwrap();
        for (name, from, to, expected) in [
            ("both", Some("milan"), Some("rome"), 0.04),
            ("the sender", Some("milan"), Some("paris"), 0.02),
            ("the receiver", Some("paris"), Some("rome"), 0.03),
            ("neither", Some("rome"), Some("milan"), 0.01),
            ("one site", Some("rome"), Some("rome"), 0.0),
            ("a node without a site", None, Some("rome"), 0.03),
            ("to a node without a site", Some("milan"), None, 0.02),
            ("two nodes without a site", None, None, 0.01),
        ] {
            assert_eq!(prices.price(from, to), expected, "{name}");
        }
        let none = SitePrices::default();
        assert_eq!(none.price(Some("milan"), Some("rome")), 0.0);
        assert!(none.is_empty());
    }

    #[test]
    fn costs_are_in_proportion_to_prices_whatever_the_currency() {
        for unit in [0.001, 1.0, 1000.0] {
            let texts = [
                format!("a:b={}", 4.0 * unit),
                format!("a:c={unit}"),
                "a:d=0".into(),
            ];
            let prices = SitePrices::parse(texts.iter().map(String::as_str)).unwrap();
            let cost = |to| prices.cost(Some("a"), Some(to), SitePrices::SITE_COST);
            assert_eq!(cost("b"), Some(10.0));
            assert_eq!(cost("c"), Some(1.0 + 9.0 / 4.0));
            assert_eq!([cost("d"), cost("e"), cost("a")], [None; 3]);
        }
    }

    #[test]
    fn prices_are_written_as_they_are_read_and_what_is_none_is_refused() {
        let prices = SitePrices::parse([" b : a = 0.5", "*:*=1"]).unwrap();
        assert_eq!(prices.to_string(), "*:*=1,b:a=0.5");
        let again: Vec<String> = prices.texts().collect();
        let again = SitePrices::parse(again.iter().map(String::as_str));
        assert_eq!(again, Ok(prices));
        for (texts, expected) in [
            (vec!["a:b"], "must be FROM:TO=PRICE"),
            (vec!["a=1"], "must be FROM:TO=PRICE"),
            (vec![":b=1"], "must name sites"),
            (vec!["a b:c=1"], "must name sites"),
            (vec!["a:a=1"], "must be between two sites"),
            (vec!["a:b=-1"], "a price of at least 0"),
            (vec!["a:b=inf"], "a price of at least 0"),
            (vec!["a:b=x"], "a price of at least 0"),
            (vec!["a:b=1", "a:b=2"], "given once"),
        ] {
            let error = SitePrices::parse(texts).unwrap_err().to_string();
            assert!(
                error.starts_with("site-price: ") && error.contains(expected),
                "{error}"
            );
        }
    }
}
