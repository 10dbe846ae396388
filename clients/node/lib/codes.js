'use strict';
/** The action for a result code, by its hundreds digit, so that codes newer than this client work too. */

const { Code } = require('../gen/message_types');

const Action = Object.freeze({
  DONE: 0, // stored
  REFUSED: 1, // the request is wrong: do not retry it unchanged
  LATER: 2, // not stored: retry after a pause
  UNKNOWN: 3, // may be stored: retry with the same id
  ELSEWHERE: 4, // not stored: retry at once, at another proxy
  NO_REPLY: 5, // stored, but the reply did not come
});

const NAMES = new Map(Object.entries(Code).map(([name, code]) => [code, name]));

/** An undefined hundreds digit is UNKNOWN, the safe choice. */
function actionOf(code) {
  const digit = Math.floor(code / 100);
  return digit >= 0 && digit <= Action.NO_REPLY ? digit : Action.UNKNOWN;
}

function nameOf(code) {
  return NAMES.get(code) ?? `code ${code}`;
}

module.exports = { Action, Code, actionOf, nameOf };
