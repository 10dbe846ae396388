#pragma once

#include <string>

namespace penstock::client {

/// The action for a result code, by its hundreds digit, so codes newer than this client work too.
enum class Action {
  kDone = 0,       ///< stored
  kRefused = 1,    ///< the request is wrong: do not retry it unchanged
  kLater = 2,      ///< not stored: retry after a pause
  kUnknown = 3,    ///< may be stored: retry with the same id
  kElsewhere = 4,  ///< not stored: retry at once, at another proxy
  kNoReply = 5,    ///< stored, but the reply did not come
};

/// An undefined hundreds digit is kUnknown, the safe choice.
Action ActionOf(int code);

std::string NameOf(int code);

}  // namespace penstock::client
