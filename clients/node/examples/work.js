'use strict';
/**
 * Handles messages by `Consumer.run`, each for --handle-ms, until SIGTERM; prints one line per handled message.
 *
 * A line is: topic, queue, offset, attempt; separated by tabs. The last line is a JSON object of counts.
 */

const { setTimeout: sleep } = require('node:timers/promises');

const { Consumer } = require('..');
const { given, options, run, stopSignal, who } = require('./arguments');

run(async () => {
  const optional = { 'handle-ms': '0', 'lease-ms': undefined, 'outage-ms': '600000', workers: '1' };
  const values = given(['group'], optional);
  const more = { outageMsMax: values['outage-ms'], invisibleMs: values['lease-ms'] };
  const consumer = new Consumer(...who(values), values.group, values.topic.split(','), options(values, more));
  let handled = 0;
  let running = 0;
  let busiest = 0; // the most handlers at a time
  const handle = async ({ message, queue, offset, attempt }) => {
    busiest = Math.max(busiest, ++running);
    await sleep(values['handle-ms']);
    running -= 1;
    process.stdout.write(`${message.topic}\t${queue}\t${offset}\t${attempt}\n`);
    handled += 1;
  };
  await consumer.run(handle, { signal: stopSignal(), waitMs: 1_000, workers: values.workers });
  await consumer.close();
  process.stdout.write(`${JSON.stringify({ handled, refused: consumer.acksRefused, busiest })}\n`);
});
