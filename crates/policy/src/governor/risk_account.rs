//! What may be put at risk, in the profile's unit: a stake for each window, and part of earlier
//! earnings.
//!
//! The balance is what would have been earned if all offline slices had to wake at this moment:
//! saved, less spent, less their waking. Nothing can lower it but what the governor spends and what
//! dropped cache costs when it is read again. So a policy that spends only what keeps the balance
//! above a floor never ends below that floor, whatever the demand. A window opens with the floor at
//! the balance, or at half of it if it is above 0, less a stake of two slice-emptyings. Hence, with
//! `n` windows opened, the balance is at least `-n` stakes.

use serde::{Deserialize, Serialize};

/// The least length of a window, in break-even times of a slice: in that time one slice off earns
/// four stakes.
pub(super) const WINDOW: f64 = 8.0;
/// Slice-emptyings in a stake.
pub(super) const STAKE: f64 = 2.0;
/// A window doubles after a loss, up to so many times its least length.
const LONGEST: f64 = 64.0;

/// Worth put at risk and earned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RiskAccount {
    /// The most that may be lost in each window.
    stake: f64,
    /// The least length of a window, in seconds.
    least: f64,
    /// The length of this one.
    length: f64,
    /// When it opened, in seconds.
    opened: f64,
    /// Windows opened so far, with this one; saved states of old lack it.
    #[serde(default = "first_window")]
    windows: u64,
    /// The floor below which spending may not lower the balance.
    floor: f64,
    /// Saved by slices that were off.
    pub(super) saved: f64,
    /// Spent, refaults included.
    pub(super) spent: f64,
    /// The cost of waking all offline slices, and of cache that may be read again unnoticed.
    owed: f64,
    /// Saved in this window.
    won: f64,
    /// Lost in this window on slices that woke before they had paid, and on refaults.
    lost: f64,
    /// Slices that woke too early, in this window.
    pub(super) early: u32,
    /// Pages read again, in this window.
    pub(super) refaults: u64,
}

fn first_window() -> u64 {
    1
}

impl RiskAccount {
    /// `dearest` is the most that emptying and waking one slice can cost, `break_even` its typical
    /// break-even time.
    pub(super) fn new(now: f64, dearest: f64, break_even: f64) -> Self {
        let (stake, least) = (STAKE * dearest, WINDOW * break_even);
        Self {
            stake,
            least,
            length: least,
            opened: now,
            windows: first_window(),
            floor: -stake,
            saved: 0.0,
            spent: 0.0,
            owed: 0.0,
            won: 0.0,
            lost: 0.0,
            early: 0,
            refaults: 0,
        }
    }

    /// Windows opened so far.
    pub(super) fn windows(&self) -> u64 {
        self.windows
    }

    /// The balance if all woke now.
    fn balance(&self) -> f64 {
        self.saved - self.spent - self.owed
    }

    /// The most that may be spent now.
    pub(super) fn room(&self) -> f64 {
        (self.balance() - self.floor).max(0.0)
    }

    /// Sets the cost of waking all offline slices, and of reading again what was dropped and left
    /// no trace.
    pub(super) fn set_owed(&mut self, worth: f64) {
        self.owed = worth;
    }

    /// Adds what offline slices saved.
    pub(super) fn save(&mut self, worth: f64) {
        self.saved += worth;
        self.won += worth;
    }

    /// Adds a cost of emptying or waking.
    pub(super) fn spend(&mut self, worth: f64) {
        self.spent += worth;
    }

    /// Adds what slices that woke early had not earned.
    pub(super) fn woke_early(&mut self, slices: u32, worth: f64) {
        self.early += slices;
        self.lost += worth;
    }

    /// Adds pages of cache that were read again, with the cost of each. All are paid for; only
    /// those that the governor had dropped count as losses.
    pub(super) fn refault(&mut self, own: u64, all: u64, worth: f64) {
        self.spent += worth * all as f64;
        self.lost += worth * own as f64;
        self.refaults += own;
    }

    /// Whether more was lost in this window than a stake and its gains.
    pub(super) fn is_backing_off(&self) -> bool {
        self.lost > self.stake + self.won
    }

    /// Seconds until the next window.
    pub(super) fn wait(&self, now: f64) -> f64 {
        (self.opened + self.length - now).max(0.0)
    }

    /// Opens the next window if this one is over; it is longer after losses, shorter after gains.
    pub(super) fn start_window_if_due(&mut self, now: f64) {
        if now < self.opened + self.length {
            return;
        }
        self.length = if self.is_backing_off() {
            (self.length * 2.0).min(self.least * LONGEST)
        } else {
            (self.length / 2.0).max(self.least)
        };
        self.opened = now;
        self.windows += 1;
        let balance = self.balance();
        self.floor = if balance > 0.0 { balance / 2.0 } else { balance } - self.stake;
        (self.won, self.lost, self.early, self.refaults) = (0.0, 0.0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_doubles_after_a_loss_and_halves_after_a_gain() {
        let mut wallet = RiskAccount::new(0.0, 5.0, 10.0);
        wallet.spend(9.0);
        wallet.woke_early(2, 11.0);
        assert!(wallet.is_backing_off());
        wallet.start_window_if_due(79.0);
        assert!(wallet.is_backing_off() && wallet.wait(79.0) <= 1.0);
        wallet.start_window_if_due(80.0);
        assert!(!wallet.is_backing_off());
        assert!((wallet.wait(80.0) - 160.0).abs() < 1e-9);
        wallet.start_window_if_due(240.0);
        assert!((wallet.wait(240.0) - 80.0).abs() < 1e-9);
    }

    #[test]
    fn a_stake_and_half_of_the_earnings_are_at_risk() {
        let mut wallet = RiskAccount::new(0.0, 5.0, 10.0);
        assert!((wallet.room() - 10.0).abs() < 1e-9);
        wallet.spend(10.0);
        assert!(wallet.room() < 1e-9);
        wallet.save(50.0);
        wallet.start_window_if_due(80.0);
        // The balance is 40: at most 20 and the stake may go.
        assert!((wallet.room() - 30.0).abs() < 1e-9);
        wallet.set_owed(30.0);
        assert!(wallet.room() < 1e-9);
    }
}
