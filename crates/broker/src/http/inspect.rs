//! Queries the threads of the node through their mailboxes, and waits for their answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thicket_bridge::Monitor;
use thicket_node::{
    Hub, HubView, Now, PlacementError, PlacementReport, PlacementRequest, Published,
    RedirectionReport, SessionScope, Worker, WorkerView,
};
use tokio::sync::oneshot;

use super::guard::Guard;
use super::serve::Seats;
use super::silence::{Silence, TIMEOUT};
use super::traced::Traced;
use super::watchers::Watchers;
use crate::api::overlay::{ExplanationEntry, OverlayEntry};
use crate::api::redirection::ClientExplanationEntry;
use crate::api::watch::WebSocketEntry;
use crate::api::{
    MembershipEntry, MemoryEntry, MemoryLedger, NodeEntry, SessionEntry, SubscriptionEntry,
    TopicEntry, TrafficCounts, TrafficEntry,
};
use crate::authenticator;
use crate::certificates::Certificates;
use crate::counters::Counters;
use crate::disk::Disk;
use crate::entrance::Entrance;
use crate::flapping::Flapping;
use crate::gate::NodeGate;
use crate::hooks::Hooks;
use crate::links::Links;
use crate::log;
use crate::mailbox::{Letter, Mailboxes};
use crate::memory::{limit_bytes, resident_bytes};
use crate::readiness::{Expectation, LastRefusal, Unready};
use crate::thread::TenantCount;

/// The node that answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own {
    pub(crate) name: String,
    /// Hexadecimal.
    pub(crate) id: String,
}

/// Access to the threads of the node.
#[derive(Debug, Clone)]
pub(crate) struct Inspector {
    boxes: Mailboxes,
    /// The node that answers.
    pub(crate) own: Own,
    pub(crate) counters: Arc<Counters>,
    pub(crate) entrances: Arc<[Arc<Entrance>]>,
    pub(crate) gate: Arc<NodeGate>,
    pub(crate) traced: Traced,
    pub(crate) bridges: Arc<[Monitor]>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) flapping: Arc<Flapping>,
    pub(crate) links: Option<Arc<Links>>,
    pub(crate) seats: Arc<Seats>,
    /// As configured.
    pub(crate) memory_bytes: Option<u64>,
    /// Who owns the sessions of clients.
    pub(crate) session_scope: SessionScope,
    pub(crate) expectation: Expectation,
    /// Without the keys of a provider nobody can log in.
    pub(crate) needs_keys: bool,
    pub(crate) certificates: Certificates,
    /// The users and tokens of the HTTP API.
    pub(crate) guard: Option<Guard>,
    pub(crate) watchers: Watchers,
    /// Listeners for WebSocket.
    pub(crate) websockets: Arc<[WebSocketEntry]>,
    /// What each tenant uses.
    pub(crate) tenants: Arc<[TenantCount]>,
    /// The node's disk; `None`: nothing is stored.
    pub(crate) disk: Option<Arc<Disk>>,
}

impl Inspector {
    pub(crate) fn new(
        boxes: Mailboxes,
        counters: Arc<Counters>,
        entrances: &[Arc<Entrance>],
        gate: Arc<NodeGate>,
        seats: Arc<Seats>,
        memory_bytes: Option<u64>,
    ) -> Self {
        Self {
            boxes,
            own: Own::default(),
            counters,
            entrances: entrances.into(),
            gate,
            traced: Traced::default(),
            bridges: Arc::new([]),
            hooks: Arc::default(),
            flapping: Arc::default(),
            links: None,
            seats,
            memory_bytes,
            session_scope: SessionScope::User,
            expectation: Expectation::new(1, LastRefusal::default()),
            needs_keys: false,
            certificates: Certificates::default(),
            guard: None,
            watchers: Watchers::new(1),
            websockets: Arc::new([]),
            tenants: Arc::new([]),
            disk: None,
        }
    }

    pub(crate) async fn nodes(&self) -> Result<Vec<NodeEntry>, Silence> {
        let mut nodes: Vec<_> = self
            .of_hub(|hub| hub.nodes().into_iter().map(NodeEntry::from).collect())
            .await?;
        let own = self.links.as_ref().and_then(|links| links.trust().own());
        for node in nodes
            .iter_mut()
            .filter(|node: &&mut NodeEntry| node.is_self)
        {
            node.key = own.map(|key| key.to_string());
        }
        Ok(nodes)
    }

    /// Whether clients are served well here; if not, why.
    pub(crate) async fn readiness(&self) -> Result<Result<(), Unready>, Silence> {
        let expectation = self.expectation.clone();
        let judged = self.of_hub(move |hub| expectation.judge(hub)).await?;
        let is_full = self.disk.as_ref().is_some_and(|disk| disk.is_full());
        let is_out_of_memory = self.gate.is_out_of_memory.load(Ordering::Relaxed);
        let has_keys = || self.counters.jwt_keys_fetched.age().is_some();
        let own = if is_full {
            Err(Unready::Disk)
        } else if is_out_of_memory {
            Err(Unready::Memory)
        } else if self.needs_keys && !has_keys() {
            Err(Unready::Keys)
        } else {
            Ok(())
        };
        Ok(judged.and(own))
    }

