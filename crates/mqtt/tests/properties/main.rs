//! What must hold for every packet and for every run of bytes.

mod arbitrary;
mod encoding;
mod other_codecs;
mod robustness;

use thicket_mqtt::ProtocolVersion;

const VERSIONS: [ProtocolVersion; 3] = [
    ProtocolVersion::V31,
    ProtocolVersion::V311,
    ProtocolVersion::V5,
];

/// A version and one packet of it.
fn packet_of_any_version()
-> impl proptest::strategy::Strategy<Value = (ProtocolVersion, thicket_mqtt::Packet<'static>)> {
    use proptest::prelude::*;
    let of = |version| arbitrary::packet(version).prop_map(move |packet| (version, packet));
    prop_oneof![of(VERSIONS[0]), of(VERSIONS[1]), of(VERSIONS[2])]
}
