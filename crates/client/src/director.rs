//! The task that makes a client's sessions match its plan, and asks the control plane.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use thicket_mqtt::{Qos, ReasonCode};
use thicket_session::client::{AcknowledgementMode, CleanStart, Client, ClientConfig};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::control::{Control, Placing};
use crate::endpoint::Address;
use crate::options::{Acknowledge, Options, Placement, SubscriptionOptions};
use crate::placement::{Answer, Entry, PLACE, Placed, Request, session_name};
use crate::plan::Plan;
use crate::random;
use crate::routes::Routes;
use crate::session::{Assignment, Leave, Report, Session, Shared};
use crate::{Error, Status};

/// Topics that change within this time are sent in one request.
const GATHER: Duration = Duration::from_millis(20);
/// Longest wait before a control plane that did not answer is asked again; the wait is uniformly random.
const ASK_AGAIN: Duration = Duration::from_secs(20);
/// How often to look for topics that were published to without having been declared.
const LOOK: Duration = Duration::from_secs(1);
/// After the last message on the old session, messages of a moved filter may still wait on the new one.
const LATE: Duration = Duration::from_secs(2);

/// What the application requests.
#[derive(Debug)]
pub(crate) enum Command {
    Subscribe(
        String,
        SubscriptionOptions,
        oneshot::Sender<Result<Qos, Error>>,
    ),
    Unsubscribe(String, oneshot::Sender<Result<(), Error>>),
    Close(oneshot::Sender<()>),
}

/// The task's state.
#[derive(Debug)]
pub(crate) struct Director {
    options: Options,
    client_id: String,
    plan: Plan,
    routes: Arc<Routes>,
    shared: Arc<Shared>,
    control: Option<Control>,
    assignments: BTreeMap<usize, watch::Sender<Assignment>>,
    tasks: JoinSet<()>,
    commands: mpsc::Receiver<Command>,
    reports: mpsc::Receiver<(usize, Report)>,
    subscribing: HashMap<String, Vec<oneshot::Sender<Result<Qos, Error>>>>,
    unsubscribing: HashMap<String, Vec<oneshot::Sender<Result<(), Error>>>>,
    granted: HashMap<String, Qos>,
    /// Present until the first session is connected.
    connecting: Option<oneshot::Sender<Result<(), Error>>>,
    status: watch::Sender<Status>,
    /// Sessions of the last answer that only need to be drained.
    to_be_read: BTreeSet<usize>,
    ask_at: Option<tokio::time::Instant>,
    asking: JoinSet<Placing>,
    learned: usize,
    /// Filters that the control plane denies: they are not named until the broker grants them. Denied topics are in `routes`.
    denied: BTreeSet<String>,
    /// See [`Assignment::requests`].
    requests: usize,
}

/// The parts of a new director.
pub(crate) struct Parts {
    pub(crate) options: Options,
    pub(crate) client_id: String,
    pub(crate) plan: Plan,
    pub(crate) routes: Arc<Routes>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) reports: mpsc::Receiver<(usize, Report)>,
    pub(crate) connecting: oneshot::Sender<Result<(), Error>>,
    pub(crate) status: watch::Sender<Status>,
}

impl Director {
    pub(crate) fn new(parts: Parts) -> Self {
        let options = parts.options;
        let control = match &options.placement {
            Placement::Http(urls) => Some(Control {
                urls: urls.clone(),
                login: options
                    .user_name
                    .clone()
                    .map(|user| (user, options.password.clone().unwrap_or_default())),
            }),
            Placement::Off | Placement::Mqtt => None,
        };
        Self {
            client_id: parts.client_id,
            plan: parts.plan,
            routes: parts.routes,
            shared: parts.shared,
            control,
            assignments: BTreeMap::new(),
            tasks: JoinSet::new(),
            commands: parts.commands,
            reports: parts.reports,
            subscribing: HashMap::new(),
            unsubscribing: HashMap::new(),
            granted: HashMap::new(),
            connecting: Some(parts.connecting),
            status: parts.status,
            to_be_read: BTreeSet::new(),
            ask_at: None,
            asking: JoinSet::new(),
            learned: 0,
            denied: BTreeSet::new(),
            requests: 0,
            options,
        }
    }

