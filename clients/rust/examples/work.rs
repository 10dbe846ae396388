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
    let handled = AtomicU64::new(0);
    let how = RunOptions { workers: given.number("workers", 1) as usize, ..RunOptions::default() };
    let ended = consumer.run(how, |delivery| {
        std::thread::sleep(given.ms("handle-ms", 0));
        println!("{}\t{}\t{}\t{}", delivery.message.topic, delivery.queue, delivery.offset, delivery.attempt);
        handled.fetch_add(1, Ordering::Relaxed);
        Ok::<Verdict, Infallible>(Verdict::DONE)
    });
    or_fail(ended);
    or_fail(consumer.close());
    println!("{{\"handled\": {}, \"refused\": {}}}", handled.into_inner(), consumer.acks_refused());
}
