/**
 * Where inflating at once stops being better than a stream beside the event loop: both by size of what comes out, and the stream also with
 * sixteen bodies under way, when its trips to the other thread overlap.
 */
import { gzipSync } from 'node:zlib';
import { Holding, UploadBudget } from '../../src/ingest/envelope/budget.ts';
import { inflateSync } from '../../src/ingest/envelope/inflate/inflate.ts';
import { Inflater } from '../../src/ingest/envelope/inflate/inflater.ts';
import { Slotted } from '../../src/lib/slots.ts';
import { transactionPayload } from '../payloads.ts';
import { seededRandom } from '../random.ts';
import type { MicroTask } from './task.ts';

const KIB = 1024;
const SIZES_KIB = [2, 16, 64, 256, 1024];
const AT_ONCE = 16;
const budget = new UploadBudget({ maxBodyBytes: 1, maxDecompressedBytes: 1, spoolDir: '' });

function streamed(body: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    const inflater = new Inflater('gzip', {
      holding: new Holding(budget, new Slotted()),
      onBytes: () => undefined,
      onEnd: () => {
        inflater.destroy();
        resolve();
      },
      onFailed: (_kind, detail) => reject(new Error(detail)),
      onBehind: () => undefined,
    });
    inflater.feed(body);
    inflater.end();
  });
}

function atOnce(body: Buffer): void {
  const result = inflateSync('gzip', body);
  if (!result.ok) throw new Error(result.reason);
}

export function inflationTasks(): MicroTask[] {
  const random = seededRandom(5);
  let text = '';
  while (text.length < Math.max(...SIZES_KIB) * KIB) text += transactionPayload(random);
  return SIZES_KIB.flatMap((size) => {
    const body = gzipSync(text.slice(0, size * KIB));
    const name = `${size} KiB out of ${(body.length / KIB).toFixed(1)} KiB`;
    const many = async (): Promise<void> => {
      await Promise.all(Array.from({ length: AT_ONCE }, () => streamed(body)));
    };
    return [
      { name: `${name}: at once`, operations: 1, run: () => atOnce(body) },
      { name: `${name}: as a stream`, operations: 1, run: () => streamed(body) },
      { name: `${name}: ${AT_ONCE} streams together, each`, operations: AT_ONCE, run: many },
    ];
  });
}
