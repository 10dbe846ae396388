#pragma once

#include <algorithm>
#include <chrono>
#include <random>

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

/// The pause after the n-th failure in a row, n from 1: a random point in the upper half of a doubling pause.
inline Clock::duration Backoff(const Options& options, int failures) {
  const auto doubled = options.backoff_first * (int64_t{1} << std::min(failures - 1, 20));
  const std::chrono::duration<double, std::milli> pause = std::min(options.backoff_max, doubled);
  const double part = std::uniform_real_distribution<double>(0.5, 1.0)(Chance());
  return std::chrono::duration_cast<Clock::duration>(pause * part);
}

}  // namespace penstock::client
