#pragma once

#include <optional>
#include <string>

#include "consumer_types.h"
#include "penstock/options.h"

namespace penstock::client {

inline Ack MakeAck(
    const Delivery& delivery, Verdict::type verdict, std::optional<Milliseconds> delay, const std::string& reason) {
  Ack ack;
  ack.receipt = delivery.receipt;
  if (verdict != Verdict::DONE) ack.__set_verdict(verdict);
  if (delay) ack.__set_delay_ms(static_cast<int32_t>(delay->count()));
  if (!reason.empty()) ack.__set_reason(reason);
  return ack;
}

}  // namespace penstock::client
