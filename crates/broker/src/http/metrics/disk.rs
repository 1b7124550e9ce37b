//! Metrics of the stored data and the disk.

use thicket_telemetry::Kind::{Counter, Gauge};

use super::page::Page;
use crate::disk::Disk;

pub(super) fn append(page: &mut Page, disk: &Disk) {
    let (log_bytes, checkpoints) = disk.logs();
    page.single(
        "thicket_disk_full",
        Gauge,
        "Whether messages that would have to be stored are refused, as the disk is full",
        u64::from(disk.is_full()),
    );
    if let Some((free, size)) = disk.space() {
        page.single(
            "thicket_disk_free_bytes",
            Gauge,
            "Free on the file system of the data directory",
            free,
        );
        page.single(
            "thicket_disk_size_bytes",
            Gauge,
            "Size of that file system",
            size,
        );
    }
    page.single(
        "thicket_log_bytes",
        Gauge,
        "Bytes of the logs of all threads that are still needed",
        log_bytes,
    );
    page.single(
        "thicket_log_checkpoints_total",
        Counter,
        "Checkpoints of the logs written",
        checkpoints,
    );
    page.histogram(
        "thicket_store_sync_seconds",
        "How long a sync of the disk took",
        &disk.syncs(),
    );
}
