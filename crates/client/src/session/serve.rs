//! One connection of a session, from CONNECT to its end.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use thicket_mqtt::{Disconnect, ReasonCode, RetainHandling, SubscribeFilter, SubscriptionOptions};
use thicket_session::client::{CleanStart, ConnectionState};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::events::Happened;
use super::{Ask, Asked, Drain, End, Leave, Report, Session};
use crate::Error;
use crate::delivery::Receipt;
use crate::endpoint::{Address, Stream, dial};
use crate::placement::{MAX_SESSIONS, PUBLISH, REDIRECTED};
use crate::routes::Outgoing;

/// One read of the socket.
const READ: usize = 16 << 10;
/// Messages taken from the queue before they are written.
const BATCH: usize = 64;
/// Longest wait for missing answers when the client closes.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(3);

type Dialling = Pin<Box<dyn Future<Output = (Address, io::Result<Stream>)> + Send>>;

/// The state of one connection.
struct Connection {
    reader: ReadHalf<Stream>,
    writer: WriteHalf<Stream>,
    buffer: Box<[u8]>,
    is_flushed: bool,
    /// The connection to the node of the placement, while this one still serves.
    dialling: Option<Dialling>,
}

/// The result of a select.
enum Woken {
    Read(io::Result<usize>),
    Written(io::Result<usize>),
    Flushed(io::Result<()>),
    Place(OwnedSemaphorePermit),
    Acknowledged(Arc<Receipt>),
    Outgoing(Option<Outgoing>),
    Assigned,
    Dialled(Address, io::Result<Stream>),
    Timeout,
    Unwanted,
}

impl Session {
    pub(super) async fn serve(&mut self, stream: Stream, address: &Address) -> End {
        let (reader, writer) = tokio::io::split(stream);
        let mut connection = Connection {
            reader,
            writer,
            buffer: vec![0; READ].into(),
            is_flushed: true,
            dialling: None,
        };
        if self.is_leaving_now() && self.clean_start == CleanStart::Yes {
            // No broker has it.
            return End::Left;
        }
        if let Err(error) = self.begin() {
            return End::Lost(error);
        }
        if self.drain.is_some_and(|drain| drain != Drain::Done) {
            let since = Instant::now();
            self.drain = Some(Drain::Quiet { since });
        }
        loop {
            if let Some(end) = self.act(&mut connection, address).await {
                self.say_last_words(&mut connection).await;
                return end;
            }
            let woken = self.wait(&mut connection).await;
            // The session has one connection at a time: messages in flight here are sent again there.
            if let Woken::Dialled(address, Ok(stream)) = woken {
                if self.is_leaving_now() {
                    connection.dialling = None;
                    continue;
                }
                return End::Switch {
                    stream,
                    address,
                    previous: (connection.reader, connection.writer),
                };
            }
            if let Some(end) = self.on_woken(woken, &mut connection, address).await {
                self.say_last_words(&mut connection).await;
                return end;
            }
        }
    }

    fn begin(&mut self) -> Result<(), String> {
        // Without a connection: what is given here is sent when the broker sends the message of QoS
        // 2 again.
        self.acknowledge_all();
        let mut properties = self.assignment.borrow().properties.clone();
        self.name_learned_topics(&mut properties);
        if self.hops > 0 {
            properties.push((REDIRECTED.to_owned(), self.hops.to_string()));
        }
        self.asked_in_connect.clone_from(&properties);
        self.requests = self.assignment.borrow().requests;
        self.client.set_user_properties(properties);
        self.client
            .connect(self.now(), self.clean_start)
            .map_err(|error| error.to_string())
    }

    /// Adds the undeclared topics of this moment to a request for a placement, so that no change of plans is needed.
    fn name_learned_topics(&self, properties: &mut Vec<(String, String)>) {
        if !properties.iter().any(|(name, _)| name == MAX_SESSIONS) {
            return;
        }
        for topic in self.shared.routes.learned() {
            let property = (PUBLISH.to_owned(), topic);
            if !properties.contains(&property) {
                properties.push(property);
            }
        }
    }

