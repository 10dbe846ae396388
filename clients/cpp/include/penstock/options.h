#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock {
class Delivery;
}  // namespace penstock

namespace penstock::client {

struct Result;

using Milliseconds = std::chrono::milliseconds;

/// Who is calling. The secret never leaves the process; only a signature travels.
struct Identity {
  std::string app;
  std::string key_id;
  std::string secret;
};

/// Writes one line.
void TellOnStderr(const std::string& sentence);

/// Options of the client, with the cost of a change.
/// Called as things happen, by the thread concerned: return soon and do not throw. Each may be empty.
struct Metrics {
  /// One attempt at one proxy has ended. The failure is empty for an answer, whatever its code.
  std::function<void(const std::string& method, const std::string& endpoint, Milliseconds took, const std::string& failure)>
      call;
  /// The final outcome of one message, after all retries.
  std::function<void(const Result&)> sent;
  /// A handler of Run has ended; the verdict is a value of penstock::Verdict.
  std::function<void(const Delivery&, int verdict, Milliseconds took)> handled;
};

struct Options {
  /// For one Send with all its retries; a Pull or a Request adds it to its wait. A call may take 500 ms more for an
  /// answer.
  Milliseconds deadline{10'000};
  Milliseconds call_timeout{3'000};  ///< for one attempt at one proxy; shorter finds a hung proxy sooner, and retries more
  Milliseconds connect_timeout{1'000};  ///< with the TLS handshake; less when the deadline comes before
  bool framed = true;  ///< false: buffered. Penstock takes both on one port
  bool tls = false;    ///< certificate and host name are verified. Needs a build with OpenSSL's headers
  std::string tls_ca_file = "/etc/ssl/certs/ca-certificates.crt";
  Milliseconds backoff_first{50};  ///< doubled with each failure up to backoff_max, with jitter
  Milliseconds backoff_max{2'000};
  Milliseconds credential_use{60'000};  ///< one minted credential is used this long; proxies take it for 300 s
  std::size_t idle_connections_max = 8;  ///< kept open per proxy; more are made when needed and closed after use
  Milliseconds idle_max{30'000};         ///< an older idle connection may have been closed by the proxy
  Milliseconds outage_max{600'000};      ///< Run ends when no pull has succeeded for so long; 0: never
  Milliseconds extend_max{3'600'000};    ///< Run extends no lease beyond this; a handler that hangs loses its message then
  std::function<void(const std::string&)> tell = TellOnStderr;  ///< outages, topics that give nothing
  Metrics metrics;
};

struct Endpoint {
  std::string host;
  int port;
};

/// "host:port,host:port"; IPv6 as "[::1]:9090". Throws std::invalid_argument.
std::vector<Endpoint> ParseEndpoints(const std::string& list);

}  // namespace penstock::client
