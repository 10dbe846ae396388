//! Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/.

use std::io::{stdin, BufRead};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use penstock_client::{message, Config, Consumer, Delivery, Error, How, Message, Metrics, Operation, Producer};
use penstock_client::{Batching, BatchingProducer, Pending, RunOptions, SendOutcome, Subscription, Verdict};
use serde_json::{json, Value};

/// Counts what the hook is told: calls, failed calls, sent messages, handled messages.
#[derive(Default)]
struct Told([AtomicU64; 4]);

impl Metrics for Told {
    fn call(&self, _: &str, _: &str, _: Duration, failure: Option<&str>) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
        self.0[1].fetch_add(failure.map_or(0, |_| 1), Ordering::Relaxed);
    }
    fn sent(&self, _: &SendOutcome) {
        self.0[2].fetch_add(1, Ordering::Relaxed);
    }
    fn handled(&self, _: &Delivery, _: Verdict, _: Duration) {
        self.0[3].fetch_add(1, Ordering::Relaxed);
    }
}

struct Driver {
    told: Arc<Told>,
    producer: Arc<Producer>,
    consumer: Consumer,
    topic: String,
    pulled: Vec<Delivery>,
}

fn main() {
    let mut driver = None;
    for line in stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let answered = match (asked["do"].as_str(), &mut driver) {
            (Some("open"), open) => Driver::open(&asked).map(|made| {
                *open = Some(made);
                json!({})
            }),
            (Some(step), Some(open)) => open.step(step, &asked),
            _ => panic!("no step, or not open: {asked}"),
        };
        let answer = answered.unwrap_or_else(|error| match error {
            Error::Refused { code, .. } => json!({ "code": code.0 }),
            Error::Contract(_) => json!({ "code": -1 }),
            _ => panic!("{error}"),
        });
        println!("{answer}");
    }
}

impl Driver {
    fn open(asked: &Value) -> Result<Driver, Error> {
        let mut config = Config::new("", &text(asked, "app"), &text(asked, "key_id"), &text(asked, "secret"));
        config.deadline = ms(asked, "deadline_ms");
        config.call_timeout = ms(asked, "call_timeout_ms");
        let told = Arc::new(Told::default());
        config.metrics = told.clone();
        config.buffered = asked["buffered"] == true;
        if !text(asked, "tls_ca").is_empty() {
            config = config.tls_trusting(&text(asked, "tls_ca"))?;
        }
        let at = |endpoints| Config { endpoints: text(asked, endpoints), ..config.clone() };
        let invisible = Some(ms(asked, "lease_ms")).filter(|lease| !lease.is_zero());
        let topic = text(asked, "topic");
        let subscription = Subscription { group: text(asked, "group"), topics: vec![topic.clone()], invisible };
        let producer = Arc::new(Producer::new(at("producer"))?);
        let consumer = Consumer::new(at("consumer"), subscription)?;
        Ok(Driver { told, producer, consumer, topic, pulled: Vec::new() })
    }

    fn step(&mut self, step: &str, asked: &Value) -> Result<Value, Error> {
        match step {
            "send" => return self.send(asked),
            "batch" => return self.batch(asked),
            "pull" => {
                self.pulled = self.consumer.pull(number(asked, "max"), ms(asked, "wait_ms"))?;
                return Ok(json!({ "deliveries": self.pulled.iter().map(shown).collect::<Vec<_>>() }));
            }
            "settle" => self.settle(asked),
            "reply" => {
                self.producer.reply(&self.pulled[number(asked, "index")], unhex(&text(asked, "body")))?;
            }
            "run" => return self.run(asked),
            "flush" => {
                self.consumer.flush()?;
                let told: Vec<u64> = self.told.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
                return Ok(json!({ "refused": self.consumer.acks_refused(), "told": told }));
            }
            _ => {
                self.producer.close();
                self.consumer.close()?;
            }
        }
        Ok(json!({}))
    }

    fn messages(&self, asked: &Value) -> Vec<Message> {
        asked["messages"].as_array().expect("messages").iter().map(|each| self.message(each)).collect()
    }

