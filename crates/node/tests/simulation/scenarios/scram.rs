//! Enhanced authentication (5.0, 4.12) with SCRAM-SHA-256.

use thicket_access::scram::{ClientExchange, METHOD};
use thicket_mqtt::{Auth, Connect, Packet, ReasonCode};

use super::rights::{policy, with};
use super::{V5, play, play_with};
use thicket_simulation::{TesterId, World};

const ACL: &str = "pattern %u/#";

fn auth<'a>(reason_code: ReasonCode, method: Option<&'a str>, data: &'a [u8]) -> Packet<'a> {
    Packet::Auth(Auth {
        reason_code,
        authentication_method: method,
        authentication_data: Some(data),
        reason_string: None,
        user_properties: Vec::new(),
    })
}

/// Steps of these scenarios.
trait Steps {
    #[track_caller]
    fn challenged(&mut self, exchange: &ClientExchange) -> TesterId;
    #[track_caller]
    fn answer(&mut self, tester: TesterId, exchange: &mut ClientExchange);
    #[track_caller]
    fn proved(&mut self, name: &str) -> TesterId;
}

impl Steps for World {
    /// Says CONNECT with the first message of an exchange; the challenge was heard.
    #[track_caller]
    fn challenged(&mut self, exchange: &ClientExchange) -> TesterId {
        let first = exchange.first();
        let connect = Connect {
            authentication_method: Some(METHOD),
            authentication_data: Some(&first),
            ..Connect::new(V5, "client")
        };
        let tester = self.connect(0, connect);
        self.expect(tester, &["AUTH 0x18"]);
        tester
    }

    #[track_caller]
    fn answer(&mut self, tester: TesterId, exchange: &mut ClientExchange) {
        let challenge = self.tester(tester).authentication_data.clone();
        let proof = exchange.respond(&challenge).expect("a challenge");
        let packet = auth(ReasonCode::ContinueAuthentication, Some(METHOD), &proof);
        self.send(tester, &packet);
    }

    /// A client in service that has proved to be `name`.
    #[track_caller]
    fn proved(&mut self, name: &str) -> TesterId {
        let mut exchange = ClientExchange::new(name, name.as_bytes(), "client");
        let tester = self.challenged(&exchange);
        self.answer(tester, &mut exchange);
        self.expect(tester, &["CONNACK"]);
        let last = self.tester(tester).authentication_data.clone();
        assert_eq!(exchange.verify(&last), Ok(()), "the server proves itself");
        tester
    }
}

#[test]
fn who_proves_to_know_the_password_comes_in_with_the_users_rights() {
    play_with(with(policy(&["ann"], ACL)), |world| {
        let tester = world.proved("ann");
        world.publish(tester, "ann/x", "yes", 1, 1);
        world.publish(tester, "bob/x", "no", 1, 2);
        world.expect(tester, &["PUBACK 1 0x10", "PUBACK 2 0x87"]);
    });
}

#[test]
fn who_does_not_is_refused() {
    for (name, password) in [("ann", "wrong"), ("eve", "eve")] {
        play_with(with(policy(&["ann"], ACL)), |world| {
            let mut exchange = ClientExchange::new(name, password.as_bytes(), "client");
            let tester = world.challenged(&exchange);
            world.answer(tester, &mut exchange);
            world.expect(tester, &["CONNACK 0x87", "closed"]);
        });
    }
}

#[test]
fn an_unknown_method_is_refused_with_its_code() {
    let connect = || Connect {
        authentication_method: Some("KERBEROS"),
        ..Connect::new(V5, "client")
    };
    play_with(with(policy(&["ann"], ACL)), |world| {
        let tester = world.connect(0, connect());
        world.expect(tester, &["CONNACK 0x8C", "closed"]);
    });
}

#[test]
fn before_connack_only_the_answer_is_taken() {
    let proof = b"c=biws,r=x,p=x";
    let on = ReasonCode::ContinueAuthentication;
    let cases = [
        ("PINGREQ", Packet::Pingreq, "CONNACK 0x82"),
        (
            "no exchange to continue",
            auth(on, Some(METHOD), proof),
            "CONNACK 0x87",
        ),
        ("another method", auth(on, Some("X"), proof), "CONNACK 0x8C"),
        (
            "from the start",
            auth(ReasonCode::ReAuthenticate, Some(METHOD), proof),
            "CONNACK 0x82",
        ),
    ];
    for (name, packet, connack) in cases {
        play_with(with(policy(&["ann"], ACL)), |world| {
            let exchange = ClientExchange::new("ann", b"ann", "client");
            let tester = world.challenged(&exchange);
            world.send(tester, &packet);
            assert_eq!(world.hear(tester), [connack, "closed"], "{name}");
        });
    }
}

#[test]
fn a_client_that_never_answers_is_not_waited_for() {
    play_with(with(policy(&["ann"], ACL)), |world| {
        let exchange = ClientExchange::new("ann", b"ann", "client");
        let tester = world.challenged(&exchange);
        world.run_for(11_000);
        world.expect(tester, &["closed"]);
    });
}

#[test]
fn a_client_in_service_may_prove_itself_again() {
    play_with(with(policy(&["ann"], ACL)), |world| {
        let tester = world.proved("ann");
        let mut again = ClientExchange::new("ann", b"ann", "once more");
        let first = again.first();
        let packet = auth(ReasonCode::ReAuthenticate, Some(METHOD), &first);
        world.send(tester, &packet);
        // Service goes on meanwhile.
        world.publish(tester, "ann/x", "yes", 1, 1);
        let mut heard = world.hear(tester);
        heard.sort();
        assert_eq!(heard, ["AUTH 0x18", "PUBACK 1 0x10"]);
        world.answer(tester, &mut again);
        world.expect(tester, &["AUTH 0x00"]);
        let last = world.tester(tester).authentication_data.clone();
        assert_eq!(again.verify(&last), Ok(()));
        world.publish(tester, "ann/x", "yes", 1, 2);
        world.expect(tester, &["PUBACK 2 0x10"]);
    });
}

#[test]
fn a_client_that_fails_to_authenticate_again_is_disconnected() {
    for (name, password) in [("ann", "wrong"), ("bob", "bob")] {
        play_with(with(policy(&["ann", "bob"], ACL)), |world| {
            let tester = world.proved("ann");
            let mut again = ClientExchange::new(name, password.as_bytes(), "once more");
            let first = again.first();
            world.send(
                tester,
                &auth(ReasonCode::ReAuthenticate, Some(METHOD), &first),
            );
            world.expect(tester, &["AUTH 0x18"]);
            world.answer(tester, &mut again);
            world.expect(tester, &["DISCONNECT 0x87", "closed"]);
        });
    }
}

#[test]
fn auth_out_of_turn_ends_the_connection() {
    let cases = [
        (
            "nothing to continue",
            ReasonCode::ContinueAuthentication,
            METHOD,
            "DISCONNECT 0x82",
        ),
        (
            "another method",
            ReasonCode::ReAuthenticate,
            "X",
            "DISCONNECT 0x82",
        ),
    ];
    for (name, reason_code, method, expected) in cases {
        play_with(with(policy(&["ann"], ACL)), |world| {
            let tester = world.proved("ann");
            world.send(tester, &auth(reason_code, Some(method), b"n,,n=ann,r=x"));
            assert_eq!(world.hear(tester), [expected, "closed"], "{name}");
        });
    }
    play(|world| {
        let tester = world.plain("client");
        world.send(tester, &auth(ReasonCode::ReAuthenticate, Some(METHOD), b""));
        world.expect(tester, &["DISCONNECT 0x82", "closed"]);
    });
}
