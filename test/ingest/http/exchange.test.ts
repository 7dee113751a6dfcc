import { describe, expect, it } from 'vitest';
import { REFUSALS } from '../../../src/ingest/http/answers/outcome.ts';
import { type BodyReader, Exchange, type ExchangeHead } from '../../../src/ingest/http/exchange.ts';
import { OpenExchanges } from '../../../src/ingest/http/open-exchanges.ts';
import {
  ANSWERS_PER_CLOSE,
  BODY_PAUSED_MS_MAX,
  BODY_PIECES_FREE,
  REFUSED_DRAIN_BYTES_MAX,
  REFUSED_DRAIN_PIECES_RATIO,
  REQUESTS_IN_FLIGHT_MAX,
} from '../../../src/limits.ts';
import { Line, PLAIN_HEAD } from './line.ts';

class Reader implements BodyReader {
  readonly heard: string[] = [];
  onFeed: () => void = () => undefined;
  feed(chunk: Uint8Array): void {
    this.heard.push(`feed ${chunk.length}`);
    this.onFeed();
  }
  end(): void {
    this.heard.push('end');
  }
  overdue(): void {
    this.heard.push('overdue');
  }
  inTinyPieces(): void {
    this.heard.push('inTinyPieces');
  }
  gone(why: string): void {
    this.heard.push(why);
  }
}

function open(afterPoll = (run: () => void): unknown => run()) {
  let now = 0;
  const exchanges = new OpenExchanges({ monotonic: () => now }, afterPoll);
  const sweepAt = (ms: number): void => {
    now = ms;
    exchanges.sweep();
  };
  const line = new Line();
  const reader = new Reader();
  const exchange = new Exchange(line, exchanges, PLAIN_HEAD);
  exchange.read(reader);
  return { exchanges, sweepAt, line, reader, exchange };
}
const bytes = (count: number): ArrayBuffer => new ArrayBuffer(count);
/** An answer that closes its connection goes out from a timer; this one is behind it. */
const nextTimer = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

it('does not wait for bodies that may never come while it holds half of what it may', async () => {
  const { exchanges, line, exchange } = open();
  exchanges.inFlight += REQUESTS_IN_FLIGHT_MAX / 2;
  const whole = new Line();
  const other = new Exchange(whole, exchanges, PLAIN_HEAD);
  exchange.answer(REFUSALS.overloaded);
  other.answer(REFUSALS.overloaded);
  whole.data(bytes(3), true);
  await nextTimer();
  await nextTimer();
  expect(whole.said).toEqual(['503', 'end']);
  expect(line.said).toEqual(['503', 'end and close']);
  expect(exchanges.inFlight).toBe(REQUESTS_IN_FLIGHT_MAX / 2);
});

describe('the end of a body', () => {
  const polling = () => {
    const afterPoll: (() => void)[] = [];
    return { ...open((run) => afterPoll.push(run)), poll: () => afterPoll.shift()?.() };
  };

  it('is told after the poll, once for each poll', () => {
    const { line, reader, poll } = polling();
    line.data(bytes(3), true);
    expect(reader.heard).toEqual(['feed 3']);
    poll();
    poll();
    expect(reader.heard).toEqual(['feed 3', 'end']);
  });

  it('is never told when the connection was closed in the same poll', () => {
    const { line, reader, poll } = polling();
    line.data(bytes(3), true);
    line.abort();
    poll();
    expect(reader.heard).toEqual(['feed 3', 'aborted']);
  });

  it('is never told once the request was answered', () => {
    const { line, exchange, reader, poll } = polling();
    line.data(bytes(3), true);
    exchange.answer(REFUSALS.invalid);
    poll();
    expect([reader.heard, line.said]).toEqual([['feed 3'], ['400', 'end']]);
  });
});

it('does not drop tiny pieces for ever', async () => {
  const { line, exchange } = open();
  exchange.answer(REFUSALS.invalid);
  const free = REFUSED_DRAIN_PIECES_RATIO * BODY_PIECES_FREE;
  for (let piece = 0; piece < free; piece++) line.data(bytes(1), false);
  await nextTimer();
  expect(line.said).toEqual([]);
  for (let piece = 0; piece < free; piece++) line.data(bytes(1), false);
  await nextTimer();
  expect(line.said).toEqual(['400', 'end and close']);
});

