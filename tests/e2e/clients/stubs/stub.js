'use strict';
/**
 * Sends three messages, pulls and acknowledges them: generated code and Apache Thrift's Node library, nothing of ours.
 *
 *     stub.js framed|buffered PRODUCER CONSUMER APP KEY_ID TOPIC GROUP        (secret: PENSTOCK_SECRET)
 */

const assert = require('node:assert/strict');
const { createHmac } = require('node:crypto');

const HOME = '../../../../clients/node';
const thrift = require(`${HOME}/node_modules/thrift`);
const { Ack, PullRequest } = require(`${HOME}/gen/consumer_types`);
const { Credential, Message } = require(`${HOME}/gen/message_types`);
const { SendRequest } = require(`${HOME}/gen/producer_types`);

const BODIES = [Buffer.from('one'), Buffer.from([0, 255, 10, 254]), Buffer.alloc(0)];
const [transport, producerAt, consumerAt, app, keyId, topic, group] = process.argv.slice(2);

function connect(service, at) {
  const [host, port] = at.split(':');
  const layer = transport === 'framed' ? thrift.TFramedTransport : thrift.TBufferedTransport;
  const connection = thrift.createConnection(host, Number(port), {
    transport: layer,
    protocol: thrift.TBinaryProtocol,
  });
  connection.on('error', (error) => {
    throw error;
  });
  return [connection, thrift.createClient(service, connection)];
}

async function main() {
  const nowMs = Date.now();
  const signed = `penstock/1\n${app}\n${keyId}\n${nowMs}`;
  const signature = createHmac('sha256', process.env.PENSTOCK_SECRET).update(signed).digest();
  const credential = new Credential({ app, key_id: keyId, issued_at_ms: nowMs, signature });

  const [sending, sender] = connect(require(`${HOME}/gen/Producer`), producerAt);
  const messages = BODIES.map(
    (body, number) => new Message({ topic, key: 'k', body, properties: { number: `${number}` } }),
  );
  messages[2].id = `${topic}-third`;
  const { results } = await sender.send(new SendRequest({ credential, messages }));
  assert.deepEqual(
    results.map((each) => each.code),
    [0, 0, 0],
  );
  assert.equal(new Set(results.map((each) => each.id)).size, 3);
  assert.equal(results[2].id, messages[2].id);
  assert.equal(new Set(results.map((each) => each.queue)).size, 1);
  assert.deepEqual(
    results.map((each) => Number(each.offset)),
    [0, 1, 2],
  );

  const [receiving, receiver] = connect(require(`${HOME}/gen/Consumer`), consumerAt);
  const who = { credential, group, topics: [topic] };
  const pulled = [];
  while (pulled.length < 3) {
    const response = await receiver.pull(new PullRequest({ ...who, max_messages: 10, wait_ms: 10_000 }));
    assert.ok(response.code === 0 && response.deliveries.length, `pull: code ${response.code}, ${response.error}`);
    pulled.push(...response.deliveries);
  }
  pulled.forEach((delivery, number) => {
    const { message } = delivery;
    const { id, queue, offset } = results[number];
    assert.deepEqual([delivery.id, delivery.queue, Number(delivery.offset)], [id, queue, Number(offset)]);
    assert.ok(delivery.attempt === 1 && Math.abs(Number(delivery.stored_at_ms) - nowMs) < 60_000);
    assert.deepEqual([message.topic, message.key, { ...message.properties }], [topic, 'k', { number: `${number}` }]);
    assert.ok(BODIES[number].equals(message.body ?? Buffer.alloc(0)), `body of ${number}`);
  });

  const acks = pulled.map(({ receipt }) => new Ack({ receipt }));
  const last = await receiver.pull(new PullRequest({ ...who, max_messages: 0, acks }));
  assert.deepEqual([last.code, ...last.ack_results.map((each) => each.code)], [0, 0, 0, 0]);
  assert.equal(last.deliveries.length, 0);
  sending.end();
  receiving.end();
  console.log('ok');
}

main().catch((error) => {
  console.error(`wrong: ${error.message}`);
  process.exit(1);
});
