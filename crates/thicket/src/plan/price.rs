//! What traffic between sites costs.

use std::collections::BTreeMap;

use anyhow::Context as _;
use thicket_placement::SitePrices;

use super::recording::ClusterLine;

/// Seconds of a month of thirty days.
const MONTH_S: f64 = 30.0 * 24.0 * 3600.0;
const GB: f64 = 1e9;

/// How the cost of traffic is counted.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Cost of traffic between sites")]
pub(super) struct Prices {
    /// Site of a node; may be repeated. A recording may name sites too. Each node without one is a site of its own.
    #[arg(long, value_name = "NODE=SITE", value_parser = parse_site)]
    site: Vec<(String, String)>,
    /// Price of a GB (10^9 bytes) sent from one site to another; adds the cost of a month of thirty days. Prices in the recording are ignored
    /// then.
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true)]
    price_per_gb: Option<f64>,
    /// Price of a GB from one site to another, `*` for any, as in the configuration of nodes; may be repeated. `--price-per-gb` applies to the others.
    #[arg(long, value_name = "FROM:TO=PRICE")]
    site_price: Vec<String>,
    /// Weight of a message between the two sites with the highest price, where one between nodes of a site has weight 1, and others are in proportion:
    /// adds plans by these weights to those that ignore sites [default with prices: 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    site_cost: Option<f64>,
    /// Bytes of a message with all headers [default: the mean payload in the recording].
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    message_bytes: Option<f64>,
}

fn parse_site(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((node, site)) if !node.is_empty() && !site.is_empty() => {
            Ok((node.to_owned(), site.to_owned()))
        }
        _ => Err("expected NODE=SITE".into()),
    }
}

/// Counts what flows cost.
#[derive(Debug)]
pub(super) struct Tariff {
    sites: BTreeMap<String, String>,
    prices: SitePrices,
    /// GB of one message a second, in a month.
    gb: f64,
}

impl Prices {
    /// Sites by node, as the recording and the arguments have them.
    ///
    /// # Errors
    /// A site is that of a node that is not there.
    pub(super) fn sites(&self, cluster: &ClusterLine) -> anyhow::Result<BTreeMap<String, String>> {
        let mut sites = cluster.sites.clone();
        sites.extend(self.site.iter().cloned());
        if let Some(stray) = sites.keys().find(|node| !cluster.nodes.contains(node)) {
            let nodes = cluster.nodes.join(", ");
            anyhow::bail!("site: must be of one of {nodes}, not {stray}");
        }
        Ok(sites)
    }

    fn are_given(&self) -> bool {
        self.price_per_gb.is_some() || !self.site_price.is_empty()
    }

    /// Those of the arguments, else of the recording.
    fn prices(&self, cluster: &ClusterLine) -> anyhow::Result<SitePrices> {
        if !self.are_given() {
            let texts = cluster.site_price.iter().map(String::as_str);
            return SitePrices::parse(texts).context("the recording's prices are not valid");
        }
        let others = self.price_per_gb.map(|price| format!("*:*={price}"));
        if let Some(price) = self.price_per_gb {
            at_least_0("price-per-gb", price)?;
        }
        let texts = self.site_price.iter().chain(&others);
        Ok(SitePrices::parse(texts.map(String::as_str))?)
    }

    /// What a message from one node to another costs, if sites are to be weighed: there are prices, or `--site-cost`.
    ///
    /// # Errors
    /// The cost is below 1, or a price is not valid.
    pub(super) fn cost_between(
        &self,
        cluster: &ClusterLine,
    ) -> anyhow::Result<Option<impl Fn(&str, &str) -> f64 + 'static>> {
        let mut prices = self.prices(cluster)?;
        if prices.is_empty() && self.site_cost.is_none() {
            return Ok(None);
        }
        if prices.is_empty() {
            // All sites are equally far.
            prices = SitePrices::parse(["*:*=1"])?;
        }
        let highest = self.site_cost.unwrap_or(SitePrices::SITE_COST);
        anyhow::ensure!(
            highest.is_finite() && highest >= 1.0,
            "site-cost: must be at least 1, not {highest}"
        );
        let sites = self.sites(cluster)?;
        Ok(Some(move |from: &str, to: &str| {
            if from == to {
                return 1.0;
            }
            let site = |node: &str| sites.get(node).map(String::as_str);
            prices.cost(site(from), site(to), highest).unwrap_or(1.0)
        }))
    }

    /// `None`: there are no prices, or they are those of a recording that does not tell the size of messages.
    ///
    /// # Errors
    /// A number is negative, the size of messages is not known, or a site is that of a node that is not there.
    pub(super) fn tariff(&self, cluster: &ClusterLine) -> anyhow::Result<Option<Tariff>> {
        let prices = self.prices(cluster)?;
        let bytes = self.message_bytes.or(cluster.message_bytes);
        if prices.is_empty() {
            anyhow::ensure!(
                self.message_bytes.is_none(),
                "price-per-gb: must be given with --message-bytes"
            );
            return Ok(None);
        }
        let Some(bytes) = bytes else {
            anyhow::ensure!(
                !self.are_given(),
                "message-bytes: must be given, the recording does not tell it"
            );
            return Ok(None);
        };
        at_least_0("message-bytes", bytes)?;
        Ok(Some(Tariff {
            sites: self.sites(cluster)?,
            prices,
            gb: bytes * MONTH_S / GB,
        }))
    }
}

