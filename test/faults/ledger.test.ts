/** The ledger finds every kind of broken promise, and nothing where none was broken. */
import { describe, expect, it } from 'vitest';
import { quotaHeaders, rateHeaders } from '../../src/ingest/http/answers/limit-headers.ts';
import { REFUSALS } from '../../src/ingest/http/answers/outcome.ts';
import { LEASE_NEED_MS } from '../../src/limits.ts';
import { saysAway } from './client.ts';
import { type Evidence, judge, mostWithinWindow, type Terms, type Told } from './ledger.ts';

const told = (id: string, more: Partial<Told> = {}): Told => ({
  id,
  project: 'open',
  port: 1,
  sentAt: 0,
  answeredAt: 1,
  status: 200,
  payloadBytes: 10,
  mark: `mark-${id}`,
  admitted: true,
  limiterAway: false,
  position: undefined,
  ...more,
});
const stored = (id = 'a', projectId = '1') => ({ count: 1, payloadBytes: 10, mark: `mark-${id}`, projectId });
const terms: Terms = {
  projects: {
    open: { id: '1' },
    limited: { id: '2', ratePerMinute: 2 },
    leased: { id: '3', ratePerMinute: 5 },
    capped: { id: '4', quota: 1 },
    attacker: { id: '5' },
  },
  redisLosses: [],
  redisCuts: [],
  clockSteps: 0,
  answersAll: true,
  hasTally: false,
};
const none = { open: 0, limited: 0, leased: 0, capped: 0, attacker: 0 };
const evidence = (more: Partial<Evidence> = {}): Evidence => ({
  stored: new Map([['a', stored()]]),
  deadLetters: 0,
  usage: { ...none, open: 1 },
  ...more,
});
const good = told('a', { position: 1 });

describe('a promise that was kept', () => {
  it('is not complained of: a 200, a refusal, and a request of which nobody knows', () => {
    const all = [good, told('b', { status: 429 })];
    expect(judge(all, evidence(), terms)).toMatchObject({
      broken: [],
      requests: 2,
      accepted: 1,
      refused: 1,
      lost: 0,
    });
    const uncertain = [good, told('u', { status: 500 }), told('v', { status: 500 })];
    const half = evidence({
      stored: new Map([
        ['a', stored()],
        ['u', stored('u')],
      ]),
      usage: { ...none, open: 3 },
    });
    expect(judge(uncertain, half, terms)).toMatchObject({ broken: [], usageBeyond: 2, usageBeyondMax: 2 });
  });

  it('is not complained of: OTLP that was answered 503, and may be stored, in other bytes than it came', () => {
    const otlp = { payloadBytes: undefined, isOtlp: true } as const;
    const all = [told('a', { ...otlp, position: 1 }), told('b', { ...otlp, status: 503 })];
    const both = evidence({ stored: new Map(['a', 'b'].map((id) => [id, stored(id)])) });
    expect(judge(all, { ...both, usage: { ...none, open: 2 } }, terms).broken).toEqual([]);
  });

  it('is not complained of: a position that went to a request whose limiter was away', () => {
    const away = [good, told('w', { status: 429, admitted: false, limiterAway: true })];
    const more = evidence({ usage: { ...none, open: 2 } });
    expect(judge(away, more, terms)).toMatchObject({ broken: [], usageBeyond: 1, usageBeyondMax: 1 });
    expect(judge([good, told('w', { status: 429 })], more, terms).broken).not.toEqual([]);
  });
});

it('a position that was wasted is not complained of where a request was under way when Redis was cut off', () => {
  const more = evidence({ usage: { ...none, open: 2 } });
  expect(judge([good], more, { ...terms, redisCuts: [0.5] }).broken).toEqual([]);
  expect(judge([good], more, { ...terms, redisCuts: [1.5] }).broken).not.toEqual([]);
});

