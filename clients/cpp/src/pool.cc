#include "pool.h"

#include <thrift/TApplicationException.h>
#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include <algorithm>

#include "socket.h"

namespace penstock::client {
namespace {

using apache::thrift::TApplicationException;
using apache::thrift::TException;
using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::transport::TBufferedTransport;
using apache::thrift::transport::TFramedTransport;
using apache::thrift::transport::TTransport;

// Until a connection has shown a valid credential, proxies take frames of 64 KiB at most. A larger first call is
// preceded by a small one.
constexpr std::size_t kUntrustedCallBytesMax = 48 * 1024;
constexpr uint32_t kBufferBytes = 64 * 1024;

// At least 1: to a socket 0 is no limit.
int TimeoutMs(Clock::duration timeout) {
  return std::max(1, static_cast<int>(std::chrono::ceil<Milliseconds>(timeout).count()));
}

}  // namespace

Pool::Pool(std::string method, std::vector<Endpoint> endpoints, Options options)
    : method_(std::move(method)), options_(std::move(options)) {
  if (endpoints.empty()) throw std::invalid_argument("no endpoints: give at least one HOST:PORT");
  for (Endpoint& endpoint : endpoints) {
    proxies_.emplace_back();
    proxies_.back().endpoint = std::move(endpoint);
  }
  turn_ = Chance()() % proxies_.size();
}

Clock::time_point Pool::UsableAt() {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto first = proxies_.front().aside_until;
  for (const Proxy& proxy : proxies_) first = std::min(first, proxy.aside_until);
  return first;
}

std::size_t Pool::Call(const Attempt& attempt) {
  const std::size_t proxy = Choose(attempt.stay);
  const Endpoint& endpoint = proxies_[proxy].endpoint;  // never changes, so it is read without the lock
  const std::string at = endpoint.host + ":" + std::to_string(endpoint.port);
  const auto began = Clock::now();
  const auto tell = [&](const std::string& failure) {
    const auto took = std::chrono::duration_cast<Milliseconds>(Clock::now() - began);
    if (options_.metrics.call) options_.metrics.call(method_, at, took, failure);
  };
  try {
    CallAt(proxy, at + ": ", attempt);
  } catch (const std::exception& error) {
    tell(error.what());
    throw;
  }
  tell({});
  return proxy;
}

void Pool::CallAt(std::size_t proxy, const std::string& at, const Attempt& attempt) {
  const Endpoint& endpoint = proxies_[proxy].endpoint;
  ConnectionPtr connection = TakeIdle(proxy);
  bool sent = false;
  try {
    if (!connection) connection = Connect(endpoint, attempt.deadline);
    if (attempt.size_bytes > kUntrustedCallBytesMax && !connection->trusted) Run(*connection, attempt.hello, attempt);
    sent = true;
    Run(*connection, attempt.call, attempt);
  } catch (const TApplicationException& error) {
    SetAside(proxy);
    // These two answer a call of another service, and one that is refused unread.
    sent = sent && error.getType() != TApplicationException::UNKNOWN_METHOD &&
           error.getType() != TApplicationException::PROTOCOL_ERROR;
    if (error.getType() != TApplicationException::INTERNAL_ERROR && ProveForeign(proxy))
      throw AllForeign(at + error.what(), sent);
    throw CallFailed(at + error.what(), sent);
  } catch (const TException& error) {
    SetAside(proxy);
    throw CallFailed(at + error.what(), sent);
  }
  GiveBack(proxy, std::move(connection));
}

void Pool::SetAside(std::size_t proxy) {
  std::vector<ConnectionPtr> stale;  // closed after the lock is released
  const std::lock_guard<std::mutex> lock(mutex_);
  Proxy& failing = proxies_[proxy];
  failing.is_foreign = false;
  failing.failures++;
  failing.aside_until = Clock::now() + Backoff(options_, failing.failures, Jitter());
  stale.swap(failing.idle);
}

// Notes what a proxy is that was set aside. True when all are: none waits then, so the next call ends as soon.
bool Pool::ProveForeign(std::size_t proxy) {
  const std::lock_guard<std::mutex> lock(mutex_);
  proxies_[proxy].is_foreign = true;
  const auto is_foreign = [](const Proxy& each) { return each.is_foreign; };
  if (!std::all_of(proxies_.begin(), proxies_.end(), is_foreign)) return false;
  for (Proxy& each : proxies_) {
    each.is_foreign = false;
    each.failures = 0;
    each.aside_until = {};
  }
  return true;
}

void Pool::Praise(std::size_t proxy) {
  const std::lock_guard<std::mutex> lock(mutex_);
  proxies_[proxy].failures = 0;
  proxies_[proxy].aside_until = {};
}

std::size_t Pool::Choose(std::optional<std::size_t> stay) {
  const auto now = Clock::now();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stay && proxies_[*stay].aside_until <= now) return *stay;
  turn_++;
  std::size_t best = turn_ % proxies_.size();
  for (std::size_t step = 1; step < proxies_.size(); step++) {
    const std::size_t other = (turn_ + step) % proxies_.size();
    if (std::max(proxies_[other].aside_until, now) < std::max(proxies_[best].aside_until, now)) best = other;
  }
  return best;
}

Pool::ConnectionPtr Pool::TakeIdle(std::size_t proxy) {
  std::vector<ConnectionPtr> stale;
  const auto newest = Clock::now() - options_.idle_max;
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& idle = proxies_[proxy].idle;
  while (!idle.empty()) {
    ConnectionPtr connection = std::move(idle.back());
    idle.pop_back();
    if (connection->used_at > newest) return connection;
    stale.push_back(std::move(connection));
  }
  return nullptr;
}

Pool::ConnectionPtr Pool::Connect(const Endpoint& endpoint, Clock::time_point deadline) const {
  const auto until = std::min(deadline, Clock::now() + options_.connect_timeout);
  auto connection = std::make_unique<Connection>();
  connection->socket = MakeSocket(endpoint, options_);
  connection->socket->setConnTimeout(TimeoutMs(until - Clock::now()));
  connection->socket->setNoDelay(true);
  std::shared_ptr<TTransport> transport;
  if (options_.framed)
    transport = std::make_shared<TFramedTransport>(connection->socket);
  else
    transport = std::make_shared<TBufferedTransport>(connection->socket, kBufferBytes);
  transport->open();
  if (options_.tls) {
    connection->socket->setSendTimeout(TimeoutMs(until - Clock::now()));
    connection->socket->setRecvTimeout(TimeoutMs(until - Clock::now()));
    connection->socket->write(nullptr, 0);  // the handshake: what it refuses was not sent
  }
  connection->protocol = std::make_shared<TBinaryProtocol>(transport);
  return connection;
}

void Pool::GiveBack(std::size_t proxy, ConnectionPtr connection) {
  connection->used_at = Clock::now();
  const std::lock_guard<std::mutex> lock(mutex_);
  proxies_[proxy].is_foreign = false;
  auto& idle = proxies_[proxy].idle;
  if (idle.size() < options_.idle_connections_max) idle.push_back(std::move(connection));
}

void Pool::Run(
    Connection& connection, const std::function<void(const ProtocolPtr&)>& call, const Attempt& attempt) const {
  const Clock::duration left = attempt.deadline + kAnswerMargin - Clock::now();
  const int timeout_ms = TimeoutMs(std::min(attempt.timeout, left));
  connection.socket->setSendTimeout(timeout_ms);
  connection.socket->setRecvTimeout(timeout_ms);
  call(connection.protocol);
  connection.trusted = true;
}

}  // namespace penstock::client
