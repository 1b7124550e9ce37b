//! The best set of brokers for a client when every topic goes to its cheapest broker of the set.

/// Costs of a client's topics: one row a broker that may be chosen, one column a topic.
#[derive(Debug, Clone)]
pub(super) struct CostTable {
    columns: usize,
    costs: Vec<f64>,
}

/// The most additions one client may cost before enumeration gives way to greedy search with swaps.
const ENUMERATION_BUDGET: u64 = 400_000;

impl CostTable {
    pub(super) fn new(columns: usize) -> Self {
        Self {
            columns,
            costs: Vec::new(),
        }
    }

    /// Adds a broker; `costs` has one entry a topic.
    pub(super) fn push_row(&mut self, costs: impl IntoIterator<Item = f64>) {
        self.costs.extend(costs);
        debug_assert_eq!(self.costs.len() % self.columns.max(1), 0);
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.costs[row * self.columns..(row + 1) * self.columns]
    }

    pub(super) fn row_count(&self) -> usize {
        self.costs.len().checked_div(self.columns).unwrap_or(0)
    }

    /// The row of `chosen` where `column` is cheapest; the first where several are.
    pub(super) fn cheapest(&self, chosen: &[usize], column: usize) -> usize {
        let mut best = chosen[0];
        for row in &chosen[1..] {
            if self.row(*row)[column] < self.row(best)[column] {
                best = *row;
            }
        }
        best
    }

    /// Rows to use: all of `fixed` and at most `free` more, so that the sum of each column's cheapest is least.
    ///
    /// `fixed` and `free` must not both be empty. The first set in lexicographic order wins among equals, so callers
    /// put first the rows they prefer.
    pub(super) fn best_set(&self, fixed: &[usize], free: usize) -> Vec<usize> {
        let rest: Vec<usize> = (0..self.row_count())
            .filter(|row| !fixed.contains(row))
            .collect();
        let free = free.min(rest.len());
        let mut search = Search::new(self, fixed, rest);
        if binomial(search.rest.len() as u64, free as u64).saturating_mul(self.columns as u64)
            <= ENUMERATION_BUDGET
        {
            search.enumerate(free);
        } else {
            search.greedy_with_swaps(free);
        }
        search.best
    }

    /// Every set, whatever it costs: for the optimum of small cases.
    pub(super) fn best_set_by_enumeration(&self, fixed: &[usize], free: usize) -> Vec<usize> {
        let rest: Vec<usize> = (0..self.row_count())
            .filter(|row| !fixed.contains(row))
            .collect();
        let free = free.min(rest.len());
        let mut search = Search::new(self, fixed, rest);
        search.enumerate(free);
        search.best
    }
}

struct Search<'a> {
    table: &'a CostTable,
    fixed: &'a [usize],
    rest: Vec<usize>,
    best: Vec<usize>,
    best_cost: f64,
}

impl<'a> Search<'a> {
    fn new(table: &'a CostTable, fixed: &'a [usize], rest: Vec<usize>) -> Self {
        Self {
            table,
            fixed,
            rest,
            best: Vec::new(),
            best_cost: f64::INFINITY,
        }
    }

    /// Cheapest cost of each column over the fixed rows.
    fn start(&self) -> Vec<f64> {
        let mut lowest = vec![f64::INFINITY; self.table.columns];
        for row in self.fixed {
            lower(&mut lowest, self.table.row(*row));
        }
        lowest
    }

    /// All sets of exactly `free` rows more: a smaller set is never better than one that holds it.
    fn enumerate(&mut self, free: usize) {
        let columns = self.table.columns;
        // One line of running minima a depth, so that a set costs only its last row.
        let mut minima = vec![0.0; columns * (free + 1)];
        minima[..columns].copy_from_slice(&self.start());
        if free == 0 {
            self.best = self.fixed.to_vec();
            return;
        }
        self.descend(&mut minima, &mut Vec::with_capacity(free), 0, free);
    }

    fn descend(&mut self, minima: &mut [f64], chosen: &mut Vec<usize>, first: usize, left: usize) {
        let columns = self.table.columns;
        for position in first..=(self.rest.len() - left) {
            let row = self.table.row(self.rest[position]);
            if left == 1 {
                let cost = sum_of_lowest(&minima[..columns], row);
                if cost < self.best_cost {
                    self.best_cost = cost;
                    self.best = self.fixed.to_vec();
                    self.best
                        .extend(chosen.iter().map(|position| self.rest[*position]));
                    self.best.push(self.rest[position]);
                }
                continue;
            }
            let (here, deeper) = minima.split_at_mut(columns);
            for ((next, low), cost) in deeper.iter_mut().zip(here.iter()).zip(row) {
                *next = if cost < low { *cost } else { *low };
            }
            chosen.push(position);
            self.descend(deeper, chosen, position + 1, left - 1);
            chosen.pop();
        }
    }

