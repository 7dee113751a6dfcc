import { describe, expect, it } from 'vitest';
import { REFUSALS } from '../../../src/ingest/http/answers/outcome.ts';
import { type BodyReader, Exchange, type ExchangeHead } from '../../../src/ingest/http/exchange.ts';
import { OpenExchanges } from '../../../src/ingest/http/open-exchanges.ts';
import {
  ANSWERS_PER_CLOSE,
  BODY_MS_MAX,
  BODY_PAUSED_MS_MAX,
  BODY_PIECE_BYTES_MIN,
  BODY_PIECES_FREE,
  BODY_RATE_BYTES_PER_SEC,
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
  onOverdue: () => void = () => undefined;
  overdue(): void {
    this.heard.push('overdue');
    this.onOverdue();
  }
  onCrumbled: () => void = () => undefined;
  inTinyPieces(): void {
    this.heard.push('inTinyPieces');
    this.onCrumbled();
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

it('hands on the body and answers when it is asked to', () => {
  const { exchanges, line, reader, exchange } = open();
  line.data(bytes(3), false);
  line.data(bytes(2), true);
  expect(reader.heard).toEqual(['feed 3', 'feed 2', 'end']);
  expect([exchanges.inFlight, exchanges.reading.length]).toEqual([1, 0]);
  exchange.answer(REFUSALS.invalid);
  expect(line.said).toEqual(['400', 'end']);
  expect(exchanges.inFlight).toBe(0);
});

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

it('keeps a refusal until the body has arrived, and drops the rest of it', () => {
  const { line, reader, exchange } = open();
  exchange.answer(REFUSALS.too_large);
  line.data(bytes(1_000), false);
  expect(line.said).toEqual([]);
  line.data(bytes(1_000), true);
  expect([line.said, reader.heard]).toEqual([['413', 'end'], []]);
});

it('refuses a body of tiny pieces, once, and drops the rest of it', () => {
  const { line, reader, exchange } = open();
  reader.onCrumbled = () => exchange.answer(REFUSALS.invalid);
  for (let piece = 0; piece < BODY_PIECES_FREE + 15; piece++) line.data(bytes(1), false);
  expect(reader.heard).not.toContain('inTinyPieces');
  for (let piece = 0; piece < 1_000; piece++) line.data(bytes(1), false);
  expect(reader.heard.filter((word) => word === 'inTinyPieces')).toHaveLength(1);
  expect([reader.heard.at(-1), line.said]).toEqual(['inTinyPieces', []]);
  line.data(bytes(1), true);
  expect(line.said).toEqual(['400', 'end']);
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

it('takes any number of pieces that bring enough', () => {
  const { line, reader } = open();
  for (let piece = 0; piece < 20_000; piece++) line.data(bytes(BODY_PIECE_BYTES_MIN), false);
  expect(reader.heard).not.toContain('inTinyPieces');
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

it('tells the reader that the client went away, once, and answers nobody', () => {
  const { exchanges, line, reader, exchange } = open();
  line.abort();
  exchange.answer(REFUSALS.invalid);
  expect([reader.heard, line.said, exchanges.inFlight]).toEqual([['aborted'], [], 0]);
});

it('cuts a body that is slower than the minimum rate over any window after the grace', () => {
  const { sweepAt, line, reader } = open();
  const enough = BODY_RATE_BYTES_PER_SEC;
  for (let second = 1; second <= 40; second++) {
    line.data(bytes(enough), false);
    sweepAt(second * 1_000);
  }
  expect(line.said.every((word) => word === 'pause' || word === 'resume')).toBe(true);
  for (let second = 41; second <= 52; second++) sweepAt(second * 1_000);
  expect(line.said.at(-1)).toBe('close');
  expect(reader.heard.at(-1)).toBe('too_slow');
});

it('cuts any body at the deadline, and answers first when an answer waits', async () => {
  const { sweepAt, line, exchange } = open();
  exchange.answer(REFUSALS.unauthenticated);
  line.data(bytes(1), false);
  sweepAt(BODY_MS_MAX + 1);
  await nextTimer();
  expect(line.said).toEqual(['401', 'end and close']);
});

describe('a client that is paused', () => {
  /** Held from the tenth second on, for so many ms. */
  function pausing(ms: number) {
    const opened = open();
    const { sweepAt, line, exchange } = opened;
    line.data(bytes(100_000), false);
    sweepAt(10_000);
    exchange.setPaused(true);
    for (let at = 11_000; at <= 10_000 + ms; at += 1_000) sweepAt(at);
    return { ...opened, resumedAt: 10_000 + ms };
  }

  it('is not too slow, however long its body takes altogether, and has its own time left', () => {
    const { sweepAt, line, reader, exchange, resumedAt } = pausing(BODY_PAUSED_MS_MAX);
    exchange.setPaused(false);
    const endsAt = resumedAt + BODY_MS_MAX - 10_000;
    for (let at = resumedAt + 1_000; at <= endsAt; at += 1_000) {
      line.data(bytes(BODY_RATE_BYTES_PER_SEC), false);
      sweepAt(at);
    }
    expect(reader.heard.filter((word) => !word.startsWith('feed'))).toEqual([]);
    expect(line.said.slice(-2)).toEqual(['pause', 'resume']);
    sweepAt(endsAt + 1);
    expect([line.said.at(-1), reader.heard.at(-1)]).toEqual(['close', 'too_slow']);
  });

  it('must keep the minimum rate once it is let go', () => {
    const { sweepAt, reader, exchange, resumedAt } = pausing(30_000);
    exchange.setPaused(false);
    for (let second = 1; second <= 11; second++) sweepAt(resumedAt + second * 1_000);
    expect(reader.heard.at(-1)).toBe('too_slow');
  });

  it('is refused once that has taken too long: its socket is read again, and the answer follows its body', () => {
    const { sweepAt, line, reader, exchange, resumedAt } = pausing(BODY_PAUSED_MS_MAX);
    reader.onOverdue = () => exchange.answer(REFUSALS.overloaded);
    expect(reader.heard).not.toContain('overdue');
    sweepAt(resumedAt + 1);
    expect([reader.heard.at(-1), line.said.at(-1)]).toEqual(['overdue', 'resume']);
    sweepAt(resumedAt + 1_000);
    line.data(bytes(10), true);
    expect(line.said.slice(-2)).toEqual(['503', 'end']);
    expect(reader.heard.filter((word) => word === 'overdue')).toHaveLength(1);
  });

  it('counts what several pauses come to', () => {
    const { sweepAt, reader, exchange, resumedAt } = pausing(BODY_PAUSED_MS_MAX / 2);
    exchange.setPaused(false);
    sweepAt(resumedAt + 5_000);
    exchange.setPaused(true);
    sweepAt(resumedAt + 5_000 + BODY_PAUSED_MS_MAX / 2);
    expect(reader.heard).not.toContain('overdue');
    sweepAt(resumedAt + 5_001 + BODY_PAUSED_MS_MAX / 2);
    expect(reader.heard.at(-1)).toBe('overdue');
  });
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

it('closes connections with their next answer once the worker is closing', async () => {
  const { exchanges, line, exchange } = open();
  exchanges.allAnswersClose = true;
  line.data(bytes(0), true);
  exchange.answer(REFUSALS.invalid);
  await nextTimer();
  expect(line.said).toEqual(['400', 'end and close']);
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
