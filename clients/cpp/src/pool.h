#pragma once

#include <thrift/protocol/TProtocol.h>
#include <thrift/transport/TSocket.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backoff.h"
#include "penstock/errors.h"
#include "penstock/options.h"

namespace penstock::client {

using ProtocolPtr = std::shared_ptr<apache::thrift::protocol::TProtocol>;

/// One call at one endpoint brought no answer of the contract. Unless `sent`, no proxy has done it.
struct CallFailed : std::runtime_error {
  CallFailed(const std::string& reason, bool was_sent) : std::runtime_error(reason), sent(was_sent) {}
  bool sent;
};

/// The same, and all endpoints have answered last what is none of the contract.
struct AllForeign : ContractError {
  AllForeign(const std::string& reason, bool was_sent) : ContractError(reason), sent(was_sent) {}
  bool sent;
};

/// A proxy answers by the call's timeout, which may be the deadline; its answer needs a moment to come back.
constexpr Milliseconds kAnswerMargin{500};

/// One socket with one call at a time. After any failure it must be closed: a late answer would go to the next call.
struct Connection {
  std::shared_ptr<apache::thrift::transport::TSocket> socket;
  ProtocolPtr protocol;
  bool trusted = false;
  Clock::time_point used_at;
};

/// Connections to several proxies. One that fails is set aside for a growing pause; the others are used in turn.
/// Thread-safe; the lock is never held over I/O.
class Pool {
 public:
  /// One attempt. `call` and `hello` run on a connection's protocol; `hello` is an empty call with the same credential,
  /// which goes ahead when `size_bytes` is too much for a new connection. A connection is made by the deadline, and the
  /// answer is here kAnswerMargin later.
  struct Attempt {
    std::function<void(const ProtocolPtr&)> call;
    std::function<void(const ProtocolPtr&)> hello;
    std::size_t size_bytes;
    Clock::duration timeout;  // for an answer
    Clock::time_point deadline;
    std::optional<std::size_t> stay;  // the proxy to use unless it is set aside
  };

  Pool(std::string method, std::vector<Endpoint> endpoints, Options options);

  /// When the first proxy may be tried again; in the past when one is now.
  Clock::time_point UsableAt();

  /// Runs the attempt at the next usable proxy and returns that proxy's index. Throws CallFailed (the proxy has been
  /// set aside), AllForeign and ContractError.
  std::size_t Call(const Attempt& attempt);

  /// Prefer other proxies for a pause that grows with each failure in a row.
  void SetAside(std::size_t proxy);

  /// Reset the failures of a proxy that answered.
  void Praise(std::size_t proxy);

 private:
  using ConnectionPtr = std::unique_ptr<Connection>;
  struct Proxy {
    Endpoint endpoint;
    std::vector<ConnectionPtr> idle;
    bool is_foreign = false;  // its last answer was none of this contract
    int failures = 0;
    Clock::time_point aside_until{};
  };

  void CallAt(std::size_t proxy, const std::string& at, const Attempt& attempt);
  bool ProveForeign(std::size_t proxy);
  std::size_t Choose(std::optional<std::size_t> stay);
  ConnectionPtr TakeIdle(std::size_t proxy);
  ConnectionPtr Connect(const Endpoint& endpoint, Clock::time_point deadline) const;
  void GiveBack(std::size_t proxy, ConnectionPtr connection);
  void Run(Connection& connection, const std::function<void(const ProtocolPtr&)>& call, const Attempt& attempt) const;

  const std::string method_;
  const Options options_;
  std::mutex mutex_;
  std::vector<Proxy> proxies_;
  std::size_t turn_;
};

}  // namespace penstock::client
