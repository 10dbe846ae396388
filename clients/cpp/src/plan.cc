#include "plan.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace penstock::client {

SendPlan::SendPlan(const std::vector<Message>& messages, Clock::time_point now, const Options& options, bool is_request)
    : options_(options), is_request_(is_request), entries_(messages.size()), open_(messages.size()) {
  for (std::size_t index = 0; index < messages.size(); index++) {
    const Message& message = messages[index];
    if (message.__isset.key) entries_[index].key = message.topic + '\0' + message.key;
    entries_[index].due = now;
  }
}

std::vector<std::size_t> SendPlan::Due(Clock::time_point now) const {
  std::vector<std::size_t> due;
  std::set<std::string_view> held;
  for (std::size_t index = 0; index < entries_.size(); index++) {
    const Entry& entry = entries_[index];
    if (entry.settled) continue;
    if (entry.due <= now && held.count(entry.key) == 0)
      due.push_back(index);
    else if (!entry.key.empty())
      held.insert(entry.key);
  }
  return due;
}

Clock::time_point SendPlan::NextDue() const {
  auto next = Clock::time_point::max();
  std::set<std::string_view> seen;
  for (const Entry& entry : entries_)
    if (!entry.settled && (entry.key.empty() || seen.insert(entry.key).second)) next = std::min(next, entry.due);
  return next;
}

void SendPlan::Answered(std::size_t index, const SendResult& answer, Clock::time_point now) {
  Entry& entry = entries_[index];
  entry.attempts++;
  entry.code = answer.code;
  entry.reason = answer.error;
  entry.answer = answer;
  const Action action = ActionOf(answer.code);
  if (entry.maybe_stored &&
      (action == Action::kRefused || action == Action::kLater || action == Action::kElsewhere)) {
    // What it says, also "not stored", is about this attempt alone.
    entry.reason = "an earlier attempt may have stored it";
    if (!answer.error.empty()) entry.reason += "; the last one was answered: " + answer.error;
    if (action == Action::kRefused) entry.code = Code::TIMEOUT;
  }
  if (is_request_ && answer.code == Code::DUPLICATE && !answer.__isset.reply) {
    entry.code = Code::TIMEOUT;
    entry.reason = "stored by an earlier attempt, whose reply cannot be had";
  }
  switch (action) {
    case Action::kLater:
    case Action::kUnknown: {
      const Milliseconds told(answer.__isset.retry_after_ms ? answer.retry_after_ms : 0);
      entry.due = now + Pause(answer.code, told, Backoff(options_, entry.attempts, jitter_));
      entry.maybe_stored = entry.maybe_stored || action == Action::kUnknown;
      break;
    }
    case Action::kElsewhere:
      entry.due = now;
      break;
    default:
      entry.settled = true;
      open_--;
  }
}

bool SendPlan::HasOutcomes() const {
  const auto has = [](const Entry& entry) { return entry.settled || entry.maybe_stored; };
  return std::any_of(entries_.begin(), entries_.end(), has);
}

void SendPlan::Failed(std::size_t index, const std::string& reason, bool sent, Clock::time_point now) {
  Entry& entry = entries_[index];
  entry.attempts += sent ? 1 : 0;
  entry.maybe_stored = entry.maybe_stored || sent;
  entry.reason = reason;
  entry.due = now;
}

Result SendPlan::ResultOf(std::size_t index, const std::string& id) const {
  const Entry& entry = entries_[index];
  Result result;
  result.code = !entry.settled && entry.maybe_stored ? static_cast<int>(Code::TIMEOUT) : entry.code;
  result.id = id;
  result.reason = entry.reason;
  result.attempts = entry.attempts;
  if (!entry.settled) return result;
  const SendResult& answer = entry.answer;
  if (answer.__isset.id) result.id = answer.id;
  if (answer.__isset.queue) result.queue = answer.queue;
  if (answer.__isset.offset) result.offset = answer.offset;
  if (answer.__isset.reply) result.reply = answer.reply;
  return result;
}

}  // namespace penstock::client
