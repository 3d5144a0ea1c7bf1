//! Who allocated the pages that stay, as `page_owner` recorded it.

use std::io::Write;

use anyhow::Result;
use ramslice_types::AllocationSite;

use super::sentences::PAGE_OWNER_OFF;
use crate::render::{OutputStyle, heading, more, wrapped};

/// Allocation sites, or how to learn of them.
pub(super) fn sites(
    sites: Option<&[AllocationSite]>,
    what: &str,
    limit: usize,
    screen: &OutputStyle,
    out: &mut dyn Write,
) -> Result<()> {
    heading(&format!("Who allocated {what}"), screen, out)?;
    let Some(sites) = sites else {
        return wrapped(PAGE_OWNER_OFF, "", screen, out);
    };
    if sites.is_empty() {
        writeln!(out, "page_owner has no record of these pages.")?;
    }
    for site in sites.iter().take(limit) {
        let orders: Vec<String> = site.orders.iter().map(ToString::to_string).collect();
        let processes: Vec<String> = site
            .processes
            .iter()
            .take(4)
            .map(|process| format!("{} ({})", process.name, process.pages))
            .collect();
        let also = if site.processes.len() > 4 { ", ..." } else { "" };
        let line = format!(
            "{} pages in {} allocation{} of order {} by {}{also}; {}",
            site.pages,
            site.allocations,
            if site.allocations == 1 { "" } else { "s" },
            orders.join(", "),
            processes.join(", "),
            site.gfp.join(" "),
        );
        wrapped(&line, "  ", screen, out)?;
        wrapped(&site.stack.join(" < "), "      ", screen, out)?;
    }
    more(sites.len(), limit, out)
}
