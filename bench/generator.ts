/**
 * `npm run bench -- generator`: what a request costs the load generator, on a bare server. The
 * server and `sluice load` are processes of their own, as a user has them.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { freePort } from '../src/commands/dev/servers.ts';
import { startFresh } from './fresh.ts';
import { OWN_DIST } from './harness.ts';
import type { RunDocument } from './load/document.ts';

const RATES = [200, 2_000, 20_000];
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

/** @param rate undefined: closed loop */
async function run(rate: number | undefined, seconds: string): Promise<RunDocument> {
  const server = startFresh('uws', { port: await freePort() });
  try {
    const { port } = await server.result;
    const { stdout, stderr } = spawnSync(
      process.execPath,
      [
        ...[join(OWN_DIST, 'cli.js'), 'load', '--dsn', `http://key@127.0.0.1:${port}/1`, '--mix', 'event=1'],
        ...['--warmup', '3s', '--duration', seconds, '--json', '-'],
        ...(rate === undefined ? [] : ['--rate', `${rate}`]),
      ],
      { encoding: 'utf8', maxBuffer: OUTPUT_BYTES_MAX },
    );
    if (stdout === '') throw new Error(stderr);
    return JSON.parse(stdout) as RunDocument;
  } finally {
    await server.end();
  }
}

/** @returns the exit status: 1 when a request failed */
export async function generatorCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: { seconds: { type: 'string', default: '12' } } });
  let all = true;
  for (const rate of [undefined, ...RATES]) {
    const { failed, ratePerSec, generator: g } = await run(rate, values.seconds);
    all &&= failed === 0;
    const name = rate === undefined ? 'closed loop' : `open loop, ${rate}/s`;
    const caution = g.bottleneck.map((why) => `; ${why}`).join('');
    process.stdout.write(
      `${name}: ${g.cpuUsPerRequest.toFixed(1)} µs CPU per request (${ratePerSec.toFixed(0)}/s answered, ${failed} failed, ${(100 * g.busy).toFixed(0)} % of a core${caution})\n`,
    );
  }
  return all ? 0 : 1;
}
