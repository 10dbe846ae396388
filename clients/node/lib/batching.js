'use strict';
/** Collects single messages into calls. */

const { ClosedError, FullError, SendError } = require('./errors');
const { checkMessage, newId, sizeOf } = require('./message');
const { CALL_BYTES_MAX, CALL_MESSAGES_MAX } = require('./producer');

const DEFAULTS = { lingerMs: 5, bytes: 256 << 10, messages: CALL_MESSAGES_MAX, bytesMax: 32 << 20 };

class BatchingProducer {
  constructor(producer, how = {}) {
    for (const [name, value] of Object.entries(how)) {
      if (!(name in DEFAULTS))
        throw new TypeError(`batching ${name}: unknown: use one of ${Object.keys(DEFAULTS).join(', ')}`);
      if (!(value >= 0)) throw new TypeError(`batching ${name}: invalid: use a number, from 0`);
    }
    Object.assign(this, { _producer: producer, _how: { ...DEFAULTS, ...how }, _timer: null, _waiters: new Set() });
    Object.assign(this, { _waiting: [], _waitingBytes: 0, _bytes: 0 }); // _bytes: of what waits or is on its way
    Object.assign(this, { _taken: 0, _answered: 0, _flushTo: 0, _isSending: false, _isClosed: false });
  }

  async send(message) {
    checkMessage(message);
    if (this._isClosed) throw new ClosedError();
    if (this._bytes >= this._how.bytesMax) throw new FullError(`${this._bytes} bytes wait: await room()`);
    message.id ||= newId();
    const size = sizeOf(message);
    const outcome = new Promise((resolve, reject) => {
      this._waiting.push({ message, size, since: performance.now(), resolve, reject });
    });
    this._taken += 1;
    this._bytes += size;
    this._waitingBytes += size;
    this._wake();
    return outcome;
  }

  room() {
    return this._until(() => this._isClosed || this._bytes < this._how.bytesMax);
  }

  flush() {
    const last = (this._flushTo = this._taken);
    this._wake();
    return this._until(() => this._answered >= last);
  }

  async close(deadlineMs = 10_000) {
    this._isClosed = true;
    this._wake();
    await this._until(() => this._answered === this._taken, deadlineMs);
    clearTimeout(this._timer);
    const left = this._waiting.splice(0);
    this._answered += left.length;
    for (const each of left) each.reject(new ClosedError());
    this._tell();
  }

  /** Makes a call when it is time, else sets the timer for it. */
  _wake() {
    if (this._isSending || !this._waiting.length) return;
    const { lingerMs, bytes, messages } = this._how;
    const leftMs = this._waiting[0].since + lingerMs - performance.now();
    const isEnough = this._waitingBytes >= bytes || this._waiting.length >= messages;
    if (isEnough || this._isClosed || this._flushTo > this._answered || leftMs <= 0) {
      clearTimeout(this._timer);
      this._timer = null;
      this._isSending = true;
      this._send(this._take());
    } else {
      this._timer ??= setTimeout(() => {
        this._timer = null;
        this._wake();
      }, leftMs);
    }
  }

  /** What fits into one call, at least one message. */
  _take() {
    let count = 0;
    let size = 0;
    for (const each of this._waiting) {
      if (count && (count >= CALL_MESSAGES_MAX || size + each.size > CALL_BYTES_MAX)) break;
      count += 1;
      size += each.size;
    }
    this._waitingBytes -= size;
    return this._waiting.splice(0, count);
  }

  async _send(batch) {
    try {
      const results = await this._producer.sendAll(batch.map((each) => each.message));
      batch.forEach((each, index) => {
        if (results[index].ok) each.resolve(results[index]);
        else each.reject(new SendError(results[index]));
      });
    } catch (error) {
      for (const each of batch) each.reject(error);
    }
    for (const each of batch) this._bytes -= each.size;
    this._answered += batch.length;
    this._isSending = false;
    this._tell();
    this._wake();
  }

  /** Resolves when `isSo`, or after so long. */
  _until(isSo, ms) {
    return new Promise((resolve) => {
      const waiter = () => {
        if (!isSo()) return;
        clearTimeout(timer);
        this._waiters.delete(waiter);
        resolve();
      };
      const timer = ms === undefined ? null : setTimeout(() => this._waiters.delete(waiter) && resolve(), ms);
      this._waiters.add(waiter);
      waiter();
    });
  }

  _tell() {
    for (const waiter of [...this._waiters]) waiter();
  }
}

module.exports = { BatchingProducer };
