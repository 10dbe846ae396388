#include "held.h"

#include <algorithm>

namespace penstock::client {

int HeldLeases::Wanted(int most) const {
  int64_t count = 1;
  if (handling_ != Clock::duration::zero()) count = std::max<int64_t>(1, Clock::duration(lease_) / 3 / handling_);
  return static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(most, count * Free())));
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
  if (Free() <= 0) return nullptr;
  const auto expired = [&](const HeldPtr& each) { return each->lost || each->until <= now; };
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), expired), waiting_.end());
  const auto free = std::find_if(waiting_.begin(), waiting_.end(), [&](const HeldPtr& each) {
    return std::none_of(busy_.begin(), busy_.end(), [&](const HeldPtr& other) { return each->SameKey(*other); });
  });
  if (free == waiting_.end()) return nullptr;
  HeldPtr begun = *free;
  waiting_.erase(free);
  busy_.push_back(begun);
  return begun;
}

void HeldLeases::End(const HeldPtr& held, Clock::duration took) {
  busy_.erase(std::remove(busy_.begin(), busy_.end(), held), busy_.end());
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
  for (const HeldPtr& each : busy_) add(each);
  return found;
}

}  // namespace penstock::client
