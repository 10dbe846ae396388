#include "held.h"

#include <algorithm>

namespace penstock::client {

int HeldLeases::Wanted(int most) const {
  if (handling_ == Clock::duration::zero()) return 1;
  const int64_t count = Clock::duration(lease_) / 3 / handling_;
  return static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(most, count)));
}

void HeldLeases::Pulled(std::vector<Delivery> deliveries, Milliseconds lease, Clock::time_point now) {
  lease_ = lease;
  for (Delivery& delivery : deliveries) {
    auto held = std::make_shared<HeldDelivery>();
    held->delivery = std::move(delivery);
    held->since = now;
    held->until = now + lease;
    waiting_.push_back(std::move(held));
  }
}

HeldPtr HeldLeases::Begin(Clock::time_point now) {
  while (!waiting_.empty()) {
    HeldPtr first = waiting_.front();
    waiting_.pop_front();
    if (!first->lost && first->until > now) return busy_ = first;
  }
  return nullptr;
}

void HeldLeases::End(Clock::duration took) {
  busy_ = nullptr;
  took = std::max(took, Clock::duration(1));
  handling_ = handling_ == Clock::duration::zero() ? took : std::max((handling_ * 3 + took) / 4, Clock::duration(1));
}

std::vector<HeldPtr> HeldLeases::Release() {
  std::vector<HeldPtr> released;
  for (const HeldPtr& each : waiting_)
    if (!each->lost) released.push_back(each);
  waiting_.clear();
  return released;
}

std::vector<HeldPtr> HeldLeases::Older(Clock::duration left, Clock::time_point now) const {
  std::vector<HeldPtr> found;
  const auto add = [&](const HeldPtr& each) {
    if (!each->lost && each->until - now < left && now - each->since < extend_max_) found.push_back(each);
  };
  for (const HeldPtr& each : waiting_) add(each);
  if (busy_) add(busy_);
  return found;
}

}  // namespace penstock::client
