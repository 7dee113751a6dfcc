/**
 * Refusals that are decided before the body has arrived reach every client as an answer, whatever its language and framing, and leave
 * nothing behind. The titles say which clients this machine has.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HostileWorker } from '../../bench/hostile/worker.ts';
import { httpClients } from '../support/http-clients.ts';
import { MIB, System } from '../support/system.ts';

const { clients, close } = httpClients();
let system: System;
let worker: HostileWorker;
let paths: Record<string, string>;
let socketsAtRest: number;

beforeAll(async () => {
  system = await System.start();
  const project = await system.createProject();
  const spent = await system.createProject({ quota: 0 });
  paths = {
    'no key': `/api/${project.id}/envelope/`,
    'a wrong key': `/api/${project.id}/envelope/?compat_key=wrong`,
    'a body over the cap': pathOf(project),
    'a malformed body': pathOf(spent),
  };
  worker = new HostileWorker(system.ingest.child.pid);
  socketsAtRest = worker.openSockets();
});
afterAll(async () => {
  close();
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

const pathOf = ({ id, key }: { id: string; key: string }): string => `/api/${id}/envelope/?compat_key=${key}`;

/** Of a project whose window has just been filled: it forgets after a minute. */
async function limitedPath(): Promise<string> {
  const limited = await system.createProject({ rateLimit: 1 });
  expect((await system.send(limited, '{}\n{"type":"event"}\n{}')).status).toBe(200);
  return pathOf(limited);
}

const REFUSALS = [
  { why: 'no key', bytes: 4 * MIB, status: 401, error: 'Missing authentication' },
  { why: 'no key', bytes: 16 * MIB, status: 401, error: 'Missing authentication' },
  { why: 'a wrong key', bytes: 4 * MIB, status: 401, error: 'Invalid project or key' },
  { why: 'a limit that is reached', bytes: 4 * MIB, status: 429, error: 'Rate limit exceeded' },
  { why: 'a body over the cap', bytes: 6 * MIB, status: 413, error: 'Payload too large' },
  { why: 'a body over the cap', bytes: 16 * MIB, status: 413, error: 'Payload too large' },
  { why: 'a malformed body', bytes: 3 * MIB, status: 400, error: 'Invalid envelope format' },
].flatMap((refusal) => [false, true].map((chunked) => ({ ...refusal, chunked })));

describe.each(clients)('$name', (client) => {
  it.each(REFUSALS)('reads $status for $why and $bytes bytes, chunked: $chunked', async (refusal) => {
    const { why, bytes, chunked, status, error } = refusal;
    const path = why === 'a limit that is reached' ? await limitedPath() : (paths[why] as string);
    const start = why === 'a malformed body' ? '' : '{}\n{"type":"event"}\n';
    const answers = await client.post({ port: system.port, path, start, bytes, chunked });
    expect(answers.length).toBeGreaterThan(0);
    for (const answer of answers) expect(answer).toEqual([status, JSON.stringify({ error })]);
  });
});

it(`nothing is left of the requests of ${clients.map(({ name }) => name).join(', ')}`, async () => {
  await worker.idle();
  await expect.poll(() => worker.openSockets()).toBeLessThanOrEqual(socketsAtRest);
  expect(worker.spoolFiles()).toEqual({ open: 0, named: 0 });
  expect(await system.metric('sluice_requests_total', '{endpoint="ingest",outcome="aborted"}')).toBe(0);
});
