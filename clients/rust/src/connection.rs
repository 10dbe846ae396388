use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use thrift::protocol::{TBinaryInputProtocol, TBinaryOutputProtocol};
use thrift::transport::{TFramedReadTransport, TFramedWriteTransport};

use crate::config::Config;
use crate::consumer::{ConsumerSyncClient, PullRequest, PullResponse, TConsumerSyncClient};
use crate::producer::{ProducerSyncClient, SendRequest, SendResponse, TProducerSyncClient};

pub(crate) type Input = TBinaryInputProtocol<Box<dyn Read + Send>>;
pub(crate) type Output = TBinaryOutputProtocol<Box<dyn Write + Send>>;

/// One of the two services of the contract, on its generated client.
pub(crate) trait Service: Send {
    const METHOD: &'static str;
    type Request;
    type Response;
    fn on(input: Input, output: Output) -> Self;
    fn call(&mut self, request: Self::Request) -> thrift::Result<Self::Response>;
}

macro_rules! service {
    ($client:ident, $method:ident, $request:ident, $response:ident) => {
        impl Service for $client<Input, Output> {
            const METHOD: &'static str = stringify!($method);
            type Request = $request;
            type Response = $response;
            fn on(input: Input, output: Output) -> Self {
                $client::new(input, output)
            }
            fn call(&mut self, request: $request) -> thrift::Result<$response> {
                self.$method(request)
            }
        }
    };
}
service!(ProducerSyncClient, send, SendRequest, SendResponse);
service!(ConsumerSyncClient, pull, PullRequest, PullResponse);

const MS: Duration = Duration::from_millis(1); // a socket takes no timeout of 0

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One stream for both directions, as TLS needs it. One call at a time: its lock is always free.
#[derive(Clone)]
struct Shared(Arc<Mutex<Box<dyn Stream>>>);

impl Read for Shared {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.lock().unwrap().read(into)
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap().flush()
    }
}

/// One socket with one call at a time. After any failure it must be dropped: a late answer would go to the next call.
pub(crate) struct Connection<S> {
    socket: TcpStream,
    service: S,
    pub is_trusted: bool,
    pub used_at: Instant,
}

impl<S: Service> Connection<S> {
    /// Connects, with the TLS handshake, by the deadline.
    pub fn open(endpoint: &str, config: &Config, deadline: Instant) -> io::Result<Connection<S>> {
        let until = deadline.min(Instant::now() + config.connect_timeout);
        let socket = connect(endpoint, until)?;
        socket.set_nodelay(true)?;
        set_timeout(&socket, left(until))?; // of the TLS handshake
        let stream: Box<dyn Stream> = match &config.tls {
            None => Box::new(socket.try_clone()?),
            Some(tls) => {
                let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host).trim_matches(['[', ']']);
                Box::new(tls.connect(host, socket.try_clone()?).map_err(|error| io::Error::other(error.to_string()))?)
            }
        };
        let shared = Shared(Arc::new(Mutex::new(stream)));
        let (reading, writing) = (BufReader::new(shared.clone()), BufWriter::new(shared));
        let (input, output): (Box<dyn Read + Send>, Box<dyn Write + Send>) = if config.buffered {
            (Box::new(reading), Box::new(writing))
        } else {
            (Box::new(TFramedReadTransport::new(reading)), Box::new(TFramedWriteTransport::new(writing)))
        };
        let service = S::on(TBinaryInputProtocol::new(input, true), TBinaryOutputProtocol::new(output, true));
        Ok(Connection { socket, service, is_trusted: false, used_at: Instant::now() })
    }

    /// The timeout is for each read and write of the socket.
    pub fn call(&mut self, request: S::Request, timeout: Duration) -> thrift::Result<S::Response> {
        set_timeout(&self.socket, timeout)?;
        let answer = self.service.call(request)?;
        self.is_trusted = true;
        self.used_at = Instant::now();
        Ok(answer)
    }
}

fn set_timeout(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    let timeout = Some(timeout.max(MS));
    socket.set_read_timeout(timeout)?;
    socket.set_write_timeout(timeout)
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(MS)
}

/// Tries each address of the name, all of them until that time.
fn connect(endpoint: &str, until: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in endpoint.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(until)) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
