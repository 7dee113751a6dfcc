/** The story of a request whose body goes to disk: its token comes first. The admission and the stream are in the hands of the test. */
import { expect, it, vi } from 'vitest';
import { ANSWER_MS_MAX } from '../../../src/limits.ts';
import { envelopeOf, eventBody, testBudget } from '../envelope/bodies.ts';
import { COUNTED, REFUSED, serve, TOKEN, turn, UNAVAILABLE } from './ingest.ts';

const LOG = `{}\n{"type":"log","length":300000}\n${'x'.repeat(300_000)}`;
const [FIRST, REST] = [LOG.slice(0, 200_000), LOG.slice(200_000)];
const EVENT = `{}\n{"type":"event"}\n{"message":"${'x'.repeat(300_000)}"}`;

/** A request that has asked for its token, within its body. */
async function early(serving?: Parameters<typeof serve>[0], first = FIRST) {
  const served = serve(serving);
  await served.receive(first, false);
  expect([served.wants(), served.outcomes]).toEqual(['t', []]);
  return served;
}

it('asks for its token before it is written, and at the end for a position only', async () => {
  const { receive, settle, store, asked, wants, published, outcomes, budget, line } = await early();
  // A write that was begun would be done by the time at which others have come and gone.
  const other = eventBody(1_000_000);
  for (let i = 0; i < 5; i++) await envelopeOf([other], '', testBudget());
  expect(budget.heldBytes).toBeGreaterThan(FIRST.length);
  await settle(TOKEN);
  await expect.poll(() => budget.heldBytes).toBeLessThan(FIRST.length / 2);
  await receive(REST);
  await expect.poll(() => asked.length).toBe(2);
  expect([wants(), published]).toEqual(['tc', []]);
  await settle(undefined, COUNTED);
  expect(published[0]).toMatchObject({ isSpooled: true, entry: { month: '2026-11', position: 3 } });
  await store('stored');
  expect([outcomes, line.said]).toEqual([['accepted'], ['200', 'end']]);
  expect(line.headers).toEqual(
    expect.arrayContaining(['X-RateLimit-Remaining: 59', 'X-RateLimit-Reset: 7', 'X-Service-Usage: 3/10']),
  );
  expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
});

it('asks once when it comes whole, and waits for its token', async () => {
  const { receive, settle, asked, wants, outcomes } = serve();
  await receive(LOG);
  expect([wants(), outcomes]).toEqual(['t', []]);
  await settle(TOKEN);
  await expect.poll(() => asked.length).toBe(2);
  expect(wants()).toBe('tc');
});

it.each([
  ['has no token', {}, REFUSED, 'rate_limited'],
  ['cannot have one known', {}, UNAVAILABLE, 'limiter_unavailable'],
] as const)(
  'lets go of its body at once when it %s, and is answered 429',
  async (_, serving, rate, outcome) => {
    const { receive, settle, wants, outcomes, budget, line } = await early(serving);
    expect(budget.heldBytes).toBeGreaterThan(0);
    await settle(rate);
    expect([outcomes, budget.heldBytes, budget.spooledBytes, line.said]).toEqual([[outcome], 0, 0, []]);
    await receive(REST);
    expect([wants(), outcomes, line.said]).toEqual(['t', [outcome], ['429', 'end']]);
    expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
  },
);

it('is spooled in development although no token can be had', async () => {
  const { receive, settle, asked, store, published, outcomes } = await early({ env: 'development' });
  await settle(UNAVAILABLE);
  await receive(REST);
  await expect.poll(() => asked.length).toBe(2);
  await settle(undefined, UNAVAILABLE);
  expect(published[0]?.entry).toMatchObject({ month: undefined });
  await store('stored');
  expect(outcomes).toEqual(['accepted']);
});

it.each([
  ['takes', TOKEN, 'invalid', '400'],
  ['is refused by', REFUSED, 'rate_limited', '429'],
] as const)(
  '%s the token that it asked for when its body turns out to be bad meanwhile, and asks for no other',
  async (_, rate, outcome, status) => {
    const { receive, settle, wants, outcomes, budget, line } = await early();
    await receive(`${REST}no item`);
    expect([wants(), outcomes, budget.heldBytes, budget.spooledBytes]).toEqual(['t', [], 0, 0]);
    await settle(rate);
    expect([wants(), outcomes, line.said]).toEqual(['t', [outcome], [status, 'end']]);
  },
);

