#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consumer_types.h"
#include "message_types.h"
#include "penstock/codes.h"
#include "penstock/errors.h"
#include "penstock/options.h"
#include "producer_types.h"

namespace penstock::client {

/// The outcome of one message after all retries.
struct Result {
  int code = 0;
  std::string id;
  std::optional<int32_t> queue;
  std::optional<int64_t> offset;  ///< unset while the message is in the fallback buffer (code BUFFERED)
  std::string reason;
  std::optional<Message> reply;
  int attempts = 0;

  /// Stored. A request whose reply did not come is stored too, but not ok.
  bool ok() const { return ActionOf(code) == Action::kDone; }
};

/// Changes one send; the defaults are the usual ones.
struct How {
  std::optional<Durability::type> durability;  ///< unset: what the topic says
  Milliseconds reply_wait{0};                  ///< wait for a consumer's reply; one message only
};

/// Sends through any of several producer proxies and retries what needs it, each message by its own result code.
/// Thread-safe.
///
/// A message without an id gets one, since a retry after a broken connection avoids duplicates only with the same id.
class Producer {
 public:
  /// Connects lazily.
  Producer(std::vector<Endpoint> endpoints, Identity identity, Options options = {});
  ~Producer();

  /// Send one message and return once it is stored. Throws SendError, ContractError.
  Result Send(Message message, const How& how = {});

  /// Send one message and return what a consumer replies. The message is not dispatched after `wait`.
  /// Throws SendError, also without a reply: NO_CONSUMER, NO_REPLY and CONSUMER_FAILED say why; or TIMEOUT, as an earlier
  /// attempt was stored, whose reply cannot be had.
  Message Request(Message message, Milliseconds wait);

  /// Answer a delivery that has a reply_token; returns once the waiting caller has the reply.
  /// Throws SendError: STALE_RECEIPT when the caller no longer waits, or as for Send.
  Result Reply(const Delivery& delivery, std::string body);

  /// Send many messages, of any topics, and return one result each, in order. Does not throw for a message's failure.
  ///
  /// Sets the ids of those that have none. The messages are moved out for the call and back, so share them with no
  /// other thread. Messages of one key keep their order, over retries too: a message waits while an earlier
  /// one of its key does.
  std::vector<Result> SendAll(std::vector<Message>& messages, const How& how = {});

  /// Resent messages, over all calls.
  int64_t retried() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::client
