use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::codes::{action_of, Action};
use crate::errors::{CallFailed, Error};
use crate::message::{Code, Message};
use crate::message_fields::size_of;
use crate::producer::SendResult;

pub(crate) const CALL_MESSAGES_MAX: usize = 1_000;
pub(crate) const CALL_BYTES_MAX: usize = 8_000_000; // well under Thrift's frame limit of 16,384,000

/// The outcome of one message after all retries.
#[derive(Clone, Debug)]
pub struct SendOutcome {
    pub code: Code,
    pub id: String,
    /// None unless stored.
    pub queue: Option<i32>,
    /// In the queue. None unless stored, and while the message is in the fallback buffer (BUFFERED).
    pub offset: Option<i64>,
    pub reason: String,
    /// Of a request that was answered.
    pub reply: Option<Message>,
    /// Attempts that reached a proxy.
    pub attempts: u32,
}

impl SendOutcome {
    /// Stored. A request whose reply did not come is stored too, but not ok.
    pub fn is_ok(&self) -> bool {
        action_of(self.code) == Action::Done
    }

    pub fn error(&self) -> Error {
        Error::Refused { code: self.code, reason: self.reason.clone(), id: self.id.clone() }
    }
}

/// One message of a batch. Invariant: one whose outcome was once unknown is reported as unknown (TIMEOUT) unless a later
/// answer tells that it is stored. A later refusal applies only to that later attempt.
pub(crate) struct Entry {
    pub message: Message,
    pub due: Instant,
    pub attempts: u32,
    pub is_settled: bool,
    pub code: Code,
    is_request: bool,
    is_maybe_stored: bool,
    reason: String,
    answer: Option<SendResult>,
}

impl Entry {
    /// `is_request`: a reply is waited for.
    pub fn new(message: Message, due: Instant, is_request: bool) -> Entry {
        let reason = "no proxy could be reached before the deadline".into();
        let (attempts, is_settled, is_maybe_stored, code) = (0, false, false, Code::UNAVAILABLE);
        Entry { message, due, attempts, is_settled, code, is_request, is_maybe_stored, reason, answer: None }
    }

    fn key(&self) -> Option<(&str, &str)> {
        self.message.key.as_ref().map(|key| (self.message.topic.as_str(), key.as_str()))
    }

    /// `pause` gives the pause after so many attempts.
    pub fn answered(&mut self, answer: SendResult, now: Instant, pause: impl Fn(&SendResult, u32) -> Duration) {
        self.attempts += 1;
        self.code = answer.code;
        self.reason = answer.error.clone().unwrap_or_else(|| "no reason given".into());
        let action = action_of(answer.code);
        if self.is_maybe_stored && matches!(action, Action::Refused | Action::Later | Action::Elsewhere) {
            // What it says, also "not stored", is about this attempt alone.
            self.reason = "an earlier attempt may have stored it".into();
            if let Some(told) = answer.error.as_deref().filter(|told| !told.is_empty()) {
                self.reason += &format!("; the last one was answered: {told}");
            }
            if action == Action::Refused {
                self.code = Code::TIMEOUT;
            }
        }
        if self.is_request && answer.code == Code::DUPLICATE && answer.reply.is_none() {
            self.code = Code::TIMEOUT;
            self.reason = "stored by an earlier attempt, whose reply cannot be had".into();
        }
        match action {
            Action::Later => self.due = now + pause(&answer, self.attempts),
            Action::Unknown => {
                self.due = now + pause(&answer, self.attempts);
                self.is_maybe_stored = true;
            }
            Action::Elsewhere => self.due = now,
            _ => self.is_settled = true,
        }
        self.answer = Some(answer);
    }

    /// No answer came. It is due again at once: the pool has set that proxy aside.
    pub fn failed(&mut self, failure: &CallFailed, now: Instant) {
        self.attempts += u32::from(failure.sent);
        self.is_maybe_stored |= failure.sent;
        self.reason = failure.reason.clone();
        self.due = now;
    }

    /// Whether it was answered for good, or may be stored.
    pub fn has_outcome(&self) -> bool {
        self.is_settled || self.is_maybe_stored
    }