    pub(crate) async fn membership(&self) -> Result<MembershipEntry, Silence> {
        self.of_hub(|hub| hub.membership()).await.map(Into::into)
    }

    /// Places a client: where its sessions should be.
    pub(super) async fn place(
        &self,
        request: PlacementRequest,
    ) -> Result<Result<PlacementReport, PlacementError>, Silence> {
        self.order_placement(move |hub, now, number| hub.operate(now).place(number, request))
            .await
    }

    /// Where a client is placed, by the name of its session.
    pub(super) async fn placement(&self, name: String) -> Result<Option<PlacementReport>, Silence> {
        self.order_hub(move |hub, now| hub.view().placement(now, &name))
            .await
    }

    /// Removes the placement of a client.
    pub(super) async fn unplace(
        &self,
        client_id: String,
    ) -> Result<Result<PlacementReport, PlacementError>, Silence> {
        self.order_placement(move |hub, now, number| hub.operate(now).unplace(number, client_id))
            .await
    }

    async fn order_placement(
        &self,
        order: impl FnOnce(&mut Hub, Now, u64) + Send + 'static,
    ) -> Result<Result<PlacementReport, PlacementError>, Silence> {
        let (sender, answer) = oneshot::channel();
        let tell = Box::new(move |answer| {
            // Fails only if the request was cancelled.
            let _ = sender.send(answer);
        });
        self.boxes[0].post(Letter::Place(Box::new(order), tell));
        let answer = tokio::time::timeout(TIMEOUT, answer).await.ok();
        answer.and_then(Result::ok).ok_or(Silence { thread: 0 })
    }

    /// Publishes a message and returns the result, once every recipient that must have it has it. `None`: not in time.
    pub(super) async fn publish(
        &self,
        order: impl FnOnce(&mut Worker, Now, u64) + Send + 'static,
    ) -> Option<Published> {
        let (sender, answer) = oneshot::channel();
        let tell = Box::new(move |answer| {
            // Fails only if the request was cancelled.
            let _ = sender.send(answer);
        });
        self.boxes[0].post(Letter::Publish(Box::new(order), tell));
        let answer = tokio::time::timeout(TIMEOUT, answer).await.ok();
        answer.and_then(Result::ok)
    }

    /// Sends an order to the hub without waiting for it.
    pub(crate) fn tell_hub(&self, order: impl FnOnce(&mut Hub, Now) + Send + 'static) {
        self.boxes[0].post(Letter::OrderHub(Box::new(order)));
    }

