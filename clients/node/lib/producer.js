'use strict';
/** Sends messages and retries those that need it, each by its own result code. */

const { Action, Code, actionOf } = require('./codes');
const { CallFailed, ContractError, SendError } = require('./errors');
const { checkMessage, fromContract, newId, numberOf, sizeOf, toContract } = require('./message');
const { CredentialMint, backoffMs, optionsOf, parseEndpoints, pauseMs, sleep } = require('./options');
const { ANSWER_MARGIN_MS, Pool } = require('./pool');
const service = require('../gen/Producer');
const { SendRequest } = require('../gen/producer_types');

const CALL_MESSAGES_MAX = 1_000;
const CALL_BYTES_MAX = 8_000_000; // well under Thrift's frame limit of 16,384,000

/**
 * One message of a batch. Invariant: one whose outcome was once unknown is reported as unknown (TIMEOUT) unless a later
 * answer tells that it is stored. A later refusal applies only to that later attempt.
 */
class Entry {
  /** `isRequest`: a reply is waited for. */
  constructor(message, dueAt, isRequest) {
    const error = 'no proxy could be reached before the deadline';
    const state = { attempts: 0, settled: false, maybeStored: false, code: Code.UNAVAILABLE, error, answer: null };
    const key = message.key == null ? this : `${message.topic}\n${message.key}`; // without one a key of its own
    Object.assign(this, { message, key, dueAt, isRequest, ...state });
  }

  answered(answer, now, backoff) {
    this.attempts += 1;
    Object.assign(this, { code: answer.code, error: answer.error ?? undefined, answer });
    const action = actionOf(answer.code);
    if (this.maybeStored && [Action.REFUSED, Action.LATER, Action.ELSEWHERE].includes(action)) {
      // What it says, also "not stored", is about this attempt alone.
      const told = answer.error ? `; the last one was answered: ${answer.error}` : '';
      this.error = `an earlier attempt may have stored it${told}`;
      if (action === Action.REFUSED) this.code = Code.TIMEOUT;
    }
    if (this.isRequest && answer.code === Code.DUPLICATE && !answer.reply) {
      this.code = Code.TIMEOUT;
      this.error = 'stored by an earlier attempt, whose reply cannot be had';
    }
    if (action === Action.LATER || action === Action.UNKNOWN) {
      this.dueAt = now + pauseMs(answer.code, answer.retry_after_ms, backoff(this.attempts));
      this.maybeStored ||= action === Action.UNKNOWN;
    } else if (action === Action.ELSEWHERE) {
      this.dueAt = now;
    } else {
      this.settled = true;
    }
  }

  /** No answer came. It is due again at once: the pool has set that proxy aside. */
  failed(failure, now) {
    this.attempts += Number(failure.sent);
    this.maybeStored ||= failure.sent;
    Object.assign(this, { error: failure.message, dueAt: now });
  }

  result() {
    const code = this.maybeStored && !this.settled ? Code.TIMEOUT : this.code;
    const result = {
      code,
      ok: actionOf(code) === Action.DONE,
      id: this.message.id,
      error: this.error,
      attempts: this.attempts,
    };
    if (this.settled) {
      const { id, queue, offset, reply } = this.answer;
      Object.assign(result, { id: id ?? result.id, queue: queue ?? undefined, offset: numberOf(offset) });
      if (reply) result.reply = fromContract(reply);
    }
    return result;
  }
}

class Producer {
  constructor(endpoints, app, keyId, secret, options) {
    this._options = optionsOf(options);
    this._pool = new Pool(parseEndpoints(endpoints), service, this._options);
    this._mint = new CredentialMint(app, keyId, secret, this._options.credentialMs);
    this._calls = new Set();
    this.retried = 0;
  }

  async send(message, how) {
    const [result] = await this.sendAll([message], how);
    if (!result.ok) throw new SendError(result);
    return result;
  }

  async request(message, waitMs, how) {
    const result = await this.send(message, { ...how, replyWaitMs: waitMs });
    if (!result.reply) throw new SendError(result);
    return result.reply;
  }

  reply(delivery, body, properties) {
    return this.send({
      topic: delivery.message.topic,
      body,
      properties,
      replyTo: delivery.replyToken ?? Buffer.alloc(0),
    });
  }

  async sendAll(messages, how = {}) {
    const batch = [...messages];
    batch.forEach(checkMessage);
    for (const message of batch) message.id ||= newId();
    const call = this._sendAll(batch, how);
    this._calls.add(call);
    try {
      return await call;
    } finally {
      this._calls.delete(call);
    }
  }

