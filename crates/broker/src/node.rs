//! A running node: threads, listeners, discovery and the HTTP API, from start to stop.

mod bound;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::{Poll, Waker};
use thicket_node::{
    ClientAddress, ClientTransport, HubConfig, ListenerConfig, ListenerId, ListenerLikeness,
    Partition, RebalanceTask, RedirectionConfig, WorkerConfig, WorkerId,
};
use thicket_overlay::{NodeId, OverlayConfig};
use thicket_telemetry::Exporter;

use self::bound::{Bound, bind_all, bind_http, by_thread, entrances, link_address, own_address};
use crate::aside::Aside;
use crate::authenticator::Authenticator;
use crate::bridges::Bridges;
use crate::certificates::Certificates;
use crate::clock::Clock;
use crate::config::{Acknowledgement, Config, FileWarning, Loaded, TransportChoice, read_headers};
use crate::counters::Counters;
use crate::discovery::Discovery;
use crate::disk::Disk;
use crate::entrance::Entrance;
use crate::flapping::Flapping;
use crate::gate::NodeGate;
use crate::hooks::Hooks;
use crate::housekeeper::{Duties, Housekeeper};
use crate::http::{Clients, Guard, Hosts, Inspector, Own, Seats, Server, Watchers};
use crate::identity::{Identity, random_id};
use crate::links::Links;
use crate::mailbox::{Letter, Mailbox, Mailboxes, Outgoing};
use crate::places::{Places, host_name};
use crate::readiness::Expectation;
use crate::reload::Reload;
use crate::resolver::resolved;
use crate::start_error::StartError;
use crate::storage::{RecoveryError, Storage};
use crate::telemetry;
use crate::thread::{MAILBOX, Parts, TenantCount, Thread};
use crate::watched::{self, Failure};

/// After a stop, a thread that has not closed its clients' connections by then is not waited for.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A running node. Dropping it stops it, as [`Node::stop`] does.
#[derive(Debug)]
pub struct Node {
    name: String,
    id: NodeId,
    addresses: Vec<SocketAddr>,
    /// Files of Unix sockets, removed at the stop.
    socket_files: Vec<PathBuf>,
    entrances: Vec<Arc<Entrance>>,
    boxes: Mailboxes,
    threads: Vec<JoinHandle<()>>,
    stopped: Receiver<WorkerId>,
    failures: Option<Receiver<Failure>>,
    discovery: Option<Discovery>,
    http: Option<Server>,
    probe: Option<Server>,
    placement: Option<Server>,
    housekeeper: Option<Housekeeper>,
    bridges: Bridges,
    hooks: Arc<Hooks>,
    /// `None`: telemetry is off.
    exporter: Option<Arc<Exporter>>,
    flapping: Arc<Flapping>,
    identity: Option<Identity>,
    guard: Guard,
    reload: Reload,
    links: Option<Arc<Links>>,
    /// What each tenant uses.
    tenants: Arc<[TenantCount]>,
    disk: Option<Arc<Disk>>,
    /// Where other nodes and people reach the HTTP API.
    http_outward: Option<Arc<str>>,
}

