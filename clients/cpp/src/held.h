#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backoff.h"
#include "consumer_types.h"

namespace penstock::client {

/// One delivery of a Run that is not yet acknowledged.
struct HeldDelivery {
  Delivery delivery;
  Clock::time_point since;
  Clock::time_point until;  ///< the end of its lease
  bool lost = false;        ///< its extension was refused

  /// Messages of an equal key have an order; those without a key have none.
  bool SameKey(const HeldDelivery& other) const {
    const auto &mine = delivery.message, &its = other.delivery.message;
    return mine.__isset.key && its.__isset.key && mine.topic == its.topic && mine.key == its.key;
  }
};

using HeldPtr = std::shared_ptr<HeldDelivery>;

/// The deliveries of a Run in the order of their pull, at most `workers` of them in handlers, and of one key at most one.
/// No I/O; its user guards it by a lock.
///
/// A lease is extended once less than two thirds of it are left, and then all that have less than five sixths left go
/// with it. With a look each sixth of a lease nothing has less than half of its lease left, unless the extension fails.
class HeldLeases {
 public:
  /// Assumed when neither the consumer names a lease time nor the proxy tells the group's.
  static constexpr Milliseconds kLeaseUnknown{10'000};

  /// A lease is not extended beyond `extend_max` since its delivery: a handler that hangs loses it.
  HeldLeases(Milliseconds extend_max, int workers) : extend_max_(extend_max), workers_(workers) {}

  Milliseconds lease() const { return lease_; }

  /// The interval of looks at what has to be extended or acknowledged.
  Clock::duration look() const { return Clock::duration(lease_) / 6; }

  bool idle() const { return busy_.empty(); }

  /// A worker is free and nothing waits for it.
  bool HasRoom() const { return idle() || (Free() > 0 && waiting_.empty()); }

  /// The number of messages to ask for: what the free workers handle in a third of a lease, by the time so far.
  int Wanted(int most) const;

  void Pulled(std::vector<Delivery> deliveries, Milliseconds lease, Clock::time_point now);

  /// The next delivery to handle; null when there is none, no worker is free or those that wait have keys in handlers.
  /// Those whose lease has ended are dropped, as others may have them by now.
  HeldPtr Begin(Clock::time_point now);

  /// The handler has returned.
  void End(const HeldPtr& held, Clock::duration took);

  /// Whether a lease has to be extended now.
  bool Due(Clock::time_point now) const { return !Older(Clock::duration(lease_) * 2 / 3, now).empty(); }

  std::vector<HeldPtr> ToExtend(Clock::time_point now) const { return Older(Clock::duration(lease_) * 5 / 6, now); }

  /// Lets go of all that no handler has seen.
  std::vector<HeldPtr> Release();

 private:
  int Free() const { return workers_ - static_cast<int>(busy_.size()); }
  std::vector<HeldPtr> Older(Clock::duration left, Clock::time_point now) const;

  Milliseconds lease_{1'000};  // what a lease has at least; assumed until the first answer
  const Milliseconds extend_max_;
  const int workers_;
  std::vector<HeldPtr> waiting_;
  std::vector<HeldPtr> busy_;
  Clock::duration handling_{0};  // moving average; zero: nothing was handled yet
};

}  // namespace penstock::client
