import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { readTally } from '../../../src/sink/ndjson/tally.ts';
import { rounds } from '../../support/rounds.ts';
import { temporaryFolder } from '../../support/servers.ts';

const PROGRAM = fileURLToPath(new URL('./dying-journal.mjs', import.meta.url));
const STREAM = 'SLUICE_LOGS';
const NEVER = 0;
/** Of a start that removes an uncommitted batch. */
const START_STEPS = 12;
const TOGETHER = 4;
/** Of each so many steps one is taken, and which is drawn. */
const STRIDE = rounds(1, 12);
const FIRST_STEP = 1 + Math.floor(Math.random() * STRIDE);
/** Some hundred and fifty processes in the long run. */
const PROCESSES_MS_MAX = 600_000;
const WANTED = [1, 2].map((n) => `{"n":${n},"payload":{}}`);

/**
 * @param files when all of them are there, it dies, too
 * @returns whether it lived to the end
 */
async function run(dir: string, dieAt: number, files: readonly string[] = []): Promise<boolean> {
  const child = spawn(process.execPath, [PROGRAM, dir, `${dieAt}`, ...files], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [status, signal] = await once(child, 'exit');
  if (signal !== 'SIGKILL') expect(status).toBe(0);
  return status === 0;
}

const dataFiles = (dir: string): string[] =>
  readdirSync(dir, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ndjson'))
    .sort();
const lines = (dir: string): string[] =>
  dataFiles(dir).flatMap((name) => readFileSync(join(dir, name), 'utf8').trimEnd().split('\n'));

/** Runs to the end. `taken`: files that stood there before, and what was in them. */
async function goOn(root: string, after: string, taken = { files: [] as string[], lines: [] as string[] }) {
  const dir = join(root, STREAM);
  await run(dir, NEVER);
  expect([...taken.lines, ...lines(root)], after).toEqual(WANTED);
  for (const name of dataFiles(root)) expect(taken.files, after).not.toContain(name);
  expect(await readTally(root, '1', '2026-05'), after).toEqual({ count: 2, position: 2 });
  expect(readdirSync(join(dir, 'journal')).sort(), after).toEqual(['1.idx', '2.idx']);
  rmSync(root, { recursive: true });
}

function copyOf(root: string): string {
  const copy = temporaryFolder('crash');
  cpSync(root, copy, { recursive: true });
  return copy;
}

/** Goes on with the files that are there, and once more without them. @returns whether there was no such step */
async function dieAndGoOn(step: number): Promise<boolean> {
  const root = temporaryFolder('crash');
  const lived = await run(join(root, STREAM), step);
  const before = { files: dataFiles(root), lines: lines(root) };
  expect(WANTED.slice(0, before.lines.length), `after step ${step}`).toEqual(before.lines);
  if (before.files.length > 0) {
    const copy = copyOf(root);
    for (const name of before.files) rmSync(join(copy, name));
    await goOn(copy, `after step ${step}, files taken away`, before);
  }
  await goOn(root, `after step ${step}`);
  return lived;
}

it(
  'a process that dies before or after any file operation leaves each line once, whole and counted, also when its files are taken',
  async () => {
    let lastStep: number | undefined;
    for (let step = FIRST_STEP; lastStep === undefined; step += TOGETHER * STRIDE) {
      const steps = Array.from({ length: TOGETHER }, (_, n) => step + n * STRIDE);
      const lived = await Promise.all(steps.map(dieAndGoOn));
      lastStep = steps[lived.indexOf(true)];
    }
    expect(lastStep).toBeGreaterThan(33);
  },
  PROCESSES_MS_MAX,
);

it(
  'a process that dies between the two renames of a commit, and its successor in its start, leave each line once',
  async () => {
    const root = temporaryFolder('crash');
    const between = ['2.idx', '2.tmp'].map((name) => join('journal', name));
    expect(await run(join(root, STREAM), NEVER, [...between])).toBe(false);
    for (const name of between) expect(existsSync(join(root, STREAM, name))).toBe(true);
    const dieInStart = async (step: number): Promise<void> => {
      const copy = copyOf(root);
      expect(await run(join(copy, STREAM), step)).toBe(false);
      if (step === START_STEPS)
        for (const name of between) expect(existsSync(join(copy, STREAM, name))).toBe(false);
      await goOn(copy, `after step ${step} of the second start`);
    };
    const steps = Array.from({ length: START_STEPS }, (_, n) => n + 1);
    const chosen = steps.filter((step) => step % STRIDE === FIRST_STEP % STRIDE || step === START_STEPS);
    while (chosen.length > 0) await Promise.all(chosen.splice(0, TOGETHER).map(dieInStart));
    rmSync(root, { recursive: true });
  },
  PROCESSES_MS_MAX,
);
