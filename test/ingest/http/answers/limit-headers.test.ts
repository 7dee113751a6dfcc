import { expect, it } from 'vitest';
import { rateHeaders } from '../../../../src/ingest/http/answers/limit-headers.ts';

/** Of a refusal whose window has room at `resetSec`, made at `now` (Unix ms). */
const hintOf = (resetSec: number, now: number): string | undefined =>
  /X-Sentry-Rate-Limits: (.*)$/.exec(
    rateHeaders.of({ kind: 'refused', resetSec, windowNumber: 1 }, { now: () => now }),
  )?.[1];

it.each([
  ['a whole window', 160, 100_000, '60::project'],
  ['part of a second, rounded up', 160, 100_001, '60::project'],
  ['the last half of a second', 101, 100_500, '1::project'],
  ['a reset that is now', 100, 100_000, '1::project'],
  ['a reset that has passed', 100, 103_000, '1::project'],
  ['no longer than a window when the clock is wrong', 1_000, 100_000, '61::project'],
])('a refused request is hinted to wait: %s', (_name, resetSec, now, hint) => {
  expect(hintOf(resetSec, now)).toBe(hint);
});

it('an admitted request gets no hint', () => {
  const headers = rateHeaders.of({ kind: 'admitted', remaining: 1, resetSec: 160 }, { now: () => 100_000 });
  expect(headers).toBe('\r\nX-RateLimit-Remaining: 1\r\nX-RateLimit-Reset: 160');
});
