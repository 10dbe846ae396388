'use strict';
/** The loop of `Consumer.run`: pull, handle, acknowledge in time, and ride through outages. */

const { Action, Code, actionOf } = require('./codes');
const { PenstockError, PullError } = require('./errors');
const { HeldLeases, LEASE_UNKNOWN_MS } = require('./held');
const { deliveryOf } = require('./message');
const { backoffMs, sleep } = require('./options');
const { Verdict } = require('../gen/consumer_types');

const WAITS_FOR = new Set([Code.UNKNOWN_TOPIC, Code.UNKNOWN_GROUP]); // until an operator defines what is missing
const VERDICTS = new Set([Verdict.DONE, Verdict.RETRY, Verdict.REJECT]);

/** One run. A timer acknowledges and extends while handlers work. */
class RunLoop {
  constructor(consumer, options, handle, how) {
    Object.assign(this, { _consumer: consumer, _options: options, _handle: handle, _how: how, _signal: how.signal });
    this._held = new HeldLeases(options.extendMsMax, how.workers);
    this._running = new Set();
    Object.assign(this, { _servedAt: performance.now(), _failures: 0 });
  }

  async run() {
    const ended = new AbortController();
    const keeper = this._keep(ended.signal);
    try {
      while (!this._signal?.aborted) {
        this._start();
        if (this._running.size && (this._running.size === this._how.workers || this._held.waiting.length)) {
          await Promise.race(this._running);
        } else {
          await this._pull();
        }
      }
    } finally {
      await Promise.all(this._running);
      ended.abort();
      await keeper;
      for (const delivery of this._held.release()) this._consumer._acknowledge(delivery, Verdict.RELEASE);
    }
    await this._consumer.flush();
  }

  /** Start handlers for what waits, as far as workers are free. */
  _start() {
    for (let held; !this._signal?.aborted && (held = this._held.begin(performance.now()));) {
      const running = this._work(held).finally(() => this._running.delete(running));
      this._running.add(running);
    }
  }

  async _work(held) {
    const began = performance.now();
    let verdict, reason;
    try {
      verdict = (await this._handle(held.delivery)) ?? Verdict.DONE;
      if (!VERDICTS.has(verdict))
        throw new TypeError(`the handler returned ${verdict}: use DONE, RETRY, REJECT or nothing`);
    } catch (error) {
      verdict = Verdict.RETRY;
      reason = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    }
    const tookMs = performance.now() - began;
    this._held.end(held, tookMs); // with the acknowledgement in one step, so that no extension follows it
    this._consumer._acknowledge(held.delivery, verdict, null, reason);
    this._options.metrics.handled?.(held.delivery, verdict, tookMs);
  }

  async _pull() {
    // Beside handlers a pull waits for a sixth of a lease at most: the next one has to carry their extensions.
    const waitMs = this._running.size ? Math.min(this._how.waitMs, this._held.lookMs) : this._how.waitMs;
    const maxMessages = this._held.wanted(this._how.maxMessages);
    try {
      const response = await this._consumer._pull({ maxMessages, waitMs, held: this._held, signal: this._signal });
      if (response === null) return;
      if (this._failures)
        this._options.tell(`pulling again after ${Math.round((performance.now() - this._servedAt) / 1000)} s`);
      Object.assign(this, { _failures: 0, _servedAt: performance.now() });
      const leaseMs = this._options.invisibleMs || response.invisible_ms || LEASE_UNKNOWN_MS;
      this._held.pulled(response.deliveries.map(deliveryOf), leaseMs, performance.now());
    } catch (error) {
      await this._failed(error);
    }
  }

  /** Tell of the outage and pause. Throws the error if waiting cannot help, or was in vain for too long. */
  async _failed(error) {
    if (!(error instanceof PullError)) throw error;
    if (actionOf(error.code) === Action.REFUSED && !WAITS_FOR.has(error.code)) throw error;
    const { outageMsMax } = this._options;
    if (outageMsMax > 0 && performance.now() - this._servedAt >= outageMsMax) throw error;
    this._failures += 1;
    if (this._failures === 1) this._options.tell(`no pull succeeds, trying again: ${error.message}`);
    await sleep(backoffMs(this._failures, this._options), this._signal);
  }

  /** Deliver acknowledgements and extensions in time, until `ended` is aborted. */
  async _keep(ended) {
    for (;;) {
      await sleep(this._held.lookMs, ended);
      if (ended.aborted) return;
      if (!this._consumer._isAckDue(this._held.lookMs) && !this._held.isDue(performance.now())) continue;
      try {
        await this._consumer._pull({ maxMessages: 0, waitMs: 0, held: this._held, signal: ended });
      } catch (error) {
        if (!(error instanceof PenstockError)) throw error; // else the next look or pull tries again
      }
    }
  }
}

function runLoop(consumer, options, handle, how) {
  return new RunLoop(consumer, options, handle, how).run();
}

module.exports = { runLoop };
