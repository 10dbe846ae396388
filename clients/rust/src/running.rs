use std::fmt::Display;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::backoff::{backoff, chance};
use crate::codes::{action_of, Action};
use crate::consumer::{Delivery, PullResponse, Verdict};
use crate::errors::Error;
use crate::held::{HeldLeases, LEASE_UNKNOWN};
use crate::message::Code;
use crate::pulling::{new_ack, Consumer, State};

/// How a run pulls and handles.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Handlers at a time, each in a thread of its own; of one key never more than one. Default 1.
    pub workers: usize,
    /// Per pull. Default 32.
    pub max_messages: usize,
    /// Of a pull while no handler works; a stop waits for the pull in progress. Default 5 s.
    pub wait: Duration,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions { workers: 1, max_messages: 32, wait: Duration::from_secs(5) }
    }
}

impl Consumer {
    /// Pulls and handles until [`Consumer::stop`], then gives back what no handler has seen and delivers the last
    /// acknowledgements. An error or panic of the handler means RETRY with its text as reason. Leases are extended while
    /// messages wait or are handled; the rules are in clients/README.md.
    ///
    /// Errors: pulls are refused for good, none has succeeded for `outage_max`, or the last acknowledgements could not be
    /// delivered.
    pub fn run<H, E>(&self, how: RunOptions, handle: H) -> Result<(), Error>
    where
        H: Fn(&Delivery) -> Result<Verdict, E> + Sync,
        E: Display,
    {
        let workers = how.workers.max(1);
        self.state.lock().unwrap().held = Some(HeldLeases::new(workers, self.config.extend_max));
        let run = Run { consumer: self, how, has_ended: AtomicBool::new(false), is_idle: AtomicBool::new(false) };
        let ended = thread::scope(|scope| {
            let working: Vec<_> = (0..workers).map(|_| scope.spawn(|| run.work(&handle))).collect();
            let keeper = scope.spawn(|| run.keep());
            let ended = run.pull_all();
            run.set(&run.has_ended);
            let panicked = working.into_iter().map(|each| each.join()).find_map(Result::err);
            run.set(&run.is_idle);
            let _ = keeper.join();
            if let Some(panic) = panicked {
                std::panic::resume_unwind(panic); // of the metrics hook
            }
            ended
        });
        let mut state = self.state.lock().unwrap();
        for each in state.held.take().map_or_else(Vec::new, |mut held| held.release()) {
            state.acknowledge(new_ack(&each.receipt, Verdict::RELEASE, None, None));
        }
        drop(state);
        ended.and_then(|()| self.flush())
    }

    /// Ends the run, now or to come, after the handlers and the pull in progress. For any thread.
    pub fn stop(&self) {
        let _state = self.state.lock().unwrap();
        self.is_stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }
}

struct Run<'a> {
    consumer: &'a Consumer,
    how: RunOptions,
    has_ended: AtomicBool, // no handler begins any more
    is_idle: AtomicBool,   // no handler works any more
}