it('does not read for ever: beyond the bound it answers and closes', async () => {
  const { line, exchange } = open();
  exchange.answer(REFUSALS.too_large);
  line.data(bytes(REFUSED_DRAIN_BYTES_MAX), false);
  expect(line.said).toEqual([]);
  line.data(bytes(1), false);
  await nextTimer();
  expect(line.said).toEqual(['413', 'end and close']);
});

it('resumes a socket whose last bytes came in the same read as those that made it pause', () => {
  const { line, reader, exchange } = open();
  reader.onFeed = () => exchange.setPaused(true);
  line.data(bytes(10), false);
  line.data(bytes(10), true);
  exchange.setPaused(false);
  expect(line.said).toEqual(['pause', 'resume']);
});

it('never answers while paused', () => {
  const { line, reader, exchange } = open();
  reader.onFeed = () => exchange.setPaused(true);
  line.data(bytes(10), false);
  line.data(bytes(10), true);
  exchange.answer(REFUSALS.invalid);
  expect(line.said).toEqual(['pause', 'resume', '400', 'end']);
});

it('counts what several pauses of a client come to', () => {
  const { sweepAt, line, reader, exchange } = open();
  const resumedAt = 10_000 + BODY_PAUSED_MS_MAX / 2;
  line.data(bytes(100_000), false);
  sweepAt(10_000);
  exchange.setPaused(true);
  for (let at = 11_000; at <= resumedAt; at += 1_000) sweepAt(at);
  exchange.setPaused(false);
  sweepAt(resumedAt + 5_000);
  exchange.setPaused(true);
  sweepAt(resumedAt + 5_000 + BODY_PAUSED_MS_MAX / 2);
  expect(reader.heard).not.toContain('overdue');
  sweepAt(resumedAt + 5_001 + BODY_PAUSED_MS_MAX / 2);
  expect(reader.heard.at(-1)).toBe('overdue');
});

it('closes the connection of one answer in so many, and tells the client, so that clients find other workers', async () => {
  const exchanges = new OpenExchanges({ monotonic: () => 0 });
  const lines = Array.from({ length: 2 * ANSWERS_PER_CLOSE }, () => new Line());
  for (const line of lines) {
    const exchange = new Exchange(line, exchanges, PLAIN_HEAD);
    line.data(bytes(0), true);
    exchange.answer(REFUSALS.invalid);
  }
  await nextTimer();
  expect(lines.flatMap(({ said }, n) => (said.at(-1) === 'end and close' ? [n + 1] : []))).toEqual([
    ANSWERS_PER_CLOSE,
    2 * ANSWERS_PER_CLOSE,
  ]);
});

it('is never an answer without a body, which would get a length', () => {
  const exchanges = new OpenExchanges({ monotonic: () => 0 });
  for (let n = 0; n < 2 * ANSWERS_PER_CLOSE; n++) {
    const line = new Line();
    const exchange = new Exchange(line, exchanges, PLAIN_HEAD);
    line.data(bytes(0), true);
    exchange.answer({ status: '204 No Content', headers: '', body: '' });
    expect([line.said, line.headers.filter((name) => /^content-length/i.test(name))]).toEqual([
      ['204', 'end'],
      [],
    ]);
  }
});

describe('an answer that closes its connection', () => {
  const CLOSING: [string, ExchangeHead][] = [
    ['because the client asked for it', { closeMode: 'by us', isEmpty: false, requestId: '' }],
    ['as the library does by itself', { closeMode: 'by the library', isEmpty: false, requestId: '' }],
  ];

  it.each(CLOSING)('%s, never goes out while the library hands on what came', async (_why, head) => {
    const exchanges = new OpenExchanges({ monotonic: () => 0 });
    const line = new Line();
    const exchange = new Exchange(line, exchanges, head);
    line.data(bytes(3), true);
    exchange.answer(REFUSALS.invalid);
    expect([line.said, exchanges.inFlight]).toEqual([[], 1]);
    await nextTimer();
    expect([line.said[0], line.said[1]?.slice(0, 3), exchanges.inFlight]).toEqual(['400', 'end', 0]);
  });

  it('never goes out once the client has gone', async () => {
    const { exchanges, line, reader, exchange } = open();
    line.data(bytes(3), true);
    exchanges.allAnswersClose = true;
    exchange.answer(REFUSALS.invalid);
    line.abort();
    await nextTimer();
    expect([line.said, reader.heard, exchanges.inFlight]).toEqual([[], ['feed 3', 'end'], 0]);
  });
});
