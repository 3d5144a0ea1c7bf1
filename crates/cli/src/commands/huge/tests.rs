//! The command on a machine with three nodes, of which one is cold.

use std::sync::Mutex;

use clap::Parser;
use ramslice_types::{
    BackendInfo, ContentsDetail, Pages, PriceParameter, Slice, SliceContents, SliceId,
    SliceSnapshot, Zone,
};
use serde_json::{Value, json};

use super::*;
use crate::args::{ColorChoice, GlobalOptions};

const GIB: Bytes = Bytes(1 << 30);
const NODE_OF_GIB: [i32; 4] = [0, 0, 1, 2];
const COLD: NodeId = NodeId(2);

/// A GiB of memory in two slices on each node, two on node 0; with one node, all is on that. Each
/// pool has a free page.
struct NodesMachine {
    nr_nodes: i32,
    /// Of each node.
    pools: Mutex<Vec<HugePagePool>>,
    /// What was written: the node, if it was not the machine, and the pages.
    resized: Mutex<Vec<(Option<NodeId>, u64)>>,
}

impl NodesMachine {
    fn new(nr_nodes: i32) -> Self {
        let pool = HugePagePool { page: GIB, total: 1, free: 1, reserved: 0, surplus: 0 };
        let pools = (0..nr_nodes).map(|_| pool).collect();
        Self { nr_nodes, pools: Mutex::new(pools), resized: Mutex::default() }
    }

    fn sizes(&self) -> Vec<u64> {
        self.pools.lock().unwrap().iter().map(HugePagePool::size).collect()
    }
}

fn none<T>() -> Result<T, BackendError> {
    Err(BackendError::new(BackendErrorKind::Unsupported, "not a part of this test"))
}

impl Backend for NodesMachine {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        let info = serde_json::from_value(json!({
            "abi_version": 1, "page_bytes": 4096, "pageblock_bytes": 2 << 20,
            "slice_bytes": 512 << 20, "chunk_bytes": 4 << 20, "nr_slices": 8, "nr_zones": 3,
            "event_seq": 0, "managed_pages": 1 << 20, "free_pages": 0, "offline_pages": 0,
            "quarantined_pages": 0, "power_driver": "none",
        }));
        Ok(info.unwrap())
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        Ok(Vec::new())
    }

    /// The last slice of node 0 cannot be emptied.
    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        let slice = |id: u32| Slice {
            node: NodeId(NODE_OF_GIB[id as usize / 2].min(self.nr_nodes - 1)),
            price: Price(100 - u64::from(id)),
            unreclaimable: id == 3,
            reason: if id == 3 { Reason::BootMemory } else { Reason::None },
            ..Slice::unread(SliceId(id), Pages(512 << 8))
        };
        let slices = (0..8).map(slice).collect();
        Ok(SliceSnapshot { event_seq: 0, time: Duration::ZERO, slices })
    }

    fn huge_page_pools(&self, node: Option<NodeId>) -> Result<Vec<HugePagePool>, BackendError> {
        let pools = self.pools.lock().unwrap();
        let here = |(at, _): &(usize, _)| node.is_none_or(|node| node.0 as usize == *at);
        let sum = pools.iter().copied().enumerate().filter(here).map(|(_, pool)| pool);
        let sum = sum.reduce(|sum, pool| HugePagePool {
            total: sum.total + pool.total,
            free: sum.free + pool.free,
            ..sum
        });
        Ok(sum.into_iter().collect())
    }

    fn huge_page_nodes(&self) -> Result<Vec<HugePageNode>, BackendError> {
        let nodes = (0..self.nr_nodes).map(NodeId);
        Ok(nodes.map(|node| HugePageNode { node, is_cold: node == COLD }).collect())
    }

    /// What is asked of the machine comes from node 0.
    fn resize_huge_page_pool(
        &self,
        _page: Bytes,
        node: Option<NodeId>,
        pages: u64,
    ) -> Result<u64, BackendError> {
        self.resized.lock().unwrap().push((node, pages));
        let mut pools = self.pools.lock().unwrap();
        let others: u64 = match node {
            Some(_) => 0,
            None => pools[1..].iter().map(|pool| pool.total).sum(),
        };
        let pool = &mut pools[node.map_or(0, |node| node.0 as usize)];
        (pool.total, pool.free) = (pages - others, pages - others);
        Ok(pages)
    }

    fn request(&self, _request: &Request) -> Result<RequestOutcome, BackendError> {
        Ok(RequestOutcome { slices_done: 1, ..RequestOutcome::default() })
    }

    fn contents(&self, _: SliceId, _: ContentsDetail) -> Result<SliceContents, BackendError> {
        none()
    }
    fn wait_event(&self, _: Duration) -> Result<Option<u64>, BackendError> {
        none()
    }
    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        none()
    }
    fn set_slice_bytes(&self, _: Bytes) -> Result<(), BackendError> {
        none()
    }
    fn price_parameter(&self, _: PriceParameter) -> Result<Price, BackendError> {
        none()
    }
    fn set_price_parameter(&self, _: PriceParameter, _: Price) -> Result<(), BackendError> {
        none()
    }
}

