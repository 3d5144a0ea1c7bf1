//! Memory Power State Table (ACPI 6.5, 5.2.22): which address ranges the firmware can power down as
//! one.

use std::collections::{BTreeMap, BTreeSet};

use ramslice_types::Bytes;
use serde::Serialize;

use super::{HEADER, open};
use crate::address_range::{AddressRange, covered};
use crate::table_fields::TableFlaw;

/// Header, communication channel, count, reserved.
const NODES_AT: usize = HEADER + 8;
const _: () = assert!(NODES_AT == 44);
/// A node before its states: flags, id, length, address, range length, two counts.
const NODE: usize = 1 + 1 + 2 + 4 + 8 + 8 + 4 + 4;
const _: () = assert!(NODE == 32);
/// Value and index of a state.
const STATE: usize = 2;
/// Identifier of a physical component.
const COMPONENT: usize = 2;
/// Id, flags, reserved, average power, saving, exit latency, reserved.
const CHARACTERISTICS: usize = 1 + 1 + 2 + 4 + 4 + 8 + 8;
const _: () = assert!(CHARACTERISTICS == 28);

const ENABLED: u8 = 1;
const POWER_MANAGED: u8 = 1 << 1;
const CONTENT_PRESERVED: u8 = 1;
const TRIGGERED_BY_OS: u8 = 1 << 1;

/// The table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MpstTable {
    /// Enabled nodes with memory, by id.
    pub nodes: Vec<PowerNode>,
}

/// How nodes lie in each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeNesting {
    /// Ids of nodes that have another node inside.
    pub outer: BTreeSet<u16>,
    /// Two nodes that share a part of their addresses only, which the specification does not allow.
    pub crossing: Option<(u16, u16)>,
}

impl MpstTable {
    /// How nodes lie in each other: one may contain another, and is then powered down only as a
    /// whole.
    pub fn nesting(&self) -> NodeNesting {
        let each = |node: &PowerNode| {
            node.ranges.iter().map(|range| (*range, node.id)).collect::<Vec<_>>()
        };
        let mut ranges: Vec<(AddressRange, u16)> = self.nodes.iter().flat_map(each).collect();
        ranges.sort_by_key(|(range, id)| {
            (range.start_bytes, std::cmp::Reverse(range.end_bytes), *id)
        });
        let mut out = NodeNesting::default();
        let mut open: Vec<(AddressRange, u16)> = Vec::new();
        for (range, id) in ranges {
            open.retain(|(outer, _)| outer.end_bytes > range.start_bytes);
            if let Some(&(outer, outer_id)) = open.last().filter(|last| last.1 != id) {
                if outer.contains(range) && outer != range {
                    out.outer.insert(outer_id);
                } else if out.crossing.is_none() {
                    out.crossing = Some((outer_id, id));
                }
            }
            open.push((range, id));
        }
        out
    }

    /// The smallest parts that the operating system may power down and that have a state to go to.
    pub fn units(&self) -> impl Iterator<Item = &PowerNode> {
        let outer = self.nesting().outer;
        self.nodes.iter().filter(move |node| {
            node.power_managed && !node.states.is_empty() && !outer.contains(&node.id)
        })
    }
}

/// What goes into a power state as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PowerNode {
    /// Its id; ranges that share it belong together.
    pub id: u16,
    /// Its addresses, sorted.
    pub ranges: Vec<AddressRange>,
    /// The operating system may change its state.
    pub power_managed: bool,
    /// States below full power, deepest last.
    pub states: Vec<AcpiPowerState>,
}

impl PowerNode {
    /// Its memory.
    pub fn size(&self) -> Bytes {
        covered(&self.ranges)
    }

    /// The state that saves most among those described.
    pub fn deepest(&self) -> Option<&AcpiPowerState> {
        self.states.iter().max_by_key(|state| state.saving_mw())
    }
}

/// A state below full power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AcpiPowerState {
    /// 1, 2, ...: higher ones save more.
    pub value: u8,
    /// Contents survive.
    pub content_preserved: bool,
    /// The operating system has to request it; otherwise hardware enters it when memory is idle.
    pub triggered_by_os: bool,
    /// Average power of the node at full power.
    pub full_power_mw: u32,
    /// What the state saves of that.
    pub saving_percent: u32,
    /// Time to wake.
    pub exit_latency_ns: u64,
}

impl AcpiPowerState {
    /// What it saves, in milliwatts; `None` for a share above 100%.
    pub fn saving_mw(&self) -> Option<u64> {
        (self.saving_percent <= 100)
            .then(|| u64::from(self.full_power_mw) * u64::from(self.saving_percent) / 100)
    }
}

