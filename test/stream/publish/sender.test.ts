import type { Msg } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Clock, systemClock } from '../../../src/lib/clock.ts';
import { createLog } from '../../../src/lib/log.ts';
import { PUBLISH_ANSWER_MS_MIN, PUBLISH_PAUSE_MS, UNSENT_BYTES_MAX } from '../../../src/limits.ts';
import { NatsLink } from '../../../src/stream/nats.ts';
import { Sender, type SendResult } from '../../../src/stream/publish/sender.ts';
import { freeze, thaw } from '../../support/freeze.ts';
import { natsServer, type TestServer } from '../../support/servers.ts';
import { bytesOf, MIB } from '../broker.ts';

/**
 * A responder on a plain subject stands where a stream would, so that each answer can be chosen; the server and both connections
 * are real. An answer that is undefined is none.
 */
let server: TestServer;
let link: NatsLink;
let far: NatsLink;
let sender: Sender;
let subjects = 0;
const connect = (): Promise<NatsLink> =>
  NatsLink.connect({ urls: [server.url], name: 'test', log: createLog('silent') });

beforeAll(async () => {
  server = await natsServer();
  [link, far] = await Promise.all([connect(), connect()]);
  sender = new Sender({ link, clock: systemClock, log: createLog('silent') });
});
afterAll(async () => {
  await link.close();
  await far.close();
  await server.close();
});

const stored = { stream: 'S', seq: 7 };
const error = (err_code: number, description = 'said so') => ({
  error: { code: 400, err_code, description },
  stream: 'S',
  seq: 0,
});
type Answer = object | string | undefined;

type Options = { ms?: number; by?: Sender; clock?: Clock; onAnswer?: () => void };

/** Sends one message to a responder that gives these answers in order. */
async function deliver(answers: Answer[], options: Options = {}) {
  const { ms = 1_500, by = sender, clock = systemClock, onAnswer } = options;
  const subject = `answers.${++subjects}`;
  const ids: (string | undefined)[] = [];
  const subscription = far.connection.subscribe(subject, {
    callback: (_, msg) => {
      ids.push(msg.headers?.get('Nats-Msg-Id'));
      const answer = answers[ids.length - 1];
      onAnswer?.();
      if (answer !== undefined) msg.respond(typeof answer === 'string' ? answer : JSON.stringify(answer));
    },
  });
  await far.connection.flush();
  const startedAt = clock.monotonic();
  const message = { stream: 'S', subject, data: bytesOf('x'), deadline: startedAt + ms };
  const delivered = await new Promise<SendResult>((resolve) => by.send(message, resolve));
  subscription.unsubscribe();
  return { delivered, ids, ms: clock.monotonic() - startedAt };
}

