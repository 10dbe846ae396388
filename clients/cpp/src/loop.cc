#include <condition_variable>
#include <sstream>
#include <thread>

#include "ack.h"
#include "consumer_impl.h"

namespace penstock::client {
namespace {

constexpr Milliseconds kRunWait{5'000};
constexpr Milliseconds kStopLook{50};  // how soon a pause sees that the run shall stop

}  // namespace

// One Run. A second thread acknowledges and extends while a handler works.
class Consumer::Impl::Loop {
 public:
  Loop(Impl& consumer, const Handler& handle, const std::function<bool()>& stop, int most)
      : consumer_(consumer), handle_(handle), stop_(stop), most_(most), held_(consumer.options_.extend_max) {}

  void Run();

 private:
  void Pull();
  void Failed(const PullError& error);
  void HandleAll();
  Ack Handle(const Delivery& delivery);
  void Keep();
  bool Ended() const { return ended_; }
  void Release();

  Impl& consumer_;
  const Handler& handle_;
  const std::function<bool()>& stop_;
  const int most_;
  HeldLeases held_;  // guarded by the consumer's mutex
  Clock::time_point served_ = Clock::now();
  int failures_ = 0;
  std::atomic<bool> ended_{false};
  std::mutex ending_;
  std::condition_variable end_;
};

void Consumer::Impl::Loop::Run() {
  std::thread keeper([this] { Keep(); });
  const auto finish = [&] {
    {
      const std::lock_guard<std::mutex> lock(ending_);
      ended_ = true;
    }
    end_.notify_all();
    keeper.join();
    Release();
  };
  try {
    while (!stop_()) {
      Pull();
      HandleAll();
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
}

void Consumer::Impl::Loop::Pull() {
  int count;
  {
    const std::lock_guard<std::mutex> lock(consumer_.mutex_);
    count = held_.Wanted(most_);
  }
  PullResponse response;
  try {
    if (!consumer_.Pull(count, kRunWait, nullptr, stop_, response)) return;
  } catch (const PullError& error) {
    Failed(error);
    return;
  }
  if (failures_ > 0) {
    const auto away = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - served_);
    consumer_.options_.tell("pulling again after " + std::to_string(away.count()) + " s");
  }
  failures_ = 0;
  served_ = Clock::now();
  const Milliseconds told = response.__isset.invisible_ms ? Milliseconds(response.invisible_ms) : HeldLeases::kLeaseUnknown;
  const std::lock_guard<std::mutex> lock(consumer_.mutex_);
  held_.Pulled(std::move(response.deliveries), consumer_.subscription_.invisible.value_or(told), Clock::now());
}

// Tells of the outage and pauses. Throws the error if waiting cannot help, or was in vain for too long.
void Consumer::Impl::Loop::Failed(const PullError& error) {
  const Options& options = consumer_.options_;
  const bool waits = error.code() == Code::UNKNOWN_TOPIC || error.code() == Code::UNKNOWN_GROUP;
  if (ActionOf(error.code()) == Action::kRefused && !waits) throw error;
  if (options.outage_max.count() > 0 && Clock::now() - served_ >= options.outage_max) throw error;
  if (++failures_ == 1) options.tell(std::string("no pull succeeds, trying again: ") + error.what());
  const auto until = Clock::now() + Backoff(options, failures_, Jitter());
  while (!stop_() && Clock::now() < until) std::this_thread::sleep_until(std::min(until, Clock::now() + kStopLook));
}

void Consumer::Impl::Loop::HandleAll() {
  while (!stop_()) {
    HeldPtr next;
    {
      const std::lock_guard<std::mutex> lock(consumer_.mutex_);
      next = held_.Begin(Clock::now());
    }
    if (!next) return;
    const auto began = Clock::now();
    Ack ack = Handle(next->delivery);
    const auto took = Clock::now() - began;
    const int verdict = ack.__isset.verdict ? ack.verdict : Verdict::DONE;
    {
      const std::lock_guard<std::mutex> lock(consumer_.mutex_);  // one step: no extension follows the acknowledgement
      held_.End(took);
      consumer_.Queue(std::move(ack));
    }
    const auto& told = consumer_.options_.metrics.handled;
    if (told) told(next->delivery, verdict, std::chrono::duration_cast<Milliseconds>(took));
  }
}

Ack Consumer::Impl::Loop::Handle(const Delivery& delivery) {
  try {
    return MakeAck(delivery, handle_(delivery), {}, {});
  } catch (const std::exception& error) {
    return MakeAck(delivery, Verdict::RETRY, {}, error.what());
  }
}

// Delivers acknowledgements and extensions in time.
void Consumer::Impl::Loop::Keep() {
  while (true) {
    Clock::duration look;
    {
      const std::lock_guard<std::mutex> lock(consumer_.mutex_);
      look = held_.look();
    }
    {
      std::unique_lock<std::mutex> lock(ending_);
      if (end_.wait_for(lock, look, [this] { return Ended(); })) return;
    }
    bool due;
    {
      const auto now = Clock::now();
      const std::lock_guard<std::mutex> lock(consumer_.mutex_);
      due = (!consumer_.acks_.empty() && now - consumer_.acked_ >= held_.look()) || held_.Due(now);
    }
    if (!due) continue;
    try {
      PullResponse ignored;
      consumer_.Pull(0, Milliseconds(0), &held_, [this] { return Ended(); }, ignored);
    } catch (const Error&) {
      // The next look or pull tries again.
    }
  }
}

void Consumer::Impl::Loop::Release() {
  const std::lock_guard<std::mutex> lock(consumer_.mutex_);
  for (const HeldPtr& each : held_.Release()) consumer_.Queue(MakeAck(each->delivery, Verdict::RELEASE, {}, {}));
}

void Consumer::Impl::Run(const Handler& handle, const std::function<bool()>& stop, int max_messages) {
  Loop(*this, handle, stop, max_messages).Run();
}

}  // namespace penstock::client
