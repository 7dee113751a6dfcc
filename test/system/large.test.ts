/** Envelopes above one frame arrive intact with the broker's default max_payload. */
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { INFLATION_BUDGET_BYTES, INFLATION_BUDGET_BYTES_PER_SEC } from '../../src/limits.ts';
import { eventId } from '../support/envelopes.ts';
import { MIB, type Project, System, until } from '../support/system.ts';

let system: System;
let project: Project;
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

beforeAll(async () => {
  system = await System.start();
  project = await system.createProject({ filters: ['browser-extension', 'localhost', 'crawler'] });
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

it('an event of 4.9 MB', async () => {
  const id = eventId();
  const value = randomBytes(Math.floor(2.45 * MIB)).toString('hex');
  const body = `{"event_id":"${id}"}\n{"type":"event"}\n${JSON.stringify({ exception: { values: [{ value }] } })}`;
  expect((await system.send(project, body)).status).toBe(200);
  const [record] = await system.storedOf(id);
  const exception = record?.payload.exception as { values: [{ value: string }] } | undefined;
  expect(sha256(exception?.values[0].value ?? '')).toBe(sha256(value));
});

it('a large event that a filter matches is filtered', async () => {
  const value = `Can't find variable: ZiteReader ${'x'.repeat(2 * MIB)}`;
  const body = `{}\n{"type":"event"}\n${JSON.stringify({ exception: { values: [{ value }] } })}`;
  const response = await system.send(project, body);
  expect([response.status, response.headers.get('x-service-filtered')]).toEqual([200, 'browser-extension']);
});

it('a replay recording of 4.9 MB', async () => {
  const id = eventId();
  const events = [{ type: 2, data: randomBytes(Math.floor(4.85 * MIB)).toString('base64') }];
  const recording = Buffer.concat([Buffer.from('{"segment_id":0}\n'), gzipSync(JSON.stringify(events))]);
  const body = Buffer.concat([
    Buffer.from(`{"event_id":"${id}"}\n{"type":"replay_event"}\n{"replay_id":"${id}","segment_id":0}\n`),
    Buffer.from(`{"type":"replay_recording","length":${recording.length}}\n`),
    recording,
  ]);
  expect(body.length).toBeGreaterThan(4.8 * MIB);
  expect((await system.send(project, body)).status).toBe(200);
  const records = await system.storedOf(id, 2);
  const stored = records.find(({ item_index }) => item_index === 1);
  expect(stored?.payload).toEqual({ segment_id: 0, recording: events });
});

it('three segments of one replay, which share an event_id, are all stored', async () => {
  const id = eventId();
  for (const segment of [0, 1, 2]) {
    const recording = Buffer.concat([
      Buffer.from(`{"segment_id":${segment}}\n`),
      gzipSync(JSON.stringify([{ segment }])),
    ]);
    const body = Buffer.concat([
      Buffer.from(`{"event_id":"${id}"}\n{"type":"replay_event"}\n{"segment_id":${segment}}\n`),
      Buffer.from(`{"type":"replay_recording","length":${recording.length}}\n`),
      recording,
      Buffer.from('\n'),
    ]);
    expect((await system.send(project, body)).status).toBe(200);
  }
  const records = await system.storedOf(id, 6);
  const recordings = records.filter(({ type }) => type === 'replay_recording').map(({ payload }) => payload);
  expect(recordings.sort((a, b) => Number(a.segment_id) - Number(b.segment_id))).toEqual(
    [0, 1, 2].map((segment) => ({ segment_id: segment, recording: [{ segment }] })),
  );
});

it('compressed bodies of every encoding arrive', async () => {
  const { brotliCompressSync, deflateSync } = await import('node:zlib');
  const encodings = { gzip: gzipSync, 'x-gzip': gzipSync, deflate: deflateSync, br: brotliCompressSync };
  for (const [encoding, compress] of Object.entries(encodings)) {
    const id = eventId();
    const body = compress(
      `{"event_id":"${id}"}\n{"type":"event"}\n{"message":"${encoding} ${'z'.repeat(500_000)}"}`,
    );
    const response = await system.send(project, body, { 'content-encoding': encoding });
    expect([encoding, response.status]).toEqual([encoding, 200]);
    expect((await system.storedOf(id))[0]?.payload.message).toContain(encoding);
  }
});

it('uploads that follow each other on one connection are all answered', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const statuses: number[] = [];
  for (let n = 0; n < 60; n++) {
    const id = eventId();
    const body = `{"event_id":"${id}"}\n{"type":"event"}\n{"message":"${randomBytes((0.4 + (n % 3) * 0.3) * MIB).toString('hex')}"}`;
    statuses.push(await post(agent, body));
  }
  agent.destroy();
  expect(statuses).toEqual(statuses.map(() => 200));
});

function post(agent: Agent, body: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-length': Buffer.byteLength(body) };
    const req = request(system.endpoint(project), { agent, method: 'POST', headers }, (res) => {
      res.resume();
      res.once('end', () => resolve(res.statusCode ?? 0));
    });
    req.once('error', reject);
    req.end(body);
  });
}

