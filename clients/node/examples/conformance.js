'use strict';
/** Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/. */

const { readFileSync } = require('node:fs');
const { createInterface } = require('node:readline');

const { Consumer, Producer, PullError } = require('..');
const { run } = require('./arguments');

let producer, consumer, topic, pulled;

const steps = {
  async open(asked) {
    const tls = asked.tls_ca ? { ca: readFileSync(asked.tls_ca) } : null;
    const options = { deadlineMs: asked.deadline_ms, framed: !asked.buffered, tls };
    const who = [asked.app, asked.key_id, asked.secret];
    topic = asked.topic;
    producer = new Producer(asked.producer, ...who, options);
    consumer = new Consumer(asked.consumer, ...who, asked.group, [topic], options);
    return {};
  },
  async send(asked) {
    const results = await producer.sendAll(asked.messages.map((each) => ({ ...each, topic })));
    const shown = ({ code, id, queue = null, offset = null, attempts }) => ({ code, id, queue, offset, attempts });
    return { results: results.map(shown) };
  },
  async pull(asked) {
    pulled = await consumer.pull({ maxMessages: asked.max, waitMs: asked.wait_ms });
    const shown = ({ message, attempt }) => ({ body: String(message.body), key: message.key ?? null, attempt });
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
  async flush() {
    await consumer.flush();
    return { refused: consumer.acksRefused };
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
      if (!(error instanceof PullError)) throw error;
      return { code: error.code };
    });
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
});