fn at_least_0(name: &str, number: f64) -> anyhow::Result<()> {
    let is_good = number.is_finite() && number >= 0.0;
    anyhow::ensure!(is_good, "{name}: must be at least 0, not {number}");
    Ok(())
}

impl Tariff {
    /// What a month costs. `flows[from][to]`: messages per second between `nodes`.
    pub(super) fn month(&self, nodes: &[String], flows: &[Vec<f64>]) -> f64 {
        let site = |node: &String| self.sites.get(node).map(String::as_str);
        let mut month = 0.0;
        for (from, row) in nodes.iter().zip(flows) {
            for (to, rate) in nodes.iter().zip(row).filter(|(to, _)| *to != from) {
                month += rate * self.gb * self.prices.price(site(from), site(to));
            }
        }
        month
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(site: &[(&str, &str)], per_gb: Option<f64>, bytes: Option<f64>) -> Prices {
        let site = site.iter();
        Prices {
            site: site
                .map(|(node, site)| ((*node).into(), (*site).into()))
                .collect(),
            price_per_gb: per_gb,
            site_price: Vec::new(),
            site_cost: None,
            message_bytes: bytes,
        }
    }

    fn cluster() -> ClusterLine {
        ClusterLine {
            nodes: ["a", "b", "c"].map(str::to_owned).to_vec(),
            ..ClusterLine::default()
        }
    }

    #[test]
    fn only_what_leaves_a_site_costs() {
        // 1000 messages a second of 1000 bytes are 2592 GB in thirty days.
        let prices = prices(&[("a", "x"), ("b", "x")], Some(0.1), Some(1000.0));
        let cluster = cluster();
        let tariff = prices.tariff(&cluster).unwrap().unwrap();
        let mut flows = vec![vec![0.0; 3]; 3];
        flows[0][1] = 5000.0;
        assert_eq!(tariff.month(&cluster.nodes, &flows), 0.0);
        flows[2][0] = 600.0;
        flows[1][2] = 400.0;
        let month = tariff.month(&cluster.nodes, &flows);
        assert!((month - 259.2).abs() < 1e-9, "{month}");
    }

    #[test]
    fn prices_of_the_recording_hold_unless_others_are_given() {
        let cluster = ClusterLine {
            sites: [("a", "x"), ("b", "y"), ("c", "z")]
                .map(|(node, site)| (node.to_owned(), site.to_owned()))
                .into(),
            site_price: vec!["x:y=2".into(), "*:*=1".into()],
            message_bytes: Some(GB / MONTH_S),
            ..cluster()
        };
        // A message a second from each node to each other one, so a GB a month.
        let flows = vec![vec![1.0; 3]; 3];
        let month = |prices: &Prices| {
            let tariff = prices.tariff(&cluster).unwrap().unwrap();
            tariff.month(&cluster.nodes, &flows)
        };
        assert!((month(&prices(&[], None, None)) - 7.0).abs() < 1e-9);
        assert!((month(&prices(&[("b", "x")], None, None)) - 4.0).abs() < 1e-9);
        assert!((month(&prices(&[], Some(0.5), None)) - 3.0).abs() < 1e-9);
        let some = Prices {
            site_price: vec!["z:x=5".into()],
            ..prices(&[], None, None)
        };
        assert!((month(&some) - 5.0).abs() < 1e-9);
        let cost = prices(&[], None, None)
            .cost_between(&cluster)
            .unwrap()
            .unwrap();
        assert_eq!(
            [cost("a", "b"), cost("b", "a"), cost("a", "a")],
            [10.0, 5.5, 1.0]
        );
        let quiet = ClusterLine {
            message_bytes: None,
            ..cluster.clone()
        };
        assert!(prices(&[], None, None).tariff(&quiet).unwrap().is_none());
    }

    #[test]
    fn what_is_no_good_is_named() {
        for (prices, expected) in [
            (prices(&[], None, Some(1.0)), "price-per-gb: must be given"),
            (prices(&[], Some(1.0), None), "message-bytes: must be given"),
            (
                prices(&[], Some(-1.0), Some(1.0)),
                "price-per-gb: must be at least 0",
            ),
            (
                prices(&[], Some(1.0), Some(f64::NAN)),
                "message-bytes: must be at least 0",
            ),
            (
                prices(&[("d", "x")], Some(1.0), Some(1.0)),
                "site: must be of one of a, b, c, not d",
            ),
        ] {
            let error = prices.tariff(&cluster()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
