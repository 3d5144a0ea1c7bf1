//! Tables as Parquet in directories by policy, as distributed engines take them:
//! `levels/policy=NAME/part-000000.parquet`.

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
    /// The directory has something in it already.
    #[error("{} is not empty: results of two runs would mix; name a new directory", path.display())]
    NotEmpty {
        /// Which.
        path: PathBuf,
    },
}

/// A directory for tables.
#[derive(Debug, Clone)]
pub(crate) struct OutputDirectory {
    dir: PathBuf,
    policy: String,
}

impl OutputDirectory {
    /// A new or empty directory.
    pub(crate) fn new(dir: &Path, policy: &str) -> Result<Self, OutputError> {
        let io = |source| OutputError::Io { path: dir.to_owned(), source };
        fs::create_dir_all(dir).map_err(io)?;
        if fs::read_dir(dir).map_err(io)?.next().is_some() {
            return Err(OutputError::NotEmpty { path: dir.to_owned() });
        }
        Ok(Self { dir: dir.to_owned(), policy: policy.to_owned() })
    }

    /// Writes one part of a table; it has its name once it is whole.
    pub(crate) fn part(
        &self,
        table: &str,
        number: usize,
        columns: Vec<(&str, ArrayRef)>,
    ) -> Result<(), OutputError> {
        let dir = self.dir.join(table).join(format!("policy={}", self.policy));
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
}
