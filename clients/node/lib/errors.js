'use strict';
/**
 * PenstockError ─┬─ SendError      one message was not stored, or may not be; `result` says which
 *                ├─ PullError      no proxy answered in time, or the pull was refused
 *                ├─ ContractError  the other end does not implement this contract; retrying cannot help
 *                └─ ClosedError    used after close()
 * CallFailed stays inside: a connection broke, and whether the call was done is unknown (or `sent` is false).
 */

const { Action, actionOf, nameOf } = require('./codes');

class PenstockError extends Error {
  get name() {
    return this.constructor.name;
  }
}

class SendError extends PenstockError {
  constructor(result) {
    super(`${nameOf(result.code)}: ${result.error ?? 'no reason given'} (message id ${result.id})`);
    this.result = result;
    this.code = result.code;
  }

  get maybeStored() {
    return actionOf(this.code) === Action.UNKNOWN;
  }
}

class PullError extends PenstockError {
  constructor(code, reason) {
    super(`${nameOf(code)}: ${reason}`);
    this.code = code;
  }
}

class ContractError extends PenstockError {}

class ClosedError extends PenstockError {
  constructor() {
    super('the client is closed');
  }
}

class CallFailed extends Error {
  constructor(reason, sent) {
    super(reason);
    this.sent = sent;
  }
}

module.exports = { CallFailed, ClosedError, ContractError, PenstockError, PullError, SendError };
