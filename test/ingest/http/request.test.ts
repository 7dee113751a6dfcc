/** The story of a request whose body stays in memory. What the admission and the stream say, and when, is in the hands of the test. */
import { describe, expect, it } from 'vitest';
import { COUNTED, EVENT, REFUSED, type Serving, serve, TOKEN, UNAVAILABLE } from './ingest.ts';

const RATE_HEADERS = ['X-RateLimit-Remaining: 59', 'X-RateLimit-Reset: 7'];
const EXCEEDED = { kind: 'exceeded', current: 10, month: '2026-11' } as const;
const ERROR_ID = /^\{"error":"Internal server error","errorId":"[0-9a-f]{32}"\}$/;

describe('a request that may be stored', () => {
  it('asks once for token and position when its body is whole, and is published when it has both', async () => {
    const { receive, settle, store, wants, published, outcomes, line, refunds } = serve();
    await receive(EVENT.slice(0, 20), false);
    expect(wants()).toBe('');
    await receive(EVENT.slice(20));
    expect([wants(), published]).toEqual(['b', []]);
    await settle(TOKEN, COUNTED);
    expect(published[0]).toMatchObject({
      isSpooled: false,
      entry: { projectId: '1', month: '2026-11', position: 3 },
    });
    expect([outcomes, line.said]).toEqual([[], []]);
    await store('stored');
    expect([outcomes, line.said, wants(), published.length]).toEqual([['accepted'], ['200', 'end'], 'b', 1]);
    expect(line.headers).toEqual(expect.arrayContaining([...RATE_HEADERS, 'X-Service-Usage: 3/10']));
    expect([line.body, refunds]).toEqual([expect.stringMatching(/^\{"id":"[0-9a-f]{32}"\}$/), []]);
  });

  it('is refused over the quota, with the rate and usage that it met', async () => {
    const { receive, settle, published, outcomes, line, refunds } = serve();
    await receive(EVENT);
    await settle(TOKEN, EXCEEDED);
    expect([outcomes, published, refunds, line.said]).toEqual([['quota_exceeded'], [], [], ['429', 'end']]);
    expect(line.headers).toEqual(expect.arrayContaining([...RATE_HEADERS, 'X-Service-Usage: 10/10']));
    expect(line.body).toBe('{"error":"quota_exceeded"}');
  });

  it('gives its position back, once, when the stream refuses it', async () => {
    const { receive, settle, store, outcomes, line, refunds } = serve();
    await receive(EVENT);
    await settle(TOKEN, COUNTED);
    await store('refused');
    expect([outcomes, refunds, line.said]).toEqual([['overloaded'], ['2026-11'], ['503', 'end']]);
    expect(line.headers).toEqual(expect.arrayContaining([...RATE_HEADERS, 'Retry-After: 5']));
    expect(line.headers.join()).not.toContain('X-Service-Usage: ');
  });

  it('keeps its position when the stream may have it', async () => {
    const { receive, settle, store, outcomes, line, refunds } = serve();
    await receive(EVENT);
    await settle(TOKEN, COUNTED);
    await store('unknown');
    expect([outcomes, refunds, line.said]).toEqual([['failed'], [], ['500', 'end']]);
    expect(line.body).toMatch(ERROR_ID);
  });
});

it('a project that holds more than its share of the stream is refused before any of its body is held, and without a token', async () => {
  const { receive, wants, outcomes, line, budget } = serve({ hasRoomFor: () => false });
  await receive('x'.repeat(200_000), false);
  expect([budget.heldBytes, budget.spooledBytes, outcomes]).toEqual([0, 0, ['overloaded']]);
  await receive('x');
  expect([wants(), line.said]).toEqual(['', ['503', 'end']]);
  expect(line.headers).toContain('Retry-After: 5');
});