    pub(super) fn now(&self) -> thicket_session::Instant {
        let millis = self.shared.start.elapsed().as_millis();
        thicket_session::Instant::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    fn is_connected(&self) -> bool {
        self.client.state() == ConnectionState::Connected
    }

    async fn wait(&mut self, connection: &mut Connection) -> Woken {
        let has_output = !self.client.output().is_empty();
        let takes = self.client.state() == ConnectionState::Connected && self.first.is_empty();
        let deadline = self.deadline();
        let Connection {
            reader,
            writer,
            buffer,
            is_flushed,
            dialling,
            ..
        } = connection;
        let dialled = async {
            match dialling {
                Some(dialling) => dialling.await,
                None => std::future::pending().await,
            }
        };
        let writing = async {
            if has_output {
                Woken::Written(writer.write(self.client.output()).await)
            } else {
                Woken::Flushed(writer.flush().await)
            }
        };
        tokio::select! {
            woken = writing, if has_output || !*is_flushed => woken,
            read = reader.read(buffer), if self.arrived.is_empty() => Woken::Read(read),
            Ok(place) = Arc::clone(&self.shared.places).acquire_owned(), if !self.arrived.is_empty() => Woken::Place(place),
            Some(receipt) = self.acknowledgements.recv() => Woken::Acknowledged(receipt),
            outgoing = self.outgoing.recv(), if takes && !self.outgoing.is_closed() => Woken::Outgoing(outgoing),
            changed = self.assignment.changed() => match changed {
                Ok(()) => Woken::Assigned,
                Err(_) => Woken::Unwanted,
            },
            (address, stream) = dialled => Woken::Dialled(address, stream),
            () = tokio::time::sleep_until(deadline) => Woken::Timeout,
        }
    }

    fn deadline(&self) -> Instant {
        let of_client = self
            .client
            .poll_timeout()
            .map(|at| self.shared.start + Duration::from_millis(at.as_millis()));
        let of_drain = match self.drain {
            Some(Drain::Quiet { since }) => Some(since.max(self.last_arrival) + self.shared.quiet),
            Some(Drain::Pinged | Drain::Done) | None => None,
        };
        [of_client, of_drain, self.closing]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    async fn on_woken(
        &mut self,
        woken: Woken,
        connection: &mut Connection,
        address: &Address,
    ) -> Option<End> {
        match woken {
            Woken::Read(Ok(0)) => {
                return Some(End::Lost("the broker closed the connection".into()));
            }
            Woken::Read(Ok(count)) => {
                let now = self.now();
                let mut happened = Vec::new();
                self.client
                    .handle_bytes(now, &connection.buffer[..count], |event| {
                        happened.extend(Happened::from_event(&event));
                    });
                return self.on_all(happened, address).await;
            }
            Woken::Timeout => {
                let now = self.now();
                let mut happened = Vec::new();
                self.client
                    .handle_timeout(now, |event| happened.extend(Happened::from_event(&event)));
                return self.on_all(happened, address).await;
            }
            Woken::Written(Ok(count)) => {
                self.client.consume(count);
                connection.is_flushed = false;
            }
            Woken::Flushed(Ok(())) => connection.is_flushed = true,
            Woken::Read(Err(error)) | Woken::Written(Err(error)) | Woken::Flushed(Err(error)) => {
                return Some(End::Lost(error.to_string()));
            }
            Woken::Outgoing(outgoing) => self.first.extend(outgoing),
            Woken::Dialled(place, dialled) => {
                connection.dialling = None;
                if let Err(error) = dialled {
                    self.report(Report::Problem(format!("{place}: {error}")))
                        .await;
                }
            }
            Woken::Unwanted => return Some(End::Left),
            Woken::Place(place) => self.deliver_arrived(place),
            Woken::Acknowledged(receipt) => self.acknowledge(&receipt),
            Woken::Assigned => {}
        }
        None
    }

    async fn on_all(&mut self, happened: Vec<Happened>, address: &Address) -> Option<End> {
        // The events below remove the identifiers, so this comes first.
        while let Some((packet_id, place)) = self.client.poll_acknowledgement_property() {
            let (topic, is_filter) =
                match (self.asked.get(&packet_id), self.waiting.get(&packet_id)) {
                    (Some(Asked::Subscribe(filter, _)), _) => (filter.clone(), true),
                    (_, Some(pending)) => (pending.ticket.topic().to_owned(), false),
                    (Some(Asked::Unsubscribe(_)) | None, None) => continue,
                };
            if let Some(address) = Address::list(&place, self.shared.port).into_iter().next() {
                let better = Report::Better {
                    topic,
                    is_filter,
                    address,
                };
                self.report(better).await;
            }
        }
        let mut end = None;
        for happened in happened {
            end = self.on_happened(happened, address).await.or(end);
        }
        end
    }

    /// Takes the steps that make the session match its assignment.
    async fn act(&mut self, connection: &mut Connection, address: &Address) -> Option<End> {
        self.acknowledge_all();
        let assignment = self.assignment.borrow_and_update().clone();
        if !self.is_connected() {
            // The broker may have the session before it answers: it is left when it has answered.
            let is_over = self.is_leaving_now() && self.is_closing_over();
            return is_over.then_some(End::Left);
        }
        self.ask_for_subscriptions(&assignment.filters).await;
        self.publish_waiting().await;
        self.follow_placement(&assignment, connection, address);
        self.ping_after_silence();
        self.leave(assignment.leave)
    }

    async fn ask_for_subscriptions(
        &mut self,
        wanted: &std::collections::BTreeMap<String, super::Subscription>,
    ) {
        let now = self.now();
        self.refused.retain(|filter, _| wanted.contains_key(filter));
        let mut asked = std::collections::BTreeSet::new();
        for request in self.asked.values() {
            match request {
                Asked::Subscribe(filter, _) => drop(asked.insert(filter.clone())),
                Asked::Unsubscribe(filters) => asked.extend(filters.iter().cloned()),
            }
        }
        let missing = wanted.iter().filter(|(filter, how)| {
            let answered = [self.subscribed.get(*filter), self.refused.get(*filter)];
            !answered.contains(&Some(&how.options)) && !asked.contains(*filter)
        });
        let missing: Vec<String> = missing.map(|(filter, _)| filter.clone()).collect();
        let missing = self.agree(missing, Ask::Subscribe).await;
        // One filter for each packet, so that an answer about a better node is about one filter.
        for filter in missing {
            let how = wanted[&filter];
            let options = how.options;
            let request = SubscribeFilter {
                filter: &filter,
                options: SubscriptionOptions {
                    qos: options.qos,
                    no_local: options.no_local,
                    retain_as_published: options.retain_as_published,
                    retain_handling: match options.retain_handling {
                        _ if how.is_moved => RetainHandling::DoNotSend,
                        // Retained messages are in the session already, or will still arrive.
                        RetainHandling::SendAtSubscribe if self.doubtful.contains(&filter) => {
                            RetainHandling::SendIfNew
                        }
                        chosen => chosen,
                    },
                },
            };
            match self.client.subscribe(now, &[request], options.identifier) {
                Ok(packet_id) => {
                    self.asked
                        .insert(packet_id, Asked::Subscribe(filter, options));
                }
                // Retried when an identifier is free.
                Err(error) if error.is_would_block() => drop(self.doubtful.insert(filter)),
                Err(error) => {
                    self.refused.insert(filter.clone(), options);
                    let result = Err(Error::misuse(error));
                    self.report(Report::Subscribed {
                        filter,
                        options,
                        result,
                    })
                    .await;
                }
            }
        }
        let had: std::collections::BTreeSet<&String> =
            self.subscribed.keys().chain(&self.doubtful).collect();
        let surplus = had
            .into_iter()
            .filter(|it| !wanted.contains_key(*it) && !asked.contains(*it));
        let surplus: Vec<String> = surplus.take(BATCH).cloned().collect();
        let mut surplus = self.agree(surplus, Ask::Unsubscribe).await;
        while !surplus.is_empty() {
            let filters: Vec<&str> = surplus.iter().map(String::as_str).collect();
            match self.client.unsubscribe(now, &filters) {
                Ok(packet_id) => {
                    self.asked.insert(packet_id, Asked::Unsubscribe(surplus));
                    return;
                }
                // Retried when an identifier is free.
                Err(error) if error.is_would_block() => return self.doubt(surplus),
                // Longer than the broker accepts. What does not fit now is sent when this is answered.
                Err(_) if surplus.len() > 1 => {
                    let rest = surplus.split_off(surplus.len() / 2);
                    self.doubt(rest);
                }
                Err(error) => {
                    let filter = surplus.remove(0);
                    self.subscribed.remove(&filter);
                    self.doubtful.remove(&filter);
                    let problem = format!("UNSUBSCRIBE {filter}: {error}");
                    self.report(Report::Problem(problem)).await;
                }
            }
        }
    }

    /// Whether the broker has these filters is not certain: they are requested again, or ended.
    fn doubt(&mut self, filters: Vec<String>) {
        self.subscribed
            .retain(|filter, _| !filters.contains(filter));
        self.doubtful.extend(filters);
    }

    /// Those of `filters` that the client agrees to: until the broker has answered, it does not rely on them.
    async fn agree(&self, filters: Vec<String>, ask: Ask) -> Vec<String> {
        if filters.is_empty() {
            return filters;
        }
        let (agreed, is_agreed) = oneshot::channel();
        self.report(Report::Asking {
            filters,
            ask,
            agreed,
        })
        .await;
        // A client that has ended agrees to none.
        is_agreed.await.unwrap_or_default()
    }

    /// Publishes waiting messages, up to the broker's limits.
    async fn publish_waiting(&mut self) {
        let now = self.now();
        for _ in 0..BATCH {
            let Some(outgoing) = self
                .first
                .pop_front()
                .or_else(|| self.outgoing.try_recv().ok())
            else {
                return;
            };
            let Outgoing { message, pending } = outgoing;
            let properties = match message.encode_properties() {
                Ok(properties) => properties,
                Err(error) => {
                    pending.settle(Err(error.into()));
                    continue;
                }
            };
            match self.client.publish(now, &message.to_publish(&properties)) {
                Ok(Some(packet_id)) => drop(self.waiting.insert(packet_id, pending)),
                Ok(None) => pending.settle(Ok(ReasonCode::Success)),
                Err(error) if error.is_would_block() => {
                    self.first.push_front(Outgoing { message, pending });
                    return;
                }
                Err(error) => pending.settle(Err(Error::misuse(error))),
            }
        }
    }

    /// Connects to the node of the placement; the connection here serves until that one is established.
    fn follow_placement(
        &mut self,
        assignment: &super::Assignment,
        connection: &mut Connection,
        address: &Address,
    ) {
        if matches!(assignment.leave, Leave::Now { .. }) {
            // The session is ended where it is.
            connection.dialling = None;
            return;
        }
        let asks_again = assignment.requests > self.requests;
        let mut wanted = address;
        if let Some((number, placed)) = &assignment.address
            && *number > self.followed
        {
            self.followed = *number;
            connection.dialling = None;
            wanted = placed;
        }
        // A connection elsewhere makes the request as well.
        if wanted != address || asks_again {
            self.requests = assignment.requests;
            let (wanted, tls) = (wanted.clone(), self.shared.tls.clone());
            let limit = self.shared.dial_timeout;
            connection.dialling = Some(Box::pin(async move {
                let stream = dial(wanted.clone(), tls, limit).await;
                (wanted, stream)
            }));
        }
    }

    fn ping_after_silence(&mut self) {
        let Some(Drain::Quiet { since }) = self.drain else {
            return;
        };
        let silent = since.max(self.last_arrival).elapsed() >= self.shared.quiet;
        if silent && self.arrived.is_empty() && self.client.ping(self.now()).is_ok() {
            self.drain = Some(Drain::Pinged);
        }
    }

    fn leave(&mut self, leave: Leave) -> Option<End> {
        let keep_session = match leave {
            Leave::Stay => return None,
            Leave::WhenRead => {
                if self.drain.is_none() {
                    let since = Instant::now();
                    self.drain = Some(Drain::Quiet { since });
                }
                false
            }
            Leave::Now { keep_session } => keep_session,
        };
        self.outgoing.close();
        let is_sent = self.first.is_empty() && self.waiting.is_empty() && self.outgoing.is_empty();
        let is_done = match leave {
            Leave::Now { .. } => self.is_closing_over() || is_sent,
            Leave::Stay | Leave::WhenRead => {
                is_sent
                    && self.drain == Some(Drain::Done)
                    && self.arrived.is_empty()
                    && self.owed.is_empty()
                    && self.client.inflight() == 0
            }
        };
        if !is_done {
            return None;
        }
        let has_expiry = self.client.config().session_expiry_interval > 0;
        let goodbye = Disconnect {
            session_expiry_interval: (has_expiry && !keep_session).then_some(0),
            ..Disconnect::new(ReasonCode::Success)
        };
        // It is connected, so the packet is sent.
        let _ = self.client.disconnect(&goodbye);
        Some(End::Left)
    }

    /// Writes remaining bytes, as far as the broker accepts them.
    async fn say_last_words(&mut self, connection: &mut Connection) {
        if self.client.state() != ConnectionState::Closing {
            return;
        }
        let (writer, client) = (&mut connection.writer, &mut self.client);
        let saying = async {
            while !client.output().is_empty() {
                match writer.write(client.output()).await {
                    Ok(count) if count > 0 => client.consume(count),
                    Ok(_) | Err(_) => return,
                }
            }
            // The broker may have closed already.
            let _ = writer.shutdown().await;
        };
        let _ = tokio::time::timeout(CLOSE_WAIT, saying).await;
    }
}
