//! Exports and imports of a node: sessions, their queues, retained messages.

/// The progress of an export of a worker's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportPlace {
    /// Sessions before this one are done.
    pub(crate) session: u32,
    /// Of that session, to recognise it; 0: it is not begun.
    pub(crate) serial: u64,
    /// Messages before this one of its queue are done.
    pub(crate) sequence: u64,
}

/// A part of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exported {
    /// A persistent session: a `SessionSnapshot`, encoded at the time of the page.
    Session(Vec<u8>),
    /// Some of the messages that wait in its queue, as `encode_queue` writes them, oldest first.
    Queue {
        /// Whose.
        client_id: String,
        /// Of messages.
        messages: Vec<u8>,
    },
}

/// Part of the sessions of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportPage {
    /// Sessions, each before its messages.
    pub items: Vec<Exported>,
    /// Where to continue; `None`: that was all.
    pub next: Option<ExportPlace>,
}

/// What became of a session that was to be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// It is here.
    Done,
    /// The client identifier has a session, which stays.
    Exists,
    /// The disk has no capacity for it.
    DiskFull,
    /// The client identifier could not be claimed: ask again later.
    Unavailable,
    /// It is no snapshot.
    Unreadable,
}

/// What became of messages that were to be put into a session's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportedMessages {
    /// Sent, or in the queue.
    pub taken: u64,
    /// Over the limit of the queue, or of the disk.
    pub dropped: u64,
}
