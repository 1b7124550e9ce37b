//! Connections to the HTTP API: how many, over which layers, and for how long.
//!
//! A connection serves one request. It keeps its seat only from the end of the request's head ([`KeepsSeat`]) to the end of the answer. When no seat is
//! free, a new connection takes the seat of the oldest one outside this time, at the address with most seats. So a stranger that opens connections and
//! sends nothing, or never ends a body, displaces only strangers; a client that sends its request at once is served.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thicket_node::Source;
use thicket_transport::tls::certificate_name;
use thicket_transport::tls::rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::counters::Counter;

/// A connection without traffic for this long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// Largest head of a request, and most that is read of a body at a time.
const BUFFER_BYTES: usize = 64 * 1024;
/// Of a body that was refused before its end, most that is read after the answer, and for how long.
const LINGER_BYTES: usize = 16 * 1024 * 1024;
const LINGER: Duration = Duration::from_secs(2);
/// Pause after the process has run out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The seats of the API.
#[derive(Debug)]
pub(crate) struct Seats {
    most: usize,
    taken: Mutex<Taken>,
    /// Connections that got no seat, or lost theirs to a newer one.
    pub(crate) turned_away: Counter,
}

#[derive(Debug, Default)]
struct Taken {
    /// Rises: a lower number came earlier.
    next: u64,
    seats: HashMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    source: Source,
    /// It keeps its seat.
    is_serving: Arc<AtomicBool>,
    lost: Arc<Notify>,
}

/// A seat; free again when it is dropped.
#[derive(Debug)]
struct Seat {
    seats: Arc<Seats>,
    number: u64,
    source: Source,
    is_serving: Arc<AtomicBool>,
    /// Notified when a newer connection has taken the seat.
    lost: Arc<Notify>,
}

/// The other end of a connection: an extension of its requests.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// The name in its certificate, if it has presented a valid one.
    pub(super) certificate_name: Option<String>,
}

/// Returns the TLS configuration for a new connection; `None`: the connection is plain.
pub(super) type TlsOf = Arc<dyn Fn() -> Option<Arc<ServerConfig>> + Send + Sync>;

/// From when on a connection keeps its seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepsSeat {
    /// Bodies are read only of those who may send them.
    WithHead,
    /// Who may ask is known only once the body has been read.
    WithBody,
}

/// How a server treats its connections.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) router: Router,
    pub(super) seats: Arc<Seats>,
    pub(super) keeps_seat: KeepsSeat,
    /// Time allowed for the TLS handshake, and for the head of a request.
    pub(super) head: Duration,
    pub(super) tls: TlsOf,
}

/// Serves connections forever.
pub(super) async fn serve(listener: TcpListener, service: Service) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without a seat the socket is dropped, which closes it.
                if let Some(seat) = Seats::take(&service.seats, peer.ip()) {
                    tokio::spawn(converse(stream, peer, service.clone(), seat));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection to the HTTP API");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one connection, from its first byte to its last.
async fn converse(stream: TcpStream, address: SocketAddr, service: Service, seat: Seat) {
    let stream = Impatient::new(stream);
    tokio::select! {
        () = answer(stream, address, service, &seat) => {}
        () = seat.lost.notified() => {}
    }
}

/// The reason why a connection ends is not reported: the peer disconnected or sent invalid data.
async fn answer(stream: Impatient, address: SocketAddr, service: Service, seat: &Seat) {
    let Some(tls) = (service.tls)() else {
        return answer_plain(stream, address, None, service, seat).await;
    };
    let accepted = tokio::time::timeout(service.head, TlsAcceptor::from(tls).accept(stream));
    if let Ok(Ok(stream)) = accepted.await {
        let shown = stream.get_ref().1.peer_certificates();
        let name = shown.and_then(<[_]>::first).and_then(certificate_name);
        answer_plain(stream, address, name, service, seat).await;
    }
}

async fn answer_plain(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    address: SocketAddr,
    certificate_name: Option<String>,
    service: Service,
    seat: &Seat,
) {
    let router = TowerToHyperService::new(service.router);
    let peer = Peer {
        address,
        certificate_name,
    };
    let is_read = Arc::new(AtomicBool::new(true));
    let keeps_seat = service.keeps_seat;
    let answer = |request: Request<Incoming>| {
        let is_kept = keeps_seat == KeepsSeat::WithHead || request.body().is_end_stream();
        seat.set_serving(is_kept);
        let mut request = request.map(|body| Watched::new(body, &is_read, &seat.is_serving));
        request.extensions_mut().insert(seat.source);
        request.extensions_mut().insert(peer.clone());
        router.call(request)
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(service.head)
        .keep_alive(false)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .without_shutdown();
    if let Ok(parts) = served.await {
        let mut stream = parts.io.into_inner();
        let _ = poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await;
        if !is_read.load(Ordering::Relaxed) {
            seat.set_serving(false);
            let _ = timeout(LINGER, discard(&mut stream)).await;
        }
    }
}

/// Reads the rest of a body that was refused before its end: the peer may still be sending, and closing now would reset the connection before the
/// peer has read the answer.
async fn discard(stream: &mut (impl AsyncRead + Unpin)) {
    let mut scratch = vec![0; BUFFER_BYTES];
    let mut left = LINGER_BYTES;
    while left > 0 {
        let mut buffer = ReadBuf::new(&mut scratch);
        let read = poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut buffer)).await;
        let count = buffer.filled().len();
        if read.is_err() || count == 0 {
            return;
        }
        left = left.saturating_sub(count);
    }
}

