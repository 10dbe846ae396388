'use strict';
/** The deliveries that a run holds: which to handle next, which leases to extend, how many to ask for. No I/O. */

const LEASE_UNKNOWN_MS = 10_000; // assumed when neither the consumer names a lease time nor the proxy tells the group's
const LEASE_MIN_MS = 1_000; // what a lease has at least; assumed until the first answer

/**
 * Deliveries in the order of their pull, at most `workers` of them in handlers, and of one key at most one.
 *
 * A lease is extended once less than two thirds of it are left, and then all that have less than five sixths left go
 * with it. With a look each sixth of a lease nothing has less than half of its lease left, unless the extension fails.
 */
class HeldLeases {
  constructor(extendMsMax, workers = 1) {
    Object.assign(this, { leaseMs: LEASE_MIN_MS, waiting: [], busy: new Set() });
    Object.assign(this, { _extendMsMax: extendMsMax, _workers: workers, _handlingMs: null });
  }

  /** The interval of looks at what has to be extended or acknowledged. */
  get lookMs() {
    return this.leaseMs / 6;
  }

  /** The number of messages to ask for: what the free workers handle in a third of a lease, by the time so far. */
  wanted(most) {
    const each =
      this._handlingMs === null ? 1 : Math.max(1, Math.floor(this.leaseMs / 3 / Math.max(this._handlingMs, 1e-3)));
    return Math.max(1, Math.min(most, each * (this._workers - this.busy.size)));
  }

  pulled(deliveries, leaseMs, now) {
    this.leaseMs = leaseMs;
    for (const delivery of deliveries) this.waiting.push({ delivery, since: now, until: now + leaseMs, isLost: false });
  }

  /**
   * The next delivery to handle; null when there is none, no worker is free or those that wait have keys in handlers.
   * Those whose lease has ended are dropped, as others may have them by now.
   */
  begin(now) {
    if (this.busy.size >= this._workers) return null;
    this.waiting = this.waiting.filter((each) => !each.isLost && each.until > now);
    const keys = new Set([...this.busy].map(keyOf));
    const index = this.waiting.findIndex((each) => !keys.has(keyOf(each)));
    if (index < 0) return null;
    const [held] = this.waiting.splice(index, 1);
    this.busy.add(held);
    return held;
  }

  /** The handler has returned. */
  end(held, tookMs) {
    this.busy.delete(held);
    this._handlingMs = this._handlingMs === null ? tookMs : 0.75 * this._handlingMs + 0.25 * tookMs;
  }

  /** Whether a lease has to be extended now. */
  isDue(now) {
    return this._older((this.leaseMs * 2) / 3, now).length > 0;
  }

  toExtend(now) {
    return this._older((this.leaseMs * 5) / 6, now);
  }

  /** Let go of all that no handler has seen. */
  release() {
    return this.waiting
      .splice(0)
      .filter((each) => !each.isLost)
      .map((each) => each.delivery);
  }

  _older(leftMs, now) {
    const held = [...this.waiting, ...this.busy];
    return held.filter((each) => !each.isLost && each.until - now < leftMs && now - each.since < this._extendMsMax);
  }
}

/** Messages without a key have no order: each counts as a key of its own. */
function keyOf(held) {
  const { topic, key } = held.delivery.message;
  return key === undefined ? held : `${topic}\n${key}`;
}

module.exports = { HeldLeases, LEASE_UNKNOWN_MS };
