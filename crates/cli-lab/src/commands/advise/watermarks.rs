//! The settings of the policy `watermarks` that keep a size of memory on.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ramslice_cli::profile_files;
use ramslice_policy::settings::WatermarksConfig;
use ramslice_policy::{MachineTotals, SliceEconomics, tune};
use ramslice_record::Recording;
use ramslice_types::Bytes;

/// The profile by which it is judged how long a slice should stay off; as for `sim tune`.
const PROFILE: &str = "thesis-parc";

/// The watermarks with which `memory` is on, as far as the recorded work allows.
///
/// # Errors
/// If nothing was recorded of slices, or of fewer than two samples.
pub(super) fn of(
    recordings: &[PathBuf],
    memory: Bytes,
    timeout: Duration,
) -> Result<WatermarksConfig> {
    let (mut looks, mut sizes) = (Vec::new(), None);
    for dir in recordings {
        for machine in Recording::open(dir)?.machines() {
            let machine = machine?;
            sizes = Some((machine.info.slice_bytes, machine.info.page_bytes));
            let totals = MachineTotals::of(
                &machine.zones,
                &machine.snapshot.slices,
                machine.info.slice_pages(),
            );
            looks.push((machine.snapshot.time, totals));
        }
    }
    looks.sort_by_key(|(time, _)| *time);
    let (slice, page) = sizes.context("they need a recording with slices")?;
    let profile = profile_files::load(PROFILE)?;
    let state = profile_files::state(&profile, None)?;
    let machine = profile.machine.as_ref().context("the profile names no machine")?;
    let economics = SliceEconomics::new(&state, machine, slice, page)?;
    let tuned = tune(&looks, timeout, &economics, slice, page)
        .context("they need two samples with slices")?;
    Ok(tuned.with_memory(memory.0 as f64 / Bytes::MIB.0 as f64).watermarks)
}

/// Writes them as settings of ramsliced, to be pasted.
///
/// # Errors
/// What writing fails with.
pub(crate) fn write_watermarks(marks: &WatermarksConfig, out: &mut dyn Write) -> io::Result<()> {
    // No setting of its own: other profiles than DRAM's refuse it, and so do a policy's settings.
    writeln!(
        out,
        "# For slices of this size: with a profile of DRAM, resize_slices = false in [energy] \
         keeps it"
    )?;
    writeln!(out, "[watermarks]")?;
    // Every digit: rounded, a high one may come too close to its low one.
    for (name, value) in [
        ("free_low_mib", marks.free_low_mib),
        ("free_high_mib", marks.free_high_mib),
        ("cache_free_low_mib", marks.cache_free_low_mib),
        ("cache_free_high_mib", marks.cache_free_high_mib),
        ("timeout_seconds", marks.timeout_seconds),
    ] {
        if let Some(value) = value {
            writeln!(out, "{name} = {value}")?;
        }
    }
    Ok(())
}
