//! Sends each argument as one message; with --linger-ms N they wait for each other and go in one call.

mod common;

use std::sync::Arc;

use common::{or_fail, Arguments};
use penstock_client::{message, Batching, BatchingProducer, Producer, SendOutcome};

fn main() {
    let given = Arguments::given();
    let producer = Arc::new(or_fail(Producer::new(given.config("endpoints"))));
    let messages = given.rest.iter().map(|body| message(&given.text("topic"), body.as_bytes()));
    let linger = given.ms("linger-ms", 0);
    if linger.is_zero() {
        messages.for_each(|each| show(or_fail(producer.send(each))));
        return;
    }
    let bytes = given.number("batch-bytes", 1 << 18) as usize;
    let batching = BatchingProducer::new(producer, Batching { linger, bytes, ..Batching::default() });
    let pending: Vec<_> = messages.map(|each| or_fail(batching.send(each))).collect();
    pending.into_iter().for_each(|each| show(or_fail(each.wait())));
}

fn show(stored: SendOutcome) {
    println!("{}\t{}\t{}", stored.id, stored.queue.unwrap_or(-1), stored.offset.unwrap_or(-1));
}