impl Node {
    /// Starts a node; it accepts connections when this returns.
    ///
    /// # Errors
    /// An address is in use, the data directory cannot be used, or the system lacks resources.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let identity = Identity::load(config.data.as_deref())?;
        let http_connections =
            config.http_connections * (1 + u32::from(config.placement.is_some()));
        let gate = NodeGate::new(connections(config.connections, http_connections));
        let counters = Arc::new(Counters::default());
        let tenants = TenantCount::all(&config.tenants);
        let links = Links::new(
            config.link_tls.clone(),
            config.secret.clone(),
            counters.last_refusal.clone(),
        )?;
        let bound = bind_all(&config, &gate, links.as_ref())?;
        let http = config.http.map(|it| bind_http(it, "http")).transpose()?;
        let probe = config.probe.map(|it| bind_http(it, "probe")).transpose()?;
        let placement = config.placement.as_ref().map(|it| {
            let at_listener = bound.iter().find(|bound| bound.listen.text == it.listener);
            let bound = bind_http(it.address, "placement-listen")?;
            Ok::<_, StartError>(at_listener.map(|of| (bound, ClientListener::of(of))))
        });
        let placement = placement.transpose()?.flatten();
        let places = Places::of(&config, link_address(&config, &bound));
        let (polls, boxes) = mailboxes(config.workers)?;
        let mut node = Self {
            name: places.name.clone(),
            id: identity.node,
            addresses: bound.iter().filter_map(|bound| bound.address).collect(),
            socket_files: bound
                .iter()
                .filter_map(|bound| bound.listen.socket_path.clone())
                .collect(),
            entrances: entrances(&bound),
            boxes: Arc::clone(&boxes),
            threads: Vec::new(),
            stopped: channel().1,
            failures: None,
            discovery: None,
            http: None,
            probe: None,
            placement: None,
            housekeeper: None,
            bridges: Bridges::default(),
            flapping: Arc::new(Flapping::new(config.flapping, config.limits.session_scope)),
            hooks: Arc::new(Hooks::start(
                &config.hooks,
                &places.name,
                &format!("{:016x}", random_id()?),
            )?),
            exporter: telemetry::start(&config, &places.name, identity.node)?,
            identity: None,
            guard: Guard::start(hosts(&config))?,
            reload: Reload::default(),
            links: None,
            disk: None,
            tenants: Arc::new([]),
            http_outward: None,
        };
        let own_address = own_address(&bound);
        let websockets: Vec<_> = bound.iter().filter_map(Bound::websocket).collect();
        let certificates = Certificates::new(&config);
        node.links.clone_from(&links);
        node.watch_links();
        node.watch_telemetry(&config);
        let http_address = http.as_ref().and_then(|it| it.local_addr().ok());
        node.http_outward = http_address.map(|it| places.outward(it).into());
        let authenticator = node.start_access(&config, &bound, &counters)?;
        node.tenants = Arc::clone(&tenants);
        node.start_threads(&config, &identity, &places, bound, polls, &authenticator)?;
        node.discovery = Some(Discovery::start(
            &config,
            &identity,
            &places,
            links.clone(),
            &boxes,
            &counters,
        )?);
        let id = format!("{:016x}", node.id.0);
        node.bridges = Bridges::start(&config.bridges, &id, &node.name, own_address)?;
        let last_refusal = counters.last_refusal.clone();
        let mut inspector = Inspector::new(
            boxes,
            counters,
            &node.entrances,
            Arc::clone(&gate),
            Seats::new(config.http_connections as usize),
            config.memory_bytes,
        );
        inspector.own = Own {
            name: node.name.clone(),
            id: id.clone(),
        };
        inspector.session_scope = config.limits.session_scope;
        inspector.bridges = node.bridges.monitors();
        let shared = config.shared_settings();
        inspector.tell_hub(move |hub, now| hub.operate(now).set_shared_settings(shared));
        inspector.hooks = Arc::clone(&node.hooks);
        inspector.flapping = Arc::clone(&node.flapping);
        inspector.links = links;
        inspector.certificates = certificates.clone();
        inspector.guard = Some(node.guard.clone());
        inspector.websockets = websockets.into();
        inspector.watchers = Watchers::new(config.http_connections);
        inspector.expectation = Expectation::new(config.expect_nodes, last_refusal);
        inspector.needs_keys = config.access.needs_keys(&config.listeners);
        inspector.tenants = tenants;
        inspector.disk.clone_from(&node.disk);
        if let Some(exporter) = &node.exporter {
            telemetry::start_metrics(exporter, inspector.clone())?;
        }
        node.housekeeper = Some(Housekeeper::start(Duties {
            inspector: inspector.clone(),
            gate,
            memory_bytes: config.memory_bytes,
            system_interval: config.system_interval,
        })?);
        node.probe = probe
            .map(|listener| {
                let timeout = config.limits.connect_timeout;
                Server::start_probe(listener, inspector.clone(), timeout)
            })
            .transpose()?;
        node.placement = placement
            .map(|(listener, of)| {
                let clients = Clients {
                    inspector: inspector.clone(),
                    authenticator,
                    listener: of.id,
                    entrance: of.entrance,
                    topic_prefix: of.topic_prefix,
                    session_scope: config.limits.session_scope,
                    client_id_bytes: config.limits.client_id_bytes,
                };
                let seats = Seats::new(config.http_connections as usize);
                Server::start_placement(listener, clients, seats, config.limits.connect_timeout)
            })
            .transpose()?;
        node.http = http
            .map(|listener| {
                let (guard, reload) = (node.guard.clone(), node.reload.clone());
                Server::start(
                    listener,
                    inspector,
                    guard,
                    reload,
                    config.limits.connect_timeout,
                )
            })
            .transpose()?;
        node.reload.add("days left of certificates", move || {
            certificates.read_again();
            Ok(())
        });
        node.identity = Some(identity);
        let listen: Vec<_> = node.addresses.iter().map(ToString::to_string).collect();
        tracing::info!(
            node = node.name,
            id,
            listen = listen.join(" "),
            http = node.http_address().map(tracing::field::display),
            placement_listen = node.placement_address().map(tracing::field::display),
            workers = config.workers,
            "node started"
        );
        config.file_warnings.iter().for_each(FileWarning::log);
        if let Some(problem) = config.unreachable_for_nodes() {
            tracing::warn!("{problem}");
        }
        Ok(node)
    }

    /// Users and rights, and their reload.
    fn start_access(
        &mut self,
        config: &Config,
        bound: &[Bound],
        counters: &Arc<Counters>,
    ) -> Result<Authenticator, StartError> {
        let access = config.access.clone();
        let Loaded {
            mut policy,
            http_users,
        } = access.loaded.clone();
        policy.listeners = bound.iter().map(|it| it.listen.policy()).collect();
        let listeners: Vec<_> = bound.iter().map(|it| it.listen.access()).collect();
        let authenticator = Authenticator::start(
            policy,
            access.hook.clone(),
            access.provider.clone(),
            &self.boxes,
            counters,
        )?;
        self.guard.set(http_users);
        let (desk, guard) = (Arc::clone(authenticator.desk()), self.guard.clone());
        self.reload.add("users and rights", move || {
            let loaded = access.load(&listeners).map_err(|faults| {
                let each: Vec<_> = faults.iter().map(ToString::to_string).collect();
                each.join("; ")
            })?;
            let of_listeners = listeners.iter().zip(&loaded.policy.listeners);
            let of_listeners = of_listeners
                .filter_map(|(own, read)| Some((own.users.as_deref()?, read.users.as_ref()?)));
            let warnings = access.empty_lists(&loaded, of_listeners);
            warnings.iter().for_each(FileWarning::log);
            desk.set_policy(loaded.policy);
            guard.set(loaded.http_users);
            Ok(())
        });
        Ok(authenticator)
    }

    /// At a reload new connections use the new certificates; established ones keep theirs.
    fn watch_certificates(&self) {
        let entrances = self.entrances.clone();
        self.reload.add("certificates", move || {
            let read = entrances.iter().map(|entrance| {
                let again = entrance.reload();
                again.map_err(|error| format!("{}: {error}", entrance.name))
            });
            let problems: Vec<String> = read.filter_map(Result::err).collect();
            if problems.is_empty() {
                Ok(())
            } else {
                Err(problems.join("; "))
            }
        });
    }

    /// After a reload, links that the new keys do not allow are closed and dialled again.
    fn watch_links(&self) {
        let Some(links) = self.links.clone() else {
            return;
        };
        let hub = Arc::clone(&self.boxes[0]);
        self.reload.add(links.name(), move || {
            links.reload().map_err(|error| error.to_string())?;
            hub.post(Letter::LinksChanged);
            Ok(())
        });
    }

    /// The headers of telemetry requests contain secrets, which may be rotated.
    fn watch_telemetry(&self, config: &Config) {
        let file = config
            .telemetry
            .as_ref()
            .and_then(|it| it.headers_file.clone());
        let (Some(exporter), Some(file)) = (self.exporter.clone(), file) else {
            return;
        };
        self.reload.add("headers of telemetry", move || {
            let headers = read_headers(&file).map_err(|error| error.to_string())?;
            exporter.set_headers(headers);
            Ok(())
        });
    }

    fn start_threads(
        &mut self,
        config: &Config,
        identity: &Identity,
        places: &Places,
        bound: Vec<Bound>,
        polls: Vec<Poll>,
        authenticator: &Authenticator,
    ) -> Result<(), StartError> {
        let clock = Clock::new();
        self.watch_certificates();
        let (failed, failures) = channel();
        let resolver = Aside::start("resolver", &self.boxes, failed.clone(), resolved)?;
        // With many clients a plan takes longer than other nodes wait for a sign of life.
        let planned = |task: Box<RebalanceTask>| Letter::Planned(Box::new(task.run()));
        let planner = Aside::start("planner", &self.boxes, failed.clone(), planned)?;
        let worker_config = worker_config(config, identity, &bound);
        let redirection = self.redirection_config(config, places, &bound);
        let mut hub = Some((
            hub_config(config, identity, places, redirection),
            random_id()?,
        ));
        let mut listeners = by_thread(bound, polls.len());
        let (stopped, receiver) = channel();
        let (recovered, recoveries) = channel();
        let directory = identity.directory.as_ref().filter(|_| config.stores());
        self.disk =
            directory.map(|directory| Arc::new(Disk::new(directory.path(), config.workers)));
        let storage = directory
            .zip(self.disk.clone())
            .map(|(directory, disk)| {
                Storage::open(
                    Arc::clone(directory),
                    identity.node,
                    config.sync,
                    random_id()?,
                    disk,
                )
                .map_err(StartError::from)
            })
            .transpose()?;
        self.stopped = receiver;
        self.failures = Some(failures);
        let traces = telemetry::traces(config, &self.name, self.exporter.as_ref());
        for (index, poll) in polls.into_iter().enumerate() {
            let id = WorkerId(u8::try_from(index).expect("workers are counted in a byte"));
            let mut parts = Parts {
                id,
                clock,
                poll,
                mailbox: Arc::clone(&self.boxes[index]),
                outgoing: Outgoing::new(Arc::clone(&self.boxes)),
                listeners: std::mem::take(&mut listeners[index]),
                worker: (worker_config.clone(), random_id()?),
                hub: hub.take(),
                authenticator: authenticator.clone(),
                resolver: resolver.clone(),
                planner: planner.clone(),
                links: self.links.clone(),
                counters: Arc::clone(&authenticator.desk().counters),
                tenants: Arc::clone(&self.tenants),
                hooks: Arc::clone(&self.hooks),
                traces: traces.clone(),
                flapping: Arc::clone(&self.flapping),
                stopped: stopped.clone(),
                storage: storage
                    .as_ref()
                    .map(|storage| storage.worker(id.0, config.workers))
                    .transpose()?,
                recovered: recovered.clone(),
            };
            parts.register_listeners()?;
            self.threads.push(spawn(index, parts, failed.clone())?);
        }
        drop(recovered);
        // A node that has lost a part of its stored data must not serve.
        recoveries
            .into_iter()
            .collect::<Result<(), RecoveryError>>()?;
        for mailbox in self.boxes.iter() {
            mailbox.post(Letter::Serve);
        }
        Ok(())
    }

    /// When clients are redirected, and the addresses at which redirected clients reach this node.
    fn redirection_config(
        &self,
        config: &Config,
        places: &Places,
        bound: &[Bound],
    ) -> RedirectionConfig {
        let likeness = |bound: &Bound| {
            let transport = match bound.listen.transport {
                TransportChoice::Tcp => ClientTransport::Tcp,
                TransportChoice::Tls => ClientTransport::Tls,
                TransportChoice::Ws => ClientTransport::Ws,
                TransportChoice::Wss => ClientTransport::Wss,
                TransportChoice::Unix | TransportChoice::Link => return None,
            };
            Some(ListenerLikeness {
                transport,
                topic_prefix: bound.listen.topic_prefix.as_str().into(),
            })
        };
        let address = |bound: &Bound| {
            let own = bound.address.map(|address| places.outward(address));
            Some(ClientAddress {
                likeness: likeness(bound)?,
                address: bound.listen.advertise.clone().or(own)?.into(),
            })
        };
        RedirectionConfig {
            policy: config.redirect,
            by_topics: config.redirect_by_topics,
            refusals: config.redirect_refusals,
            per_s: config.redirect_per_s,
            placement_bytes: placement_bytes(config.memory_bytes),
            claimed_messages_per_s: claimed_messages_per_s(bound),
            rebalance: config.rebalance,
            references: config.redirect_references,
            listeners: bound.iter().map(likeness).collect(),
            addresses: bound.iter().filter_map(address).collect(),
            http_address: self.http_outward.clone(),
            site: config.site.as_deref().map(Into::into),
            site_prices: config.site_prices.clone(),
        }
    }

    /// The node's name, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's identity, stable if there is a data directory.
    #[must_use]
    pub const fn id(&self) -> NodeId {
        self.id
    }

    /// The addresses where it accepts connections, in the order of the configuration; a port 0 is replaced by the port the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Reloads users, rights, certificates and everything else that can be reloaded; see [`Reload::run`].
    pub fn reload(&self) -> Vec<String> {
        self.reload.run()
    }

    /// The address of the HTTP API.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Server::address)
    }

    /// The address for probes.
    #[must_use]
    pub fn probe_address(&self) -> Option<SocketAddr> {
        self.probe.as_ref().map(Server::address)
    }

    /// The address of the placement API for remote clients.
    pub fn placement_address(&self) -> Option<SocketAddr> {
        self.placement.as_ref().map(Server::address)
    }

    /// Receives threads that end unexpectedly. The second call returns `None`.
    pub const fn failures(&mut self) -> Option<Receiver<Failure>> {
        self.failures.take()
    }

    /// Disconnects clients and other nodes and stops. Takes a few seconds at most.
    pub fn stop(mut self) {
        self.stop_threads();
    }

    fn stop_threads(&mut self) {
        let threads = std::mem::take(&mut self.threads);
        if threads.is_empty() {
            return;
        }
        if let Some(exporter) = &self.exporter {
            // While the threads still report their counters.
            exporter.stop_metrics();
        }
        // Bridges disconnect while the node still accepts their last packets.
        self.bridges = Bridges::default();
        self.http = None;
        self.probe = None;
        self.placement = None;
        self.housekeeper = None;
        self.discovery = None;
        for mailbox in self.boxes.iter() {
            mailbox.post(Letter::StopWorker);
        }
        // Links are closed after the clients' connections, whose last messages may still be under way to other nodes.
        for _ in &threads {
            if self.stopped.recv_timeout(STOP_PATIENCE).is_err() {
                tracing::warn!("a thread did not disconnect its clients in time");
                break;
            }
        }
        self.boxes[0].post(Letter::StopHub);
        for thread in threads {
            // A panic was logged already.
            let _ = thread.join();
        }
        self.hooks.close();
        for file in &self.socket_files {
            // The file may have been removed already.
            let _ = std::fs::remove_file(file);
        }
        tracing::info!(node = self.name, "node stopped");
        if let Some(exporter) = &self.exporter {
            // After the last line of the log, which is exported too.
            exporter.close();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

fn spawn(index: usize, parts: Parts, failed: Sender<Failure>) -> io::Result<JoinHandle<()>> {
    watched::spawn(format!("worker-{index}"), failed, move || {
        let recovered = parts.recovered.clone();
        match Thread::new(parts) {
            Ok(thread) => {
                drop(recovered);
                thread.run()
            }
            Err(error) => {
                // Fails if another thread could not recover either: then the receiver is gone.
                let _ = recovered.send(Err(error));
                Ok(())
            }
        }
    })
}

/// Properties of the MQTT listener that the placement API belongs to.
struct ClientListener {
    id: ListenerId,
    entrance: Arc<Entrance>,
    topic_prefix: Arc<str>,
}

impl ClientListener {
    fn of(bound: &Bound) -> Self {
        Self {
            id: bound.id,
            entrance: Arc::clone(&bound.entrance),
            topic_prefix: bound.listen.topic_prefix.as_str().into(),
        }
    }
}

/// Names under which the HTTP API is reached.
fn hosts(config: &Config) -> Hosts {
    let has_users = config.access.loaded.http_users.is_some();
    Hosts::new(
        config.http_hosts.iter().cloned().chain([host_name()]),
        has_users,
    )
}

/// Descriptors that are not for connections of clients and of the HTTP API: files and links.
const RESERVED_DESCRIPTORS: u64 = 192;

/// Client connections at a time: the limit of open files less the reserved descriptors, or the configured number if that is lower.
fn connections(configured: u32, http: u32) -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let left = limit.map_or(u32::MAX, |limit| {
        let reserved = RESERVED_DESCRIPTORS + u64::from(http);
        let left = limit.saturating_sub(reserved.min(limit / 2));
        u32::try_from(left).unwrap_or(u32::MAX)
    });
    if configured == 0 {
        return left;
    }
    if configured > left {
        tracing::warn!(
            configured,
            connections = left,
            limit,
            "the node cannot have so many connections: the limit of open files leaves fewer"
        );
    }
    configured.min(left)
}

fn mailboxes(workers: u8) -> io::Result<(Vec<Poll>, Mailboxes)> {
    let mut polls = Vec::new();
    let mut boxes = Vec::new();
    for _ in 0..workers {
        let poll = Poll::new()?;
        boxes.push(Arc::new(Mailbox::new(Waker::new(
            poll.registry(),
            MAILBOX,
        )?)));
        polls.push(poll);
    }
    Ok((polls, boxes.into()))
}

fn worker_config(config: &Config, identity: &Identity, bound: &[Bound]) -> WorkerConfig {
    let listener = |bound: &Bound| ListenerConfig {
        allow_anonymous: config.access.is_open_at(&bound.listen),
        takes: bound.listen.takes,
        topic_prefix: bound.listen.topic_prefix.clone(),
        maximum_packet_size: bound.listen.maximum_packet_size,
        client_messages_per_s: bound.listen.client_messages_per_s,
        client_bytes_per_s: bound.listen.client_bytes_per_s,
    };
    WorkerConfig {
        node: identity.node,
        incarnation: identity.incarnation,
        workers: config.workers,
        listeners: bound.iter().map(listener).collect(),
        limits: config.limits.clone(),
        tenants: config.tenants.clone(),
        stores: config.stores(),
        backups: config.backups,
        waits_for_backups: config.ack == Acknowledgement::Replicated,
        small_log_bytes: SMALL_LOG_BYTES,
        sync_part_bytes: SYNC_PART_BYTES,
    }
}

/// Applied by another node in some milliseconds, between other work.
const SYNC_PART_BYTES: usize = 1024 * 1024;

/// A smaller log is not worth a checkpoint.
const SMALL_LOG_BYTES: u64 = 64 * 1024 * 1024;

fn hub_config(
    config: &Config,
    identity: &Identity,
    places: &Places,
    redirection: RedirectionConfig,
) -> HubConfig {
    if config.partition == Partition::Majority && !config.stores() {
        tracing::warn!(
            "without `data`, each start of this node adds a member: drain it before you stop it, or remove it with `thicket ctl forget`"
        );
    }
    let (node, incarnation) = (identity.node, identity.incarnation);
    let overlay = OverlayConfig {
        name: places.name.clone(),
        links_are_proved: config.secret.is_some() || config.link_tls.is_some(),
        routing: config.routing.clone(),
        ..OverlayConfig::new(node, incarnation, &config.cluster_name, &places.address)
    };
    HubConfig {
        workers: config.workers,
        overlay,
        partition: config.partition,
        discovery_grace: config.discovery_grace,
        restart_grace: config.restart_grace,
        retained: config.retained,
        tenants: config.tenants.clone(),
        backups: config.backups,
        hint_bytes: config.hint_bytes,
        on_full: config.limits.on_full,
        stores: config.stores(),
        redirection,
    }
}

/// Bytes that placements of clients take at most: an eighth of what the process may take.
fn placement_bytes(memory_bytes: Option<u64>) -> usize {
    const MOST: u64 = 64 << 20;
    let limit = crate::memory::limit_bytes(memory_bytes);
    limit.map_or(MOST, |limit| MOST.min(limit / 8)) as usize
}

/// What a client may publish at the listener that permits most; `None`: at one it is not bounded.
fn claimed_messages_per_s(bound: &[Bound]) -> Option<u32> {
    let all = bound.iter().map(|bound| bound.listen.client_messages_per_s);
    let bounded: Option<Vec<u32>> = all.map(|most| (most > 0).then_some(most)).collect();
    bounded?.into_iter().max()
}
