import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { DeadLetterBox, type FiledDeadLetter } from '../../../src/management/dead-letters/box.ts';
import { letterJson } from '../../../src/management/dead-letters/letter-json.ts';
import { DeadLetters } from '../../../src/processor/dead-letters/dead-letters.ts';
import { type DeadLetter, deadLetterId } from '../../../src/stream/dead-letter-format.ts';
import { decodeFrame, type EnvelopeEntry, encodeEntry, encodeFrame } from '../../../src/stream/frame.ts';
import { joinParts, readParts } from '../../../src/stream/parts.ts';
import { setupTopology } from '../../../src/stream/setup/setup.ts';
import { streamSubject } from '../../../src/stream/topology.ts';
import { link as connect, log, type NatsLink } from '../../projects/broker.ts';
import { natsServer, type TestServer } from '../../support/servers.ts';
import { type Ran, runCommand } from '../run-command.ts';

const MIB = 1024 * 1024;
const EVENT_ID = '0123456789abcdef0123456789abcdef';
const SUBJECT = streamSubject('events', 0);
let server: TestServer;
let link: NatsLink;
let letters: DeadLetters;
beforeAll(async () => {
  server = await natsServer();
  link = await connect(server.url);
  letters = new DeadLetters({ link, log });
  await setupTopology(link, { replicas: 1, shards: 1, maxBytes: 32 * MIB });
});
beforeEach(async () => {
  const manager = await link.manager();
  for (const stream of ['SLUICE_DEAD_LETTERS', 'SLUICE_EVENTS']) await manager.streams.purge(stream);
});
afterAll(async () => {
  await link?.close();
  await server?.close();
});

/** No processor runs that a replay could wait for. */
const sluice = (...args: string[]): Promise<Ran> => {
  const words = ['dead-letters', ...args, ...(args[0] === 'replay' ? ['--wait', '0'] : [])];
  return runCommand(words, {
    SLUICE_NATS_URL: server.url,
    SLUICE_REDIS_URL: 'redis://127.0.0.1:1',
  });
};
const json = async <T>(...args: string[]): Promise<T> => {
  const ran = await sluice(...args, '--json');
  expect(ran).toMatchObject({ status: 0, err: '' });
  return JSON.parse(ran.out) as T;
};

const entry = (payload: Uint8Array): EnvelopeEntry => ({
  kind: 'envelope',
  projectId: '7',
  eventId: EVENT_ID,
  receivedAt: 1_790_000_000_000,
  month: '2026-09',
  position: 5,
  items: [
    { index: 2, type: 'event', header: Buffer.from('{"type":"event"}'), length: payload.length, payload },
  ],
});
async function file(letter: Partial<DeadLetter>): Promise<string> {
  const whole: DeadLetter = {
    kind: 'frame',
    reason: 'it is no frame',
    subject: SUBJECT,
    frameId: 'boot.1',
    body: Buffer.from('no frame'),
    ...letter,
  };
  expect((await letters.publish([whole]))[0]).not.toHaveProperty('lost');
  return deadLetterId(whole);
}
const fileItem = (payload: Uint8Array, frameId = 'boot.2'): Promise<string> => {
  const { month: _month, position: _position, ...alone } = entry(payload);
  const facts = { projectId: '7', eventId: EVENT_ID, type: 'event', receivedAt: alone.receivedAt };
  const place = { kind: 'item' as const, frameId, entryIndex: 3, itemIndex: 2 };
  return file({ ...place, ...facts, reason: 'the payload is not JSON', body: encodeEntry(alone) });
};
const queued = async () =>
  (await link.manager()).streams.getMessage('SLUICE_EVENTS', { last_by_subj: SUBJECT });
const filedIds = async (): Promise<string[]> => (await json<{ id: string }[]>('list')).map(({ id }) => id);

