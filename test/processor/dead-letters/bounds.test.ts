/** What dead letters may take: each project a share, and never the place of what is good. */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { DiscardPolicy } from '@nats-io/jetstream';
import pino from 'pino';
import { afterEach, describe, expect, it } from 'vitest';
import { freeze, thaw } from '../../support/freeze.ts';
import { FailingSink } from '../failing-sink.ts';
import {
  type EnvelopeEntry,
  envelope,
  eventually,
  type FiledDeadLetter,
  Harness,
  hexId,
  item,
} from '../harness.ts';

const MIB = 1024 * 1024;
/** An eighth. */
const SHARE_OF_16_MIB = 2 * MIB;
let harness: Harness;
let stop: (() => Promise<void>) | undefined;
afterEach(async () => {
  await stop?.();
  stop = undefined;
  await harness.close();
});

let events = 0;
const noJson = (bytes: number) => Buffer.alloc(bytes, 'x');
const bad = (projectId: string, bytes = 50): EnvelopeEntry =>
  envelope([item('event', noJson(bytes))], { projectId, eventId: hexId(++events) });
const good = (projectId: string): EnvelopeEntry =>
  envelope([item('event', '{"good":true}')], { projectId, eventId: hexId(++events) });

/** A processor whose log lines we see. */
async function processWithLog(sink?: FailingSink): Promise<() => Record<string, unknown>[]> {
  const lines: string[] = [];
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) });
  const processor = await harness.run({}, sink ? { sink } : {}, log);
  stop = () => processor.stop();
  return () => lines.map((line) => JSON.parse(line) as Record<string, unknown>);
}

const lettersOf = async (projectId: string): Promise<FiledDeadLetter[]> =>
  (await (await harness.letters()).list()).filter((one) => one.projectId === projectId);
const dropped = (): Promise<number> => harness.metric('sluice_dead_letters_dropped_total');
const storedOf = (projectId: string) => harness.stored().filter((one) => one.project_id === projectId);

/** An entry whose payload stands in parts. */
async function largeBad(projectId: string, bytes: number): Promise<EnvelopeEntry> {
  const { payload: _, ...bare } = item('event', noJson(bytes));
  return envelope([bare], { projectId, eventId: hexId(++events), parts: await harness.chunk(noJson(bytes)) });
}

describe('a project that sends more dead letters than its share', () => {
  it('loses its oldest, which is counted; the letters of others stay, and what is good is stored', async () => {
    harness = await Harness.start({ maxBytes: 16 * MIB });
    await harness.process();
    await harness.publish([bad('7')]);
    await eventually(async () => (await lettersOf('7')).length === 1);
    const sent: string[] = [];
    for (let n = 0; n < 40; n++) {
      const entry = bad('42', 200_000);
      sent.push(entry.eventId);
      await harness.publish([entry]);
      if (n % 20 === 19) await harness.drained();
    }
    await harness.publish([good('7')]);
    await harness.drained(20_000);
    expect(storedOf('7')).toHaveLength(1);
    expect(await lettersOf('7')).toHaveLength(1);
    const left = await lettersOf('42');
    const bytes = left.reduce((sum, letter) => sum + letter.bytes, 0);
    expect(bytes).toBeLessThanOrEqual(SHARE_OF_16_MIB);
    expect(bytes).toBeGreaterThan(SHARE_OF_16_MIB / 2);
    expect(left.map(({ eventId }) => eventId)).toEqual(sent.slice(-left.length));
    expect(await dropped()).toBe(40 - left.length);
    expect(await harness.metric('sluice_processed_total', '{type="event",result="dead_letter"}')).toBe(41);
  });

  it('keeps what it sends after somebody has purged the others', async () => {
    harness = await Harness.start({ maxBytes: 16 * MIB });
    await harness.process();
    const fill = async (letters: number): Promise<void> => {
      for (let n = 0; n < letters; n++) await harness.publish([bad('42', 200_000)]);
      await harness.drained();
    };
    await fill(8);
    await harness.manager.streams.purge('SLUICE_DEAD_LETTERS');
    await fill(5);
    expect(await lettersOf('42')).toHaveLength(5);
    expect(await dropped()).toBe(0);
  });

  it('is known to a processor that has just started', async () => {
    harness = await Harness.start({ maxBytes: 16 * MIB });
    for (let round = 0; round < 3; round++) {
      const processor = await harness.run();
      for (let n = 0; n < 7; n++) await harness.publish([bad('42', 200_000)]);
      await harness.drained();
      await processor.stop();
    }
    const left = await lettersOf('42');
    expect(left.reduce((sum, letter) => sum + letter.bytes, 0)).toBeLessThanOrEqual(SHARE_OF_16_MIB);
    expect(left.length).toBeGreaterThan(3);
  });

  it('keeps the record of a letter that is larger than the share: reason, size and hash; of others the bytes too', async () => {
    harness = await Harness.start({ maxBytes: 16 * MIB });
    await harness.process();
    await harness.publish([bad('8')]);
    const small = await eventually(async () => (await lettersOf('8'))[0]);
    const bytes = await (await harness.letters()).bytesOf(small);
    expect(small.sha256).toBe(createHash('sha256').update(bytes).digest('hex'));
    expect(small).not.toHaveProperty('bytesGone');
    await harness.publish([await largeBad('42', 3 * MIB), good('7')]);
    await harness.drained(20_000);
    const [letter] = await lettersOf('42');
    expect(letter).toMatchObject({ reason: 'payload is not valid JSON', bytesGone: true });
    expect(letter?.bytes).toBeGreaterThan(3 * MIB);
    expect(letter?.sha256).toMatch(/^[0-9a-f]{64}$/);
    expect((await harness.manager.streams.info('SLUICE_DEAD_LETTERS')).state.bytes).toBeLessThan(MIB);
    expect(storedOf('7')).toHaveLength(1);
  });
});

