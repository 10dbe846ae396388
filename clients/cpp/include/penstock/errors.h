#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "penstock/codes.h"

namespace penstock::client {

/// Base of all exceptions of this client.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// No endpoint implements this contract, and nothing is stored. Retrying cannot help.
class ContractError : public Error {
 public:
  using Error::Error;
};

/// One message was not stored, or may not be.
class SendError : public Error {
 public:
  SendError(int code, std::string id, const std::string& reason)
      : Error(NameOf(code) + ": " + reason + " (message id " + id + ")"), code_(code), id_(std::move(id)) {}

  int code() const { return code_; }
  const std::string& id() const { return id_; }

  /// True: send again only with the same id.
  bool maybe_stored() const { return ActionOf(code_) == Action::kUnknown; }

 private:
  int code_;
  std::string id_;
};

/// A batching producer holds as much as it may. The message was not taken.
class FullError : public Error {
 public:
  using Error::Error;
};

/// A batching producer was closed before it sent the message: it is not stored.
class ClosedError : public Error {
 public:
  using Error::Error;
};

/// The pull was refused, or no proxy answered before the deadline.
class PullError : public Error {
 public:
  PullError(int code, const std::string& reason) : Error(NameOf(code) + ": " + reason), code_(code) {}

  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace penstock::client
