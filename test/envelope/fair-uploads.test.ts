/** What projects share of a worker while bodies arrive: the spool, and the places of large uploads. */
import { afterEach, expect, it } from 'vitest';
import { Upload, type UploadBudget, type UploadResult } from '../../src/envelope/upload.ts';
import { ProjectUse } from '../../src/lib/fair-share.ts';
import { INLINE_BYTES_MAX, UPLOADS_MAX } from '../../src/limits.ts';
import { testBudget } from './bodies.ts';

const MIB = 1024 * 1024;
const BEGIN = Buffer.from('{}\n{"type":"event"}\n');
const uploads: Upload[] = [];
afterEach(() => {
  for (const upload of uploads.splice(0)) upload.dispose();
});

/** @returns what has been told of an upload of so many bytes that never ends */
function begin(budget: UploadBudget, use: ProjectUse, bytes: number): () => UploadResult | undefined {
  let told: UploadResult | undefined;
  const upload = new Upload({
    encoding: '',
    budget,
    use,
    onResult: (result) => {
      told = result;
    },
    onPressure: () => undefined,
    beforeSpool: (spool) => spool(),
  });
  uploads.push(upload);
  upload.feed(BEGIN);
  for (let at = 0; at < bytes; at += 64 * 1024) upload.feed(Buffer.alloc(Math.min(64 * 1024, bytes - at)));
  return () => told;
}

it('a project that has half of the spool is refused more, and others go on', () => {
  const budget = testBudget({ spoolBytesMax: 16 * MIB });
  const [greedy, modest] = [new ProjectUse(), new ProjectUse()];
  const first = [begin(budget, greedy, 4 * MIB), begin(budget, greedy, 3 * MIB)];
  const over = begin(budget, greedy, 4 * MIB);
  expect(over()).toMatchObject({ ok: false, failure: { kind: 'overloaded' } });
  expect(begin(budget, modest, 4 * MIB)()).toBeUndefined();
  expect(first.map((told) => told())).toEqual([undefined, undefined]);
  for (const upload of uploads.splice(0)) upload.dispose();
  expect([budget.spooledBytes, greedy.spool, modest.spool]).toEqual([0, 0, 0]);
  expect(begin(budget, greedy, 4 * MIB)()).toBeUndefined();
});

it('a project that has half of the places for large uploads is refused more, and others go on', () => {
  const budget = testBudget();
  const [greedy, modest] = [new ProjectUse(), new ProjectUse()];
  for (let count = 0; count < UPLOADS_MAX / 2; count++) budget.upload(1, greedy);
  const bytes = INLINE_BYTES_MAX + 1;
  expect(begin(budget, greedy, bytes)()).toMatchObject({ ok: false, failure: { kind: 'overloaded' } });
  expect(begin(budget, greedy, 1_000)()).toBeUndefined();
  expect(begin(budget, modest, bytes)()).toBeUndefined();
  for (const upload of uploads.splice(0)) upload.dispose();
  expect([greedy.uploads, modest.uploads]).toEqual([UPLOADS_MAX / 2, 0]);
});
