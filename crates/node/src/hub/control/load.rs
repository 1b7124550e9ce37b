//! Loads of nodes and rates of topics as bytes.

use std::sync::Arc;

use crate::{
    ClientAddress, ClientTransport, ListenerLikeness, NodeLoad, NodeState, Rates,
    hub::wire::{Reader, put_bytes, put_u64},
};

/// Addresses of one node that are kept; the rest is ignored.
const MAXIMUM_ADDRESSES: usize = 64;

/// Topics with their rates as they are sent; 0: hardly any message any more.
pub(in crate::hub) type SentTopics<'a> = Vec<(&'a str, u64)>;

/// flags u8 (cpu present 1, memory present 2, memory limit present 4, draining 8, full 16, starting
/// 32), then numbers, the HTTP address (empty: none), and addresses of clients until the end:
/// transport u8, topic prefix, HOST:PORT.
pub(super) fn put_state(out: &mut Vec<u8>, state: &NodeState) {
    let load = &state.load;
    let flags = [
        load.cpu_permille.is_some(),
        load.memory_bytes.is_some(),
        load.memory_limit_bytes.is_some(),
        load.is_draining,
        load.is_full,
        load.is_starting,
    ];
    let bits = flags
        .iter()
        .rev()
        .fold(0, |bits, flag| bits << 1 | u8::from(*flag));
    out.push(bits);
    for number in [
        u64::from(load.cpu_permille.unwrap_or(0)),
        load.memory_bytes.unwrap_or(0),
        load.memory_limit_bytes.unwrap_or(0),
        load.connections,
    ] {
        put_u64(out, number);
    }
    for rates in [load.external, load.internal] {
        put_u64(out, rates.in_messages);
        put_u64(out, rates.in_bytes);
        put_u64(out, rates.out_messages);
        put_u64(out, rates.out_bytes);
    }
    put_bytes(out, state.http_address.as_deref().unwrap_or("").as_bytes());
    for address in &state.addresses {
        out.push(address.likeness.transport as u8);
        put_bytes(out, address.likeness.topic_prefix.as_bytes());
        put_bytes(out, address.address.as_bytes());
    }
}

pub(super) fn read_state(reader: &mut Reader<'_>) -> Option<NodeState> {
    let flags = reader.u8().filter(|flags| *flags < 64)?;
    let known = |bit: u8, value: u64| (flags & bit != 0).then_some(value);
    let cpu = known(1, reader.u64()?);
    let load = NodeLoad {
        cpu_permille: cpu.map(u16::try_from).transpose().ok()?,
        memory_bytes: known(2, reader.u64()?),
        memory_limit_bytes: known(4, reader.u64()?),
        connections: reader.u64()?,
        external: read_rates(reader)?,
        internal: read_rates(reader)?,
        is_draining: flags & 8 != 0,
        is_full: flags & 16 != 0,
        is_starting: flags & 32 != 0,
    };
    let http_address = Some(reader.text()?).filter(|address| !address.is_empty());
    let http_address = http_address.map(Arc::from);
    let mut addresses = reader.rest_of(read_address)?;
    addresses.truncate(MAXIMUM_ADDRESSES);
    Some(NodeState {
        load,
        addresses,
        http_address,
    })
}

fn read_rates(reader: &mut Reader<'_>) -> Option<Rates> {
    Some(Rates {
        in_messages: reader.u64()?,
        in_bytes: reader.u64()?,
        out_messages: reader.u64()?,
        out_bytes: reader.u64()?,
    })
}

fn read_address(reader: &mut Reader<'_>) -> Option<ClientAddress> {
    let transport = usize::from(reader.u8()?);
    Some(ClientAddress {
        likeness: ListenerLikeness {
            transport: *ClientTransport::ALL.get(transport)?,
            topic_prefix: reader.text()?.into(),
        },
        address: reader.text()?.into(),
    })
}

/// first u8 (1: what was sent before is void), then topics until the end, each with its rate.
pub(super) fn put_topics(out: &mut Vec<u8>, is_first: bool, topics: &SentTopics<'_>) {
    out.push(u8::from(is_first));
    for (topic, rate) in topics {
        put_bytes(out, topic.as_bytes());
        put_u64(out, *rate);
    }
}

pub(super) fn read_topics<'a>(reader: &mut Reader<'a>) -> Option<(bool, SentTopics<'a>)> {
    let is_first = reader.flag()?;
    let topics = reader.rest_of(|reader| Some((reader.text()?, reader.u64()?)))?;
    Some((is_first, topics))
}
