//! Certificates of brokers whose clients use TLS: each signs its own, and clients accept any certificate. The cost of TLS does not depend on it.

use std::path::Path;

use crate::driver::write_file;
use crate::error::LabError;

/// Writes `tls.pem` and `tls.key` for a broker at `address` into its folder.
pub fn write(dir: &Path, address: &str) -> Result<(), LabError> {
    let made = rcgen::generate_simple_self_signed(vec![address.to_owned()])
        .map_err(|error| LabError::Machine(format!("a certificate for {address}: {error}")))?;
    write_file(&dir.join("tls.pem"), &made.cert.pem(), None)?;
    write_file(
        &dir.join("tls.key"),
        &made.signing_key.serialize_pem(),
        Some(0o600),
    )
}
