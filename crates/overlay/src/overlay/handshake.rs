//! From a socket to a link whose other end is identified: CONNECT, CONNACK. The states are in [`crate::link`].
//!
//! Where links must be proved, nothing received on an unproved link is used: it is closed with a reason, and nothing else changes.

use thicket_mqtt::{
    Connack, Connect, Disconnect, Packet, PacketKind, ProtocolVersion, ReasonCode, UserProperties,
};
use thicket_session::time::Instant;

use super::Overlay;
use crate::channel::Channel;
use crate::hello::{CLIENT_ID_PREFIX, Hello, Holder, KnownAs};
use crate::identity::{Incarnation, KeyId, LinkId};
use crate::interface::{EventLevel, FarEnd};
use crate::link::LinkState;
use crate::wire_version::WireRange;

/// Raises this node's incarnation above that of at most this many processes: more cannot be stale records, but a process that keeps counting up.
const MAXIMUM_JUMPS: usize = 64;

/// Why a link is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    reason_code: ReasonCode,
    text: String,
    known: Option<KnownAs>,
    holder: Option<Holder>,
    level: EventLevel,
}

impl Refusal {
    fn new(reason_code: ReasonCode, text: String) -> Self {
        Self {
            reason_code,
            text,
            known: None,
            holder: None,
            level: EventLevel::Warn,
        }
    }

    /// The properties sent to the other end beside the reason. `process`: the one that refuses.
    fn told(&self, process: u64) -> Vec<(&'static str, String)> {
        let mut properties = vec![("process", format!("{process:016x}"))];
        properties.extend(self.holder.iter().flat_map(Holder::to_properties));
        properties.extend(self.known.into_iter().flat_map(KnownAs::to_properties));
        properties
    }

    /// The other end violated the handshake.
    pub(super) fn protocol(text: String) -> Self {
        Self::new(ReasonCode::ProtocolError, text)
    }
}

impl Overlay {
    pub(super) fn on_dialled(&mut self, now: Instant, address: &str, id: LinkId) {
        self.dialler.dialled(address);
        self.start_handshake(now, id, Some(address.to_owned()));
    }

    /// The first packet of a link this node opened.
    pub(super) fn start_handshake(&mut self, now: Instant, id: LinkId, address: Option<String>) {
        let own = self.own_hello();
        self.add_link(now, id, LinkState::Dialled, address);
        if self.leaving {
            return self.close_link(now, id);
        }
        let properties = own.to_properties();
        let client_id = own.client_id();
        let connect = Connect {
            keep_alive: 0,
            maximum_packet_size: Some(crate::MAXIMUM_PACKET_BYTES),
            topic_alias_maximum: Channel::ALL.len() as u16,
            user_properties: borrow(&properties),
            ..Connect::new(ProtocolVersion::V5, &client_id)
        };
        self.write_packet(id, &Packet::Connect(Box::new(connect)));
    }

    pub(super) fn on_dial_failed(&mut self, now: Instant, address: &str, error: &str) {
        let node = self.dialler.failed(now, address, &mut self.random);
        if self.dialler.is_news(address, error) {
            let fields = vec![("address", address.to_owned()), ("error", error.to_owned())];
            self.event(EventLevel::Info, "node cannot be dialled", fields);
        }
        if let Some(slot) = node.and_then(|node| self.slots.get(&node).copied()) {
            self.on_unreachable(slot);
        }
    }

