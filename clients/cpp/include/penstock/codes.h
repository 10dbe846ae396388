#pragma once

#include <string>

namespace penstock::client {

/// What to do about a result code: its hundreds digit says it, so codes that are newer than this client work too.
enum class Action {
  kDone = 0,       ///< stored
  kRefused = 1,    ///< the request is wrong: the same again will not help
  kLater = 2,      ///< not stored: again after a pause
  kUnknown = 3,    ///< may be stored: again with the same id
  kElsewhere = 4,  ///< not stored: again at once, at another proxy
  kNoReply = 5,    ///< stored, but the reply that was waited for did not come
};

/// A hundreds digit that nobody has defined yet is read as kUnknown, the careful reading.
Action ActionOf(int code);

std::string NameOf(int code);

}  // namespace penstock::client
