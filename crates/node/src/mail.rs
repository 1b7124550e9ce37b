//! placeholder
#[derive(Debug)]
pub(crate) enum Content {}
#[derive(Debug)]
pub(crate) struct GrantedClaim {}
