//! placeholder
pub mod time {
    //! Clocks.
    /// Milliseconds since an arbitrary start.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Instant(pub u64);
    /// Milliseconds since the Unix epoch.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct WallClock(pub u64);
}
