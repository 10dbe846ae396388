'use strict';
/** Connections to several proxies. A proxy that fails is set aside for a growing pause; the others are used in turn. */

const net = require('node:net');
const tls = require('node:tls');
const thrift = require('thrift');

const { CallFailed, ClosedError, ContractError } = require('./errors');
const { backoffMs } = require('./options');

// Until a connection has shown a valid credential, proxies take frames of 64 KiB at most. A larger first call is
// preceded by a small one.
const UNTRUSTED_CALL_BYTES_MAX = 48 * 1024;
// A proxy answers by the call's timeout, which may be the deadline; its answer needs a moment to come back.
const ANSWER_MARGIN_MS = 500;

/** One socket with one call at a time. After a failure it is closed: a late answer would go to the next call. */
class Connection {
  constructor(endpoint, service, options) {
    const { host, port } = endpoint;
    const name = net.isIP(host) ? {} : { servername: host };
    this._socket = options.tls ? tls.connect({ ...name, ...options.tls, host, port }) : net.connect({ host, port });
    const transport = options.framed ? thrift.TFramedTransport : thrift.TBufferedTransport;
    this._wire = new thrift.Connection(this._socket, { transport, protocol: thrift.TBinaryProtocol });
    this._client = thrift.createClient(service, this._wire);
    this._wire.on('error', (error) => this._end(error));
    this._wire.on('close', () => this._end(new Error('the proxy closed the connection')));
    Object.assign(this, { isOpen: true, trusted: false, usedAt: performance.now(), _fail: null, _cause: null });
  }

  connected(timeoutMs) {
    const connected = new Promise((resolve) => this._wire.once('connect', resolve));
    return this._within(timeoutMs, connected, 'no connection');
  }

  async call(method, request, timeoutMs) {
    const answer = await this._within(timeoutMs, this._client[method](request), 'no answer');
    Object.assign(this, { trusted: true, usedAt: performance.now() });
    return answer;
  }

  close() {
    this._end(new Error('closed'));
  }

  /** The outcome, or the error that ends this connection first. */
  async _within(timeoutMs, outcome, what) {
    const timer = setTimeout(() => this._end(new Error(`${what} within ${Math.ceil(timeoutMs)} ms`)), timeoutMs);
    try {
      return await new Promise((resolve, reject) => {
        this._fail = reject;
        outcome.then(resolve, reject);
        if (!this.isOpen) reject(this._cause);
      });
    } finally {
      clearTimeout(timer);
      this._fail = null;
    }
  }

  _end(error) {
    this.isOpen = false;
    this._cause ??= error;
    this._fail?.(error);
    this._socket.destroy();
  }
}

class Pool {
  constructor(endpoints, service, options) {
    this._endpoints = endpoints.map((each) => ({ ...each, idle: [], isForeign: false, failures: 0, asideUntil: 0 }));
    this._service = service;
    this._options = options;
    this._turn = Math.floor(Math.random() * endpoints.length);
    this.closed = false;
  }

  /** The time when the first proxy may be tried again; in the past when one may be tried now. */
  usableAt() {
    return Math.min(...this._endpoints.map((each) => each.asideUntil));
  }

  /**
   * One attempt at the next usable proxy; resolves to `[answer, endpoint]`. `hello` is an empty request with the same
   * credential, sent ahead when `size` bytes are too much for a new connection. `stay` is the proxy to use unless it is
   * set aside. `timeoutMs` is for an answer; a connection is made by the deadline, and the answer is here
   * ANSWER_MARGIN_MS later. Rejects with CallFailed (the proxy has been set aside), ContractError (that, and all
   * endpoints have answered last what is none of this contract) or ClosedError.
   */
  async call(method, request, timeoutMs, deadline, { size = 0, hello, stay } = {}) {
    if (this.closed) throw new ClosedError();
    const endpoint = this._choose(stay);
    const place = `${endpoint.host}:${endpoint.port}`;
    const began = performance.now();
    let connection = this._idle(endpoint);
    const leftMs = () => Math.min(timeoutMs, deadline + ANSWER_MARGIN_MS - performance.now());
    let sent = false;
    let failure = null;
    try {
      if (!connection) {
        connection = new Connection(endpoint, this._service, this._options);
        await connection.connected(Math.min(this._options.connectTimeoutMs, deadline - performance.now()));
      }
      if (size > UNTRUSTED_CALL_BYTES_MAX && !connection.trusted) await connection.call(method, hello, leftMs());
      sent = true;
      const answer = await connection.call(method, request, leftMs());
      this._giveBack(endpoint, connection);
      return [answer, endpoint];
    } catch (error) {
      failure = error;
      connection?.close();
      this.setAside(endpoint);
      const { TApplicationException, TApplicationExceptionType: type } = thrift.Thrift;
      if (error instanceof TApplicationException) {
        // These two answer a call of another service, and one that is refused unread.
        sent &&= error.type !== type.UNKNOWN_METHOD && error.type !== type.PROTOCOL_ERROR;
        const reason = `${place} refuses \`${method}\`: ${error.message || `exception ${error.type}`}`;
        if (error.type !== type.INTERNAL_ERROR && this._allForeign(endpoint)) throw new ContractError(reason, sent);
        throw new CallFailed(reason, sent);
      }
      throw new CallFailed(`${place}: ${error.message || error.code || error.name}`, sent);
    } finally {
      this._options.metrics.call?.(method, place, performance.now() - began, failure);
    }
  }

  /** Prefer other proxies for a pause that grows with each failure in a row. */
  setAside(endpoint) {
    endpoint.isForeign = false;
    endpoint.failures += 1;
    endpoint.asideUntil = performance.now() + backoffMs(endpoint.failures, this._options);
    for (const stale of endpoint.idle.splice(0)) stale.close();
  }

  /** Reset the failures of a proxy that answered. */
  praise(endpoint) {
    Object.assign(endpoint, { failures: 0, asideUntil: 0 });
  }

  close() {
    this.closed = true;
    for (const endpoint of this._endpoints) for (const idle of endpoint.idle.splice(0)) idle.close();
  }

  /** Notes what a proxy is that was set aside. Where all are, none waits: the next call ends as soon. */
  _allForeign(endpoint) {
    endpoint.isForeign = true;
    if (!this._endpoints.every((each) => each.isForeign)) return false;
    for (const each of this._endpoints) Object.assign(each, { isForeign: false, failures: 0, asideUntil: 0 });
    return true;
  }

  _choose(stay) {
    const now = performance.now();
    if (stay && stay.asideUntil <= now) return stay;
    this._turn += 1;
    const count = this._endpoints.length;
    const turned = this._endpoints.map((_, step) => this._endpoints[(this._turn + step) % count]);
    return turned.reduce((best, each) =>
      Math.max(each.asideUntil, now) < Math.max(best.asideUntil, now) ? each : best,
    );
  }

  _idle(endpoint) {
    const newest = performance.now() - this._options.idleMsMax;
    for (let idle = endpoint.idle.pop(); idle; idle = endpoint.idle.pop()) {
      if (idle.isOpen && idle.usedAt >= newest) return idle;
      idle.close();
    }
    return null;
  }

  _giveBack(endpoint, connection) {
    endpoint.isForeign = false;
    if (this.closed || endpoint.idle.length >= this._options.idleConnectionsMax) connection.close();
    else endpoint.idle.push(connection);
  }
}

module.exports = { ANSWER_MARGIN_MS, Pool };
