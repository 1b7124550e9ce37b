//! The tables of plan, routes and ledger that all client libraries run: tests/vectors.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};
use thicket_mqtt::Qos;
use tokio::sync::mpsc;

use crate::endpoint::{Address, Scheme};
use crate::ledger::Ledger;
use crate::message::Message;
use crate::placement::Placed;
use crate::plan::Plan;
use crate::routes::{Outgoing, Routes, Ticket};
use crate::session::Ask;

/// Operations whose last argument is what they return.
const RETURN: [&str; 18] = [
    "admits",
    "apply",
    "drained",
    "enter",
    "filters",
    "home",
    "is_unsubscribed",
    "learned",
    "leaves",
    "left",
    "may_move",
    "move_to",
    "refused",
    "resumes",
    "session_at",
    "sessions",
    "unsubscribe",
    "uses",
];

fn vectors(part: &str) -> Vec<Value> {
    let all = include_str!("../../../tests/vectors/clients.json");
    let mut all: Value = serde_json::from_str(all).expect("JSON");
    serde_json::from_value(all[part].take()).expect("a list of cases")
}

/// Plays the steps of a case.
fn play(case: &Value, mut run: impl FnMut(&str, &[Value]) -> Value) {
    for (number, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
        let step = step.as_array().expect("a step");
        let name = text(&step[0]);
        let returns = RETURN.contains(&name);
        let end = step.len() - usize::from(returns);
        let found = run(name, &step[1..end]);
        if returns {
            let place = format!("{}: step {}: {name}", case["name"], number + 1);
            assert_eq!(&found, &step[end], "{place}");
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn number(value: &Value) -> usize {
    let number = value.as_u64().expect("a number");
    usize::try_from(number).expect("a small one")
}

fn address(value: &Value) -> Address {
    Address::list(text(value), 1).remove(0)
}

fn placed(sessions: &Value) -> BTreeMap<usize, Placed> {
    let sessions = sessions.as_object().expect("sessions").iter();
    let place = |(name, session): (&String, &Value)| {
        let mut texts = session.as_array().expect("texts").iter().map(text);
        let placed = Placed {
            address: texts.next().expect("an address").to_owned(),
            subscribe: texts.map(str::to_owned).collect(),
            ..Placed::default()
        };
        (name.parse().expect("a number"), placed)
    };
    sessions.map(place).collect()
}

fn run_plan(plan: &mut Plan, name: &str, arguments: &[Value]) -> Value {
    let filter = |at: usize| text(&arguments[at]);
    let session = |at: usize| number(&arguments[at]);
    let sorted = |mut filters: Vec<String>| {
        filters.sort();
        json!(filters)
    };
    match name {
        "apply" => return sorted(plan.apply(&placed(&arguments[0]))),
        "asked" => {
            let ask = match filter(2) {
                "subscribe" => Ask::Subscribe,
                _ => Ask::Unsubscribe,
            };
            let agreed = plan.on_asking(session(0), vec![filter(1).to_owned()], ask);
            assert_eq!(agreed, [filter(1)], "the assignment says so");
        }
        "drained" => return sorted(plan.on_drained(session(0))),
        "filters" => {
            let filters = plan.filters(session(0)).into_iter();
            return json!(
                filters
                    .map(|(name, how)| (name, how.is_moved))
                    .collect::<BTreeMap<_, _>>()
            );
        }
        "give_up" => plan.give_up(session(0)),
        "home" => return json!(plan.home(filter(0))),
        "is_unsubscribed" => return json!(plan.is_unsubscribed(filter(0))),
        "leaves" => return json!(plan.leaves(session(0))),
        "left" => {
            let is_routed = arguments[1].as_bool().expect("true or false");
            return sorted(plan.on_left(session(0), is_routed));
        }
        "may_move" => return json!(plan.may_move(filter(0))),
        "move_to" => return json!(plan.move_to(filter(0), session(1))),
        "note_address" => plan.note_address(session(0), &address(&arguments[1])),
        "refused" => return json!(plan.on_refused(session(0), filter(1))),
        "session_at" => return json!(plan.session_at(&address(&arguments[0]))),
        "sessions" => return json!(plan.sessions()),
        "subscribe" => plan.subscribe(filter(0), Qos::ExactlyOnce.into()),
        "subscribed" => plan.on_subscribed(session(0), filter(1)),
        "unsubscribe" => return json!(plan.unsubscribe(filter(0))),
        "unsubscribed" => plan.on_unsubscribed(session(0), filter(1)),
        other => panic!("{other}"),
    }
    Value::Null
}

fn run_ledger(ledger: &Ledger, name: &str, arguments: &[Value]) -> Value {
    match name {
        "begin" => ledger.begin(text(&arguments[0])),
        "end" => ledger.end(text(&arguments[0])),
        "admits" => {
            let qos = u8::try_from(number(&arguments[1]))
                .ok()
                .and_then(Qos::from_bits);
            let message = Message::new(text(&arguments[2]), text(&arguments[3]));
            let message = message.qos(qos.expect("a QoS"));
            let session = number(&arguments[0]);
            return json!(ledger.admits(session, &message, arguments[4].as_str()));
        }
        other => panic!("{other}"),
    }
    Value::Null
}

#[test]
fn plan_and_ledger_do_as_the_tables_say() {
    for case in vectors("plan") {
        let mut plan = Plan::new(number(&case["max_sessions"]), Scheme::Mqtt);
        play(&case, |name, arguments| {
            run_plan(&mut plan, name, arguments)
        });
    }
    for case in vectors("ledger") {
        let ledger = Ledger::default();
        play(&case, |name, arguments| {
            run_ledger(&ledger, name, arguments)
        });
    }
}

/// Routes, with their sessions and their messages in flight.
#[derive(Default)]
struct Flights {
    routes: Arc<Routes>,
    doors: HashMap<usize, (mpsc::Sender<Outgoing>, mpsc::Receiver<Outgoing>)>,
    tickets: HashMap<String, Vec<Ticket>>,
}

impl Flights {
    /// The session of the next message on `topic`; null: closed; `waits`: not yet.
    async fn enter(&mut self, topic: &str) -> Value {
        let routes = Arc::clone(&self.routes);
        // It is ready at once, or waits for a change.
        let entering = std::pin::pin!(routes.enter(topic));
        let waits = std::future::ready(());
        let entered = tokio::select! {
            biased;
            entered = entering => entered,
            () = waits => return json!("waits"),
        };
        let Some((door, ticket)) = entered else {
            return Value::Null;
        };
        self.tickets
            .entry(topic.to_owned())
            .or_default()
            .push(ticket);
        let of_door = self
            .doors
            .iter()
            .find(|(_, (own, _))| own.same_channel(&door));
        json!(of_door.map(|(session, _)| *session))
    }

    async fn run(&mut self, name: &str, arguments: &[Value]) -> Value {
        let session = |at: usize| number(&arguments[at]);
        let routes = Arc::clone(&self.routes);
        match name {
            "enter" | "resumes" => return self.enter(text(&arguments[0])).await,
            "uses" => return json!(routes.uses(session(0))),
            "learned" => {
                let mut learned = routes.learned();
                learned.sort();
                return json!(learned);
            }
            "open" => {
                let (door, end) = mpsc::channel(1);
                routes.open(session(0), door.clone());
                self.doors.insert(session(0), (door, end));
            }
            "close" => routes.close(session(0)),
            "close_all" => routes.close_all(),
            "forget" => routes.forget(session(0)),
            "place" => routes.place(text(&arguments[0]), session(1)),
            "replace" => {
                let places = arguments[0].as_object().expect("topics").iter();
                routes.replace(places.map(|(topic, session)| (topic.clone(), number(session))));
            }
            "settle" => {
                let flying = self.tickets.get_mut(text(&arguments[0]));
                flying.and_then(Vec::pop).expect("a message in flight");
            }
            other => panic!("{other}"),
        }
        Value::Null
    }
}

#[tokio::test]
async fn routes_do_as_the_tables_say() {
    for case in vectors("routes") {
        let mut flights = Flights::default();
        for (at, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
            let step = step.as_array().expect("a step");
            let name = text(&step[0]);
            let end = step.len() - usize::from(RETURN.contains(&name));
            let found = flights.run(name, &step[1..end]).await;
            if end < step.len() {
                assert_eq!(
                    found,
                    step[end],
                    "{}: step {}: {name}",
                    case["name"],
                    at + 1
                );
            }
        }
    }
}
