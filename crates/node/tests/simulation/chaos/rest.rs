//! The end of a run: everything comes to rest, and what nodes and clients have then.

use thicket_mqtt::{Packet, Qos, Subscribe};
use thicket_node::NodeLoad;

use super::{
    faults::LONGEST_PAUSE_MILLIS,
    plan::Fault,
    run::{DRIFT_PPM, FORK_MILLIS, Run, STEP_MILLIS},
};
use thicket_simulation::net::Weather;

impl Run {
    pub fn come_to_rest(&mut self) -> super::checks::Verdict {
        // Nobody is sent away any more.
        self.plan.redirects = false;
        for node in 0..self.plan.nodes {
            self.world.set_load(node, NodeLoad::default());
        }
        self.tokens.are_last = true;
        while !self.faults.is_empty() {
            self.cure_faults(u64::MAX);
        }
        for (one, other) in self.world.net.partings() {
            self.world.net.heal(one, other);
        }
        self.world.net.weather = Weather::CALM;
        if self.ledger.is_still {
            self.pass(LONGEST_PAUSE_MILLIS + 3 * FORK_MILLIS)?;
        }
        let mut restless = String::new();
        for _ in 0..120 {
            for client in 0..=self.plan.clients {
                if self.has_short_token(client) {
                    self.disconnect(client);
                }
                self.connect_again(client);
            }
            self.pass(1_000)?;
            restless = self.restless();
            if restless.is_empty() {
                return self.pass(1_000);
            }
        }
        Err(format!("everything comes to rest: {restless}"))
    }

    fn connect_again(&mut self, client: usize) {
        self.plan.resets = 0;
        self.connect(client);
    }

    /// What is still under way.
    fn restless(&self) -> String {
        let mut restless = String::new();
        let mut add = |what: String| {
            restless.push_str(&what);
            restless.push_str("; ");
        };
        if !self.world.is_whole() {
            add("nodes do not see each other".into());
        }
        for (index, client) in self.world.clients.iter().enumerate() {
            let name = &client.machine.config().client_id;
            if self.has_short_token(index) {
                add(format!("{name} has a token that expires"));
            }
            if !client.is_connected() {
                add(format!("{name} is {:?}", client.machine.state()));
            } else if client.machine.inflight() > 0 {
                add(format!(
                    "{name} waits for {} acknowledgements",
                    client.machine.inflight()
                ));
            }
        }
        for (node, session) in self.world.sessions() {
            if session.queued_messages > 0 || session.inflight > 0 {
                add(format!("node {node}: {session:?}"));
            }
        }
        for node in 0..self.plan.nodes {
            for (index, traffic) in self.world.traffic(node).iter().enumerate() {
                if traffic.unacknowledged_messages > 0 {
                    let count = traffic.unacknowledged_messages;
                    add(format!(
                        "node {node}, worker {index} owes {count} acknowledgements"
                    ));
                }
            }
        }
        restless
    }

    pub fn check_rest(&mut self) -> super::checks::Verdict {
        super::checks::one_connection_a_client_identifier(&self.world, self.plan.clients + 1)?;
        super::checks::wills_are_published_as_promised(&self.ledger, &mut self.excuses)?;
        let retained: Vec<Vec<String>> = (0..self.plan.nodes)
            .map(|node| self.retained_at(node))
            .collect();
        let others = self.plan.nodes as u64 - 1;
        // A node by itself replaces what it has, however its clock is set.
        let drifts = u64::from(self.plan.drifts);
        let drifted = drifts * self.world.net.now * 2 * DRIFT_PPM.unsigned_abs() / 1_000_000;
        let frozen = self.plan.faults.contains(&Fault::Freeze);
        let skew = if frozen || self.plan.sets_clocks && others > 0 {
            2 * STEP_MILLIS
        } else {
            self.plan.skew * others + drifted
        };
        let used = &mut self.excuses;
        super::checks::retained_messages_converge(&self.ledger, &retained, skew, used)
    }

    /// What a node has retained, in words.
    fn retained_at(&mut self, node: usize) -> Vec<String> {
        let client_id = format!("checker-{node}");
        let connect = thicket_mqtt::Connect::new(super::V5, &client_id);
        let checker = self.world.connect(node, connect);
        let id = thicket_mqtt::PacketId::new(1).expect("one");
        let subscribe = Subscribe::new(id, "t/#", Qos::AtMostOnce);
        self.world.send(checker, &Packet::Subscribe(subscribe));
        self.world.run_for(2_000);
        let mut heard = self.world.tester(checker).take_heard();
        heard.retain(|said| said.starts_with("PUBLISH"));
        heard.sort();
        self.world.hang_up(checker);
        heard
    }
}
