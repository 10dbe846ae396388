#include <cxxabi.h>

#include <condition_variable>
#include <deque>
#include <stdexcept>
#include <thread>

#include "ack.h"
#include "consumer_impl.h"

namespace penstock::client {
namespace {

constexpr Milliseconds kRunWait{5'000};
constexpr Milliseconds kStopLook{50};  // how soon a pause sees that the run shall stop

}  // namespace

// One Run. A second thread acknowledges and extends while handlers work.
class Consumer::Impl::Loop {
 public:
  Loop(Impl& consumer, const Handler& handle, const std::function<bool()>& stop, int most, int workers)
      : consumer_(consumer),
        handle_(handle),
        stop_(stop),
        most_(most),
        workers_(workers),
        held_(consumer.options_.extend_max, workers) {}

  void Run();

 private:
  void Pull();
  void Failed(const PullError& error);
  bool Start();
  void Take();
  void Work(const HeldPtr& begun);
  Ack Handle(const Delivery& delivery);
  void Keep();
  bool Ended() const { return ended_; }
  void Release();

  Impl& consumer_;
  const Handler& handle_;
  const std::function<bool()>& stop_;
  const int most_;
  const int workers_;
  HeldLeases held_;           // guarded by the consumer's mutex, as jobs_
  std::deque<HeldPtr> jobs_;  // begun, for the workers' threads
  std::condition_variable job_;
  std::condition_variable handled_;
  Clock::time_point served_ = Clock::now();
  int failures_ = 0;
  std::atomic<bool> ended_{false};
  std::mutex ending_;
  std::condition_variable end_;
};

void Consumer::Impl::Loop::Run() {
  if (workers_ < 1) throw std::invalid_argument("workers " + std::to_string(workers_) + ": invalid: use 1 or more");
  std::thread keeper([this] { Keep(); });
  std::vector<std::thread> workers;
  for (int worker = 0; workers_ > 1 && worker < workers_; worker++) workers.emplace_back([this] { Take(); });
  const auto finish = [&] {
    {
      std::unique_lock<std::mutex> lock(consumer_.mutex_);
      handled_.wait(lock, [this] { return held_.idle(); });  // their leases are extended meanwhile
      const std::lock_guard<std::mutex> end(ending_);
      ended_ = true;
    }
    end_.notify_all();
    job_.notify_all();
    for (std::thread& worker : workers) worker.join();
    keeper.join();
    Release();
  };
  try {
    while (!stop_()) {
      if (Start() && !stop_()) Pull();
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
}

void Consumer::Impl::Loop::Pull() {
  int count;
  Milliseconds wait = kRunWait;
  {
    const std::lock_guard<std::mutex> lock(consumer_.mutex_);
    count = held_.Wanted(most_);
    // Beside handlers a pull waits for a sixth of a lease at most: the next one has to carry their extensions.
    if (!held_.idle()) wait = std::min(wait, std::chrono::duration_cast<Milliseconds>(held_.look()));
  }
  PullResponse response;
  try {
    if (!consumer_.Pull(count, wait, &held_, stop_, response)) return;
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

// Begins to handle what waits, as far as workers are free. Whether a pull may be made now; if not, a handler has ended.
bool Consumer::Impl::Loop::Start() {
  while (!stop_()) {
    std::unique_lock<std::mutex> lock(consumer_.mutex_);
    const HeldPtr begun = held_.Begin(Clock::now());
    if (!begun) {
      if (held_.HasRoom()) return true;
      handled_.wait(lock);
      return false;
    }
    if (workers_ > 1) {
      jobs_.push_back(begun);
      job_.notify_one();
    } else {
      lock.unlock();
      Work(begun);
    }
  }
  return false;
}

// One worker's thread.
void Consumer::Impl::Loop::Take() {
  std::unique_lock<std::mutex> lock(consumer_.mutex_);
  while (true) {
    job_.wait(lock, [this] { return Ended() || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const HeldPtr begun = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    Work(begun);
    lock.lock();
  }
}

void Consumer::Impl::Loop::Work(const HeldPtr& begun) {
  const auto began = Clock::now();
  Ack ack = Handle(begun->delivery);
  const auto took = Clock::now() - began;
  const int verdict = ack.__isset.verdict ? ack.verdict : Verdict::DONE;
  const auto& told = consumer_.options_.metrics.handled;
  if (told) told(begun->delivery, verdict, std::chrono::duration_cast<Milliseconds>(took));
  const std::lock_guard<std::mutex> lock(consumer_.mutex_);  // one step: no extension follows the acknowledgement
  held_.End(begun, took);
  consumer_.Queue(std::move(ack));
  handled_.notify_all();
}

// A handler's fault costs its message an attempt, not the process.
Ack Consumer::Impl::Loop::Handle(const Delivery& delivery) {
  try {
    const Verdict::type verdict = handle_(delivery);
    if (verdict != Verdict::DONE && verdict != Verdict::RETRY && verdict != Verdict::REJECT)
      throw std::invalid_argument("the handler's verdict is " + std::to_string(verdict) + ": use DONE, RETRY or REJECT");
    return MakeAck(delivery, verdict, {}, {});
  } catch (const std::exception& error) {
    return MakeAck(delivery, Verdict::RETRY, {}, error.what());
  } catch (const abi::__forced_unwind&) {
    throw;  // a cancelled thread
  } catch (...) {
    return MakeAck(delivery, Verdict::RETRY, {}, "the handler has thrown what is no std::exception");
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

void Consumer::Impl::Run(
    const Handler& handle, const std::function<bool()>& stop, int max_messages, int workers) {
  Loop(*this, handle, stop, max_messages, workers).Run();
}

}  // namespace penstock::client
