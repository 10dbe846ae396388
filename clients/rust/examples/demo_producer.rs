//! Streams a file, one message per line, and reports progress as JSON lines.
//!
//! Line i has key "k<i mod N>", property line=i, and the line's bytes with its newline as body.

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use common::{fail, or_fail, Arguments};
use penstock_client::{message, How, Message, Producer};

fn main() {
    let given = Arguments::given();
    let producer = or_fail(Producer::new(given.config("endpoints")));
    let (topic, keys, size) = (given.text("topic"), given.number("keys", 16), given.number("batch", 100) as usize);
    let mut file = BufReader::with_capacity(1 << 20, or_fail(File::open(given.text("file"))));
    let mut report = Report { started: Instant::now(), printed: Instant::now(), sent: 0, calls_ms: Vec::new() };
    let mut number = 0;
    loop {
        let mut batch: Vec<Message> = Vec::new();
        while batch.len() < size {
            let mut line = Vec::new();
            if or_fail(file.read_until(b'\n', &mut line)) == 0 {
                break;
            }
            let mut made = message(&topic, line);
            made.key = Some(format!("k{}", number % keys));
            made.properties = Some(BTreeMap::from([("line".to_string(), number.to_string())]));
            batch.push(made);
            number += 1;
        }
        if batch.is_empty() {
            break;
        }
        let began = Instant::now();
        let outcomes = or_fail(producer.send_all(batch, How::default()));
        if let Some(failed) = outcomes.iter().find(|each| !each.is_ok()) {
            report.print(producer.retried());
            fail(failed.error());
        }
        report.sent += outcomes.len();
        report.calls_ms.push(began.elapsed().as_secs_f64() * 1_000.0);
        if report.printed.elapsed() >= Duration::from_secs(1) {
            report.print(producer.retried());
        }
    }
    report.print(producer.retried());
}

struct Report {
    started: Instant,
    printed: Instant,
    sent: usize,
    calls_ms: Vec<f64>,
}

impl Report {
    fn print(&mut self, retried: u64) {
        self.printed = Instant::now();
        let mut ordered = self.calls_ms.clone();
        ordered.sort_by(f64::total_cmp);
        let part = |of: usize| ordered.get(ordered.len() * of / 100).copied().unwrap_or(0.0);
        let seconds = self.started.elapsed().as_secs_f64();
        println!(
            "{{\"sent\": {}, \"retried\": {retried}, \"seconds\": {seconds:.3}, \"p50_ms\": {:.3}, \"p99_ms\": {:.3}}}",
            self.sent,
            part(50),
            part(99)
        );
    }
}
