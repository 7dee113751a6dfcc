import { fork } from 'node:child_process';
import { it } from 'vitest';
import { encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { envelope, Harness, hexId, item } from './harness.ts';
const CLI = new URL('../../dist/cli.js', import.meta.url);
it('bench', async () => {
  const harness = await Harness.start({ maxBytes: 1e9 });
  const text = JSON.stringify({ message: 'x'.repeat(300), exception: { values: [{ type: 'Error', stacktrace: { frames: Array.from({length: 12}, (_, i) => ({ filename: `app/${i}.js`, lineno: i, function: 'fn' + i, in_app: true, context_line: '  return value;' })) } }] } });
  const total = 60_000, per = 128; let n = 0;
  while (n < total) { const e = []; for (let i = 0; i < per; i++) e.push(encodeEntry(envelope([item('event', text)], { eventId: hexId(n++) }))); await harness.publishBytes(encodeFrame(e)); }
  const child = fork(CLI, ['processor'], { env: { ...process.env, ...harness.environment() }, execArgv: ['--cpu-prof', '--cpu-prof-dir=/tmp/prof'], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  await harness.drained(60_000);
  const gone = new Promise((r) => child.once('exit', r)); child.kill('SIGTERM'); await gone;
  await harness.close();
}, 120_000);
