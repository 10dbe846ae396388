//! Pulls until --count different lines have come, or SIGTERM; prints a line per delivery and acknowledges all.
//!
//! A line is: line number, key, queue, offset, attempt, SHA-256 of the body in hex; separated by tabs. A message that is
//! delivered twice is printed twice and counted once.

mod common;

use std::collections::HashSet;
use std::io::{stdout, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use common::{on_signal, or_fail, Arguments};

fn main() {
    let given = Arguments::given();
    let consumer = given.consumer();
    let stopped = Arc::new(AtomicBool::new(false));
    let by_signal = stopped.clone();
    on_signal(move || by_signal.store(true, Ordering::Relaxed));
    let (count, most) = (given.number("count", 0) as usize, given.number("max", 256) as usize);
    let mut out = BufWriter::new(stdout());
    let mut seen = HashSet::new();
    while seen.len() < count && !stopped.load(Ordering::Relaxed) {
        for each in &or_fail(consumer.pull(most, Duration::from_secs(1))) {
            let message = &each.message;
            let line =
                message.properties.as_ref().and_then(|properties| properties.get("line")).cloned().unwrap_or_default();
            let digest = openssl::sha::sha256(message.body.as_deref().unwrap_or_default());
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            let key = message.key.as_deref().unwrap_or_default();
            or_fail(writeln!(out, "{line}\t{key}\t{}\t{}\t{}\t{digest}", each.queue, each.offset, each.attempt));
            seen.insert(line);
            consumer.done(each);
        }
        or_fail(out.flush());
    }
    or_fail(consumer.close());
}
