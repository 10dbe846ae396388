use std::collections::VecDeque;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::spawn;
use std::time::{Duration, Instant};

use crate::errors::Error;
use crate::message::Message;
use crate::message_fields::{prepared, size_of};
use crate::plan::{SendOutcome, CALL_BYTES_MAX, CALL_MESSAGES_MAX};
use crate::sending::{How, Producer};

/// When a [`BatchingProducer`] sends.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// A message waits for others at most this long. Default 5 ms.
    pub linger: Duration,
    /// A call is made at once when so many bytes wait. Default 256 KiB.
    pub bytes: usize,
    /// Or so many messages. Default 1,000.
    pub messages: usize,
    /// That wait or are on their way; beyond it `send` waits. Default 32 MiB.
    pub bytes_max: usize,
    /// Then `send` gives [`Error::Full`]. Default 10 s.
    pub full_wait: Duration,
}

impl Default for Batching {
    fn default() -> Batching {
        let linger = Duration::from_millis(5);
        let full_wait = Duration::from_secs(10);
        Batching { linger, bytes: 256 << 10, messages: CALL_MESSAGES_MAX, bytes_max: 32 << 20, full_wait }
    }
}

type Answer = Result<SendOutcome, Error>;

/// The outcome of one message that is on its way.
pub struct Pending(Receiver<Answer>);

impl Pending {
    /// Blocks until the message is stored or refused, by the producer's deadline. [`Error::Closed`]: it is not stored.
    pub fn wait(self) -> Result<SendOutcome, Error> {
        let outcome = self.0.recv().map_err(|_| Error::Closed)??;
        match outcome.is_ok() {
            true => Ok(outcome),
            false => Err(outcome.error()),
        }
    }
}

struct Waiting {
    message: Message,
    size: usize,
    since: Instant,
    answer: Sender<Answer>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    bytes: usize, // of what waits or is on its way
    taken: u64,   // messages so far
    answered: u64,
    flush_to: u64,
    is_closed: bool,
}

struct Shared {
    how: Batching,
    state: Mutex<State>,
    changed: Condvar,
}

/// Collects single messages into calls, made one after another by a thread of its own. A call takes all that waits, as
/// far as it fits. Messages of one key keep their order, over retries too. It does not close the producer.
pub struct BatchingProducer(Arc<Shared>);

impl BatchingProducer {
    pub fn new(producer: Arc<Producer>, how: Batching) -> BatchingProducer {
        let shared = Arc::new(Shared { how, state: Mutex::default(), changed: Condvar::new() });
        let sending = shared.clone();
        spawn(move || {
            while let Some(batch) = sending.next_batch() {
                sending.send(&producer, batch);
            }
        });
        BatchingProducer(shared)
    }

    /// Takes a message. While as much as `bytes_max` waits it blocks, for `full_wait` at most. After an error the message
    /// was not taken.
    pub fn send(&self, message: Message) -> Result<Pending, Error> {
        let message = prepared(message)?;
        let Shared { how, state, changed } = &*self.0;
        let is_full = |state: &mut State| !state.is_closed && state.bytes >= how.bytes_max;
        let (mut state, waited) = changed.wait_timeout_while(state.lock().unwrap(), how.full_wait, is_full).unwrap();
        if state.is_closed {
            return Err(Error::Closed);
        }
        if waited.timed_out() && is_full(&mut state) {
            return Err(Error::Full);
        }
        let (answer, outcome) = channel();
        let size = size_of(&message);
        state.waiting.push_back(Waiting { message, size, since: Instant::now(), answer });
        state.taken += 1;
        state.bytes += size;
        state.waiting_bytes += size;
        if state.waiting.len() == 1 || self.0.is_enough(&state) {
            changed.notify_all();
        }
        Ok(Pending(outcome))
    }

    /// Sends what waits now, and blocks until all that was taken before is answered.
    pub fn flush(&self) {
        let mut state = self.0.state.lock().unwrap();
        let last = state.taken;
        state.flush_to = last;
        self.0.changed.notify_all();
        drop(self.0.changed.wait_while(state, |state| state.answered < last).unwrap());
    }

    /// Sends what waits, until the deadline at most. What is in no call by then ends with [`Error::Closed`]; a call in
    /// progress goes on by its own deadline. Later messages are refused. Dropping it closes within 10 s.
    pub fn close(&self, deadline: Duration) {
        let mut state = self.0.state.lock().unwrap();
        state.is_closed = true;
        self.0.changed.notify_all();
        let is_open = |state: &mut State| state.answered < state.taken;
        let (mut state, _) = self.0.changed.wait_timeout_while(state, deadline, is_open).unwrap();
        state.answered += state.waiting.len() as u64;
        state.waiting.clear(); // its Pending see that no answer will come
        self.0.changed.notify_all();
    }
}

impl Drop for BatchingProducer {
    fn drop(&mut self) {
        self.close(Duration::from_secs(10));
    }
}

impl Shared {
    fn is_enough(&self, state: &State) -> bool {
        state.waiting_bytes >= self.how.bytes || state.waiting.len() >= self.how.messages
    }

    /// Blocks until a call is to be made; none when none will be.
    fn next_batch(&self) -> Option<Vec<Waiting>> {
        let state = self.state.lock().unwrap();
        let is_idle = |state: &mut State| state.waiting.is_empty() && !state.is_closed;
        let state = self.changed.wait_while(state, is_idle).unwrap();
        let left = self.how.linger.saturating_sub(state.waiting.front()?.since.elapsed());
        let lingers =
            |state: &mut State| !(state.is_closed || state.flush_to > state.answered || self.is_enough(state));
        let (mut state, _) = self.changed.wait_timeout_while(state, left, lingers).unwrap();
        let (mut batch, mut size) = (Vec::new(), 0);
        while let Some(next) = state.waiting.front().map(|next| next.size) {
            if batch.len() >= CALL_MESSAGES_MAX || !batch.is_empty() && size + next > CALL_BYTES_MAX {
                break;
            }
            size += next;
            batch.extend(state.waiting.pop_front());
        }
        state.waiting_bytes -= size;
        Some(batch)
    }

    fn send(&self, producer: &Producer, batch: Vec<Waiting>) {
        let (mut messages, mut answers, mut size) = (Vec::new(), Vec::new(), 0);
        for Waiting { message, size: more, answer, .. } in batch {
            messages.push(message);
            answers.push(answer);
            size += more;
        }
        let count = answers.len() as u64;
        // A caller that has dropped its Pending does not ask for the answer.
        match producer.send_all(messages, How::default()) {
            Ok(outcomes) => answers.iter().zip(outcomes).for_each(|(to, each)| drop(to.send(Ok(each)))),
            Err(error) => answers.iter().for_each(|to| drop(to.send(Err(error.clone())))),
        }
        let mut state = self.state.lock().unwrap();
        state.answered += count;
        state.bytes -= size;
        self.changed.notify_all();
    }
}
