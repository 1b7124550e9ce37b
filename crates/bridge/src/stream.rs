//! How a bridge gets its connections.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// For the connection to each address of a name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A broker that takes nothing for so long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream of bytes to a broker, in halves that are used by different threads.
pub struct Connection {
    /// Blocks until something comes; 0 is the end.
    pub reader: Box<dyn Read + Send>,
    /// Blocks until everything is written.
    pub writer: Box<dyn Write + Send>,
    /// Ends both halves, a blocked read included.
    pub close: Box<dyn Fn() + Send>,
}

impl Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Makes connections to one broker, on whatever transport.
pub trait Dial: Debug + Send + Sync {
    /// Connects; may block for some seconds.
    ///
    /// # Errors
    /// Nobody is there, or what is there speaks something else.
    fn dial(&self) -> io::Result<Connection>;

    /// Where, for people.
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
