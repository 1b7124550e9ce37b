//! The tables of all commands, so that all are printed alike. They are in this crate because it is the lowest one that the generator, the lab and the
//! command line share.

use comfy_table::{CellAlignment, ContentArrangement, presets};

/// Rows under a header. A column of numbers is aligned right, any other left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The text of a table with complete rows.
#[must_use]
pub fn render(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new(header.iter().copied());
    for row in rows {
        table.row(row.iter().map(String::as_str));
    }
    table.to_text()
}

/// A text from outside as it may be shown: characters that move the cursor, end the line or reorder what is around them are replaced.
#[must_use]
pub fn visible(text: &str) -> String {
    let is_hidden = |it: char| it.is_control() || is_bidi(it);
    text.replace(is_hidden, "\u{fffd}")
}

/// Whether a character controls the direction of text (Unicode Standard Annex 9).
const fn is_bidi(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

impl Table {
    /// A table with these columns.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self {
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.header.len(), String::new());
        self.rows.push(cells);
    }

    /// Aligned columns, two spaces apart, without rules: each row is one complete line, for `grep` and `awk`.
    #[must_use]
    pub fn to_text(&self) -> String {
        let one_line =
            |row: &Vec<String>| -> Vec<String> { row.iter().map(|cell| visible(cell)).collect() };
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(one_line(&self.header))
            .add_rows(self.rows.iter().map(one_line));
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if self.is_of_numbers(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        format!("{}\n", table.trim_fmt())
    }

    /// Whether every cell of a column is a number or empty, and some cell is a number.
    fn is_of_numbers(&self, column: usize) -> bool {
        let cells = || {
            let cells = self.rows.iter().map(|row| row[column].as_str());
            cells.filter(|cell| !matches!(*cell, "" | "-"))
        };
        cells().next().is_some() && cells().all(is_number)
    }

    /// An HTML table.
    #[must_use]
    pub fn to_html(&self) -> String {
        let row = |tag: &str, cells: &Vec<String>| {
            let cells: String = cells
                .iter()
                .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
                .collect();
            format!("<tr>{cells}</tr>\n")
        };
        let body: String = self.rows.iter().map(|cells| row("td", cells)).collect();
        format!(
            "<table>\n<thead>{}</thead>\n<tbody>\n{body}</tbody>\n</table>\n",
            row("th", &self.header)
        )
    }
}

/// Escapes text for HTML and SVG.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Whether a cell starts with a number, with or without a unit: `12`, `-0.5`, `1,234 (5)`, `3 %`, `10ms`; an address does not count.
fn is_number(cell: &str) -> bool {
    let word = cell.split_whitespace().next().unwrap_or_default();
    let digits = word.trim_end_matches(|last: char| last.is_alphabetic() || last == '%');
    digits.contains(|digit: char| digit.is_ascii_digit())
        && digits.replace(',', "").parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_short_rows_filled() {
        let mut table = Table::new(["broker", "us"]);
        table.row(["relay", "0.11"]);
        table.row(["x"]);
        assert_eq!(table.to_text(), "broker    us\nrelay   0.11\nx\n");
    }

    #[test]
    fn numbers_are_aligned_to_the_right_and_text_to_the_left() {
        let rows = [
            ["längste", "1", "-", "127.0.0.1:1883", "10 ms"],
            ["日本", "1,024", "-0.5 ± 0.1", "-", "9.5 ms"],
        ];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            render(&["NAME", "COUNT", "CHANGE", "ADDRESS", "AGE"], &rows),
            "NAME     COUNT      CHANGE  ADDRESS            AGE\n\
             längste      1           -  127.0.0.1:1883   10 ms\n\
             日本     1,024  -0.5 ± 0.1  -               9.5 ms\n"
        );
    }

    #[test]
    fn a_row_is_one_line_whatever_its_cells_hold() {
        let mut table = Table::new(["topic", "bytes"]);
        table.row(["a\nb\u{1b}[31m", "1"]);
        table.row(["x".repeat(300), "20".to_owned()]);
        let text = table.to_text();
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains("a\u{fffd}b\u{fffd}[31m"));
        assert!(!text.contains(['|', '+', '\u{1b}']));
    }

    #[test]
    fn a_table_without_rows_is_its_header() {
        assert_eq!(render(&["NAME", "N"], &[]), "NAME  N\n");
    }

    #[test]
    fn html_is_escaped() {
        let mut table = Table::new(["a<b"]);
        table.row(["\"&\""]);
        assert!(table.to_html().contains("<th>a&lt;b</th>"));
        assert!(table.to_html().contains("<td>&quot;&amp;&quot;</td>"));
    }
}