describe('a delivery', () => {
  it.each([10002, 10039, 10047, 10054, 10109])('is refused at once for error %i', async (code) => {
    const { delivered, ids } = await deliver([error(code), stored]);
    expect(delivered).toMatchObject({ result: 'refused' });
    expect(ids).toHaveLength(1);
  });

  it('is refused at once when the stream is full, but not when a write failed', async () => {
    const full = await deliver([error(10077, 'maximum bytes exceeded'), stored]);
    expect(full.delivered).toMatchObject({ result: 'refused' });
    const failed = await deliver([error(10077, 'no space left on device'), stored]);
    expect(failed.delivered).toMatchObject({ result: 'stored' });
  });

  it.each([10023, 10028, 10158, 10167])(
    'waits and tries again for error %i, with the same id',
    async (code) => {
      const { delivered, ids } = await deliver([error(code), error(code), stored]);
      expect(delivered).toMatchObject({ result: 'stored' });
      expect(ids).toHaveLength(3);
      expect(new Set(ids).size).toBe(1);
    },
  );

  /** Every attempt is refused, and each refusal moves the clock by one pause. @returns also the number of attempts */
  async function refusedUntil(ms: number) {
    let now = 0;
    const clock: Clock = { ...systemClock, monotonic: () => now };
    const by = new Sender({ link, clock, log: createLog('silent') });
    const onAnswer = (): void => {
      now += PUBLISH_PAUSE_MS;
    };
    const refusals = Array.from({ length: 20 }, () => error(10023));
    const { delivered, ids } = await deliver(refusals, { ms, by, clock, onAnswer });
    return { ...delivered, attempts: ids.length };
  }

  it('is refused when every attempt was answered by a refusal until the deadline', async () => {
    const delivered = await refusedUntil(4 * PUBLISH_PAUSE_MS);
    expect(delivered).toEqual({ result: 'refused', reason: 'said so (10023)', attempts: 3 });
  });

  it('is not tried again with too little time left for an answer', async () => {
    const ms = 2 * PUBLISH_PAUSE_MS + PUBLISH_ANSWER_MS_MIN;
    expect(await refusedUntil(ms)).toMatchObject({ result: 'refused', attempts: 1 });
    expect(await refusedUntil(ms + 1)).toMatchObject({ result: 'refused', attempts: 2 });
  });

  it('is refused also when the timer of its last pause is early', async () => {
    // By this clock, every timer is. There is time for three attempts, and a fourth has no answer.
    const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() * 0.95 };
    const by = new Sender({ link, clock, log: createLog('silent') });
    const refusals = [error(10023), error(10023), error(10023)];
    const { delivered } = await deliver(refusals, { ms: 600, by, clock });
    expect(delivered).toMatchObject({ result: 'refused' });
  });

  it.each([
    ['is no JSON', 'pong'],
    ['is nothing', ''],
    ['has no sequence', { stream: 'S' }],
    ['has a sequence that counts nothing', { stream: 'S', seq: 0 }],
    ['has no stream', { seq: 5 }],
    ['is null', 'null'],
    ['is an error of unknown meaning', error(12345)],
  ])('is not known when the answer %s', async (_, answer) => {
    const { delivered } = await deliver(
      Array.from({ length: 20 }, () => answer),
      { ms: 600 },
    );
    expect(delivered).toMatchObject({ result: 'unknown' });
  });

  it('is not known when one attempt went unanswered, whatever the others were told', async () => {
    const { delivered, ids, ms } = await deliver([undefined, error(10077, 'maximum bytes exceeded')], {
      ms: 5_000,
    });
    expect(ids).toHaveLength(2);
    expect(delivered).toMatchObject({ result: 'unknown' });
    expect(ms).toBeLessThan(4_000);
  });

  it('is not known when one attempt went unanswered and another was answered twice, as two leaders do', async () => {
    const subject = `answers.${++subjects}`;
    let attempts = 0;
    const subscription = far.connection.subscribe(subject, {
      callback: (_, msg) => {
        if (++attempts === 1) return;
        for (let leader = 1; leader <= 2; leader++) msg.respond(JSON.stringify(error(10023)));
      },
    });
    await far.connection.flush();
    const message = { stream: 'S', subject, data: bytesOf('x'), deadline: performance.now() + 1_500 };
    const delivered = await new Promise<SendResult>((resolve) => sender.send(message, resolve));
    subscription.unsubscribe();
    expect(delivered).toMatchObject({ result: 'unknown', reason: 'said so (10023)' });
    expect(attempts).toBeGreaterThan(1);
  });

  it('is not known while the stream says that the same id is being stored', async () => {
    const { delivered } = await deliver(Array.from({ length: 20 }, () => error(10158)));
    expect(delivered).toMatchObject({ result: 'unknown', reason: 'said so (10158)' });
  });

  it('is stored when the answer to an earlier attempt comes late', async () => {
    const subject = `answers.${++subjects}`;
    let attempts = 0;
    let first: Msg | undefined;
    const subscription = far.connection.subscribe(subject, {
      callback: (_, msg) => {
        first ??= msg;
        if (++attempts === 2) first.respond(JSON.stringify(stored));
      },
    });
    await far.connection.flush();
    const message = { stream: 'S', subject, data: bytesOf('x'), deadline: performance.now() + 5_000 };
    const delivered = await new Promise<SendResult>((resolve) => sender.send(message, resolve));
    subscription.unsubscribe();
    expect(delivered).toMatchObject({ result: 'stored' });
    expect(attempts).toBe(2);
  });

  it('lets a bug of whoever is told end the process, and not the connection', async () => {
    const listeners = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException');
    const caught = new Promise<Error>((resolve) => process.once('uncaughtException', resolve));
    const subject = `answers.${++subjects}`;
    far.connection.subscribe(subject, {
      max: 1,
      callback: (_, msg) => void msg.respond(JSON.stringify(stored)),
    });
    await far.connection.flush();
    const deadline = performance.now() + 1_000;
    sender.send({ stream: 'S', subject, data: bytesOf('x'), deadline }, () => {
      throw new Error('a bug');
    });
    expect((await caught).message).toBe('a bug');
    for (const listener of listeners) process.on('uncaughtException', listener);
    expect((await deliver([stored])).delivered).toMatchObject({ result: 'stored' });
  });

  it('gives every message an id of its own', async () => {
    const first = await deliver([stored]);
    const second = await deliver([stored]);
    expect(first.ids[0]).not.toBe(second.ids[0]);
    const other = new Sender({ link: far, clock: systemClock, log: createLog('silent') });
    const subject = `answers.${++subjects}`;
    const id = new Promise<string | undefined>((resolve) => {
      link.connection.subscribe(subject, {
        max: 1,
        callback: (_, msg) => {
          resolve(msg.headers?.get('Nats-Msg-Id'));
          msg.respond(JSON.stringify(stored));
        },
      });
    });
    await link.connection.flush();
    const deadline = performance.now() + 1_000;
    other.send({ stream: 'S', subject, data: bytesOf('x'), deadline }, () => undefined);
    expect((await id)?.split('.')[0]).not.toBe(first.ids[0]?.split('.')[0]);
  });
});

describe('a broker that stands still', () => {
  it('is sent no more than fits the bound, and again when it goes on', async () => {
    const data = new Uint8Array(MIB / 2);
    const results: SendResult['result'][] = [];
    let sent = 0;
    const send = (): void => {
      const message = { stream: 'S', subject: 'nobody', data, deadline: systemClock.monotonic() + 1_500 };
      sender.send(message, ({ result }) => results.push(result));
      sent++;
    };
    await freeze(server.pid);
    try {
      while (!results.includes('refused') && link.unsentBytes < 2 * UNSENT_BYTES_MAX) {
        send();
        await new Promise((resolve) => setImmediate(resolve));
      }
      // All have made their attempts by then.
      await expect.poll(() => results.length).toBe(sent);
      expect(link.unsentBytes).toBeLessThan(UNSENT_BYTES_MAX + MIB);
      expect(results).toContain('unknown');
      expect([sender.connected, sender.hasRoom]).toEqual([true, false]);
    } finally {
      thaw(server.pid);
    }
    await expect.poll(() => link.unsentBytes).toBe(0);
    expect((await deliver([stored])).delivered).toMatchObject({ result: 'stored' });
  });
});