describe('many projects that fill the stream together', () => {
  it('lose the oldest letters of all, which are counted', async () => {
    harness = await Harness.start({ maxBytes: 8 * MIB });
    await harness.process();
    for (let n = 0; n < 50; n++) {
      await harness.publish([bad(`${100 + n}`, 200_000)]);
      if (n % 20 === 19) await harness.drained();
    }
    await harness.publish([good('7')]);
    await harness.drained(20_000);
    const letters = await (await harness.letters()).list();
    const projects = letters.map(({ projectId }) => Number(projectId));
    expect(projects).toEqual(Array.from({ length: projects.length }, (_, n) => 150 - projects.length + n));
    expect(projects.length).toBeGreaterThan(20);
    expect(await dropped()).toBe(50 - projects.length);
    expect(await dropped()).toBeGreaterThan(5);
    expect(storedOf('7')).toHaveLength(1);
  });
});

describe('dead letters that the broker does not take', () => {
  it.each([
    ['the stream is gone', () => harness.manager.streams.delete('SLUICE_DEAD_LETTERS')],
    ['it refuses them', () => harness.manager.streams.update('SLUICE_DEAD_LETTERS', { max_msg_size: 10 })],
  ])('because %s do not stop the good; each is logged once with its hash, and counted', async (_, spoil) => {
    harness = await Harness.start();
    await spoil();
    const lines = await processWithLog();
    await harness.publish([good('7'), bad('42'), good('7'), bad('42')]);
    await harness.publish([good('7')]);
    await harness.drained(30_000);
    expect(storedOf('7')).toHaveLength(3);
    expect(await dropped()).toBe(2);
    const lost = lines().filter(({ msg }) => msg === 'processor: dead letter lost');
    expect(lost).toHaveLength(2);
    expect(lost[0]).toMatchObject({ projectId: '42', sha256: expect.stringMatching(/^[0-9a-f]{64}$/) });
    expect(lost[0]?.bytes).toBeGreaterThan(50);
    expect(await harness.readiness()).toMatchObject({ checks: { dead_letters: 'failing' } });
  });

  it('because one of them is too large cost that one alone, and hold no stream for good', async () => {
    harness = await Harness.start();
    await harness.manager.streams.update('SLUICE_DEAD_LETTERS', { max_msg_size: 20_000 });
    await harness.process();
    await harness.publish([bad('42', 50_000), good('7')]);
    let others = 0;
    await eventually(async () => {
      const entry = envelope([item('log', noJson(50))], { projectId: '8', eventId: hexId(++events) });
      await harness.publish([entry], { stream: 'logs' });
      others++;
      return storedOf('7').length === 1;
    }, 20_000);
    await harness.drained();
    expect(await dropped()).toBe(1);
    expect(await lettersOf('8')).toHaveLength(others);
  });

  it('because some of them are too large are given up together', async () => {
    harness = await Harness.start();
    await harness.manager.streams.update('SLUICE_DEAD_LETTERS', { max_msg_size: 20_000 });
    const lines = await processWithLog();
    for (let n = 0; n < 6; n++) await harness.publish([bad('42', 50_000), bad('8')]);
    await harness.publish([good('7')]);
    await harness.drained(30_000);
    expect(storedOf('7')).toHaveLength(1);
    expect(await dropped()).toBe(6);
    expect(await lettersOf('8')).toHaveLength(6);
    const tries = lines().filter(({ msg }) => msg === 'processor: nothing can be stored, trying again');
    expect(tries).toHaveLength(1);
  });

  it('are taken where an earlier build has filled the stream, and setup has not changed it yet', async () => {
    harness = await Harness.start({ maxBytes: 8 * MIB });
    await harness.manager.streams.update('SLUICE_DEAD_LETTERS', { discard: DiscardPolicy.New } as object);
    const fill = (): Promise<boolean> =>
      harness.link.js.publish(`sluice.dead_letters.${hexId(++events)}`, Buffer.alloc(500_000)).then(
        () => false,
        () => true,
      );
    await eventually(fill);
    await harness.process();
    await harness.publish([bad('42'), good('7')]);
    await harness.drained(20_000);
    expect(storedOf('7')).toHaveLength(1);
    expect(await lettersOf('42')).toHaveLength(1);
  });

  it('are taken again without a restart when the stream is there', async () => {
    harness = await Harness.start();
    const { config } = await harness.manager.streams.info('SLUICE_DEAD_LETTERS');
    await harness.manager.streams.delete('SLUICE_DEAD_LETTERS');
    await harness.process();
    await harness.publish([bad('42')]);
    await harness.drained(30_000);
    await harness.manager.streams.add(config);
    await eventually(async () => {
      await harness.publish([bad('42')]);
      await harness.drained();
      return (await lettersOf('42')).length > 0;
    });
    expect(await harness.readiness()).toMatchObject({ checks: { dead_letters: 'ok' } });
  });

  it('wait when the stream is away for a moment only', async () => {
    harness = await Harness.start();
    const { config } = await harness.manager.streams.info('SLUICE_DEAD_LETTERS');
    await harness.manager.streams.delete('SLUICE_DEAD_LETTERS');
    await harness.process();
    await harness.publish([bad('42')]);
    await eventually(async () => Object.values((await harness.readiness()).checks).includes('failing'));
    await harness.manager.streams.add(config);
    await harness.drained();
    expect(await lettersOf('42')).toHaveLength(1);
    expect(await dropped()).toBe(0);
  });
});

