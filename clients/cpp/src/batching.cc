#include "penstock/batching.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "backoff.h"
#include "call_size.h"

namespace penstock::client {

class BatchingProducer::Impl {
 public:
  Impl(Producer& producer, Batching how) : producer_(producer), how_(how), sender_([this] { SendAll(); }) {}
  ~Impl() {
    Close(Milliseconds(10'000));
    sender_.join();
  }

  std::future<Result> Send(Message message);
  void Flush();
  void Close(Milliseconds deadline);

 private:
  struct Waiting {
    Message message;
    std::size_t size;
    Clock::time_point since;
    std::promise<Result> outcome;
  };

  bool IsEnough() const { return waiting_bytes_ >= how_.bytes || waiting_.size() >= how_.messages; }
  void SendAll();
  std::vector<Waiting> NextBatch();

  Producer& producer_;
  const Batching how_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::size_t bytes_ = 0;  // of what waits or is on its way
  std::size_t taken_ = 0;  // messages so far
  std::size_t answered_ = 0;
  std::size_t flush_to_ = 0;
  bool closed_ = false;
  std::thread sender_;  // last, as it uses the others
};

std::future<Result> BatchingProducer::Impl::Send(Message message) {
  if (message.topic.empty()) throw std::invalid_argument("message topic: missing");
  Waiting taken{std::move(message), 0, {}, {}};
  taken.size = SizeOf(taken.message);
  std::future<Result> outcome = taken.outcome.get_future();
  std::unique_lock<std::mutex> lock(mutex_);
  const bool has_room =
      changed_.wait_for(lock, how_.full_wait, [this] { return closed_ || bytes_ < how_.bytes_max; });
  if (closed_) throw ClosedError("the producer is closed");
  if (!has_room) throw FullError("the batching producer is full: " + std::to_string(bytes_) + " bytes wait");
  taken.since = Clock::now();
  taken_++;
  bytes_ += taken.size;
  waiting_bytes_ += taken.size;
  waiting_.push_back(std::move(taken));
  if (waiting_.size() == 1 || IsEnough()) changed_.notify_all();
  return outcome;
}

void BatchingProducer::Impl::Flush() {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::size_t last = flush_to_ = taken_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return answered_ >= last; });
}

void BatchingProducer::Impl::Close(Milliseconds deadline) {
  std::deque<Waiting> left;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, deadline, [this] { return answered_ == taken_; });
    left.swap(waiting_);
    answered_ += left.size();
    changed_.notify_all();
  }
  const auto reason = std::make_exception_ptr(ClosedError("the producer was closed before it sent the message"));
  for (Waiting& each : left) each.outcome.set_exception(reason);
}

void BatchingProducer::Impl::SendAll() {
  for (std::vector<Waiting> batch = NextBatch(); !batch.empty(); batch = NextBatch()) {
    std::size_t size = 0;
    std::vector<Message> messages;
    for (Waiting& each : batch) {
      size += each.size;
      messages.push_back(std::move(each.message));
    }
    try {
      const std::vector<Result> results = producer_.SendAll(messages);
      for (std::size_t index = 0; index < batch.size(); index++) {
        const Result& result = results[index];
        if (result.ok())
          batch[index].outcome.set_value(result);
        else
          batch[index].outcome.set_exception(
              std::make_exception_ptr(SendError(result.code, result.id, result.reason)));
      }
    } catch (const std::exception&) {
      for (Waiting& each : batch) each.outcome.set_exception(std::current_exception());
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    answered_ += batch.size();
    bytes_ -= size;
    changed_.notify_all();
  }
}

// Blocks until a call is to be made; empty when none will be.
std::vector<BatchingProducer::Impl::Waiting> BatchingProducer::Impl::NextBatch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (waiting_.empty()) {
      if (closed_) return {};
      changed_.wait(lock);
      continue;
    }
    const auto due = waiting_.front().since + how_.linger;
    if (closed_ || flush_to_ > answered_ || IsEnough() || Clock::now() >= due) break;
    changed_.wait_until(lock, due);
  }
  std::vector<Waiting> batch;
  std::size_t size = 0;
  while (!waiting_.empty() && batch.size() < kCallMessagesMax) {
    const std::size_t more = waiting_.front().size;
    if (!batch.empty() && size + more > kCallBytesMax) break;
    size += more;
    batch.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  waiting_bytes_ -= size;
  return batch;
}

BatchingProducer::BatchingProducer(Producer& producer, Batching how) : impl_(std::make_unique<Impl>(producer, how)) {}

BatchingProducer::~BatchingProducer() = default;

std::future<Result> BatchingProducer::Send(Message message) { return impl_->Send(std::move(message)); }

void BatchingProducer::Flush() { impl_->Flush(); }

void BatchingProducer::Close(Milliseconds deadline) { impl_->Close(deadline); }

}  // namespace penstock::client
