//! Who may connect, and what may they publish and subscribe to.
//!
//! A [`Policy`] is the content of the files: users and their passwords, keys of tokens, and an ACL. It judges an [`Applicant`] and gives a [`Grant`]
//! with [`Rights`]: the rules of one client, with its names filled in. After a reload, [`Policy::review`] decides whether a grant still holds.
//!
//! Left to others: files, threads that hash passwords, and questions to the hook (`broker`); what becomes of a refusal (`node`).
//!
//! Invariants:
//!
//! * Nothing here reads a file or a clock, or draws a random number: texts, times, salts and nonces are arguments.
//! * Denied unless allowed; a denial beats every allowance; a name never widens a rule.
//! * Neither the time nor the form of an answer reveals whether a user exists.
//! * Passwords, hashes and keys appear in no message and no `Debug`.
//!
//! ```
//! use thicket_access::{Acl, Client, Reach};
//!
//! let acl = Acl::parse("user ann\ntopic read home/#\npattern write devices/%c/up\n")?;
//! let rights = acl.rights(Client { user_name: Some("ann"), client_id: "lamp" });
//! assert!(rights.may_receive("home/kitchen"));
//! assert!(rights.may_publish("devices/lamp/up"));
//! assert!(!rights.may_publish("devices/oven/up"));
//! assert_eq!(rights.may_subscribe("#"), Reach::Part);
//! # Ok::<(), thicket_access::Problem>(())
//! ```

mod acl;
mod api_users;
mod filter;
mod grant;
mod hash;
pub mod hook;
mod mosquitto;
mod problem;
mod refusal;
mod rights;
pub mod scram;
mod token;
mod users;
mod verified;

pub use acl::Acl;
pub use api_users::{
    ApiUser, ApiUsers, Credential, Role, TokenCheck, hash_token, parse_time, text_of_time,
    token_line,
};
pub use grant::{Applicant, Grant, Judgement, ListenerPolicy, Policy, Review};
pub use hash::HashMemory;
pub use problem::Problem;
pub use rights::{Access, CachedRights, Client, Effect, Reach, Rights, Rule, RuleError};
pub use token::{
    Algorithm, Claims, KeyError, Keys, KeysError, LEEWAY_S, TokenError, Tokens, UserClaim,
};
pub use users::{Login, SALT_BYTES, Users, hash_password};
pub use verified::Verified;