  /** Waits for the calls in flight, which end by their deadlines; later calls are refused. */
  async close() {
    while (this._calls.size) await Promise.allSettled(this._calls);
    this._pool.close();
  }

  async _sendAll(messages, { durability, replyWaitMs, deadlineMs }) {
    const deadline = performance.now() + (deadlineMs || this._options.deadlineMs) + (replyWaitMs ?? 0);
    const chance = Math.random(); // drawn once: messages refused together are sent again together
    const backoff = (failures) => backoffMs(failures, this._options, chance);
    const entries = messages.map((message) => new Entry(message, performance.now(), replyWaitMs > 0));
    let open = entries;
    let stay = null;
    while (open.length) {
      const now = performance.now();
      const start = Math.max(this._pool.usableAt(), nextDue(open));
      if (Math.max(start, now) >= deadline) break;
      if (start > now) {
        await sleep(start - now);
        continue;
      }
      const leftMs = Math.max(1, Math.floor(deadline - now));
      const timeoutMs = Math.min(this._options.callTimeoutMs, leftMs);
      const [sending, size] = oneCall(due(open, now));
      const request = { durability, reply_wait_ms: replyWaitMs && Math.min(replyWaitMs, leftMs), timeout_ms: timeoutMs };
      try {
        stay = await this._attempt(sending, request, deadline, size, stay, backoff);
      } catch (failure) {
        if (!(failure instanceof ContractError)) throw failure;
        if (!entries.some((each) => each.settled || each.maybeStored)) throw failure;
        break;
      }
      open = open.filter((each) => !each.settled);
    }
    const results = entries.map((each) => each.result());
    for (const result of results) this._options.metrics.sent?.(result);
    return results;
  }

  /** One call. Resolves to the proxy that has promised a slot at its rate limit: the retry has to go there. */
  async _attempt(entries, request, deadline, size, stay, backoff) {
    const credential = this._mint.credential();
    const timeoutMs = Math.max(request.timeout_ms, request.reply_wait_ms ?? 0) + ANSWER_MARGIN_MS;
    const whole = new SendRequest({ credential, messages: [], ...request });
    whole.messages = entries.map((each) => toContract(each.message));
    const hello = new SendRequest({ credential, messages: [] });
    this.retried += entries.filter((each) => each.attempts).length;
    let answer, endpoint;
    try {
      [answer, endpoint] = await this._pool.call('send', whole, timeoutMs, deadline, { size, hello, stay });
      if (answer.results?.length !== entries.length)
        throw new CallFailed('the answer has another number of results', true);
    } catch (failure) {
      const isFailed = failure instanceof CallFailed;
      if (!isFailed && !(failure instanceof ContractError)) throw failure;
      for (const each of entries) each.failed(failure, performance.now());
      if (!isFailed) throw failure;
      return null;
    }
    const now = performance.now();
    entries.forEach((each, index) => each.answered(answer.results[index], now, backoff));
    if (entries.some((each) => actionOf(each.code) === Action.ELSEWHERE)) this._pool.setAside(endpoint);
    else this._pool.praise(endpoint);
    return entries.some((each) => each.code === Code.RATE_LIMITED) ? endpoint : null;
  }
}

/**
 * The messages to send now. One waits while an earlier one of its key does: so a key keeps its order over retries. It
 * holds because a proxy that refuses a message stores none of its key's later messages of the same call.
 */
function due(open, now) {
  const held = new Set();
  return open.filter((each) => {
    if (each.dueAt <= now && !held.has(each.key)) return true;
    held.add(each.key);
    return false;
  });
}

/** When the first message may be sent. */
function nextDue(open) {
  const seen = new Set();
  let next = Infinity;
  for (const each of open) {
    if (!seen.has(each.key)) next = Math.min(next, each.dueAt);
    seen.add(each.key);
  }
  return next;
}

/** The due messages that fit into one call, at least one, and their approximate size in bytes. */
function oneCall(due) {
  let size = 0;
  for (const [count, each] of due.entries()) {
    const more = sizeOf(each.message);
    if (count && (count >= CALL_MESSAGES_MAX || size + more > CALL_BYTES_MAX)) return [due.slice(0, count), size];
    size += more;
  }
  return [due, size];
}

module.exports = { CALL_BYTES_MAX, CALL_MESSAGES_MAX, Producer };
