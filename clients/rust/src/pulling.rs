use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::backoff::{backoff, chance, pause};
use crate::codes::{action_of, name_of, Action};
use crate::config::{Config, CredentialMint};
use crate::connection::{Input, Output};
use crate::consumer::{Ack, ConsumerSyncClient, Delivery, PullRequest, PullResponse, Verdict};
use crate::errors::{AttemptError, Error};
use crate::held::HeldLeases;
use crate::message::Code;
use crate::pool::{Attempt, Pool};

const ACK_BYTES: usize = 120; // estimated size of one acknowledgement in a request
const SOCKET_MARGIN: Duration = Duration::from_secs(2);

/// What a consumer reads.
#[derive(Clone, Debug, Default)]
pub struct Subscription {
    pub group: String,
    /// Empty: all topics of the group's definition.
    pub topics: Vec<String>,
    /// Lease time of the deliveries, 1 s to 12 h. None: the group's setting.
    pub invisible: Option<Duration>,
}

#[derive(Default)]
pub(crate) struct State {
    acks: Vec<Ack>,
    acked: Option<Instant>, // when the oldest of them was given
    acks_refused: u64,
    unserved: BTreeMap<String, String>,
    pub held: Option<HeldLeases>, // of the run in progress
}

impl State {
    pub fn acknowledge(&mut self, ack: Ack) {
        self.acked.get_or_insert_with(Instant::now);
        self.acks.push(ack);
    }

    /// Acknowledgements have waited here for so long.
    pub fn is_ack_due(&self, wait: Duration) -> bool {
        !self.acks.is_empty() && self.acked.is_some_and(|acked| acked.elapsed() >= wait)
    }
}

/// One member of a group. Any number of members share the group's messages, without assignment. One pull at a time.
///
/// Acknowledgements wait here and travel with the next pull; `close` delivers the last ones. What is pulled and not
/// acknowledged is redelivered, with its attempt one higher, after its lease.
pub struct Consumer {
    pub(crate) config: Config,
    pub(crate) subscription: Subscription,
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar, // of the state, for a run
    pub(crate) is_stopped: AtomicBool,
    pool: Pool<ConsumerSyncClient<Input, Output>>,
    mint: CredentialMint,
    pulling: Mutex<()>, // one pull at a time, so that an acknowledgement is sent once
}

impl Consumer {
    /// Connects at the first call; fails only on an invalid configuration.
    pub fn new(config: Config, subscription: Subscription) -> Result<Consumer, Error> {
        if subscription.group.is_empty() {
            return Err(Error::Invalid("group: missing".into()));
        }
        let (pool, mint) = (Pool::new(&config)?, CredentialMint::new(&config)?);
        let (state, changed, is_stopped, pulling) = Default::default();
        Ok(Consumer { config, subscription, state, changed, is_stopped, pool, mint, pulling })
    }

    /// The next deliveries; none when none came within `wait` (30 s at most). Retries at other proxies until the
    /// deadline.
    pub fn pull(&self, max_messages: usize, wait: Duration) -> Result<Vec<Delivery>, Error> {
        Ok(self.pull_served(max_messages, wait, false)?.map_or_else(Vec::new, |answer| answer.deliveries))
    }

    /// Like all verdicts it travels with the next pull, `flush` or `close`.
    pub fn done(&self, delivery: &Delivery) {
        self.acknowledge(delivery, Verdict::DONE, None, None);
    }

    /// Requests redelivery after the delay. None: the group's back-off.
    pub fn retry(&self, delivery: &Delivery, delay: Option<Duration>, reason: &str) {
        self.acknowledge(delivery, Verdict::RETRY, delay, Some(reason));
    }

    /// Sends it to the dead-letter topic now; the reason is stored with it.
    pub fn reject(&self, delivery: &Delivery, reason: &str) {
        self.acknowledge(delivery, Verdict::REJECT, None, Some(reason));
    }

