//! A thread for what takes longer than a round may: the hub asks, and gets the answer as a letter.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use crate::mailbox::{Letter, Mailboxes};
use crate::watched::{self, Failure};

/// Answers questions of the hub, one after the other.
#[derive(Debug)]
pub(crate) struct Aside<Q> {
    questions: Sender<Q>,
}

impl<Q> Clone for Aside<Q> {
    fn clone(&self) -> Self {
        let questions = self.questions.clone();
        Self { questions }
    }
}

impl<Q: Send + 'static> Aside<Q> {
    /// Starts the thread. It ends when the last clone is dropped; answers go to thread 0, where the hub is. `failed` receives a panic: the hub would wait
    /// for its answer for ever.
    pub(crate) fn start(
        name: &str,
        boxes: &Mailboxes,
        failed: Sender<Failure>,
        answer: impl Fn(Q) -> Letter + Send + 'static,
    ) -> io::Result<Self> {
        let (questions, receiver) = channel();
        let hub = Arc::clone(&boxes[0]);
        watched::spawn(name.to_owned(), failed, move || {
            for question in receiver {
                hub.post(answer(question));
            }
            Ok(())
        })?;
        Ok(Self { questions })
    }

    /// The answer arrives as a letter.
    pub(crate) fn ask(&self, question: Q) {
        // Fails only if the thread has ended, and then the node is stopping.
        let _ = self.questions.send(question);
    }
}
