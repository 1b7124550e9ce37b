//! Why a client's handshake failed: a word for metrics and a sentence for operators.

use std::io;
use std::net::SocketAddr;

use thicket_transport::tls::rustls::{CertificateError, Error};

use crate::log;

/// The reason why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    /// For metrics.
    pub(crate) reason: &'static str,
    /// For people.
    words: &'static str,
}

const fn failure(reason: &'static str, words: &'static str) -> Failure {
    Failure { reason, words }
}

const NO_CERTIFICATE: Failure = failure(
    "no_certificate",
    "TLS handshake failed: the client shows no certificate, and this listener requires one",
);
const EXPIRED: Failure = failure(
    "expired_certificate",
    "TLS handshake failed: the certificate of the client has expired",
);
const NOT_VALID_YET: Failure = failure(
    "certificate_not_valid_yet",
    "TLS handshake failed: the certificate of the client is not valid yet",
);
const UNKNOWN_ISSUER: Failure = failure(
    "unknown_issuer",
    "TLS handshake failed: the certificate of the client is of none of the authorities in `tls_client_ca`",
);
const BAD_CERTIFICATE: Failure = failure(
    "bad_certificate",
    "TLS handshake failed: the certificate of the client is not good",
);
const OLD_CERTIFICATE: Failure = failure(
    "certificate_version",
    "TLS handshake failed: the certificate of the client has not version 3 of X.509, which is needed: issue it anew with extensions (such as `openssl x509 -req -extfile FILE`)",
);
const REFUSED_BY_CLIENT: Failure = failure(
    "refused_by_client",
    "TLS handshake failed: the client does not accept this listener, such as its certificate",
);
const INCOMPATIBLE: Failure = failure(
    "incompatible",
    "TLS handshake failed: the client offers nothing that this listener accepts",
);
const PLAIN_MQTT: Failure = failure(
    "plain_mqtt",
    "TLS handshake failed: the client speaks MQTT without TLS, and this listener wants TLS",
);
const NOT_TLS: Failure = failure(
    "not_tls",
    "TLS handshake failed: the client did not speak TLS",
);
const BROKEN: Failure = failure("protocol", "TLS handshake failed");
const GIVEN_UP: Failure = failure(
    "ended_by_client",
    "TLS handshake failed: the client ended the connection",
);
const NO_WEBSOCKET: Failure = failure(
    "websocket",
    "WebSocket handshake failed: not a WebSocket request for MQTT at this path",
);

/// The first byte of a CONNECT.
const CONNECT: u8 = 0x10;
/// The first byte of a TLS handshake (RFC 8446 5.1).
const HANDSHAKE: u8 = 0x16;

impl Failure {
    /// `first`: the first byte received. `None`: not worth reporting, such as a balancer that checks whether the port is open.
    pub(super) fn of_tls(error: Option<&io::Error>, first: Option<u8>) -> Option<Self> {
        let first = first?;
        if first == CONNECT {
            return Some(PLAIN_MQTT);
        }
        if first != HANDSHAKE {
            return Some(NOT_TLS);
        }
        let inside = error.and_then(|error| error.get_ref()?.downcast_ref::<Error>());
        Some(match inside {
            None => GIVEN_UP,
            Some(Error::NoCertificatesPresented) => NO_CERTIFICATE,
            Some(Error::InvalidCertificate(error)) => match error {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => EXPIRED,
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    NOT_VALID_YET
                }
                CertificateError::UnknownIssuer => UNKNOWN_ISSUER,
                // An error of the crate that verifies, which has no type of its own here.
                CertificateError::Other(error)
                    if error.to_string().contains("UnsupportedCertVersion") =>
                {
                    OLD_CERTIFICATE
                }
                _ => BAD_CERTIFICATE,
            },
            Some(Error::AlertReceived(_)) => REFUSED_BY_CLIENT,
            Some(Error::PeerIncompatible(_)) => INCOMPATIBLE,
            Some(_) => BROKEN,
        })
    }

    /// `None`: it ended before an invalid request.
    pub(super) fn of_websocket(error: Option<&io::Error>) -> Option<Self> {
        let is_wrong = error.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData);
        is_wrong.then_some(NO_WEBSOCKET)
    }

    pub(super) fn log(self, peer: &str, error: Option<&io::Error>) {
        let suppressed = match peer.parse::<SocketAddr>() {
            Ok(peer) => log::may_say(peer),
            Err(_) => log::may_say(log::Subject::Message(self.words)),
        };
        if let Some(suppressed) = suppressed {
            let error = error.map(tracing::field::display);
            tracing::warn!(
                peer,
                reason = self.reason,
                error,
                suppressed,
                "{}",
                self.words
            );
        }
    }
}

/// The peer violated a rule of a layer.
pub(super) fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