    /// The lease ends this long after a proxy has taken the acknowledgement.
    pub fn extend(&self, delivery: &Delivery, delay: Duration) {
        self.acknowledge(delivery, Verdict::EXTEND, Some(delay), None);
    }

    /// Delivers the waiting acknowledgements now, without taking messages.
    pub fn flush(&self) -> Result<(), Error> {
        if self.state.lock().unwrap().acks.is_empty() {
            return Ok(());
        }
        self.pull_served(0, Duration::ZERO, false).map(drop)
    }

    /// Acknowledgements that were late or invalid: their messages are redelivered.
    pub fn acks_refused(&self) -> u64 {
        self.state.lock().unwrap().acks_refused
    }

    /// Topics that the last pull named and that give nothing, with the reason of each.
    pub fn unserved_topics(&self) -> BTreeMap<String, String> {
        self.state.lock().unwrap().unserved.clone()
    }

    /// Delivers the waiting acknowledgements and closes the connections.
    pub fn close(&self) -> Result<(), Error> {
        let flushed = self.flush();
        self.pool.close();
        flushed
    }

    fn acknowledge(&self, delivery: &Delivery, verdict: Verdict, delay: Option<Duration>, reason: Option<&str>) {
        self.state.lock().unwrap().acknowledge(new_ack(&delivery.receipt, verdict, delay, reason));
    }

    /// The response that was served; none after a stop of the run that asked. `of_run`: it extends the run's leases.
    pub(crate) fn pull_served(
        &self,
        count: usize,
        wait: Duration,
        of_run: bool,
    ) -> Result<Option<PullResponse>, Error> {
        let _one_at_a_time = self.pulling.lock().unwrap();
        let deadline = Instant::now() + wait + self.config.deadline;
        let mut error = Error::pull(Code::UNAVAILABLE, Some("no proxy could be reached before the deadline".into()));
        let (mut due, mut stay, mut failures) = (Instant::now(), None, 0);
        loop {
            let now = Instant::now();
            let start = due.max(self.pool.usable_at());
            if start.max(now) >= deadline {
                return Err(error);
            }
            if of_run && count > 0 && self.is_stopped.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if start > now {
                sleep(start - now);
                continue;
            }
            let (answer, at) = match self.attempt(count, wait, deadline, of_run, stay) {
                Ok(answered) => answered,
                Err(AttemptError::Final(error)) => return Err(error),
                Err(AttemptError::AllForeign(failure)) => return Err(Error::Contract(failure.reason)),
                Err(AttemptError::Failed(failure)) => {
                    error = Error::pull(Code::UNAVAILABLE, Some(failure.reason));
                    continue;
                }
            };
            if count > 0 {
                self.tell_reports(&answer);
            }
            match action_of(answer.code) {
                Action::Done => {
                    self.pool.praise(at);
                    return Ok(Some(answer));
                }
                Action::Refused => return Err(Error::pull(answer.code, answer.error)),
                Action::Elsewhere => self.pool.set_aside(at),
                _ => {
                    failures += 1;
                    let backoff = backoff(&self.config, failures, chance());
                    due = Instant::now() + pause(answer.code, answer.retry_after_ms, backoff);
                    stay = (answer.code == Code::RATE_LIMITED).then_some(at);
                }
            }
            error = Error::pull(answer.code, answer.error);
        }
    }

