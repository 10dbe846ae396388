#pragma once

#include <cstddef>
#include <future>
#include <memory>

#include "penstock/errors.h"
#include "penstock/producer.h"

namespace penstock::client {

/// When a BatchingProducer sends.
struct Batching {
  Milliseconds linger{5};            ///< a message waits for others at most this long
  std::size_t bytes = 256 << 10;     ///< a call is made at once when so many bytes wait,
  std::size_t messages = 1'000;      ///< or so many messages
  std::size_t bytes_max = 32 << 20;  ///< that wait or are on their way; beyond it Send waits
  Milliseconds full_wait{10'000};    ///< then Send throws FullError
};

/// Collects single messages into calls, made one after another by a thread of its own. A call takes all that waits, as
/// far as it fits. Messages of one key keep their order, over retries too. Thread-safe.
class BatchingProducer {
 public:
  /// The producer has to outlive this.
  explicit BatchingProducer(Producer& producer, Batching how = {});

  /// Closes, and waits for a call in progress.
  ~BatchingProducer();

  /// Take a message. The future's get() gives the outcome or throws as Producer::Send does; it throws ClosedError for a
  /// message that was not sent before the producer was closed. Throws FullError and ClosedError: the message was not
  /// taken; std::invalid_argument: it has no topic.
  std::future<Result> Send(Message message);

  /// Send what waits now, and block until all that was taken before is answered.
  void Flush();

  /// Send what waits, until the deadline at most. What is in no call by then ends with ClosedError; a call in progress
  /// goes on by its own deadline. Later messages are refused.
  void Close(Milliseconds deadline = Milliseconds(10'000));

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::client
