/** What becomes of requests while calls to the spool's disk do not return: each is answered, small ones as ever, and nothing is left. */
import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { eventId } from '../support/envelopes.ts';
import { HungDisk } from '../support/hung-disk.ts';
import { RawConnection } from '../support/raw-http.ts';
import { canStepClocks } from '../support/step-clock.ts';
import { MIB, type Project, System, until } from '../support/system.ts';

/** More than libuv has threads. */
const AT_ONCE = 12;
const ANSWER_MS = { min: 1_900, max: 3_500 };
const KIB = 1024;
/** A body that waits for the disk keeps at least so much in memory. */
const HELD_BYTES = MIB;

describe.runIf(canStepClocks())('while the disk hangs', () => {
  let disk: HungDisk;
  let system: System;
  let plain: Project;
  let filtering: Project;
  /** By status, all that were sent. */
  const answered: Record<number, number> = {};

  beforeAll(async () => {
    disk = new HungDisk();
    system = await System.start({ env: { SLUICE_SPOOL_DIR: disk.folder, ...disk.env } });
    plain = await system.createProject();
    filtering = await system.createProject({ filters: ['localhost'] });
  });
  afterEach(() => disk.hang());
  afterAll(async () => {
    await system.stop();
    disk.close();
  });

  const eventOf = (bytes: number): string =>
    `{"event_id":"${eventId()}"}\n{"type":"event"}\n{"message":"${randomBytes(bytes / 2).toString('hex')}"}`;

  type Told = { status: number; ms: number };
  async function send(project: Project, body: string | Uint8Array, encoding?: string): Promise<Told> {
    const began = performance.now();
    const headers: Record<string, string> = encoding === undefined ? {} : { 'content-encoding': encoding };
    const { status } = await system.send(project, body, headers);
    answered[status] = (answered[status] ?? 0) + 1;
    return { status, ms: performance.now() - began };
  }

  const sendLarge = (project: Project, bytes = 300 * KIB): Promise<Told> => send(project, eventOf(bytes));

  /**
   * One that waited for the disk would be answered 500. The last is inflated by one of libuv's threads: it comes in more than one chunk.
   */
  async function expectSmallOnesUnharmed(): Promise<void> {
    const small = await Promise.all([
      send(plain, eventOf(1_000)),
      send(filtering, eventOf(20_000)),
      send(plain, gzipSync(eventOf(100_000)), 'gzip'),
      send(
        plain,
        gzipSync(`{}\n{"type":"event"}\n{"message":"${randomBytes(90_000).toString('base64')}"}`),
        'gzip',
      ),
    ]);
    expect(small.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  }

  /** Once it is known that the disk hangs, no large envelope waits for it until the deadline. */
  async function expectRefusalAtOnce(): Promise<void> {
    await until(async () => (await sendLarge(plain)).status === 503);
    const { status, ms } = await sendLarge(plain);
    expect(status).toBe(503);
    expect(ms).toBeLessThan(ANSWER_MS.min);
  }

  /** The disk works again: so does all the rest, and what was held has been given back. */
  async function expectRecovery(): Promise<void> {
    disk.hang();
    await until(async () => (await sendLarge(plain)).status === 200);
    expect((await sendLarge(filtering)).status).toBe(200);
    for (const name of ['sluice_spooled_bytes', 'sluice_buffered_bytes', 'sluice_inflight_requests'])
      expect([name, await system.metric(name)]).toEqual([name, 0]);
    expect(await system.metric('sluice_worker_restarts_total')).toBe(0);
    const counted = async (outcome: string): Promise<number> =>
      system.metric('sluice_requests_total', `{endpoint="ingest",outcome="${outcome}"}`);
    expect(await counted('accepted')).toBe(answered[200]);
    expect(await counted('failed')).toBe(answered[500]);
    expect(await counted('overloaded')).toBe(answered[503] ?? 0);
  }

  it.each([
    ['opened', 'open', 'plain'],
    ['written at the end of the body', 'write', 'plain'],
    ['read for the filters', 'read', 'filtering'],
    ['read to be published', 'read', 'plain'],
  ] as const)('a spool that cannot be %s: 500 at the deadline', async (_, call, name) => {
    disk.hang(call);
    const hung = Array.from({ length: AT_ONCE }, () => sendLarge(name === 'plain' ? plain : filtering));
    await expectSmallOnesUnharmed();
    const told = await Promise.all(hung);
    // What waited for its turn at the publisher was not begun: certainly not queued.
    const refusals = name === 'plain' && call === 'read' ? [500, 503] : [500];
    expect(refusals).toEqual(expect.arrayContaining(told.map(({ status }) => status)));
    expect(told.map(({ status }) => status)).toContain(500);
    for (const { ms } of told) expect(ms).toBeGreaterThan(ANSWER_MS.min);
    for (const { ms } of told) expect(ms).toBeLessThan(ANSWER_MS.max);
    await expectSmallOnesUnharmed();
    await expectRefusalAtOnce();
    await expectRecovery();
  });

  /** The head of an upload and what is sent of it so far. */
  async function begin(body: string, bytes: number): Promise<RawConnection> {
    const path = system.endpoint(plain).slice(system.url.length);
    const client = await RawConnection.open(system.port);
    const head = `POST ${path} HTTP/1.1\r\nHost: sluice\r\nContent-Length: ${body.length}`;
    client.send(`${head}\r\n\r\n${body.slice(0, bytes)}`);
    return client;
  }

  /** Until the worker holds so many bytes of bodies, and takes no more of what has been sent. */
  async function heldAtLeast(bytes: number): Promise<void> {
    let before = -1;
    await until(async () => {
      const held = await system.metric('sluice_buffered_bytes');
      const settled = held >= bytes && held === before;
      before = held;
      return settled;
    });
  }

  it('an upload that is paused because it cannot be written goes on with the disk', async () => {
    disk.hang('write');
    const bodies = Array.from({ length: AT_ONCE / 2 }, () => eventOf(3 * MIB));
    const clients = await Promise.all(bodies.map((body) => begin(body, 2 * MIB)));
    await heldAtLeast(clients.length * HELD_BYTES);
    for (const [n, client] of clients.entries()) client.send((bodies[n] as string).slice(2 * MIB));
    await expectRefusalAtOnce();
    await expectSmallOnesUnharmed();
    disk.hang();
    for (const client of clients) {
      const [answer] = await client.receive();
      client.close();
      expect(answer?.status).toBe(200);
      answered[200] = (answered[200] ?? 0) + 1;
    }
    await expectRecovery();
  });

  it('a client that leaves meanwhile leaves nothing behind', async () => {
    disk.hang('write');
    const client = await begin(eventOf(3 * MIB), MIB);
    await until(async () => (await system.metric('sluice_buffered_bytes')) > 0);
    client.close();
    await expectRecovery();
  });
});
