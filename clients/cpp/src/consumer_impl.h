#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "credential.h"
#include "held.h"
#include "penstock/consumer.h"
#include "pool.h"

namespace penstock::client {

class Consumer::Impl {
 public:
  using Handler = std::function<Verdict::type(const Delivery&)>;
  using Topics = std::map<std::string, std::string>;

  Impl(std::vector<Endpoint> endpoints, Identity identity, Subscription subscription, Options options)
      : options_(options),
        subscription_(std::move(subscription)),
        pool_("pull", std::move(endpoints), options),
        mint_(std::move(identity), options.credential_use) {}

  std::vector<Delivery> Pull(int max_messages, Milliseconds wait);
  void Acknowledge(const Delivery& delivery, Verdict::type verdict, std::optional<Milliseconds> delay, const std::string& reason);
  bool HasAcks();
  void Run(const Handler& handle, const std::function<bool()>& stop, int max_messages, int workers);
  Topics UnservedTopics();

  std::atomic<int64_t> acks_refused{0};

 private:
  class Loop;  // one Run; loop.cc

  /// What one call carries: acknowledgements, then extensions.
  struct Sent {
    std::vector<Ack> acks;
    std::vector<HeldPtr> extended;
    Clock::time_point at;
  };

  /// Fills in the response that was served; false when `stop` came before. The leases of `held`, unless null, are
  /// extended.
  bool Pull(
      int max_messages, Milliseconds wait, HeldLeases* held, const std::function<bool()>& stop, PullResponse& response);
  PullRequest Request(HeldLeases* held, Sent& sent);
  std::size_t Call(
      const PullRequest& request, Clock::time_point deadline, std::optional<std::size_t> stay, PullResponse& response);
  void Settle(const Sent& sent, HeldLeases* held, const PullResponse& response);
  void Queue(Ack ack);
  void TellTopics(Topics unserved);
  Topics AllUnserved(const PullError& refusal) const;

  const Options options_;
  const Subscription subscription_;
  Pool pool_;
  CredentialMint mint_;
  std::mutex pulling_;  // one pull at a time, so that an acknowledgement goes out once
  std::mutex mutex_;    // guards all below, and the leases of a Run
  std::vector<Ack> acks_;
  Clock::time_point acked_;  // when the oldest of them was given
  Topics unserved_;
};

}  // namespace penstock::client
