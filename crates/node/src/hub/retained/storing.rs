//! What is read of retained messages at the start, and handed to the shell to be stored.

use crate::{
    Keyspace, LogStatus, Now, RecoverError, Stored, Unstored,
    hub::{Hub, retained::store::StoredRetained},
    journal::hexadecimal,
};

impl Hub {
    /// What must be stored before anything leaves; `None`: nothing. Call it after `end_round`, and answer with `handle_stored`.
    pub fn unstored(&mut self) -> Option<Unstored<'_>> {
        let operations = &self.retained.store().operations;
        (!operations.is_empty()).then_some(Unstored {
            record: &[],
            operations,
        })
    }

    /// Whether nothing waits to be stored.
    pub(crate) fn is_stored(&mut self) -> bool {
        self.retained.store().operations.is_empty()
    }

    /// What `unstored` returned is stored.
    pub fn handle_stored(&mut self, status: LogStatus) {
        self.retained.store().operations.clear();
        self.handle_log_status(status);
    }

    /// The free capacity has changed.
    pub fn handle_log_status(&mut self, status: LogStatus) {
        self.retained.store().space = status.space;
    }

    /// Reads a value that was stored before the node stopped.
    ///
    /// # Errors
    /// [`RecoverError`]: it is unreadable, so the node must not start.
    pub fn recover(&mut self, now: Now, stored: Stored<'_>) -> Result<(), RecoverError> {
        let Stored::Value {
            keyspace,
            key,
            value,
        } = stored
        else {
            debug_assert!(false, "the hub has no log");
            return Ok(());
        };
        let unreadable = |problem| RecoverError::Value {
            keyspace,
            key: hexadecimal(key),
            problem,
        };
        if keyspace == Keyspace::Members {
            self.cx.members.recover(key, value).map_err(unreadable)?;
            let own = &self.cx.config.overlay;
            self.cx.members.join(own.node, &own.name, &own.address);
            return Ok(());
        }
        let stored = StoredRetained::decode(value).map_err(unreadable)?;
        self.retained.recover(now, &stored);
        Ok(())
    }
}
