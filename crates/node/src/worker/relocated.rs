//! Connections that another worker hands over: see `relocate`.

use std::{rc::Rc, sync::Arc};

use super::{
    Worker,
    attach::serve,
    relocate::end_relocation,
    rights::set_grant,
    state::{
        connection::{Attached, Connection},
        counts::MessageCount,
        following::Following,
        relocated::Relocated,
        sessions::Session,
    },
};
use crate::{ConnectionId, EventLevel, Now, messages::peer_text};

impl Worker {
    /// A connection in service, from another worker.
    pub(super) fn take_relocated(
        &mut self,
        now: Now,
        id: ConnectionId,
        connection: Connection,
        relocated: Relocated,
    ) {
        let client_id = Arc::clone(&relocated.client_id);
        if self.cx.sessions.find(&client_id).is_some() {
            debug_assert!(false, "a session came to a worker that has it");
            self.cx.connections.insert(id, connection);
            self.cx.close(id);
            end_relocation(&mut self.cx, &client_id);
            return;
        }
        let missed_a_reload = relocated.reloads != self.relocations.reloads;
        let (uid, serial) = (relocated.uid, self.cx.serial());
        let own_id: Rc<str> = (*client_id).into();
        let mut session = Session::new(serial, own_id, uid, 0, &self.cx.config.limits);
        session.connection = Some(id);
        session.protocol_version = relocated.version as u8;
        session.epoch = relocated.epoch;
        session.clean_epoch = relocated.clean_epoch;
        session.dropped_messages = relocated.dropped_messages;
        session.inbound = relocated.inbound;
        let key = self.cx.sessions.insert(session);
        let grant = relocated.grant.as_deref();
        let user_name = grant.and_then(|grant| grant.user_name.clone());
        set_grant(&mut self.cx, key, relocated.grant);
        let aliases_in = relocated.aliases_in.into_iter();
        let attached = Attached {
            session: key,
            version: relocated.version,
            is_bridge: relocated.is_bridge,
            silence_allowed: relocated.silence_allowed,
            window: relocated.window,
            maximum_packet_size: relocated.maximum_packet_size,
            problem_information: relocated.problem_information,
            aliases_in: aliases_in
                .map(|topic| topic.map(|topic| (*topic).into()))
                .collect(),
            aliases_out: relocated.aliases_out,
            prefix: (*relocated.prefix).into(),
            reauthentication: relocated.reauthentication,
            following: Following::new(now.instant, relocated.wait),
            count: MessageCount::new(now.instant),
            better_nodes: relocated.better_nodes,
        };
        let peer = connection.peer;
        self.cx.connections.insert(id, connection);
        (self.quotas).charge(&mut self.cx, id, key, user_name.as_deref());
        serve(&mut self.cx, now, id, attached, relocated.last_packet);
        end_relocation(&mut self.cx, &client_id);
        self.cx.event(
            EventLevel::Debug,
            "a connection moved to the worker of its subscribers",
            vec![
                ("client_id", client_id.to_string()),
                ("peer", peer_text(peer)),
            ],
        );
        if self.cx.is_draining() {
            self.send_away(now, id);
        } else if missed_a_reload {
            // What it may do was not checked against the new rights: it connects again.
            self.end_connection(now, id);
        } else {
            self.cx.set_reading(id, true);
        }
    }
}
