'use strict';
/** Asks with each argument and prints the replies. */

const { Producer } = require('..');
const { given, options, run, who } = require('./arguments');

run(async () => {
  const values = given([], { 'wait-ms': '5000' });
  const producer = new Producer(...who(values), options(values));
  for (const body of values.rest) {
    const reply = await producer.request({ topic: values.topic, body }, values['wait-ms']);
    process.stdout.write(`${reply.body}\n`);
  }
  await producer.close();
});
