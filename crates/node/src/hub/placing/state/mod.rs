//! What [`Placing`](super::Placing) has of each of its parts. Nothing here sends anything.

pub(in crate::hub) mod ask;
pub(in crate::hub) mod gather;
pub(in crate::hub) mod kept;
pub(in crate::hub) mod learned;
pub(in crate::hub) mod load;
pub(in crate::hub) mod moving;
pub(in crate::hub) mod orders;
pub(in crate::hub) mod placements;
pub(in crate::hub) mod rebalance;
pub(in crate::hub) mod redirection;
pub(in crate::hub) mod topics;