    pub fn outcome(self) -> SendOutcome {
        let Entry { code, reason, attempts, .. } = self;
        let id = self.message.id.unwrap_or_default();
        match self.answer.filter(|_| self.is_settled) {
            Some(answer) => {
                let SendResult { queue, offset, reply, .. } = answer;
                SendOutcome { code, id: answer.id.unwrap_or(id), queue, offset, reason, reply, attempts }
            }
            None => {
                let code = if self.is_maybe_stored { Code::TIMEOUT } else { code };
                SendOutcome { code, id, queue: None, offset: None, reason, reply: None, attempts }
            }
        }
    }
}

/// When the first message may be sent; none when all are settled.
pub(crate) fn next_due(entries: &[Entry]) -> Option<Instant> {
    let mut seen = HashSet::new();
    let open = entries.iter().filter(|each| !each.is_settled);
    open.filter_map(|each| each.key().map_or(true, |key| seen.insert(key)).then_some(each.due)).min()
}

/// The messages to send now that fit into one call, and their approximate size in bytes. At least one if one is due.
///
/// A message waits while an earlier one of its key does: so a key keeps its order over retries. It holds because a proxy
/// that refuses a message stores none of its key's later messages of the same call.
pub(crate) fn one_call(entries: &[Entry], now: Instant) -> (Vec<usize>, usize) {
    let (mut chosen, mut size, mut held) = (Vec::new(), 0, HashSet::new());
    for (at, each) in entries.iter().enumerate().filter(|(_, each)| !each.is_settled) {
        if each.due > now || each.key().is_some_and(|key| held.contains(&key)) {
            held.extend(each.key());
            continue;
        }
        let more = size_of(&each.message);
        if !chosen.is_empty() && (chosen.len() >= CALL_MESSAGES_MAX || size + more > CALL_BYTES_MAX) {
            break;
        }
        size += more;
        chosen.push(at);
    }
    (chosen, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(now: Instant) -> Entry {
        Entry::new(crate::message("t", "x"), now, false)
    }

    fn answer(code: Code) -> SendResult {
        SendResult::new(code, None, None, None, None, None, None)
    }

    #[test]
    fn what_was_once_unknown_stays_unknown_until_an_answer_settles_it() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut lost = entry(now);
        lost.failed(&CallFailed { reason: "cut".into(), sent: true }, now);
        lost.answered(answer(Code::UNAVAILABLE), now, |_, _| second);
        assert_eq!(lost.due, now + second);
        assert_eq!((lost.outcome().code, entry(now).outcome().code), (Code::TIMEOUT, Code::UNAVAILABLE));
        let mut stored = entry(now);
        stored.failed(&CallFailed { reason: "cut".into(), sent: true }, now);
        stored.answered(answer(Code::DUPLICATE), now, |_, _| second);
        assert!(stored.is_settled && stored.outcome().is_ok());
    }

    #[test]
    fn a_message_waits_while_an_earlier_one_of_its_key_does() {
        let now = Instant::now();
        let keyed = |key: &str| {
            let mut message = crate::message("t", "x");
            message.key = Some(key.into());
            Entry::new(message, now, false)
        };
        let mut entries = [keyed("k"), keyed("k"), keyed("other"), entry(now)];
        entries[0].due = now + Duration::from_secs(1);
        assert_eq!(one_call(&entries, now).0, [2, 3]);
        (entries[2].is_settled, entries[3].is_settled) = (true, true);
        assert_eq!(next_due(&entries), Some(now + Duration::from_secs(1)));
        entries[0].is_settled = true;
        assert_eq!(one_call(&entries, now).0, [1]);
    }

    #[test]
    fn a_call_has_at_most_a_thousand_messages_and_eight_megabytes_but_at_least_one() {
        let now = Instant::now();
        let small: Vec<Entry> = (0..1_500).map(|_| entry(now)).collect();
        assert_eq!(one_call(&small, now).0.len(), 1_000);
        let large = || Entry::new(crate::message("t", vec![0; 5_000_000]), now, false);
        assert_eq!(one_call(&[large(), large()], now).0, [0]);
    }
}
