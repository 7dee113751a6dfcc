import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { readTally } from '../../../src/processor/tally.ts';
import { temporaryFolder } from '../../support/servers.ts';

const PROGRAM = fileURLToPath(new URL('./dying-journal.mjs', import.meta.url));
const NEVER = 0;
const TOGETHER = 4;
const WANTED = [1, 2].map((n) => `{"n":${n},"payload":{}}`);

/** @returns whether it lived to the end */
async function run(dir: string, dieAt: number): Promise<boolean> {
  const child = spawn(process.execPath, [PROGRAM, dir, `${dieAt}`], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [status, signal] = await once(child, 'exit');
  if (signal !== 'SIGKILL') expect(status).toBe(0);
  return status === 0;
}

function lines(dir: string): string[] {
  const names = readdirSync(dir, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ndjson'),
  );
  return names.sort().flatMap((name) => readFileSync(join(dir, name), 'utf8').trimEnd().split('\n'));
}

/** @returns whether there was no such step */
async function dieAndGoOn(step: number): Promise<boolean> {
  const root = temporaryFolder('crash');
  const dir = join(root, 'SLUICE_LOGS');
  const lived = await run(dir, step);
  const before = lines(root);
  expect(WANTED.slice(0, before.length), `after step ${step}`).toEqual(before);
  await run(dir, NEVER);
  expect(lines(root), `after step ${step}`).toEqual(WANTED);
  expect(await readTally(root, '1', '2026-05'), `after step ${step}`).toEqual({ count: 2, position: 2 });
  expect(readdirSync(join(dir, 'journal')).sort(), `after step ${step}`).toEqual(['1.idx', '2.idx']);
  rmSync(root, { recursive: true });
  return lived;
}

it('a process that dies before or after any file operation leaves each line once, whole and counted', async () => {
  let done = false;
  for (let step = 1; !done; step += TOGETHER) {
    const steps = Array.from({ length: TOGETHER }, (_, n) => step + n);
    done = (await Promise.all(steps.map(dieAndGoOn))).includes(true);
    if (done) expect(step).toBeGreaterThan(30);
  }
}, 120_000);