it('a refusal that is known ends a request before any of its body is held', async () => {
  const { receive, wants, outcomes, line, budget } = serve({ knownRefusal: () => REFUSED });
  expect(outcomes).toEqual(['rate_limited']);
  await receive('x'.repeat(200_000), false);
  expect([budget.heldBytes, budget.spooledBytes, line.said]).toEqual([0, 0, []]);
  await receive('x');
  expect([wants(), outcomes, line.said]).toEqual(['', ['rate_limited'], ['429', 'end']]);
  expect(line.headers).toContain('X-RateLimit-Reset: 7');
});

describe('a request with nothing to store', () => {
  const LARGE = `{}\n{"type":"log"}\n${'x'.repeat(5_300_000)}`;
  const LOCAL = '{}\n{"type":"event"}\n{"request":{"url":"http://localhost/"}}';
  const cases: [what: string, body: string, outcome: string, status: string, length?: string][] = [
    ['is no envelope', 'no envelope', 'invalid', '400'],
    ['is empty', '', 'invalid', '400'],
    ['is too large', LARGE, 'too_large', '413'],
    ['says that it is too large', EVENT, 'too_large', '413', '5242881'],
    ['holds no stored type', '{}\n{"type":"session"}\n{}', 'empty', '200'],
    ['is filtered', LOCAL, 'filtered', '200'],
  ];
  const headOf = (length = ''): Serving => ({ headers: { 'content-length': length } });

  it.each(cases)(
    'takes a token and no position when its body %s',
    async (_, body, outcome, status, length) => {
      const { receive, settle, wants, outcomes, published, line } = serve(headOf(length));
      await receive(body);
      expect([wants(), outcomes]).toEqual(['t', []]);
      await settle(TOKEN);
      expect([wants(), outcomes, published, line.said]).toEqual(['t', [outcome], [], [status, 'end']]);
      expect(line.headers).toEqual(expect.arrayContaining(RATE_HEADERS));
    },
  );

  it.each(cases)(
    'is refused for the rate first when its body %s',
    async (_, body, _outcome, _status, length) => {
      const { receive, settle, wants, outcomes, published, line } = serve(headOf(length));
      await receive(body);
      await settle(REFUSED);
      expect([wants(), outcomes, published, line.said]).toEqual(['t', ['rate_limited'], [], ['429', 'end']]);
    },
  );

  it('asks as soon as its body is bad, and is answered once the rest was drained', async () => {
    const { receive, settle, wants, outcomes, line } = serve();
    await receive('no envelope\n', false);
    expect(wants()).toBe('t');
    await settle(TOKEN);
    expect([outcomes, line.said]).toEqual([['invalid'], []]);
    await receive(EVENT);
    expect([wants(), outcomes, line.said]).toEqual(['t', ['invalid'], ['400', 'end']]);
  });

  it('takes a token when its body comes in crumbs', async () => {
    const { receive, settle, wants, outcomes, line, budget } = serve();
    for (let i = 0; i < 1_100; i++) line.data(Uint8Array.of(0x20).buffer, false);
    await receive('');
    expect([wants(), budget.heldBytes]).toEqual(['t', 0]);
    await settle(TOKEN);
    expect([outcomes, line.said]).toEqual([['invalid'], ['400', 'end']]);
  });
});

it('is judged by the filters of the record that is in force when its body has come', async () => {
  const local = '{}\n{"type":"event"}\n{"request":{"url":"http://localhost/"}}';
  const first = serve();
  await first.receive(local);
  const changed = serve();
  const { id, record } = changed.project;
  changed.project.update({ ...record, id, filters: [] }, 2, 60);
  await changed.receive(local);
  expect([first.wants(), changed.wants()]).toEqual(['t', 'b']);
});

