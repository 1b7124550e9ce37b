//! Makes plans of the rebalancer on a thread of its own: with many clients they take longer than other nodes wait for a sign of life.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use thicket_node::RebalanceTask;

use crate::mailbox::{Letter, Mailboxes};

/// Makes plans, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Planner {
    tasks: Sender<Box<RebalanceTask>>,
}

impl Planner {
    /// Starts the thread. It ends when the last planner is dropped; plans go to thread 0, where the hub is.
    pub(crate) fn start(boxes: &Mailboxes) -> io::Result<Self> {
        let (tasks, receiver) = channel::<Box<RebalanceTask>>();
        let hub = Arc::clone(&boxes[0]);
        std::thread::Builder::new()
            .name("planner".into())
            .spawn(move || {
                for task in receiver {
                    hub.post(Letter::Planned(Box::new(task.run())));
                }
            })?;
        Ok(Self { tasks })
    }

    /// The plan arrives as a letter.
    pub(crate) fn make(&self, task: Box<RebalanceTask>) {
        // Fails only if the thread has ended, and then the node is stopping.
        let _ = self.tasks.send(task);
    }
}
