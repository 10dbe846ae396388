use std::sync::Mutex;
use std::time::{Duration, Instant};

use thrift::ApplicationErrorKind;

use crate::backoff::{backoff, chance};
use crate::config::Config;
use crate::connection::{Connection, Service};
use crate::errors::{AttemptError, CallFailed, Error};

/// Until a connection has shown a valid credential, proxies take frames of 64 KiB at most. A larger first call is
/// preceded by a small one.
const UNTRUSTED_CALL_BYTES_MAX: usize = 48 << 10;

/// A proxy answers by the call's timeout, which may be the deadline; its answer needs a moment to come back.
pub(crate) const ANSWER_MARGIN: Duration = Duration::from_millis(500);

struct Endpoint<S> {
    idle: Vec<Connection<S>>,
    is_foreign: bool, // its last answer was none of this contract
    failures: u32,
    aside_until: Instant,
}

struct State<S> {
    endpoints: Vec<Endpoint<S>>,
    turn: usize,
    is_closed: bool,
}

/// Connections to several proxies. One that fails is set aside for a growing pause; the others are used in turn. The
/// lock is never held over I/O. Endpoints go by their position in the configuration.
pub(crate) struct Pool<S> {
    config: Config,
    addresses: Vec<String>,
    state: Mutex<State<S>>,
}

/// One attempt. `hello` is an empty request, sent ahead when `size` bytes are too much for a new connection; `stay` the
/// proxy to use unless it is set aside. `timeout` is for an answer. A connection is made by the deadline; the answer is
/// here `ANSWER_MARGIN` later.
pub(crate) struct Attempt<R> {
    pub request: R,
    pub hello: R,
    pub size: usize,
    pub timeout: Duration,
    pub deadline: Instant,
    pub stay: Option<usize>,
}

