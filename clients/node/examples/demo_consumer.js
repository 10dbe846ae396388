'use strict';
/**
 * Pulls until --count different lines have come, or SIGTERM; prints one line per delivery and acknowledges all.
 *
 * A line is: line number, key, queue, offset, attempt, SHA-256 of the body in hex; separated by tabs. A message that is
 * delivered twice is printed twice and counted once.
 */

const { createHash } = require('node:crypto');

const { Consumer } = require('..');
const { given, options, run, stopSignal, who } = require('./arguments');

run(async () => {
  const values = given(['group', 'count'], { max: '256' });
  const stop = stopSignal();
  const consumer = new Consumer(...who(values), values.group, [values.topic], options(values));
  const seen = new Set();
  while (seen.size < values.count && !stop.aborted) {
    const pulled = await consumer.pull({ maxMessages: values.max, waitMs: 1_000 });
    const lines = pulled.map((delivery) => {
      const { message, queue, offset, attempt } = delivery;
      const line = message.properties?.line ?? '';
      seen.add(line);
      consumer.done(delivery);
      return [
        line,
        message.key ?? '',
        queue,
        offset,
        attempt,
        createHash('sha256').update(message.body).digest('hex'),
      ].join('\t');
    });
    if (lines.length) process.stdout.write(`${lines.join('\n')}\n`);
  }
  await consumer.close();
});
