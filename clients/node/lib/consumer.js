'use strict';
/** Pulls deliveries. Acknowledgements are buffered and sent with the next pull. */

const { Action, Code, actionOf, nameOf } = require('./codes');
const { CallFailed, PullError } = require('./errors');
const { runLoop } = require('./loop');
const { deliveryOf } = require('./message');
const { CredentialMint, backoffMs, optionsOf, parseEndpoints, pauseMs, sleep } = require('./options');
const { Pool } = require('./pool');
const service = require('../gen/Consumer');
const { Ack, PullRequest, Verdict } = require('../gen/consumer_types');

const ACK_BYTES = 120; // estimated size of one acknowledgement in a request
const SOCKET_MARGIN_MS = 2_000;

class Consumer {
  constructor(endpoints, app, keyId, secret, group, topics, options) {
    this._options = optionsOf(options);
    this._pool = new Pool(parseEndpoints(endpoints), service, this._options);
    this._mint = new CredentialMint(app, keyId, secret, this._options.credentialMs);
    if (!group) throw new TypeError('group: missing');
    Object.assign(this, {
      _group: group,
      _topics: topics ?? null,
      _acks: [],
      _ackedAt: 0,
      _pulling: Promise.resolve(),
    });
    this.acksRefused = 0;
    this.unservedTopics = new Map();
  }

  async pull({ maxMessages = 32, waitMs = 20_000, maxBytes } = {}) {
    const response = await this._pull({ maxMessages, waitMs, maxBytes });
    return response.deliveries.map(deliveryOf);
  }

  done(delivery) {
    this._acknowledge(delivery, Verdict.DONE);
  }

  retry(delivery, { delayMs, reason } = {}) {
    this._acknowledge(delivery, Verdict.RETRY, delayMs, reason);
  }

  reject(delivery, reason) {
    this._acknowledge(delivery, Verdict.REJECT, null, reason);
  }

  extend(delivery, delayMs) {
    this._acknowledge(delivery, Verdict.EXTEND, delayMs);
  }

  async flush() {
    if (this._acks.length) await this._pull({ maxMessages: 0, waitMs: 0 });
  }

  run(handle, { signal, maxMessages = 32, waitMs = 5_000, workers = 1 } = {}) {
    if (!(workers >= 1)) throw new TypeError('workers: use a number from 1');
    return runLoop(this, this._options, handle, { signal, maxMessages, waitMs, workers });
  }

  async close() {
    try {
      await this.flush();
    } finally {
      this._pool.close();
    }
  }

  _acknowledge(delivery, verdict, delayMs, reason) {
    if (!this._acks.length) this._ackedAt = performance.now();
    this._acks.push(ackOf(delivery, verdict, delayMs, reason));
  }

  /** Whether acknowledgements have waited here for so long. */
  _isAckDue(waitMs) {
    return this._acks.length > 0 && performance.now() - this._ackedAt >= waitMs;
  }

  /** One pull at a time, so that an acknowledgement is sent once. */
  _pull(how) {
    const pulled = this._pulling.then(() => this._pullServed(how));
    this._pulling = pulled.catch(() => {});
    return pulled;
  }

  /** The response that was served; null when `signal` was aborted before. `held` has its leases extended by it. */
  async _pullServed({ maxMessages, waitMs, maxBytes, held, signal }) {
    const deadline = performance.now() + waitMs + this._options.deadlineMs;
    let error = new PullError(Code.UNAVAILABLE, 'no proxy could be reached before the deadline');
    let dueAt = 0;
    let stay = null;
    for (let failures = 0; ;) {
      const now = performance.now();
      const start = Math.max(now, dueAt, this._pool.usableAt());
      if (start >= deadline) throw error;
      if (signal?.aborted) return null;
      if (start > now) {
        await sleep(start - now, signal);
        continue;
      }
      let response, endpoint;
      try {
        [response, endpoint] = await this._attempt({ maxMessages, waitMs, maxBytes, deadline, held, stay });
      } catch (failure) {
        if (!(failure instanceof CallFailed)) throw failure;
        error = new PullError(Code.UNAVAILABLE, failure.message);
        continue;
      }
      if (maxMessages) this._tellReports(response);
      const action = actionOf(response.code);
      if (action === Action.DONE) {
        this._pool.praise(endpoint);
        return response;
      }
      error = new PullError(response.code, response.error ?? 'no reason given');
      if (action === Action.REFUSED) throw error;
      failures += 1;
      if (action === Action.ELSEWHERE) {
        this._pool.setAside(endpoint);
      } else {
        const backoff = backoffMs(failures, this._options);
        dueAt = performance.now() + pauseMs(response.code, response.retry_after_ms, backoff);
        stay = response.code === Code.RATE_LIMITED ? endpoint : null;
      }
    }
  }

