//! Datagrams of strangers: announcements of nodes.

use std::net::{IpAddr, Ipv4Addr};

use thicket_broker::Announcement;

/// Reads a datagram as an announcement.
///
/// # Panics
/// If one that is not signed does not survive being encoded again, or depends on what follows it.
pub fn read_announcement(bytes: &[u8]) {
    let Ok(heard) = Announcement::decode(bytes) else {
        return;
    };
    let announcement = &heard.announcement;
    let address = announcement.reachable_at(IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert!(address.contains(':'), "{address}");
    // No key is known here: what says that it is signed is a stranger's.
    let is_unsigned = heard.is_of(&[]);
    let encoded = announcement.encode(None);
    if is_unsigned {
        assert_eq!(encoded, bytes);
    }
    let again = Announcement::decode(&encoded).expect("what we encoded");
    assert_eq!(&again.announcement, announcement);
    for end in 0..encoded.len() {
        assert!(Announcement::decode(&encoded[..end]).is_err(), "{end}");
    }
}
