#include "socket.h"

#include "penstock/errors.h"

#if __has_include(<openssl/ssl.h>)
#include <thrift/transport/TSSLSocket.h>
#define PENSTOCK_TLS 1
#endif

namespace penstock::client {

using apache::thrift::transport::TSocket;

std::shared_ptr<TSocket> MakeSocket(const Endpoint& endpoint, const Options& options) {
  if (!options.tls) return std::make_shared<TSocket>(endpoint.host, endpoint.port);
#ifdef PENSTOCK_TLS
  // The factory owns OpenSSL's set-up, which has to outlive every socket: one for the process, never destroyed.
  static auto* const kFactory = [&options] {
    auto* made = new apache::thrift::transport::TSSLSocketFactory(apache::thrift::transport::TLSv1_2);
    made->authenticate(true);
    made->loadTrustedCertificates(options.tls_ca_file.c_str());
    return made;
  }();
  return kFactory->createSocket(endpoint.host, endpoint.port);
#else
  throw ContractError("this build has no TLS: install OpenSSL's headers (libssl-dev) and build again");
#endif
}

}  // namespace penstock::client