it('takes no second token when its body turns out to be bad later', async () => {
  const { receive, settle, wants, outcomes, line } = await early();
  await settle(TOKEN);
  await receive(`${REST}no item`);
  expect([wants(), line.said.slice(-2)]).toEqual(['t', ['400', 'end']]);
  expect(outcomes).toEqual(['invalid']);
});

it('takes one token when the spool has no room for its first bytes', async () => {
  const { receive, settle, wants, outcomes, budget, line } = serve({ spoolBytesMax: 50_000 });
  await receive(FIRST.slice(0, 100_000), false);
  await receive(FIRST.slice(100_000), false);
  expect(wants()).toBe('t');
  await settle(TOKEN);
  await receive(REST);
  expect([wants(), outcomes, line.said]).toEqual(['t', ['overloaded'], ['503', 'end']]);
  expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
});

it('ends when its client leaves before it has its token', async () => {
  const { settle, wants, outcomes, budget, line } = await early();
  line.abort();
  expect([outcomes, budget.heldBytes, budget.spooledBytes]).toEqual([['aborted'], 0, 0]);
  await settle(TOKEN);
  expect([wants(), outcomes, line.said]).toEqual(['t', ['aborted'], []]);
});

it('fails once when the admission breaks', async () => {
  const { receive, outcomes, budget, line } = serve({
    admit: () => {
      throw new Error('unforeseen');
    },
  });
  await receive(FIRST, false);
  expect(outcomes).toEqual(['failed']);
  await receive(REST);
  expect([outcomes, line.said, budget.heldBytes]).toEqual([['failed'], ['500', 'end'], 0]);
});

/** A spooled event whose payload is being read back for the filters. */
async function reading() {
  let end = { read: (_payload: Uint8Array): void => undefined, fail: (_error: Error): void => undefined };
  let isReading = false;
  const pickSpooled = (): Promise<Uint8Array> => {
    isReading = true;
    return new Promise((read, fail) => {
      end = { read, fail };
    });
  };
  const served = await early({ pickSpooled }, EVENT);
  await served.settle(TOKEN);
  await served.receive('');
  await expect.poll(() => isReading).toBe(true);
  return { ...served, end };
}

it('is judged by the filters by what was spooled, and needs no position when it is filtered', async () => {
  const { end, wants, outcomes, line } = await reading();
  end.read(new TextEncoder().encode('{"request":{"url":"http://localhost/"}}'));
  await turn();
  expect([wants(), outcomes, line.said.slice(-2)]).toEqual(['t', ['filtered'], ['200', 'end']]);
});

it('fails when what was spooled cannot be read', async () => {
  const { end, outcomes, line, budget } = await reading();
  end.fail(new Error('the disk is gone'));
  await turn();
  expect([outcomes, line.said.slice(-2)]).toEqual([['failed'], ['500', 'end']]);
  expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
});

it('ends alone when its client leaves while what was spooled is read', async () => {
  const { end, wants, outcomes, line, budget } = await reading();
  line.abort();
  expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
  end.fail(new Error('the spool is closed'));
  await turn();
  expect([wants(), outcomes]).toEqual(['t', ['aborted']]);
});

it('is answered 503 when it is not ready in time: nothing of it was queued', async () => {
  const { receive, settle, outcomes, line, budget, published } = await early();
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    await receive(REST);
    vi.advanceTimersByTime(ANSWER_MS_MAX);
  } finally {
    vi.useRealTimers();
  }
  expect([outcomes, line.said]).toEqual([['overloaded'], ['503', 'end']]);
  expect(line.headers).toContain('Retry-After: 5');
  expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
  await settle(TOKEN);
  expect([outcomes, published]).toEqual([['overloaded'], []]);
});

it('is not refused for its slow upload while the limiter is awaited', async () => {
  const { receive, settle, store, asked, outcomes } = await early();
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    await receive(REST);
    await settle(TOKEN);
    while (asked.length < 2) await turn();
    vi.advanceTimersByTime(ANSWER_MS_MAX);
  } finally {
    vi.useRealTimers();
  }
  expect(outcomes).toEqual([]);
  await settle(undefined, COUNTED);
  await store('stored');
  expect(outcomes).toEqual(['accepted']);
});
