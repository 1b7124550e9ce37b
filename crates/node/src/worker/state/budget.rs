//! What a client may publish before it has to wait.

use crate::TokenBucket;

/// What the client of a connection may publish before it has to wait.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::worker) struct Budget {
    pub messages: TokenBucket,
    pub bytes: TokenBucket,
}
