//! A table of figures.

/// Rows under a header; the first column is text, the others are aligned to the right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self {
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells that are missing stay empty.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.header.len(), String::new());
        self.rows.push(cells);
    }

    /// Aligned columns.
    #[must_use]
    pub fn to_text(&self) -> String {
        let all = || std::iter::once(&self.header).chain(&self.rows);
        let widths: Vec<usize> = (0..self.header.len())
            .map(|column| {
                all()
                    .map(|row| row[column].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let line = |row: &Vec<String>| {
            let cells = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| {
                    if column == 0 {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                });
            format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        };
        all().map(line).collect()
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

/// Text as it may stand in HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
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
    fn html_is_escaped() {
        let mut table = Table::new(["a<b"]);
        table.row(["\"&\""]);
        assert!(table.to_html().contains("<th>a&lt;b</th>"));
        assert!(table.to_html().contains("<td>&quot;&amp;&quot;</td>"));
    }
}
