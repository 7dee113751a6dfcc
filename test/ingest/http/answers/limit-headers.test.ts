import { describe, expect, it } from 'vitest';
import { rateHeaders, unsupportedHintFor } from '../../../../src/ingest/http/answers/limit-headers.ts';
import { EXTRA_TYPES, type ExtraType, SKIPPED_TYPES, storedTypes } from '../../../../src/lib/item-types.ts';

/** Of a refusal whose window has room at `resetSec`, made at `now` (Unix ms). */
const waitOf = (resetSec: number, now: number): string | undefined =>
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
  expect(waitOf(resetSec, now)).toBe(hint);
});

const hint = (stored: readonly ExtraType[], ...skipped: string[]) =>
  unsupportedHintFor(storedTypes(stored))(skipped);
const hintOf = (categories: string): string => `86400:${categories}:organization:unsupported`;

describe('a rate hint', () => {
  it('names the categories of what was skipped, each once', () => {
    expect(hint([], 'session', 'sessions', 'client_report')).toBe(hintOf('session;internal'));
    expect(hint([], 'profile')).toBe(hintOf('profile;profile_chunk;profile_chunk_ui'));
    expect(hint([], 'check_in', 'user_report', 'statsd')).toBe(hintOf('monitor;default;metric_bucket'));
  });

  it('names a metric as older SDKs do too, and the recording of a phone as a replay', () => {
    expect(hint([], 'trace_metric')).toBe(hintOf('trace_metric;metric'));
    expect(hint([], 'replay_video')).toBe(hintOf('replay'));
    expect(hint(['replay_video'], 'replay_video')).toBeUndefined();
  });

  it.each<[ExtraType[], string]>([
    [['profile_chunk'], 'profile'],
    [['profile'], 'profile_chunk'],
    [['sessions'], 'session'],
    [[], 'other'],
    [[], 'constructor'],
  ])(
    'with %j stored is left out for %s: it would silence what is stored, or everything',
    (stored, skipped) => {
      expect(hint(stored, skipped)).toBeUndefined();
      expect(hint(stored, skipped, 'client_report')).toBe(hintOf('internal'));
    },
  );

  it('never names a category of a type that is stored, nor none, whatever is stored', () => {
    const alone = (type: string): string[] =>
      (hint([], type)?.split(':')[1] ?? '').split(';').filter(Boolean);
    for (const stored of EXTRA_TYPES) {
      const others = SKIPPED_TYPES.filter((type) => type !== stored);
      const named = (hint([stored], ...others)?.split(':')[1] ?? '').split(';');
      for (const category of alone(stored)) expect(named).not.toContain(category);
      expect(named).not.toContain('');
    }
    // A client that records videos sends no other replays.
    for (const standard of ['error', 'transaction', 'log_item', 'replay', 'span'])
      for (const type of SKIPPED_TYPES.filter((one) => one !== 'replay_video'))
        expect(alone(type)).not.toContain(standard);
  });
});
