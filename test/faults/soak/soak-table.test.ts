/** What the table of a soak says of processes that grow and of those that do not, and what is no promise kept. */
import { describe, expect, it } from 'vitest';
import { judgeSoak, type SoakReport } from './soak.ts';
import { growing, lifeTable, soakText } from './soak-table.ts';
import type { Held, Life } from './watch.ts';

/** A look every five seconds from `born` to minute `end`; memory and files `after` so many minutes. */
const life = (
  role: string,
  born: number,
  after: (minutes: number) => { rssMib: number; files: number; connections: number },
  end = 20,
): Life => ({
  role,
  pid: 1,
  looks: Array.from({ length: (end - born) * 12 + 1 }, (_, n) => ({
    minute: born + n / 12,
    ...after(n / 12),
  })),
});
const still = { rssMib: 100, files: 30, connections: 8 };
const told = { accepted: 10, refused: 2, unknown: 1 };
const found = { stored: { envelopes: 10, items: 12, double: 0 }, usage: 10, deadLetters: 0, drainedSec: 0.5 };
const calm = { redisKeys: 200, redisMib: 3, consumers: 9, streamMib: 1 };
const report = (
  lives: readonly Life[],
  minutes = 20,
  held: (minutes: number) => Omit<Held, 'minute'> = () => calm,
): SoakReport => ({
  minutes,
  seed: 1,
  capacity: 1_000,
  rate: 700,
  answers: { ...told, byReason: {}, p50Ms: 5, p99Ms: 50 },
  struck: {},
  lives,
  lags: Array.from({ length: 240 }, (_, n) => ({ minute: n / 12, pending: 3, lagSec: 0.4 })),
  held: Array.from({ length: 240 }, (_, n) => ({ minute: n / 12, ...held(n / 12) })),
  fittedFrom: minutes / 2,
  told,
  ...found,
  broken: [],
});

describe('a process', () => {
  it('that grew only while it settled is flat', () => {
    const settling = life('worker', 0, (minutes) => ({ ...still, rssMib: 100 + 20 * Math.min(9, minutes) }));
    expect(growing(report([settling]))).toEqual([]);
    expect(lifeTable(report([settling]))).toMatch(/^\| worker \| 10\.0 \| 280 \| 0\.00 ± 0\.00 \| flat /m);
  });

  it('that gains two megabytes a minute, or a file, grows', () => {
    const fat = life('worker', 0, (minutes) => ({ ...still, rssMib: 100 + 2 * minutes }));
    const clinging = life('processor', 0, (minutes) => ({ ...still, files: 30 + Math.floor(minutes) }));
    expect(growing(report([fat, clinging]))).toEqual([
      'worker 1: memory grows',
      'processor 1: open files grow',
    ]);
  });

  it('that took a dead one’s place is a line of its own, from a minute after its start', () => {
    const successor = life('worker', 12, () => still);
    const lines = lifeTable(report([life('worker', 0, () => still), successor])).split('\n');
    expect(lines.slice(2)).toEqual([
      expect.stringContaining('| worker | 10.0 | 100 |'),
      expect.stringContaining('| worker | 7.0 | 100 |'),
      expect.stringContaining('| 2 workers together | 7.0 | 200 |'),
    ]);
  });

  it('of the sink fills its memory of what was stored for fifteen minutes, which doubles once more soon after', () => {
    const doubling = (minutes: number) => ({ ...still, rssMib: minutes < 18.7 ? 100 + 5 * minutes : 300 });
    expect(lifeTable(report([life('processor', 0, doubling)]))).toMatch(
      /^\| processor \| 1\.3 \| .* too short \| 30 /m,
    );
    const long = report([life('processor', 0, doubling, 30)], 30);
    expect(lifeTable(long)).toMatch(/^\| processor \| 11\.3 \| 300 \| 0\.00 ± 0\.00 \| flat /m);
    expect(growing(long)).toEqual([]);
  });

  it('of the sink that was started late doubles its memory soon after', () => {
    const doubling = (minutes: number) => ({ ...still, rssMib: minutes < 3.7 ? 200 : 300 });
    expect(lifeTable(report([life('processor', 18, doubling, 40)], 40))).toMatch(
      /^\| processor \| 18\.3 \| 300 \| 0\.00 ± 0\.00 \| flat /m,
    );
  });

  it('of the sink that grows on and on grows', () => {
    const fat = life('processor', 0, (minutes) => ({ ...still, rssMib: 100 + 2 * minutes }), 30);
    expect(growing(report([fat], 30))).toEqual(['processor 1: memory grows']);
  });

  it('that takes over connections from another is no leak: workers are looked at together, too', () => {
    const taking = life('worker', 0, (minutes) => ({ ...still, files: 30 + Math.floor(minutes / 2) }));
    const giving = life('worker', 0, (minutes) => ({ ...still, files: 60 - Math.floor(minutes / 2) }));
    expect(lifeTable(report([taking, giving]))).toMatch(
      /^\| 2 workers together .* 90 \| 0\.00 ± 0\.00 \| flat \| 16\.0 \|$/m,
    );
  });

  it('of others is shown and not judged', () => {
    const broker = life('broker', 0, (minutes) => ({ ...still, rssMib: 100 + 9 * minutes }));
    expect(growing(report([broker]))).toEqual([]);
    expect(soakText(report([broker]))).toContain('grows');
  });
});

describe('what the servers hold', () => {
  it('is flat when it only goes up and down', () => {
    const busy = report([], 20, (minutes) => ({ ...calm, streamMib: 5 + 4 * Math.sin(minutes * 40) }));
    expect(growing(busy)).toEqual([]);
    expect(soakText(busy)).toMatch(/^\| Redis keys \| 9\.9 \| 200\.0 \| 0\.000 ± 0\.000 \| flat \|$/m);
    expect(soakText(busy)).toMatch(/^\| MiB in streams .* flat \|$/m);
  });

  it.each([
    ['redisKeys', 2, 'Redis keys: more and more'],
    ['redisMib', 0.3, "MiB of Redis's data: more and more"],
    ['consumers', 1, 'consumers: more and more'],
    ['streamMib', 3, 'MiB in streams: more and more'],
  ] as const)('is judged: %s', (what, perMinute, said) => {
    const more = report([], 20, (minutes) => ({ ...calm, [what]: calm[what] + perMinute * minutes }));
    expect(growing(more)).toEqual([said]);
  });
});

describe('what a soak was told', () => {
  const broken = (more: Partial<typeof found>): string[] => judgeSoak(told, { ...found, ...more });

  it('holds when all is stored once and counted, unknown ones or not', () => {
    expect(broken({})).toEqual([]);
    expect(broken({ stored: { envelopes: 11, items: 13, double: 0 }, usage: 13 })).toEqual([]);
  });

  it.each([
    { more: { stored: { envelopes: 9, items: 9, double: 0 } }, said: /^10 were told 200, 9 are stored$/ },
    { more: { stored: { envelopes: 12, items: 12, double: 0 } }, said: /^12 are stored, only 11 can be$/ },
    { more: { stored: { envelopes: 10, items: 10, double: 1 } }, said: /^1 items are stored twice$/ },
    { more: { usage: 9 }, said: /^usage 9 is lower/ },
    { more: { usage: 14 }, said: /^usage 14, but only 13 can be counted$/ },
    { more: { deadLetters: 1 }, said: /^1 dead letters$/ },
    { more: { drainedSec: undefined as unknown as number }, said: /^not everything is processed$/ },
  ])('is broken: $said', ({ more, said }) => {
    expect(broken(more)).toEqual([expect.stringMatching(said)]);
  });
});