  async _attempt({ maxMessages, waitMs, maxBytes, deadline, held, stay }) {
    const sentAt = performance.now();
    const wait = Math.max(0, Math.floor(Math.min(waitMs, deadline - sentAt)));
    const acks = [...this._acks];
    const extended = held?.toExtend(sentAt) ?? [];
    const given = [...acks, ...extended.map((each) => ackOf(each.delivery, Verdict.EXTEND, held.leaseMs))];
    const who = { credential: this._mint.credential(), group: this._group, topics: this._topics };
    const what = { max_messages: maxMessages, max_bytes: maxBytes, wait_ms: wait };
    const request = new PullRequest({ ...who, ...what, acks: given, invisible_ms: this._options.invisibleMs });
    const hello = new PullRequest({ ...who, max_messages: 0 });
    const how = { size: given.length * ACK_BYTES, hello, stay };
    const [response, endpoint] = await this._pool.call('pull', request, wait + SOCKET_MARGIN_MS, deadline, how);
    this._settle(acks, response);
    extended.forEach((each, index) => {
      const result = response.ack_results[acks.length + index];
      if (result && actionOf(result.code) === Action.DONE) each.until = sentAt + held.leaseMs;
      else if (result && isRefused(result, response)) each.isLost = true;
    });
    return [response, endpoint];
  }

  /** Drop settled acknowledgements; the others go with the next pull. */
  _settle(acks, response) {
    const results = response.ack_results;
    const again = acks.filter((_, index) => {
      const result = results[index];
      if (result && isRefused(result, response)) this.acksRefused += 1;
      else return !result || actionOf(result.code) !== Action.DONE;
      return false;
    });
    this._acks = [...again, ...this._acks.slice(acks.length)];
    this._ackedAt = performance.now();
  }

  /** Tell of each topic that gives nothing, and when it is served again; once per change. */
  _tellReports(response) {
    let unserved;
    if (actionOf(response.code) === Action.DONE) {
      unserved = new Map((response.topics ?? []).map((each) => [each.topic, reasonOf(each)]));
    } else if (response.code === Code.UNKNOWN_TOPIC) {
      unserved = new Map((this._topics ?? ["(the group's)"]).map((topic) => [topic, reasonOf(response)]));
    } else {
      return;
    }
    const before = this.unservedTopics;
    this.unservedTopics = unserved;
    for (const [topic, reason] of unserved) {
      if (!before.has(topic)) this._options.tell(`topic ${topic} gives nothing: ${reason}`);
    }
    for (const topic of before.keys()) {
      if (!unserved.has(topic)) this._options.tell(`topic ${topic} is served again`);
    }
  }
}

function ackOf(delivery, verdict, delayMs, reason) {
  const delay = delayMs == null ? null : Math.floor(delayMs);
  return new Ack({ receipt: delivery.receipt, verdict: verdict || null, delay_ms: delay, reason });
}

/** A refused pull's acknowledgements have codes of their own. Those with the pull's code were not looked at. */
function isRefused(result, response) {
  return actionOf(result.code) === Action.REFUSED && result.code !== response.code;
}

function reasonOf(report) {
  return `${nameOf(report.code)}: ${report.error ?? 'no reason given'}`;
}

module.exports = { Consumer };
