// An application with an unmodified @sentry/deno under Deno: reads a step a line, prints a line with what the SDK returned.
import process from 'node:process';
import { createInterface } from 'node:readline';
import * as Sentry from '@sentry/deno';
import { begin } from './steps.js';

const run = begin(Sentry, process.env.DSN);
for await (const line of createInterface({ input: process.stdin }))
  console.log(JSON.stringify(await run(JSON.parse(line))));
