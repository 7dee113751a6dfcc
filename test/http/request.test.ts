/** The short cut: a request whose body is whole is counted by the call that asks for its token. The limiter and the counter are in the test's hands. */
import { describe, expect, it } from 'vitest';
import { compileFilters } from '../../src/filter/inbound.ts';
import { Exchange } from '../../src/http/exchange.ts';
import { ExchangeDesk } from '../../src/http/exchange-desk.ts';
import type { Outcome } from '../../src/http/outcome.ts';
import type { RequestParts } from '../../src/http/parts.ts';
import { rateHintFor } from '../../src/http/rate-hints.ts';
import { IngestRequest } from '../../src/http/request.ts';
import { RequestMetrics } from '../../src/http/request-metrics.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { storedTypes } from '../../src/lib/item-types.ts';
import { createLog } from '../../src/lib/log.ts';
import { WHILE_AWAY } from '../../src/limit/failure-policy.ts';
import { testBudget } from '../envelope/bodies.ts';
import { Line } from './line.ts';

const GATE = {
  id: '1',
  key: 'k',
  limit: 60,
  revision: 1,
  quota: 10,
  overage: false,
  filters: compileFilters({ filters: ['localhost'], allowedOrigins: [] }),
  readsHead: false,
};
const EVENT = '{}\n{"type":"event"}\n{"message":"x"}';
const COUNTED = { kind: 'counted', position: 3, month: '2026-11' } as const;
const TOKEN = { kind: 'admitted', remaining: 59, resetSec: 1 } as const;
const UNAVAILABLE = { kind: 'unavailable' } as const;

/** A request that waits for its token. */
function waiting({ env = 'production' as keyof typeof WHILE_AWAY } = {}) {
  const line = new Line();
  const outcomes: Outcome[] = [];
  const refunds: string[] = [];
  const asked: string[] = [];
  let published = 0;
  const parts = {
    replica: { findProject: () => GATE },
    rateLimiter: { take: () => undefined },
    quota: {
      count: () => asked.push('quota'),
      refund: (_id: string, month: string) => refunds.push(month),
    },
    publisher: {
      available: true,
      publish: (_entry: unknown, _options: unknown, done: (result: string) => void) => {
        published++;
        done('stored');
      },
    },
    budget: testBudget(),
    metrics: new RequestMetrics(),
    clock: systemClock,
    log: createLog('silent'),
    whileAway: WHILE_AWAY[env],
    maxBodyBytes: 1_000_000,
    rateHint: rateHintFor(storedTypes([])),
    note: (_endpoint: string, outcome: Outcome) => outcomes.push(outcome),
  };
  const exchange = new Exchange(line, new ExchangeDesk(systemClock, (run) => run()));
  const request = new IngestRequest(parts as unknown as RequestParts, exchange);
  request.start({ getHeader: () => '', getQuery: () => 'sentry_key=k', getParameter: () => '1' });
  const receive = (text: string, isLast = true): void =>
    line.data(new TextEncoder().encode(text).buffer, isLast);
  return { request, receive, line, outcomes, refunds, asked, published: () => published };
}

describe('a request that waits for its token', () => {
  it('names its quota once its body is whole, and is published when it was counted', () => {
    const { request, receive, outcomes, asked, published, line } = waiting();
    expect(request.counts()).toBeUndefined();
    receive(EVENT);
    expect(request.counts()).toBe(GATE);
    request.decided(TOKEN);
    expect([published(), asked]).toEqual([0, []]);
    request.counted(COUNTED);
    expect([published(), outcomes, line.said]).toEqual([1, ['accepted'], ['200', 'end']]);
  });

  it('is counted by itself when its body came after the call had left', () => {
    const { request, receive, asked } = waiting();
    receive(EVENT.slice(0, 20), false);
    expect(request.counts()).toBeUndefined();
    request.decided(TOKEN);
    expect(asked).toEqual([]);
    receive(EVENT.slice(20));
    expect(asked).toEqual(['quota']);
  });

  it.each([
    ['a filter takes it out', '{}\n{"type":"event"}\n{"request":{"url":"http://localhost/"}}', 'filtered'],
    ['it holds nothing that is stored', '{}\n{"type":"session"}\n{}', 'empty'],
    ['its body is no envelope', 'no envelope', 'invalid'],
  ] as const)('names no quota when %s', (_, body, outcome) => {
    const { request, receive, outcomes, asked } = waiting();
    receive(body);
    expect(request.counts()).toBeUndefined();
    request.decided(TOKEN);
    expect([outcomes, asked]).toEqual([[outcome], []]);
  });

  it('is refused without a word of the quota when it gets no token', () => {
    const { request, receive, outcomes, published } = waiting();
    receive(EVENT);
    request.counts();
    request.decided({ kind: 'refused', resetSec: 1 });
    expect([outcomes, published()]).toEqual([['rate_limited'], 0]);
  });

  it('names no quota once its client has gone; one that leaves later changes nothing any more', () => {
    const early = waiting();
    early.receive(EVENT);
    early.line.abort();
    expect(early.request.counts()).toBeUndefined();
    early.request.decided(TOKEN);
    expect([early.outcomes, early.published()]).toEqual([['aborted'], 0]);
    const late = waiting();
    late.receive(EVENT);
    late.request.counts();
    late.line.abort();
    late.request.decided(TOKEN);
    late.request.counted(COUNTED);
    expect([late.outcomes, late.published()]).toEqual([['accepted'], 1]);
  });

  it('gives its position back, once, when the token came too late and it was counted', () => {
    const { request, receive, outcomes, refunds, published } = waiting();
    receive(EVENT);
    request.counts();
    request.decided(UNAVAILABLE);
    request.counted(COUNTED);
    expect([outcomes, refunds, published()]).toEqual([['limiter_unavailable'], ['2026-11'], 0]);
  });

  it.each([UNAVAILABLE, { kind: 'exceeded', current: 10, month: '2026-11' } as const])(
    'gives nothing back for $kind',
    (decision) => {
      const { request, receive, refunds } = waiting();
      receive(EVENT);
      request.counts();
      request.decided(UNAVAILABLE);
      request.counted(decision);
      expect(refunds).toEqual([]);
    },
  );

  it('is let through in development when neither is known', () => {
    const { request, receive, outcomes, published } = waiting({ env: 'development' });
    receive(EVENT);
    request.counts();
    request.decided(UNAVAILABLE);
    expect(outcomes).toEqual([]);
    request.counted(UNAVAILABLE);
    expect([outcomes, published()]).toEqual([['accepted'], 1]);
  });
});
