'use strict';
/**
 * PenstockError ─┬─ SendError      one message was not stored, or may not be; `result` says which
 *                ├─ PullError      no proxy answered in time, or the pull was refused
 *                ├─ ContractError  no endpoint implements this contract; retrying cannot help
 *                ├─ FullError      a batching producer holds as much as it may; the message was not taken
 *                └─ ClosedError    used after close(), or closed before the message was sent: it is not stored
 * CallFailed stays inside: one call brought no answer of the contract, and whether it was done is unknown (or `sent` is
 * false: no proxy has done it).
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

class ContractError extends PenstockError {
  /** Not `sent`: no proxy has done the call. */
  constructor(reason, sent) {
    super(reason);
    this.sent = sent;
  }
}

class FullError extends PenstockError {}

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

module.exports = { CallFailed, ClosedError, ContractError, FullError, PenstockError, PullError, SendError };
