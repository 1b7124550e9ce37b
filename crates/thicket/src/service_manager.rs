//! What a service manager is told of a node: systemd with `Type=notify`, or whatever else listens at the path `NOTIFY_SOCKET`.
//!
//! Without that variable nothing is sent.

use sd_notify::NotifyState;

/// The node accepts connections on `addresses`.
pub fn ready(addresses: &str) {
    let status = format!("listens on {addresses}");
    send(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// The node lets its clients go and ends.
pub fn stopping() {
    let status = NotifyState::Status("stopping");
    send(&[NotifyState::Stopping, status]);
}

/// A manager that cannot be told is no reason to stop serving: it ends the node itself if it minds.
fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify the service manager at NOTIFY_SOCKET");
    }
}
