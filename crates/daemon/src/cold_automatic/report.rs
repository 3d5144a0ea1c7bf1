//! The state of what moves by itself, for the status file and metrics.

use ramslice_types::Bytes;
use serde::Serialize;

/// The state in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColdWord {
    /// Nothing is to move.
    Off,
    /// DAMON is at work.
    Running,
    /// Nothing moves to cold nodes: they have no room.
    PausedFull,
    /// Nothing moves: kdamonds take too much CPU time.
    PausedCpu,
    /// Other programs, or the kernel, use DAMON.
    Refused,
    /// Kernel or machine cannot do it.
    NotAvailable,
}

impl ColdWord {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Off,
        Self::Running,
        Self::PausedFull,
        Self::PausedCpu,
        Self::Refused,
        Self::NotAvailable,
    ];

    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Running => "running",
            Self::PausedFull => "paused-full",
            Self::PausedCpu => "paused-cpu",
            Self::Refused => "refused",
            Self::NotAvailable => "not-available",
        }
    }
}

/// How things are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColdStatus {
    /// In a word.
    pub state: ColdWord,
    /// Why, as a sentence.
    pub why: String,
    /// Memory moves that was not accessed for this long; none while nothing is watched.
    pub idle_seconds: Option<f64>,
    /// Between two samples of the accesses.
    pub sample_seconds: Option<f64>,
    /// What this idle time rests on.
    pub idle_basis: Option<String>,
    /// The share of a CPU that kdamonds took when it was last measured.
    pub kdamond_cpu_ratio: Option<f64>,
    /// For how much of the time nothing accessed slices that may rest, by DAMON's last samples: at
    /// most this. None if none may rest, or nothing is watched.
    pub unaccessed_ratio: Option<f64>,
    /// Nodes with CPUs that have a cold node.
    pub nodes: Vec<ColdNodeStatus>,
}

/// A node with CPUs and its cold node. Sums are those of this daemon since it began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColdNodeStatus {
    /// The node with CPUs.
    pub node: u32,
    /// Its cold node.
    pub cold_node: u32,
    /// Free in the cold node, without waking slices that should stay off.
    pub room_bytes: Bytes,
    /// The most that is tried in a second; none if nothing is to move.
    pub to_cold_bytes_per_second: Option<Bytes>,
    /// The same of the way back.
    pub back_bytes_per_second: Option<Bytes>,
    /// What moved to the cold node.
    pub moved_to_cold_bytes: Bytes,
    /// What moved back.
    pub moved_back_bytes: Bytes,
    /// Memory that was looked at for that, with what is free or was left out.
    pub tried_to_cold_bytes: Bytes,
    /// The same of the way back.
    pub tried_back_bytes: Bytes,
}

impl ColdStatus {
    /// A state in which nothing is watched.
    pub(crate) fn idle(state: ColdWord, why: impl Into<String>) -> Self {
        Self {
            state,
            why: why.into(),
            idle_seconds: None,
            sample_seconds: None,
            idle_basis: None,
            kdamond_cpu_ratio: None,
            unaccessed_ratio: None,
            nodes: Vec::new(),
        }
    }

    /// Nothing is to move.
    pub fn off(why: &str) -> Self {
        Self::idle(ColdWord::Off, why)
    }
}
