use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::backoff::{backoff, chance, pause};
use crate::codes::{action_of, Action};
use crate::config::{Config, CredentialMint};
use crate::connection::{Input, Output};
use crate::consumer::Delivery;
use crate::errors::{AttemptError, CallFailed, Error};
use crate::message::{Code, Message};
use crate::message_fields::{message, prepared};
use crate::plan::{next_due, one_call, Entry, SendOutcome};
use crate::pool::{Attempt, Pool, ANSWER_MARGIN};
use crate::producer::{Durability, ProducerSyncClient, SendRequest, SendResult};

/// Changes one send. The default is the usual one.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// None: the topics' setting.
    pub durability: Option<Durability>,
    /// Wait for a consumer's reply; one message only. Zero: not a request.
    pub reply_wait: Duration,
}

/// Sends through any of several producer proxies and retries what needs it, each message by its own result code.
///
/// A message without an id gets one. Only with the same id is a retry after a broken connection free of duplicates.
pub struct Producer {
    config: Config,
    pool: Pool<ProducerSyncClient<Input, Output>>,
    mint: CredentialMint,
    retried: AtomicU64,
}

impl Producer {
    /// Connects at the first call; fails only on an invalid configuration.
    pub fn new(config: Config) -> Result<Producer, Error> {
        let (pool, mint) = (Pool::new(&config)?, CredentialMint::new(&config)?);
        Ok(Producer { config, pool, mint, retried: AtomicU64::new(0) })
    }

    /// Sends one message and returns once it is stored.
    pub fn send(&self, message: Message) -> Result<SendOutcome, Error> {
        let outcome = self.send_one(message, How::default())?;
        match outcome.is_ok() {
            true => Ok(outcome),
            false => Err(outcome.error()),
        }
    }

    /// Sends one message and returns what a consumer replies. The message is not dispatched after `wait`. Without a
    /// reply the error's code is NO_CONSUMER, NO_REPLY or CONSUMER_FAILED; or TIMEOUT, also when an earlier attempt was
    /// stored, whose reply cannot be had.
    pub fn request(&self, message: Message, wait: Duration) -> Result<Message, Error> {
        let outcome = self.send_one(message, How { reply_wait: wait, ..How::default() })?;
        let error = outcome.error();
        outcome.reply.ok_or(error)
    }

    /// Answers a delivery that has a reply token; returns once the waiting caller has the reply. STALE_RECEIPT when the
    /// caller no longer waits.
    pub fn reply(&self, delivery: &Delivery, body: impl Into<Vec<u8>>) -> Result<SendOutcome, Error> {
        let mut reply = message(&delivery.message.topic, body);
        reply.reply_to = Some(delivery.reply_token.clone().unwrap_or_default());
        self.send(reply)
    }

    /// Sends many messages, of any topics, and returns one outcome each, in order. The error is about the call as a
    /// whole; a message's failure is in its outcome.
    ///
    /// Messages of one key keep their order, over retries too: a message waits while an earlier one of its key does.
    pub fn send_all(&self, messages: Vec<Message>, how: How) -> Result<Vec<SendOutcome>, Error> {
        let now = Instant::now();
        let deadline = now + self.config.deadline + how.reply_wait;
        let mut entries = Vec::with_capacity(messages.len());
        for each in messages {
            entries.push(Entry::new(prepared(each)?, now, !how.reply_wait.is_zero()));
        }
        let luck = chance(); // drawn once: what is refused together is sent again together
        let mut stay = None;
        while let Some(due) = next_due(&entries) {
            let now = Instant::now();
            let start = due.max(self.pool.usable_at());
            if start.max(now) >= deadline {
                break;
            }
            if start > now {
                sleep(start - now);
                continue;
            }
            stay = match self.attempt(&mut entries, how, deadline, stay, luck) {
                Ok(stay) => stay,
                Err(Error::Contract(_)) if entries.iter().any(Entry::has_outcome) => break,
                Err(error) => return Err(error),
            }
        }
        let outcomes: Vec<SendOutcome> = entries.into_iter().map(Entry::outcome).collect();
        outcomes.iter().for_each(|each| self.config.metrics.sent(each));
        Ok(outcomes)
    }

    /// Resent messages, over all calls.
    pub fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// Closes idle connections; calls in flight end first, later ones are refused.
    pub fn close(&self) {
        self.pool.close();
    }

    fn send_one(&self, message: Message, how: How) -> Result<SendOutcome, Error> {
        Ok(self.send_all(vec![message], how)?.remove(0))
    }

    /// One call of the due messages that fit. Returns the proxy that has promised a slot at its rate limit: the retry
    /// has to go there.
    fn attempt(
        &self,
        entries: &mut [Entry],
        how: How,
        deadline: Instant,
        stay: Option<usize>,
        luck: f64,
    ) -> Result<Option<usize>, Error> {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        let (chosen, size) = one_call(entries, now);
        let timeout = self.config.call_timeout.min(left);
        let wait = how.reply_wait.min(left);
        let reply_wait_ms = (!wait.is_zero()).then_some(wait.as_millis().max(1) as i32);
        let credential = self.mint.credential();
        let messages = chosen.iter().map(|&at| entries[at].message.clone()).collect();
        let again = chosen.iter().filter(|&&at| entries[at].attempts > 0).count();
        self.retried.fetch_add(again as u64, Ordering::Relaxed);
        let called = self.pool.call(Attempt {
            hello: SendRequest::new(credential.clone(), vec![], None, None, None),
            request: SendRequest::new(
                credential,
                messages,
                timeout.as_millis() as i32 + 1,
                how.durability,
                reply_wait_ms,
            ),
            size,
            timeout: timeout.max(wait) + ANSWER_MARGIN,
            deadline,
            stay,
        });
        let now = Instant::now();
        let (failure, all_foreign) = match called {
            Ok((answer, at)) if answer.results.len() == chosen.len() => {
                let pause = |refusal: &SendResult, attempts| {
                    pause(refusal.code, refusal.retry_after_ms, backoff(&self.config, attempts, luck))
                };
                for (&entry, result) in chosen.iter().zip(answer.results) {
                    entries[entry].answered(result, now, pause);
                }
                let has = |wanted: &dyn Fn(Code) -> bool| chosen.iter().any(|&each| wanted(entries[each].code));
                match has(&|code| action_of(code) == Action::Elsewhere) {
                    true => self.pool.set_aside(at),
                    false => self.pool.praise(at),
                }
                return Ok(has(&|code| code == Code::RATE_LIMITED).then_some(at));
            }
            Ok(_) => (CallFailed { reason: "the answer has another number of results".into(), sent: true }, false),
            Err(AttemptError::Failed(failure)) => (failure, false),
            Err(AttemptError::AllForeign(failure)) => (failure, true),
            Err(AttemptError::Final(error)) => return Err(error),
        };
        chosen.iter().for_each(|&at| entries[at].failed(&failure, now));
        match all_foreign {
            true => Err(Error::Contract(failure.reason)),
            false => Ok(None),
        }
    }
}
