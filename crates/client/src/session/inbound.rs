//! Received messages: their way to the application, and their acknowledgements.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thicket_mqtt::{PacketId, Qos, ReasonCode};
use thicket_session::client::AcknowledgementMode;
use tokio::sync::OwnedSemaphorePermit;

use super::{Arrived, Session};
use crate::delivery::{Queued, Receipt};
use crate::message::Message;

impl Session {
    pub(super) fn on_message(
        &mut self,
        message: Message,
        id: Option<String>,
        packet_id: Option<PacketId>,
    ) {
        let is_manual = self.client.config().acknowledgement == AcknowledgementMode::Manual;
        let receipt = packet_id.filter(|_| is_manual).map(|packet_id| {
            let number = self.next_delivery;
            self.next_delivery += 1;
            let receipt = Receipt::new(packet_id, message.qos, number, self.line.clone());
            let receipt = Arc::new(receipt);
            self.owed.insert(packet_id, Arc::clone(&receipt));
            receipt
        });
        self.arrived.push_back(Arrived {
            message,
            id,
            receipt,
        });
        self.deliver_bounded();
    }

    /// A place in the queue of the application is free.
    pub(super) fn deliver_arrived(&mut self, place: OwnedSemaphorePermit) {
        if let Some(arrived) = self.arrived.pop_front() {
            self.deliver(arrived, Some(place));
        }
        self.deliver_bounded();
    }

    /// Delivers the messages at the front that our Receive Maximum bounds.
    fn deliver_bounded(&mut self) {
        let is_version_5 = self.client.config().version.has_properties();
        while let Some(arrived) = self
            .arrived
            .pop_front_if(|arrived| is_version_5 && arrived.receipt.is_some())
        {
            self.deliver(arrived, None);
        }
    }

    fn deliver(&self, arrived: Arrived, place: Option<OwnedSemaphorePermit>) {
        let Arrived {
            message,
            id,
            receipt,
        } = arrived;
        let ledger = &self.shared.ledger;
        if ledger.admits(self.number, &message, id.as_deref()) {
            // If the application is gone, the session ends.
            let _ = self.shared.messages.send(Queued {
                message,
                receipt,
                place,
            });
        } else if let Some(receipt) = receipt {
            receipt.acknowledge();
        }
    }

    /// Acknowledges what the application has acknowledged.
    pub(super) fn acknowledge_all(&mut self) {
        while let Ok(receipt) = self.acknowledgements.try_recv() {
            self.acknowledge(&receipt);
        }
    }

    pub(super) fn acknowledge(&mut self, receipt: &Receipt) {
        let packet_id = receipt.packet_id;
        let is_owed = self
            .owed
            .get(&packet_id)
            .is_some_and(|owed| owed.number == receipt.number);
        if is_owed {
            self.owed.remove(&packet_id);
            // An error means that the message came over a connection that has ended: it comes
            // again.
            let _ = self
                .client
                .acknowledge(self.now(), packet_id, ReasonCode::Success);
        }
    }

    /// A broker has accepted the session. What was delivered at QoS 1 and not acknowledged comes
    /// again, if the broker has it.
    pub(super) fn on_resumed(&mut self, session_present: bool) {
        if session_present {
            self.owed
                .retain(|_, receipt| receipt.qos == Qos::ExactlyOnce);
            let line = &self.line;
            line.sent_again_before
                .store(self.next_delivery, Ordering::Release);
        } else {
            self.owed.clear();
        }
    }
}
