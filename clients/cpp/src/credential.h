#pragma once

#include <mutex>

#include "message_types.h"
#include "penstock/options.h"

namespace penstock::client {

/// Mints the application's credential and keeps it for a while, as the proxies cache their verdict by its bytes. Thread-safe.
class CredentialMint {
 public:
  CredentialMint(Identity identity, Milliseconds use) : identity_(std::move(identity)), use_(use) {}

  Credential Get();

 private:
  const Identity identity_;
  const Milliseconds use_;
  std::mutex mutex_;
  Credential minted_;
};

}  // namespace penstock::client