describe('dead-letters', () => {
  it('lists nothing where nothing is', async () => {
    expect(await json('list')).toEqual([]);
    expect((await sluice('list')).out).toBe('There are no dead letters.\n');
    expect((await sluice('replay', '--all')).out).toBe('There are no dead letters.\n');
  });

  it('lists letters with their reasons, oldest first', async () => {
    const first = await file({});
    const second = await fileItem(Buffer.from('{"broken'));
    expect(await json('list')).toEqual([
      expect.objectContaining({
        id: first,
        kind: 'frame',
        reason: 'it is no frame',
        subject: SUBJECT,
        bytes: 8,
      }),
      expect.objectContaining({
        id: second,
        kind: 'item',
        projectId: '7',
        itemIndex: 2,
        receivedAt: 1_790_000_000_000,
      }),
    ]);
    expect((await sluice('list')).out).toMatch(
      new RegExp(`^${second} +\\S+ +item +event +7 +\\d+ +the payload is not JSON$`, 'm'),
    );
  });

  it('lists more than one fetch brings', async () => {
    for (let n = 0; n < 1_200; n += 100)
      await Promise.all(Array.from({ length: 100 }, (_, m) => file({ frameId: `many.${n + m}` })));
    expect(await filedIds()).toHaveLength(1_200);
    expect((await sluice('purge', '--all')).out).toBe('Purged 1200 dead letters.\n');
    expect(await filedIds()).toEqual([]);
  });

  it('shows one with what the client sent, harmless to a terminal', async () => {
    const id = await fileItem(Buffer.from('{"broken \u001b[31m'));
    const shown = await json<Record<string, unknown>>('show', id);
    expect(shown.items).toEqual([
      { item_index: 2, type: 'event', item_header: '{"type":"event"}', payload: '{"broken \u001b[31m' },
    ]);
    const { out } = await sluice('show', id);
    expect(out).toMatch(/^reason +the payload is not JSON$/m);
    expect(out).toContain('{"broken \\u001b[31m');
    expect((await sluice('show', id, '--raw')).out).toBe('{"broken \u001b[31m');
  });

  it('joins a letter that stands in parts', async () => {
    const payload = Buffer.alloc(3 * MIB, 'x');
    const id = await fileItem(payload);
    const [listed] = await json<{ id: string; parts: number }[]>('list');
    expect(listed).toMatchObject({ id, parts: expect.any(Number) });
    expect(listed?.parts).toBeGreaterThan(1);
    expect((await sluice('show', id, '--raw')).out).toBe(payload.toString());
  });

  it('fails for an unknown id and refuses a malformed one', async () => {
    const unknown = '0'.repeat(32);
    expect(await sluice('show', unknown)).toMatchObject({
      status: 1,
      err: `sluice: There is no dead letter ${unknown}\n`,
    });
    expect(await sluice('show', '12')).toMatchObject({ status: 2, out: '' });
    expect(await sluice('purge')).toMatchObject({ status: 2, out: '' });
    expect(await sluice('purge', unknown, '--all')).toMatchObject({ status: 2, out: '' });
  });

  it('purges what is named and leaves the rest', async () => {
    const [first, second] = [await file({}), await fileItem(Buffer.alloc(2 * MIB, 'x'))];
    expect((await sluice('purge', second)).out).toBe('Purged 1 dead letter.\n');
    expect(await filedIds()).toEqual([first]);
    expect((await (await link.manager()).streams.info('SLUICE_DEAD_LETTERS')).state.messages).toBe(1);
  });
});

describe('a letter without its bytes', () => {
  it('is listed, shown with size and hash, and purged; neither its bytes nor a replay can be had', async () => {
    const payload = Buffer.alloc(5 * MIB, 'x'); // an eighth of the stream is 4 MiB
    const id = await fileItem(payload, 'boot.20');
    const [listed] = await json<{ bytes: number; sha256: string }[]>('list');
    expect(listed).toMatchObject({ id, bytesGone: true, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) });
    expect(listed?.bytes).toBeGreaterThan(payload.length);
    expect((await sluice('list')).out).toMatch(/ \d+, gone /);
    const gone = `The ${listed?.bytes} bytes of dead letter ${id} were not kept: they are more than its project's share (sha256 ${listed?.sha256})`;
    const shown = await sluice('show', id);
    expect(shown).toMatchObject({ status: 0, err: '' });
    expect(shown.out).toMatch(/^reason +the payload is not JSON$/m);
    expect(shown.out).toContain(gone);
    expect(await json('show', id)).toMatchObject({ id, bytes_gone: `${gone}.` });
    expect(await sluice('show', id, '--raw')).toMatchObject({ status: 1, out: '', err: `sluice: ${gone}\n` });
    expect(await sluice('replay', id)).toMatchObject({ status: 1, out: '' });
    expect(await filedIds()).toEqual([id]);
    expect((await sluice('purge', id)).out).toBe('Purged 1 dead letter.\n');
    expect(await filedIds()).toEqual([]);
  });
});

