//! What would have to happen for a slice to be empty, as a person would say it.

use ramslice_types::{
    ContentsSummary, MachineState, PageClass, PageFate, PageGroup, Pages, Reason, Slice,
    SliceContents, SliceState,
};

use super::price::price;
use crate::render::nr_pages;

/// Said where allocation sites would be.
pub(super) const PAGE_OWNER_OFF: &str = "Not known: page_owner is off. Boot with `page_owner=on` \
                                         on the kernel command line (the kernel needs \
                                         CONFIG_PAGE_OWNER, and debugfs mounted) and look again.";

/// The state of a slice and what would change it, in one or two sentences.
pub(in crate::commands) fn plain_words(
    machine: &MachineState,
    slice: &Slice,
    contents: &SliceContents,
    holdings: &ContentsSummary,
) -> String {
    let id = slice.id;
    match contents.state {
        SliceState::Offline if slice.held && machine.info.is_stock() => {
            return format!(
                "Another program took it offline, and its memory is not counted: nothing wakes it \
                 until `ramslice online {id}` does."
            );
        }
        SliceState::Offline if slice.held => {
            return format!(
                "It is held off, and its memory is not counted: nothing wakes it until `ramslice \
                 online {id}` does."
            );
        }
        SliceState::Offline => {
            return format!(
                "It is off: it was emptied already. `ramslice online {id}` switches it on."
            );
        }
        SliceState::Quarantined => {
            return "It is lost until reboot: the power driver could not wake it. The kernel log \
                    says more."
                .to_owned();
        }
        SliceState::Waking => return "It is being switched on at this moment.".to_owned(),
        SliceState::Emptying => return "It is being emptied at this moment.".to_owned(),
        SliceState::Online => {}
    }
    let work = work(holdings);
    let staying: Vec<&PageGroup> = holdings.staying().collect();
    if staying.is_empty() {
        let command = format!("`ramslice offline {id}`");
        let mut words = match &work {
            None => format!("Nothing stands in the way: it is empty. {command} switches it off"),
            Some(work) => format!("Nothing stands in the way: {work}. {command} does that"),
        };
        words.push_str(&format!(" at a price of {} (units of 100 cycles).", price(machine, slice)));
        let unknown = holdings.pages_of(PageClass::Transit);
        if unknown > Pages::ZERO && machine.info.is_stock() {
            words.push_str(&format!(
                " {} of it show no owner: free in a CPU's list, most likely, which the kernel \
                 drains first.",
                nr_pages(unknown.0)
            ));
        }
        if matches!(slice.reason, Reason::ZoneEdge | Reason::BootMemory) {
            words = format!(
                "It stays on ({}): {}. What helps: {}.",
                slice.reason,
                slice.reason.sentence(),
                slice.reason.advice()
            );
        } else if slice.unreclaimable {
            words = format!(
                "The kernel considers it impossible to empty ({}: {}), although none of its pages \
                 says so now.",
                slice.reason,
                slice.reason.sentence()
            );
        } else if slice.backoff {
            words.push_str(&format!(
                " It failed lately ({}: {}) and is left alone for another {} s, unless \
                 --ignore-backoff is given.",
                slice.reason,
                slice.reason.sentence(),
                slice.retry_ms.div_ceil(1000)
            ));
            if slice.reason == Reason::Migration {
                words.push_str(&held_blocks(contents, holdings));
            }
        }
        return words;
    }
    let needs: Vec<String> = needs(holdings);
    let hopeless = holdings.reasons().iter().any(|&(reason, _)| is_permanent(reason));
    let begin = if hopeless { "It can never be emptied: " } else { "To empty it, " };
    let mut words = format!("{begin}{}.", list(&needs));
    if let Some(work) = work {
        words.push_str(&format!(" The rest is no obstacle: {work}."));
    }
    words
}

/// Page cache of a disk: its file system may hold on to it, which the pages do not show.
fn held_blocks(contents: &SliceContents, holdings: &ContentsSummary) -> String {
    let Some(disk) = holdings.files.iter().find(|holding| holding.owner.inode == 0) else {
        return String::new();
    };
    format!(
        " Of its page cache, {} {} of {} itself: those that a mounted file system works with stay \
         until they are written, some until it is unmounted.",
        nr_pages(disk.pages.0),
        if disk.pages.0 == 1 { "is" } else { "are" },
        contents.file_name(disk.owner)
    )
}