describe('a request while Redis is away', () => {
  it('is refused in production when there is no token', async () => {
    const { receive, settle, outcomes, published, line, refunds } = serve();
    await receive(EVENT);
    await settle(UNAVAILABLE);
    expect([outcomes, published, refunds]).toEqual([['limiter_unavailable'], [], []]);
    const resetSec = Number(
      line.headers.find((header) => header.startsWith('X-RateLimit-Reset: '))?.slice(19),
    );
    expect(Math.abs(resetSec - (Date.now() / 1000 + 60))).toBeLessThan(10);
  });

  it.each([
    ['neither', UNAVAILABLE, undefined],
    ['its token alone', TOKEN, UNAVAILABLE],
    ['no token, which it needs not', undefined, UNAVAILABLE],
  ] as const)('is let through in development when it got %s, uncounted', async (_, rate, count) => {
    const { receive, settle, store, outcomes, published, line, refunds } = serve({ env: 'development' });
    await receive(EVENT);
    await settle(rate, count);
    expect(published[0]?.entry).toMatchObject({ projectId: '1', month: undefined, position: undefined });
    await store('stored');
    expect([outcomes, refunds]).toEqual([['accepted'], []]);
    expect(line.headers.join()).not.toContain('X-Service-Usage: ');
  });

  it('gives nothing back in development when it was not counted and the stream refuses it', async () => {
    const { receive, settle, store, outcomes, refunds } = serve({ env: 'development' });
    await receive(EVENT);
    await settle(UNAVAILABLE);
    await store('refused');
    expect([outcomes, refunds]).toEqual([['overloaded'], []]);
  });
});

describe('a request whose client leaves', () => {
  it('asks for nothing when it leaves within the body', async () => {
    const { receive, wants, outcomes, line, budget } = serve();
    await receive(EVENT.slice(0, 20), false);
    line.abort();
    await receive(EVENT.slice(20));
    expect([wants(), outcomes, line.said, budget.heldBytes]).toEqual(['', ['aborted'], [], 0]);
  });

  it('asks for nothing when it leaves in the turn in which its body is whole', async () => {
    const { receive, wants, outcomes, line } = serve();
    const received = receive(EVENT);
    line.abort();
    await received;
    expect([wants(), outcomes]).toEqual(['', ['aborted']]);
  });

  it('is stored all the same when it leaves after it asked for a position', async () => {
    const { receive, settle, store, outcomes, line, budget } = serve();
    await receive(EVENT);
    line.abort();
    expect(outcomes).toEqual([]);
    await settle(TOKEN, COUNTED);
    await store('stored');
    expect([outcomes, line.said, budget.heldBytes]).toEqual([['accepted'], [], 0]);
  });

  it('ends when it leaves after it asked for a token alone', async () => {
    const { receive, settle, outcomes, line, budget } = serve();
    await receive('no envelope');
    line.abort();
    expect([outcomes, budget.heldBytes]).toEqual([['aborted'], 0]);
    await settle(REFUSED);
    expect([outcomes, line.said]).toEqual([['aborted'], []]);
  });
});

const broken = (): never => {
  throw new Error('unforeseen');
};
it.each<[string, Serving, typeof TOKEN?]>([
  ['in the head', { knownRefusal: broken }],
  ['of the admission', { admit: broken }],
  ['of the stream', { publish: broken }, TOKEN],
])('an unforeseen error %s fails the request, once', async (_where, serving, rate) => {
  const { receive, settle, outcomes, line } = serve(serving);
  await receive(EVENT);
  if (rate) await settle(rate, COUNTED);
  expect([outcomes, line.said]).toEqual([['failed'], ['500', 'end']]);
  expect(line.body).toMatch(ERROR_ID);
});

it('a request whose project is deleted while its body arrives is refused like one of an unknown project, takes no token and is not counted', async () => {
  const { project, receive, outcomes, asked, published, line } = serve();
  await receive(EVENT.slice(0, 20), false);
  project.markDeleted();
  await receive(EVENT.slice(20));
  expect([outcomes, asked, published]).toEqual([['forbidden_key'], [], []]);
  expect(line.said).toEqual(['401', 'end']);
});
