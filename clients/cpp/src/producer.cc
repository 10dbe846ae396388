#include "penstock/producer.h"

#include <atomic>
#include <thread>

#include "Producer.h"
#include "call_size.h"
#include "credential.h"
#include "penstock/sha256.h"
#include "plan.h"
#include "pool.h"

namespace penstock::client {
namespace {

std::string NewId() {
  std::string raw;
  for (int half = 0; half < 2; half++) {
    const uint64_t word = Chance()();
    raw.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  return Hex(raw);
}

}  // namespace

class Producer::Impl {
 public:
  Impl(std::vector<Endpoint> endpoints, Identity identity, Options options)
      : options_(options), pool_("send", std::move(endpoints), options), mint_(std::move(identity), options.credential_use) {}

  std::vector<Result> SendAll(std::vector<Message>& messages, const How& how);

  std::atomic<int64_t> retried{0};

 private:
  void Attempt(
      SendPlan& plan, std::vector<Message>& messages, const How& how, Clock::time_point deadline,
      std::optional<std::size_t>& stay);
  std::size_t Call(
      const SendRequest& request, std::size_t size, Clock::duration timeout, Clock::time_point deadline,
      std::optional<std::size_t> stay, SendResponse& response);

  const Options options_;
  Pool pool_;
  CredentialMint mint_;
};

std::vector<Result> Producer::Impl::SendAll(std::vector<Message>& messages, const How& how) {
  for (Message& message : messages)
    if (!message.__isset.id) message.__set_id(NewId());
  const auto deadline = Clock::now() + options_.deadline + how.reply_wait;
  SendPlan plan(messages, Clock::now(), options_, how.reply_wait.count() > 0);
  std::optional<std::size_t> stay;
  while (!plan.finished()) {
    const auto now = Clock::now();
    const auto start = std::max({plan.NextDue(), pool_.UsableAt(), now});
    if (start >= deadline) break;
    std::this_thread::sleep_until(start);
    Attempt(plan, messages, how, deadline, stay);
  }
  std::vector<Result> results;
  for (std::size_t index = 0; index < messages.size(); index++) results.push_back(plan.ResultOf(index, messages[index].id));
  if (options_.metrics.sent) {
    for (const Result& result : results) options_.metrics.sent(result);
  }
  return results;
}

// One call with as many of the due messages as fit, at least one. `stay` is the proxy that has promised a slot at its rate
// limit: the retry has to go there.
void Producer::Impl::Attempt(
    SendPlan& plan, std::vector<Message>& messages, const How& how, Clock::time_point deadline,
    std::optional<std::size_t>& stay) {
  const auto now = Clock::now();
  const Clock::duration left = std::max<Clock::duration>(deadline - now, Milliseconds(1));
  const Clock::duration timeout = std::min<Clock::duration>(options_.call_timeout, left);
  SendRequest request;
  request.credential = mint_.Get();
  request.__set_timeout_ms(static_cast<int32_t>(std::chrono::ceil<Milliseconds>(timeout).count()));
  if (how.durability) request.__set_durability(*how.durability);
  const auto wait = std::min<Clock::duration>(how.reply_wait, left);
  if (wait.count() > 0) request.__set_reply_wait_ms(static_cast<int32_t>(std::chrono::ceil<Milliseconds>(wait).count()));

  std::vector<std::size_t> indexes;
  std::size_t size = 0;
  for (const std::size_t index : plan.Due(now)) {
    const std::size_t more = SizeOf(messages[index]);
    if (!indexes.empty() && (indexes.size() >= kCallMessagesMax || size + more > kCallBytesMax)) break;
    size += more;
    indexes.push_back(index);
    retried += plan.AttemptedBefore(index) ? 1 : 0;
    request.messages.push_back(std::move(messages[index]));
  }
  const auto take_back = [&] {
    for (std::size_t position = 0; position < indexes.size(); position++)
      messages[indexes[position]] = std::move(request.messages[position]);
  };
  SendResponse response;
  std::size_t proxy;
  try {
    proxy = Call(request, size, std::max(timeout, wait) + kAnswerMargin, deadline, stay, response);
  } catch (const CallFailed& failure) {
    take_back();
    stay.reset();
    for (const std::size_t index : indexes) plan.Failed(index, failure.what(), failure.sent, Clock::now());
    return;
  } catch (const AllForeign& failure) {
    take_back();
    for (const std::size_t index : indexes) plan.Failed(index, failure.what(), failure.sent, Clock::now());
    if (!plan.HasOutcomes()) throw;
    plan.End();
    return;
  } catch (...) {
    take_back();
    throw;
  }
  take_back();
  bool leave = false;
  stay.reset();
  for (std::size_t position = 0; position < indexes.size(); position++) {
    const SendResult& answer = response.results[position];
    plan.Answered(indexes[position], answer, Clock::now());
    leave = leave || ActionOf(answer.code) == Action::kElsewhere;
    if (answer.code == Code::RATE_LIMITED) stay = proxy;
  }
  leave ? pool_.SetAside(proxy) : pool_.Praise(proxy);
}

std::size_t Producer::Impl::Call(
    const SendRequest& request, std::size_t size, Clock::duration timeout, Clock::time_point deadline,
    std::optional<std::size_t> stay, SendResponse& response) {
  Pool::Attempt attempt;
  attempt.size_bytes = size;
  attempt.timeout = timeout;
  attempt.deadline = deadline;
  attempt.stay = stay;
  attempt.call = [&](const ProtocolPtr& protocol) {
    ProducerClient(protocol).send(response, request);
    if (response.results.size() != request.messages.size())
      throw apache::thrift::TException("the answer has a different number of results than the request has messages");
  };
  attempt.hello = [&](const ProtocolPtr& protocol) {
    SendRequest empty;
    empty.credential = request.credential;
    SendResponse ignored;
    ProducerClient(protocol).send(ignored, empty);
  };
  return pool_.Call(attempt);
}

Producer::Producer(std::vector<Endpoint> endpoints, Identity identity, Options options)
    : impl_(std::make_unique<Impl>(std::move(endpoints), std::move(identity), std::move(options))) {}

Producer::~Producer() = default;

Result Producer::Send(Message message, const How& how) {
  std::vector<Message> messages;
  messages.push_back(std::move(message));
  Result result = SendAll(messages, how).front();
  if (!result.ok()) throw SendError(result.code, result.id, result.reason);
  return result;
}

Message Producer::Request(Message message, Milliseconds wait) {
  How how;
  how.reply_wait = wait;
  Result result = Send(std::move(message), how);
  if (!result.reply) throw SendError(result.code, result.id, result.reason);
  return std::move(*result.reply);
}

Result Producer::Reply(const Delivery& delivery, std::string body) {
  Message message;
  message.__set_topic(delivery.message.topic);
  message.__set_body(std::move(body));
  message.__set_reply_to(delivery.reply_token);
  return Send(std::move(message));
}

std::vector<Result> Producer::SendAll(std::vector<Message>& messages, const How& how) { return impl_->SendAll(messages, how); }

int64_t Producer::retried() const { return impl_->retried; }

}  // namespace penstock::client