    /// Runs until the client is closed, dropped, or taken over.
    pub(crate) async fn run(mut self) {
        for (filter, options) in self.options.subscribe.clone() {
            self.plan.subscribe(&filter, options);
        }
        if self.control.is_some() {
            self.ask();
            let answer = self.asking.join_next().await;
            self.on_answer(answer);
        }
        self.settle();
        let ending = self.serve().await;
        self.end(ending).await;
    }

    async fn serve(&mut self) -> Ending {
        let mut look = tokio::time::interval(LOOK);
        let asks = self.control.is_some();
        loop {
            let ask_at = self.ask_at.unwrap_or_else(far_away);
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Close(done)) => return Ending::Closed(done),
                    Some(command) => self.on_command(command),
                    None => return Ending::Dropped,
                },
                Some((number, report)) = self.reports.recv() => {
                    if self.on_report(number, report) == Next::End {
                        return Ending::TakenOver;
                    }
                }
                answer = self.asking.join_next(), if !self.asking.is_empty() => self.on_answer(answer),
                () = tokio::time::sleep_until(ask_at), if self.ask_at.is_some() && self.asking.is_empty() => self.ask(),
                _ = look.tick(), if asks => self.look_for_topics(),
            }
            self.settle();
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Subscribe(filter, options, reply) => {
                if self.plan.options(&filter) != Some(options) {
                    self.granted.remove(&filter);
                }
                if let (true, Some(granted)) =
                    (self.plan.is_home(&filter), self.granted.get(&filter))
                {
                    let _ = reply.send(Ok(*granted));
                    return;
                }
                self.plan.subscribe(&filter, options);
                self.subscribing.entry(filter).or_default().push(reply);
                self.ask_soon(GATHER);
            }
            Command::Unsubscribe(filter, reply) => {
                self.granted.remove(&filter);
                if self.plan.unsubscribe(&filter) {
                    self.unsubscribing.entry(filter).or_default().push(reply);
                } else {
                    let _ = reply.send(Ok(()));
                }
                self.ask_soon(GATHER);
            }
            // The caller has handled it.
            Command::Close(_) => {}
        }
    }

    fn on_report(&mut self, number: usize, report: Report) -> Next {
        match report {
            Report::Connected {
                address,
                placement,
                denied,
                followed,
            } => {
                self.on_connected(number, &address, placement.as_deref());
                if number == 1
                    && let Some(entry) = denied
                    && self.deny(entry)
                {
                    self.requests += 1;
                }
                self.settle();
                drop(followed);
            }
            Report::Asking {
                filters,
                ask,
                agreed,
            } => {
                // If the receiver is gone, so is the session.
                let _ = agreed.send(self.plan.on_asking(number, filters, ask));
            }
            Report::Subscribed {
                filter,
                options,
                result,
            } => self.on_subscribed(number, &filter, options, result),
            Report::Unsubscribed { filter } => self.plan.on_unsubscribed(number, &filter),
            Report::Drained => {
                let over = self.plan.on_drained(number);
                self.end_moves(over);
            }
            Report::Better {
                topic,
                is_filter,
                address,
            } => self.on_better(&topic, is_filter, &address),
            Report::Refused(code) => self.on_refused(number, code),
            Report::Redirected => self.status.send_modify(|status| {
                status.sessions.remove(&number);
            }),
            Report::Problem(problem) => {
                tracing::debug!(
                    client_id = self.client_id,
                    session = number,
                    problem,
                    "no connection"
                );
                self.status.send_modify(|status| {
                    status.sessions.remove(&number);
                    status.last_problem = Some(problem);
                });
                self.ask_soon(random::pause(ASK_AGAIN / 20, ASK_AGAIN, 0));
            }
            Report::TakenOver => return Next::End,
            Report::Left => self.on_left(number),
        }
        Next::GoOn
    }

    fn on_connected(&mut self, number: usize, address: &Address, placement: Option<&str>) {
        self.plan.note_address(number, address);
        self.status.send_modify(|status| {
            status.sessions.insert(number, address.to_string());
        });
        if let (Some(json), 1, Placement::Mqtt) = (placement, number, &self.options.placement) {
            self.follow(json);
        }
        if number > 1 {
            return;
        }
        match self.connecting.take() {
            Some(connecting) => drop(connecting.send(Ok(()))),
            // The broker may have redirected it because its sessions should be elsewhere now.
            None => self.ask_soon(GATHER),
        }
    }

    fn on_subscribed(
        &mut self,
        number: usize,
        filter: &str,
        options: SubscriptionOptions,
        result: Result<ReasonCode, Error>,
    ) {
        let result = match result {
            Ok(code) => {
                self.plan.on_subscribed(number, filter);
                // Options that were replaced meanwhile are asked for next.
                let is_replaced = |wanted: SubscriptionOptions| wanted != options;
                if self.plan.home(filter).is_some_and(|home| home != number)
                    || self.plan.options(filter).is_some_and(is_replaced)
                {
                    return;
                }
                if self.denied.remove(filter) {
                    self.ask_soon(GATHER);
                }
                let granted = granted(code);
                self.granted.insert(filter.to_owned(), granted);
                Ok(granted)
            }
            Err(error) => {
                tracing::debug!(client_id = self.client_id, session = number, topic = filter, %error, "subscription refused");
                if self.plan.on_refused(number, filter) {
                    return;
                }
                Err(error)
            }
        };
        for reply in self.subscribing.remove(filter).into_iter().flatten() {
            let _ = reply.send(result.clone());
        }
    }

    fn on_better(&mut self, topic: &str, is_filter: bool, address: &Address) {
        if is_filter && !self.plan.may_move(topic) {
            return;
        }
        let Some(number) = self.plan.session_at(address) else {
            return;
        };
        if !is_filter {
            self.routes.place(topic, number);
        } else if self.plan.move_to(topic, number) {
            self.shared.ledger.begin(topic);
        }
    }

    /// The broker refused this session: if it is a further one, the first serves its topics.
    fn on_refused(&mut self, number: usize, code: ReasonCode) {
        tracing::warn!(client_id = self.client_id, session = number, reason_code = ?code, "session refused");
        self.status
            .send_modify(|status| status.last_problem = Some(format!("refused: {code:?}")));
        if number > 1 {
            self.plan.give_up(number);
            self.routes.forget(number);
            self.leave(
                number,
                Leave::Now {
                    keep_session: false,
                },
            );
        } else if let Some(connecting) = self.connecting.take() {
            let _ = connecting.send(Err(Error::Refused(code)));
        }
    }

    fn on_left(&mut self, number: usize) {
        let over = self.plan.on_left(number, self.routes.uses(number));
        self.end_moves(over);
        self.assignments.remove(&number);
        self.to_be_read.remove(&number);
        self.status.send_modify(|status| {
            status.sessions.remove(&number);
        });
    }

    fn end_moves(&self, filters: Vec<String>) {
        for filter in filters {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                tokio::time::sleep(LATE).await;
                shared.ledger.end(&filter);
            });
        }
    }

    fn ask_soon(&mut self, wait: Duration) {
        if self.control.is_some() {
            let at = tokio::time::Instant::now() + wait;
            self.ask_at = Some(self.ask_at.map_or(at, |earlier| earlier.min(at)));
        }
    }

    fn look_for_topics(&mut self) {
        let learned = self.routes.learned_count();
        if learned != self.learned {
            self.learned = learned;
            self.ask_soon(GATHER);
        }
    }

    fn request(&self, learned: Vec<String>) -> Request {
        let declared = self.options.publish.iter();
        let declared = declared.filter(|topic| !self.routes.is_denied(topic));
        let mut subscribe = self.plan.wanted();
        subscribe.retain(|filter| !self.denied.contains(filter));
        let mut request = Request {
            client_id: self.client_id.clone(),
            publish: declared.cloned().chain(learned).collect(),
            subscribe,
            max_sessions: self.options.max_sessions,
            rates: self.options.rates.clone(),
        };
        request.leave_out_what_is_refused();
        request
    }

    fn ask(&mut self) {
        self.ask_at = None;
        if let Some(control) = self.control.clone() {
            let request = self.request(self.routes.learned());
            let tls = self.options.tls.clone();
            self.asking
                .spawn_blocking(move || control.ask_with(&tls, request));
        }
    }

    /// Does not name the topic or filter any more. Returns whether it did until now.
    fn deny(&mut self, entry: Entry) -> bool {
        tracing::debug!(
            client_id = self.client_id,
            ?entry,
            "denied: not named any more"
        );
        let (Entry::Publish(name) | Entry::Subscribe(name)) = &entry;
        let problem = format!("the control plane does not place {name:?}: denied");
        self.status
            .send_modify(|status| status.last_problem = Some(problem));
        match entry {
            Entry::Publish(topic) => self.routes.deny(&topic),
            Entry::Subscribe(filter) => self.denied.len() < DENIED && self.denied.insert(filter),
        }
    }

    fn on_answer(&mut self, answer: Option<Result<Placing, tokio::task::JoinError>>) {
        let Some(Ok(placing)) = answer else {
            return;
        };
        for entry in placing.denied {
            self.deny(entry);
        }
        match placing.answer {
            Ok(json) => self.follow(&json),
            Err(problem) => {
                tracing::debug!(client_id = self.client_id, problem, "no placement");
                self.status
                    .send_modify(|status| status.last_problem = Some(problem));
                self.ask_soon(random::pause(ASK_AGAIN, ASK_AGAIN, 0));
            }
        }
    }

    fn follow(&mut self, json: &str) {
        let placed = match Answer::parse(json, &self.client_id, self.options.max_sessions) {
            Ok(placed) => placed,
            Err(error) => {
                tracing::warn!(client_id = self.client_id, %error, "the placement is not followed");
                let problem = format!("the placement is not followed: {error}");
                self.status
                    .send_modify(|status| status.last_problem = Some(problem));
                return;
            }
        };
        for filter in self.plan.apply(&placed) {
            self.shared.ledger.begin(&filter);
        }
        let is_empty =
            |session: &Placed| session.publish.is_empty() && session.subscribe.is_empty();
        let unread = placed.iter().filter(|(_, session)| is_empty(session));
        self.to_be_read = unread.map(|(number, _)| *number).collect();
        self.routes
            .replace(placed.iter().flat_map(|(number, session)| {
                session.publish.iter().map(|topic| (topic.clone(), *number))
            }));
        let mut known = self
            .shared
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for number in placed.keys() {
            if let Some((_, address)) = self.plan.address(*number)
                && !known.contains(&address)
                && known.len() < KNOWN
            {
                known.push(address);
            }
        }
        drop(known);
        self.status.send_modify(|status| status.is_placed = true);
    }

    fn answer_unsubscribed(&mut self) {
        let plan = &self.plan;
        let over = self
            .unsubscribing
            .extract_if(|filter, _| plan.is_unsubscribed(filter));
        for reply in over.flat_map(|(_, replies)| replies) {
            let _ = reply.send(Ok(()));
        }
    }

    /// Opens missing sessions and sends each its assignment.
    fn settle(&mut self) {
        self.answer_unsubscribed();
        let request = match self.options.placement {
            // The session adds the topics that it has learned by then.
            Placement::Mqtt => self.request(Vec::new()).to_properties(),
            Placement::Off | Placement::Http(_) => Vec::new(),
        };
        for number in self.plan.sessions() {
            if !self.assignments.contains_key(&number) {
                self.open(number);
            }
            let is_used = self.routes.uses(number) && !self.to_be_read.contains(&number);
            let leave = if !is_used && self.plan.leaves(number) {
                self.routes.close(number);
                Leave::WhenRead
            } else {
                Leave::Stay
            };
            let assignment = Assignment {
                address: self.plan.address(number),
                filters: self.plan.filters(number),
                properties: self.properties(number, &request),
                requests: if number == 1 { self.requests } else { 0 },
                leave,
            };
            if let Some(sender) = self.assignments.get(&number) {
                sender.send_if_modified(|old| {
                    let is_new = *old != assignment && !matches!(old.leave, Leave::Now { .. });
                    if is_new {
                        *old = assignment;
                    }
                    is_new
                });
            }
        }
    }

    fn properties(&self, number: usize, request: &[(String, String)]) -> Vec<(String, String)> {
        let mut properties = Vec::new();
        if self.options.placement != Placement::Off {
            properties.push((PLACE.to_owned(), "1".to_owned()));
        }
        if number == 1 {
            properties.extend_from_slice(request);
        }
        properties
    }

    fn open(&mut self, number: usize) {
        let options = &self.options;
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let mut config = ClientConfig::new(options.version, session_name(&self.client_id, number));
        config.keep_alive = u16::try_from(options.keep_alive.as_secs()).unwrap_or(u16::MAX);
        config.will = options.will.clone().filter(|_| number == 1);
        config.user_name = options.user_name.clone();
        config.password = options.password.clone();
        config.session_expiry_interval = seconds(options.session_expiry);
        config.receive_maximum = u16::try_from(options.receive_queue).unwrap_or(u16::MAX);
        config.acknowledgement = match options.acknowledge {
            Acknowledge::Next | Acknowledge::Manual => AcknowledgementMode::Manual,
            Acknowledge::Arrival => AcknowledgementMode::Automatic,
        };
        config.acknowledgement_property = Some(PLACE.to_owned());
        config.connect_timeout = options.dial_timeout;
        let clean_start = if options.resume || self.to_be_read.contains(&number) {
            CleanStart::No
        } else {
            CleanStart::Yes
        };
        let (assign, assignment) = watch::channel(Assignment::default());
        let (door, outgoing) = mpsc::channel(options.send_queue);
        self.routes.open(number, door);
        self.assignments.insert(number, assign);
        let session = Session::new(
            number,
            Arc::clone(&self.shared),
            Client::new(config),
            clean_start,
            assignment,
            outgoing,
        );
        self.tasks.spawn(session.run());
    }

    fn leave(&self, number: usize, leave: Leave) {
        if let Some(sender) = self.assignments.get(&number) {
            sender.send_modify(|assignment| assignment.leave = leave);
        }
    }

    async fn end(mut self, ending: Ending) {
        self.routes.close_all();
        let why = match &ending {
            Ending::TakenOver => Error::TakenOver,
            Ending::Closed(_) | Ending::Dropped => Error::Closed,
        };
        self.status
            .send_modify(|status| status.ended = Some(why.clone()));
        if let Ending::Closed(_) = ending {
            let keep_session = self.options.resume;
            for number in self.assignments.keys() {
                self.leave(*number, Leave::Now { keep_session });
            }
            // The sessions report, and must not wait for a receiver.
            let mut reports = self.reports;
            let reading = async { while reports.recv().await.is_some() {} };
            let ending = async { while self.tasks.join_next().await.is_some() {} };
            tokio::select! {
                () = reading => {}
                () = ending => {}
            }
        }
        for reply in self.subscribing.into_values().flatten() {
            let _ = reply.send(Err(why.clone()));
        }
        for reply in self.unsubscribing.into_values().flatten() {
            let _ = reply.send(Err(why.clone()));
        }
        if let Some(connecting) = self.connecting {
            let _ = connecting.send(Err(why));
        }
        if let Ending::Closed(done) = ending {
            let _ = done.send(());
        }
    }
}

/// Most brokers remembered.
const KNOWN: usize = 64;
/// Most denied filters remembered.
const DENIED: usize = 1000;

enum Ending {
    Closed(oneshot::Sender<()>),
    Dropped,
    TakenOver,
}

#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    End,
}

fn granted(code: ReasonCode) -> Qos {
    match code {
        ReasonCode::GrantedQos2 => Qos::ExactlyOnce,
        ReasonCode::GrantedQos1 => Qos::AtLeastOnce,
        _ => Qos::AtMostOnce,
    }
}

fn far_away() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(3600)
}
