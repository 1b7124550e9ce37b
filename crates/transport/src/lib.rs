//! The layers between a socket and MQTT: TLS, WebSocket and the PROXY header, for a node and for a client.
//!
//! | module | what | I/O |
//! | --- | --- | --- |
//! | [`proxy_header`] | PROXY protocol 1 and 2: who the client behind a load balancer is | none |
//! | [`websocket`] | RFC 6455 as MQTT uses it: opening handshake, frames | none |
//! | `tls` | certificates and keys from files, the name in a client's certificate | reads files |
//! | `client` | one blocking stream for `thicket pub`, `thicket sub` and the like | sockets |
//!
//! Left to others: listeners, and how a node drives these layers in its rounds (`broker`).
//!
//! Invariants: a decoder accepts bytes in any pieces and keeps at most a header, whatever length a peer claims; nothing a peer sends can panic.
//!
//! ```
//! use thicket_transport::proxy_header::{Proxied, decode};
//!
//! let bytes = b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 1883\r\n\x10\x0d";
//! let (proxied, len) = decode(bytes)?.expect("a whole header");
//! assert_eq!(proxied, Proxied::Client("192.0.2.7:40000".parse().unwrap()));
//! assert_eq!(&bytes[len..], b"\x10\x0d");
//! # Ok::<(), thicket_transport::proxy_header::Malformed>(())
//! ```

#[cfg(feature = "tls")]
pub mod client;
pub mod proxy_header;
#[cfg(feature = "tls")]
pub mod tls;
pub mod websocket;
