//! Huge pages beside `page_owner=on`: before Linux 6.15 the kernel writes who owns a page larger
//! than a section of memory over what lies behind its records (mended by Linux' commit
//! 9039b9096ea2).

use std::fs;

use ramslice_types::Bytes;

/// The records of a section of 128 MiB lie together, those of the next elsewhere.
const SECTION: Bytes = Bytes(128 << 20);
const MENDED_IN: (u32, u32) = (6, 15);

/// Why making a page of this size would overwrite other memory on the running kernel, if it would.
pub fn page_owner_danger(size: Bytes) -> Option<String> {
    let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    danger(&rustix::system::uname().release().to_string_lossy(), &command_line, size)
}

/// `release` is that of the kernel, `command_line` what it was booted with.
fn danger(release: &str, command_line: &str, size: Bytes) -> Option<String> {
    let on = command_line.split_whitespace().any(|word| word == "page_owner=on");
    if !on || size <= SECTION || version(release)? >= MENDED_IN {
        return None;
    }
    Some(format!(
        "with page_owner=on, Linux {release} overwrites other memory when it makes a page of \
         {size} (mended in {}.{}): boot without page_owner=on first",
        MENDED_IN.0, MENDED_IN.1
    ))
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_larger_than_a_section_with_records_on_an_older_kernel_are_refused() {
        const GIB: Bytes = Bytes(1 << 30);
        let refused = |release, line| danger(release, line, GIB).is_some();
        assert!(refused("6.12.117", "root=/dev/vda page_owner=on quiet"));
        assert!(refused("5.10.0-28-amd64", "page_owner=on"));
        assert!(!refused("6.12.117", "root=/dev/vda"));
        assert!(!refused("6.12.117", "page_owner=off"));
        assert!(!refused("6.15.0-rc1", "page_owner=on"));
        assert!(!refused("7.3.4+deb14", "page_owner=on"));
        assert_eq!(danger("6.12.117", "page_owner=on", Bytes(2 << 20)), None);
    }
}
