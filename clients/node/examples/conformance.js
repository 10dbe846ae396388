'use strict';
/** Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/. */

const { readFileSync } = require('node:fs');
const { createInterface } = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');

const { BatchingProducer, ClosedError, Consumer, ContractError, FullError } = require('..');
const { Producer, PullError, SendError, Verdict } = require('..');
const { run } = require('./arguments');

let producer, consumer, topic, pulled, told;

const messageOf = ({ body, times = 1, delay_ms: delayMs, ...fields }) => ({
  topic,
  body: Buffer.concat(Array(times).fill(Buffer.from(body, 'hex'))),
  delayMs,
  ...fields,
});

const steps = {
  async open(asked) {
    const tls = asked.tls_ca ? { ca: readFileSync(asked.tls_ca) } : null;
    const times = { deadlineMs: asked.deadline_ms, callTimeoutMs: asked.call_timeout_ms };
    told = [0, 0, 0, 0]; // calls, failed calls, sent messages, handled messages
    const metrics = {
      call: (method, endpoint, tookMs, failure) => {
        told[0] += 1;
        told[1] += failure ? 1 : 0;
      },
      sent: () => (told[2] += 1),
      handled: () => (told[3] += 1),
    };
    const options = { ...times, framed: !asked.buffered, tls, metrics };
    const who = [asked.app, asked.key_id, asked.secret];
    topic = asked.topic;
    producer = new Producer(asked.producer, ...who, options);
    const invisibleMs = asked.lease_ms || null;
    consumer = new Consumer(asked.consumer, ...who, asked.group, [topic], { ...options, invisibleMs });
    return {};
  },
  async send(asked) {
    const how = asked.reply_wait_ms ? { replyWaitMs: asked.reply_wait_ms } : {};
    const results = await producer.sendAll(asked.messages.map(messageOf), how);
    const shown = ({ code, id, queue = null, offset = null, attempts, reply, error: reason }) => {
      return { code, id, queue, offset, attempts, reply: reply ? reply.body.toString('hex') : null, reason };
    };
    return { results: results.map(shown) };
  },
  async batch(asked) {
    const { linger_ms: lingerMs, bytes, count: messages, bytes_max: bytesMax } = asked;
    const batching = new BatchingProducer(producer, { lingerMs, bytes, messages, bytesMax });
    const taken = [];
    for (const each of asked.messages) {
      if (asked.full_wait_ms) await batching.room();
      taken.push(batching.send(messageOf(each)).catch((error) => error));
    }
    if (asked.flush) await batching.flush();
    if (asked.close_ms >= 0) await batching.close(asked.close_ms);
    const shown = (outcome) => {
      if (outcome instanceof FullError) return { error: 'full' };
      if (outcome instanceof ClosedError) return { error: 'closed' };
      if (outcome instanceof Error && !(outcome instanceof SendError)) throw outcome;
      const { code, id, attempts } = outcome.result ?? outcome;
      return { code, id, attempts };
    };
    const results = (await Promise.all(taken)).map(shown);
    await batching.close();
    return { results };
  },
  async pull(asked) {
    pulled = await consumer.pull({ maxMessages: asked.max, waitMs: asked.wait_ms });
    const shown = ({ message: { body, key = null, tag = null, properties = null }, id, attempt, replyToken }) => {
      return { body: body.toString('hex'), key, tag, properties, id, attempt, asked: replyToken !== undefined };
    };
    return { deliveries: pulled.map(shown) };
  },
  async settle({ index, verdict, delay_ms: delayMs, reason }) {
    const delivery = pulled[index];
    if (verdict === 'done') consumer.done(delivery);
    else if (verdict === 'retry') consumer.retry(delivery, { delayMs, reason });
    else if (verdict === 'reject') consumer.reject(delivery, reason);
    else consumer.extend(delivery, delayMs);
    return {};
  },
  async reply({ index, body }) {
    await producer.reply(pulled[index], Buffer.from(body, 'hex'));
    return {};
  },
  async run({ count, workers, verdict, handle_ms: handleMs }) {
    const handled = [];
    const stop = new AbortController();
    let running = 0;
    let busiest = 0; // the most handlers at a time
    const handle = async ({ message }) => {
      busiest = Math.max(busiest, ++running);
      await sleep(handleMs);
      running -= 1;
      if (handled.push(message.body.toString('hex')) === count) stop.abort();
      if (verdict === 'fail') throw new Error('the handler failed');
      if (verdict === 'fault') throw null;
      return verdict === 'reject' ? Verdict.REJECT : Verdict.DONE;
    };
    await consumer.run(handle, { signal: stop.signal, workers });
    return { handled, busiest };
  },
  async flush() {
    await consumer.flush();
    return { refused: consumer.acksRefused, told };
  },
  async close() {
    await producer.close();
    await consumer.close();
    return {};
  },
};

run(async () => {
  for await (const line of createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    const answer = await steps[asked.do](asked).catch((error) => {
      if (error instanceof ContractError) return { code: -1 };
      if (!(error instanceof PullError || error instanceof SendError)) throw error;
      return { code: error.code };
    });
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
});