describe('a broken promise', () => {
  it.each<{ sentence: RegExp; told: Told[]; evidence: Evidence }>([
    {
      sentence: /^lost: told 200, not stored: a$/,
      told: [good],
      evidence: evidence({ stored: new Map() }),
    },
    {
      sentence: /^stored twice: a$/,
      told: [good],
      evidence: evidence({ stored: new Map([['a', { ...stored(), count: 2 }]]) }),
    },
    {
      sentence: /^told 429 or 503, and stored: b$/,
      told: [good, told('b', { status: 503 })],
      evidence: evidence({
        stored: new Map([
          ['a', stored()],
          ['b', stored('b')],
        ]),
      }),
    },
    {
      sentence: /^stored otherwise than sent: a$/,
      told: [good],
      evidence: evidence({ stored: new Map([['a', stored('a', '2')]]) }),
    },
    {
      sentence: /^stored otherwise than sent: a$/,
      told: [{ ...good, payloadBytes: undefined, isOtlp: true }],
      evidence: evidence({ stored: new Map([['a', stored('b')]]) }),
    },
    { sentence: /^1 dead letters$/, told: [good], evidence: evidence({ deadLetters: 1 }) },
    {
      sentence: /^limited: 3 admitted within 60 s, the limit is 2$/,
      told: ['b', 'c', 'd'].map((id) => told(id, { project: 'limited', status: 500 })),
      evidence: evidence({ usage: none }),
    },
    {
      sentence: /^open: usage 0 is lower than its 1 200s$/,
      told: [good],
      evidence: evidence({ usage: none }),
    },
    {
      sentence: /^open: usage 2, but only 1 can be counted$/,
      told: [good],
      evidence: evidence({ usage: { ...none, open: 2 } }),
    },
    {
      sentence: /^open: 2 accepted do not show each position once$/,
      told: [good, told('b', { position: 1 })],
      evidence: evidence({
        stored: new Map([
          ['a', stored()],
          ['b', stored('b')],
        ]),
        usage: { ...none, open: 2 },
      }),
    },
    {
      sentence: /^capped: 2 accepted, its quota is 1$/,
      told: [1, 2].map((position) => told(`${position}`, { project: 'capped', position })),
      evidence: evidence({
        stored: new Map([
          ['1', stored('1', '4')],
          ['2', stored('2', '4')],
        ]),
        usage: { ...none, capped: 2 },
      }),
    },
    {
      sentence: /^answered 502: b$/,
      told: [good, told('b', { status: 502 })],
      evidence: evidence(),
    },
    {
      sentence: /^1 requests had no answer: port 1: ECONNRESET$/,
      told: [good, told('b', { status: 0, silence: 'ECONNRESET' })],
      evidence: evidence(),
    },
  ])('$sentence', ({ sentence, told: all, evidence: found }) => {
    expect(judge(all, found, terms).broken).toEqual([expect.stringMatching(sentence)]);
  });

  it('of a project whose Redis lost its memory is excused as far as the contract says', () => {
    const losses = { ...terms, redisLosses: [{ at: 100_000, endedAt: 101_000 }] };
    const recent = told('a', { sentAt: 91_000, answeredAt: 91_001 });
    const older = told('a', { sentAt: 89_000, answeredAt: 89_001 });
    const forgotten = evidence({ usage: none });
    expect(judge([recent], forgotten, losses).broken).toEqual([]);
    expect(judge([older], forgotten, losses).broken).toEqual([expect.stringMatching(/is lower than/)]);
    const raised = { ...losses, hasTally: true };
    expect(judge([recent], forgotten, raised).broken).toEqual([expect.stringMatching(/is lower than/)]);
  });

  it('of a request that waited for Redis is excused one position', () => {
    const waited = (ms: number): Told => told('a', { sentAt: 0, answeredAt: ms, position: 2 });
    const counted = evidence({ usage: { ...none, open: 2 } });
    expect(judge([waited(LEASE_NEED_MS + 1)], counted, terms).broken).toEqual([]);
    expect(judge([waited(LEASE_NEED_MS)], counted, terms).broken).toEqual([
      'open: usage 2, but only 1 can be counted',
      'open: 1 accepted do not show each position once',
    ]);
  });

  it('of a window is excused one further limit for each step of the clock of Redis', () => {
    const stepped = { ...terms, clockSteps: 1 };
    const admitted = (count: number): Told[] =>
      Array.from({ length: count }, (_, n) => told(`${n}`, { project: 'limited', status: 500 }));
    const counted = evidence({ usage: none });
    expect(judge(admitted(4), counted, stepped).broken).toEqual([]);
    expect(judge(admitted(5), counted, stepped).broken).toEqual([
      'limited: 5 admitted within 60 s, the limit is 4',
    ]);
  });
});

describe('a 60-second window', () => {
  const at = (sentAt: number, answeredAt: number): Told => told('x', { sentAt, answeredAt });

  it('holds only what was sent after its begin and answered before its end', () => {
    expect(mostWithinWindow([])).toBe(0);
    expect(mostWithinWindow([at(0, 1), at(59_000, 60_000)])).toBe(2);
    expect(mostWithinWindow([at(0, 1), at(59_000, 60_001)])).toBe(1);
    expect(mostWithinWindow([at(0, 1), at(30_000, 70_000), at(61_000, 61_001), at(62_000, 62_001)])).toBe(3);
  });
});

describe('a 429', () => {
  const now = 1_790_000_000_200;
  const clock = { now: () => now };
  const sentSec = Math.ceil(now / 1000);

  it.each([
    ['the limiter was away', rateHeaders.unavailable(now + 260) + REFUSALS.limiter_unavailable.headers, true],
    [
      'the window is full',
      rateHeaders.of({ kind: 'refused', resetSec: sentSec + 57, windowNumber: 1 }, clock) +
        REFUSALS.rate_limited.headers,
      false,
    ],
    [
      'the quota is used up',
      rateHeaders.of({ kind: 'admitted', remaining: 5, resetSec: sentSec + 61 }, clock) + quotaHeaders(3, 3),
      false,
    ],
  ])('shows whether %s', (_, headers, away) => {
    expect(saysAway(`HTTP/1.1 429 Too Many Requests${headers}\r\n`, sentSec)).toBe(away);
  });
});
