#include "socket.h"

#include <map>
#include <mutex>

#include "penstock/errors.h"

#if __has_include(<openssl/ssl.h>)
#include <thrift/transport/TSSLSocket.h>
#define PENSTOCK_TLS 1
#endif

namespace penstock::client {

using apache::thrift::transport::TSocket;
#ifdef PENSTOCK_TLS
using apache::thrift::transport::TSSLSocketFactory;
#endif

std::shared_ptr<TSocket> MakeSocket(const Endpoint& endpoint, const Options& options) {
  if (!options.tls) return std::make_shared<TSocket>(endpoint.host, endpoint.port);
#ifdef PENSTOCK_TLS
  // A factory owns OpenSSL's set-up, which has to outlive every socket: one per file of authorities, never destroyed.
  static std::mutex mutex;
  static auto* const factories = new std::map<std::string, std::unique_ptr<TSSLSocketFactory>>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& factory = (*factories)[options.tls_ca_file];
  if (!factory) {
    factory = std::make_unique<TSSLSocketFactory>(apache::thrift::transport::TLSv1_2);
    factory->authenticate(true);
    factory->loadTrustedCertificates(options.tls_ca_file.c_str());
  }
  return factory->createSocket(endpoint.host, endpoint.port);
#else
  throw ContractError("this build has no TLS: install OpenSSL's headers (libssl-dev) and build again");
#endif
}

}  // namespace penstock::client
