//! Why a slice cannot be emptied or a request stopped: a number for the kernel, a code for
//! programs, sentences for people.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One row per reason, so that number, code and sentences cannot drift apart.
macro_rules! reasons {
    ($($number:literal $name:ident $code:literal $sentence:literal $advice:literal;)+) => {
        /// Why a slice cannot be emptied, or why a request stopped.
        ///
        /// Numbers below [`Reason::FIRST_OF_STOCK`] are the patched kernel's.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[non_exhaustive]
        pub enum Reason {
            $(
                #[doc = $sentence]
                $name,
            )+
            /// A number that a newer kernel gave; it has no text here.
            Unknown(u32),
            /// None was given.
            #[default]
            None,
        }

        impl Reason {
            /// The number of the first reason that memory blocks of a stock kernel alone have.
            pub const FIRST_OF_STOCK: u32 = 1000;

            /// Every reason that has a text, in the kernel's order.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// What the kernel's number means; 0 is no reason.
            pub fn from_raw(raw: u32) -> Self {
                match raw {
                    0 => Self::None,
                    $($number => Self::$name,)+
                    other => Self::Unknown(other),
                }
            }

            /// The kernel's number.
            pub fn raw(self) -> u32 {
                match self {
                    Self::None => 0,
                    $(Self::$name => $number,)+
                    Self::Unknown(other) => other,
                }
            }

            /// A stable word for programs, as in `over-budget`; `none` without a reason.
            pub fn code(self) -> String {
                match self {
                    Self::None => "none".to_owned(),
                    $(Self::$name => $code.to_owned(),)+
                    Self::Unknown(other) => format!("unknown-{other}"),
                }
            }

            /// What happened, as a sentence without its full stop.
            pub fn sentence(self) -> String {
                match self {
                    Self::None => "no reason was given".to_owned(),
                    $(Self::$name => $sentence.to_owned(),)+
                    Self::Unknown(other) => format!("the kernel gave reason {other}, which this \
                        version does not know"),
                }
            }

            /// What the reader can do about it.
            pub fn advice(self) -> &'static str {
                match self {
                    Self::None => "nothing to do",
                    $(Self::$name => $advice,)+
                    Self::Unknown(_) => "update the ramslice tools to match the kernel",
                }
            }

            fn from_code(code: &str) -> Option<Self> {
                match code {
                    "none" => Some(Self::None),
                    $($code => Some(Self::$name),)+
                    other => other.strip_prefix("unknown-")?.parse().ok().map(Self::Unknown),
                }
            }
        }
    };
}

