#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consumer_types.h"
#include "penstock/errors.h"
#include "penstock/options.h"

namespace penstock::client {

/// The group and topics of a consumer.
struct Subscription {
  std::string group;
  std::vector<std::string> topics;        ///< empty: all topics of the group's definition
  std::optional<Milliseconds> invisible;  ///< how long deliveries are leased; unset: the group's setting
};

/// One member of a group. Any number of members share the group's messages, without assignment.
///
/// Acknowledgements wait here and ride on the next Pull; Close delivers the last ones. What is pulled and not
/// acknowledged is redelivered, with attempt one higher, after its invisible time. One thread pulls at a time;
/// acknowledge from any.
class Consumer {
 public:
  /// Connects lazily.
  Consumer(std::vector<Endpoint> endpoints, Identity identity, Subscription subscription, Options options = {});

  /// Closes without throwing: what Close could not acknowledge is redelivered.
  ~Consumer();

  /// The next deliveries; none when none came within `wait` (30 s at most). Retries at other proxies until the deadline
  /// option. Throws PullError, ContractError.
  std::vector<Delivery> Pull(int max_messages = 32, Milliseconds wait = Milliseconds(20'000));

  void Done(const Delivery& delivery);

  /// Request redelivery after `delay` or the group's back-off.
  void Retry(const Delivery& delivery, std::optional<Milliseconds> delay = {}, const std::string& reason = {});

  /// Send it to the dead-letter topic now; the reason is stored with it.
  void Reject(const Delivery& delivery, const std::string& reason = {});

  /// Extend its lease. Like all verdicts it travels with the next Pull or Flush.
  void Extend(const Delivery& delivery, Milliseconds delay);

  /// Deliver the waiting acknowledgements now, without taking messages.
  void Flush();

  /// Pull and handle until `stop` returns true, then give back what no handler has seen and deliver the last
  /// acknowledgements. What `handle` throws makes its message a retry, with its text as reason. Leases are extended while
  /// messages wait or are handled; the rules are in clients/README.md. Up to `workers` handlers work at a time, of one key
  /// never more than one: with one (the default) in the caller's thread, else each in a thread of its own. `stop` is asked
  /// by the caller's thread.
  /// Throws PullError when pulls are refused for good, when none has succeeded for Options::outage_max, or when the last
  /// acknowledgements could not be delivered.
  void Run(const std::function<Verdict::type(const Delivery&)>& handle, const std::function<bool()>& stop,
           int max_messages = 32, int workers = 1);

  void Close();

  /// Acknowledgements that were late or invalid: their messages are redelivered.
  int64_t acks_refused() const;

  /// The topics that the last pull named and that give nothing, with the reason of each.
  std::map<std::string, std::string> unserved_topics() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::client