/// What would be moved and dropped, if anything.
fn work(holdings: &ContentsSummary) -> Option<String> {
    let parts: Vec<String> = [(PageFate::Moves, "moved"), (PageFate::Dropped, "dropped")]
        .into_iter()
        .map(|(fate, verb)| (holdings.pages(fate).0, verb))
        .filter(|&(pages, _)| pages > 0)
        .map(|(pages, verb)| format!("{} would be {verb}", nr_pages(pages)))
        .collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

fn is_permanent(reason: Reason) -> bool {
    matches!(reason, Reason::Boot | Reason::Hole | Reason::ZoneEnd | Reason::Cma)
}

/// A clause for each reason, most pages first.
fn needs(holdings: &ContentsSummary) -> Vec<String> {
    holdings
        .reasons()
        .into_iter()
        .map(|(reason, pages)| {
            let of: Vec<&str> = holdings
                .staying()
                .filter(|group| group.reason == reason)
                .map(|group| {
                    if group.class == PageClass::Free { "free memory" } else { group.class.name() }
                })
                .collect();
            clause(reason, pages.0, &of.join(", "))
        })
        .collect()
}

/// What has to happen with `pages` pages of `what` that stay for `reason`.
fn clause(reason: Reason, pages: u64, what: &str) -> String {
    let have = if pages == 1 { "has" } else { "have" };
    let are = if pages == 1 { "is" } else { "are" };
    let pages = nr_pages(pages);
    match reason {
        Reason::Hole => format!("{pages} of its address range {are} no memory"),
        Reason::ZoneEnd => format!("{pages} of it {are} in another zone or past a zone's end"),
        Reason::Boot => format!("{pages} {are} reserved at boot"),
        Reason::Slab => format!("{pages} of slab objects {have} to be freed by the kernel"),
        Reason::PageTable => {
            format!("the processes that {pages} of page tables belong to have to end or unmap")
        }
        Reason::Pinned => format!(
            "{pages} of {what} {have} to be released by the driver or process that pinned them"
        ),
        Reason::Writeback => format!("{pages} of {what} {have} to reach storage"),
        Reason::Hugetlb => format!("{pages} {have} to leave the hugetlb pool"),
        Reason::Gigantic => {
            format!("{pages} of a folio larger than a pageblock ({what}) {have} to be freed")
        }
        Reason::Cma => format!("{pages} {are} part of a CMA area"),
        Reason::HighAtomic => {
            format!("the allocator has to give up its reserve for atomic allocations, {pages}")
        }
        Reason::HwPoison => {
            format!("{pages} with a memory error {have} to go, with the memory module")
        }
        Reason::ForeignOffline => format!("the balloon or virtio-mem has to give back {pages}"),
        Reason::Isolated => {
            format!(
                "{pages} {are} isolated: memory hotplug or a contiguous allocation has to finish \
                 first"
            )
        }
        Reason::NotGiven => {
            format!("the allocator has to get {pages} that it does not have yet, and free them")
        }
        Reason::Unmovable => format!("{pages} of {what} {have} to be freed by the kernel"),
        Reason::Buffer => {
            format!(
                "{pages} of a contiguous buffer {have} to be given back by its program or driver"
            )
        }
        other => format!("{pages} of {what} {have} to go ({other}: {})", other.sentence()),
    }
}

/// `a`, `a, and b`, `a, b, and c`.
fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [init @ .., last] => format!("{}, and {last}", init.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use ramslice_types::{DeviceNumber, FileId, FileName, PageRun, Pfn, SliceId};

    use super::*;

    #[test]
    fn every_reason_that_pages_can_have_has_a_clause_of_its_own() {
        let of_pages = Reason::ALL.iter().take_while(|reason| **reason != Reason::NoRoom);
        for &reason in of_pages.chain(&[Reason::NotGiven, Reason::Buffer]) {
            if reason == Reason::Quarantined {
                continue;
            }
            let words = clause(reason, 3, "anonymous memory");
            assert!(!words.contains(&reason.sentence()), "{reason}: {words}");
            assert!(words.contains("3 pages"), "{reason}: {words}");
        }
    }

    #[test]
    fn one_page_is_one_page() {
        assert!(
            clause(Reason::Pinned, 1, "page cache")
                .starts_with("1 page of page cache has to be released")
        );
    }

    #[test]
    fn a_disks_own_page_cache_is_named() {
        let words = |inode| {
            let file = FileId { device: DeviceNumber { major: 254, minor: 0 }, inode };
            let run = PageRun::of_class(Pfn(0), Pages(6), PageClass::File);
            let contents = SliceContents {
                slice: SliceId(1),
                state: SliceState::Online,
                reason: Reason::Migration,
                runs: vec![PageRun { file: Some(file), ..run }],
                files: vec![FileName { file, path: "/dev/vda".into() }],
                cgroups: Vec::new(),
                sites: None,
            };
            held_blocks(&contents, &ContentsSummary::of(&contents))
        };
        assert!(words(0).starts_with(" Of its page cache, 6 pages are of /dev/vda itself"));
        assert_eq!(words(7), "");
    }

    #[test]
    fn clauses_are_joined_as_in_speech() {
        let of =
            |parts: &[&str]| list(&parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["a"]), "a");
        assert_eq!(of(&["a", "b", "c"]), "a, b, and c");
    }
}
