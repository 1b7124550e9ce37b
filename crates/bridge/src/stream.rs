//! The connections of a bridge.

use std::fmt::Debug;
use std::io::{self, Read, Write};

/// A byte stream to a broker, in halves for different threads.
pub struct Connection {
    /// Blocks until bytes arrive; 0 is the end.
    pub reader: Box<dyn Read + Send>,
    /// Blocks until all bytes are written.
    pub writer: Box<dyn Write + Send>,
    /// Closes both halves, and interrupts a blocked read.
    pub close: Box<dyn Fn() + Send>,
}

impl Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Makes connections to one broker, over any transport.
pub trait Dial: Debug + Send + Sync {
    /// Connects; may block for some seconds.
    ///
    /// # Errors
    /// There is no server, or it uses another protocol.
    fn dial(&self) -> io::Result<Connection>;

    /// The address, for people.
    fn place(&self) -> String;
}
