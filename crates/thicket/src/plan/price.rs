//! What traffic between sites costs.

use std::collections::BTreeMap;

use super::recording::ClusterLine;

/// Seconds of a month of thirty days.
const MONTH_S: f64 = 30.0 * 24.0 * 3600.0;
const GB: f64 = 1e9;
/// What a message between sites counts as if only its price is given.
const SITE_COST: f64 = 10.0;

/// How the cost of traffic is counted.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Cost of traffic between sites")]
pub(super) struct Prices {
    /// The site of a node; repeat it. The recording may say so too. Nodes without one are a site each.
    #[arg(long, value_name = "NODE=SITE", value_parser = parse_site)]
    site: Vec<(String, String)>,
    /// Price of a GB (10^9 bytes) that goes from one site to another; with it a month of thirty days is counted.
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true)]
    price_per_gb: Option<f64>,
    /// A message between sites counts as so many between nodes of one site: everything is also planned by that, beside the plan that does not
    /// weigh where its traffic goes [default with --price-per-gb: 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    site_cost: Option<f64>,
    /// Bytes of a message with what it takes to carry it [default: the payload on average that the recording tells].
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
    /// Of one message a second, for a month.
    price: f64,
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

    /// What a message from one node to another costs, if sites are to be weighed: a price was given, or `--site-cost`.
    ///
    /// # Errors
    /// The cost is below 1.
    pub(super) fn cost_between(
        &self,
        sites: &BTreeMap<String, String>,
    ) -> anyhow::Result<Option<impl Fn(&str, &str) -> f64 + 'static>> {
        let by_default = self.price_per_gb.map(|_| SITE_COST);
        let Some(cost) = self.site_cost.or(by_default) else {
            return Ok(None);
        };
        anyhow::ensure!(
            cost.is_finite() && cost >= 1.0,
            "site-cost: must be at least 1, not {cost}"
        );
        let sites = sites.clone();
        Ok(Some(move |from: &str, to: &str| {
            if from == to || site_of(&sites, from) == site_of(&sites, to) {
                1.0
            } else {
                cost
            }
        }))
    }

    /// `None`: no price was given.
    ///
    /// # Errors
    /// A number is negative, the size of messages is not known, or a site is that of a node that is not there.
    pub(super) fn tariff(&self, cluster: &ClusterLine) -> anyhow::Result<Option<Tariff>> {
        let Some(per_gb) = self.price_per_gb else {
            anyhow::ensure!(
                self.message_bytes.is_none(),
                "price-per-gb: must be given with --message-bytes"
            );
            return Ok(None);
        };
        let bytes = self.message_bytes.or(cluster.message_bytes);
        let Some(bytes) = bytes else {
            anyhow::bail!("message-bytes: must be given, the recording does not tell it");
        };
        for (name, number) in [("price-per-gb", per_gb), ("message-bytes", bytes)] {
            let is_good = number.is_finite() && number >= 0.0;
            anyhow::ensure!(is_good, "{name}: must be at least 0, not {number}");
        }
        let sites = self.sites(cluster)?;
        let price = bytes * MONTH_S / GB * per_gb;
        Ok(Some(Tariff { sites, price }))
    }
}

impl Tariff {
    /// What a month costs. `flows[from][to]`: messages per second between `nodes`.
    pub(super) fn month(&self, nodes: &[String], flows: &[Vec<f64>]) -> f64 {
        let mut between = 0.0;
        for (from, row) in nodes.iter().zip(flows) {
            for (to, rate) in nodes.iter().zip(row) {
                if site_of(&self.sites, from) != site_of(&self.sites, to) {
                    between += rate;
                }
            }
        }
        between * self.price
    }
}

/// A node without a site is one.
fn site_of<'a>(sites: &'a BTreeMap<String, String>, node: &'a str) -> (bool, &'a str) {
    match sites.get(node) {
        Some(site) => (true, site),
        None => (false, node),
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
