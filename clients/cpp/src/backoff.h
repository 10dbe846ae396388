#pragma once

#include <algorithm>
#include <chrono>
#include <random>

#include "message_types.h"
#include "penstock/options.h"

namespace penstock::client {

using Clock = std::chrono::steady_clock;

inline std::mt19937_64& Chance() {
  thread_local std::mt19937_64 source = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return source;
}

/// A part between a half and the whole.
inline double Jitter() { return std::uniform_real_distribution<double>(0.5, 1.0)(Chance()); }

/// The pause after the n-th failure in a row, n from 1: a random part of a doubling pause.
inline Clock::duration Backoff(const Options& options, int failures, double jitter) {
  const auto doubled = options.backoff_first * (int64_t{1} << std::min(failures - 1, 20));
  const std::chrono::duration<double, std::milli> pause = std::min(options.backoff_max, doubled);
  return std::chrono::duration_cast<Clock::duration>(pause * jitter);
}

/// The pause after a refusal: what the proxy told or the back-off, whichever is longer. At a rate limit the proxy has
/// promised a slot, which a longer pause would miss.
inline Clock::duration Pause(int code, Milliseconds told, Clock::duration backoff) {
  if (told.count() > 0 && code == Code::RATE_LIMITED) return told;
  return std::max<Clock::duration>(told, backoff);
}

}  // namespace penstock::client
