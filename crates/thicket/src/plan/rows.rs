//! Rows of results as JSON Lines, CSV or a table.

use serde_json::{Map, Value};
use thicket_bench::report::Table;

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Csv,
    Table,
}

/// One object of a result, keys in the order they were added.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    fields: Vec<(String, Value)>,
}

impl Row {
    /// Adds a field.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.fields.push((key.to_owned(), value.into()));
        self
    }

    /// The row as one line of JSON, keys in their order.
    pub(super) fn json(&self) -> String {
        let fields: Vec<String> = self
            .fields
            .iter()
            .map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())))
            .collect();
        format!("{{{}}}", fields.join(","))
    }

    /// Objects inside become `key_inner` columns.
    fn flat(&self) -> Vec<(String, String)> {
        let mut cells = Vec::new();
        for (key, value) in &self.fields {
            match value {
                Value::Object(inner) => cells.extend(
                    inner
                        .iter()
                        .map(|(inner_key, value)| (format!("{key}_{inner_key}"), cell(value))),
                ),
                other => cells.push((key.clone(), cell(other))),
            }
        }
        cells
    }
}

/// An object of `mean`, `sd` and `n`, or any other few fields.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(
        fields
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect::<Map<String, Value>>(),
    )
}

/// To hundredths.
pub(super) fn rounded(number: f64) -> f64 {
    // Adding 0 takes the sign off a zero.
    (number * 100.0).round() / 100.0 + 0.0
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// All rows as text, ending with a new line. For CSV the columns are those of all rows, in the order they first appear.
pub(super) fn render(rows: &[Row], format: Format) -> String {
    match format {
        Format::Json => rows.iter().fold(String::new(), |mut text, row| {
            text.push_str(&row.json());
            text.push('\n');
            text
        }),
        Format::Csv => delimited(rows, |cells| {
            let quoted: Vec<String> = cells.iter().map(|cell| quote(cell)).collect();
            quoted.join(",")
        }),
        Format::Table => aligned(rows),
    }
}

fn columns(rows: &[Vec<(String, String)>]) -> Vec<String> {
    let mut columns: Vec<String> = Vec::new();
    for (key, _) in rows.iter().flatten() {
        if !columns.contains(key) {
            columns.push(key.clone());
        }
    }
    columns
}

/// The table with its head as lines of cells, empty where a row lacks a column.
fn grid(rows: &[Row]) -> Vec<Vec<String>> {
    let rows: Vec<Vec<(String, String)>> = rows.iter().map(Row::flat).collect();
    let columns = columns(&rows);
    let mut grid = vec![columns.clone()];
    for row in &rows {
        let line = columns.iter().map(|column| {
            row.iter()
                .find(|(key, _)| key == column)
                .map_or(String::new(), |(_, value)| value.clone())
        });
        grid.push(line.collect());
    }
    grid
}

fn delimited(rows: &[Row], line: impl Fn(&[String]) -> String) -> String {
    grid(rows).iter().fold(String::new(), |mut text, cells| {
        text.push_str(&line(cells));
        text.push('\n');
        text
    })
}

fn quote(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

fn aligned(rows: &[Row]) -> String {
    let grid = grid(rows);
    let mut table = Table::new(grid[0].iter().map(String::as_str));
    for line in &grid[1..] {
        table.row(line.iter().map(|cell| shortened(cell)));
    }
    table.to_text()
}

/// Numbers with a fraction to four places, for the eye.
fn shortened(cell: &str) -> String {
    match cell.parse::<f64>() {
        Ok(number) if cell.contains('.') && number.abs() < 1e12 => format!("{number:.4}"),
        _ => cell.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let mut first = Row::default();
        first.set("brokers", 8).set("strategy", "a,b");
        first.set("jain", object([("mean", 0.5.into()), ("n", 2.into())]));
        let mut second = Row::default();
        second.set("brokers", 20).set("extra", Value::Null);
        vec![first, second]
    }

    #[test]
    fn json_is_one_object_a_line_with_keys_in_their_order() {
        assert_eq!(
            render(&rows(), Format::Json),
            "{\"brokers\":8,\"strategy\":\"a,b\",\"jain\":{\"mean\":0.5,\"n\":2}}\n{\"brokers\":20,\"extra\":null}\n"
        );
    }

    #[test]
    fn csv_has_a_column_for_every_inner_field_and_quotes_commas() {
        assert_eq!(
            render(&rows(), Format::Csv),
            "brokers,strategy,jain_mean,jain_n,extra\n8,\"a,b\",0.5,2,\n20,,,,\n"
        );
    }

    #[test]
    fn a_table_has_its_numbers_aligned_to_the_right() {
        assert_eq!(
            render(&rows(), Format::Table),
            "brokers  strategy  jain_mean  jain_n  extra\n      8  a,b          0.5000       2\n     20\n"
        );
    }
}
