'use strict';
/** Prints messages until none has come for --wait-ms, and acknowledges them. */

const { Consumer } = require('..');
const { given, options, run, who } = require('./arguments');

run(async () => {
  const values = given(['group'], { 'wait-ms': '1000' });
  const consumer = new Consumer(...who(values), values.group, [values.topic], options(values));
  for (let pulled; (pulled = await consumer.pull({ waitMs: values['wait-ms'] })).length;) {
    for (const delivery of pulled) {
      const { queue, offset, attempt, message } = delivery;
      process.stdout.write(`${queue}\t${offset}\t${attempt}\t${message.key ?? ''}\t${message.body}\n`);
      consumer.done(delivery);
    }
  }
  await consumer.close();
});
