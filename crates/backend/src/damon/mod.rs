//! DAMON, the kernel's monitor of accesses, by its files in sysfs: kdamonds that watch physical
//! addresses, with schemes that move pages to another node. See
//! `Documentation/admin-guide/mm/damon/usage.rst` of the kernel, 6.11 or later.

mod error;
mod plan;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use procfs_core::FromRead;
use procfs_core::process::Stat;
use ramslice_types::Bytes;
use rustix::io::Errno;
use tracing::debug;

use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed as sysfs_failed;

pub use error::DamonError;
use plan::WATCHING_SCHEME;
pub use plan::{
    AccessSampling, ControlGroup, KdamondPlan, MigrateAction, MigrateScheme, SampledRegion,
    SchemeStats,
};

const ADMIN: &str = "sys/kernel/mm/damon/admin/kdamonds";
/// The kernel answers EBUSY while another program reads or writes a file of DAMON.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// DAMON of the running system, or of a copy of its files.
#[derive(Debug, Clone)]
pub struct DamonFiles {
    root: PathBuf,
    pause: Duration,
}

impl DamonFiles {
    /// The system whose files are below `root`.
    pub fn under(root: &Path) -> Self {
        Self { root: root.to_owned(), pause: BUSY_PAUSE }
    }

    /// Thread ids of the kdamonds that are set up by way of sysfs; none for one that does not run.
    ///
    /// # Errors
    /// [`DamonError::Missing`], or what cannot be read.
    pub fn kdamonds(&self) -> Result<Vec<Option<u32>>, DamonError> {
        let count = match self.read("nr_kdamonds") {
            Err((path, error)) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DamonError::Missing(path));
            }
            read => read.map_err(unreadable)?,
        };
        let count = number::<usize>(self.path("nr_kdamonds"), &count)?;
        (0..count).map(|index| Ok(self.pid(index)?)).collect()
    }

    /// Sets up one kdamond for each plan, and starts them all. After an error there is none.
    ///
    /// # Errors
    /// [`DamonError::InUse`] if any is there already; [`DamonError::NoPhysical`] and
    /// [`DamonError::TooOld`] if the kernel cannot do it; [`DamonError::Held`] if a module of the
    /// kernel has DAMON to itself; what cannot be written.
    pub fn start(&self, plans: &[KdamondPlan]) -> Result<(), DamonError> {
        let there = self.kdamonds()?;
        if !there.is_empty() {
            return Err(DamonError::InUse { count: there.len() });
        }
        self.write("nr_kdamonds", &plans.len().to_string()).map_err(unwritable)?;
        let started = plans.iter().enumerate().try_for_each(|(index, plan)| {
            self.set_up(index, plan)?;
            self.command(index, "on").map_err(|(path, error)| match Errno::from_io_error(&error) {
                Some(Errno::BUSY) => DamonError::Held,
                _ => unwritable((path, error)).into(),
            })
        });
        if let Err(error) = started {
            self.remove()?;
            return Err(error);
        }
        Ok(())
    }

    /// Changes what a kdamond that runs does. Returns after its next aggregation.
    ///
    /// # Errors
    /// [`DamonError::Stopped`] if it does not run, or the kernel has ended it because it did not
    /// accept the plan; what cannot be written.
    pub fn commit(&self, index: usize, plan: &KdamondPlan) -> Result<(), DamonError> {
        self.set_up(index, plan)?;
        self.running_command(index, "commit")?;
        // The kernel reports no error of the plan itself: it ends the kdamond.
        self.expect_running(index)
    }

    /// What the scheme of a kdamond has done since that began.
    ///
    /// # Errors
    /// [`DamonError::Stopped`], or what cannot be read.
    pub fn stats(&self, index: usize) -> Result<SchemeStats, DamonError> {
        self.running_command(index, "update_schemes_stats")?;
        let folder = format!("{index}/contexts/0/schemes/0/stats");
        let field = |name: &str| self.number_in(&format!("{folder}/{name}"));
        Ok(SchemeStats {
            tried: Bytes(field("sz_tried")?),
            applied: Bytes(field("sz_applied")?),
            quota_exceeded: field("qt_exceeds")?,
        })
    }

    /// What a kdamond that is [watched](KdamondPlan::watched) saw of accesses in its next
    /// aggregation. Returns after that.
    ///
    /// # Errors
    /// [`DamonError::Stopped`], or what cannot be read.
    pub fn sampled_regions(&self, index: usize) -> Result<Vec<SampledRegion>, DamonError> {
        self.running_command(index, "update_schemes_tried_regions")?;
        let folder = format!("{index}/contexts/0/schemes/{WATCHING_SCHEME}/tried_regions");
        let path = self.path(&folder);
        let entries = self
            .unless_busy(|| fs::read_dir(&path)?.collect::<io::Result<Vec<_>>>())
            .map_err(|error| unreadable((path, error)))?;
        let mut regions = Vec::new();
        // Beside a folder for each region there is a file.
        for entry in entries {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            let field = |name: &str| self.number_in::<u64>(&format!("{folder}/{number}/{name}"));
            regions.push(SampledRegion {
                range: field("start")?..field("end")?,
                accesses: u32::try_from(field("nr_accesses")?).unwrap_or(u32::MAX),
            });
        }
        self.running_command(index, "clear_schemes_tried_regions")?;
        Ok(regions)
    }

    /// Stops and removes all kdamonds: only for the one who has set up all that are there.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn remove(&self) -> Result<(), DamonError> {
        let there = self.kdamonds()?;
        for (index, pid) in there.iter().enumerate() {
            if pid.is_some() {
                match self.command(index, "off") {
                    Err((_, error)) if Errno::from_io_error(&error) == Some(Errno::PERM) => {}
                    done => done.map_err(unwritable)?,
                }
            }
        }
        if !there.is_empty() {
            self.write("nr_kdamonds", "0").map_err(unwritable)?;
        }
        Ok(())
    }

    /// CPU time that a thread has taken so far; none if it is gone or may not be seen.
    pub fn cpu_time(&self, pid: u32) -> Option<Duration> {
        let file = fs::File::open(self.root.join(format!("proc/{pid}/stat"))).ok()?;
        let stat = Stat::from_read(file).ok()?;
        let ticks = rustix::param::clock_ticks_per_second();
        Some(Duration::from_secs_f64((stat.utime + stat.stime) as f64 / ticks.max(1) as f64))
    }

    /// Writes everything but the state.
    fn set_up(&self, index: usize, plan: &KdamondPlan) -> Result<(), DamonError> {
        let context = format!("{index}/contexts/0");
        // Writing a count again makes the folders below it new.
        let contexts = format!("{index}/contexts/nr_contexts");
        if self.read(&contexts).map_err(unreadable)? != "1" {
            self.write(&contexts, "1").map_err(unwritable)?;
        }
        // Any word that the kernel knows can be written; whether it can do it shows at the start.
        let able = self.read(&format!("{context}/avail_operations")).map_err(unreadable)?;
        if !able.split_whitespace().any(|word| word == "paddr") {
            return Err(DamonError::NoPhysical);
        }
        self.write(&format!("{context}/operations"), "paddr").map_err(unwritable)?;
        let actions = plan.actions();
        for (name, count) in [("targets/nr_targets", 1), ("schemes/nr_schemes", actions.len())] {
            let name = format!("{context}/{name}");
            if self.read(&name).map_err(unreadable)? != count.to_string() {
                self.write(&name, &count.to_string()).map_err(unwritable)?;
            }
        }
        for (scheme, action) in actions.into_iter().enumerate() {
            match self.write(&format!("{context}/schemes/{scheme}/action"), action) {
                Err((_, error)) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    return Err(DamonError::TooOld);
                }
                done => done.map_err(unwritable)?,
            }
        }
        for (name, text) in plan.files() {
            self.write(&format!("{context}/{name}"), &text).map_err(|(path, error)| {
                if name.ends_with("target_nid") && error.kind() == io::ErrorKind::NotFound {
                    return DamonError::TooOld;
                }
                unwritable((path, error)).into()
            })?;
        }
        Ok(())
    }

    fn number_in<T: std::str::FromStr>(&self, name: &str) -> Result<T, KernelError> {
        let text = self.read(name).map_err(unreadable)?;
        number(self.path(name), &text)
    }

    fn expect_running(&self, index: usize) -> Result<(), DamonError> {
        match self.pid(index)? {
            Some(_) => Ok(()),
            None => Err(DamonError::Stopped { index }),
        }
    }

    /// A command that the kdamond itself carries out.
    fn running_command(&self, index: usize, word: &str) -> Result<(), DamonError> {
        self.command(index, word).map_err(|(path, error)| match Errno::from_io_error(&error) {
            // Of one that does not run
            Some(Errno::INVAL) => DamonError::Stopped { index },
            _ => match error.kind() {
                io::ErrorKind::NotFound => DamonError::Stopped { index },
                _ => unwritable((path, error)).into(),
            },
        })
    }

    fn command(&self, index: usize, word: &str) -> Result<(), (PathBuf, io::Error)> {
        self.write(&format!("{index}/state"), word)
    }

    fn pid(&self, index: usize) -> Result<Option<u32>, KernelError> {
        let pid: i64 = self.number_in(&format!("{index}/pid"))?;
        Ok(u32::try_from(pid).ok().filter(|&pid| pid > 0))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(ADMIN).join(name)
    }

    fn read(&self, name: &str) -> Result<String, (PathBuf, io::Error)> {
        let path = self.path(name);
        let read = self.unless_busy(|| fs::read_to_string(&path));
        read.map(|text| text.trim().to_owned()).map_err(|error| (path, error))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), (PathBuf, io::Error)> {
        let path = self.path(name);
        debug!(path = %path.display(), text, "write");
        // Not fs::write: a file exists, or the kernel does not have it.
        let written = self.unless_busy(|| {
            let mut file = fs::OpenOptions::new().write(true).truncate(true).open(&path)?;
            io::Write::write_all(&mut file, text.as_bytes())
        });
        written.map_err(|error| (path, error))
    }

    fn unless_busy<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        for _ in 0..BUSY_TRIES {
            match call() {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                    thread::sleep(self.pause);
                }
                done => return done,
            }
        }
        call()
    }
}

fn number<T: std::str::FromStr>(path: PathBuf, text: &str) -> Result<T, KernelError> {
    text.parse().map_err(|_| KernelError::NotANumber { path, text: text.to_owned() })
}

fn unreadable((path, error): (PathBuf, io::Error)) -> KernelError {
    sysfs_failed(path, FileAccess::Read, error)
}

fn unwritable((path, error): (PathBuf, io::Error)) -> KernelError {
    sysfs_failed(path, FileAccess::Write, error)
}
