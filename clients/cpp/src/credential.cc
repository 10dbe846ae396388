#include "credential.h"

#include "penstock/sha256.h"

namespace penstock::client {

Credential CredentialMint::Get() {
  using std::chrono::system_clock;
  const int64_t now_ms =
      std::chrono::duration_cast<Milliseconds>(system_clock::now().time_since_epoch()).count();
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t age_ms = now_ms - minted_.issued_at_ms;
  if (minted_.signature.empty() || age_ms < 0 || age_ms >= use_.count()) {
    minted_.app = identity_.app;
    minted_.key_id = identity_.key_id;
    minted_.issued_at_ms = now_ms;
    minted_.signature = HmacSha256(
        identity_.secret, "penstock/1\n" + identity_.app + "\n" + identity_.key_id + "\n" + std::to_string(now_ms));
  }
  return minted_;
}

}  // namespace penstock::client
