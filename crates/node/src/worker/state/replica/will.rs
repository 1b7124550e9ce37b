//! The will of a session that ends with its connection, as another node holds it.

use super::stream::{Level, Streams};
use crate::worker::state::sessions::Session;

/// Where the will of a session is held.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct WillBackup {
    pub stream: u8,
    /// Distinguishes the stream from those that had its index before.
    pub stream_id: u64,
    /// The will's number in that stream.
    pub number: u64,
    /// The other node holds the will when it has applied this.
    pub position: u64,
}

impl WillBackup {
    /// Whether the other node holds the will.
    pub fn is_held(&self, streams: &Streams) -> bool {
        let stream = streams.get(self.stream);
        let stream = stream.filter(|stream| stream.id == self.stream_id);
        stream.is_some_and(|stream| stream.has(self.position, Level::Applied))
    }
}

impl Session {
    /// Whether it has a will that is to be held elsewhere, though the session itself is not.
    fn has_passing_will(&self) -> bool {
        !self.is_persistent() && self.connection.is_some() && self.lasting_will().is_some()
    }

    /// Whether it has one that was not replicated.
    pub fn has_unreplicated_will(&self) -> bool {
        self.will_backup.is_none() && self.has_passing_will()
    }

    /// Whether no other node holds its will, though one should.
    pub fn lacks_will_backup(&self, streams: &Streams) -> bool {
        let backup = self.will_backup.as_deref();
        self.has_passing_will() && !backup.is_some_and(|backup| backup.is_held(streams))
    }
}
