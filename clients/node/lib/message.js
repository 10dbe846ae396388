'use strict';
/** Messages and deliveries as plain objects, and their form in the contract. */

const { randomBytes } = require('node:crypto');

const { Message, Operation } = require('../gen/message_types');

const TEXTS = ['topic', 'key', 'tag', 'id'];
const TIMES = ['deliverAtMs', 'delayMs'];

/** Throws a TypeError that names the field and the rule; the limits of sizes and names are the proxy's to check. */
function checkMessage(message) {
  for (const name of TEXTS) {
    if (message[name] != null && typeof message[name] !== 'string')
      throw new TypeError(`message ${name}: use a string`);
  }
  if (!message.topic) throw new TypeError('message topic: missing');
  for (const name of TIMES) {
    if (message[name] != null && !Number.isSafeInteger(message[name]))
      throw new TypeError(`message ${name}: use a whole number`);
  }
  for (const name of ['body', 'replyTo']) {
    const bytes = message[name];
    if (bytes != null && typeof bytes !== 'string' && !(bytes instanceof Uint8Array)) {
      throw new TypeError(`message ${name}: use a string or a Buffer`);
    }
  }
  for (const [name, value] of Object.entries(message.properties ?? {})) {
    if (typeof value !== 'string') throw new TypeError(`message property ${name}: use a string`);
  }
}

function bufferOf(bytes) {
  return bytes == null ? null : Buffer.from(bytes);
}

function toContract(message) {
  return new Message({
    topic: message.topic,
    body: bufferOf(message.body),
    key: message.key,
    tag: message.tag,
    properties: message.properties,
    id: message.id,
    deliver_at_ms: message.deliverAtMs,
    delay_ms: message.delayMs,
    operation: message.cancel ? Operation.CANCEL : null,
    reply_to: bufferOf(message.replyTo),
  });
}

/** Unset fields are undefined, except the body, which is then empty. */
function fromContract(message) {
  return {
    topic: message.topic,
    body: message.body ?? Buffer.alloc(0),
    key: message.key ?? undefined,
    tag: message.tag ?? undefined,
    properties: message.properties ?? undefined,
    id: message.id ?? undefined,
    deliverAtMs: numberOf(message.deliver_at_ms),
    delayMs: numberOf(message.delay_ms),
  };
}

function deliveryOf(pulled) {
  return {
    message: fromContract(pulled.message),
    id: pulled.id,
    queue: pulled.queue,
    offset: numberOf(pulled.offset),
    attempt: pulled.attempt,
    storedAtMs: numberOf(pulled.stored_at_ms),
    replyToken: pulled.reply_token ?? undefined,
    replyByMs: numberOf(pulled.reply_by_ms),
    source: pulled.source ?? undefined,
    receipt: pulled.receipt,
  };
}

/** The contract's 64-bit integers are objects in JavaScript; all of ours are below 2^53. */
function numberOf(long) {
  return long == null ? undefined : Number(long);
}

function newId() {
  return randomBytes(16).toString('hex');
}

/** About how many bytes the message takes in a request. */
function sizeOf(message) {
  const properties = Object.entries(message.properties ?? {});
  const texts = properties.reduce((sum, [name, value]) => sum + 8 + 4 * (name.length + value.length), 0);
  const body = typeof message.body === 'string' ? 4 * message.body.length : (message.body?.length ?? 0);
  return 200 + message.topic.length + body + 4 * (message.key?.length ?? 0) + texts;
}

module.exports = { bufferOf, checkMessage, deliveryOf, fromContract, newId, numberOf, sizeOf, toContract };
