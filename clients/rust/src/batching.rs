use std::mem::take;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::errors::Error;
use crate::message::Message;
use crate::message_fields::size_of;
use crate::plan::SendOutcome;
use crate::sending::{How, Producer};

/// When a [`BatchingProducer`] sends.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// A message waits for others at most this long. Default 5 ms.
    pub linger: Duration,
    /// A call is made at once when so many bytes wait. Default 256 KiB.
    pub bytes: usize,
    /// `send` blocks while so many bytes wait or are on their way. Default 32 MiB.
    pub bytes_max: usize,
}

impl Default for Batching {
    fn default() -> Batching {
        Batching { linger: Duration::from_millis(5), bytes: 256 << 10, bytes_max: 32 << 20 }
    }
}

type Answer = Result<SendOutcome, Error>;

/// The outcome of one message that is on its way.
pub struct Pending(Receiver<Answer>);

impl Pending {
    /// Blocks until the message is stored or refused, by the producer's deadline.
    pub fn wait(self) -> Result<SendOutcome, Error> {
        let outcome = self.0.recv().map_err(|_| Error::Closed)??;
        match outcome.is_ok() {
            true => Ok(outcome),
            false => Err(outcome.error()),
        }
    }
}

#[derive(Default)]
struct Waiting {
    messages: Vec<(Message, Sender<Answer>)>,
    bytes: usize,
    bytes_sending: usize,
    since: Option<Instant>, // the oldest message's arrival
    is_flushed: bool,
    is_closed: bool,
}

/// Collects single messages into calls, made one after another by a thread of its own. Messages of one key keep their
/// order as those of [`Producer::send_all`].
pub struct BatchingProducer {
    how: Batching,
    shared: Arc<(Mutex<Waiting>, Condvar)>,
    sender: Mutex<Option<JoinHandle<()>>>,
}

impl BatchingProducer {
    pub fn new(producer: Arc<Producer>, how: Batching) -> BatchingProducer {
        let shared: Arc<(Mutex<Waiting>, Condvar)> = Arc::default();
        let sending = shared.clone();
        let sender = std::thread::spawn(move || send_batches(&producer, how, &sending));
        BatchingProducer { how, shared, sender: Mutex::new(Some(sender)) }
    }

    /// Takes a message; blocks while too many bytes wait.
    pub fn send(&self, message: Message) -> Result<Pending, Error> {
        let (lock, changed) = &*self.shared;
        let is_full =
            |waiting: &mut Waiting| !waiting.is_closed && waiting.bytes + waiting.bytes_sending >= self.how.bytes_max;
        let mut waiting = changed.wait_while(lock.lock().unwrap(), is_full).unwrap();
        if waiting.is_closed {
            return Err(Error::Closed);
        }
        let (answering, answer) = channel();
        waiting.bytes += size_of(&message);
        waiting.messages.push((message, answering));
        waiting.since.get_or_insert_with(Instant::now);
        changed.notify_all();
        Ok(Pending(answer))
    }

    /// Sends what waits now, and blocks until all of it is answered.
    pub fn flush(&self) {
        let (lock, changed) = &*self.shared;
        let mut waiting = lock.lock().unwrap();
        waiting.is_flushed = true;
        changed.notify_all();
        let is_open = |waiting: &mut Waiting| waiting.bytes + waiting.bytes_sending > 0;
        drop(changed.wait_while(waiting, is_open).unwrap());
    }

    /// Sends what waits; later messages are refused. Dropping it does the same.
    pub fn close(&self) {
        self.shared.0.lock().unwrap().is_closed = true;
        self.shared.1.notify_all();
        if let Some(sender) = self.sender.lock().unwrap().take() {
            let _ = sender.join(); // a panic of that thread has been printed
        }
    }
}

impl Drop for BatchingProducer {
    fn drop(&mut self) {
        self.close();
    }
}

fn send_batches(producer: &Producer, how: Batching, (lock, changed): &(Mutex<Waiting>, Condvar)) {
    let mut waiting = lock.lock().unwrap();
    loop {
        let left = waiting.since.map(|since| how.linger.saturating_sub(since.elapsed()));
        let is_hurried = waiting.is_closed || waiting.is_flushed || waiting.bytes >= how.bytes;
        waiting = match left {
            None if waiting.is_closed => return,
            None => {
                waiting.is_flushed = false;
                changed.wait(waiting).unwrap()
            }
            Some(left) if !is_hurried && !left.is_zero() => changed.wait_timeout(waiting, left).unwrap().0,
            Some(_) => {
                let (messages, answering): (Vec<_>, Vec<_>) = take(&mut waiting.messages).into_iter().unzip();
                waiting.bytes_sending = take(&mut waiting.bytes);
                waiting.since = None;
                drop(waiting);
                let sent = producer.send_all(messages, How::default());
                // A caller that has dropped its Pending does not ask for the answer.
                match sent {
                    Ok(outcomes) => answering.iter().zip(outcomes).for_each(|(to, each)| drop(to.send(Ok(each)))),
                    Err(error) => answering.iter().for_each(|to| drop(to.send(Err(error.clone())))),
                }
                let mut next = lock.lock().unwrap();
                next.bytes_sending = 0;
                changed.notify_all();
                next
            }
        };
    }
}
