//! Tables for people: a head, columns as wide as their widest cell.

/// Two blanks between columns.
const GAP: usize = 2;

/// Lines of text, the head first. Every row has a cell for each heading.
pub fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let mut widths = vec![0; head.len()];
    for row in std::iter::once(&head).chain(rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line.push_str(&format!("{cell:<0$}", width + GAP));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![
            vec!["a".into(), "1".into()],
            vec!["längste".into(), "22".into()],
        ];
        assert_eq!(
            render(&["NAME", "N"], &rows),
            "NAME     N\na        1\nlängste  22\n"
        );
    }
}