/** An event with an attachment of 6 MiB that does not compress. */
function withAttachment(id: string): { body: Buffer; file: Buffer } {
  const file = randomBytes(6 * MIB);
  const head = `{"event_id":"${id}"}\n{"type":"event"}\n{"message":"crash"}\n{"type":"attachment","length":${file.length}}\n`;
  return { body: Buffer.concat([Buffer.from(head), file]), file };
}

it('an event with a large attachment is refused whole, and stored with the settings that docs/clients.md names', async () => {
  const refused = await system.send(project, withAttachment(eventId()).body);
  expect([refused.status, refused.headers.get('x-sentry-error')]).toEqual([413, expect.any(String)]);
  const document = readFileSync(new URL('../../docs/clients.md', import.meta.url), 'utf8');
  const settings = [...document.matchAll(/^(SLUICE_[A-Z_]+)=(\S+)$/gm)].map(([, name, value]) => [
    name,
    value,
  ]);
  const wide = await System.start({ env: Object.fromEntries(settings) });
  try {
    const id = eventId();
    const { body, file } = withAttachment(id);
    expect((await wide.send(await wide.createProject(), body)).status).toBe(200);
    const stored = await wide.storedOf(id, 2);
    expect(stored.map(({ type }) => type).sort()).toEqual(['attachment', 'event']);
    const held = stored.find(({ type }) => type === 'attachment') as { payload_base64?: string } | undefined;
    expect(held?.payload_base64).toBe(file.toString('base64'));
  } finally {
    await wide.stop();
  }
});

it('recordings of 609 bytes that inflate to 126 MiB take no more of the disk than their project may', async () => {
  const own = await System.start();
  try {
    const sender = await own.createProject();
    const recording = Buffer.concat([
      Buffer.from('{"segment_id":0}\n'),
      gzipSync(`["${'x'.repeat(63 * MIB)}"]`, { level: 9 }),
    ]);
    const item = [Buffer.from(`{"type":"replay_recording","length":${recording.length}}\n`), recording];
    const line = Buffer.from('\n');
    const body = gzipSync(Buffer.concat([Buffer.from('{}\n'), ...item, line, ...item]), { level: 9 });
    expect(body.length).toBeLessThan(1_000);
    const startedAt = performance.now();
    const answers = Array.from({ length: 80 }, () => own.send(sender, body, { 'content-encoding': 'gzip' }));
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(Array(80).fill(200));
    const isRecording = '"type":"replay_recording"';
    const sizes = new Map<string, { bytes: number; recordings: number }>();
    await until(() => {
      for (const file of readdirSync(own.sinkDir, { recursive: true, encoding: 'utf8' })) {
        if (!file.endsWith('.ndjson') || sizes.has(file)) continue;
        const text = readFileSync(join(own.sinkDir, file), 'latin1');
        sizes.set(file, { bytes: text.length, recordings: text.split(isRecording).length - 1 });
      }
      return [...sizes.values()].reduce((sum, { recordings }) => sum + recordings, 0) >= 160;
    });
    const seconds = (performance.now() - startedAt) / 1_000;
    const bytes = [...sizes.values()].reduce((sum, size) => sum + size.bytes, 0);
    const asTheyCame = 160 * 2 * recording.length; // in base64
    expect(bytes).toBeLessThan(
      INFLATION_BUDGET_BYTES + seconds * INFLATION_BUDGET_BYTES_PER_SEC + asTheyCame,
    );
    expect(bytes).toBeGreaterThan(160 * recording.length);
  } finally {
    await own.stop();
  }
});