    /// Sends an order to the hub and waits for the result.
    pub(super) async fn order_hub<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Hub, Now) -> T + Send + 'static,
    ) -> Result<T, Silence> {
        let (sender, answer) = oneshot::channel();
        self.boxes[0].post(Letter::OrderHub(Box::new(move |hub, now| {
            // Fails only if the request was cancelled.
            let _ = sender.send(order(hub, now));
        })));
        let answer = tokio::time::timeout(TIMEOUT, answer).await.ok();
        answer.and_then(Result::ok).ok_or(Silence { thread: 0 })
    }

    /// Sorted by client identifier.
    pub(crate) async fn sessions(&self) -> Result<Vec<SessionEntry>, Silence> {
        let mut all: Vec<_> = self
            .of_workers(|worker| worker.sessions())
            .await?
            .into_iter()
            .flatten()
            .map(SessionEntry::from)
            .collect();
        all.sort_by(|a, b| a.client_id.cmp(&b.client_id));
        Ok(all)
    }

    /// Sorted by client identifier and filter.
    pub(crate) async fn subscriptions(&self) -> Result<Vec<SubscriptionEntry>, Silence> {
        let mut all: Vec<_> = self
            .of_workers(|worker| worker.subscriptions())
            .await?
            .into_iter()
            .flatten()
            .map(SubscriptionEntry::from)
            .collect();
        all.sort_by(|a, b| (&a.client_id, &a.filter).cmp(&(&b.client_id, &b.filter)));
        Ok(all)
    }

    pub(crate) async fn traffic(&self) -> Result<TrafficEntry, Silence> {
        let hub = self.of_hub(|hub| hub.traffic()).await?;
        let workers = self.of_workers(|worker| worker.traffic()).await?;
        let workers = workers.into_iter().map(TrafficCounts::from).collect();
        Ok(TrafficEntry::new(hub.into(), workers))
    }

    pub(crate) async fn overlay(&self) -> Result<OverlayEntry, Silence> {
        self.of_hub(|hub| {
            let (overview, counters) = hub.overview();
            OverlayEntry::new(&overview, &counters, &hub.link_counters())
        })
        .await
    }

    pub(crate) async fn explain(&self, topic: String) -> Result<ExplanationEntry, Silence> {
        self.of_hub(move |hub| ExplanationEntry::new(&hub.explain(&topic), &hub.overview().0))
            .await
    }

    pub(crate) async fn explain_client(
        &self,
        client_id: String,
    ) -> Result<ClientExplanationEntry, Silence> {
        let explained = self.order_hub(move |hub, now| hub.view().explain_client(now, &client_id));
        explained.await.map(ClientExplanationEntry::from)
    }

    /// Sorted by number of messages, descending.
    pub(crate) async fn topics(&self) -> Result<Vec<TopicEntry>, Silence> {
        self.of_hub(|hub| hub.topics().into_iter().map(TopicEntry::from).collect())
            .await
    }

    pub(crate) async fn redirections(&self) -> Result<RedirectionReport, Silence> {
        self.of_hub(|hub| hub.redirections()).await
    }

    /// The messages that the node carried, without counters that are expensive to collect.
    pub(crate) async fn carried(&self) -> Result<TrafficCounts, Silence> {
        let hub = self.of_hub(|hub| hub.traffic()).await?;
        let workers = self.of_workers(|worker| worker.carried()).await?;
        let workers = workers.into_iter().map(TrafficCounts::from).collect();
        Ok(TrafficEntry::new(hub.into(), workers).total)
    }

    /// Sends an order to every worker without waiting for it.
    pub(crate) fn order_all(&self, order: impl Fn(&mut Worker, Now) + Clone + Send + 'static) {
        for mailbox in self.boxes.iter() {
            let order = order.clone();
            mailbox.post(Letter::Order(Box::new(move |worker, now| {
                order(worker, now)
            })));
        }
    }

    /// Sends an order to every worker and waits for the results.
    pub(super) async fn ask_all<T: Send + 'static>(
        &self,
        order: impl Fn(&mut Worker, Now) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Silence> {
        let mut asked = Vec::with_capacity(self.boxes.len());
        for mailbox in self.boxes.iter() {
            let (order, (sender, answer)) = (order.clone(), oneshot::channel());
            mailbox.post(Letter::Order(Box::new(move |worker, now| {
                // Fails only if the request was cancelled.
                let _ = sender.send(order(worker, now));
            })));
            asked.push(answer);
        }
        let mut answers = Vec::with_capacity(asked.len());
        for (thread, answer) in asked.into_iter().enumerate() {
            let answer = tokio::time::timeout(TIMEOUT, answer).await.ok();
            answers.push(answer.and_then(Result::ok).ok_or(Silence { thread })?);
        }
        Ok(answers)
    }

    /// Number of threads.
    pub(super) fn threads(&self) -> usize {
        self.boxes.len()
    }

    /// Sends an order to one worker and waits for the result.
    pub(super) async fn order_one<T: Send + 'static>(
        &self,
        thread: usize,
        order: impl FnOnce(&mut Worker, Now) -> T + Send + 'static,
    ) -> Result<T, Silence> {
        let (sender, answer) = oneshot::channel();
        self.boxes[thread].post(Letter::Order(Box::new(move |worker, now| {
            // Fails only if the request was cancelled.
            let _ = sender.send(order(worker, now));
        })));
        let answer = tokio::time::timeout(TIMEOUT, answer).await.ok();
        answer.and_then(Result::ok).ok_or(Silence { thread })
    }

    pub(super) async fn memory(&self) -> Result<MemoryLedger, Silence> {
        let (hub, of_hub) = self.of_hub(|hub| (hub.memory(), hub.remembered())).await?;
        let workers = self
            .of_workers(|worker| (worker.memory(), worker.remembered()))
            .await?;
        let (workers, of_workers): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
        Ok(MemoryLedger::new(
            resident_bytes(),
            limit_bytes(self.memory_bytes),
            hub,
            of_workers
                .into_iter()
                .flatten()
                .chain(of_hub)
                .chain(self.flapping.remembered())
                .chain(authenticator::remembered(&self.counters))
                .chain([log::remembered()]),
            workers.into_iter().map(MemoryEntry::from).collect(),
        ))
    }

    pub(super) async fn of_hub<T: Send + 'static>(
        &self,
        ask: impl Fn(HubView<'_>) -> T + Send + 'static,
    ) -> Result<T, Silence> {
        let answer = self.post(0, move |_, hub| hub.map(ask)).await;
        answer.flatten().ok_or(Silence { thread: 0 })
    }

    /// Sends the query to all workers before waiting for the first.
    async fn of_workers<T: Send + 'static>(
        &self,
        ask: impl Fn(WorkerView<'_>) -> T + Copy + Send + 'static,
    ) -> Result<Vec<T>, Silence> {
        let asked: Vec<_> = (0..self.boxes.len())
            .map(|thread| self.post(thread, move |worker, _| ask(worker)))
            .collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (thread, answer) in asked.into_iter().enumerate() {
            answers.push(answer.await.ok_or(Silence { thread })?);
        }
        Ok(answers)
    }

    fn post<T, F>(&self, thread: usize, ask: F) -> impl Future<Output = Option<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(WorkerView<'_>, Option<HubView<'_>>) -> T + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let question = Box::new(move |worker: WorkerView<'_>, hub: Option<HubView<'_>>| {
            // Fails only if the request was cancelled.
            let _ = sender.send(ask(worker, hub));
        });
        self.boxes[thread].post(Letter::Ask(question));
        async move { tokio::time::timeout(TIMEOUT, answer).await.ok()?.ok() }
    }
}
