//! Pauses between attempts.

use std::time::Duration;

use openssl::rand::rand_bytes;

use crate::config::Config;
use crate::message::Code;

/// A random number from 0 to 1.
pub(crate) fn chance() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness there is no jitter; TLS and ids report it where it matters.
    let _ = rand_bytes(&mut bytes);
    f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
}

/// The pause after the n-th failure in a row, n from 1: a random point in the upper half of a doubling bound.
pub(crate) fn backoff(config: &Config, failures: u32, chance: f64) -> Duration {
    let bound = config.backoff_first.saturating_mul(1 << failures.saturating_sub(1).min(30)).min(config.backoff_max);
    bound.mul_f64(0.5 + chance / 2.0)
}

/// The pause after a refusal: what the proxy told or the back-off, whichever is longer. At a rate limit the proxy has
/// promised a slot, which a longer pause would miss.
pub(crate) fn pause(code: Code, told_ms: Option<i32>, backoff: Duration) -> Duration {
    let told = Duration::from_millis(told_ms.unwrap_or(0).max(0) as u64);
    if code == Code::RATE_LIMITED && !told.is_zero() {
        told
    } else {
        told.max(backoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_its_bound_and_at_least_half_of_it_passes() {
        let config = Config::new("h:1", "a", "k", "s");
        let ms = |failures, chance| backoff(&config, failures, chance).as_millis();
        assert_eq!((ms(1, 0.0), ms(1, 1.0), ms(2, 1.0), ms(3, 0.0), ms(60, 1.0)), (25, 50, 100, 100, 2_000));
    }

    #[test]
    fn a_rate_limit_is_waited_for_exactly_and_another_refusal_at_least_as_told() {
        let long = Duration::from_secs(1);
        assert_eq!(pause(Code::RATE_LIMITED, Some(20), long), Duration::from_millis(20));
        assert_eq!(pause(Code::OVERLOADED, Some(20), long), long);
        assert_eq!(pause(Code::OVERLOADED, Some(3_000), long), Duration::from_secs(3));
    }
}
