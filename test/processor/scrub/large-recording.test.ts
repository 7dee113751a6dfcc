/** A few hundred bytes may inflate to a recording of 62 MiB that is private all through. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { rounds } from '../../support/rounds.ts';

const SCRIPT = new URL('large-recording.mjs', import.meta.url).pathname;
/** deploy/kubernetes gives the process 1,536. */
const MEMORY_MIB_MAX = 700;

it.each([
  { unit: '"a@b.cc",', mib: 62 },
  { unit: '"[\\"a@b.cc\\"]",', mib: rounds(20, 3) },
  { unit: '{"token":1},', mib: rounds(40, 4) },
  { before: '"', unit: 'a@b.cc \\u0041 ', behind: '",', mib: rounds(60, 6) },
  { before: '"[', unit: '\\"a@b.cc\\",', behind: '1]",', mib: rounds(60, 6) },
])('$before$unit, $mib MiB of it, is scrubbed in slices and in little memory', async (recording) => {
  const { stdout } = await promisify(execFile)(process.execPath, [SCRIPT, JSON.stringify(recording)]);
  const found = JSON.parse(stdout);
  expect(found).toMatchObject({ isStored: true, holds: [] });
  expect(found.bytes).toBeGreaterThan((recording.mib * 1024 * 1024) / 2);
  expect(found.slices).toBeGreaterThan(8 * recording.mib);
  expect(found.mib).toBeLessThan(MEMORY_MIB_MAX);
});