impl Run<'_> {
    fn set(&self, flag: &AtomicBool) {
        let _state = self.consumer.state.lock().unwrap(); // whoever waits for it looks at it under the lock
        flag.store(true, Ordering::Relaxed);
        self.consumer.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.consumer.is_stopped.load(Ordering::Relaxed)
    }

    fn pull_all(&self) -> Result<(), Error> {
        let (mut served, mut failures) = (Instant::now(), 0);
        while !self.is_stopped() {
            let (count, wait) = {
                let is_full = |state: &mut State| !self.is_stopped() && !held(state).has_room(Instant::now());
                let guard = self.consumer.state.lock().unwrap();
                let mut state = self.consumer.changed.wait_while(guard, is_full).unwrap();
                let held = held(&mut state);
                // Beside handlers a pull waits for a sixth of a lease at most: the next one has to carry their
                // extensions.
                let wait = if held.busy() == 0 { self.how.wait } else { self.how.wait.min(held.look()) };
                (held.wanted(self.how.max_messages), wait)
            };
            match self.consumer.pull_served(count, wait, true) {
                Ok(Some(answer)) => {
                    if failures > 0 {
                        (self.consumer.config.tell)(&format!("pulling again after {} s", served.elapsed().as_secs()));
                    }
                    (served, failures) = (Instant::now(), 0);
                    self.pulled(answer);
                }
                Ok(None) => {}
                Err(error) => {
                    failures += 1;
                    self.failed(error, served, failures)?;
                }
            }
        }
        Ok(())
    }

    fn pulled(&self, answer: PullResponse) {
        let told = answer.invisible_ms.filter(|&ms| ms > 0).map(|ms| Duration::from_millis(ms as u64));
        let lease = self.consumer.subscription.invisible.or(told).unwrap_or(LEASE_UNKNOWN);
        let mut state = self.consumer.state.lock().unwrap();
        held(&mut state).pulled(answer.deliveries, lease, Instant::now());
        self.consumer.changed.notify_all();
    }

    /// Tells of the outage and pauses. Gives the error if waiting cannot help, or was in vain for too long.
    fn failed(&self, error: Error, served: Instant, failures: u32) -> Result<(), Error> {
        let config = &self.consumer.config;
        // Refusals that end when an operator defines what is missing.
        let waits = |code| code == Code::UNKNOWN_TOPIC || code == Code::UNKNOWN_GROUP;
        let is_final = error.code().map_or(true, |code| action_of(code) == Action::Refused && !waits(code));
        if is_final || !config.outage_max.is_zero() && served.elapsed() >= config.outage_max {
            return Err(error);
        }
        if failures == 1 {
            (config.tell)(&format!("no pull succeeds, trying again: {error}"));
        }
        let pause = backoff(config, failures, chance());
        let guard = self.consumer.state.lock().unwrap();
        drop(self.consumer.changed.wait_timeout_while(guard, pause, |_| !self.is_stopped()).unwrap());
        Ok(())
    }

    /// One worker.
    fn work<H, E>(&self, handle: &H)
    where
        H: Fn(&Delivery) -> Result<Verdict, E> + Sync,
        E: Display,
    {
        let mut state = self.consumer.state.lock().unwrap();
        while !self.is_stopped() && !self.has_ended.load(Ordering::Relaxed) {
            let Some((number, delivery)) = held(&mut state).begin(Instant::now()) else {
                state = self.consumer.changed.wait(state).unwrap();
                continue;
            };
            drop(state);
            let began = Instant::now();
            let (verdict, reason) = judged(handle, &delivery);
            let took = began.elapsed();
            state = self.consumer.state.lock().unwrap(); // one step, so that no extension follows the acknowledgement
            held(&mut state).end(number, took);
            state.acknowledge(new_ack(&delivery.receipt, verdict, None, reason.as_deref()));
            self.consumer.changed.notify_all();
            drop(state);
            self.consumer.config.metrics.handled(&delivery, verdict, took);
            state = self.consumer.state.lock().unwrap();
        }
    }

    /// Delivers acknowledgements and extensions in time, until no handler works.
    fn keep(&self) {
        let mut state = self.consumer.state.lock().unwrap();
        loop {
            let look = held(&mut state).look();
            let works = |_: &mut State| !self.is_idle.load(Ordering::Relaxed);
            state = self.consumer.changed.wait_timeout_while(state, look, works).unwrap().0;
            if self.is_idle.load(Ordering::Relaxed) {
                return;
            }
            if state.is_ack_due(look) || held(&mut state).is_due(Instant::now()) {
                drop(state);
                let _ = self.consumer.pull_served(0, Duration::ZERO, true); // else the next look or pull tries again
                state = self.consumer.state.lock().unwrap();
            }
        }
    }
}

fn held(state: &mut State) -> &mut HeldLeases {
    state.held.as_mut().expect("a run has its leases")
}

/// A handler's fault costs its message an attempt, not the loop.
fn judged<H, E>(handle: &H, delivery: &Delivery) -> (Verdict, Option<String>)
where
    H: Fn(&Delivery) -> Result<Verdict, E>,
    E: Display,
{
    match catch_unwind(AssertUnwindSafe(|| handle(delivery))) {
        Ok(Ok(verdict)) if [Verdict::DONE, Verdict::RETRY, Verdict::REJECT].contains(&verdict) => (verdict, None),
        Ok(Ok(verdict)) => {
            let rule = format!("the handler returned {verdict:?}: use DONE, RETRY or REJECT");
            (Verdict::RETRY, Some(rule))
        }
        Ok(Err(error)) => (Verdict::RETRY, Some(error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            (Verdict::RETRY, Some(format!("panic: {}", text.unwrap_or("no text"))))
        }
    }
}
