//! Tables as Parquet in directories by policy, as distributed engines take them:
//! `levels/policy=NAME/part-000000.parquet`. They have these names once all are whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use thiserror::Error;

/// Output that could not be written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// A file or directory.
    #[error("writing {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The library refused.
    #[error("writing {}: {source}", path.display())]
    Parquet {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: ParquetError,
    },
    /// Columns of different lengths, which is a mistake of this program.
    #[error("a table for {}: {source}", path.display())]
    Columns {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: ArrowError,
    },
    /// The directory has tables of this policy already.
    #[error(
        "{} exists: results of two runs would mix; name another directory, or remove it",
        path.display()
    )]
    Exists {
        /// Which.
        path: PathBuf,
    },
}

/// The tables of a run.
const TABLES: [&str; 2] = ["machines", "levels"];
/// Where tables are until all are whole: nothing that looks for tables looks there.
const INCOMPLETE: &str = ".incomplete";

/// A directory for tables.
#[derive(Debug, Clone)]
pub(crate) struct OutputDirectory {
    dir: PathBuf,
    /// `policy=NAME`.
    policy: String,
}

impl OutputDirectory {
    /// A directory without tables of this policy. What an interrupted run of it left goes.
    pub(crate) fn new(dir: &Path, policy: &str) -> Result<Self, OutputError> {
        let output = Self { dir: dir.to_owned(), policy: format!("policy={policy}") };
        if let Some(path) = TABLES.map(|table| output.table(table)).into_iter().find(|p| p.exists())
        {
            return Err(OutputError::Exists { path });
        }
        let path = output.incomplete();
        let io = |source| OutputError::Io { path: path.clone(), source };
        if path.exists() {
            fs::remove_dir_all(&path).map_err(io)?;
        }
        fs::create_dir_all(&path).map_err(io)?;
        Ok(output)
    }

    fn incomplete(&self) -> PathBuf {
        self.dir.join(INCOMPLETE).join(&self.policy)
    }

    fn table(&self, table: &str) -> PathBuf {
        self.dir.join(table).join(&self.policy)
    }

    /// Writes one part of a table; it has its name once it is whole.
    pub(crate) fn part(
        &self,
        table: &str,
        number: usize,
        columns: Vec<(&str, ArrayRef)>,
    ) -> Result<(), OutputError> {
        let dir = self.incomplete().join(table);
        let path = dir.join(format!("part-{number:06}.parquet"));
        let temporary = dir.join(format!(".part-{number:06}.tmp"));
        let io = |source| OutputError::Io { path: path.clone(), source };
        let parquet = |source| OutputError::Parquet { path: path.clone(), source };
        fs::create_dir_all(&dir).map_err(io)?;
        let batch = RecordBatch::try_from_iter(columns)
            .map_err(|source| OutputError::Columns { path: path.clone(), source })?;
        let file = File::create(&temporary).map_err(io)?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut writer = ArrowWriter::try_new(file, Arc::clone(&batch.schema()), Some(properties))
            .map_err(parquet)?;
        writer.write(&batch).map_err(parquet)?;
        writer.into_inner().map_err(parquet)?.sync_all().map_err(io)?;
        fs::rename(&temporary, &path).map_err(io)
    }

    /// Gives all tables their names: they are whole.
    pub(crate) fn finish(&self) -> Result<(), OutputError> {
        let incomplete = self.incomplete();
        for name in TABLES {
            let (from, to) = (incomplete.join(name), self.table(name));
            let io = |source| OutputError::Io { path: to.clone(), source };
            // A fleet without machines has none.
            if from.exists() {
                fs::create_dir_all(self.dir.join(name)).map_err(io)?;
                fs::rename(&from, &to).map_err(io)?;
            }
        }
        let io = |source| OutputError::Io { path: incomplete.clone(), source };
        fs::remove_dir(&incomplete).map_err(io)?;
        // Another run may have tables there.
        let _ = fs::remove_dir(self.dir.join(INCOMPLETE));
        Ok(())
    }
}
