#include "penstock/codes.h"

#include "message_types.h"

namespace penstock::client {

Action ActionOf(int code) {
  const int digit = code / 100;
  return code >= 0 && digit <= static_cast<int>(Action::kNoReply) ? static_cast<Action>(digit) : Action::kUnknown;
}

std::string NameOf(int code) {
  const auto found = _Code_VALUES_TO_NAMES.find(code);
  return found == _Code_VALUES_TO_NAMES.end() ? "code " + std::to_string(code) : found->second;
}

}  // namespace penstock::client
