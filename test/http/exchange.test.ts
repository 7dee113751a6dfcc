import { expect, it } from 'vitest';
import { type BodyReader, Exchange, ExchangeDesk, type ResponseSocket } from '../../src/http/exchange.ts';
import { REFUSALS } from '../../src/http/outcome.ts';
import { BODY_MS_MAX, BODY_RATE_BYTES_PER_SEC, REFUSED_DRAIN_BYTES_MAX } from '../../src/limits.ts';

/** A socket in the hands of the test: what comes in is what the test says, what goes out is written down. */
class Line implements ResponseSocket {
  readonly said: string[] = [];
  data: (chunk: ArrayBuffer, isLast: boolean) => void = () => undefined;
  abort: () => void = () => undefined;
  onAborted(handler: () => void): void {
    this.abort = handler;
  }
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): void {
    this.data = handler;
  }
  cork(callback: () => void): void {
    callback();
  }
  writeStatus(status: string): void {
    this.said.push(status.slice(0, 3));
  }
  writeHeader(): void {}
  end(_body: string, close?: boolean): void {
    this.said.push(close ? 'end and close' : 'end');
  }
  endWithoutBody(_length: undefined, close?: boolean): void {
    this.said.push(close ? 'end and close' : 'end');
  }
  pause(): void {
    this.said.push('pause');
  }
  resume(): void {
    this.said.push('resume');
  }
  close(): void {
    this.said.push('close');
    this.abort();
  }
}

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
  gone(why: string): void {
    this.heard.push(why);
  }
}

function open() {
  const desk = new ExchangeDesk();
  const line = new Line();
  const reader = new Reader();
  const exchange = new Exchange(line, desk, 0);
  exchange.read(reader);
  return { desk, line, reader, exchange };
}
const bytes = (count: number): ArrayBuffer => new ArrayBuffer(count);

it('hands on the body and answers when it is asked to', () => {
  const { desk, line, reader, exchange } = open();
  line.data(bytes(3), false);
  line.data(bytes(2), true);
  expect(reader.heard).toEqual(['feed 3', 'feed 2', 'end']);
  expect([desk.inFlight, desk.reading.size]).toEqual([1, 0]);
  exchange.answer(REFUSALS.invalid);
  expect(line.said).toEqual(['400', 'end']);
  expect(desk.inFlight).toBe(0);
});

it('keeps a refusal until the body has arrived, and drops the rest of it', () => {
  const { line, reader, exchange } = open();
  exchange.answer(REFUSALS.too_large);
  line.data(bytes(1_000), false);
  expect(line.said).toEqual([]);
  line.data(bytes(1_000), true);
  expect([line.said, reader.heard]).toEqual([['413', 'end'], []]);
});

it('does not read for ever: beyond the bound it answers and closes', () => {
  const { line, exchange } = open();
  exchange.answer(REFUSALS.too_large);
  line.data(bytes(REFUSED_DRAIN_BYTES_MAX), false);
  expect(line.said).toEqual([]);
  line.data(bytes(1), false);
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
  const { desk, line, reader, exchange } = open();
  line.abort();
  exchange.answer(REFUSALS.invalid);
  expect([reader.heard, line.said, desk.inFlight]).toEqual([['aborted'], [], 0]);
});

it('cuts a body that is slower than the minimum rate over any window after the grace', () => {
  const { desk, line, reader } = open();
  const enough = BODY_RATE_BYTES_PER_SEC;
  for (let second = 1; second <= 40; second++) {
    line.data(bytes(enough), false);
    desk.sweep(second * 1_000);
  }
  expect(line.said.every((word) => word === 'pause' || word === 'resume')).toBe(true);
  for (let second = 41; second <= 52; second++) desk.sweep(second * 1_000);
  expect(line.said.at(-1)).toBe('close');
  expect(reader.heard.at(-1)).toBe('too_slow');
});

it('cuts any body at the deadline, and answers first when an answer waits', () => {
  const { desk, line, exchange } = open();
  exchange.answer(REFUSALS.unauthenticated);
  line.data(bytes(1), false);
  desk.sweep(BODY_MS_MAX + 1);
  expect(line.said).toEqual(['401', 'end and close']);
});

it('closes connections with their next answer once the desk is closing', () => {
  const { desk, line, exchange } = open();
  desk.closing = true;
  line.data(bytes(0), true);
  exchange.answer(REFUSALS.invalid);
  expect(line.said).toEqual(['400', 'end and close']);
});