#[derive(Parser)]
struct HugeCommand {
    #[command(flatten)]
    args: HugeArgs,
}

/// Runs the command; its status, and what it printed or why it failed.
fn run_words(machine: &NodesMachine, words: &str, json: bool) -> Result<(ExitStatus, String)> {
    let words = std::iter::once("huge").chain(words.split_whitespace());
    let args = HugeCommand::try_parse_from(words).unwrap().args;
    let color = ColorChoice::Never;
    let global = GlobalOptions { json, color, verbose: 0, from: None, backend: None };
    let mut out = Vec::new();
    let status = run_on(&args, machine, &CommandContext::new(global, None), &mut out)?;
    Ok((status, String::from_utf8(out).unwrap()))
}

fn text(machine: &NodesMachine, words: &str) -> (ExitStatus, String) {
    run_words(machine, words, false).unwrap()
}

fn document(machine: &NodesMachine, words: &str) -> Value {
    serde_json::from_str(&run_words(machine, words, true).unwrap().1).unwrap()
}

fn error(machine: &NodesMachine, words: &str) -> String {
    let error = run_words(machine, words, false).unwrap_err();
    assert!(error.is::<UsageError>(), "{error}");
    error.to_string()
}

#[test]
fn the_table_has_a_row_for_each_node_where_there_are_several() {
    let (_, several) = text(&NodesMachine::new(3), "");
    let rows: Vec<Vec<_>> = several.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..2], ["node", "page"]);
    assert_eq!(rows[1], ["0", "1", "GiB", "1", "1", "1", "1", "boot-memory"]);
    assert_eq!(rows[2], ["1", "1", "GiB", "1", "1", "1"]);
    assert_eq!(rows[3], ["2", "(cold)", "1", "GiB", "1", "1", "1"]);
    let (_, one) = text(&NodesMachine::new(3), "--node 1");
    assert_eq!(one.lines().count(), 2);
    assert!(one.lines().nth(1).unwrap().starts_with('1'), "{one}");
    let (_, plain) = text(&NodesMachine::new(1), "");
    assert!(plain.trim_start().starts_with("page"), "{plain}");
}

