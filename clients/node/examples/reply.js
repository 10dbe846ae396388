'use strict';
/** Answers requests with "re: " and what they asked, until none has come for --wait-ms. */

const { Consumer, Producer } = require('..');
const { given, options, run, who } = require('./arguments');

run(async () => {
  const values = given(['group', 'reply-endpoints'], { 'wait-ms': '1000' });
  const consumer = new Consumer(...who(values), values.group, [values.topic], options(values));
  const producer = new Producer(values['reply-endpoints'], ...who(values).slice(1), options(values));
  for (let pulled; (pulled = await consumer.pull({ waitMs: values['wait-ms'] })).length;) {
    for (const delivery of pulled) {
      if (delivery.replyToken) {
        try {
          await producer.reply(delivery, `re: ${delivery.message.body}`);
        } catch (error) {
          process.stderr.write(`${error.message}\n`); // mostly because the caller no longer waits
        }
      }
      consumer.done(delivery);
    }
  }
  await consumer.close();
  await producer.close();
});
