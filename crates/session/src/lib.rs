//! One MQTT session, on the server and on the client, and what a broker keeps about topics.
//!
//! * [`server`]: the server side of a session: window, queue, QoS 2 inbound, journal entries, snapshots, epochs;
//! * [`topic`]: topic names and filters, and a tree that finds which filters match a topic;
//! * [`retained`]: retained messages, replayed a few at a time;
//! * [`shared`]: which member of a shared subscription gets the next message;
//! * [`client`]: the client side of one session, as a state machine;
//! * [`time`]: instants and deadlines, in milliseconds that the caller gives.
//!
//! Left to others: bytes (`mqtt`), rights (`access`), replication and moves of sessions between nodes (`node`), files (`storage`).
//!
//! Invariants: nothing here reads a clock, opens a socket, starts a thread or draws a random number: times and seeds come in as
//! arguments. No order depends on anything but the arguments, nothing recurses over what a peer sends, and nothing a peer
//! sends panics.
//!
//! ```
//! use thicket_session::topic::{SubscriptionTree, TopicFilter};
//!
//! let mut subscriptions = SubscriptionTree::<Vec<&str>>::new(0x5eed);
//! subscriptions.entry(&TopicFilter::new("site/+/temp")?).push("alice");
//! subscriptions.entry(&TopicFilter::new("site/1/temp")?).push("bob");
//!
//! let mut recipients = Vec::new();
//! subscriptions.for_each_match("site/1/temp", |clients| recipients.extend_from_slice(clients));
//! assert_eq!(recipients, ["bob", "alice"]);
//! # Ok::<(), thicket_session::topic::TopicFilterError>(())
//! ```

pub mod client;
pub mod reached;
pub mod retained;
pub mod server;
pub mod shared;
pub mod time;
pub mod topic;

mod seeded_hash;

pub use time::{Instant, Timeline, WallClock};
