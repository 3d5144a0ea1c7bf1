//! A table, and the CSV that it becomes (RFC 4180, with line feeds).

/// The data of a figure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CsvTable {
    text: String,
    columns: usize,
}

impl CsvTable {
    /// A table with these columns, whose names end with the unit.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let mut csv = Self { text: String::new(), columns: columns.len() };
        csv.row(&columns.iter().map(ToString::to_string).collect::<Vec<_>>());
        csv
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not as many cells as the table has columns.
    pub(crate) fn row(&mut self, cells: &[String]) {
        assert_eq!(cells.len(), self.columns, "a cell for each column");
        let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
        self.text.push_str(&cells.join(","));
        self.text.push('\n');
    }

    /// The file's text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
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
        let mut csv = CsvTable::new(&["name", "time_s"]);
        csv.row(&["make \"all\", twice".to_owned(), "1.5".to_owned()]);
        assert_eq!(csv.text(), "name,time_s\n\"make \"\"all\"\", twice\",1.5\n");
    }
}
