//! Asks with each argument and prints the replies.

mod common;

use common::{or_fail, Arguments};
use penstock_client::{message, Producer};

fn main() {
    let given = Arguments::given();
    let producer = or_fail(Producer::new(given.config("endpoints")));
    for body in &given.rest {
        let reply = producer.request(message(&given.text("topic"), body.as_bytes()), given.ms("wait-ms", 5_000));
        println!("{}", String::from_utf8_lossy(&or_fail(reply).body.unwrap_or_default()));
    }
}
