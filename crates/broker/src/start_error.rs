//! Why a node could not start.

use std::io;

use thicket_storage::StorageError;

use crate::identity::IdentityError;
use crate::storage::RecoveryError;

/// A node could not start. Nothing of it is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The HTTP API or a listener cannot bind its address.
    #[error("cannot listen on {address}: {}", bind_problem(source, key))]
    Bind {
        /// As configured.
        address: String,
        /// `listen`, `http`, `probe` or `placement-listen`.
        key: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A certificate or a key is not valid.
    #[error("tls: {0}")]
    Tls(#[from] thicket_transport::tls::TlsError),
    /// The stored data cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The stored data cannot be used.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// A hook is not valid.
    #[error(transparent)]
    Hook(#[from] thicket_hooks::HookError),
    /// Telemetry cannot be exported.
    #[error("telemetry cannot be exported: {0}")]
    Telemetry(#[from] thicket_telemetry::ExporterError),
    /// The system refused the sandbox although it has Landlock.
    #[error("sandbox: {0}; `sandbox = \"off\"` starts the node without it")]
    Sandbox(#[from] thicket_process::sandbox::SandboxError),
    /// The system refused a thread or a descriptor.
    #[error("cannot start a node: {0}")]
    System(#[from] io::Error),
}

fn bind_problem(error: &io::Error, key: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "the port is in use by another process; stop it, or choose another with `--{key} HOST:PORT`"
        ),
        io::ErrorKind::AddrNotAvailable => "this host has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "this user may not use the port (below 1024 it takes privileges)".to_owned()
        }
        _ => error.to_string(),
    }
}