#[test]
fn json_has_the_machine_as_before_and_each_node_in_it() {
    let pools = &document(&NodesMachine::new(3), "")["pools"];
    let machine = &pools[0];
    assert_eq!((&machine["total"], &machine["page_bytes"]), (&json!(3), &json!(1 << 30)));
    // Cold memory would have to be named
    assert_eq!((&machine["could_be_had"], &machine["node"]), (&json!(2), &Value::Null));
    assert_eq!(machine["blocked"][0]["reason"], "boot-memory");
    let nodes = machine["nodes"].as_array().unwrap();
    let numbers: Vec<_> = nodes.iter().map(|row| (&row["node"], &row["could_be_had"])).collect();
    assert_eq!(numbers, [(&json!(0), &json!(1)), (&json!(1), &json!(1)), (&json!(2), &json!(1))]);
    assert_eq!((&nodes[1]["cold"], &nodes[2]["cold"]), (&Value::Null, &json!(true)));
    let named = document(&NodesMachine::new(3), "--node 2");
    assert_eq!((&named["node"], &named["pools"][0]["node"]), (&json!(2), &json!(2)));
    assert_eq!(named["pools"][0]["could_be_had"], 1);
    let plain = document(&NodesMachine::new(1), "");
    assert_eq!((&plain["pools"][0]["nodes"], &plain["node"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_page_comes_from_the_node_that_is_named_and_the_pool_is_its_own() {
    let machine = NodesMachine::new(3);
    let (status, said) = text(&machine, "--size 1G --count 1 --node 0");
    assert_eq!((status, machine.sizes()), (ExitStatus::Ok, vec![2, 1, 1]));
    assert!(said.starts_with("page at 0 B on node 0: made;"), "{said}");
    assert!(said.ends_with("the pool of node 0 had 1, has 2\n"), "{said}");
    let cold = document(&machine, "--size 1G --count 2 --node 2");
    assert_eq!((&cold["got"], &cold["total"], &cold["node"]), (&json!(1), &json!(2), &json!(2)));
    assert_eq!((machine.sizes(), &cold["ranges"][0]["node"]), (vec![2, 1, 2], &json!(2)));
}

#[test]
fn without_a_node_a_page_is_of_the_node_whose_range_is_cheapest_and_never_of_a_cold_one() {
    let machine = NodesMachine::new(3);
    let done = document(&machine, "--size 1G --count 3");
    assert_eq!((&done["got"], &done["total"], &done["node"]), (&json!(2), &json!(5), &Value::Null));
    let nodes: Vec<_> =
        done["ranges"].as_array().unwrap().iter().map(|range| &range["node"]).collect();
    assert_eq!((nodes, machine.sizes()), (vec![&json!(1), &json!(0)], vec![2, 2, 1]));
    assert!(machine.resized.lock().unwrap().iter().all(|(node, _)| node.is_some()));
}

#[test]
fn with_one_node_the_machines_pool_is_written_and_no_node_is_said() {
    let machine = NodesMachine::new(1);
    let (_, said) = text(&machine, "--size 1G --count 1");
    assert_eq!(*machine.resized.lock().unwrap(), [(None, 2)]);
    assert!(!said.contains("node") && said.ends_with("the pool had 1, has 2\n"), "{said}");
    let (status, _) = text(&machine, "--size 1G --count 1 --node 0");
    assert_eq!((status, machine.sizes()), (ExitStatus::Ok, vec![3]));
}

#[test]
fn a_dry_run_says_on_which_node_each_range_is_and_changes_nothing() {
    let machine = NodesMachine::new(3);
    let (_, said) = text(&machine, "--size 1G --count 2 --dry-run");
    let places: Vec<_> = said.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(places[..2], ["page at 2 GiB on node 1", "page at 0 B on node 0"]);
    let (status, said) = text(&machine, "--size 1G --count 2 --dry-run --node 1");
    assert_eq!(status, ExitStatus::Refused);
    assert!(said.contains("would make 1 of 2 pages"), "{said}");
    assert_eq!(machine.resized.lock().unwrap().len(), 0);
}

#[test]
fn what_is_given_back_is_the_nodes_own() {
    let machine = NodesMachine::new(3);
    let (_, said) = text(&machine, "--size 1G --give-back 1 --node 1");
    assert_eq!(machine.sizes(), [1, 0, 1]);
    assert_eq!(said, "gave back 1 of 1 pages of 1 GiB; the pool of node 1 has 0\n");
    let why = error(&machine, "--size 1G --give-back 1 --node 1");
    assert!(why.contains("in the pool of node 1, 0 are not in use"), "{why}");
}

#[test]
fn an_unknown_node_is_answered_by_those_that_are_there() {
    for words in ["--node 5", "--node 5 --size 1G --count 1", "--node 5 --size 1G --give-back 1"] {
        let why = error(&NodesMachine::new(3), words);
        assert!(why.starts_with("--node: there is no node 5"), "{why}");
        assert!(why.ends_with("this machine has nodes 0, 1 and 2 (cold)"), "{why}");
    }
}

#[test]
fn a_size_that_the_kernel_lacks_is_answered_by_those_it_has() {
    let pool = HugePagePool { page: Bytes(2 << 20), total: 0, free: 0, reserved: 0, surplus: 0 };
    let text = unknown_size(Bytes(1 << 30), &[pool]);
    assert!(text.contains("1 GiB") && text.contains("2 MiB"), "{text}");
    assert!(unknown_size(Bytes(1 << 30), &[]).contains("no huge pages"));
}
