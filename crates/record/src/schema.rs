//! From rows to columns and back: each Rust type of a row's field is one Arrow type.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use serde::Serialize;

use crate::tables::RecordingTable;

/// Microseconds since 1970, UTC: a timestamp in the file, hence a date for `DuckDB` and pandas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub struct WallTime(pub i64);

/// A row of a table: a struct whose fields are the columns.
pub trait TableRow: Sized + Send + 'static {
    /// The table it belongs to.
    const TABLE: RecordingTable;

    /// The columns, in order.
    fn fields() -> Vec<Field>;

    /// Rows as columns.
    fn batch(rows: &[Self]) -> RecordBatch;

    /// Row `at` of a batch whose columns are known to be those of [`fields`](Self::fields), in this
    /// order.
    fn get(batch: &RecordBatch, at: usize) -> Self;

    /// What makes the row unique within its table; it only rises.
    fn key(&self) -> (i64, i64);

    /// When it was, on the boot-time clock.
    fn boottime_us(&self) -> i64;

    /// What is impossible in this row by itself, if anything.
    fn wrong(&self) -> Option<String> {
        None
    }
}

/// The Arrow schema of a table.
pub(crate) fn schema<R: TableRow>() -> Arc<Schema> {
    Arc::new(Schema::new(R::fields()))
}

/// A type that a column can have.
pub(crate) trait ColumnValue: Sized {
    const NULLABLE: bool = false;
    fn data_type() -> DataType;
    fn column<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;
    fn cell(column: &dyn Array, at: usize) -> Self;
}

/// The units that names of columns end with.
const UNITS: [&str; 6] = ["_bytes", "_pages", "_us", "_ms", "_100cycles", "_errno"];

/// A column by the name and type of a row's field; its unit is in the name and in the metadata.
pub(crate) fn field<T: ColumnValue>(name: &str) -> Field {
    let field = Field::new(name, T::data_type(), T::NULLABLE);
    match UNITS.iter().find(|unit| name.ends_with(**unit)) {
        Some(unit) => field.with_metadata([("unit", &unit[1..])]),
        None => field,
    }
}

macro_rules! cell {
    ($ty:ty, $data:expr, $array:ident, $read:expr, $plain:expr) => {
        impl ColumnValue for $ty {
            fn data_type() -> DataType {
                $data
            }
            fn column<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
                Arc::new($array::from_iter(values.map(|value| Some($plain(value)))).with_its_zone())
            }
            fn cell(column: &dyn Array, at: usize) -> Self {
                $read(column, at)
            }
        }
        impl ColumnValue for Option<$ty> {
            const NULLABLE: bool = true;
            fn data_type() -> DataType {
                $data
            }
            fn column<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
                Arc::new(
                    $array::from_iter(values.map(|value| value.as_ref().map($plain)))
                        .with_its_zone(),
                )
            }
            fn cell(column: &dyn Array, at: usize) -> Self {
                column.is_valid(at).then(|| $read(column, at))
            }
        }
    };
}

/// Timestamps get their time zone after they are collected; other columns have none.
trait ZonedArray: Sized {
    fn with_its_zone(self) -> Self {
        self
    }
}

impl ZonedArray for Int32Array {}
impl ZonedArray for Int64Array {}
impl ZonedArray for BooleanArray {}
impl ZonedArray for StringArray {}
impl ZonedArray for TimestampMicrosecondArray {
    fn with_its_zone(self) -> Self {
        self.with_timezone("UTC")
    }
}

cell!(
    i32,
    DataType::Int32,
    Int32Array,
    |c: &dyn Array, at| c.as_primitive::<Int32Type>().value(at),
    |v: &i32| *v
);
cell!(
    i64,
    DataType::Int64,
    Int64Array,
    |c: &dyn Array, at| c.as_primitive::<Int64Type>().value(at),
    |v: &i64| *v
);
cell!(
    bool,
    DataType::Boolean,
    BooleanArray,
    |c: &dyn Array, at| c.as_boolean().value(at),
    |v: &bool| *v
);
cell!(
    WallTime,
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
    TimestampMicrosecondArray,
    |c: &dyn Array, at| WallTime(c.as_primitive::<TimestampMicrosecondType>().value(at)),
    |v: &WallTime| v.0
);

/// Text of a column; most of it is known when the program is built.
pub(crate) type ColumnText = Cow<'static, str>;

cell!(
    ColumnText,
    DataType::Utf8,
    StringArray,
    |c: &dyn Array, at| Cow::Owned(c.as_string::<i32>().value(at).to_owned()),
    ColumnText::to_string
);
