//! Settings that are valid and probably not what was meant.

use ramslice_types::Bytes;

use crate::mode::DaemonMode;
use crate::settings::{BackendChoice, DaemonSettings};
use crate::worth_plan::WorthPlan;

impl DaemonSettings {
    /// A sentence for each setting that is valid and probably not what was meant, on a machine
    /// with this much memory.
    pub fn warnings(&self, memory: Bytes) -> Vec<String> {
        let mut warnings = Vec::new();
        let gives_back = matches!(self.worth, WorthPlan::Giveback(_));
        if gives_back && self.mode == DaemonMode::On && self.backend == BackendChoice::Auto {
            warnings.push(
                "energy.profile is \"giveback\", mode \"on\" and backend \"auto\": on a kernel \
                 without ramslice, memory blocks go offline of which the host gets nothing; set \
                 backend = \"kernel\""
                    .to_owned(),
            );
        }
        let limits = &self.policy.limits;
        for (name, mib) in
            [("floor_mib", limits.floor_mib), ("burst_reserve_mib", limits.burst_reserve_mib)]
        {
            if mib * Bytes::MIB.0 as f64 >= memory.0 as f64 {
                warnings.push(format!(
                    "limits.{name} is {mib}, and this machine has {memory} of memory: nothing is \
                     switched off"
                ));
            }
        }
        if let Some(listen) = self.listen.filter(|listen| !listen.ip().is_loopback()) {
            warnings.push(format!(
                "metrics.listen is {listen}, but the installed service lets no other machine \
                 connect: set IPAddressAllow= in a drop-in (systemctl edit ramsliced)"
            ));
        }
        warnings
    }
}

/// The memory of this machine.
pub fn memory_of_machine() -> Bytes {
    let info = rustix::system::sysinfo();
    Bytes(info.totalram.saturating_mul(u64::from(info.mem_unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(text: &str) -> Vec<String> {
        let text = format!("schema_version = 1\n{text}");
        DaemonSettings::parse(&text, "x.toml").unwrap().warnings(Bytes(4 << 30))
    }

    /// Whether the text draws one warning, with these words.
    fn warns(text: &str, words: &str) -> bool {
        let found = warnings(text);
        found.len() == 1 && found[0].contains(words)
    }

    #[test]
    fn the_defaults_draw_no_warning() {
        assert_eq!(warnings(""), Vec::<String>::new());
    }

    #[test]
    fn giving_back_by_whichever_backend_draws_a_warning_once_it_acts() {
        let profile = "[energy]\nprofile = \"giveback\"\n";
        assert!(warns(&format!("mode = \"on\"\n{profile}"), "set backend = \"kernel\""));
        let kernel = format!("mode = \"on\"\nbackend = \"kernel\"\n{profile}");
        assert_eq!(warnings(&kernel).len() + warnings(profile).len(), 0);
    }

    #[test]
    fn limits_as_large_as_the_machine_draw_a_warning() {
        assert!(warns("[limits]\nfloor_mib = 4096", "floor_mib is 4096, and this machine has 4"));
        assert!(warns("[limits]\nburst_reserve_mib = 5000", "nothing is switched off"));
        assert_eq!(warnings("[limits]\nfloor_mib = 4095").len(), 0);
    }

    #[test]
    fn an_address_that_the_unit_closes_draws_a_warning() {
        assert!(warns("[metrics]\nlisten = \"0.0.0.0:9750\"", "IPAddressAllow="));
        assert_eq!(warnings("[metrics]\nlisten = \"[::1]:9750\"").len(), 0);
    }
}
