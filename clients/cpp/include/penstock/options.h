#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::client {

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
struct Options {
  Milliseconds deadline{10'000};     ///< for one Send with all its retries; a Pull adds it to its wait
  Milliseconds call_timeout{3'000};  ///< for one attempt at one proxy; shorter finds a hung proxy sooner, and retries more
  Milliseconds connect_timeout{1'000};
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
};

struct Endpoint {
  std::string host;
  int port;
};

/// "host:port,host:port"; IPv6 as "[::1]:9090". Throws std::invalid_argument.
std::vector<Endpoint> ParseEndpoints(const std::string& list);

}  // namespace penstock::client