describe('dead letters of a batch', () => {
  it('are all filed after a broker that stood still for six seconds', async () => {
    harness = await Harness.start({ ackWaitMs: 30_000 });
    await harness.process();
    // The first batch leaves at once, the next one a second later.
    await harness.publish([good('7')]);
    await eventually(() => storedOf('7').length === 1);
    await harness.publish(Array.from({ length: 40 }, () => bad('42')));
    await harness.publish([good('7')]);
    await eventually(
      async () => (await harness.manager.consumers.info('SLUICE_EVENTS', 'processor')).num_ack_pending === 2,
    );
    await freeze(harness.nats.pid);
    await sleep(6_000);
    thaw(harness.nats.pid);
    await harness.drained(30_000);
    expect(await lettersOf('42')).toHaveLength(40);
    expect(await dropped()).toBe(0);
    expect(storedOf('7')).toHaveLength(2);
  });

  it('that the broker does not take hold up what is good no longer than one does', async () => {
    harness = await Harness.start();
    await harness.manager.streams.update('SLUICE_DEAD_LETTERS', { max_msg_size: 10 });
    const lines = await processWithLog();
    await harness.publish([...Array.from({ length: 100 }, () => bad('42')), good('7')]);
    await harness.drained(30_000);
    expect(storedOf('7')).toHaveLength(1);
    expect(await dropped()).toBe(100);
    expect(lines().filter(({ msg }) => msg === 'processor: dead letter')).toHaveLength(0);
  });
});

describe('the log', () => {
  it('names a dead letter once, however often its batch is tried', async () => {
    harness = await Harness.start({ ackWaitMs: 5_000 });
    const sink = await FailingSink.wrap(harness.dir);
    sink.failing = 'commit';
    const lines = await processWithLog(sink);
    await harness.publish([bad('42'), bad('42')]);
    await eventually(() => sink.failures > 4);
    sink.failing = undefined;
    await harness.drained();
    expect(lines().filter(({ msg }) => msg === 'processor: dead letter')).toHaveLength(2);
  });

  it('names some of many, and says how many more there are', async () => {
    harness = await Harness.start();
    const lines = await processWithLog();
    await harness.publish(Array.from({ length: 200 }, () => bad('42')));
    await harness.drained();
    const named = lines().filter(({ msg }) => msg === 'processor: dead letter');
    expect(named.length).toBeLessThanOrEqual(20);
    const more = lines().filter(({ msg }) => msg === 'processor: further dead letters');
    expect(named.length + more.reduce((sum, { letters }) => sum + Number(letters), 0)).toBe(200);
  });
});
