/** A body from its bytes to an envelope in hand, by encoding: what the worker does between a request's head and its filters. */

import { brotliCompressSync, gunzipSync, gzipSync } from 'node:zlib';
import { loadConfig } from '../../src/config.ts';
import { newParser } from '../../src/ingest/envelope/parser.ts';
import { Upload, UploadBudget } from '../../src/ingest/envelope/upload.ts';
import { Slotted } from '../../src/lib/slots.ts';
import { transactionPayload } from '../payloads.ts';
import { seededRandom } from '../random.ts';
import { type MicroTask, micro } from './task.ts';

function upload(body: Buffer, encoding: string, budget: UploadBudget): Promise<void> {
  return new Promise((resolve, reject) => {
    const one: Upload = new Upload({
      encoding,
      newReader: newParser,
      budget,
      project: new Slotted(),
      onResult: (result) => {
        if (!result.ok) reject(new Error(result.failure.detail));
        // After the call that told the result, as the request does it.
        queueMicrotask(() => {
          one.dispose();
          resolve();
        });
      },
      onPressure: () => undefined,
      onWaitsForLeave: () => one.proceed(),
    });
    one.feed(body);
    one.end();
  });
}

export function decompressionTasks(): MicroTask[] {
  const budget = new UploadBudget(loadConfig({}).config);
  const envelope = Buffer.from(`{}\n{"type":"transaction"}\n${transactionPayload(seededRandom(4))}`);
  const bodies = [
    ['identity', '', envelope],
    ['gzip', 'gzip', gzipSync(envelope)],
    ['br', 'br', brotliCompressSync(envelope)],
  ] as const;
  const gzip = gzipSync(envelope);
  return [
    ...bodies.map(([name, encoding, body]) => ({
      name: `transaction of 4 KB, ${name}`,
      operations: 1,
      run: () => upload(body, encoding, budget),
    })),
    micro('transaction of 4 KB, gunzipSync alone', () => void gunzipSync(gzip)),
  ];
}
