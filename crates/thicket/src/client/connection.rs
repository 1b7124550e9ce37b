//! A socket for a session: one thread reads it, another may read lines or signals, and all of it comes in through one channel.

use std::io::{ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thicket_access::scram::{self, ClientExchange};
use thicket_mqtt::{Auth, Disconnect, ReasonCode, server_references};
use thicket_session::client::{
    AuthenticationConfig, CleanStart, Client, ClientConfig, ConnectionState, DisconnectReason,
    Event,
};
use thicket_transport::client::{self, Place, Reader, Target, Writer};

use super::arguments::{Connect, Redirect};
use super::words;

/// One read of the socket.
const READ: usize = 64 * 1024;
/// Inputs that may wait; a thread with more waits itself.
const WAITING: usize = 16;

/// Something for the main thread.
#[derive(Debug)]
pub enum Input {
    /// From the broker, over the connection of this number; empty: it closed the connection.
    Bytes(u32, Vec<u8>),
    /// A message to be published; `None`: there will be no more.
    Line(Option<Vec<u8>>),
    /// Ctrl-C and the like.
    Signal,
}

/// What came of waiting.
#[derive(Debug)]
pub enum Waited {
    /// Something from the broker; events were told.
    Served,
    /// See [`Input::Line`].
    Line(Option<Vec<u8>>),
    /// The time is over.
    TimedOut,
    /// The user has enough.
    Signal,
}

/// A session with a broker.
pub struct Connection {
    /// The protocol.
    pub client: Client,
    writer: Writer,
    inputs: Receiver<Input>,
    sender: SyncSender<Input>,
    start: Instant,
    /// A proof under way.
    exchange: Option<ClientExchange>,
    /// Where this connection leads, and with what.
    target: Target,
    redirect: Redirect,
    /// Redirects followed since the broker accepted last.
    hops: u32,
    /// Of the next attempt: once the broker has accepted, the session is ours to find again.
    clean_start: CleanStart,
    /// Number of the connection: what came over those before is late.
    number: u32,
    /// Nothing has come over this connection yet.
    is_silent: bool,
}

impl Connection {
    /// Connects and asks the broker to accept; the client has a deadline of its own for the answer.
    pub fn open(arguments: &Connect, mut config: ClientConfig) -> anyhow::Result<Self> {
        let exchange = arguments.exchange()?;
        config.authentication = exchange.as_ref().map(|exchange| AuthenticationConfig {
            method: scram::METHOD.to_owned(),
            data: Some(exchange.first()),
        });
        let target = arguments.place.target()?;
        let (reader, writer) = client::connect(&target)?;
        let (sender, inputs) = sync_channel(WAITING);
        let mut connection = Self {
            client: Client::new(config),
            writer,
            inputs,
            sender,
            start: Instant::now(),
            exchange,
            target,
            redirect: arguments.redirect,
            hops: 0,
            clean_start: arguments.clean_start(),
            number: 0,
            is_silent: true,
        };
        connection.start_reader(reader)?;
        connection.start_signals()?;
        let now = connection.now();
        connection.client.connect(now, arguments.clean_start())?;
        Ok(connection)
    }

    /// Whether the broker has accepted.
    pub fn is_connected(&self) -> bool {
        self.client.state() == ConnectionState::Connected
    }

    /// For threads that bring more inputs.
    pub fn sender(&self) -> SyncSender<Input> {
        self.sender.clone()
    }

    /// The client's clock.
    pub fn now(&self) -> thicket_session::Instant {
        thicket_session::Instant::from_millis(
            u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
        )
    }

    /// Writes what is to be written, then waits for one input or until `until`. `on_event` hears what the broker said; its error ends the wait.
    pub fn wait(
        &mut self,
        until: Option<Instant>,
        mut on_event: impl FnMut(&Event<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Waited> {
        self.flush()?;
        let input = self.next_input(until)?;
        let now = self.now();
        let mut result = Ok(());
        let mut proof = None;
        let mut elsewhere = None;
        // A proof is made for one connection.
        let may_go = self.redirect == Redirect::Follow && self.hops == 0 && self.exchange.is_none();
        let exchange = &mut self.exchange;
        let (hops, clean_start) = (&mut self.hops, &mut self.clean_start);
        let mut listen = |event: Event<'_>| {
            if result.is_ok() {
                result = match &event {
                    Event::Disconnected(why) => {
                        elsewhere = reference(why).filter(|_| may_go).map(str::to_owned);
                        match elsewhere {
                            Some(_) => Ok(()),
                            None => Err(words::disconnect(why)),
                        }
                    }
                    Event::Authentication(auth) => respond(exchange, auth.authentication_data)
                        .map(|answer| proof = Some(answer)),
                    Event::Connected { connack, .. } if exchange.is_some() => {
                        check_server(exchange, connack.authentication_data)
                            .and_then(|()| on_event(&event))
                    }
                    Event::Connected { .. } => {
                        (*hops, *clean_start) = (0, CleanStart::No);
                        on_event(&event)
                    }
                    other => on_event(other),
                };
            }
        };
        let waited = match input {
            Some(Input::Bytes(number, _)) if number != self.number => Waited::Served,
            Some(Input::Bytes(_, bytes)) if bytes.is_empty() => {
                if self.is_silent {
                    bail!(
                        "the broker closed the connection without an answer: is this the port of an MQTT listener, and one without TLS (with it, use --cafile)?"
                    );
                }
                bail!("the broker closed the connection")
            }
            Some(Input::Bytes(_, bytes)) => {
                if std::mem::take(&mut self.is_silent)
                    && let Some(problem) = words::foreign(&bytes)
                {
                    bail!(problem);
                }
                self.client.handle_bytes(now, &bytes, &mut listen);
                Waited::Served
            }
            Some(Input::Line(line)) => Waited::Line(line),
            Some(Input::Signal) => Waited::Signal,
            None => {
                self.client.handle_timeout(now, &mut listen);
                Waited::TimedOut
            }
        };
        if let Some(proof) = proof {
            self.client.authenticate(now, &continued(&proof))?;
        }
        if let Some(reference) = elsewhere {
            self.go(&reference)?;
            return Ok(waited);
        }
        // A protocol error of the broker is answered before we go.
        self.flush()?;
        result.map(|()| waited)
    }

    /// Connects to the first server of a reference that answers. The session is asked for: it may have come along.
    fn go(&mut self, reference: &str) -> anyhow::Result<()> {
        let mut last = anyhow::anyhow!(
            "the broker names another server, but its address is invalid: {reference}"
        );
        for server in server_references(reference) {
            let Place::Tcp(_, port) = self.target.place else {
                break;
            };
            let port = server.port.unwrap_or(port);
            self.target.place = Place::Tcp(server.host.to_owned(), port);
            match client::connect(&self.target) {
                Ok((reader, writer)) => {
                    self.writer.close();
                    self.writer = writer;
                    self.hops += 1;
                    self.number += 1;
                    self.is_silent = true;
                    self.start_reader(reader)?;
                    self.client.handle_closed();
                    let now = self.now();
                    self.client.connect(now, self.clean_start)?;
                    return self.flush();
                }
                Err(error) => last = error.into(),
            }
        }
        Err(last).context("the broker named another server")
    }

    /// Writes everything and says goodbye.
    pub fn close(mut self) -> anyhow::Result<()> {
        self.client
            .disconnect(&Disconnect::new(ReasonCode::Success))?;
        self.flush()?;
        self.writer.close();
        Ok(())
    }

    /// The next input, or `None` when `until` or a deadline of the client comes first.
    fn next_input(&self, until: Option<Instant>) -> anyhow::Result<Option<Input>> {
        let deadline = self
            .client
            .poll_timeout()
            .map(|at| self.start + Duration::from_millis(at.as_millis()));
        let Some(next) = deadline.into_iter().chain(until).min() else {
            return Ok(Some(self.inputs.recv()?));
        };
        match self
            .inputs
            .recv_timeout(next.saturating_duration_since(Instant::now()))
        {
            Ok(input) => Ok(Some(input)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the threads of this program ended"),
        }
    }

    /// Writes what is to be written.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        // Taking bytes off may put others in.
        while !self.client.output().is_empty() {
            let bytes = self.client.output();
            let count = bytes.len();
            self.writer
                .write_all(bytes)
                .context("the connection to the broker broke")?;
            self.client.consume(count);
        }
        Ok(())
    }

    fn start_reader(&self, mut stream: Reader) -> anyhow::Result<()> {
        let sender = self.sender.clone();
        let number = self.number;
        let read = move || {
            let mut buffer = vec![0; READ];
            loop {
                let count = match stream.read(&mut buffer) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    // A reset is an end: the main thread cannot do more about it.
                    result => result.unwrap_or(0),
                };
                if sender
                    .send(Input::Bytes(number, buffer[..count].to_vec()))
                    .is_err()
                    || count == 0
                {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("socket".into())
            .spawn(read)?;
        Ok(())
    }

    fn start_signals(&self) -> anyhow::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let sender = self.sender.clone();
        let watch = move || {
            for (count, signal) in signals.forever().enumerate() {
                if count > 0 || sender.try_send(Input::Signal).is_err() {
                    std::process::exit(128 + signal);
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(watch)?;
        Ok(())
    }
}

/// The Server Reference of a refusal or a DISCONNECT that asks to use it (5.0, 4.11).
fn reference<'a>(why: &DisconnectReason<'a>) -> Option<&'a str> {
    let (code, reference) = match why {
        DisconnectReason::Refused(connack) => (connack.reason_code, connack.server_reference),
        DisconnectReason::ByServer(packet) => (packet.reason_code, packet.server_reference),
        DisconnectReason::PeerError(_)
        | DisconnectReason::ConnectTimeout
        | DisconnectReason::PingTimeout => return None,
    };
    let is_redirect = matches!(code, ReasonCode::UseAnotherServer | ReasonCode::ServerMoved);
    reference.filter(|_| is_redirect)
}

/// The proof that answers a challenge.
fn respond(
    exchange: &mut Option<ClientExchange>,
    challenge: Option<&[u8]>,
) -> anyhow::Result<Vec<u8>> {
    let exchange = exchange
        .as_mut()
        .context("the broker sent an AUTH that was not requested")?;
    exchange
        .respond(challenge.unwrap_or_default())
        .context("the broker's challenge")
}

/// A broker that does not know the password is not the one we meant.
fn check_server(exchange: &Option<ClientExchange>, last: Option<&[u8]>) -> anyhow::Result<()> {
    match exchange {
        Some(exchange) => exchange
            .verify(last.unwrap_or_default())
            .context("the broker has not authenticated itself"),
        None => Ok(()),
    }
}

fn continued(data: &[u8]) -> Auth<'_> {
    Auth {
        reason_code: ReasonCode::ContinueAuthentication,
        authentication_method: Some(scram::METHOD),
        authentication_data: Some(data),
        reason_string: None,
        user_properties: Vec::new(),
    }
}
