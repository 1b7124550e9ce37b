//! A message that was received, and its way to the application.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thicket_mqtt::{PacketId, Qos};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use crate::Status;
use crate::message::Message;
use crate::options::Acknowledge;

/// A received message. It derefs to the [`Message`].
#[derive(Debug)]
pub struct Delivery {
    message: Message,
    receipt: Option<Arc<Receipt>>,
}

impl Delivery {
    /// Acknowledges a message of QoS 1 or 2: only the first call has an effect. See [`Acknowledge`]
    /// for when that is necessary.
    ///
    /// Acknowledgements are sent in the order in which the messages arrived in their session: one
    /// that is missing holds back those after it. On a connection that has ended it has no effect
    /// at QoS 1: the message comes again.
    pub fn acknowledge(&self) {
        if let Some(receipt) = &self.receipt {
            receipt.acknowledge();
        }
    }

    /// The message alone.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.message
    }
}

impl Deref for Delivery {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

/// What is owed for one delivery.
#[derive(Debug)]
pub(crate) struct Receipt {
    pub(crate) packet_id: PacketId,
    pub(crate) qos: Qos,
    /// The number of the delivery in its session: an identifier is used again.
    pub(crate) number: u64,
    is_acknowledged: AtomicBool,
    line: Line,
}

/// How receipts reach their session.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// As many as there are deliveries that are owed an acknowledgement: our Receive Maximum bounds
    /// them.
    pub(crate) acknowledgements: mpsc::UnboundedSender<Arc<Receipt>>,
    /// Deliveries of QoS 1 before this number come again, if they are not acknowledged.
    pub(crate) sent_again_before: Arc<AtomicU64>,
}

impl Receipt {
    pub(crate) fn new(packet_id: PacketId, qos: Qos, number: u64, line: Line) -> Self {
        Self {
            packet_id,
            qos,
            number,
            is_acknowledged: AtomicBool::new(false),
            line,
        }
    }

    pub(crate) fn acknowledge(self: &Arc<Self>) {
        if !self.is_acknowledged.swap(true, Ordering::AcqRel) {
            // A session that has ended cannot acknowledge.
            let _ = self.line.acknowledgements.send(Arc::clone(self));
        }
    }

    /// Whether the broker sends the message again, and so this delivery can be dropped.
    fn is_superseded(&self) -> bool {
        let before = self.line.sent_again_before.load(Ordering::Acquire);
        self.qos == Qos::AtLeastOnce && self.number < before
    }
}

/// A delivery that waits for the application.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) message: Message,
    pub(crate) receipt: Option<Arc<Receipt>>,
    /// The place in the queue of a message that no Receive Maximum bounds.
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

/// The application's end of the queue.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: mpsc::UnboundedReceiver<Queued>,
    acknowledge: Acknowledge,
    status: watch::Receiver<Status>,
    /// Of the message that the application has.
    last: Option<Arc<Receipt>>,
}

impl Inbox {
    pub(crate) fn new(
        queue: mpsc::UnboundedReceiver<Queued>,
        acknowledge: Acknowledge,
        status: watch::Receiver<Status>,
    ) -> Self {
        Self {
            queue,
            acknowledge,
            status,
            last: None,
        }
    }

    pub(crate) async fn next(&mut self) -> Option<Delivery> {
        if let Some(last) = self.last.take()
            && self.acknowledge == Acknowledge::Next
        {
            last.acknowledge();
        }
        loop {
            let Queued {
                message,
                receipt,
                place,
            } = self.queue.recv().await?;
            drop(place);
            // When the client has ended, no acknowledgement can be sent: whoever resumes the
            // session gets the message.
            let is_dropped = receipt
                .as_ref()
                .is_some_and(|it| it.is_superseded() || self.status.borrow().ended.is_some());
            if !is_dropped {
                self.last.clone_from(&receipt);
                return Some(Delivery { message, receipt });
            }
        }
    }
}
