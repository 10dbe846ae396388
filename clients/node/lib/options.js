'use strict';
/** Options, endpoints, back-off and the credential. The options' meanings are in index.d.ts. */

const { createHmac } = require('node:crypto');

const { Code } = require('./codes');
const { Credential } = require('../gen/message_types');

const DEFAULTS = Object.freeze({
  deadlineMs: 10_000,
  callTimeoutMs: 3_000,
  connectTimeoutMs: 1_000,
  framed: true,
  tls: null,
  backoffFirstMs: 50,
  backoffMaxMs: 2_000,
  credentialMs: 60_000,
  idleConnectionsMax: 8,
  idleMsMax: 30_000,
  outageMsMax: 600_000,
  extendMsMax: 3_600_000,
  invisibleMs: null,
  tell: (sentence) => console.warn(`penstock: ${sentence}`),
  metrics: {},
});

/** Throws a TypeError that names an option that does not exist or has another type. */
function optionsOf(given = {}) {
  const open = new Set(['tls', 'invisibleMs']);
  for (const [name, value] of Object.entries(given)) {
    if (!(name in DEFAULTS))
      throw new TypeError(`option ${name}: unknown: use one of ${Object.keys(DEFAULTS).join(', ')}`);
    const kind = typeof DEFAULTS[name];
    const isBad = kind === 'number' ? !(value >= 0) : typeof value !== kind;
    if (value !== undefined && !open.has(name) && isBad)
      throw new TypeError(`option ${name}: invalid: use a ${kind}, from 0`);
  }
  const set = Object.entries(given).filter(([, value]) => value !== undefined);
  return Object.freeze({ ...DEFAULTS, ...Object.fromEntries(set) });
}

/** `'a:1,b:2'` or `['a:1', '[::1]:2']` as `[{host, port}]`. */
function parseEndpoints(endpoints) {
  const parts = typeof endpoints === 'string' ? endpoints.split(',') : [...endpoints];
  const parsed = parts
    .filter((part) => part.trim())
    .map((part) => {
      const [, host, port] = /^(.+):(\d{1,5})$/.exec(part.trim()) ?? [];
      if (!host || Number(port) > 65_535) throw new TypeError(`endpoint "${part}": invalid: use HOST:PORT`);
      return { host: host.replace(/^\[|\]$/g, ''), port: Number(port) };
    });
  if (!parsed.length) throw new TypeError('no endpoints: give at least one HOST:PORT');
  return parsed;
}

/** The pause after the n-th failure in a row, n from 1: a random point in the upper half of a doubling bound. */
function backoffMs(failures, options, chance = Math.random()) {
  const pause = Math.min(options.backoffMaxMs, options.backoffFirstMs * 2 ** Math.min(failures - 1, 30));
  return pause * (0.5 + chance / 2);
}

/**
 * The pause after a refusal: what the proxy told or the back-off, whichever is longer. At a rate limit the proxy has
 * promised a slot, which a longer pause would miss.
 */
function pauseMs(code, toldMs, backoff) {
  return toldMs && code === Code.RATE_LIMITED ? toldMs : Math.max(toldMs ?? 0, backoff);
}

/** Mints the credential and keeps it for a while, as the proxies cache their verdict by its bytes. */
class CredentialMint {
  constructor(app, keyId, secret, reuseMs) {
    for (const [name, value] of Object.entries({ app, keyId, secret })) {
      if (!value?.length) throw new TypeError(`${name}: missing: use the application's`);
    }
    Object.assign(this, { _app: app, _keyId: keyId, _secret: secret, _reuseMs: reuseMs, _minted: null, _mintedMs: 0 });
  }

  credential() {
    const nowMs = Date.now();
    const age = nowMs - this._mintedMs;
    if (!this._minted || age < 0 || age >= this._reuseMs) {
      const signed = `penstock/1\n${this._app}\n${this._keyId}\n${nowMs}`;
      const signature = createHmac('sha256', this._secret).update(signed).digest();
      this._minted = new Credential({ app: this._app, key_id: this._keyId, issued_at_ms: nowMs, signature });
      this._mintedMs = nowMs;
    }
    return this._minted;
  }
}

/** Resolves after a pause, or at once when `signal` is aborted. */
function sleep(ms, signal) {
  return new Promise((resolve) => {
    const ended = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', ended);
      resolve();
    };
    const timer = setTimeout(ended, ms);
    signal?.addEventListener('abort', ended);
    if (signal?.aborted) ended();
  });
}

module.exports = { CredentialMint, backoffMs, optionsOf, parseEndpoints, pauseMs, sleep };