    fn attempt(
        &self,
        count: usize,
        wait: Duration,
        deadline: Instant,
        of_run: bool,
        stay: Option<usize>,
    ) -> Result<(PullResponse, usize), AttemptError> {
        let sent_at = Instant::now();
        let wait = wait.min(deadline.saturating_duration_since(sent_at));
        let (mut acks, extended, lease) = {
            let state = self.state.lock().unwrap();
            let held = state.held.as_ref().filter(|_| of_run);
            let extended = held.map_or_else(Vec::new, |held| held.to_extend(sent_at));
            (state.acks.clone(), extended, held.map(|held| held.lease))
        };
        let own = acks.len();
        acks.extend(extended.iter().map(|(_, receipt)| new_ack(receipt, Verdict::EXTEND, lease, None)));
        let Subscription { group, topics, invisible } = &self.subscription;
        let request = |count: usize, wait: Duration, acks: Vec<Ack>| PullRequest {
            credential: self.mint.credential(),
            group: group.clone(),
            topics: Some(topics.clone()),
            max_messages: Some(count as i32),
            max_bytes: None,
            wait_ms: Some(wait.as_millis() as i32),
            acks: Some(acks),
            positions: None,
            invisible_ms: invisible.map(|lease| lease.as_millis() as i32),
            topics_after: None,
        };
        let (answer, at) = self.pool.call(Attempt {
            size: acks.len() * ACK_BYTES,
            request: request(count, wait, acks),
            hello: request(0, Duration::ZERO, vec![]),
            timeout: wait + SOCKET_MARGIN,
            deadline,
            stay,
        })?;
        self.settle(own, &extended, sent_at, &answer);
        Ok((answer, at))
    }

    /// Drops settled acknowledgements; the others go with the next pull. A refused pull's acknowledgements have codes of
    /// their own; those with the pull's code were not looked at.
    fn settle(&self, own: usize, extended: &[(u64, Vec<u8>)], sent_at: Instant, answer: &PullResponse) {
        let mut guard = self.state.lock().unwrap();
        let state = &mut *guard;
        let result = |at: usize| answer.ack_results.get(at).map(|result| result.code);
        let is_refused = |code: Code| action_of(code) == Action::Refused && code != answer.code;
        let mut at = 0..;
        state.acks.retain(|_| {
            let code = at.next().filter(|&at| at < own).and_then(result);
            let refused = code.is_some_and(is_refused);
            state.acks_refused += u64::from(refused);
            !refused && !code.is_some_and(|code| action_of(code) == Action::Done)
        });
        state.acked = (!state.acks.is_empty()).then(Instant::now);
        for (position, (number, _)) in extended.iter().enumerate() {
            let Some(held) = state.held.as_mut() else { return };
            let lease = held.lease;
            if let (Some(each), Some(code)) = (held.of(*number), result(own + position)) {
                match action_of(code) {
                    Action::Done => each.until = sent_at + lease,
                    _ => each.is_lost |= is_refused(code),
                }
            }
        }
    }

    /// Tells of each topic that gives nothing, and when it is served again; once per change.
    fn tell_reports(&self, answer: &PullResponse) {
        let reason = |code, error: &Option<String>| format!("{}: {}", name_of(code), error.as_deref().unwrap_or("?"));
        let unserved: BTreeMap<String, String> = if action_of(answer.code) == Action::Done {
            let reports = answer.topics.iter().flatten();
            reports.map(|each| (each.topic.clone(), reason(each.code, &each.error))).collect()
        } else if answer.code == Code::UNKNOWN_TOPIC {
            let all = vec!["(the group's)".to_string()];
            let topics = if self.subscription.topics.is_empty() { &all } else { &self.subscription.topics };
            topics.iter().map(|topic| (topic.clone(), reason(answer.code, &answer.error))).collect()
        } else {
            return;
        };
        let before = std::mem::replace(&mut self.state.lock().unwrap().unserved, unserved.clone());
        for (topic, reason) in unserved.iter().filter(|(topic, _)| !before.contains_key(*topic)) {
            (self.config.tell)(&format!("topic {topic} gives nothing: {reason}"));
        }
        for topic in before.keys().filter(|topic| !unserved.contains_key(*topic)) {
            (self.config.tell)(&format!("topic {topic} is served again"));
        }
    }
}

pub(crate) fn new_ack(receipt: &[u8], verdict: Verdict, delay: Option<Duration>, reason: Option<&str>) -> Ack {
    let verdict = (verdict != Verdict::DONE).then_some(verdict);
    Ack::new(receipt.to_vec(), verdict, delay.map(|delay| delay.as_millis() as i32), reason.map(String::from))
}