/// Reads the table. `None` if it is no such table.
pub fn parse(table: &[u8]) -> (Option<MpstTable>, Vec<TableFlaw>) {
    let (fields, mut flaws) = open(table, b"MPST");
    let Some(fields) = fields else { return (None, flaws) };
    let Some(count) = fields.u16(40) else {
        flaws.push(TableFlaw::new(40, "the table ends before its count of nodes"));
        return (None, flaws);
    };
    let mut nodes: BTreeMap<u16, (PowerNode, Vec<(u8, u8)>)> = BTreeMap::new();
    let mut at = NODES_AT;
    // At most 65535 turns, each over NODE bytes or more.
    for number in 0..count {
        let node = fields.rest(at);
        let head = (
            node.u8(0),
            node.u16(2),
            node.u32(4),
            node.u64(8),
            node.u64(16),
            node.u32(24),
            node.u32(28),
        );
        let (
            Some(bits),
            Some(id),
            Some(length),
            Some(base),
            Some(size),
            Some(states),
            Some(components),
        ) = head
        else {
            flaws.push(TableFlaw::new(
                at,
                format!("the table ends inside node {number} of {count}"),
            ));
            return (Some(finish(nodes, &BTreeMap::new())), flaws);
        };
        let needed = NODE as u64
            + u64::from(states) * STATE as u64
            + u64::from(components) * COMPONENT as u64;
        // Templates that firmware's authors begin with leave it out; Linux goes by the counts, too.
        let length = if length == 0
            && node.part(0, usize::try_from(needed).unwrap_or(usize::MAX)).is_some()
        {
            let what = format!("node {number} states no length; it is read by its counts");
            flaws.push(TableFlaw::note(at, what));
            needed
        } else {
            u64::from(length)
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if (length as u64) < needed || node.part(0, length).is_none() {
            let what =
                format!("node {number} says that it has {length} bytes; its entries take {needed}");
            flaws.push(TableFlaw::new(at, what));
            return (Some(finish(nodes, &BTreeMap::new())), flaws);
        }
        if bits & ENABLED != 0 {
            match AddressRange::sized(base, size) {
                Some(range) => {
                    let entry = nodes.entry(id).or_insert_with(|| {
                        let ranges = Vec::new();
                        (
                            PowerNode { id, ranges, power_managed: true, states: Vec::new() },
                            Vec::new(),
                        )
                    });
                    entry.0.ranges.push(range);
                    entry.0.power_managed &= bits & POWER_MANAGED != 0;
                    for state in 0..states as usize {
                        let state_at = NODE + state * STATE;
                        entry.1.extend(node.u8(state_at).zip(node.u8(state_at + 1)));
                    }
                }
                None => flaws.push(TableFlaw::new(at, format!("node {number} has no valid range"))),
            }
        }
        at += length;
    }
    let mut characteristics = BTreeMap::new();
    match fields.u16(at) {
        None => flaws
            .push(TableFlaw::new(at, "the table ends before the characteristics of its states")),
        Some(count) => {
            for number in 0..usize::from(count) {
                let entry_at = at + 4 + number * CHARACTERISTICS;
                let Some(entry) = fields.part(entry_at, CHARACTERISTICS) else {
                    let what = format!("the table ends inside characteristics {number} of {count}");
                    flaws.push(TableFlaw::new(entry_at, what));
                    break;
                };
                let read = (entry.u8(0), entry.u8(1), entry.u32(4), entry.u32(8), entry.u64(12));
                if let (Some(id), Some(bits), Some(power), Some(saving), Some(latency)) = read {
                    // The upper two bits are the structure's revision.
                    characteristics.insert(id & 0x3f, (bits, power, saving, latency));
                }
            }
        }
    }
    for (node, states) in nodes.values() {
        for (value, index) in states {
            if !characteristics.contains_key(index) {
                let what =
                    format!("state {value} of node {} refers to characteristics {index}", node.id);
                flaws.push(TableFlaw::new(at, what + ", which are not there"));
            }
        }
    }
    (Some(finish(nodes, &characteristics)), flaws)
}

type StateCharacteristics = BTreeMap<u8, (u8, u32, u32, u64)>;

/// Joins states with their characteristics; state 0 is full power.
fn finish(
    nodes: BTreeMap<u16, (PowerNode, Vec<(u8, u8)>)>,
    known: &StateCharacteristics,
) -> MpstTable {
    let nodes = nodes.into_values().map(|(mut node, states)| {
        node.ranges.sort_unstable();
        for (value, index) in states.into_iter().filter(|state| state.0 > 0) {
            let Some(&(bits, full_power_mw, saving_percent, exit_latency_ns)) = known.get(&index)
            else {
                continue;
            };
            node.states.push(AcpiPowerState {
                value,
                content_preserved: bits & CONTENT_PRESERVED != 0,
                triggered_by_os: bits & TRIGGERED_BY_OS != 0,
                full_power_mw,
                saving_percent,
                exit_latency_ns,
            });
        }
        node.states.sort_by_key(|state| state.value);
        node.states.dedup();
        node
    });
    MpstTable { nodes: nodes.collect() }
}
