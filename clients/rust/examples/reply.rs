//! Answers requests with "re: " and what they asked, until none has come for --wait-ms.

mod common;

use common::{or_fail, Arguments};
use penstock_client::Producer;

fn main() {
    let given = Arguments::given();
    let consumer = given.consumer();
    let producer = or_fail(Producer::new(given.config("reply-endpoints")));
    loop {
        let pulled = or_fail(consumer.pull(32, given.ms("wait-ms", 1_000)));
        for each in &pulled {
            if each.reply_token.is_some() {
                let body = [b"re: ", each.message.body.as_deref().unwrap_or_default()].concat();
                if let Err(error) = producer.reply(each, body) {
                    eprintln!("{error}"); // mostly because the caller no longer waits
                }
            }
            consumer.done(each);
        }
        if pulled.is_empty() {
            break;
        }
    }
    or_fail(consumer.close());
}
