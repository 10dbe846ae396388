//! The deliveries that a run holds: which to handle next, which leases to extend, how many to ask for. No I/O.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::consumer::Delivery;

/// When neither the consumer names a lease time nor the proxy tells the group's.
pub(crate) const LEASE_UNKNOWN: Duration = Duration::from_secs(10);
/// What a lease has at least; assumed until the first answer.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// One delivery that is not yet acknowledged.
pub(crate) struct Held {
    pub number: u64,
    pub delivery: Arc<Delivery>,
    pub until: Instant, // the end of its lease
    pub is_lost: bool,  // its extension was refused
    since: Instant,
    is_busy: bool,
}

/// Deliveries in the order of their pull, at most `workers` of them in handlers, and of one key at most one.
///
/// A lease is extended once less than two thirds of it are left, and then all that have less than five sixths left go
/// with it. With a look each sixth of a lease nothing has less than half of its lease left, unless the extension fails.
pub(crate) struct HeldLeases {
    pub lease: Duration,
    held: Vec<Held>,
    workers: usize,
    extend_max: Duration,
    handling: Option<Duration>, // moving average
    numbers: u64,
}

impl HeldLeases {
    pub fn new(workers: usize, extend_max: Duration) -> HeldLeases {
        HeldLeases { lease: LEASE_MIN, held: Vec::new(), workers, extend_max, handling: None, numbers: 0 }
    }

    /// The interval of looks at what has to be extended or acknowledged.
    pub fn look(&self) -> Duration {
        self.lease / 6
    }

    pub fn busy(&self) -> usize {
        self.held.iter().filter(|each| each.is_busy).count()
    }

    /// A worker is free and nothing waits for it.
    pub fn has_room(&self, now: Instant) -> bool {
        self.busy() < self.workers && self.held.iter().all(|each| each.is_busy || each.is_lost || each.until <= now)
    }

    /// The number of messages to ask for: what the free workers handle in a third of a lease, by the time so far.
    pub fn wanted(&self, most: usize) -> usize {
        let micros = |time: Duration| time.as_micros().max(1) as usize;
        let each = self.handling.map_or(1, |handling| (micros(self.lease) / 3 / micros(handling)).max(1));
        each.saturating_mul(self.workers - self.busy()).clamp(1, most.max(1))
    }

    pub fn pulled(&mut self, deliveries: Vec<Delivery>, lease: Duration, now: Instant) {
        self.lease = lease;
        for delivery in deliveries {
            self.numbers += 1;
            let (number, until, delivery) = (self.numbers, now + lease, Arc::new(delivery));
            self.held.push(Held { number, delivery, until, is_lost: false, since: now, is_busy: false });
        }
    }

    /// The next delivery to handle; none when there is none, no worker is free or those that wait have keys in handlers.
    /// Those whose lease has ended are dropped, as others may have them by now.
    pub fn begin(&mut self, now: Instant) -> Option<(u64, Arc<Delivery>)> {
        self.held.retain(|each| each.is_busy || !each.is_lost && each.until > now);
        if self.busy() >= self.workers {
            return None;
        }
        let is_free = |each: &Held| {
            let message = &each.delivery.message;
            let same = |other: &Held| {
                other.delivery.message.topic == message.topic && other.delivery.message.key == message.key
            };
            !(each.is_busy || message.key.is_some() && self.held.iter().any(|other| other.is_busy && same(other)))
        };
        let at = self.held.iter().position(is_free)?;
        self.held[at].is_busy = true;
        Some((self.held[at].number, self.held[at].delivery.clone()))
    }

    /// The handler has returned.
    pub fn end(&mut self, number: u64, took: Duration) {
        self.held.retain(|each| each.number != number);
        self.handling = Some(self.handling.map_or(took, |average| (average * 3 + took) / 4));
    }

    /// Whether a lease has to be extended now.
    pub fn is_due(&self, now: Instant) -> bool {
        !self.older(self.lease * 2 / 3, now).is_empty()
    }

    /// Numbers and receipts of those to extend.
    pub fn to_extend(&self, now: Instant) -> Vec<(u64, Vec<u8>)> {
        self.older(self.lease * 5 / 6, now)
    }

    pub fn of(&mut self, number: u64) -> Option<&mut Held> {
        self.held.iter_mut().find(|each| each.number == number)
    }

