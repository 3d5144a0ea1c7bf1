//! What sysfs says of NUMA nodes: lists of them, and how much memory each has.

use ramslice_types::Bytes;

/// Nodes by a list of the kernel, as in `0-1,3`; nothing if it is none.
pub(crate) fn parse_nodes(text: &str) -> Option<Vec<u32>> {
    let mut nodes = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        nodes.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(nodes)
}

/// A line of a node's `meminfo`, as `MemFree:`; nothing without such a line.
pub(crate) fn meminfo_bytes(text: &str, name: &str) -> Option<Bytes> {
    // Node 1 MemFree:           524288 kB
    let kib: u64 = text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(2);
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })?;
    Some(Bytes(kib << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_read_and_others_are_none() {
        assert_eq!(parse_nodes("0-1,3\n"), Some(vec![0, 1, 3]));
        assert_eq!(parse_nodes("\n"), Some(vec![]));
        assert_eq!(parse_nodes("0-x"), None);
    }

    #[test]
    fn a_line_of_meminfo_is_in_kib() {
        let text = "Node 1 MemTotal: 8 kB\nNode 1 MemFree:           4 kB\n";
        assert_eq!(meminfo_bytes(text, "MemFree:"), Some(Bytes(4096)));
        assert_eq!(meminfo_bytes(text, "MemUsed:"), None);
    }
}
