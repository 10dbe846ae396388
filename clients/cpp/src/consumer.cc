#include "penstock/consumer.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "Consumer.h"
#include "ack.h"
#include "consumer_impl.h"

namespace penstock::client {
namespace {

constexpr std::size_t kAckBytes = 120;  // estimated size of one acknowledgement in a request
constexpr Milliseconds kSocketMargin{2'000};
constexpr Milliseconds kStopLook{50};  // how soon a pause sees that a Run shall stop

int32_t Count(Milliseconds duration) { return static_cast<int32_t>(duration.count()); }

}  // namespace

std::vector<Delivery> Consumer::Impl::Pull(int max_messages, Milliseconds wait) {
  PullResponse response;
  Pull(max_messages, wait, nullptr, [] { return false; }, response);
  return std::move(response.deliveries);
}

bool Consumer::Impl::Pull(
    int max_messages, Milliseconds wait, HeldLeases* held, const std::function<bool()>& stop, PullResponse& response) {
  const std::lock_guard<std::mutex> alone(pulling_);
  const auto deadline = Clock::now() + wait + options_.deadline;
  PullError refusal(Code::UNAVAILABLE, "no proxy could be reached before the deadline");
  Clock::time_point due{};
  std::optional<std::size_t> stay;
  for (int failures = 1;; failures++) {
    const auto start = std::max({due, pool_.UsableAt(), Clock::now()});
    if (start >= deadline) throw refusal;
    while (!stop() && Clock::now() < start) std::this_thread::sleep_until(std::min(start, Clock::now() + kStopLook));
    if (stop()) return false;
    Sent sent;
    PullRequest request = Request(held, sent);
    request.__set_max_messages(max_messages);
    request.__set_wait_ms(std::max(0, Count(std::min(wait, std::chrono::floor<Milliseconds>(deadline - sent.at)))));
    response = PullResponse();
    std::size_t proxy;
    try {
      proxy = Call(request, deadline, std::exchange(stay, std::nullopt), response);
    } catch (const CallFailed& failure) {
      refusal = PullError(Code::UNAVAILABLE, failure.what());
      continue;
    }
    const Action action = ActionOf(response.code);
    Settle(sent, held, response);
    if (action == Action::kDone) {
      pool_.Praise(proxy);
      Topics unserved;
      for (const TopicReport& each : response.topics) unserved[each.topic] = NameOf(each.code) + ": " + each.error;
      if (max_messages > 0) TellTopics(std::move(unserved));
      return true;
    }
    refusal = PullError(response.code, response.error);
    if (response.code == Code::UNKNOWN_TOPIC) TellTopics(AllUnserved(refusal));
    if (action == Action::kRefused) throw refusal;
    if (action == Action::kElsewhere) {
      pool_.SetAside(proxy);
      continue;
    }
    const Milliseconds told(response.__isset.retry_after_ms ? response.retry_after_ms : 0);
    due = Clock::now() + Pause(response.code, told, Backoff(options_, failures, Jitter()));
    if (response.code == Code::RATE_LIMITED) stay = proxy;
  }
}

void Consumer::Impl::Acknowledge(
    const Delivery& delivery, Verdict::type verdict, std::optional<Milliseconds> delay, const std::string& reason) {
  Ack ack = MakeAck(delivery, verdict, delay, reason);
  const std::lock_guard<std::mutex> lock(mutex_);
  Queue(std::move(ack));
}

bool Consumer::Impl::HasAcks() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !acks_.empty();
}

PullRequest Consumer::Impl::Request(HeldLeases* held, Sent& sent) {
  PullRequest request;
  request.credential = mint_.Get();
  request.group = subscription_.group;
  if (!subscription_.topics.empty()) request.__set_topics(subscription_.topics);
  if (subscription_.invisible) request.__set_invisible_ms(Count(*subscription_.invisible));
  sent.at = Clock::now();
  const std::lock_guard<std::mutex> lock(mutex_);
  sent.acks = acks_;
  std::vector<Ack> given = acks_;
  if (held != nullptr) {
    sent.extended = held->ToExtend(sent.at);
    for (const HeldPtr& each : sent.extended) given.push_back(MakeAck(each->delivery, Verdict::EXTEND, held->lease(), {}));
  }
  if (!given.empty()) request.__set_acks(given);
  return request;
}

std::size_t Consumer::Impl::Call(
    const PullRequest& request, Clock::time_point deadline, std::optional<std::size_t> stay, PullResponse& response) {
  Pool::Attempt attempt;
  attempt.size_bytes = request.acks.size() * kAckBytes;
  attempt.timeout = Milliseconds(request.wait_ms) + kSocketMargin;
  attempt.deadline = deadline;
  attempt.stay = stay;
  attempt.call = [&](const ProtocolPtr& protocol) { ConsumerClient(protocol).pull(response, request); };
  attempt.hello = [&](const ProtocolPtr& protocol) {
    PullRequest empty = request;
    empty.__set_max_messages(0);
    empty.acks.clear();
    empty.__isset.acks = false;
    PullResponse ignored;
    ConsumerClient(protocol).pull(ignored, empty);
  };
  return pool_.Call(attempt);
}

// Drops settled acknowledgements; the others go with the next pull. A refused pull's acknowledgements have codes of their
// own; those with the pull's code were not looked at.
void Consumer::Impl::Settle(const Sent& sent, HeldLeases* held, const PullResponse& response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto& results = response.ack_results;
  const std::size_t count = sent.acks.size();
  std::vector<Ack> again;
  for (std::size_t index = 0; index < count; index++) {
    const Action action = index < results.size() ? ActionOf(results[index].code) : Action::kUnknown;
    if (action == Action::kRefused && results[index].code != response.code)
      acks_refused++;
    else if (action != Action::kDone)
      again.push_back(sent.acks[index]);
  }
  again.insert(again.end(), acks_.begin() + static_cast<std::ptrdiff_t>(count), acks_.end());
  acks_ = std::move(again);
  acked_ = Clock::now();
  for (std::size_t index = 0; index < sent.extended.size() && count + index < results.size(); index++) {
    const int code = results[count + index].code;
    if (ActionOf(code) == Action::kDone)
      sent.extended[index]->until = sent.at + held->lease();
    else if (ActionOf(code) == Action::kRefused && code != response.code)
      sent.extended[index]->lost = true;
  }
}

void Consumer::Impl::Queue(Ack ack) {
  if (acks_.empty()) acked_ = Clock::now();
  acks_.push_back(std::move(ack));
}

Consumer::Impl::Topics Consumer::Impl::UnservedTopics() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return unserved_;
}

