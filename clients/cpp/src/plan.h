#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backoff.h"
#include "pool.h"
#include "penstock/producer.h"

namespace penstock::client {

/// The retry plan of a batch: the messages to send next, and when. No I/O.
///
/// Invariant: a message whose outcome was once unknown is reported as unknown (TIMEOUT) unless a later answer tells
/// that it is stored. A later refusal applies only to that later attempt.
///
/// A message waits while an earlier one of its key does: so a key keeps its order over retries. It holds because a proxy
/// that refuses a message stores none of its key's later messages of the same call.
class SendPlan {
 public:
  /// `is_request`: a reply is waited for.
  SendPlan(const std::vector<Message>& messages, Clock::time_point now, const Options& options, bool is_request);

  bool finished() const { return open_ == 0; }
  /// Make no further attempt.
  void End() { open_ = 0; }
  /// Whether a message was answered for good, or may be stored.
  bool HasOutcomes() const;
  std::vector<std::size_t> Due(Clock::time_point now) const;
  Clock::time_point NextDue() const;
  bool AttemptedBefore(std::size_t index) const { return entries_[index].attempts > 0; }

  void Answered(std::size_t index, const SendResult& answer, Clock::time_point now);

  /// No answer came. The message is due again at once: the pool has set that proxy aside.
  void Failed(std::size_t index, const std::string& reason, bool sent, Clock::time_point now);

  Result ResultOf(std::size_t index, const std::string& id) const;

 private:
  struct Entry {
    std::string key;  // with the topic; empty: the message has none
    Clock::time_point due;
    int attempts = 0;
    bool settled = false;
    bool maybe_stored = false;
    int code = Code::UNAVAILABLE;
    std::string reason = "no proxy could be reached before the deadline";
    SendResult answer;
  };

  const Options& options_;
  const bool is_request_;
  const double jitter_ = Jitter();  // drawn once: messages refused together are sent again together
  std::vector<Entry> entries_;
  std::size_t open_;
};

}  // namespace penstock::client
