'use strict';
/** Sends each argument as one message. */

const { Producer } = require('..');
const { given, options, run, who } = require('./arguments');

run(async () => {
  const values = given([], { key: undefined });
  const producer = new Producer(...who(values), options(values));
  for (const body of values.rest) {
    const result = await producer.send({ topic: values.topic, key: values.key, body });
    process.stdout.write(`${result.id}\t${result.queue}\t${result.offset}\n`);
  }
  await producer.close();
});
