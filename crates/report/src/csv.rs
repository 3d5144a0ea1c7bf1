//! A table, and the CSV that it becomes (RFC 4180, with line feeds).

use std::io::{self, Write};

/// The data of a figure.
pub trait FigureData {
    /// Writes it as CSV.
    ///
    /// # Errors
    /// Those of `out`.
    fn write(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// A table that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CsvTable {
    text: String,
    columns: usize,
}

impl CsvTable {
    /// A table with these columns, whose names end with the unit.
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self { text: line(columns), columns: columns.len() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not as many cells as the table has columns.
    pub(crate) fn row(&mut self, cells: &[String]) {
        assert_eq!(cells.len(), self.columns, "a cell for each column");
        self.text.push_str(&line(cells));
    }
}

impl FigureData for CsvTable {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.text.as_bytes())
    }
}

/// A table whose rows are made when they are written: a day of changes may have 100 MB of them.
pub(crate) struct CsvRows<F> {
    columns: &'static [&'static str],
    rows: F,
}

impl<F: Fn(&mut RowWriter<'_>) -> io::Result<()>> CsvRows<F> {
    /// A table with these columns; `rows` writes all rows.
    pub(crate) fn new(columns: &'static [&'static str], rows: F) -> Self {
        Self { columns, rows }
    }
}

impl<F: Fn(&mut RowWriter<'_>) -> io::Result<()>> FigureData for CsvRows<F> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(line(self.columns).as_bytes())?;
        (self.rows)(&mut RowWriter { out, columns: self.columns.len() })
    }
}

/// Takes the rows of a table.
pub(crate) struct RowWriter<'a> {
    out: &'a mut dyn Write,
    columns: usize,
}

impl RowWriter<'_> {
    /// Writes a row.
    ///
    /// # Panics
    /// If it has not as many cells as the table has columns.
    pub(crate) fn row(&mut self, cells: &[String]) -> io::Result<()> {
        assert_eq!(cells.len(), self.columns, "a cell for each column");
        self.out.write_all(line(cells).as_bytes())
    }
}

fn line(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| quoted(cell.as_ref())).collect();
    cells.join(",") + "\n"
}

fn quoted(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_stay_one_cell() {
        let cells = ["make \"all\", twice".to_owned(), "1.5".to_owned()];
        let mut kept = CsvTable::new(&["name", "time_s"]);
        kept.row(&cells);
        let made = CsvRows::new(&["name", "time_s"], |csv| csv.row(&cells));
        for data in [&kept as &dyn FigureData, &made] {
            let mut text = Vec::new();
            data.write(&mut text).unwrap();
            assert_eq!(text, b"name,time_s\n\"make \"\"all\"\", twice\",1.5\n");
        }
    }
}
