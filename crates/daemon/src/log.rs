//! Where the log goes: to the journal with its fields, or to stderr.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Whether stderr is the journal, as it is under systemd.
fn under_systemd() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Starts logging everything of at least this `level`.
pub fn init(level: LevelFilter) {
    let registry = tracing_subscriber::registry().with(level);
    if under_systemd() {
        match tracing_journald::layer() {
            Ok(journal) => {
                return registry
                    .with(journal.with_field_prefix(Some("RAMSLICE".to_owned())))
                    .init();
            }
            Err(error) => {
                eprintln!("ramsliced: the journal cannot be reached ({error}): logging to stderr");
            }
        }
    }
    let plain = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false);
    // The journal adds the time itself.
    if under_systemd() {
        registry.with(plain.without_time()).init();
    } else {
        registry.with(plain).init();
    }
}
