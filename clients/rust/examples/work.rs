//! Handles messages by `Consumer::run`, each for --handle-ms, until SIGTERM; prints one line per handled message.
//!
//! A line is: topic, queue, offset, attempt; separated by tabs. The last line is a JSON object of counts.

mod common;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use common::{or_fail, stop_by_signal, Arguments};
use penstock_client::{RunOptions, Verdict};

fn main() {
    let given = Arguments::given();
    let consumer = Arc::new(given.consumer());
    stop_by_signal(&consumer);
    let (handled, busy, busiest) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let how = RunOptions { workers: given.number("workers", 1) as usize, ..RunOptions::default() };
    let ended = consumer.run(how, |delivery| {
        busiest.fetch_max(busy.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        std::thread::sleep(given.ms("handle-ms", 0));
        busy.fetch_sub(1, Ordering::Relaxed);
        println!("{}\t{}\t{}\t{}", delivery.message.topic, delivery.queue, delivery.offset, delivery.attempt);
        handled.fetch_add(1, Ordering::Relaxed);
        Ok::<Verdict, Infallible>(Verdict::DONE)
    });
    or_fail(ended);
    or_fail(consumer.close());
    let (handled, busiest) = (handled.into_inner(), busiest.into_inner());
    println!("{{\"handled\": {handled}, \"refused\": {}, \"busiest\": {busiest}}}", consumer.acks_refused());
}
