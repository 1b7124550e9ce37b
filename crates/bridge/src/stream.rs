//! The connections of a bridge.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Timeout of the connection to each address of a name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A broker that accepts no bytes for this long is down.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A byte stream to a broker, in halves for different threads.
pub struct Connection {
    /// Blocks until bytes arrive; 0 is the end.
    pub reader: Box<dyn Read + Send>,
    /// Blocks until all bytes are written.
    pub writer: Box<dyn Write + Send>,
    /// Closes both halves, and interrupts a blocked read.
    pub close: Box<dyn Fn() + Send>,
}

impl Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Makes connections to one broker, over any transport.
pub trait Dial: Debug + Send + Sync {
    /// Connects; may block for some seconds.
    ///
    /// # Errors
    /// There is no server, or it uses another protocol.
    fn dial(&self) -> io::Result<Connection>;

    /// The address, for people.
    fn place(&self) -> String;
}

/// Plain TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpDial {
    address: String,
}

impl TcpDial {
    /// To HOST:PORT; a name is resolved at every attempt, and all its addresses are tried.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
        }
    }
}

impl Dial for TcpDial {
    fn dial(&self) -> io::Result<Connection> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => return over(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn place(&self) -> String {
        self.address.clone()
    }
}

fn over(stream: TcpStream) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let (reader, writer) = (stream.try_clone()?, stream.try_clone()?);
    Ok(Connection {
        reader: Box::new(reader),
        writer: Box::new(writer),
        close: Box::new(move || {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }),
    })
}
