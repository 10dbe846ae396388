// SHA-256 and HMAC (FIPS 180-4, RFC 2104), so that the client needs no library besides Thrift's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::client {

class Sha256 {
 public:
  Sha256();
  void Update(std::string_view bytes);

  /// The 32 bytes of the digest; the object cannot be used again.
  std::string Finish();

 private:
  void Block(const unsigned char* block);

  std::array<uint32_t, 8> state_;
  std::array<unsigned char, 64> pending_;
  uint64_t size_ = 0;
};

std::string Sha256Of(std::string_view bytes);
std::string HmacSha256(std::string_view key, std::string_view bytes);
std::string Hex(std::string_view bytes);

}  // namespace penstock::client