reasons! {
    1 Hole "hole" "it has page frames without memory behind them"
        "choose a slice size whose slices avoid the gap in the address map; otherwise nothing";
    2 ZoneEnd "zone-end" "it spans two zones or nodes, or a zone ends inside it"
        "choose a slice size that divides the zones evenly";
    3 Boot "boot" "it holds memory that was reserved at boot"
        "nothing: the kernel image, its tables and firmware stay where they are";
    4 Quarantined "quarantined" "it failed to wake and is out of use"
        "see the kernel log for the power driver's message; a reboot brings it back";
    5 Slab "slab" "it holds slab objects of the kernel"
        "shrink caches with `echo 2 > /proc/sys/vm/drop_caches` and try again; page_owner=on \
         names the allocator";
    6 PageTable "pagetable" "it holds page tables"
        "they leave when their process ends; page_owner=on names it";
    7 Pinned "pinned" "a device or a program holds its pages in place"
        "stop the direct I/O, RDMA, VFIO or io_uring buffers that pin them, then try again";
    8 Writeback "writeback" "its pages were being written to storage for too long"
        "try again when the disk is less busy, or run `sync` first";
    9 Hugetlb "hugetlb" "it holds hugetlb pages, which this version does not move"
        "shrink the pool in /proc/sys/vm/nr_hugepages";
    10 Gigantic "gigantic" "it holds a folio larger than a pageblock"
        "release 1 GiB hugetlb pages, or place them elsewhere at boot";
    11 Cma "cma" "it lies in a CMA area"
        "keep the CMA area small (cma= on the kernel command line) or at one end of memory";
    12 HighAtomic "highatomic" "it holds the allocator's reserve for high-order atomic allocations"
        "nothing: the reserve moves by itself under load";
    13 HwPoison "hwpoison" "it holds a page with a memory error"
        "replace the module; the slice stays in use without that page";
    14 ForeignOffline "foreign-offline" "a balloon or virtio-mem owns pages in it"
        "let the hypervisor take or return whole slices, or keep the two apart";
    15 Isolated "isolated" "another user has isolated a pageblock of it"
        "try again: memory hotplug or a contiguous allocation is at work there";
    16 Unmovable "unmovable" "it holds memory of the kernel that cannot move"
        "page_owner=on on the kernel command line names who allocated it";
    17 NoRoom "no-room" "the slices that stay on have no room for its pages"
        "free memory, or allow dropping cache (--cache drop)";
    18 OverBudget "over-budget" "emptying it costs more than the budget"
        "raise --budget, or wait until it empties by itself";
    19 AwakeReserve "awake-reserve" "switching it off would leave too little free memory awake"
        "nothing: this much stays on so that allocations do not wait";
    20 Backoff "backoff" "it failed lately and is left alone for a while"
        "wait, or pass --ignore-backoff";
    21 Pressure "pressure" "memory was wanted meanwhile"
        "try again when the system is calmer";
    22 Deadline "deadline" "the time allowed was over"
        "raise --deadline";
    23 Signal "signal" "it was interrupted"
        "run it again: what is already off stays off";
    24 State "state" "it is not in the state that this needs"
        "look at `ramslice slices`: it may be off already, or on already";
    25 Power "power" "the power driver refused"
        "see the kernel log for the driver's message";
    26 Migration "migration" "pages that should have moved did not"
        "try again: something held on to them for the moment";
    27 Buffer "buffer" "it holds a part of a contiguous buffer, which never moves"
        "close the dma-buf, or stop the driver that has it; \
         /sys/kernel/debug/ramslice/buffers lists them";
    28 OverLimit "over-limit" "the control group's memory limit leaves no room for the buffer"
        "raise memory.max of the group, or ask for less";
    // Given by stock kernels' memory blocks alone; the patched kernel has no such numbers.
    1000 NotGiven "not-given" "it holds memory that the allocator does not have yet"
        "nothing: the kernel hands it out once it is wanted (deferred_init, unaccepted memory)";
    1001 ZoneEdge "zone-edge" "its zone would become smaller, and it could not come back to it"
        "nothing: the first and the last block of a zone below Normal stay on";
    1002 BootMemory "boot-memory" "this kernel gives no memory back that was there at boot"
        "nothing on arm64: only memory that was added later can go; the patched kernel can";
    1003 BroughtBack "brought-back" "another program brought it online again at once"
        "look for a udev rule with SUBSYSTEM==\"memory\" that writes `online`, or another manager";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.code())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.code())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let code = String::deserialize(from)?;
        Self::from_code(&code).ok_or_else(|| {
            serde::de::Error::custom(format!("`{code}` is not the code of a reason"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codes_lead_back_to_the_reason() {
        for &reason in Reason::ALL.iter().chain(&[Reason::None, Reason::Unknown(200)]) {
            assert_eq!(Reason::from_raw(reason.raw()), reason);
            assert_eq!(Reason::from_code(&reason.code()), Some(reason));
        }
    }

    #[test]
    fn every_reason_says_what_happened_and_what_to_do() {
        for &reason in Reason::ALL {
            assert!(reason.sentence().len() > 10, "{reason}");
            assert!(!reason.sentence().ends_with('.'), "{reason}");
            assert!(!reason.advice().is_empty(), "{reason}");
        }
    }
}
