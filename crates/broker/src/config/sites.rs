//! Keys of the sites of nodes.

use thicket_placement::{SitePrices, check_site};

use super::faults::Faults;
use super::values::invalid;
use super::{ConfigError, Settings};

/// The node's site, and the prices between sites.
pub(super) fn check(settings: &Settings, faults: &mut Faults) -> (Option<String>, SitePrices) {
    let site = settings.site.as_deref().map(checked_site).transpose();
    let texts = settings.site_price.iter().flatten().map(String::as_str);
    let prices =
        SitePrices::parse(texts).map_err(|error| invalid("site_price", error.value, error.rule));
    let prices = faults.or_default(prices);
    if settings.site.is_none() && !prices.is_empty() {
        faults.add(ConfigError::Conflict(
            "site_price says what it costs to send to other sites, but site does not say at which one this node is: expected site = \"NAME\"",
        ));
    }
    (faults.or_default(site), prices)
}

fn checked_site(name: &str) -> Result<String, ConfigError> {
    check_site(name).map_err(|expected| invalid("site", format!("{name:?}"), expected))?;
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(
        site: Option<&str>,
        prices: &[&str],
    ) -> Result<(Option<String>, SitePrices), String> {
        let settings = Settings {
            site: site.map(str::to_owned),
            site_price: Some(prices.iter().map(|it| (*it).to_owned()).collect()),
            ..Settings::default()
        };
        let mut faults = Faults::default();
        let found = check(&settings, &mut faults);
        faults.end(found).map_err(|error| error.to_string())
    }

    #[test]
    fn a_site_and_prices_are_taken_over_or_refused_with_what_was_expected() {
        let (site, prices) =
            checked(Some("milan"), &["milan:rome=0.02", "*:*=0.01"]).expect("good");
        assert_eq!(site.as_deref(), Some("milan"));
        assert_eq!(prices.price(Some("milan"), Some("rome")), 0.02);
        for (site, prices, words) in [
            (Some("a:b"), &[][..], ["site = ", "1 to 64 bytes"]),
            (Some(""), &[], ["site = ", "1 to 64 bytes"]),
            (None, &["a:b=1"], ["site_price", "expected site = \"NAME\""]),
            (
                Some("a"),
                &["a:b"],
                ["site_price = \"a:b\"", "FROM:TO=PRICE"],
            ),
            (
                Some("a"),
                &["a:b=-1"],
                ["site_price = \"a:b=-1\"", "at least 0"],
            ),
        ] {
            let error = checked(site, prices).expect_err("bad");
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
}