    /// Adds the row that helps most until `free` are in, then swaps single rows while that helps.
    fn greedy_with_swaps(&mut self, free: usize) {
        let mut chosen = self.fixed.to_vec();
        let mut lowest = self.start();
        for _ in 0..free {
            let Some((cost, row)) = self.best_addition(&chosen, &lowest) else {
                break;
            };
            self.best_cost = cost;
            lower(&mut lowest, self.table.row(row));
            chosen.push(row);
        }
        self.best = chosen;
        // Each swap lowers the cost; the bound only guards against rounding that goes in circles.
        const SWAP_ROUNDS: usize = 8;
        for _ in 0..SWAP_ROUNDS {
            if !self.swap_once() {
                break;
            }
        }
    }

    fn best_addition(&self, chosen: &[usize], lowest: &[f64]) -> Option<(f64, usize)> {
        self.rest
            .iter()
            .filter(|row| !chosen.contains(row))
            .map(|row| (sum_of_lowest(lowest, self.table.row(*row)), *row))
            .min_by(|a, b| a.0.total_cmp(&b.0))
    }

    fn swap_once(&mut self) -> bool {
        let mut improved = false;
        for position in self.fixed.len()..self.best.len() {
            let mut lowest = self.start();
            for (other, row) in self.best.iter().enumerate() {
                if other != position {
                    lower(&mut lowest, self.table.row(*row));
                }
            }
            let without: Vec<usize> = self.best.clone();
            if let Some((cost, row)) = self.best_addition(&without, &lowest)
                && cost < self.best_cost
            {
                self.best_cost = cost;
                self.best[position] = row;
                improved = true;
            }
        }
        improved
    }
}

fn lower(lowest: &mut [f64], row: &[f64]) {
    for (low, cost) in lowest.iter_mut().zip(row) {
        if cost < low {
            *low = *cost;
        }
    }
}

/// Four running sums, so that the additions do not wait for each other; the order is fixed, and so is the result.
fn sum_of_lowest(lowest: &[f64], row: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let mut lows = lowest.chunks_exact(4);
    let mut costs = row.chunks_exact(4);
    for (low, cost) in lows.by_ref().zip(costs.by_ref()) {
        for lane in 0..4 {
            sums[lane] += if cost[lane] < low[lane] {
                cost[lane]
            } else {
                low[lane]
            };
        }
    }
    for (low, cost) in lows.remainder().iter().zip(costs.remainder()) {
        sums[0] += if cost < low { *cost } else { *low };
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

fn binomial(from: u64, choose: u64) -> u64 {
    (0..choose).fold(1_u64, |ways, step| {
        ways.saturating_mul(from - step) / (step + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn random_table(random: &mut Random, rows: usize, columns: usize) -> CostTable {
        let mut table = CostTable::new(columns);
        for _ in 0..rows {
            table.push_row((0..columns).map(|_| random.unit()));
        }
        table
    }

    fn cost(table: &CostTable, set: &[usize]) -> f64 {
        (0..table.columns)
            .map(|column| table.row(table.cheapest(set, column))[column])
            .sum()
    }

    /// All subsets of the rows as bits, no more than `sessions` of them, holding `fixed`.
    fn lowest_cost_by_bits(table: &CostTable, fixed: &[usize], sessions: usize) -> f64 {
        (1_u32..1 << table.row_count())
            .map(|bits| {
                (0..table.row_count())
                    .filter(|row| bits & (1 << row) != 0)
                    .collect::<Vec<_>>()
            })
            .filter(|set| set.len() <= sessions && fixed.iter().all(|row| set.contains(row)))
            .map(|set| cost(table, &set))
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn enumeration_finds_the_best_of_all_sets() {
        let mut random = Random::new(5, 0);
        for (rows, columns, fixed, free) in [
            (1, 1, vec![], 1),
            (6, 3, vec![], 2),
            (8, 10, vec![], 4),
            (8, 5, vec![2, 7], 2),
            (5, 6, vec![1], 0),
            (3, 9, vec![], 7),
        ] {
            let table = random_table(&mut random, rows, columns);
            let found = table.best_set(&fixed, free);
            let expected = lowest_cost_by_bits(&table, &fixed, fixed.len() + free);
            assert!(
                (cost(&table, &found) - expected).abs() < 1e-12,
                "{rows} rows, {columns} columns, {fixed:?} fixed, {free} free"
            );
            assert!(found.len() <= fixed.len() + free);
        }
    }

    #[test]
    fn greedy_with_swaps_comes_close_and_never_uses_too_many() {
        let mut random = Random::new(9, 0);
        let mut ratio = 0.0;
        for _ in 0..50 {
            let table = random_table(&mut random, 12, 15);
            let mut search = Search::new(&table, &[], (0..12).collect());
            search.greedy_with_swaps(4);
            assert_eq!(search.best.len(), 4);
            ratio += cost(&table, &search.best) / lowest_cost_by_bits(&table, &[], 4);
        }
        assert!(ratio / 50.0 < 1.02, "{ratio}");
    }

    #[test]
    fn binomials() {
        for (from, choose, expected) in [(8, 4, 70), (20, 4, 4845), (5, 0, 1), (5, 5, 1)] {
            assert_eq!(binomial(from, choose), expected);
        }
    }
}
