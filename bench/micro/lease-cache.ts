import { type Ask, ScopeCache } from '../../src/ingest/limit/scope-cache.ts';
import { type MicroTask, micro } from './task.ts';

const RECORD = { limit: 100_000, revision: 1 };
/** Between two requests of one project: 20,000 a second. */
const GAP_MS = 0.05;

/** What a script call in an idle window answers. */
const reply = (ask: Ask, granted: number, admitsAt = 0) => ({
  granted,
  needBucket: 0,
  reserve: granted === 0 ? 0 : ask.reserve,
  reserveBucket: Math.ceil((ask.sentAt + 500) / 250),
  booked: 1_000,
  limit: RECORD.limit,
  revision: 1,
  now: ask.sentAt,
  emptyAt: ask.sentAt + 60_000,
  admitsAt,
  gen: 1,
  seq: 1,
  scarce: false,
  refusingWindow: admitsAt > 0 ? 1 : 0,
});

/** A stream of requests, with a script call whenever no token is in hand. */
function admission(): () => void {
  const cache = new ScopeCache();
  let now = 0;
  return () => {
    now += GAP_MS;
    if (cache.take(now, 1)) return;
    const ask = cache.ask(now, 1, RECORD);
    cache.answer(ask, reply(ask, 1), now);
  };
}

/** A flood over the limit: refused from memory. */
function refusal(): () => void {
  const cache = new ScopeCache();
  const ask = cache.ask(0, 1, RECORD);
  cache.answer(ask, reply(ask, 0, 60_000), 0);
  return () => {
    if (cache.take(1, 1)?.kind !== 'refused') throw new Error('the refusal was forgotten');
  };
}

export const leaseCacheTasks = (): MicroTask[] => [
  micro('admit one of 20,000 requests/s', admission()),
  micro('refuse from memory', refusal()),
];