impl<S: Service> Pool<S> {
    pub fn new(config: &Config) -> Result<Pool<S>, Error> {
        let each = config.endpoints.split(',').map(str::trim).filter(|each| !each.is_empty());
        let addresses: Vec<String> = each.map(String::from).collect();
        for each in &addresses {
            if !each.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
                return Err(Error::Invalid(format!("endpoint \"{each}\": invalid: use HOST:PORT")));
            }
        }
        if addresses.is_empty() {
            return Err(Error::Invalid("no endpoints: give at least one HOST:PORT".into()));
        }
        let now = Instant::now();
        let fresh = |_: &String| Endpoint { idle: Vec::new(), is_foreign: false, failures: 0, aside_until: now };
        let turn = (chance() * addresses.len() as f64) as usize;
        let state = State { endpoints: addresses.iter().map(fresh).collect(), turn, is_closed: false };
        Ok(Pool { config: config.clone(), addresses, state: Mutex::new(state) })
    }

    /// The time when the first proxy may be tried again; in the past when one may be tried now.
    pub fn usable_at(&self) -> Instant {
        let state = self.state.lock().unwrap();
        state.endpoints.iter().map(|each| each.aside_until).min().expect("a pool has endpoints")
    }

    /// One attempt at the next usable proxy; returns the answer and the proxy that gave it.
    pub fn call(&self, attempt: Attempt<S::Request>) -> Result<(S::Response, usize), AttemptError> {
        let (at, idle) = self.take(attempt.stay).map_err(AttemptError::Final)?;
        let address = &self.addresses[at];
        let (began, mut sent) = (Instant::now(), false);
        let called = self.called(address, idle, attempt, &mut sent);
        let reason = called.as_ref().err().map(|error| format!("{address}: {error}"));
        self.config.metrics.call(S::METHOD, address, began.elapsed(), reason.as_deref());
        match called {
            Ok((answer, connection)) => {
                self.give_back(at, connection);
                Ok((answer, at))
            }
            Err(thrift::Error::Application(refusal)) => {
                self.set_aside(at);
                let reason = format!("{address} refuses `{}`: {}", S::METHOD, refusal.message);
                use ApplicationErrorKind::{ProtocolError, UnknownMethod};
                // These two answer a call of another service, and one that is refused unread.
                let sent = sent && refusal.kind != UnknownMethod && refusal.kind != ProtocolError;
                let failure = CallFailed { reason, sent };
                match refusal.kind != ApplicationErrorKind::InternalError && self.all_foreign(at) {
                    true => Err(AttemptError::AllForeign(failure)),
                    false => Err(AttemptError::Failed(failure)),
                }
            }
            Err(_) => {
                self.set_aside(at);
                Err(AttemptError::Failed(CallFailed { reason: reason.unwrap_or_default(), sent }))
            }
        }
    }

    fn called(
        &self,
        address: &str,
        idle: Option<Connection<S>>,
        attempt: Attempt<S::Request>,
        sent: &mut bool,
    ) -> thrift::Result<(S::Response, Connection<S>)> {
        let mut connection = match idle {
            Some(idle) => idle,
            None => Connection::open(address, &self.config, attempt.deadline)?,
        };
        let left = || attempt.timeout.min((attempt.deadline + ANSWER_MARGIN).saturating_duration_since(Instant::now()));
        if attempt.size > UNTRUSTED_CALL_BYTES_MAX && !connection.is_trusted {
            connection.call(attempt.hello, left())?;
        }
        *sent = true;
        Ok((connection.call(attempt.request, left())?, connection))
    }

    /// Prefer other proxies for a pause that grows with each failure in a row.
    pub fn set_aside(&self, at: usize) {
        let mut state = self.state.lock().unwrap();
        let endpoint = &mut state.endpoints[at];
        endpoint.is_foreign = false;
        endpoint.failures += 1;
        endpoint.aside_until = Instant::now() + backoff(&self.config, endpoint.failures, chance());
        endpoint.idle.clear();
    }

    /// Notes what a proxy is that was set aside. Where all are, none waits: the next call ends as soon.
    fn all_foreign(&self, at: usize) -> bool {
        let mut state = self.state.lock().unwrap();
        state.endpoints[at].is_foreign = true;
        if !state.endpoints.iter().all(|each| each.is_foreign) {
            return false;
        }
        for each in &mut state.endpoints {
            (each.is_foreign, each.failures, each.aside_until) = (false, 0, Instant::now());
        }
        true
    }

    /// Reset the failures of a proxy that answered.
    pub fn praise(&self, at: usize) {
        let mut state = self.state.lock().unwrap();
        state.endpoints[at].failures = 0;
        state.endpoints[at].aside_until = Instant::now();
    }

    pub fn close(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_closed = true;
        state.endpoints.iter_mut().for_each(|each| each.idle.clear());
    }

    fn take(&self, stay: Option<usize>) -> Result<(usize, Option<Connection<S>>), Error> {
        let mut state = self.state.lock().unwrap();
        if state.is_closed {
            return Err(Error::Closed);
        }
        let now = Instant::now();
        let (count, turn) = (state.endpoints.len(), state.turn.wrapping_add(1));
        state.turn = turn;
        let aside = |at: &usize| state.endpoints[*at].aside_until.max(now);
        let next = (0..count).map(|step| turn.wrapping_add(step) % count).min_by_key(aside);
        let best = stay.filter(|at| aside(at) == now).or(next).expect("a pool has endpoints");
        let idle = &mut state.endpoints[best].idle;
        idle.retain(|each| now - each.used_at < self.config.idle_max);
        Ok((best, idle.pop()))
    }

    fn give_back(&self, at: usize, connection: Connection<S>) {
        let mut state = self.state.lock().unwrap();
        state.endpoints[at].is_foreign = false;
        if !state.is_closed && state.endpoints[at].idle.len() < self.config.idle_connections_max {
            state.endpoints[at].idle.push(connection);
        }
    }
}
