import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { SecretNames } from '../../../src/processor/scrub/names.ts';

const BYTES_MAX = 24 * 1024 * 1024;

it(`keeps at most ${BYTES_MAX} bytes of names, however many settings there are`, () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  const before = process.memoryUsage().heapUsed;
  const settings = Array.from({ length: 25 }, (_, n) => new SecretNames([`pin${n}`]));
  for (const names of settings) for (let n = 0; n < 8_000; n++) names.has(`${'x'.repeat(170)}_pin_${n}`);
  collect();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(BYTES_MAX);
  settings.forEach((names, n) => {
    for (const other of [n, n + 1]) expect(names.has(`my_pin${other}`)).toBe(other === n);
  });
});
