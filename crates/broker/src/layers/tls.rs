//! TLS inside rounds: all received records are decrypted at once, and all output is encrypted at once.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use thicket_transport::tls::rustls::pki_types::{CertificateDer, ServerName};
use thicket_transport::tls::rustls::{
    self, ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
};
use thicket_transport::tls::{certificate_name, expires_at_s};

use super::failure::invalid;
use crate::stream::{Stream, again_if_interrupted};

/// Encrypted bytes that the peer has not accepted yet: what a connection may hold besides its out-buffer.
const SEALED: usize = 256 * 1024;
/// Largest TLS record with its overhead (RFC 8446 5.2).
const LARGEST_RECORD: usize = 17 * 1024;

/// One side of a TLS connection.
#[derive(Debug)]
pub(crate) struct Tls {
    connection: Connection,
    is_over: bool,
    /// The first byte received: it shows if the peer does not speak TLS.
    first_byte: Option<u8>,
}

impl Tls {
    /// The side that accepted the connection.
    pub(crate) fn new(config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(invalid)?;
        Ok(Self::of(connection.into()))
    }

    /// The side that connected, to a node: `config` decides which certificates are accepted, whatever name they have.
    pub(crate) fn towards_node(config: Arc<ClientConfig>) -> io::Result<Self> {
        // The name is sent, but not checked.
        let name = ServerName::try_from("thicket").map_err(invalid)?;
        let connection = ClientConnection::new(config, name).map_err(invalid)?;
        Ok(Self::of(connection.into()))
    }

    fn of(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(SEALED));
        Self {
            connection,
            is_over: false,
            first_byte: None,
        }
    }

    /// The handshake is not complete.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(super) const fn first_byte(&self) -> Option<u8> {
        self.first_byte
    }

    /// Splits into a buffer for decrypted bytes and one for encrypted bytes. A record kept from before may be decrypted with the first new bytes, so
    /// the first part is larger by one record.
    pub(crate) fn split(buffer: &mut [u8]) -> (&mut [u8], &mut [u8]) {
        let sealed = (buffer.len() / 2).saturating_sub(LARGEST_RECORD).max(1);
        let plain = buffer.len() - sealed;
        buffer.split_at_mut(plain)
    }

    /// Decrypts all of `sealed`; returns the number of decrypted bytes.
    pub(crate) fn open(&mut self, mut sealed: &[u8], plain: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        self.first_byte = self.first_byte.or_else(|| sealed.first().copied());
        while !sealed.is_empty() && !self.is_over {
            self.connection.read_tls(&mut sealed)?;
            let state = self.connection.process_new_packets().map_err(invalid)?;
            self.is_over = state.peer_has_closed();
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let count = self.connection.reader().read(&mut plain[filled..])?;
                if count == 0 {
                    return Err(io::Error::other("a read buffer is too small for TLS"));
                }
                filled += count;
                left -= count;
            }
        }
        Ok(filled)
    }

    /// The peer has ended its direction.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Encrypts as much as the buffer has capacity for; `WouldBlock`: it has none.
    pub(crate) fn seal(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = self.connection.writer().write_vectored(slices)?;
        let wanted = slices.iter().any(|slice| !slice.is_empty());
        if count == 0 && wanted {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    /// Passes encrypted records to the kernel, many at a time.
    pub(crate) fn write_sealed(&mut self, stream: &mut Stream) -> io::Result<()> {
        while self.connection.wants_write() {
            again_if_interrupted(|| self.connection.write_tls(stream))?;
        }
        Ok(())
    }

    pub(crate) fn has_sealed(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends the peer a `close_notify`.
    pub(crate) fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// The certificates that the peer has presented.
    pub(crate) fn shown(&self) -> &[CertificateDer<'static>] {
        self.connection.peer_certificates().unwrap_or_default()
    }

    pub(crate) fn certificate_name(&self) -> Option<String> {
        self.shown().first().and_then(certificate_name)
    }

    /// When the peer's certificate expires, in seconds since 1970.
    pub(crate) fn certificate_expires_at_s(&self) -> Option<u64> {
        self.shown().first().and_then(expires_at_s)
    }
}

/// Whether the peer ended the connection with an alert.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    let inside = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(inside, Some(rustls::Error::AlertReceived(_)))
}