// Tells of each topic that gives nothing, and when it is served again; once per change.
void Consumer::Impl::TellTopics(Topics unserved) {
  Topics before;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    before.swap(unserved_);
    unserved_ = unserved;
  }
  for (const auto& [topic, reason] : unserved)
    if (before.count(topic) == 0) options_.tell("topic " + topic + " gives nothing: " + reason);
  for (const auto& each : before)
    if (unserved.count(each.first) == 0) options_.tell("topic " + each.first + " is served again");
}

Consumer::Impl::Topics Consumer::Impl::AllUnserved(const PullError& refusal) const {
  Topics topics;
  for (const std::string& topic : subscription_.topics) topics[topic] = refusal.what();
  if (topics.empty()) topics["(the group's)"] = refusal.what();
  return topics;
}

Consumer::Consumer(std::vector<Endpoint> endpoints, Identity identity, Subscription subscription, Options options)
    : impl_(std::make_unique<Impl>(std::move(endpoints), std::move(identity), std::move(subscription), std::move(options))) {}

Consumer::~Consumer() {
  try {
    Close();
  } catch (const Error&) {
    // The messages are redelivered after their invisible time; a destructor cannot report it.
  }
}

std::vector<Delivery> Consumer::Pull(int max_messages, Milliseconds wait) { return impl_->Pull(max_messages, wait); }

void Consumer::Done(const Delivery& delivery) { impl_->Acknowledge(delivery, Verdict::DONE, {}, {}); }

void Consumer::Retry(const Delivery& delivery, std::optional<Milliseconds> delay, const std::string& reason) {
  impl_->Acknowledge(delivery, Verdict::RETRY, delay, reason);
}

void Consumer::Reject(const Delivery& delivery, const std::string& reason) {
  impl_->Acknowledge(delivery, Verdict::REJECT, {}, reason);
}

void Consumer::Extend(const Delivery& delivery, Milliseconds delay) {
  impl_->Acknowledge(delivery, Verdict::EXTEND, delay, {});
}

void Consumer::Flush() {
  if (impl_->HasAcks()) impl_->Pull(0, Milliseconds(0));
}

void Consumer::Run(
    const std::function<Verdict::type(const Delivery&)>& handle, const std::function<bool()>& stop, int max_messages, int workers) {
  impl_->Run(handle, stop, max_messages, workers);
  Flush();
}

void Consumer::Close() { Flush(); }

int64_t Consumer::acks_refused() const { return impl_->acks_refused; }

std::map<std::string, std::string> Consumer::unserved_topics() const { return impl_->UnservedTopics(); }

}  // namespace penstock::client
