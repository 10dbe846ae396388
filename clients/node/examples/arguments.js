'use strict';
/** The command line that all example programs share. The secret comes from the environment, unseen by `ps`. */

const { readFileSync } = require('node:fs');
const { parseArgs } = require('node:util');

const COMMON = ['endpoints', 'app', 'key-id', 'topic'];

/** `required` and `optional` are the program's own options; the positional arguments are in `rest`. */
function given(required = [], optional = {}) {
  const text = { type: 'string' };
  const own = Object.fromEntries(
    [...COMMON, ...required, ...Object.keys(optional), 'tls-ca', 'deadline-ms'].map((name) => [name, text]),
  );
  let parsed;
  try {
    parsed = parseArgs({ options: { ...own, buffered: { type: 'boolean' } }, allowPositionals: true });
  } catch (error) {
    fail(error.message, 2);
  }
  const values = { 'deadline-ms': '30000', ...optional, ...parsed.values };
  for (const name of [...COMMON, ...required]) if (values[name] === undefined) fail(`--${name} is missing`, 2);
  for (const name of Object.keys(values)) {
    if (/-ms$|^(count|max|keys|batch|workers)$/.test(name) && values[name] !== undefined) {
      if (!/^\d+$/.test(values[name])) fail(`--${name} "${values[name]}": invalid: use a whole number`, 2);
      values[name] = Number(values[name]);
    }
  }
  return { ...values, rest: parsed.positionals };
}

/** Application, key id and secret, as the constructors take them. */
function who(values) {
  if (!process.env.PENSTOCK_SECRET) fail("set PENSTOCK_SECRET to the application's secret");
  return [values.endpoints, values.app, values['key-id'], process.env.PENSTOCK_SECRET];
}

function options(values, more = {}) {
  const tls = values['tls-ca'] ? { ca: readFileSync(values['tls-ca']) } : null;
  return { framed: !values.buffered, deadlineMs: values['deadline-ms'], tls, ...more };
}

/** An AbortSignal that SIGTERM and SIGINT abort. */
function stopSignal() {
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT']) process.on(name, () => stop.abort());
  return stop.signal;
}

function fail(reason, status = 1) {
  process.stderr.write(`${reason}\n`);
  process.exit(status);
}

/** Runs a program's main; an error ends the process with its message and code 1. */
function run(main) {
  main().catch((error) => fail(error.message));
}

module.exports = { fail, given, options, run, stopSignal, who };