it('a very large letter is JSON without its payload a second time', () => {
  const payload = Buffer.alloc(95 * MIB, 1); // six characters each as a text of JSON
  const body = encodeEntry(entry(payload));
  const letter = { kind: 'item', bodyBytes: body.length } as FiledDeadLetter;
  const shown = letterJson({ letter, bytes: body });
  expect(shown).toMatchObject({ items: [{ payload_bytes: payload.length }] });
  expect(JSON.stringify(shown).length).toBeGreaterThan(body.length);
});

describe('letters of an earlier build, whose subjects do not name their project', () => {
  /** Moves a letter to where earlier builds filed it. */
  async function fileEarlier(payload: Buffer, frameId: string): Promise<string> {
    const id = await fileItem(payload, frameId);
    const manager = await link.manager();
    const { state } = await manager.streams.info('SLUICE_DEAD_LETTERS');
    for (let seq = state.first_seq; seq <= state.last_seq; seq++) {
      const message = await manager.streams.getMessage('SLUICE_DEAD_LETTERS', { seq });
      if (!message?.subject.includes(`.7.${id}`)) continue;
      await link.js.publish(message.subject.replace('.7.', '.'), message.data, { headers: message.header });
      await manager.streams.deleteMessage('SLUICE_DEAD_LETTERS', seq);
    }
    return id;
  }

  it('are listed among the others, shown, replayed and purged', async () => {
    const payload = Buffer.alloc(3 * MIB, '{"a":1}');
    const [large, small] = [
      await fileEarlier(payload, 'boot.21'),
      await fileEarlier(Buffer.from('{"small"'), 'boot.22'),
    ];
    const fresh = await fileItem(Buffer.from('{"fresh"'), 'boot.23');
    expect(await filedIds()).toEqual([large, small, fresh]);
    expect((await sluice('show', large, '--raw')).out).toBe(payload.toString());
    expect((await sluice('replay', large)).status).toBe(0);
    expect((await sluice('purge', small)).out).toBe('Purged 1 dead letter.\n');
    expect(await filedIds()).toEqual([fresh]);
    expect((await (await link.manager()).streams.info('SLUICE_DEAD_LETTERS')).state.messages).toBe(1);
  });
});

