//! Tables for reading and for `awk`: aligned columns, two blanks between, no lines.

use std::io::{self, Write};

use super::screen::OutputStyle;

/// Which edge a column keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnAlign {
    /// The left one, as for words.
    Left,
    /// The right one, as for numbers.
    Right,
}

/// A table under construction.
pub struct TextTable {
    columns: Vec<(&'static str, ColumnAlign)>,
    rows: Vec<Vec<String>>,
    has_header: bool,
}

impl TextTable {
    /// A table with these headings.
    pub fn new(columns: &[(&'static str, ColumnAlign)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new(), has_header: true }
    }

    /// The same without the line of headings.
    #[must_use]
    pub fn without_header(self) -> Self {
        Self { has_header: false, ..self }
    }

    /// Adds a row of as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Writes it, the header in bold.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn write(&self, out: &mut dyn Write, screen: &OutputStyle) -> io::Result<()> {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, (title, _))| {
                let cells = self.rows.iter().map(|row| row[at].chars().count());
                let title = self.has_header.then(|| title.chars().count());
                cells.chain(title).max().unwrap_or(0)
            })
            .collect();
        let line = |cells: Vec<&str>| {
            let mut text = String::new();
            for ((cell, width), (_, align)) in cells.iter().zip(&widths).zip(&self.columns) {
                match align {
                    ColumnAlign::Left => text.push_str(&format!("{cell:<width$}  ")),
                    ColumnAlign::Right => text.push_str(&format!("{cell:>width$}  ")),
                }
            }
            text.trim_end().to_owned()
        };
        let head = line(self.columns.iter().map(|(title, _)| *title).collect());
        if self.has_header {
            writeln!(out, "{}", screen.bold(&head))?;
        }
        for row in &self.rows {
            writeln!(out, "{}", line(row.iter().map(String::as_str).collect()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_clean() {
        let mut table = TextTable::new(&[
            ("id", ColumnAlign::Right),
            ("name", ColumnAlign::Left),
            ("c", ColumnAlign::Left),
        ]);
        table.row(vec!["7".to_owned(), "∞".to_owned(), String::new()]);
        table.row(vec!["128".to_owned(), "Normal".to_owned(), "x".to_owned()]);
        let mut out = Vec::new();
        table.write(&mut out, &OutputStyle::plain()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), " id  name    c\n  7  ∞\n128  Normal  x\n");
        let mut out = Vec::new();
        table.without_header().write(&mut out, &OutputStyle::plain()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  7  ∞\n128  Normal  x\n");
    }
}
