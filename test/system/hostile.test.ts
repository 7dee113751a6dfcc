/** The hostile bodies of bench/hostile in small: what they show at size is in bench/results. */
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Asking } from '../../bench/hostile/asking.ts';
import { attacks } from '../../bench/hostile/attacks.ts';
import { chunkCount } from '../../bench/hostile/chunks.ts';
import { BODY_KINDS } from '../../bench/hostile/mutate.ts';
import { runMutations } from '../../bench/hostile/mutations.ts';
import { findStored, headOf, runAborts, runUploads } from '../../bench/hostile/uploads.ts';
import { HostileWorker, pathOf } from '../../bench/hostile/worker.ts';
import { eventId } from '../support/envelopes.ts';
import { rounds } from '../support/rounds.ts';
import { MIB, type Project, System, until } from '../support/system.ts';

let system: System;
let project: Project;
let worker: HostileWorker;

beforeAll(async () => {
  system = await System.start({ env: { SLUICE_PLAN_LIMITS: 'free-only' } });
  project = await system.createProject({ filters: ['browser-extension', 'localhost', 'crawler'] });
  worker = new HostileWorker(system.ingest.child.pid);
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

describe('a worker', () => {
  it.each(BODY_KINDS)('answers thousands of mutated bodies (%s) as documented, and lives', async (kind) => {
    const seed = Math.floor(Math.random() * 0x1_0000_0000);
    const count = rounds(4_000, 1_000);
    const result = await runMutations(worker, { targets: [project], count, seed, connections: 8 }, kind);
    const { answers, surprises, restarts, memory } = result;
    expect({ seed, surprises, restarts }).toEqual({ seed, surprises: [], restarts: 0 });
    const suffix = kind === 'envelopes' ? '' : ' OTLP';
    expect(answers[`200${suffix}`]).toBeGreaterThan(count / 10);
    expect(answers[`400${suffix}`]).toBeGreaterThan(count / 10);
    expect(memory.peak - memory.before, `seed ${seed}`).toBeLessThan(150 * MIB);
    await worker.idle();
    expect(worker.spoolFiles()).toEqual({ open: 0, named: 0 });
  });

  // Few enough for any machine: all that has arrived must be stored within two seconds (ANSWER_MS_MAX). bench/hostile sends hundreds.
  it('takes eight uploads that end together, plain and in gzip, and stores them intact', async () => {
    const shared = { targets: [project], count: 4, seed: 3, bytesPerSecond: 2_500_000 };
    const plain = runUploads(worker, { ...shared, payloadBytes: 5_000_000, gzip: false });
    const gzip = runUploads(worker, { ...shared, seed: 4, payloadBytes: 19 * MIB, gzip: true });
    for (const result of await Promise.all([plain, gzip])) {
      expect(result.answers).toEqual({ 200: 4 });
      let found = await findStored(worker, result);
      await until(async () => {
        found = await findStored(worker, result);
        return found.missing.length === 0;
      });
      expect(found).toEqual({ intact: 4, damaged: [], missing: [] });
      expect(result.memory.peak - result.memory.before).toBeLessThan(150 * MIB);
    }
    expect(worker.spoolFiles()).toEqual({ open: 0, named: 0 });
  });

  it('refuses what inflates to 21 MiB, however many come together', async () => {
    const shared = { targets: [project], count: 8, seed: 5, bytesPerSecond: 2_500_000 };
    const result = await runUploads(worker, { ...shared, payloadBytes: 21 * MIB, gzip: true });
    expect(result.answers).toEqual({ '413 {"error":"Payload too large"}': 8 });
    expect(worker.spoolFiles()).toEqual({ open: 0, named: 0 });
  });

  it('keeps nothing of uploads that end before their last byte', async () => {
    const count = 20;
    const aborted = (): Promise<number> =>
      system.metric('sluice_requests_total', '{endpoint="ingest",outcome="aborted"}');
    const [chunks, before] = [await chunkCount(worker), await aborted()];
    await runAborts(worker, { target: project, count, bodyBytes: 5_000_000, atOnce: 4 });
    await worker.idle();
    expect([await chunkCount(worker), await aborted()]).toEqual([chunks, before + count]);
    expect(worker.spoolFiles()).toEqual({ open: 0, named: 0 });
    expect(await system.metric('sluice_spooled_bytes')).toBe(0);
  });

  it.each(attacks(64 * MIB))('refuses $name, and answers others meanwhile', async ({ send, expected }) => {
    const under = Promise.all(Array.from({ length: 3 }, () => send(worker.port, pathOf(project))));
    const honest = await system.send(project, '{}\n{"type":"event"}\n{}');
    expect(honest.status).toBe(200);
    for (const { status, body } of await under) expect(expected, body).toContain(status);
  });

  it('keeps bombs of one project from the uploads and events of another', async () => {
    const other = await system.createProject();
    const bombOf = (start: string): Buffer =>
      gzipSync(`{}\n{"type":"event"}\n"${start}${'x'.repeat(18 * MIB)}"`);
    // The second comes in many packets and is not one of the smallest bodies.
    const kinds = [bombOf(''), bombOf(randomBytes(80_000).toString('hex'))];
    const megabyte = 'x'.repeat(MIB);
    const ask = async (target: Project, body: Buffer, encoding = ''): Promise<number> => {
      const asking = new Asking(worker.port);
      const head = headOf(pathOf(target), body.length, encoding);
      const { status } = await asking.ask(Buffer.concat([head, body]));
      asking.leave();
      return status;
    };
    const bombs: Promise<number>[] = [];
    const honest: { id: string; status: Promise<number> }[] = [];
    const work = (payload: string): void => {
      const id = eventId();
      const body = Buffer.from(`{"event_id":"${id}"}\n{"type":"event"}\n"${payload}"`);
      honest.push({ id, status: ask(other, body) });
    };
    for (let tick = 0; tick < 40; tick++) {
      bombs.push(ask(project, kinds[tick % kinds.length] as Buffer, 'gzip'));
      work('');
      if (tick % 8 === 0) work(megabyte);
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    const answers = await Promise.all(bombs);
    expect(answers.filter((status) => status !== 200 && status !== 503)).toEqual([]);
    expect(answers).toContain(200);
    expect(answers).toContain(503);
    expect(new Set(await Promise.all(honest.map(({ status }) => status)))).toEqual(new Set([200]));
    const { streams } = await system.link.manager();
    await until(async () => (await streams.info('SLUICE_EVENTS')).state.messages === 0);
    const missing = new Set(honest.map(({ id }) => id));
    const files = readdirSync(worker.sinkDir, { recursive: true, encoding: 'utf8' });
    for (const file of files.filter((name) => name.endsWith('.ndjson'))) {
      const bytes = readFileSync(join(worker.sinkDir, file));
      for (const id of missing) if (bytes.includes(id)) missing.delete(id);
    }
    expect([...missing]).toEqual([]);
    expect(system.ingest.errors).toEqual([]);
  });

  it('filters an event of 19 MiB of brackets without holding its breath until it is killed', async () => {
    const open = `{"x":"Googlebot","deep":${'['.repeat(19 * MIB)},"request":{"url":"http://localhost/"}}`;
    const body = gzipSync(`{}\n{"type":"event"}\n${open}`);
    // The other one rests after its bombs.
    const rested = await system.createProject({ filters: ['browser-extension', 'localhost', 'crawler'] });
    const answer = await system.send(rested, body, { 'content-encoding': 'gzip' });
    // What stands behind brackets that are never closed is not the payload's own.
    expect([answer.status, answer.headers.get('x-service-filtered')]).toEqual([200, null]);
    expect(await system.metric('sluice_worker_restarts_total')).toBe(0);
  });
});