describe('dead-letters replay', () => {
  it('sends an item back as a frame of its own, and removes the letter', async () => {
    const id = await fileItem(Buffer.from('{"message":"whole again"}'));
    expect((await sluice('replay', id)).out).toBe(`Replayed ${id} to ${SUBJECT}.\n`);
    const message = await queued();
    expect(message?.header.get('Nats-Msg-Id')).toBe(`replay.${id}`);
    const [slot] = decodeFrame(message?.data ?? new Uint8Array());
    const {
      month: _month,
      position: _position,
      ...uncounted
    } = entry(Buffer.from('{"message":"whole again"}'));
    expect(slot).toMatchObject({
      ok: true,
      entry: { ...uncounted, items: [expect.objectContaining({ index: 2 })] },
    });
    expect(await filedIds()).toEqual([]);
  });

  it('takes those that a filter names, and says what became of them as JSON; so does purge', async () => {
    const body = encodeEntry(entry(Buffer.from('{}')));
    const id = await file({ kind: 'entry', frameId: 'boot.8', entryIndex: 0, projectId: '7', body });
    const other = await file({ frameId: 'boot.9', reason: 'another' });
    expect(await json('replay', '--reason', 'no such reason')).toEqual([]);
    expect(await json('replay', '--before', '1h')).toEqual([]);
    expect(await json('replay', '--project', '7')).toEqual([{ id, subject: SUBJECT, became: 'waiting' }]);
    expect((await sluice('replay')).err).toContain('--project, --reason');
    expect(await json('purge', '--since', '1h', '--reason', 'another')).toEqual({ purged: [other] });
    expect(await filedIds()).toEqual([]);
  });

  it('sends a whole frame back under the id that it had', async () => {
    const body = encodeFrame([encodeEntry(entry(Buffer.from('{}')))]);
    await file({ frameId: 'boot.4', body });
    expect((await sluice('replay', '--all')).status).toBe(0);
    const message = await queued();
    expect(message?.header.get('Nats-Msg-Id')).toBe('boot.4');
    expect(Buffer.from(message?.data ?? []).equals(body)).toBe(true);
  });

  it('keeps a frame that the broker still remembers, until it may be sent again', async () => {
    const id = await file({ frameId: 'boot.5' });
    await link.js.publish(SUBJECT, 'x', { msgID: 'boot.5' });
    expect(await sluice('replay', id)).toMatchObject({
      status: 1,
      err: expect.stringContaining('two minutes'),
    });
    expect(await filedIds()).toEqual([id]);
  });

  it('moves an item that is larger than a message into parts', async () => {
    const payload = Buffer.alloc(3 * MIB, '{"a":1}');
    const id = await fileItem(payload, 'boot.6');
    expect((await sluice('replay', id)).status).toBe(0);
    const [slot] = decodeFrame((await queued())?.data ?? new Uint8Array());
    if (!slot?.ok || slot.entry.kind !== 'envelope' || !slot.entry.parts)
      throw new Error('a large entry expected');
    const whole = joinParts(slot.entry, await readParts(link, slot.entry.parts));
    expect(payload.equals(whole.items[0]?.payload ?? Buffer.alloc(0))).toBe(true);
  });

  it('keeps an entry of which parts are gone, with what was left of it', async () => {
    const { items, ...rest } = entry(Buffer.from('{}'));
    const bare = items.map(({ payload: _, ...item }) => item);
    const parts = { sequences: [1_000_001], length: 2, sha256: Buffer.alloc(32) };
    const body = encodeEntry({ ...rest, items: bare, parts });
    const id = await file({ kind: 'entry', entryIndex: 0, projectId: '7', body, rest: Buffer.from('{') });
    expect(await sluice('replay', '--all')).toMatchObject({
      status: 1,
      err: expect.stringContaining(`Dead letter ${id} cannot be replayed: part 1000001 is not in`),
    });
    expect(await filedIds()).toEqual([id]);
    expect((await sluice('show', '--raw', id)).out.endsWith('{')).toBe(true);
  });

  it('leaves a letter that was filed again under the same id since it was read', async () => {
    const body = Buffer.alloc(2 * MIB, 'x');
    const id = await file({ frameId: 'boot.7', body });
    const box = await DeadLetterBox.open(link);
    const read = await box.get(id);
    expect(await file({ frameId: 'boot.7', body, reason: 'still no frame' })).toBe(id);
    await box.purge(read);
    const still = await box.get(id);
    expect(still.reason).toBe('still no frame');
    expect(body.equals(await box.bytesOf(still))).toBe(true);
  });

  it('says so when no stream takes it, and keeps the letter', async () => {
    const id = await file({ frameId: 'boot.8', subject: 'sluice.elsewhere.99' });
    const ran = await sluice('replay', id);
    expect(ran).toMatchObject({
      status: 1,
      err: expect.stringContaining('was not taken by sluice.elsewhere.99'),
    });
    expect(await filedIds()).toEqual([id]);
  });

  it('sends the letter of a shard that is no more to one that is', async () => {
    const body = encodeFrame([encodeEntry(entry(Buffer.from('{}')))]);
    const id = await file({ frameId: 'boot.9', subject: streamSubject('events', 3), body });
    expect(await sluice('replay', id)).toMatchObject({
      status: 0,
      out: `Replayed ${id} to ${SUBJECT}.\n`,
      err: '',
    });
    expect((await queued())?.header.get('Nats-Msg-Id')).toBe('boot.9');
    expect(await filedIds()).toEqual([]);
  });

  it('goes on behind a letter that fails, and says in the end which did and why', async () => {
    const body = encodeFrame([encodeEntry(entry(Buffer.from('{}')))]);
    const first = await file({ frameId: 'boot.10', body });
    const stranger = await file({ frameId: 'boot.11', subject: 'sluice.elsewhere.0' });
    const torn = await file({ frameId: 'boot.12', body: Buffer.alloc(2 * MIB, 'x') });
    const part = { filter: `sluice.dead_letters.-.${torn}.1` };
    await (await link.manager()).streams.purge('SLUICE_DEAD_LETTERS', part);
    const last = await file({ frameId: 'boot.13', body });
    const ran = await sluice('replay', '--all');
    expect(ran.status).toBe(1);
    expect(ran.out).toBe(`Replayed ${first} to ${SUBJECT}.\nReplayed ${last} to ${SUBJECT}.\n`);
    expect(ran.err.split('\n')).toEqual([
      expect.stringContaining(`Dead letter ${stranger} was not taken by sluice.elsewhere.0: `),
      expect.stringMatching(`^Of dead letter ${torn} only \\d+ of ${2 * MIB} bytes are there$`),
      '2 of 4 dead letters were not replayed',
      '',
    ]);
    expect(await filedIds()).toEqual([stranger, torn]);
  });
});
