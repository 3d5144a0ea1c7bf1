//! What each setting allows, as limits and in words.

use ramslice_policy::settings;

/// Numbers: the smallest, the largest, and whether they must be whole.
const NUMBERS: [(&str, f64, f64, bool); 18] = [
    ("period_seconds", 0.05, 3600.0, false),
    ("requests.deadline_seconds", 0.1, 60.0, false),
    ("requests.max_slices", 1.0, 1_048_576.0, true),
    ("pressure.stall_ms", 0.0, 10_000.0, true),
    ("pressure.window_ms", 500.0, 10_000.0, true),
    ("pressure.pause_seconds", 0.0, 86_400.0, false),
    ("cold.in_use", 0.01, 1.0, false),
    ("cold.cpu_share", 0.001, 1.0, false),
    ("idle_cache.after_seconds", 0.0, 86_400.0, false),
    ("takers.sleep", 0.0, 1e9, false),
    ("takers.host", 0.0, 1e9, false),
    ("takers.huge", 0.0, 1e9, false),
    ("takers.buffers", 0.0, 1e9, false),
    ("takers.huge_count", 0.0, 1_048_576.0, true),
    ("takers.huge_node", 0.0, 1023.0, true),
    ("takers.settle_seconds", 0.0, 86_400.0, false),
    ("state.save_seconds", 0.0, 86_400.0, false),
    ("stock.look_share", 0.0001, 0.5, false),
];

/// The limits of a number; infinite if it has none.
pub(crate) fn limits(name: &str) -> [f64; 2] {
    let found = NUMBERS.iter().find(|(number, ..)| *number == name);
    found.map_or([f64::NEG_INFINITY, f64::INFINITY], |(_, least, most, _)| [*least, *most])
}

/// What a setting allows, in words; none if there is no such setting.
pub(crate) fn allowed(name: &str) -> Option<String> {
    if let Some((_, least, most, whole)) = NUMBERS.iter().find(|(number, ..)| *number == name) {
        let kind = if *whole { "a whole number" } else { "a number" };
        return Some(format!("{kind} from {least} to {most}"));
    }
    let words = match name {
        "mode" => "\"observe\", \"on\" or \"off\"",
        "backend" => "\"auto\", \"kernel\" or \"stock\"",
        "energy" | "requests" | "pressure" | "cold" | "idle_cache" | "takers" | "state"
        | "stock" | "stop" | "metrics" => {
            return Some(format!("a table, which begins with [{name}]"));
        }
        "energy.profile" => {
            "the name of a profile, as in \"thesis-parc\" or \"giveback\", \"none\", or the path \
             of a file"
        }
        "energy.machine" => "the name of a profile, as in \"thesis-parc\", or the path of a file",
        "energy.state" => "the name of a power state, as in \"parc\"",
        "energy.granularity" => "a size, as in \"64MiB\", or \"slice\"",
        "energy.time_factor" => "a number or a range between quotes: \"15\" or \"12..18\"",
        "energy.resize_slices" | "cold.automatic" | "idle_cache.compact" => "true or false",
        "cold.idle" => "a time of at least 100ms, as in \"30s\" or \"2min\"",
        "cold.rate" => "a size of at least 4KiB, for each second, as in \"16MiB\"",
        "cold.rate_by_group" => {
            "sizes of at least 4KiB, for each second, by control group, as in \
             {\"/system.slice/a.service\" = \"4MiB\"}"
        }
        "cold.except" => "paths of control groups, as in [\"/system.slice/a.service\"]",
        "takers.huge_size" => "a size of a page that the kernel has, as in \"1GiB\" or \"2MiB\"",
        "stop.slices" => "\"auto\", \"leave\" or \"wake\"",
        "metrics.listen" => "an address and a port, as in \"127.0.0.1:9750\", or \"off\"",
        _ => return settings::allowed(name),
    };
    Some(words.to_owned())
}
