// An application with an unmodified @sentry/node: reads a step a line, prints a line with what the SDK returned.
import { createInterface } from 'node:readline';
import * as Sentry from '@sentry/node';
import { begin } from './steps.js';

const run = begin(Sentry, process.env.DSN, process.env.TRACE_LIFECYCLE);
for await (const line of createInterface({ input: process.stdin }))
  console.log(JSON.stringify(await run(JSON.parse(line))));
