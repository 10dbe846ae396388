//! The command line that all programs share. Each uses a part of it.
#![allow(dead_code)]

use std::collections::HashMap;
use std::fmt::Display;
use std::process::exit;
use std::sync::Arc;
use std::time::Duration;

use penstock_client::{Config, Consumer, Subscription};

pub struct Arguments {
    values: HashMap<String, String>,
    pub rest: Vec<String>,
}

impl Arguments {
    pub fn given() -> Arguments {
        let (mut values, mut rest) = (HashMap::new(), Vec::new());
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.strip_prefix("--") {
                Some("buffered") => drop(values.insert("buffered".into(), String::new())),
                Some(name) => {
                    drop(values.insert(name.into(), words.next().unwrap_or_else(|| fail(format!("{word}: no value")))))
                }
                None => rest.push(word),
            }
        }
        Arguments { values, rest }
    }

    pub fn text(&self, name: &str) -> String {
        self.values.get(name).cloned().unwrap_or_else(|| fail(format!("--{name} is missing")))
    }

    pub fn number(&self, name: &str, default: u64) -> u64 {
        let parsed = self.values.get(name).map(|text| text.parse());
        parsed.unwrap_or(Ok(default)).unwrap_or_else(|_| fail(format!("--{name}: invalid: use a number")))
    }

    pub fn ms(&self, name: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(name, default))
    }

    /// The secret comes from the environment, where ps does not show it.
    pub fn config(&self, endpoints: &str) -> Config {
        let secret = std::env::var("PENSTOCK_SECRET");
        let secret = secret.unwrap_or_else(|_| fail("set PENSTOCK_SECRET to the application's secret"));
        let mut config = Config::new(&self.text(endpoints), &self.text("app"), &self.text("key-id"), &secret);
        config.deadline = self.ms("deadline-ms", 30_000);
        config.outage_max = self.ms("outage-ms", 600_000);
        config.buffered = self.values.contains_key("buffered");
        match self.values.get("tls-ca") {
            Some(pem) => or_fail(config.tls_trusting(pem)),
            None => config,
        }
    }

    pub fn consumer(&self) -> Consumer {
        let topics = self.text("topic").split(',').map(String::from).collect();
        let lease = self.number("lease-ms", 0);
        let invisible = (lease > 0).then(|| Duration::from_millis(lease));
        or_fail(Consumer::new(self.config("endpoints"), Subscription { group: self.text("group"), topics, invisible }))
    }
}

/// Calls it once SIGTERM or SIGINT has come.
pub fn on_signal(stop: impl FnOnce() + Send + 'static) {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = or_fail(signal_hook::iterator::Signals::new([SIGTERM, SIGINT]));
    std::thread::spawn(move || signals.forever().next().map(|_| stop()));
}

/// Stops the consumer's run by a signal.
pub fn stop_by_signal(consumer: &Arc<Consumer>) {
    let stopped = consumer.clone();
    on_signal(move || stopped.stop());
}

pub fn fail(reason: impl Display) -> ! {
    eprintln!("{reason}");
    exit(1)
}

pub fn or_fail<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| fail(error))
}
