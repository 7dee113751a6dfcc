/**
 * `npm run bench -- knee [CAP …]`: the search for the knee against a bare server that takes a known number of requests a second. The
 * server and `sluice load` are processes of their own, as a user has them.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { freePort } from '../src/commands/dev/servers.ts';
import { startFresh } from './fresh.ts';
import { OWN_DIST } from './harness.ts';
import type { RunDocument } from './load/document.ts';

const CAPS = [300, 3_000, 20_000];
const BOUND = 0.05;
/** The first rate, as a share of the cap: the search goes up from it, past the cap, and back. */
const START = 0.72;
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

async function kneeOf(cap: number): Promise<RunDocument> {
  const server = startFresh('uws', { port: await freePort(), cap });
  try {
    const { port } = await server.result;
    const { stdout, stderr } = spawnSync(
      process.execPath,
      [
        ...[join(OWN_DIST, 'cli.js'), 'load', '--dsn', `http://key@127.0.0.1:${port}/1`, '--mix', 'event=1'],
        ...['--find-knee', '--rate', `${Math.round(START * cap)}`, '--step', '3s', '--json', '-'],
      ],
      { encoding: 'utf8', maxBuffer: OUTPUT_BYTES_MAX },
    );
    if (stdout === '') throw new Error(stderr);
    return JSON.parse(stdout) as RunDocument;
  } finally {
    await server.end();
  }
}

/** @returns the exit status: 1 when a knee is further off than the bound */
export async function kneeCommand(args: string[]): Promise<number> {
  const caps = args.length > 0 ? args.map(Number) : CAPS;
  let all = true;
  for (const cap of caps) {
    const { knee, generator } = await kneeOf(cap);
    const found = knee?.lastGoodRate ?? 0;
    const holds = Math.abs(found / cap - 1) <= BOUND;
    all &&= holds;
    const steps = knee?.steps.map(({ rate, good }) => `${rate}${good ? '' : ' bad'}`).join(', ');
    process.stdout.write(
      `cap ${cap}/s: knee ${found}/s, ${(100 * (found / cap - 1)).toFixed(1)} % off: ${holds ? 'holds' : 'MISSED'} (${steps}; ${generator.cpuUsPerRequest.toFixed(1)} µs CPU per request of the generator)\n`,
    );
  }
  return all ? 0 : 1;
}
