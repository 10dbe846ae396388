#include "penstock/consumer.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "Consumer.h"
#include "credential.h"
#include "pool.h"

namespace penstock::client {
namespace {

constexpr std::size_t kAckBytes = 120;  // estimated size of one acknowledgement in a request
constexpr Milliseconds kSocketMargin{2'000};

int32_t Count(Milliseconds duration) { return static_cast<int32_t>(duration.count()); }

}  // namespace

class Consumer::Impl {
 public:
  Impl(std::vector<Endpoint> endpoints, Identity identity, Subscription subscription, Options options)
      : options_(options),
        subscription_(std::move(subscription)),
        pool_(std::move(endpoints), options),
        mint_(std::move(identity), options.credential_use) {}

  std::vector<Delivery> Pull(int max_messages, Milliseconds wait);
  void Acknowledge(const Delivery& delivery, Verdict::type verdict, std::optional<Milliseconds> delay, const std::string& reason);
  bool HasAcks();

  std::atomic<int64_t> acks_refused{0};

 private:
  PullRequest Request();
  std::size_t Call(const PullRequest& request, Milliseconds wait, PullResponse& response);
  void Settle(const std::vector<Ack>& sent, const PullResponse& response);

  const Options options_;
  const Subscription subscription_;
  Pool pool_;
  CredentialMint mint_;
  std::mutex pulling_;  // one pull at a time, so that an acknowledgement goes out once
  std::mutex mutex_;
  std::vector<Ack> acks_;
};

std::vector<Delivery> Consumer::Impl::Pull(int max_messages, Milliseconds wait) {
  const std::lock_guard<std::mutex> alone(pulling_);
  const auto deadline = Clock::now() + wait + options_.deadline;
  PullError refusal(Code::UNAVAILABLE, "no proxy could be reached before the deadline");
  Clock::time_point due{};
  for (int failures = 1;; failures++) {
    const auto start = std::max({due, pool_.UsableAt(), Clock::now()});
    if (start >= deadline) throw refusal;
    std::this_thread::sleep_until(start);
    PullRequest request = Request();
    request.__set_max_messages(max_messages);
    request.__set_wait_ms(Count(wait));
    PullResponse response;
    std::size_t proxy;
    try {
      proxy = Call(request, wait, response);
    } catch (const CallFailed& failure) {
      refusal = PullError(Code::UNAVAILABLE, failure.what());
      continue;
    }
    const Action action = ActionOf(response.code);
    if (action == Action::kDone) {
      pool_.Praise(proxy);
      Settle(request.acks, response);
      return std::move(response.deliveries);
    }
    refusal = PullError(response.code, response.error);
    if (action == Action::kRefused) throw refusal;
    if (action == Action::kElsewhere) {
      pool_.SetAside(proxy);
      continue;
    }
    const Clock::duration told = Milliseconds(response.__isset.retry_after_ms ? response.retry_after_ms : 0);
    due = Clock::now() + std::max(told, Backoff(options_, failures, Jitter()));
  }
}

void Consumer::Impl::Acknowledge(
    const Delivery& delivery, Verdict::type verdict, std::optional<Milliseconds> delay, const std::string& reason) {
  Ack ack;
  ack.receipt = delivery.receipt;
  if (verdict != Verdict::DONE) ack.__set_verdict(verdict);
  if (delay) ack.__set_delay_ms(Count(*delay));
  if (!reason.empty()) ack.__set_reason(reason);
  const std::lock_guard<std::mutex> lock(mutex_);
  acks_.push_back(std::move(ack));
}

bool Consumer::Impl::HasAcks() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !acks_.empty();
}

PullRequest Consumer::Impl::Request() {
  PullRequest request;
  request.credential = mint_.Get();
  request.group = subscription_.group;
  if (!subscription_.topics.empty()) request.__set_topics(subscription_.topics);
  if (subscription_.invisible) request.__set_invisible_ms(Count(*subscription_.invisible));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!acks_.empty()) request.__set_acks(acks_);
  return request;
}

std::size_t Consumer::Impl::Call(const PullRequest& request, Milliseconds wait, PullResponse& response) {
  Pool::Attempt attempt;
  attempt.size_bytes = request.acks.size() * kAckBytes;
  attempt.timeout = wait + kSocketMargin;
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

// Drops settled acknowledgements; the others go with the next pull.
void Consumer::Impl::Settle(const std::vector<Ack>& sent, const PullResponse& response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Ack> again;
  for (std::size_t index = 0; index < std::min(sent.size(), response.ack_results.size()); index++) {
    const Action action = ActionOf(response.ack_results[index].code);
    if (action == Action::kRefused)
      acks_refused++;
    else if (action != Action::kDone)
      again.push_back(sent[index]);
  }
  again.insert(again.end(), acks_.begin() + static_cast<std::ptrdiff_t>(sent.size()), acks_.end());
  acks_ = std::move(again);
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
    const std::function<Verdict::type(const Delivery&)>& handle, const std::function<bool()>& stop, int max_messages) {
  while (!stop()) {
    for (const Delivery& delivery : Pull(max_messages, Milliseconds(5'000))) {
      try {
        impl_->Acknowledge(delivery, handle(delivery), {}, {});
      } catch (const std::exception& error) {
        Retry(delivery, {}, error.what());
      }
    }
  }
  Flush();
}

void Consumer::Close() { Flush(); }

int64_t Consumer::acks_refused() const { return impl_->acks_refused; }

}  // namespace penstock::client