    /// The shell reports the proof of a link that this node opened.
    pub(super) fn on_proved(&mut self, id: LinkId, key: KeyId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.end.key = Some(key);
        }
    }

    /// Whether what is received on this link may be used. A tunnel is: its bytes arrived over links that are proved.
    fn is_proved(&self, id: LinkId) -> bool {
        let has_key = || {
            self.links
                .get(&id)
                .is_some_and(|link| link.end.key.is_some())
        };
        !self.config.links_are_proved || Self::is_tunnel(id) || has_key()
    }

    pub(super) fn on_accepted(&mut self, now: Instant, id: LinkId, end: FarEnd, bytes: &[u8]) {
        self.add_link(now, id, LinkState::Accepted, None);
        if let Some(link) = self.links.get_mut(&id) {
            link.end = end;
        }
        if self.leaving {
            let refusal = Refusal::new(
                ReasonCode::ServerShuttingDown,
                "this node shuts down".into(),
            );
            return self.refuse(
                now,
                id,
                &Refusal {
                    level: EventLevel::Debug,
                    ..refusal
                },
            );
        }
        self.handle_received(now, id, bytes, |_| {});
    }

    /// A packet on a link that is not yet a candidate.
    pub(super) fn on_handshake(&mut self, now: Instant, id: LinkId, packet: &Packet<'_>) {
        let Some(state) = self.links.get(&id).map(|link| link.state.clone()) else {
            return;
        };
        if !self.is_proved(id) {
            let text = "the other end did not prove that it belongs to this cluster".to_owned();
            return self.refuse(now, id, &Refusal::new(ReasonCode::NotAuthorized, text));
        }
        match (state, packet) {
            (LinkState::Accepted, Packet::Connect(connect)) => self.on_connect(now, id, connect),
            (LinkState::Dialled, Packet::Connack(connack)) => self.on_connack(now, id, connack),
            (state, packet) => {
                let text = format!("{:?} on a link that is {}", packet.kind(), state.name());
                self.refuse(now, id, &Refusal::protocol(text));
            }
        }
    }

    fn on_connect(&mut self, now: Instant, id: LinkId, connect: &Connect<'_>) {
        let peer = match read_connect(connect) {
            Ok(peer) => peer,
            Err(refusal) => return self.refuse(now, id, &refusal),
        };
        match self.check_cluster(&peer) {
            Ok(()) => self.accept(now, id, peer),
            Err(refusal) => self.refuse(now, id, &refusal),
        }
    }

    fn accept(&mut self, now: Instant, id: LinkId, peer: Hello) {
        if let Err(refusal) = self.check_identity(&peer) {
            if peer.node == self.config.node && peer.process != self.process {
                // The process that dials learns from the refusal whether it must end, so the other one is dialled too.
                self.dialler.note_address(now, &peer.address, None);
            }
            return self.refuse(now, id, &refusal);
        }
        let properties = self.own_hello().to_properties();
        let connack = Connack {
            maximum_packet_size: Some(crate::MAXIMUM_PACKET_BYTES),
            topic_alias_maximum: Some(Channel::ALL.len() as u16),
            user_properties: borrow(&properties),
            ..Connack::new(ReasonCode::Success)
        };
        self.write_packet(id, &Packet::Connack(Box::new(connack)));
        self.on_candidate(now, id, peer);
    }

    /// On the dialling node: the answer of the accepting one.
    fn on_connack(&mut self, now: Instant, id: LinkId, connack: &Connack<'_>) {
        if connack.reason_code.is_error() {
            return self.on_refused(
                now,
                id,
                connack.reason_code,
                connack.reason_string,
                &connack.user_properties,
            );
        }
        let peer = match Hello::from_properties(&connack.user_properties) {
            Ok(peer) => peer,
            Err(error) => return self.refuse(now, id, &Refusal::protocol(error.to_string())),
        };
        match self
            .check_cluster(&peer)
            .and_then(|()| self.check_identity(&peer))
        {
            Ok(()) => self.on_candidate(now, id, peer),
            Err(refusal) => self.refuse(now, id, &refusal),
        }
    }

    /// Refuses other clusters on the same network, which must never merge, and wire versions that would misread each other.
    fn check_cluster(&self, peer: &Hello) -> Result<(), Refusal> {
        let own = WireRange::OWN;
        if own.common(peer.wire).is_none() {
            let text = format!("wire version {} is not supported, only {own}", peer.wire);
            return Err(Refusal::new(ReasonCode::UnsupportedProtocolVersion, text));
        }
        if peer.cluster != self.config.cluster_name {
            let text = format!(
                "cluster {:?} is not {:?}",
                peer.cluster, self.config.cluster_name
            );
            return Err(Refusal::new(ReasonCode::NotAuthorized, text));
        }
        Ok(())
    }

    /// Ensures one process for an identity, and incarnations that rise.
    fn check_identity(&self, peer: &Hello) -> Result<(), Refusal> {
        let in_use = |text: String, level, holder| {
            Err(Refusal {
                level,
                holder,
                ..Refusal::new(ReasonCode::ClientIdentifierNotValid, text)
            })
        };
        if peer.node == self.config.node {
            return if peer.process == self.process {
                in_use("this is the node itself".into(), EventLevel::Debug, None)
            } else {
                let holder = Holder {
                    address: self.config.address.clone(),
                    incarnation: Some(self.incarnation()),
                };
                in_use(
                    format!(
                        "node id {} is in use by the node at {}",
                        peer.node, self.config.address
                    ),
                    EventLevel::Error,
                    Some(holder),
                )
            };
        }
        let Some(record) = self.view.record(peer.node) else {
            return Ok(());
        };
        if record.process == peer.process {
            return if peer.incarnation >= record.incarnation && !self.has_later_process(peer) {
                Ok(())
            } else {
                in_use(
                    format!("incarnation {} is no longer in use", peer.incarnation.0),
                    EventLevel::Debug,
                    None,
                )
            };
        }
        let linked = self
            .peer_of(peer.node)
            .is_some_and(|known| known.link.is_some() && known.process != peer.process);
        if linked || self.view.component().contains(&peer.node) {
            // A node that restarted so fast that some nodes have not noticed looks the same, so this is not an error yet.
            let holder = Holder {
                address: record.address.clone(),
                incarnation: None,
            };
            return in_use(
                format!(
                    "node id {} is in use by the node at {}",
                    peer.node, record.address
                ),
                EventLevel::Warn,
                Some(holder),
            );
        }
        if peer.incarnation > record.incarnation {
            return Ok(());
        }
        let known = Some(KnownAs {
            incarnation: record.incarnation,
            process: record.process,
        });
        let text = format!(
            "incarnation {} does not rise above {}",
            peer.incarnation.0, record.incarnation.0
        );
        let refusal = Refusal::new(ReasonCode::ClientIdentifierNotValid, text);
        Err(Refusal {
            known,
            level: EventLevel::Info,
            ..refusal
        })
    }

    /// Whether a later process of this node is linked, or was until a moment ago: what an earlier one had sent arrives late.
    fn has_later_process(&self, hello: &Hello) -> bool {
        self.peer_of(hello.node).is_some_and(|known| {
            let is_expected = known.link.is_some() || !known.is_down();
            is_expected && known.process != hello.process && known.incarnation > hello.incarnation
        })
    }

    /// Ends a handshake with a reason that the other end can log.
    pub(super) fn refuse(&mut self, now: Instant, id: LinkId, refusal: &Refusal) {
        let Some(state) = self.links.get(&id).map(|link| link.state.clone()) else {
            return;
        };
        let told = if self.is_proved(id) {
            refusal.told(self.process)
        } else {
            Vec::new()
        };
        let properties = borrow(&told);
        let packet = match state {
            LinkState::Accepted => Packet::Connack(Box::new(Connack {
                reason_string: Some(&refusal.text),
                user_properties: properties,
                ..Connack::new(refusal.reason_code)
            })),
            LinkState::Dialled
            | LinkState::Candidate { .. }
            | LinkState::Selected { .. }
            | LinkState::Resumed { .. }
            | LinkState::Up { .. } => Packet::Disconnect(Disconnect {
                reason_string: Some(&refusal.text),
                user_properties: properties,
                ..Disconnect::new(match refusal.reason_code {
                    code if code.is_allowed_in(PacketKind::Disconnect) => code,
                    _ => ReasonCode::ImplementationSpecificError,
                })
            }),
        };
        self.write_packet(id, &packet);
        self.counters.refused_links += 1;
        let address = self.links.get(&id).and_then(|link| link.dialled.clone());
        if address
            .as_ref()
            .is_none_or(|address| self.dialler.is_news(address, &refusal.text))
        {
            let mut fields = vec![
                ("reason_code", refusal.reason_code.words()),
                ("reason", refusal.text.clone()),
            ];
            fields.extend(self.far_end(id));
            self.event(refusal.level, "link refused", fields);
        }
        self.close_link(now, id);
    }

    /// The other end refused this link, by CONNACK or DISCONNECT.
    pub(super) fn on_refused(
        &mut self,
        now: Instant,
        id: LinkId,
        reason_code: ReasonCode,
        reason: Option<&str>,
        properties: &UserProperties<'_>,
    ) {
        let address = self.links.get(&id).and_then(|link| link.dialled.clone());
        // The claims of an end that has not proved its key are only logged.
        let believed = if self.is_proved(id) {
            properties.clone()
        } else {
            UserProperties::new()
        };
        let own_process = format!("{:016x}", self.process);
        if let Some(address) = &address
            && believed.contains(&("process", &own_process))
        {
            self.dialler.set_own(address);
            return self.close_link(now, id);
        }
        if let Some(holder) = Holder::from_properties(&believed) {
            self.on_identity_held(now, holder);
        }
        let reason = reason.unwrap_or_default();
        if address
            .as_ref()
            .is_none_or(|address| self.dialler.is_news(address, reason))
        {
            let mut fields = vec![
                ("reason_code", reason_code.words()),
                ("reason", reason.to_owned()),
            ];
            fields.extend(self.far_end(id));
            self.event(EventLevel::Warn, "link refused by the other node", fields);
        }
        self.close_link(now, id);
        if let Some(known) = KnownAs::from_properties(&believed) {
            self.on_known_as(now, known);
        }
    }

    /// Another process has this node's identity. If that process itself reports so, it is alive, and the one that was there first continues. A report
    /// from a third node may be out of date: the other process is asked.
    fn on_identity_held(&mut self, now: Instant, holder: Holder) {
        let Some(incarnation) = holder.incarnation else {
            if holder.address == self.config.address {
                thicket_session::reach!("overlay/handshake: a former process is up");
                self.former_is_up_until = Some(now + self.config.timing.link_grace);
            }
            return self.dialler.note_address(now, &holder.address, None);
        };
        if incarnation < self.incarnation() {
            let fields = vec![
                ("node", self.config.node.to_string()),
                ("address", holder.address.clone()),
            ];
            self.event(
                EventLevel::Error,
                "this node's identity is in use by another process",
                fields,
            );
            self.outputs.push_back(crate::Output::IdentityInUse {
                address: holder.address,
            });
        }
    }

    /// Other nodes have a record of this identity with another process: raise the incarnation above it before anything is originated. Once for each
    /// process: one that raises its incarnation in turn is alive, and the two would do so for ever.
    pub(super) fn on_known_as(&mut self, now: Instant, known: KnownAs) {
        if known.process == self.process || known.incarnation < self.incarnation() {
            return;
        }
        let fields = vec![
            ("node", self.config.node.to_string()),
            ("incarnation", known.incarnation.0.to_string()),
        ];
        if known.incarnation >= Incarnation::MAXIMUM {
            let text = "an absurd incarnation of this node is not believed";
            return self.event(EventLevel::Error, text, fields);
        }
        if self.jumped_over.contains(&known.process) || self.jumped_over.len() >= MAXIMUM_JUMPS {
            return self.event(
                EventLevel::Error,
                "another live process has this node id",
                fields,
            );
        }
        self.jumped_over.push(known.process);
        self.set_incarnation(now, known.incarnation.next());
    }

    pub(super) fn set_incarnation(&mut self, now: Instant, incarnation: Incarnation) {
        self.view.change_own(|own| {
            own.incarnation = incarnation;
            own.version = 1;
        });
        self.outputs
            .push_back(crate::Output::IncarnationChanged { incarnation });
        self.event(
            EventLevel::Info,
            "incarnation raised",
            vec![("incarnation", incarnation.0.to_string())],
        );
        // The links were opened with the previous incarnation.
        let links: Vec<_> = self.links.keys().copied().collect();
        for id in links {
            self.close_link(now, id);
        }
    }

    /// The address of the other end of a link, as a field of an event: the one dialled, or the one it connected from.
    fn far_end(&self, id: LinkId) -> Option<(&'static str, String)> {
        let link = self.links.get(&id)?;
        let came_from = || Some(("peer", link.end.address?.to_string()));
        let dialled = link.dialled.clone().map(|address| ("address", address));
        dialled.or_else(came_from)
    }

    pub(super) fn set_state(&mut self, id: LinkId, state: LinkState) {
        self.links.set_state(id, state);
    }

    pub(super) fn write_packet(&mut self, id: LinkId, packet: &Packet<'_>) -> bool {
        self.links
            .get_mut(&id)
            .is_some_and(|link| link.write_packet(packet))
    }
}

fn read_connect(connect: &Connect<'_>) -> Result<Hello, Refusal> {
    if connect.version != ProtocolVersion::V5 || !connect.client_id.starts_with(CLIENT_ID_PREFIX) {
        return Err(Refusal::protocol(format!(
            "{:?} is no client id of a node",
            connect.client_id
        )));
    }
    let peer = Hello::from_properties(&connect.user_properties)
        .map_err(|error| Refusal::protocol(error.to_string()))?;
    if peer.client_id() != connect.client_id {
        return Err(Refusal::protocol(format!(
            "client id {:?} is not that of node {}",
            connect.client_id, peer.node
        )));
    }
    Ok(peer)
}

fn borrow<'a>(properties: &'a [(&'static str, String)]) -> UserProperties<'a> {
    properties
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect()
}
