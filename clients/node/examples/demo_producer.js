'use strict';
/**
 * Streams a file, one message per line, and reports progress as JSON lines.
 *
 * Line i has key "k<i mod N>", property line=i, and the line's bytes with its newline as body.
 */

const { createReadStream } = require('node:fs');

const { Producer } = require('..');
const { given, options, run, who } = require('./arguments');

/** Counts, and prints once per second and at the end. */
class Report {
  constructor() {
    this.startedMs = this.printedMs = performance.now();
    Object.assign(this, { sent: 0, callsMs: [] });
  }

  called(messages, tookMs, retried) {
    this.sent += messages;
    this.callsMs.push(tookMs);
    if (performance.now() - this.printedMs >= 1_000) this.print(retried);
  }

  print(retried) {
    this.printedMs = performance.now();
    const ordered = Float64Array.from(this.callsMs.length ? this.callsMs : [0]).sort();
    const at = (share) => Number(ordered[Math.floor(ordered.length * share)].toFixed(3));
    const seconds = Number(((this.printedMs - this.startedMs) / 1000).toFixed(3));
    process.stdout.write(
      `${JSON.stringify({ sent: this.sent, retried, seconds, p50_ms: at(0.5), p99_ms: at(0.99) })}\n`,
    );
  }
}

/** The lines of a file as bytes, each with its newline. */
async function* linesOf(path) {
  let parts = [];
  for await (const chunk of createReadStream(path)) {
    let from = 0;
    for (let end; (end = chunk.indexOf(10, from)) >= 0; from = end + 1) {
      yield Buffer.concat([...parts, chunk.subarray(from, end + 1)]);
      parts = [];
    }
    if (from < chunk.length) parts.push(chunk.subarray(from));
  }
  if (parts.length) yield Buffer.concat(parts);
}

async function* batchesOf(values) {
  let batch = [];
  let number = 0;
  for await (const body of linesOf(values.file)) {
    batch.push({ topic: values.topic, key: `k${number % values.keys}`, body, properties: { line: String(number) } });
    number += 1;
    if (batch.length === values.batch) {
      yield batch;
      batch = [];
    }
  }
  if (batch.length) yield batch;
}

run(async () => {
  const values = given(['file'], { keys: '16', batch: '100' });
  const producer = new Producer(...who(values), options(values));
  const report = new Report();
  for await (const batch of batchesOf(values)) {
    const began = performance.now();
    const results = await producer.sendAll(batch);
    const lost = results.filter((result) => !result.ok);
    report.called(results.length - lost.length, performance.now() - began, producer.retried);
    if (lost.length) {
      process.stderr.write(`${lost.length} not acknowledged; the first: code ${lost[0].code}: ${lost[0].error}\n`);
      process.exitCode = 1;
      break;
    }
  }
  report.print(producer.retried);
  await producer.close();
});
