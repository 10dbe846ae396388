#pragma once

#include <thrift/transport/TSocket.h>

#include <memory>

#include "penstock/options.h"

namespace penstock::client {

/// A socket that is not yet open, over TLS when the options ask for it. Throws ContractError when this build has no TLS.
std::shared_ptr<apache::thrift::transport::TSocket> MakeSocket(const Endpoint& endpoint, const Options& options);

}  // namespace penstock::client