    fn batch(&self, asked: &Value) -> Result<Value, Error> {
        let how = Batching {
            linger: ms(asked, "linger_ms"),
            bytes: number(asked, "bytes"),
            messages: number(asked, "count"),
            bytes_max: number(asked, "bytes_max"),
            full_wait: ms(asked, "full_wait_ms"),
        };
        let batching = BatchingProducer::new(self.producer.clone(), how);
        let taken: Vec<_> = self.messages(asked).into_iter().map(|each| batching.send(each)).collect();
        if asked["flush"] == true {
            batching.flush();
        }
        if let Some(deadline) = asked["close_ms"].as_u64() {
            batching.close(Duration::from_millis(deadline));
        }
        let outcome = |taken: Result<Pending, Error>| match taken.and_then(Pending::wait) {
            Ok(stored) => Ok(json!({ "code": stored.code.0, "id": stored.id, "attempts": stored.attempts })),
            Err(Error::Refused { code, id, .. }) => Ok(json!({ "code": code.0, "id": id })),
            Err(Error::Full) => Ok(json!({ "error": "full" })),
            Err(Error::Closed) => Ok(json!({ "error": "closed" })),
            Err(error) => Err(error),
        };
        let results: Result<Vec<_>, Error> = taken.into_iter().map(outcome).collect();
        Ok(json!({ "results": results? }))
    }

    fn send(&self, asked: &Value) -> Result<Value, Error> {
        let messages = self.messages(asked);
        let how = How { reply_wait: ms(asked, "reply_wait_ms"), ..How::default() };
        let outcomes = self.producer.send_all(messages, how)?;
        let shown = outcomes.iter().map(|each| {
            json!({
                "code": each.code.0, "id": each.id, "queue": each.queue, "offset": each.offset, "attempts": each.attempts,
                "reply": each.reply.as_ref().map(|reply| hex(&reply.body)), "reason": each.reason,
            })
        });
        Ok(json!({ "results": shown.collect::<Vec<_>>() }))
    }

    fn message(&self, given: &Value) -> Message {
        let field = |name: &str| given[name].as_str().map(String::from);
        let mut made = message(&self.topic, unhex(&text(given, "body")).repeat(number(given, "times").max(1)));
        (made.key, made.id, made.tag) = (field("key"), field("id"), field("tag"));
        made.delay_ms = given["delay_ms"].as_i64();
        made.operation = (given["cancel"] == true).then_some(Operation::CANCEL);
        made.properties = serde_json::from_value(given["properties"].clone()).expect("texts by names");
        made
    }

    fn settle(&self, asked: &Value) {
        let (delivery, delay) = (&self.pulled[number(asked, "index")], ms(asked, "delay_ms"));
        match asked["verdict"].as_str() {
            Some("done") => self.consumer.done(delivery),
            Some("retry") => self.consumer.retry(delivery, Some(delay), &text(asked, "reason")),
            Some("reject") => self.consumer.reject(delivery, &text(asked, "reason")),
            _ => self.consumer.extend(delivery, delay),
        }
    }

    fn run(&self, asked: &Value) -> Result<Value, Error> {
        let (handled, count) = (Mutex::new(Vec::new()), AtomicU64::new(number(asked, "count") as u64));
        let (busy, busiest) = (AtomicU64::new(0), AtomicU64::new(0)); // handlers now, and the most at a time
        let how = RunOptions { workers: number(asked, "workers").max(1), ..RunOptions::default() };
        self.consumer.run(how, |delivery| {
            busiest.fetch_max(busy.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            std::thread::sleep(ms(asked, "handle_ms"));
            busy.fetch_sub(1, Ordering::Relaxed);
            handled.lock().unwrap().push(hex(&delivery.message.body));
            if count.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.consumer.stop();
            }
            match asked["verdict"].as_str() {
                Some("fault") => panic!("the handler failed"),
                Some("fail") => Err("the handler failed"),
                Some("reject") => Ok(Verdict::REJECT),
                _ => Ok(Verdict::DONE),
            }
        })?;
        Ok(json!({ "handled": handled.into_inner().unwrap(), "busiest": busiest.into_inner() }))
    }
}

fn shown(delivery: &Delivery) -> Value {
    let message = &delivery.message;
    json!({
        "body": hex(&message.body), "key": message.key, "tag": message.tag, "properties": message.properties,
        "id": delivery.id, "attempt": delivery.attempt, "asked": delivery.reply_token.is_some(),
    })
}

fn text(of: &Value, name: &str) -> String {
    of[name].as_str().unwrap_or_default().into()
}

fn number(of: &Value, name: &str) -> usize {
    of[name].as_u64().unwrap_or(0) as usize
}

fn ms(of: &Value, name: &str) -> Duration {
    Duration::from_millis(number(of, name) as u64)
}

fn hex(body: &Option<Vec<u8>>) -> String {
    body.iter().flatten().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}