/// A body that records whether it was read to its end; from then on the connection keeps its seat.
struct Watched {
    body: Incoming,
    is_read: Arc<AtomicBool>,
    /// Set once it was read.
    is_serving: Arc<AtomicBool>,
}

impl Watched {
    fn new(body: Incoming, is_read: &Arc<AtomicBool>, is_serving: &Arc<AtomicBool>) -> Self {
        is_read.store(body.is_end_stream(), Ordering::Relaxed);
        Self {
            body,
            is_read: Arc::clone(is_read),
            is_serving: Arc::clone(is_serving),
        }
    }
}

impl Body for Watched {
    type Data = <Incoming as Body>::Data;
    type Error = <Incoming as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let is_end = matches!(polled, Poll::Ready(None)) || self.body.is_end_stream();
        self.is_read.store(is_end, Ordering::Relaxed);
        if is_end {
            self.is_serving.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Seats {
    /// `most`: connections at a time.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: Mutex::default(),
            turned_away: Counter::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Current number of connections.
    pub(crate) fn taken(&self) -> usize {
        self.lock().seats.len()
    }

    /// A seat; `None`: all seats belong to connections that are being served.
    fn take(this: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let (source, lost) = (Source::from(address), Arc::new(Notify::new()));
        let is_serving = Arc::<AtomicBool>::default();
        let mut taken = this.lock();
        if taken.seats.len() >= this.most {
            this.turned_away.add_one();
            let number = taken.least_deserving()?;
            let holder = taken.seats.remove(&number)?;
            holder.lost.notify_one();
        }
        let number = taken.next;
        taken.next += 1;
        let holder = Holder {
            source,
            is_serving: Arc::clone(&is_serving),
            lost: Arc::clone(&lost),
        };
        taken.seats.insert(number, holder);
        drop(taken);
        Some(Seat {
            seats: Arc::clone(this),
            number,
            source,
            is_serving,
            lost,
        })
    }
}

impl Taken {
    /// The oldest of those that are not served, at the address with most seats.
    fn least_deserving(&self) -> Option<u64> {
        let mut of: HashMap<Source, usize> = HashMap::new();
        for holder in self.seats.values() {
            *of.entry(holder.source).or_default() += 1;
        }
        let waiting = self
            .seats
            .iter()
            .filter(|(_, holder)| !holder.is_serving.load(Ordering::Relaxed));
        let worst =
            waiting.max_by_key(|(number, holder)| (of[&holder.source], u64::MAX - **number));
        worst.map(|(number, _)| *number)
    }
}

impl Seat {
    /// While its connection is served, no other connection can take it.
    fn set_serving(&self, is_serving: bool) {
        self.is_serving.store(is_serving, Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().seats.remove(&self.number);
    }
}

/// A stream that fails after a time without traffic.
struct Impatient {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
}

impl Impatient {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            deadline: Box::pin(sleep(IDLE)),
        }
    }

    /// The result of a read or a write, or an error if its time is over.
    fn within<T>(
        &mut self,
        context: &mut Context<'_>,
        moved: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.deadline.as_mut().reset(Instant::now() + IDLE);
            return moved;
        }
        let late = self.deadline.as_mut().poll(context);
        late.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.within(context, read)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    /// Whether its seat was taken from it.
    fn is_lost(seat: &Seat) -> bool {
        !seat.seats.lock().seats.contains_key(&seat.number)
    }

    #[test]
    fn a_newcomer_gets_the_seat_of_who_waits_longest_at_the_address_with_most() {
        let seats = Seats::new(3);
        let single = Seats::take(&seats, address(1)).expect("a free seat");
        let first = Seats::take(&seats, address(2)).expect("a free seat");
        let second = Seats::take(&seats, address(2)).expect("a free seat");
        let newcomer = Seats::take(&seats, address(3)).expect("one is taken");
        assert!(is_lost(&first), "it came first");
        assert!(!is_lost(&single) && !is_lost(&second) && !is_lost(&newcomer));
        drop(first);
        assert_eq!(seats.taken(), 3, "the newcomer has it now");
    }

    #[test]
    fn who_is_served_keeps_its_seat() {
        let seats = Seats::new(2);
        let served = Seats::take(&seats, address(1)).expect("a free seat");
        let waiting = Seats::take(&seats, address(1)).expect("a free seat");
        served.set_serving(true);
        let newcomer = Seats::take(&seats, address(2)).expect("one is taken");
        assert!(is_lost(&waiting) && !is_lost(&served));
        newcomer.set_serving(true);
        assert!(Seats::take(&seats, address(3)).is_none());
        drop(served);
        assert!(Seats::take(&seats, address(3)).is_some());
        assert_eq!(seats.turned_away.value(), 2);
    }

    #[test]
    fn who_was_answered_and_still_sends_can_lose_its_seat() {
        let seats = Seats::new(1);
        let answered = Seats::take(&seats, address(1)).expect("a free seat");
        answered.set_serving(true);
        answered.set_serving(false);
        assert!(Seats::take(&seats, address(2)).is_some());
        assert!(is_lost(&answered));
    }
}
