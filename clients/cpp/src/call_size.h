#pragma once

#include <cstddef>

#include "message_types.h"

namespace penstock::client {

constexpr std::size_t kCallMessagesMax = 1'000;
constexpr std::size_t kCallBytesMax = 8'000'000;  // well under Thrift's frame limit of 16,384,000

/// About how many bytes the message takes in a request.
inline std::size_t SizeOf(const Message& message) {
  std::size_t size = 200 + message.topic.size() + message.body.size() + message.key.size();
  for (const auto& [name, value] : message.properties) size += 8 + name.size() + value.size();
  return size;
}

}  // namespace penstock::client
