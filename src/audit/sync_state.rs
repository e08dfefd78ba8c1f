//! Tracks which records survive a power loss.

/// How much of the log survives a power loss.
#[derive(Clone, Copy, Default)]
pub(super) struct SyncState {
    /// The first record that no successful sync covers.
    until: u64,
    /// The records that a failed sync should have saved. A later sync that succeeds does not vouch
    /// for them.
    failed: (u64, u64),
}

impl SyncState {
    /// Whether the record survives a power loss; `None` while that is unknown.
    pub(super) fn of(&self, seq: u64) -> Option<bool> {
        let failed = (self.failed.0..self.failed.1).contains(&seq);
        if failed {
            Some(false)
        } else {
            (seq < self.until).then_some(true)
        }
    }

    /// How many of the records before `next` no successful sync covers.
    pub(super) fn behind(&self, next: u64) -> u64 {
        next.saturating_sub(self.until)
    }

    pub(super) fn synced(&mut self, until: u64, well: bool) {
        if well {
            self.until = until;
        } else {
            let from = if self.failed.1 > self.until {
                self.failed.0
            } else {
                self.until
            };
            self.failed = (from, until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_that_succeeds_does_not_vouch_for_what_one_before_it_failed_to_keep() {
        let mut lasting = SyncState::default();
        lasting.synced(3, true);
        lasting.synced(5, false);
        lasting.synced(6, false);
        lasting.synced(9, true);
        let told: Vec<_> = (0..10).map(|seq| lasting.of(seq)).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(told, [yes, yes, yes, no, no, no, yes, yes, yes, None]);
    }
}