    /// Lets go of all that no handler has seen.
    pub fn release(&mut self) -> Vec<Arc<Delivery>> {
        let waiting = self.held.iter().filter(|each| !each.is_busy && !each.is_lost);
        let released = waiting.map(|each| each.delivery.clone()).collect();
        self.held.retain(|each| each.is_busy);
        released
    }

    fn older(&self, left: Duration, now: Instant) -> Vec<(u64, Vec<u8>)> {
        let is_old = |each: &&Held| {
            !each.is_lost && each.until.saturating_duration_since(now) < left && now - each.since < self.extend_max
        };
        self.held.iter().filter(is_old).map(|each| (each.number, each.delivery.receipt.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(6);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn delivery(receipt: &str, key: Option<&str>) -> Delivery {
        let mut message = crate::message("t", "x");
        message.key = key.map(String::from);
        Delivery::new(receipt.into(), 0, 0, 1, 0, "id".into(), message, None, None, None)
    }

    fn held_of(workers: usize, keys: &[Option<&str>], now: Instant) -> HeldLeases {
        let mut held = HeldLeases::new(workers, Duration::from_secs(3_600));
        let receipts = ["a", "b", "c"];
        held.pulled(keys.iter().zip(receipts).map(|(key, name)| delivery(name, *key)).collect(), LEASE, now);
        held
    }

    fn receipts(of: Vec<(u64, Vec<u8>)>) -> Vec<String> {
        of.into_iter().map(|(_, receipt)| String::from_utf8(receipt).unwrap()).collect()
    }

    #[test]
    fn a_pull_asks_for_one_message_and_then_for_what_the_free_workers_handle_in_a_third_of_a_lease() {
        let now = Instant::now();
        let mut held = held_of(2, &[None, None], now);
        assert_eq!(held.wanted(32), 2);
        let (number, _) = held.begin(now).unwrap();
        held.end(number, ms(500));
        assert_eq!((held.wanted(32), held.wanted(3)), (8, 3));
        held.begin(now);
        assert_eq!(held.wanted(32), 4);
        held.end(0, Duration::from_secs(60));
        assert_eq!(held.wanted(32), 1);
    }

    #[test]
    fn a_lease_is_extended_below_two_thirds_and_those_below_five_sixths_go_with_it() {
        let now = Instant::now();
        let mut held = held_of(1, &[None], now);
        held.begin(now); // in its handler, and extended as those that wait
        held.pulled(vec![delivery("b", None)], LEASE, now + ms(900));
        held.pulled(vec![delivery("c", None)], LEASE, now + ms(1_500));
        assert!(!held.is_due(now + ms(2_000)) && held.is_due(now + ms(2_100)));
        assert_eq!(receipts(held.to_extend(now + ms(2_100))), ["a", "b"]);
        held.extend_max = ms(2_000);
        assert_eq!(receipts(held.to_extend(now + ms(2_100))), ["b"]);
    }

    #[test]
    fn what_has_expired_or_was_refused_an_extension_is_not_handled() {
        let now = Instant::now();
        let mut held = held_of(3, &[None, None, None], now);
        held.of(1).unwrap().is_lost = true;
        held.of(2).unwrap().until = now + ms(9_000);
        assert_eq!(held.begin(now + ms(6_500)).unwrap().1.receipt, b"b");
        assert!(held.begin(now + ms(6_500)).is_none());
    }

    #[test]
    fn of_one_key_one_message_is_in_a_handler_and_others_pass_it() {
        let now = Instant::now();
        let mut held = held_of(3, &[Some("k"), Some("k"), Some("other")], now);
        let (first, _) = held.begin(now).unwrap();
        assert_eq!(held.begin(now).unwrap().1.receipt, b"c");
        assert!(held.begin(now).is_none());
        held.end(first, ms(1));
        assert_eq!(held.begin(now).unwrap().1.receipt, b"b");
    }

    #[test]
    fn a_release_gives_back_what_waits_and_not_what_is_handled() {
        let now = Instant::now();
        let mut held = held_of(1, &[None, None, None], now);
        held.begin(now);
        assert_eq!(held.release().iter().map(|each| each.receipt.clone()).collect::<Vec<_>>(), [b"b", b"c"]);
        assert!(held.release().is_empty() && held.busy() == 1);
    }
}
