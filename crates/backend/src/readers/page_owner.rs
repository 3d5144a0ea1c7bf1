//! `/sys/kernel/debug/page_owner`: who allocated a page. Each read gives one record; the file's
//! position is a page frame.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use ramslice_types::{AllocationSite, PageAllocation, PageRun, Pfn};
use rustix::io::Errno;
use tracing::debug;

use crate::error::KernelError;

/// A record is no longer than a page.
const RECORD_BYTES: usize = 4096;

/// Who allocated the pages of `runs`, which are in order; `None` if the kernel does not know.
pub(crate) fn sites(
    path: &Path,
    runs: &[&PageRun],
) -> Result<Option<Vec<AllocationSite>>, KernelError> {
    let failed = |source| KernelError::PageOwner { path: path.to_owned(), source };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            debug!(path = %path.display(), "page_owner is off");
            return Ok(None);
        }
        // Not even root: a mode that denies others is EACCES.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
            return Err(KernelError::LockedDown { path: path.to_owned() });
        }
        Err(source) => return Err(failed(source)),
    };
    let mut found = Vec::new();
    for (start, end) in ranges(runs) {
        read_range(&mut file, start, end, &mut found).map_err(failed)?;
    }
    Ok(Some(AllocationSite::group(found)))
}

/// Neighbouring runs as one range, so that the position is set as rarely as can be.
fn ranges(runs: &[&PageRun]) -> Vec<(Pfn, Pfn)> {
    let mut ranges: Vec<(Pfn, Pfn)> = Vec::new();
    for run in runs {
        match ranges.last_mut() {
            Some((_, end)) if *end == run.pfn => *end = run.end(),
            _ => ranges.push((run.pfn, run.end())),
        }
    }
    ranges
}

/// Records of allocations that begin at `start` or after and before `end`.
fn read_range(
    file: &mut (impl Read + Seek),
    start: Pfn,
    end: Pfn,
    found: &mut Vec<PageAllocation>,
) -> io::Result<()> {
    // Position 0 stands for the first page of all; page frame 0 is never allocated.
    file.seek(SeekFrom::Start(start.0.max(1)))?;
    let mut buffer = [0; RECORD_BYTES];
    loop {
        let length = match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let text = String::from_utf8_lossy(&buffer[..length]);
        // Nothing is read past the last page; what cannot be understood is no reason to go on for
        // ever.
        let Some(record) = parse(&text) else { return Ok(()) };
        if record.pfn >= end {
            return Ok(());
        }
        // The file moves on by itself, to the page after the one it reported.
        found.push(record);
    }
}

/// One record, as `print_page_owner()` in `mm/page_owner.c` writes it.
fn parse(text: &str) -> Option<PageAllocation> {
    let mut lines = text.lines();
    let head = lines.next()?.strip_prefix("Page allocated via order ")?;
    let (order, head) = head.split_once(',')?;
    let gfp = between(head, "(", ")")?;
    let pid = between(head, "pid ", ",")?;
    // A process may have parentheses in its name.
    let process = after(after(head, "tgid ")?, "(")?.rsplit_once("), ts ")?.0;
    let pfn = between(lines.next()?, "PFN 0x", " ")?;
    Some(PageAllocation {
        pfn: Pfn(u64::from_str_radix(pfn, 16).ok()?),
        order: order.trim().parse().ok()?,
        gfp: gfp.to_owned(),
        process: process.to_owned(),
        pid: pid.parse().ok()?,
        stack: lines
            .take_while(|line| line.starts_with(' '))
            .map(|line| function(line.trim()).to_owned())
            .collect(),
    })
}

/// `alloc_pages+0x1c/0x40 [module]` without the offset, which would only distinguish one build from
/// another.
fn function(line: &str) -> &str {
    line.split(['+', ' ']).next().unwrap_or(line)
}

fn after<'a>(text: &'a str, what: &str) -> Option<&'a str> {
    Some(text.split_once(what)?.1)
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    Some(after(text, open)?.split_once(close)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::{PageClass, Pages, Reason};

    const RECORD: &str = "Page allocated via order 2, \
        mask 0xd20c0(__GFP_IO|__GFP_FS|__GFP_NOWARN), pid 312, \
        tgid 310 (Web (Content)), ts 8612345678 ns\n\
        PFN 0x24801 type Unmovable Block 292 type Unmovable \
        Flags 0x4000000000000240(workingset|head|zone=1)\n\
        \x20post_alloc_hook+0x1a/0x20\n\
        \x20allocate_slab+0x6e/0x300\n\
        \x20jbd2_journal_add_journal_head+0x20/0x150 [jbd2]\n\
        Page has been migrated, last migrate reason: compaction\n\
        Charged to memcg user.slice\n\n";

    /// Records at page frames, read as the kernel gives them: one at a time, from the position on.
    struct FakePageOwner {
        pfns: Vec<u64>,
        at: u64,
        reads: u32,
    }

    impl Seek for FakePageOwner {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            let SeekFrom::Start(at) = to else { panic!("only from the start") };
            self.at = at;
            Ok(at)
        }
    }

    impl Read for FakePageOwner {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.reads += 1;
            let Some(pfn) = self.pfns.iter().find(|&&pfn| pfn >= self.at) else { return Ok(0) };
            self.at = pfn + 1;
            let text = RECORD.replace("0x24801", &format!("{pfn:#x}"));
            buffer[..text.len()].copy_from_slice(text.as_bytes());
            Ok(text.len())
        }
    }

    #[test]
    fn a_record_is_taken_apart() {
        let record = parse(RECORD).unwrap();
        assert_eq!((record.pfn, record.order, record.pid), (Pfn(0x24801), 2, 312));
        assert_eq!(record.process, "Web (Content)");
        assert_eq!(record.gfp, "__GFP_IO|__GFP_FS|__GFP_NOWARN");
        assert_eq!(
            record.stack,
            ["post_alloc_hook", "allocate_slab", "jbd2_journal_add_journal_head"]
        );
        assert_eq!(parse(""), None);
        assert_eq!(parse("something else\n"), None);
    }

    #[test]
    fn only_the_range_is_read() {
        let mut fake = FakePageOwner { pfns: vec![3, 8, 9, 12, 40, 41], at: 0, reads: 0 };
        let mut found = Vec::new();
        read_range(&mut fake, Pfn(8), Pfn(13), &mut found).unwrap();
        assert_eq!(found.iter().map(|one| one.pfn.0).collect::<Vec<_>>(), [8, 9, 12]);
        assert_eq!(fake.reads, 4, "three records, and the one that ends it");
        found.clear();
        read_range(&mut fake, Pfn(42), Pfn(100), &mut found).unwrap();
        assert!(found.is_empty());
    }

    #[test]
    fn neighbouring_runs_are_read_in_one_go() {
        let run = |pfn, pages| PageRun {
            reason: Reason::Slab,
            ..PageRun::of_class(Pfn(pfn), Pages(pages), PageClass::Slab)
        };
        let runs = [run(4, 2), run(6, 1), run(9, 1)];
        assert_eq!(ranges(&runs.iter().collect::<Vec<_>>()), [(Pfn(4), Pfn(7)), (Pfn(9), Pfn(10))]);
    }

    #[test]
    fn a_kernel_without_page_owner_is_distinguished_from_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(sites(&dir.path().join("page_owner"), &[]).unwrap(), None);
        assert!(
            sites(dir.path(), &[]).unwrap().unwrap().is_empty(),
            "nothing to read is nothing wrong"
        );
    }
}
