//! Prints messages until none has come for --wait-ms, and acknowledges them.

mod common;

use common::{or_fail, Arguments};

fn main() {
    let given = Arguments::given();
    let consumer = given.consumer();
    loop {
        let pulled = or_fail(consumer.pull(32, given.ms("wait-ms", 1_000)));
        for each in &pulled {
            let message = &each.message;
            let body = String::from_utf8_lossy(message.body.as_deref().unwrap_or_default());
            let key = message.key.as_deref().unwrap_or_default();
            println!("{}\t{}\t{}\t{key}\t{body}", each.queue, each.offset, each.attempt);
            consumer.done(each);
        }
        if pulled.is_empty() {
            break;
        }
    }
    or_fail(consumer.close());
}
