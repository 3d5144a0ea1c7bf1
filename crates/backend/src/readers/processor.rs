//! Detects whether this machine's seconds are real: a processor that is emulated in software says
//! so.

/// What runs this system's instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessorKind {
    /// A real processor, as far as is known: no hypervisor shows.
    Real,
    /// A processor below a hypervisor that gives this signature.
    Virtual(String),
    /// Software: QEMU without hardware virtualisation. Seconds and cycles are not those of any
    /// machine.
    Emulated(String),
    /// This architecture has no way to find out.
    Unknown,
}

/// The signature of QEMU's own code generator.
#[cfg(any(target_arch = "x86_64", test))]
const EMULATOR: &str = "TCGTCGTCGTCG";

impl ProcessorKind {
    /// The one that runs this program.
    pub fn here() -> Self {
        #[cfg(target_arch = "x86_64")]
        return Self::of_signature(x86::hypervisor());
        #[cfg(not(target_arch = "x86_64"))]
        Self::Unknown
    }

    /// Signatures are CPUID's.
    #[cfg(any(target_arch = "x86_64", test))]
    fn of_signature(signature: Option<String>) -> Self {
        match signature {
            None => Self::Real,
            Some(name) if name == EMULATOR => Self::Emulated(name),
            Some(name) => Self::Virtual(name),
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::__cpuid;

    /// The hypervisor's signature; leaf 1 says whether there is one.
    pub(super) fn hypervisor() -> Option<String> {
        const HYPERVISOR: u32 = 1 << 31;
        if __cpuid(1).ecx & HYPERVISOR == 0 {
            return None;
        }
        let leaf = __cpuid(0x4000_0000);
        let bytes = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
        Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_emulator_is_emulated() {
        let of = |name: &str| ProcessorKind::of_signature(Some(name.to_owned()));
        assert_eq!(ProcessorKind::of_signature(None), ProcessorKind::Real);
        assert_eq!(of("TCGTCGTCGTCG"), ProcessorKind::Emulated("TCGTCGTCGTCG".to_owned()));
        assert_eq!(of("KVMKVMKVM"), ProcessorKind::Virtual("KVMKVMKVM".to_owned()));
        assert_eq!(of("Microsoft Hv"), ProcessorKind::Virtual("Microsoft Hv".to_owned()));
    }
}
